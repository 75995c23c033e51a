"""A scan of several types: each has its own filter, its own visible rows, and its share of a limit."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from omnigraph import Graph
from omnigraph.api.queries import ReadPoint
from omnigraph.engine.query.operators.scan import scan_candidates, scan_union
from omnigraph.engine.query.read import context_of, run_query
from omnigraph.language.query import ir
from omnigraph.language.query.check.query import check_row_filter
from omnigraph.language.query.compile import compile_queries
from omnigraph.language.query.row_filter import UNRESTRICTED, TypeVisibility, visibility_of
from omnigraph.storage.tables.memory.columns import COLUMNS

SCHEMA = """
node Doc { slug: String @key  title: String? @index  level: I32?  owner: String? }
node Box { slug: String @key  title: String? @index  level: I32? }
node Pic { name: String @key }
edge Holds: Box -> Doc
"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    records = [
        {"type": kind, "data": {"slug": f"{kind[0].lower()}{i}", "title": f"green {kind} {i}", "level": i or None}}
        for kind in ("Doc", "Box")
        for i in range(4)
    ]
    with Graph.init(tmp_path_factory.mktemp("unions") / "g", SCHEMA) as graph:
        graph.load("\n".join(map(json.dumps, [*records, {"type": "Pic", "data": {"name": "p"}}])), mode="append")
        graph.maintenance.ensure_indices()
        yield graph


def ids(graph: Graph, match: str, tail: str = "order { i }") -> list[str]:
    return [row["i"] for row in graph.query(f"query q() {{ match {{ {match} }} return {{ $x.@id as i }} {tail} }}")]


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        ("$x: (Doc | Box)  $x.level in [1, 2] or $x.slug = \"d3\"", ["b1", "b2", "d1", "d2", "d3"]),
        ("$x: (Doc | Box)  not ($x.level > 1)", ["b1", "d1"]),
        ("$x: (Doc | Box)  $x.level is null", ["b0", "d0"]),
        ("$x: (Doc | Box) { slug: \"b2\" }", ["b2"]),
        ("$x: *  $x.level? > 2", ["b3", "d3"]),
        ("$x: *  $x.level? is null", ["b0", "d0", "p"]),
        ("$x: *  $x.owner? is null and not ($x.@type in [\"Doc\", \"Pic\"])", ["b0", "b1", "b2", "b3"]),
        ("$x: *  $x.@id = \"p\" or $x.@id = \"d1\"", ["d1", "p"]),
        ("$x: (Doc | Box)  lower($x.@type) = \"doc\" and $x.level = 1", ["d1"]),
        ("$x: (Doc | Box)  search($x.title, \"green\")  $x.level = 2", ["b2", "d2"]),
        ("$x: (Doc | Box)  search($x.title, \"doc\") and $x.level = 2 or $x.level = 3", ["b3", "d2", "d3"]),
        ("$x: (Doc | Box)  not search($x.title, \"doc\")", ["b0", "b1", "b2", "b3"]),
    ],
)  # fmt: skip
def test_each_type_is_filtered_by_its_own_scan(graph: Graph, match: str, expected: list[str]) -> None:
    assert ids(graph, match) == expected


def test_what_each_scan_was_given_is_explained(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(COLUMNS, "limit", 0)
    COLUMNS.clear()
    text = "query q() { match { $x: (Doc | Box)  $x.level = 1 or $x.level = 2 } return { $x.@id } }"
    assert [line.strip() for line in graph.explain(text) if "in the scan" in line] == [
        "in the scan of Doc: `level` IN (1, 2)",
        "in the scan of Box: `level` IN (1, 2)",
    ]


@pytest.mark.parametrize("limit", [0, 1, 4, 5, 8, 100])
def test_a_limit_ends_the_scans(graph: Graph, limit: int) -> None:
    found = ids(graph, "$x: (Doc | Box)", f"limit {limit}")
    assert len(found) == len(set(found)) == min(limit, 8)


def union(graph: Graph, match: str) -> ir.TypeUnionScan:
    text = f"query q() {{ match {{ {match} }} return {{ $x.@id }} }}"
    plan = compile_queries(text, graph.catalog).query("q").read_plan.root
    assert isinstance(plan, ir.Project)
    assert isinstance(plan.input, ir.TypeUnionScan)
    return plan.input


def test_rows_know_their_type(graph: Graph) -> None:
    plan = union(graph, '$x: (Doc | Pic | Box)  $x.@type != "Pic"')
    context = context_of(graph.snapshot(), graph.catalog, UNRESTRICTED, {})
    rows = scan_union(plan, (), context)
    members = [plan.members[code].name for code in rows.rows["x#member"]]
    assert members == sorted(members, key=[scan.type.name for scan in plan.scans].index)
    assert members.count("Doc") == members.count("Box") == 4
    assert scan_union(plan, (), context, limit=5).length == 5
    assert sum(scan_candidates(scan, context).rows is None for scan in plan.scans) == 2, "no row has been read for them"


def test_each_type_has_its_visible_rows(graph: Graph) -> None:
    filters = {"Doc": "level = 1", "Box": 'not (lower(slug) = "b1")'}
    types = [(graph.catalog.nodes[name], text) for name, text in filters.items()]
    rules = visibility_of([TypeVisibility(t, check_row_filter(text, t, graph.catalog)) for t, text in types])
    state = graph.snapshot().restricted_to(rules)

    def seen(match: str) -> list[str]:
        text = f"query q() {{ match {{ {match} }} return {{ $x.@id as i }} order {{ i }} }}"
        return [row["i"] for row in run_query(state, ReadPoint("main"), (text, None, None)).rows()]

    assert seen("$x: *") == ["b0", "b2", "b3", "d1", "p"]
    assert seen('$x: (Doc | Box)  search($x.title, "green")') == ["b0", "b2", "b3", "d1"]
    assert seen('$x: (Doc | Box) { slug: "b1" }') == []
    assert seen('$x: (Doc | Box)  1 / ($x.level - 2) < 5 or $x.level = 2  $x.@id != "b2"') == ["b3", "d1"]
