"""A row filter means the same in a scan, by an index, on rows that are met, and on rows that are to be written."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph
from omnigraph import Graph
from omnigraph.api.queries import ReadPoint
from omnigraph.engine.query.operators import pushdown
from omnigraph.engine.query.read import run_query
from omnigraph.engine.query.traversal import edge_visibility
from omnigraph.engine.query.visibility import row_filter_mask, visible_entities
from omnigraph.language.query.check.query import check_row_filter
from omnigraph.language.query.row_filter import TypeVisibility, for_actor, visibility_of
from omnigraph.storage.identifiers import now_micros
from omnigraph.storage.tables.rows import row_ids_of

SCHEMA = """
node Row {
    key: String @key
    s: String? INDEX
    e: enum(a, b)? INDEX
    i: I32? INDEX
    u: U64?
    l: I64? INDEX
    f: F32?
    d: F64? INDEX
    t: Bool?
    day: Date? INDEX
    at: DateTime? INDEX
    ls: [String]?
    li: [I32]?
    s2: String?
}
"""
TEXTS = ("", "a", "A", "ab", "a'b", 'a"b', "%", "_", "a%", "\\", "é", "e\u0301", "ann", "😀", "xabcx", "null")
VALUES: dict[str, tuple[Any, ...]] = {
    "s": TEXTS,
    "e": ("a", "b"),
    "i": (0, 1, -1, 5, 2**31 - 1, -(2**31)),
    "u": (0, 1, 2**53 + 1, 2**63, 2**64 - 1),
    "l": (0, -1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)),
    "f": (0.0, -0.0, 0.1, 1.5, -1.5, 16777216.0),
    "d": (0.0, -0.0, 0.1, 1.5, 9007199254740993.0),
    "t": (True, False),
    "day": ("1969-12-31", "1970-01-01", "2024-02-29"),
    "at": ("1970-01-01T00:00:00Z", "2026-11-17T06:00:00Z", "2131-01-01T00:00:00.001Z"),
    "ls": ([], ["a"], ["ann", "%"], ["é"]),
    "li": ([], [0], [1, 5]),
    "s2": TEXTS,
}
TWO_PROPERTIES = ("s = s2", "s != s2", "s starts_with s2", "s contains s2", "ls contains s", "li contains i", "f <= d")
MIXED = ("i < l", "i >= d", "l < u", "i = f", "d > l")
CALCULATED = (
    "t",
    "lower(s) = s2",
    "upper($actor) = s",
    "lower(upper($actor)) in ls",
    's + s2 = "ab"',
    "i + 1 > 5",
    "i - 1 in li",
    "-i = 1",
    "coalesce(i, 5) = 5",
    "coalesce(t, true)",
    "case when t then i = 1 else s = $actor end",
    'case e when "a" then 1 when "b" then i end = 1',
    "size(ls) = 1",
    'any($x in ls : $x starts_with "a")',
    "all($x in li : $x > 0)",
    "year(day) = 1970",
    'nullif(s, "a") is null',
    '@id = "k7"',
    '@id in ["k7", $actor]',
    '@id starts_with "k1"',
    '@type = "Row"',
    "li = [1, 5]",
    'ls != ["a"]',
)
EVERY_ROW = "query q() { match { $r: Row } return { $r.key as k } }"
ACTORS = ("ann", "a'b", "%", "é")


def literal(name: str, value: Any) -> str:
    if name == "day":
        return f'date("{value}")'
    if name == "at":
        return f'datetime("{value}")'
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else f"{value}"


@st.composite
def comparisons(draw: Any) -> str:
    if draw(st.integers(0, 3)) == 0:
        return str(draw(st.sampled_from(TWO_PROPERTIES + MIXED + CALCULATED)))
    name = draw(st.sampled_from(sorted(VALUES)))
    if draw(st.integers(0, 7)) == 0:
        return f"{name} is {draw(st.sampled_from(['null', 'not null']))}"
    if name in ("ls", "li"):
        held = ["ls contains $actor", 'ls contains "%"', "li contains 5", "$actor in ls", "0 in li", '"a" in ls']
        return str(draw(st.sampled_from(held)))
    # A literal fits a signed number of 64 bits.
    written = [v for v in VALUES[name] if isinstance(v, str) or v < 2**63]
    value = literal(name, draw(st.sampled_from(written)))
    ways = ["=", "!="] if name in ("t", "e") else ["=", "!=", "<", "<=", ">", ">="]
    if name in ("s", "s2"):
        ways += ["contains", "starts_with", "among"]
        value = draw(st.sampled_from([value, "$actor"]))
    way = draw(st.sampled_from([*ways, "now"] if name == "at" else ways))
    if name not in ("t", "e") and draw(st.integers(0, 3)) == 0:
        listed = [literal(name, v) for v in draw(st.lists(st.sampled_from(written), min_size=1, max_size=3))]
        if draw(st.booleans()):
            return f"[{', '.join(listed)}] contains {name}"
        return f"{name} in [{', '.join([*listed, *draw(st.sampled_from([[], ['null']]))])}]"
    if way == "among":
        return f'["ab", {json.dumps(draw(st.sampled_from(TEXTS)), ensure_ascii=False)}] contains {name}'
    if way == "now":
        return f"{name} > now()"
    flipped = way not in ("contains", "starts_with") and draw(st.booleans())
    return f"{value} {way} {name}" if flipped else f"{name} {way} {value}"


FILTERS = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        inner.map(lambda part: f"not ({part})"),
        st.tuples(st.sampled_from([" and ", " or "]), st.lists(inner, min_size=2, max_size=3)).map(
            lambda parts: f"({parts[0].join(parts[1])})"
        ),
    ),
    max_leaves=5,
)


@pytest.fixture(scope="module", params=["@index", ""])
def graph(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    chosen = random.Random(5)
    with omnigraph.init(tmp_path_factory.mktemp("ways") / "g", SCHEMA.replace("INDEX", request.param)) as graph:
        rows = (
            {"key": f"k{i}", **{name: chosen.choice((None, *values)) for name, values in VALUES.items()}}
            for i in range(120)
        )
        graph.load("\n".join(json.dumps({"type": "Row", "data": row}) for row in rows), mode="append")
        if request.param:
            graph.maintenance.ensure_indices()
        yield graph


@settings(max_examples=70, deadline=None, suppress_health_check=list(HealthCheck))
@given(FILTERS, st.sampled_from(ACTORS))
def test_every_way_of_asking_finds_the_same_rows(graph: Graph, text: str, actor: str) -> None:
    state, type_ = graph.snapshot(), graph.catalog.nodes["Row"]
    test = for_actor(check_row_filter(text, type_, graph.catalog), actor)
    visible = state.restricted_to(visibility_of([TypeVisibility(type_, test)]))
    stored = state.table(type_.type_key).read(["id", *(prop.column for prop in type_.property_list)], row_ids=True)
    ids, now = stored.column("id"), now_micros() // 1_000
    scanned = run_query(visible, ReadPoint("main"), (EVERY_ROW, "q", {}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pushdown, "MOST_TERMS", 1)  # more than one test is too much for a scan
        bounded = run_query(visible, ReadPoint("main"), (EVERY_ROW, "q", {}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(edge_visibility, "_FIND", math.inf)  # rows are looked at one by one
        met = visible_entities(visible, type_, row_ids_of(stored), now)
    written = row_filter_mask(test, stored, now)
    assert sorted(row["k"] for row in scanned) == sorted(ids.filter(pa.array(met)).to_pylist())
    assert sorted(row["k"] for row in bounded) == sorted(row["k"] for row in scanned)
    assert np.array_equal(met, written)
