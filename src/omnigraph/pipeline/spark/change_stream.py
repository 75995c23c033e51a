"""The change feed as a Spark stream: one row per changed entity, offsets that are versions of the branch.

A version of a branch never changes meaning, so an offset stays valid across restarts for as long as cleanup keeps the
commits behind it. The driver only looks at heads; executors read the changes of the commits they are given.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow

from omnigraph.api.history import ChangeScope
from omnigraph.engine.bulk.staged_run import GraphAddress
from omnigraph.engine.history.changes import changes_of
from omnigraph.engine.workspace import Workspace
from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import check_type_names

CHANGES_SCHEMA: Final = (
    "commit_id string, version long, authored_at timestamp, actor string, op string, kind string, type string, "
    "id string, src string, dst string, before string, after string"
)

_AFTER: Final = "after:"
# A long history must not become as many tasks.
_MOST_TASKS: Final = 64


@dataclass
class CommitRange(InputPartition):
    """The commits at some versions of the branch, both ends included."""

    first: int
    last: int


class ChangeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Commits after the start, in order, at most `commits` in a micro-batch.

    `start` is beginning (default), now, or after:<commit id>.
    """

    def __init__(
        self, graph: GraphAddress, branch: str, start: str, types: frozenset[str], commits: int | None = None
    ) -> None:
        self._graph = graph
        self._branch = branch
        self._start = start
        self._types = types
        self._commits = commits
        self._end: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        with self._graph.open() as workspace:
            check_type_names(self._types, workspace.snapshot(self._branch).catalog)
            if self._start == "now":
                return {"version": workspace.snapshot(self._branch).version}
            if self._start.startswith(_AFTER):
                return {"version": workspace.commit_entry(self._start.removeprefix(_AFTER)).version}
            if self._start != "beginning":
                raise BadRequestError(f"option start is beginning, now or after:<commit id>, not '{self._start}'")
        # The first commit creates the graph and changes nothing that was there before.
        return {"version": 1}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Spark counts rows, bytes or files; a commit is nearest to a file."""
        return ReadAllAvailable() if self._commits is None else ReadMaxFiles(self._commits)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._end = self._newest()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        newest = self._newest() if self._end is None else self._end
        if isinstance(limit, ReadMaxFiles):
            newest = min(newest, start["version"] + limit.max_files)
        return {"version": max(newest, start["version"])}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        first, last = start["version"] + 1, end["version"]
        size = max(1, -(-(last - first + 1) // _MOST_TASKS))
        return [CommitRange(at, min(at + size - 1, last)) for at in range(first, last + 1, size)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        if not isinstance(partition, CommitRange):
            return
        with self._graph.open() as workspace:
            for version in range(partition.first, partition.last + 1):
                yield from self._changes(workspace, version)

    def _changes(self, workspace: Workspace, version: int) -> Iterator[tuple[Any, ...]]:
        state = workspace.snapshot(self._branch, version=version)
        commit = state.entry.commit
        cause = (commit.id, state.entry.version, datetime.fromtimestamp(commit.authored_at / 1e6, UTC), commit.actor)
        for change in changes_of(state, ChangeScope.of(types=self._types)).records():
            image = change.after or change.before
            ends = image.endpoints if image is not None else None
            between = (None, None) if ends is None else (ends.source, ends.target)
            entity = (change.op.value, change.kind.value, change.type_name, change.id, *between)
            yield (*cause, *entity, _image(change.before), _image(change.after))

    def commit(self, end: dict[str, int]) -> None:
        """Nothing is kept for a consumer, so there is nothing to release."""

    def _newest(self) -> int:
        with self._graph.open() as workspace:
            return workspace.snapshot(self._branch).version


def _image(image: Any) -> str | None:
    return None if image is None else json.dumps(image.properties, ensure_ascii=False)
