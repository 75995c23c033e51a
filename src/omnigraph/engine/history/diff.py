"""The net difference of two states of the graph, by value and by entity id, as their reader sees them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from omnigraph.api.enums import EntityKind, Operation
from omnigraph.api.history import EVERYTHING, ChangedEnds, ChangeScope, ChangeSet, EntityChange
from omnigraph.engine.history.seen_deltas import deltas
from omnigraph.engine.history.type_delta import TypeDelta
from omnigraph.engine.snapshot import Snapshot
from omnigraph.engine.workspace import Workspace
from omnigraph.errors import ChangeFeedGapError, HistoricalVersionReclaimedError
from omnigraph.language.catalog import check_type_names
from omnigraph.storage.identifiers import MAIN


def diff(before: Snapshot, after: Snapshot, scope: ChangeScope = EVERYTHING) -> ChangeSet:
    """The net difference of two states, of any branches, in any direction."""
    if scope.types:
        check_type_names(scope.types, before.catalog, after.catalog)
    changes: list[EntityChange] = []
    try:
        for delta in deltas(before, after, scope):
            changes += entity_changes(delta, published_in(before), published_in(after), scope)
    except HistoricalVersionReclaimedError as error:
        raise ChangeFeedGapError(_reclaimed(before, after, error)) from error
    branch = None if after.branch == MAIN else after.branch
    return ChangeSet.of(before.version, after.version, branch, tuple(changes))


def diff_of(
    workspace: Workspace, before: str | Snapshot, after: str | Snapshot, scope: ChangeScope = EVERYTHING
) -> ChangeSet:
    """The same of branches, commits or states. A branch that moved on while its head was released is read again."""
    states = workspace.state_of(before), workspace.state_of(after)
    try:
        return diff(*states, scope)
    except ChangeFeedGapError:
        newer = workspace.state_of(before), workspace.state_of(after)
        if [state.commit_id for state in newer] == [state.commit_id for state in states]:
            raise
        return diff(*newer, scope)


def _reclaimed(before: Snapshot, after: Snapshot, error: HistoricalVersionReclaimedError) -> str:
    gone = error.dataset_version_id
    in_before = any(state.version == gone for state in before.entry.tables.values())
    return before.commit_id if in_before else after.commit_id


def published_in(state: Snapshot) -> dict[str, int]:
    """By the folder of a table, the version of the graph in which it last changed."""
    tables = state.entry.tables
    return {tables[key].path: version for key, version in state.table_versions().items()}


def entity_changes(
    delta: TypeDelta, before: Mapping[str, int], after: Mapping[str, int], scope: ChangeScope = EVERYTHING
) -> Iterator[EntityChange]:
    """The changes of one type in id order. `before` and `after` say when the tables of either side last changed."""
    kind, name = EntityKind(delta.pair.type.kind), delta.pair.type.name
    found = []
    for op in Operation:
        if scope.selects_op(op) and delta.part(op).num_rows:
            state, versions = (delta.pair.before, before) if op is Operation.DELETE else (delta.pair.after, after)
            if state is None:
                raise AssertionError("an entity that changed is in one of the states")
            version = versions[state.state.path]
            found += [(row["id"], op, version, row) for row in delta.part(op).to_pylist()]
    for entity_id, op, version, row in sorted(found, key=lambda change: change[0]):
        yield EntityChange(kind, name, entity_id, op, version, ends_of(row))


def ends_of(row: Mapping[str, Any]) -> ChangedEnds | None:
    """The endpoints of an edge; a node has none."""
    return ChangedEnds(row["src"], row["dst"]) if "src" in row else None
