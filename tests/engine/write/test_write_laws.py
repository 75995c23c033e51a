"""Laws of writing: what is loaded is what is read, what is refused changes nothing, and every verdict on a sequence
of writes is the one that a few lines of plain Python reach on plain dictionaries."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph import Graph
from omnigraph.errors import OmniGraphError
from tests.engine import museum
from tests.engine.museum import edge, lines, node
from tests.engine.stored import everything, rows

few = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


@contextmanager
def new_graph(schema: str) -> Iterator[Graph]:
    with TemporaryDirectory() as directory, Graph.init(f"{directory}/graph", schema) as graph:
        yield graph


# What is loaded is what is read

texts = st.text(st.characters(codec="utf-8"), max_size=8)
days = st.dates(date(1, 1, 2), date(9999, 12, 30))
moments = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))

Sample = dict[str, Any]
samples = st.fixed_dictionaries(
    {
        "code": st.integers(0, 2**32 - 1),
        "flag": st.none() | st.booleans(),
        "small": st.none() | st.integers(-(2**31), 2**31 - 1),
        "large": st.none() | st.integers(-(2**63), 2**63 - 1),
        "positive": st.none() | st.integers(0, 2**64 - 1),
        "narrow": st.none() | st.floats(width=32, allow_nan=False, allow_infinity=False),
        "wide": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "day": st.none() | days,
        "moment": st.none() | moments.map(lambda m: m.replace(microsecond=m.microsecond // 1000 * 1000, tzinfo=UTC)),
        "scores": st.none() | st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3),
        "days": st.none() | st.lists(days, max_size=3),
    }
)


def as_json(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date | datetime) else value


@few
@given(st.lists(samples, max_size=12, unique_by=lambda s: s["code"]), st.sampled_from(["append", "merge", "overwrite"]))
def test_valid_rows_are_read_back_unchanged(given_rows: list[Sample], mode: str) -> None:
    records = [
        json.dumps({"type": "Sample", "data": {k: v for k, v in row.items() if v is not None}}, default=as_json)
        for row in given_rows
    ]
    with new_graph(museum.SCHEMA) as graph:
        graph.load("\n".join(records), mode=mode)
        assert rows(graph, "node:Sample") == {str(row["code"]): row for row in given_rows}
        graph.load("\n".join(records), mode="merge")
        assert rows(graph, "node:Sample") == {str(row["code"]): row for row in given_rows}


# What is refused changes nothing

VALID = [
    node("Curator", badge="k1", name="a", email="e1"),
    node("Curator", badge="k2", name="b", pay=10),
    node("Exhibit", accession=1, wing="w"),
    edge("Guards", "k1", '["1","w"]', id="g1"),
    node("Memo", id="m1", text="t"),
]
CORRUPT = [
    "{",
    "[]",
    '{"type":"Curator"',
    '{"type":"Curator","data":{"badge":"k3","name":"c"}} x',
    '{"type":"Curator","data":{"badge":"k3","badge":"k4","name":"c"}}',
    '{"type":"Nothing","data":{}}',
    '{"type":"Curator","data":{"badge":"k3"}}',
    '{"type":"Curator","data":null}',
    '{"edge":"Guards","from":"k1"}',
    '{"edge":"Guards","from":"k1","to":"x","type":"Memo"}',
    node("Curator", badge="k3", name=3),
    node("Curator", badge="k3", name="c", unknown=1),
    node("Curator", badge="k3", name="c", pay=-1),
    node("Curator", badge="9", name="c"),
    node("Curator", badge="k3", name="c", level="chief"),
    node("Curator", badge="k3", name="c", email="e1"),
    node("Curator", badge="k1", name="again"),
    node("Curator", badge="k3", name="c", id="k4"),
    node("Exhibit", accession=-1, wing="w"),
    node("Exhibit", accession=2, wing="w", vec=[1, 2]),
    node("Exhibit", accession=2, wing="w", tags=[None]),
    node("Exhibit", accession=2, wing="w", photo="base64:!"),
    node("Exhibit", accession=2, wing="w", photo="s3://bucket/key"),
    node("Memo", text="t", id=5),
    edge("Guards", "k1", "nowhere"),
    edge("Guards", "nobody", '["1","w"]'),
    edge("Guards", "k1", '["1","w"]', since="yesterday"),
    edge("Cites", "m1", "m1"),
    "\n".join([edge("Guards", "k1", '["1","w"]')] * 3),
]


@few
@given(
    st.permutations(VALID),
    st.sampled_from(CORRUPT),
    st.integers(0, len(VALID)),
    st.sampled_from(["append", "merge", "overwrite"]),
)
def test_one_bad_record_refuses_the_whole_batch(batch: list[str], bad: str, at: int, mode: str) -> None:
    with new_graph(museum.SCHEMA) as graph:
        graph.load(lines(node("Memo", id="m0", text="before")), mode="append")
        before = everything(graph)
        with pytest.raises(OmniGraphError):
            graph.load(lines(*batch[:at], bad, *batch[at:]), mode=mode)
        assert everything(graph) == before
        assert graph.snapshot().version == 2
        graph.load(lines(*batch), mode=mode)


# Every verdict is the plain one

SCHEMA = """
node P { k: String @key  u: I32?  @unique(u) }
node Q { t: I32 }
edge E: P -> Q @card(1..2) { w: I32?  @unique(src, w) }
edge F: Q -> Q
"""
QUERIES = """
query set($k: String, $u: I32?) { update P set { u: $u } where k = $k }
query put($k: String, $u: I32?) { insert P { k: $k, u: $u } }
query link($s: String, $d: String, $w: I32?) { insert E { from: $s, to: $d, w: $w } }
query drop_p($k: String) { delete P where k = $k }
query drop_q($t: I32) { delete Q where t <= $t }
query drop_e($s: String) { delete E where from = $s }
"""


class RefusedError(Exception):
    """What the plain model says no to."""


Entities = dict[str, dict[str, Any]]


@dataclass
class Plain:
    """The same graph as dictionaries. Every method returns the next state or raises."""

    P: Entities = field(default_factory=dict)
    Q: Entities = field(default_factory=dict)
    E: Entities = field(default_factory=dict)
    F: Entities = field(default_factory=dict)

    def next(self, **types: Entities) -> Plain:
        after = Plain(**{**vars(self), **types})
        after._check(before=self)
        return after

    def _check(self, before: Plain) -> None:
        for rows_, members in ((self.P, ("u",)), (self.E, ("src", "w"))):
            tuples = [tuple(row[m] for m in members) for row in rows_.values()]
            taken = Counter(t for t in tuples if None not in t)
            if any(count > 1 for count in taken.values()):
                raise RefusedError("unique")
        for edges, sources in ((self.E, self.P), (self.F, self.Q)):
            if any(row["src"] not in sources or row["dst"] not in self.Q for row in edges.values()):
                raise RefusedError("endpoint")
        changed = [i for i in {*before.E, *self.E} if before.E.get(i) != self.E.get(i)]
        touched = {side.E[i]["src"] for side in (before, self) for i in changed if i in side.E}
        counts = Counter(row["src"] for row in self.E.values())
        if any(not 1 <= counts[source] <= 2 for source in touched if source in self.P):
            raise RefusedError("cardinality")

    def load(self, mode: str, records: list[tuple[str, str, dict[str, Any]]]) -> Plain:
        keys = [i for t, i, _ in records if t == "P"]
        repeated = len({(t, i) for t, i, _ in records}) < len(records)
        if len(set(keys)) < len(keys) or (repeated and mode != "merge"):
            raise RefusedError("repeated")
        new: dict[str, Entities] = {}
        for t, i, row in records:
            new.setdefault(t, {})[i] = row
        if mode == "append" and any(i in getattr(self, t) for t, added in new.items() for i in added):
            raise RefusedError("exists")
        base: dict[str, Entities] = {t: {} if mode == "overwrite" else getattr(self, t) for t in new}
        return self.next(**{t: {**base[t], **added} for t, added in new.items()})

    def without(self, p: set[str], q: set[str], e: set[str]) -> Plain:
        def kept(edges: Entities, sources: set[str]) -> Entities:
            return {i: r for i, r in edges.items() if r["src"] not in sources and r["dst"] not in q}

        return self.next(
            P={i: r for i, r in self.P.items() if i not in p},
            Q={i: r for i, r in self.Q.items() if i not in q},
            E={i: r for i, r in kept(self.E, p).items() if i not in e},
            F=kept(self.F, q),
        )


names = st.sampled_from(["a", "b", "c"])
numbers = st.integers(0, 3)
maybe = st.none() | numbers
nodes = st.one_of(
    st.tuples(st.just("P"), names, st.fixed_dictionaries({"u": maybe})),
    st.tuples(st.just("Q"), names, st.fixed_dictionaries({"t": numbers})),
)
records = st.lists(
    st.one_of(
        nodes,
        st.tuples(st.just("E"), names, st.fixed_dictionaries({"src": names, "dst": names, "w": maybe})),
        st.tuples(st.just("F"), names, st.fixed_dictionaries({"src": names, "dst": names})),
    ),
    max_size=6,
)
steps = st.one_of(
    st.tuples(st.just("load"), st.sampled_from(["append", "merge", "merge", "overwrite"]), records),
    # Replaced nodes under edges that stay.
    st.tuples(st.just("load"), st.just("overwrite"), st.lists(nodes, max_size=2)),
    st.tuples(st.just("set"), names, maybe),
    st.tuples(st.just("put"), names, maybe),
    st.tuples(st.just("link"), st.tuples(names, names), maybe),
    st.tuples(st.just("drop_p"), names, st.none()),
    st.tuples(st.just("drop_q"), numbers, st.none()),
    st.tuples(st.just("drop_e"), names, st.none()),
)

START: list[tuple[str, str, dict[str, Any]]] = [
    ("P", "a", {"u": 0}),
    ("P", "b", {"u": None}),
    ("Q", "a", {"t": 0}),
    ("Q", "b", {"t": 2}),
    ("E", "a", {"src": "a", "dst": "a", "w": 1}),
]


def record(kind: str, entity_id: str, row: dict[str, Any]) -> str:
    if kind == "P":
        return node("P", k=entity_id, **row)
    if kind == "Q":
        return node("Q", id=entity_id, **row)
    properties = {name: value for name, value in row.items() if name not in ("src", "dst")}
    return edge(kind, row["src"], row["dst"], id=entity_id, **properties)


def apply(graph: Graph, step: tuple[str, Any, Any]) -> None:
    kind, first, second = step
    if kind == "load":
        graph.load(lines(*(record(*r) for r in second)), mode=first)
    elif kind == "link":
        graph.mutate(QUERIES, kind, {"s": first[0], "d": first[1], "w": second})
    else:
        params = {"set": {"k": first, "u": second}, "put": {"k": first, "u": second}, "drop_q": {"t": first}}
        graph.mutate(QUERIES, kind, params.get(kind, {"k": first} if kind == "drop_p" else {"s": first}))


def expect(plain: Plain, step: tuple[str, Any, Any], fresh_id: str) -> Plain:
    kind, first, second = step
    match kind:
        case "load":
            return plain.load(first, second)
        case "set":
            return plain.next(P={**plain.P, first: {"u": second}}) if first in plain.P else plain
        case "put":
            return plain.next(P={**plain.P, first: {"u": second}})
        case "link":
            return plain.next(E={**plain.E, fresh_id: {"src": first[0], "dst": first[1], "w": second}})
        case "drop_p":
            return plain.without({first} & set(plain.P), set(), set())
        case "drop_q":
            return plain.without(set(), {i for i, r in plain.Q.items() if r["t"] <= first}, set())
        case _:
            return plain.without(set(), set(), {i for i, r in plain.E.items() if r["src"] == first})


def contents(graph: Graph) -> Plain:
    held = {key.partition(":")[2]: found for key, found in everything(graph).items()}
    people = {i: {"u": row["u"]} for i, row in held["P"].items()}
    return Plain(P=people, Q=held["Q"], E=held["E"], F=held["F"])


@settings(parent=few, max_examples=30)
@given(st.lists(steps, max_size=8))
def test_a_sequence_of_writes_ends_where_the_plain_model_ends(sequence: list[tuple[str, Any, Any]]) -> None:
    with new_graph(SCHEMA) as graph:
        plain = Plain().load("append", START)
        graph.load(lines(*(record(*r) for r in START)), mode="append")
        for step in sequence:
            before = set(contents(graph).E)
            try:
                apply(graph, step)
                accepted = True
            except OmniGraphError:
                accepted = False
            added = set(contents(graph).E) - before
            try:
                plain = expect(plain, step, next(iter(added), "") if step[0] == "link" else "")
                allowed = True
            except RefusedError:
                allowed = False
            assert accepted == allowed, (step, plain)
            assert contents(graph) == plain, step
