"""Small generated inputs in which rows get into each other's way, side by side so that one run takes them all.

Every case has names of its own and so meets no other. Few names within a case make meetings likely: repeats, ids and
values that are taken, ends that are missing, sources with too many or too few edges.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

RULES = """
node Person {
  key: String @key
  mail: String? @unique
  rank: I32?
  @range(rank, 0..9)
}
node Thing { text: String? }
edge Owns: Person -> Thing @card(1..2) { weight: I32? }
edge Near: Thing -> Thing
edge Liked: Person -> Thing { stars: I32?  @key(@src, @dst) }
"""

_BAD_JSON = '{"type": "Person", '


@dataclass(frozen=True)
class Case:
    """Lines of one case. `stored` is there before, in modes that keep what is there."""

    stored: tuple[str, ...]
    lines: tuple[str, ...]


def _record(kind: str, case: str, *values: Any) -> str:
    def named(name: str) -> str:
        return f"{case}-{name}"

    if kind == "bad":
        return _BAD_JSON
    if kind == "Person":
        key, mail, rank = values
        data = {"key": named(key), "mail": mail and named(mail), "rank": rank}
        return json.dumps({"type": kind, "data": data})
    if kind == "Thing":
        return json.dumps({"type": kind, "data": {"id": named(values[0]), "text": values[1]}})
    if kind == "Liked":
        source, target, stars = values
        return json.dumps({"edge": kind, "from": named(source), "to": named(target), "data": {"stars": stars}})
    identity, source, target = values
    return json.dumps({"edge": kind, "from": named(source), "to": named(target), "data": {"id": named(identity)}})


def _some(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


_PEOPLE, _THINGS = _some("a", "b", "c"), _some("q", "r", "s")
_RECORDS = st.one_of(
    st.tuples(st.just("Person"), _PEOPLE, _some(None, None, "m", "n"), _some(None, 3, 3, 10, "x")),
    st.tuples(st.just("Thing"), _THINGS, _some(None, "hello", "hello", 5)),
    st.tuples(st.just("Owns"), _some("1", "2", "3", "4"), _PEOPLE, _THINGS),
    st.tuples(st.just("Owns"), _some("5", "6", "7", "8"), _PEOPLE, _THINGS),
    st.tuples(st.just("Near"), _some("1", "2"), _THINGS, _THINGS),
    st.tuples(st.just("Liked"), _PEOPLE, _THINGS, _some(None, 5)),
    st.tuples(_some("bad")),
)
_STORED = (
    ("Person", "a", "m", 1), ("Person", "b", None, 2), ("Thing", "q", "old"), ("Thing", "r", None),
    ("Owns", "1", "a", "q"), ("Owns", "2", "b", "q"), ("Owns", "3", "b", "r"), ("Near", "1", "q", "r"),
    ("Liked", "a", "q", 1),
)  # fmt: skip


_CERTAIN = (
    # One edge is stored, one is new, one comes twice.
    (
        ("Thing", "s", None),
        ("Liked", "a", "q", 2),
        ("Liked", "b", "q", 3),
        ("Liked", "b", "r", 4),
        ("Liked", "b", "r", 5),
    ),
    # Nothing is wrong with this one, so every type has rows in every mode.
    (("Person", "c", "n", 3), ("Thing", "s", "new"), ("Owns", "5", "c", "s"), ("Near", "2", "s", "s")),
    (("Person", "c", "m", None), ("Person", "d", "m", None)),
    (("Person", "a", "k", 5), ("Person", "a", "l", 5), ("Person", "c", None, 10), ("bad",)),
    (("Thing", "s", None), ("Thing", "s", "again"), ("Thing", "q", "taken"), ("Near", "2", "s", "none")),
    (("Person", "c", None, 1), ("Thing", "s", None), *(("Owns", name, "c", "s") for name in "5678")),
    # Takes the only thing that a has away from it.
    (("Person", "c", None, 1), ("Owns", "1", "c", "r"), ("Owns", "8", "a", "none")),
)


def generated(count: int, number: int) -> list[Case]:
    """`count` cases, the same ones for the same `number`, and a few that show every rule."""
    drawn: list[tuple[Any, ...]] = list(_CERTAIN)

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        deadline=None,
    )
    @given(st.lists(_RECORDS, min_size=2, max_size=6))
    def draw(records: list[tuple[Any, ...]]) -> None:
        drawn.append(tuple(records))

    draw()
    return [
        Case(
            tuple(_record(kind, f"case{at}", *values) for kind, *values in _STORED),
            tuple(_record(kind, f"case{at}", *values) for kind, *values in records),
        )
        for at, records in enumerate(drawn)
    ]
