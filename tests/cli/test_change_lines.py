"""Entity changes for people."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from omnigraph.api.enums import EntityKind, Operation, TypeChange
from omnigraph.api.history import (
    ChangeBlock,
    ChangeCause,
    ChangedType,
    ChangeRecord,
    Endpoints,
    EntityImage,
    SchemaChange,
)
from omnigraph.api.schema import RenameType
from omnigraph.cli.printing.history import block_lines, change_lines, change_style, feed_lines, schema_change_lines

CAUSE = ChangeCause(
    graph_commit_id="C2",
    parent_commit_id="C1",
    authored_branch="main",
    actor_id="me",
    authored_at=1_700_000_000_123_456,
)


def change(
    op: str, kind: str = "node", before: Any = None, after: Any = None, ends: Any = (None, None)
) -> ChangeRecord:
    def image(properties: Any, pair: Any) -> EntityImage | None:
        endpoints = None if pair is None else Endpoints(*pair)
        return None if properties is None else EntityImage(properties, endpoints)

    images = image(before, ends[0]), image(after, ends[1])
    return ChangeRecord(EntityKind(kind), ChangedType("t1", "T"), "x", Operation(op), *images)


@pytest.mark.parametrize(
    ("record", "lines"),
    [
        (change("insert", after={"a": "é", "n": None}), ["insert node T x", '  + a: "é"', "  + n: <null>"]),
        (change("delete", before={"a": [1, 2]}), ["delete node T x", "  - a: [1, 2]"]),
        (
            change("update", before={"a": 1, "b": 2, "c": 3}, after={"a": None, "b": 2, "d": 4}),
            ["update node T x", "  a: 1 -> <null>", "  c: 3 -> <absent>", "  d: <absent> -> 4"],
        ),
        (change("update", before={"a": 1}, after={"a": True}), ["update node T x", "  a: 1 -> true"]),
        (change("insert", "edge", after={}, ends=(None, ("p", "q"))), ["insert edge T x", "  p -> q"]),
        (
            change("update", "edge", before={}, after={}, ends=(("a", "b"), ("c", "d"))),
            ["update edge T x", "  a -> b => c -> d"],
        ),
        (
            change("update", "edge", before={"w": 1}, after={"w": 2}, ends=(("a", "b"), ("a", "b"))),
            ["update edge T x", "  a -> b", "  w: 1 -> 2"],
        ),
    ],
)
def test_a_change(record: ChangeRecord, lines: list[str]) -> None:
    assert list(change_lines(record)) == lines


def test_a_block_begins_with_its_cause() -> None:
    assert list(block_lines(CAUSE, [])) == [
        "commit: C2",
        "branch: main",
        "parent: C1",
        "actor: me",
        "authored_at: 2023-11-14T22:13:20.123Z",
    ]
    assert "merged_parent: C9" in list(block_lines(structs.replace(CAUSE, merged_parent_commit_id="C9"), []))


def schema_change(what: TypeChange, **facts: Any) -> SchemaChange:
    digests = {"schema_before": "a", "schema_after": "b"}
    return SchemaChange(kind=EntityKind.NODE, type=ChangedType("t1", "T"), change=what, **facts, **digests)


@pytest.mark.parametrize(
    ("record", "lines"),
    [
        (
            schema_change(TypeChange.CHANGED, renamed_from="S", steps=(RenameType("node", "S", "T"),)),
            ["schema node T changed, was S", "  rename node type 'S' -> 'T'"],
        ),
        (schema_change(TypeChange.DROPPED, entities=1), ["schema node T dropped, with 1 entity"]),
        (schema_change(TypeChange.DROPPED, entities=2), ["schema node T dropped, with 2 entities"]),
        (schema_change(TypeChange.ADDED), ["schema node T added"]),
    ],
)
def test_a_schema_change(record: SchemaChange, lines: list[str]) -> None:
    assert list(schema_change_lines(record)) == lines
    insert = change("insert", after={})
    block = ChangeBlock(CAUSE, (insert,), (record,))
    assert list(block_lines(CAUSE, block))[5:] == [*lines, *change_lines(insert)]
    assert change_style(lines[0]) == "bold cyan"


def test_a_feed_separates_its_blocks() -> None:
    block = ChangeBlock(CAUSE, (change("insert", after={}),))
    lines = list(feed_lines([block, block]))
    assert lines[5:7] == ["insert node T x", ""]
    assert lines[7] == "commit: C2"
    assert list(feed_lines([])) == ["(no new commits)"]
