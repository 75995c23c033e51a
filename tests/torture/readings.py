"""The questions that workers ask, each with the answer that the model gives.

A question is written for the type names that its asker saw. An answer is compared as JSON: `seen` makes it of the rows
of a result, `expected` of a state of the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.torture.model import State

WORDS = ("lichen", "moss", "tide", "stone", "willow")
Names = Mapping[str, str]
Params = Mapping[str, Any]


@dataclass(frozen=True)
class Reading:
    """`source` is formatted with the lower-case names of edge types and the names of node types, by role."""

    source: str
    expected: Callable[[State, Params], Any]
    seen: Callable[[list[dict[str, Any]]], Any]
    superset: bool = False

    def text(self, names: Names) -> str:
        text = self.source
        for role, name in names.items():
            text = text.replace(f"<{role}>", name).replace(f"<{role.lower()}>", name[0].lower() + name[1:])
        return "query q" + text

    def agrees(self, state: State, params: Params, answer: Any) -> bool:
        expected = self.expected(state, params)
        return set(expected) <= set(answer) if self.superset else bool(expected == answer)


def _named(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(row["name"] for row in rows)


def _people(state: State) -> dict[str, dict[str, Any]]:
    return state.named().get("Person", {})


def _edges(state: State, role: str) -> list[tuple[str, str]]:
    type_ = state.role(role)
    return [] if type_ is None else [(row["from"], row["to"]) for row in state.of(type_.ident).values()]


def _friends(state: State, params: Params) -> list[str]:
    return sorted({to for source, to in _edges(state, "Knows") if source == params["name"]})


def _near_friends(state: State, params: Params) -> list[str]:
    """Shortest distance one or two; the start only through an edge to itself."""
    start, knows = params["name"], _edges(state, "Knows")
    first = {to for source, to in knows if source == start}
    second = {to for source, to in knows if source in first} - {start}
    return sorted(first | second)


def _homes(state: State, _: Params) -> list[list[str]]:
    return sorted([source, to] for source, to in _edges(state, "Lives"))


def _mentioning(state: State, params: Params) -> list[str]:
    return sorted(k for k, row in _people(state).items() if params["word"] in row.get("bio", "").split())


def _nearest(state: State, params: Params) -> list[float]:
    distances = (math.dist(row["vec"], params["q"]) for row in _people(state).values() if "vec" in row)
    return [round(distance, 4) for distance in sorted(distances)[:3]]


def _places_from(state: State, params: Params) -> list[str]:
    type_ = state.role("Place")
    rows = state.named()[type_.name] if type_ is not None else {}
    return sorted(key for key, row in rows.items() if row["n"] >= params["n"])


READINGS = {
    "people": Reading(
        "() { match { $p: Person } return { $p.name as name, $p.n as n } }",
        lambda state, _: {name: row["n"] for name, row in _people(state).items()},
        lambda rows: {row["name"]: row["n"] for row in rows},
    ),
    "friends": Reading(
        "($name: String) { match { $p: Person { name: $name } $p <knows> $f } return { $f.name as name } }",
        _friends,
        _named,
    ),
    "near_friends": Reading(
        "($name: String) { match { $p: Person { name: $name } $p <knows>{1,2} $f } return { $f.name as name } }",
        _near_friends,
        _named,
    ),
    "homes": Reading(
        "() { match { $p: Person $h: <Place> $p <lives> $h } return { $p.name as name, $h.name as home } }",
        _homes,
        lambda rows: sorted([row["name"], row["home"]] for row in rows),
    ),
    "search": Reading(
        "($word: String) { match { $p: Person search($p.bio, $word) } return { $p.name as name } }",
        _mentioning,
        _named,
    ),
    "fuzzy": Reading(
        "($word: String) { match { $p: Person fuzzy($p.bio, $word, 1) } return { $p.name as name } }",
        _mentioning,
        _named,
        superset=True,
    ),
    "bm25": Reading(
        "($word: String) { match { $p: Person } return { $p.name as name } order { bm25($p.bio, $word) } limit 5000 }",
        _mentioning,
        _named,
    ),
    "nearest": Reading(
        "($q: Vector(4)) { match { $p: Person } return { nearest($p.vec, $q) as d } order { d } limit 3 }",
        _nearest,
        lambda rows: [round(row["d"], 4) for row in rows],
    ),
    "places": Reading(
        "($n: I64) { match { $p: <Place>  $p.n >= $n } return { $p.name as name } }",
        _places_from,
        _named,
    ),
}
