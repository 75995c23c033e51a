"""Searches over typed hops in plain Python, as the language defines them: what walks are compared with.

Nodes and edges are pairs of a type name and an id. An edge that may be walked either way is two hops, or one if it
leads from a node to itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

Entity: TypeAlias = tuple[str, str]


class Hop(NamedTuple):
    edge: Entity
    start: Entity
    end: Entity


Walked: TypeAlias = tuple[Hop, ...]


def hops_from(node: Entity, hops: Sequence[Hop]) -> list[Hop]:
    return sorted(hop for hop in hops if hop.start == node)


def within(start: Entity, hops: Sequence[Hop], least: int, most: int) -> set[Entity]:
    """The distance rules of the language, word for word."""
    frontier, seen, out = [start], {start}, set()
    if least == 0:
        out.add(start)
    hop = 0
    while frontier and hop < most:
        hop += 1
        following = []
        for v in frontier:
            for _, _, w in hops_from(v, hops):
                if w == start and v == start and hop == 1:
                    if least <= 1:
                        out.add(start)
                elif w not in seen:
                    seen.add(w)
                    following.append(w)
                    if hop >= least:
                        out.add(w)
        frontier = following
    return out


def walks(start: Entity, hops: Sequence[Hop], length: int) -> Iterator[Walked]:
    """All walks of a length."""
    waiting: list[Walked] = [()]
    while waiting:
        walked = waiting.pop()
        if len(walked) == length:
            yield walked
        else:
            waiting += [(*walked, hop) for hop in hops_from(walked[-1].end if walked else start, hops)]


def shortest(start: Entity, hops: Sequence[Hop], least: int, most: int) -> dict[Entity, list[Walked]]:
    """All walks of least length to each node within reach, the smallest first."""
    found: dict[Entity, list[Walked]] = {}
    wanted = within(start, hops, least, most)
    length = 0
    while wanted - found.keys():
        level: dict[Entity, list[Walked]] = {}
        for walked in walks(start, hops, length):
            end = walked[-1].end if walked else start
            if end in wanted and end not in found and length >= least:
                level.setdefault(end, []).append(walked)
        found |= {end: sorted(those, key=edges_of) for end, those in level.items()}
        length += 1
    return found


def trails(start: Entity, hops: Sequence[Hop], least: int, most: int) -> list[Walked]:
    """All walks without a repeated edge."""
    found: list[Walked] = []
    waiting: list[Walked] = [()]
    while waiting:
        walked = waiting.pop()
        if len(walked) >= least:
            found.append(walked)
        if len(walked) < most:
            end = walked[-1].end if walked else start
            waiting += [(*walked, hop) for hop in hops_from(end, hops) if hop.edge not in edges_of(walked)]
    return sorted(found, key=edges_of)


def edges_of(walked: Walked) -> tuple[Entity, ...]:
    return tuple(hop.edge for hop in walked)


def nodes_of(start: Entity, walked: Walked) -> tuple[Entity, ...]:
    return start, *(hop.end for hop in walked)
