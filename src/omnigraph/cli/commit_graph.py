"""Draws a history with its merges as lanes of text, the way `git log --graph` does.

Pure: commits in, lines out. Commits come children first; each lane waits for the next commit of one line of parents.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_MARKS = re.compile(r"^[*|/\\_ ]*")


@dataclass(frozen=True, slots=True)
class Node:
    """A commit to draw. Parents that are not drawn themselves end their lane."""

    id: str
    parents: tuple[str, ...]
    text: str


def drawn(nodes: Sequence[Node]) -> Iterator[str]:
    known = {node.id for node in nodes}
    lanes: list[str] = []
    for node in nodes:
        if node.id not in lanes:
            lanes.append(node.id)
        here = lanes.index(node.id)
        while (double := _second(lanes, node.id)) is not None:
            yield _joining(len(lanes), here, double)
            del lanes[double]
        marks = " ".join("*" if i == here else "|" for i in range(len(lanes)))
        yield f"{marks} {node.text}"
        parents = [parent for parent in node.parents if parent in known]
        if len(parents) > 1:
            yield _forking(len(lanes), here)
            lanes[here : here + 1] = parents[:2]
        elif parents:
            lanes[here] = parents[0]
        else:
            if here < len(lanes) - 1:
                yield _closing(len(lanes), here)
            del lanes[here]


def dag_style(line: str) -> str:
    """Merges and forks in colour, commits plain."""
    marks = _MARKS.match(line)
    return "cyan" if marks is not None and marks.end() == len(line) else ""


def _second(lanes: Sequence[str], id: str) -> int | None:
    first = lanes.index(id)
    return lanes.index(id, first + 1) if id in lanes[first + 1 :] else None


def _joining(lanes: int, left: int, right: int) -> str:
    """Lane `right` ends in lane `left`; the lanes beyond move over."""
    cells = [" "] * (2 * lanes)
    for lane in range(lanes):
        cells[2 * lane if lane < right else 2 * lane - 1] = "|" if lane < right else "/"
    for gap in range(left, right - 1):
        cells[2 * gap + 1] = "_"
    return "".join(cells).rstrip()


def _forking(lanes: int, here: int) -> str:
    """A new lane opens right of `here`; the lanes beyond make room."""
    cells = [" "] * (2 * lanes + 1)
    for lane in range(lanes):
        cells[2 * lane if lane <= here else 2 * lane + 1] = "|" if lane <= here else "\\"
    cells[2 * here + 1] = "\\"
    return "".join(cells).rstrip()


def _closing(lanes: int, here: int) -> str:
    """Lane `here` has no more commits; the lanes beyond move over."""
    cells = [" "] * (2 * lanes)
    for lane in range(lanes):
        if lane != here:
            cells[2 * lane if lane < here else 2 * lane - 1] = "|" if lane < here else "/"
    return "".join(cells).rstrip()
