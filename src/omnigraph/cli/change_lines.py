"""Entity changes for people: who changed what in which commit, as lines that read like a diff.

Pure: the wire form of change blocks in, lines out; so a page from a server reads the same as a local one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

_CAUSE = (
    ("commit", "graph_commit_id"),
    ("branch", "authored_branch"),
    ("parent", "parent_commit_id"),
    ("merged_parent", "merged_parent_commit_id"),
    ("actor", "actor_id"),
)
_ABSENT = object()


def feed_lines(blocks: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Blocks with a blank line between them."""
    empty = True
    for block in blocks:
        if not empty:
            yield ""
        empty = False
        yield from block_lines(block["cause"], block["changes"])
    if empty:
        yield "(no new commits)"


def block_lines(cause: Mapping[str, Any], changes: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    yield from cause_lines(cause)
    for change in changes:
        yield from change_lines(change)


def cause_lines(cause: Mapping[str, Any]) -> Iterator[str]:
    for label, key in _CAUSE:
        if cause.get(key) is not None:
            yield f"{label}: {cause[key]}"
    moment = datetime.fromtimestamp(cause["authored_at"] / 1_000_000, UTC)
    yield f"authored_at: {moment.isoformat(timespec='milliseconds').replace('+00:00', 'Z')}"


def change_lines(change: Mapping[str, Any]) -> Iterator[str]:
    before, after = change.get("before") or {}, change.get("after") or {}
    yield f"{change['op']} {change['kind']} {change['type']['name']} {change['id']}"
    if change["kind"] == "edge":
        yield f"  {_route(before.get('endpoints'), after.get('endpoints'))}"
    old, new = before.get("properties", {}), after.get("properties", {})
    if change["op"] == "insert":
        yield from (f"  + {key}: {_value(value)}" for key, value in new.items())
    elif change["op"] == "delete":
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


def _route(before: Mapping[str, str] | None, after: Mapping[str, str] | None) -> str:
    ends = [f"{e['from']} -> {e['to']}" for e in (before, after) if e is not None]
    return " => ".join(dict.fromkeys(ends))


def _value(value: object) -> str:
    if value is _ABSENT:
        return "<absent>"
    return "<null>" if value is None else json.dumps(value, ensure_ascii=False)
