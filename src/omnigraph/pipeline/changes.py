"""The change feed as a Spark stream: one row per changed entity, offsets that are versions of the branch.

A version of a branch never changes meaning, so an offset stays valid across restarts for as long as cleanup keeps the
commits behind it. The driver only looks at heads; executors read the changes of the commits they are given.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from omnigraph.engine.graph import Graph
from omnigraph.errors import BadRequestError
from omnigraph.storage.location import Location
from omnigraph.storage.root import open_root

CHANGES_SCHEMA: Final = (
    "commit_id string, version long, authored_at timestamp, actor string, op string, kind string, type string, "
    "id string, src string, dst string, before string, after string"
)

_AFTER: Final = "after:"


@dataclass
class CommitPartition(InputPartition):
    """The commit at one version of the branch."""

    version: int


class ChangeStreamReader(DataSourceStreamReader):
    """Commits after the start, in order. `start` is beginning (default), now, or after:<commit id>."""

    def __init__(self, location: Location, branch: str, start: str, types: frozenset[str]) -> None:
        self._location = location
        self._branch = branch
        self._start = start
        self._types = types

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        with self._graph() as graph:
            if self._start == "now":
                return {"version": graph.snapshot(self._branch).version}
            if self._start.startswith(_AFTER):
                return {"version": graph.get_commit(self._start.removeprefix(_AFTER)).version}
            if self._start != "beginning":
                raise BadRequestError(f"option start is beginning, now or after:<commit id>, not '{self._start}'")
        # The first commit creates the graph and changes nothing that was there before.
        return {"version": 1}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        with self._graph() as graph:
            return {"version": max(graph.snapshot(self._branch).version, start["version"])}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [CommitPartition(version) for version in range(start["version"] + 1, end["version"] + 1)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        from datetime import UTC, datetime

        from omnigraph.engine.scope import ChangeScope

        if not isinstance(partition, CommitPartition):
            return
        with self._graph() as graph:
            entry = graph.snapshot(self._branch, version=partition.version).entry
            commit = entry.commit
            at = datetime.fromtimestamp(commit.authored_at / 1e6, UTC)
            for change in graph.iter_commit_changes(commit.id, scope=ChangeScope.of(types=self._types)):
                image = change.after or change.before
                ends = image.endpoints if image is not None and image.endpoints is not None else (None, None)
                cause = (commit.id, entry.version, at, commit.actor)
                entity = (change.op.value, change.kind, change.type_name, change.id, *ends)
                yield (*cause, *entity, _image(change.before), _image(change.after))

    def commit(self, end: dict[str, int]) -> None:
        """Nothing is kept for a consumer, so there is nothing to let go of."""

    def _graph(self) -> Graph:
        return Graph(open_root(self._location))


def _image(image: Any) -> str | None:
    return None if image is None else json.dumps(image.properties, ensure_ascii=False)
