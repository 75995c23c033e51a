"""Stored queries: checked against the schema of main before they are offered, and described to callers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import omnigraph
from omnigraph import Graph
from omnigraph.api import wire
from omnigraph.cluster.serving import ClusterQuery
from omnigraph.errors import BadRequestError, ConflictError
from omnigraph.server.loader import refuse_equal_tools, stored_queries

SCHEMA = """
node Doc {
    title: String @key
    body: String?
    vector: Vector(3)?
}
"""
ALL_KINDS = """
query every(
    $s: String, $b: Bool, $i: I32, $u: U32, $l: I64, $m: U64, $f: F32, $g: F64, $d: Date, $t: DateTime,
    $v: Vector(3), $n: [I64], $o: String?, $x: [String]?
) @description("Takes everything.") @instruction("Give it everything.") {
    match { $d: Doc { title: $s } }
    return { $d.title }
}
"""
TWO = """
query titles() { match { $d: Doc } return { $d.title } }
query write($title: String) { insert Doc { title: $title } }
"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with omnigraph.init(Path(tmp_path_factory.mktemp("stored"), "g"), SCHEMA) as graph:
        yield graph


def offered(graph: Graph, **sources: str) -> list[dict[str, object]]:
    found = stored_queries([ClusterQuery("kb", *item) for item in sources.items()], graph.snapshot())
    assert {name: query.source for name, query in found.items()} == sources
    return [wire.to_builtins(query.entry) for query in found.values()]


def test_every_kind_of_parameter_is_described(graph: Graph) -> None:
    (entry,) = offered(graph, every=ALL_KINDS)
    params = entry.pop("params")
    assert entry == {
        "name": "every",
        "tool_name": "every",
        "description": "Takes everything.",
        "instruction": "Give it everything.",
        "mutation": False,
    }
    assert params == [
        {"name": "s", "kind": "string", "nullable": False},
        {"name": "b", "kind": "bool", "nullable": False},
        {"name": "i", "kind": "int", "nullable": False},
        {"name": "u", "kind": "int", "nullable": False},
        {"name": "l", "kind": "bigint", "nullable": False},
        {"name": "m", "kind": "bigint", "nullable": False},
        {"name": "f", "kind": "float", "nullable": False},
        {"name": "g", "kind": "float", "nullable": False},
        {"name": "d", "kind": "date", "nullable": False},
        {"name": "t", "kind": "datetime", "nullable": False},
        {"name": "v", "kind": "vector", "vector_dim": 3, "nullable": False},
        {"name": "n", "kind": "list", "item_kind": "bigint", "nullable": False},
        {"name": "o", "kind": "string", "nullable": True},
        {"name": "x", "kind": "list", "item_kind": "string", "nullable": True},
    ]


def test_a_file_with_several_queries_offers_the_named_ones_sorted(graph: Graph) -> None:
    entries = offered(graph, write=TWO, titles=TWO)
    assert [(entry["name"], entry["mutation"]) for entry in entries] == [("titles", False), ("write", True)]
    assert offered(graph) == []


def test_a_broken_neighbour_in_the_file_does_no_harm(graph: Graph) -> None:
    source = TWO + "query broken() { match { $x: Nothing } return { $x } }"
    assert len(offered(graph, titles=source)) == 1


@pytest.mark.parametrize(
    ("name", "source", "reason"),
    [
        ("odd", "query odd( {", "stored query 'odd' can't be offered: odd.gq:1:"),
        ("odd", "query odd() { match { $x: Nothing } return { $x } }", "Nothing"),
        ("odd", "query odd() { match { $d: Doc } return { $d.nothing } }", "nothing"),
        ("odd", TWO, "query 'odd' not found"),
        ("odd", "", "query 'odd' not found"),
    ],
)
def test_what_can_not_run_is_not_offered(graph: Graph, name: str, source: str, reason: str) -> None:
    with pytest.raises(BadRequestError, match=reason):
        stored_queries([ClusterQuery("kb", "titles", TWO), ClusterQuery("kb", name, source)], graph.snapshot())


def test_agents_know_a_tool_by_its_name_alone(graph: Graph) -> None:
    found = stored_queries([ClusterQuery("kb", "titles", TWO), ClusterQuery("kb", "write", TWO)], graph.snapshot())
    entries = [query.entry for query in found.values()]
    refuse_equal_tools(entries)
    entries[1] = msgspec.structs.replace(entries[1], tool_name="titles")
    with pytest.raises(ConflictError, match="'titles' and 'write' have the same tool name 'titles'"):
        refuse_equal_tools(entries)
    with pytest.raises(ConflictError, match="given twice"):
        stored_queries([ClusterQuery("kb", "titles", TWO)] * 2, graph.snapshot())
