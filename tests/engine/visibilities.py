"""Lenses on the social graphs: what each filter means, said a second time in plain Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from omnigraph.language.catalog import Catalog
from omnigraph.language.query.check.query import check_row_filter
from omnigraph.language.query.row_filter import (
    EVERY_ROW,
    RowFilter,
    TypeVisibility,
    Visibility,
    for_actor,
    visibility_of,
)
from tests.support.reference import ReferenceGraph

ACTOR = "ann"
Entity = dict[str, Any]
Shown = Callable[[Entity], bool]


def _at_least(name: str, least: float) -> Shown:
    return lambda entity: entity[name] is not None and entity[name] >= least


FILTERS: dict[str, list[tuple[str, Shown]]] = {
    "node:Person": [
        ("age >= 2", _at_least("age", 2)),
        ("age >= 2 or slug = $actor", lambda e: (e["age"] or -1) >= 2 or e["slug"] == ACTOR),
        (
            "(active = true and age >= 0) or nick = $actor",
            lambda e: (bool(e["active"]) and (e["age"] is not None and e["age"] >= 0)) or e["nick"] == ACTOR,
        ),
        ("not (age >= 2)", lambda e: e["age"] is not None and e["age"] < 2),
        ("nick is null or nick = $actor", lambda e: e["nick"] is None or e["nick"] == ACTOR),
        ("slug in [$actor, null] or not active", lambda e: e["slug"] == ACTOR or e["active"] is False),
        ("coalesce(age, 0) + 1 <= 2", lambda e: (e["age"] or 0) + 1 <= 2),
        ("not (lower(@id) = $actor)", lambda e: e["id"].lower() != ACTOR),
        ("age >= score", lambda e: e["age"] is not None and e["score"] is not None and e["age"] >= e["score"]),
        ("false", lambda e: False),
    ],
    "node:City": [
        ("people >= 1", _at_least("people", 1)),
        ('name != "a"', lambda e: e["name"] is not None and e["name"] != "a"),
    ],
    "edge:Knows": [
        ("since >= 1", _at_least("since", 1)),
        ("not (since >= 1) or since is null", lambda e: e["since"] is None or e["since"] < 1),
        ("@src = $actor or @dst = $actor", lambda e: ACTOR in (e["src"], e["dst"])),
        ("note = $actor or since >= 0", lambda e: e["note"] == ACTOR or (e["since"] is not None and e["since"] >= 0)),
    ],
    "edge:Near": [("km >= 1", _at_least("km", 1)), ("not (km < 1)", _at_least("km", 1))],
}


TITLED_FILTERS: dict[str, list[tuple[str, Shown]]] = {
    "node:Club": [("rank >= 2", _at_least("rank", 2))],
    "edge:Backs": [("since >= 1", _at_least("since", 1))],
}
"""Those of types that only `MIXED` has: an edge with interfaces at its ends, and one of the types there."""

HIDDEN = {
    "node:Person": ("age", "nick", "tags"),
    "node:City": ("people",),
    "edge:Knows": ("since",),
    "edge:Near": ("km",),
}
Chosen = dict[str, tuple[str, Shown]]


def drawn_filters() -> st.SearchStrategy[Chosen]:
    """For some types, one of their filters."""
    return st.fixed_dictionaries({}, optional={key: st.sampled_from(filters) for key, filters in FILTERS.items()})


def drawn_masks() -> st.SearchStrategy[dict[str, list[str]]]:
    """For some types, properties to hide: also such as filters look at."""
    return st.fixed_dictionaries(
        {}, optional={key: st.lists(st.sampled_from(names), unique=True) for key, names in HIDDEN.items()}
    )


def visibility_on(catalog: Catalog, chosen: Chosen, masked: dict[str, list[str]] | None = None) -> Visibility:
    made = []
    masked = masked or {}
    for type_key in chosen.keys() | masked.keys():
        type_ = catalog.type_named(type_key)
        rows: RowFilter = EVERY_ROW
        if type_key in chosen:
            rows = for_actor(check_row_filter(chosen[type_key][0], type_, catalog), ACTOR)
        made.append(TypeVisibility(type_, rows, frozenset(masked.get(type_key, ()))))
    return visibility_of(made)


def visible(
    reference: ReferenceGraph, chosen: Chosen, catalog: Catalog, masked: dict[str, list[str]] | None = None
) -> ReferenceGraph:
    """The graph with nothing in it that is not seen: masked properties are null."""
    kept = {
        key: [e for e in entities if key not in chosen or chosen[key][1](e)]
        for key, entities in reference.entities.items()
    }
    ids = {key: {e["id"] for e in entities} for key, entities in kept.items()}
    for edge in catalog.edges.values():
        kept[edge.type_key] = [
            e
            for e in kept[edge.type_key]
            if e["src"] in ids[f"node:{e['@src'] or edge.from_type}"]
            and e["dst"] in ids[f"node:{e['@dst'] or edge.to_type}"]
        ]
    for key, names in (masked or {}).items():
        kept[key] = [{**entity, **dict.fromkeys(names)} for entity in kept[key]]
    return ReferenceGraph(catalog, kept)
