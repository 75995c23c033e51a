"""`omnigraph.Branch`: one branch of a graph, with everything that can be done on it.

What `Graph.branch` and `RemoteGraph.branch` return. It holds the graph and a name; each method is a call of the graph
with the branch filled in, so naming it always means its newest head. Of an `AsyncRemoteGraph` the calls are awaited.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from omnigraph.api.branches import BranchDeleted
from omnigraph.api.calls import GraphCalls, QueryBatches, QueryRows, SnapshotApi
from omnigraph.api.changes import ChangeScope, ChangeSet
from omnigraph.api.commits import CommitHistory
from omnigraph.api.load import LoadReceipt, MutationReceipt
from omnigraph.api.merge import NO_RESOLUTIONS, MergePreview, MergeResult, Resolutions
from omnigraph.api.query import OperatorProfile

MAIN: Final = "main"


class Branch:
    """A branch: read it, write to it, compare it, merge it, delete it."""

    def __init__(self, graph: GraphCalls, name: str) -> None:
        self._graph = graph
        self.name = name

    def __repr__(self) -> str:
        return f"<branch '{self.name}' of {self._graph.uri}>"

    # Reading

    def query(
        self,
        source: Any,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        options: Any = None,
        **parameters: Any,
    ) -> QueryRows:
        """Run a read query on the head of the branch; see `Graph.query`."""
        asked = self._graph._bound(source, name, params, parameters, {"options": options})
        return self._graph.query(*asked, branch=self.name, options=options)

    def stream(
        self,
        source: Any,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        options: Any = None,
        **parameters: Any,
    ) -> QueryBatches:
        """As `query`, a batch at a time."""
        asked = self._graph._bound(source, name, params, parameters, {"options": options})
        return self._graph.stream(*asked, branch=self.name, options=options)

    def explain(
        self,
        source: Any,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        **parameters: Any,
    ) -> list[str]:
        """The plan of a read query as lines of an indented tree. Nothing is run."""
        return self._graph.explain(*self._graph._bound(source, name, params, parameters, {}), branch=self.name)

    def profile(
        self,
        source: Any,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        **parameters: Any,
    ) -> OperatorProfile:
        """Run a read query, drop its rows and tell what each operator did."""
        return self._graph.profile(*self._graph._bound(source, name, params, parameters, {}), branch=self.name)

    def entity(self, type_name: str, entity_id: str) -> dict[str, Any] | None:
        """One node or edge in export form, None when it is not there."""
        return self._graph.entity(type_name, entity_id, branch=self.name)

    def count(self, type_name: str) -> int:
        """How many entities of a type there are."""
        return self._graph.count(type_name, branch=self.name)

    def head(self) -> str:
        """The commit id of the branch as it is now."""
        return self._graph.resolve_snapshot(self.name)

    def export(self, types: Collection[str] = (), *, epoch: bool = False) -> Iterator[str]:
        """The lines of an export, each with its line end; with `epoch`, dates and times are numbers."""
        return self._graph.export(branch=self.name, types=types, epoch=epoch)

    def at(self, version: int | None = None, *, time: datetime | None = None) -> SnapshotApi:
        """The branch as it was at a version or a moment; as it is now when neither is given."""
        return self._graph.snapshot(self.name, version=version, at=time)

    # Writing

    def mutate(
        self,
        source: Any,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        if_commit: str | None = None,
        actor: str | None = None,
        idempotency_key: str | None = None,
        **parameters: Any,
    ) -> MutationReceipt:
        """Run a mutation as one commit on the branch; see `Graph.mutate`."""
        options = {"if_commit": if_commit, "actor": actor, "idempotency_key": idempotency_key}
        asked = self._graph._bound(source, name, params, parameters, options)
        return self._graph.mutate(
            *asked, branch=self.name, if_commit=if_commit, actor=actor, idempotency_key=idempotency_key
        )

    def load(
        self,
        data: Any,
        *,
        mode: str,
        type: str | None = None,
        format: str | None = None,
        csv: Any = None,
        embed: bool = False,
        actor: str | None = None,
        idempotency_key: str | None = None,
    ) -> LoadReceipt:
        """Load rows or graph records as one commit on the branch; see `Graph.load`."""
        return self._graph.load(
            data,
            mode=mode,
            type=type,
            branch=self.name,
            format=format,
            csv=csv,
            embed=embed,
            actor=actor,
            idempotency_key=idempotency_key,
        )

    # As a branch

    def history(self, *, limit: int = 100, before: int | None = None) -> CommitHistory:
        """The commits of the branch, newest first, with what each of them did."""
        return self._graph.commit_history(self.name, limit=limit, before=before)

    def diff(self, base: Any = MAIN, scope: ChangeScope | None = None) -> ChangeSet:
        """What the branch has that `base`, a branch, a commit or a snapshot, has not, and the other way round."""
        return self._graph.diff(base, self.name, scope)

    def preview_merge(self, target: str = MAIN, *, resolutions: Resolutions = NO_RESOLUTIONS) -> MergePreview:
        """What merging it into another branch would change, and what conflicts."""
        return self._graph.preview_merge(self.name, target, resolutions=resolutions)

    def merge_into(
        self,
        target: str = MAIN,
        *,
        delete: bool = False,
        resolutions: Resolutions = NO_RESOLUTIONS,
        actor: str | None = None,
        message: str | None = None,
        idempotency_key: str | None = None,
    ) -> MergeResult:
        """Merge it into another branch as one commit, and delete it if asked; or raise every conflict at once."""
        return self._graph.merge(
            self.name,
            target,
            delete_branch=delete,
            resolutions=resolutions,
            actor=actor,
            message=message,
            idempotency_key=idempotency_key,
        )

    def delete(self, *, actor: str | None = None, idempotency_key: str | None = None) -> BranchDeleted:
        """Delete the branch. Commits that another branch has stay."""
        return self._graph.delete_branch(self.name, actor=actor, idempotency_key=idempotency_key)
