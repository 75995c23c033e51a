"""What a query costs beside reading its rows: work that its text and its plan decide is done once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import omnigraph
from omnigraph.graph import Graph
from tests.engine.query_graphs import edge, node

SCHEMA = """
node Person { slug: String @key  mail: String @index  age: I32? }
edge Knows: Person -> Person
"""
QUERIES = """
// Comments and several queries: none of this is looked at again.
query by_key($k: String) { match { $p: Person { slug: $k } } return { $p.age as age, $p.mail as mail } }
query by_mail($m: String) { match { $p: Person { mail: $m } } return { $p.slug as slug } }
query near($k: String) { match { $p: Person { slug: $k }  $p knows{1,1} $x } return { count($x) as n } }
"""
MOST_CALLS = {"by_key": 500, "by_mail": 500, "near": 600}
"""Calls of our own functions by one warm query, all of them; a function of ours costs a few tenths of a microsecond."""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    people = [node("Person", name, age=i, mail=f"{name}@x.org") for i, name in enumerate(("ann", "bob", "cy"))]
    with Graph.init(tmp_path_factory.mktemp("warm") / "g", SCHEMA) as made:
        made.load("\n".join([*people, edge("Knows", "ann", "bob"), edge("Knows", "ann", "cy")]), mode="append")
        yield made


def calls_of(work: Callable[[], object]) -> dict[CodeType, int]:
    """How often each function of the package is called."""
    package = str(Path(omnigraph.__file__).parent)
    calls: dict[CodeType, int] = {}

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(package):
            calls[frame.f_code] = calls.get(frame.f_code, 0) + 1

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize(
    ("name", "parameters"), [("by_key", {"k": "bob"}), ("by_mail", {"m": "bob@x.org"}), ("near", {"k": "ann"})]
)
def test_a_warm_query_makes_few_calls(graph: Graph, name: str, parameters: dict[str, Any]) -> None:
    def run() -> object:
        return graph.query(QUERIES, name, parameters).to_arrow()

    run()
    run()
    calls = calls_of(run)
    assert sum(calls.values()) <= MOST_CALLS[name], sorted(calls.items(), key=lambda each: -each[1])[:20]
    folders = {Path(code.co_filename).parts[-2] for code in calls}
    assert not folders & {"check", "lower", "schema"}, "the text is compiled once"


def test_a_text_is_recognised_by_its_content(graph: Graph) -> None:
    graph.query(QUERIES, "by_key", {"k": "bob"})
    same = "".join([QUERIES[:10], QUERIES[10:]])
    calls = calls_of(lambda: graph.query(same, "by_key", {"k": "bob"}))
    assert not [code for code in calls if code.co_name == "parse_queries"]


def test_keywords_do_not_parse_the_text_again(graph: Graph) -> None:
    text = "query age($k: String) { match { $p: Person { slug: $k } } return { $p.age as age } }"
    assert graph.query(text, k="bob").to_arrow().to_pylist() == [{"age": 1}]
    calls = calls_of(lambda: graph.query(text, k="cy"))
    assert not [code for code in calls if code.co_name == "parse_queries"]


def test_a_warm_handle_reads_what_another_one_has_just_committed(graph: Graph) -> None:
    before = graph.query(QUERIES, "by_key", {"k": "new"}).to_arrow().num_rows
    with Graph.open(graph.uri) as other:
        other.load(node("Person", "new", age=9, mail="new@x.org"), mode="append")
    assert (before, graph.query(QUERIES, "by_key", {"k": "new"}).to_arrow().num_rows) == (0, 1)
