"""The steps of an apply that move graphs: making one, changing a schema. Each may fail alone, and the first that fails
is the last that is tried.

A step whose answer is lost, or that another apply was faster with, is judged by what stands afterwards: what was wanted
is there, or it is not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from omnigraph.api.cluster import ClusterChange, GraphObservation
from omnigraph.api.enums import ChangeDisposition, ResourceOperation
from omnigraph.cluster.addresses import Kind, graph_address, schema_address
from omnigraph.cluster.desired import Desired
from omnigraph.cluster.diagnostics import ClusterError, Diagnostic, error, warning
from omnigraph.cluster.digests import file_digest
from omnigraph.cluster.dispositions import parsed
from omnigraph.cluster.lock import timestamp
from omnigraph.cluster.observe import GraphView, Views
from omnigraph.cluster.sources import Source
from omnigraph.engine.managed_graph import change_schema, look_at, make
from omnigraph.engine.object_store import new_object_id
from omnigraph.engine.running_exports import RUNNING_EXPORTS
from omnigraph.errors import OmniGraphError


class Step(NamedTuple):
    """What a step is called when it failed, and when it was not tried."""

    failed: str
    skipped: str


CREATE: Final = Step("graph_create_failed", "graph_create_skipped")
CHANGE: Final = Step("schema_apply_failed", "schema_apply_skipped")
DELETE: Final = Step("graph_delete_failed", "graph_delete_skipped")


@dataclass
class Moves:
    """The graph-moving steps of one apply. `failed` has a reason for each resource that was not moved."""

    desired: Desired
    views: Views
    actor: str | None
    failed: dict[str, str] = field(default_factory=dict)
    observations: dict[str, GraphObservation] = field(default_factory=dict)
    found: list[Diagnostic] = field(default_factory=list)

    def run(self, changes: tuple[ClusterChange, ...]) -> None:
        for change in of_kind(changes, Kind.GRAPH, ResourceOperation.CREATE):
            self._step(change, CREATE, self._create)
        for change in of_kind(changes, Kind.SCHEMA, ResourceOperation.UPDATE):
            self._step(change, CHANGE, self._change)

    def refuse_exported(self, changes: tuple[ClusterChange, ...]) -> None:
        """A graph that this process is exporting is not deleted under the hands of the export."""
        for change in of_kind(changes, Kind.GRAPH, ResourceOperation.DELETE):
            found = self.views.graphs[parsed(change).name].found
            if found is not None and found.identity is not None and found.identity in RUNNING_EXPORTS:
                message = "it is being exported by this process; run apply again when that is done"
                self.found.append(error("graph_delete_export_in_progress", change.resource, message))
                self.failed[change.resource] = DELETE.failed

    def skip_deletes(self, changes: tuple[ClusterChange, ...]) -> None:
        """Nothing is deleted in a run in which something else went wrong."""
        for change in of_kind(changes, Kind.GRAPH, ResourceOperation.DELETE):
            self._skip(change.resource, DELETE)

    def _step(self, change: ClusterChange, step: Step, take: Callable[[GraphView, Source], int]) -> None:
        if self.failed:
            self._skip(change.resource, step)
            return
        graph_id = parsed(change).name
        view, source = self.views.graphs[graph_id], self.desired.sources[schema_address(graph_id)]
        try:
            source.refuse_changed(change.resource)
            version = take(view, source)
        except ClusterError as problem:
            self.found += problem.diagnostics
            self.failed[change.resource] = step.failed
            return
        except (OmniGraphError, OSError) as problem:
            standing = _standing(view.uri, source)
            if standing is None:
                self.found.append(error(step.failed, change.resource, str(problem)))
                self.failed[change.resource] = step.failed
                return
            version = standing
        self.observations[graph_address(graph_id)] = GraphObservation(
            address=graph_address(graph_id),
            graph_uri=view.uri,
            observed_at=timestamp(),
            exists=True,
            graph_manifest_version=version,
            schema_digest=source.digest,
            desired_schema_digest=source.digest,
            schema_matches_desired=True,
        )

    def _skip(self, resource: str, step: Step) -> None:
        message = "it is not tried, because something before it failed; run apply again"
        self.found.append(warning(step.skipped, resource, message))
        self.failed[resource] = step.skipped

    def _create(self, view: GraphView, source: Source) -> int:
        make(view.uri, source.text, new_object_id(), self.actor)
        return 1

    def _change(self, view: GraphView, source: Source) -> int:
        assert view.found is not None, "a graph that was not seen is pending"
        applied = change_schema(view.uri, view.found, source.text, new_object_id(), self.actor)
        return applied.graph_manifest_version


def _standing(uri: str, source: Source) -> int | None:
    """The version of a graph that has the wanted schema after all."""
    try:
        found = look_at(uri)
    except OmniGraphError:
        return None  # then it is not known to stand, and the failure that led here is the one to tell
    is_wanted = found.schema is not None and file_digest(found.schema.encode()) == source.digest
    return found.version if is_wanted else None


def of_kind(changes: tuple[ClusterChange, ...], kind: Kind, operation: ResourceOperation) -> list[ClusterChange]:
    """The changes of a kind that are to be made, in the order of their addresses."""
    return [
        change
        for change in changes
        if change.disposition is ChangeDisposition.APPLIED
        and change.operation is operation
        and parsed(change).kind is kind
    ]
