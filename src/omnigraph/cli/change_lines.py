"""Entity changes for people: who changed what in which commit, as lines that read like a diff.

Pure: change blocks in, lines out; so a page from a server reads the same as a local one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from omnigraph.api.enums import EntityKind, Operation

if TYPE_CHECKING:
    from omnigraph.api.changes import ChangeBlock, ChangeCause, ChangeRecord, Endpoints

_ABSENT = object()


def feed_lines(blocks: Iterable[ChangeBlock]) -> Iterator[str]:
    """Blocks with a blank line between them."""
    empty = True
    for block in blocks:
        if not empty:
            yield ""
        empty = False
        yield from block_lines(block.cause, block.changes)
    if empty:
        yield "(no new commits)"


def block_lines(cause: ChangeCause, changes: Iterable[ChangeRecord]) -> Iterator[str]:
    yield from cause_lines(cause)
    for change in changes:
        yield from change_lines(change)


def cause_lines(cause: ChangeCause) -> Iterator[str]:
    facts = {
        "commit": cause.graph_commit_id,
        "branch": cause.authored_branch,
        "parent": cause.parent_commit_id,
        "merged_parent": cause.merged_parent_commit_id,
        "actor": cause.actor_id,
    }
    yield from (f"{label}: {value}" for label, value in facts.items() if value is not None)
    yield f"authored_at: {cause.authored.isoformat(timespec='milliseconds').replace('+00:00', 'Z')}"


def change_lines(change: ChangeRecord) -> Iterator[str]:
    yield f"{change.op} {change.kind} {change.type_name} {change.id}"
    if change.kind is EntityKind.EDGE:
        yield f"  {_route([image.endpoints for image in (change.before, change.after) if image is not None])}"
    old = {} if change.before is None else change.before.properties
    new = {} if change.after is None else change.after.properties
    if change.op is Operation.INSERT:
        yield from (f"  + {key}: {_value(value)}" for key, value in new.items())
    elif change.op is Operation.DELETE:
        yield from (f"  - {key}: {_value(value)}" for key, value in old.items())
    else:
        for key in dict.fromkeys([*old, *new]):
            was, now = old.get(key, _ABSENT), new.get(key, _ABSENT)
            if was != now or type(was) is not type(now):
                yield f"  {key}: {_value(was)} -> {_value(now)}"


def change_style(line: str) -> str:
    """By the operation, or by the mark of a property."""
    word = line.split(" ", 1)[0]
    if word in ("insert", "update", "delete"):
        return {"insert": "bold green", "update": "bold yellow", "delete": "bold red"}[word]
    if line.startswith("  + "):
        return "green"
    return "red" if line.startswith("  - ") else "dim" if word.endswith(":") and word else ""


def diff_style(line: str) -> str:
    """By the mark at the beginning of a line."""
    return {"+ ": "green", "~ ": "yellow", "- ": "red"}.get(line[:2], "dim")


def _route(ways: Iterable[Endpoints | None]) -> str:
    ends = [f"{each.source} -> {each.target}" for each in ways if each is not None]
    return " => ".join(dict.fromkeys(ends))


def _value(value: object) -> str:
    if value is _ABSENT:
        return "<absent>"
    return "<null>" if value is None else json.dumps(value, ensure_ascii=False)
