"""A search of many vectors may miss some of the nearest, and nothing else: it fills its limit under any condition, its
distances and their order are right, and `exact: true` gives what comparing every vector gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from omnigraph.graph import Graph
from tests.engine import vector_graphs as vectors
from tests.engine.vector_graphs import brute_force, clustered, nearest, slug

COUNT = 3_000
STORED = clustered(COUNT)
QUERIES = clustered(20, seed=5)

# Conditions, the documents that satisfy them, and whether they stand in the scan of the documents alone.
CONDITIONS: dict[str, tuple[str, Callable[[int], bool]]] = {
    "none": ("", lambda n: True),
    "half": ("$d.n < 1500", lambda n: n < 1500),
    "a tenth": ('$d.topic = "t3" $d.n < 2100', lambda n: n % 7 == 3 and n < 2100),
    "three": ("$d.n in [7, 1234, 2999]", lambda n: n in (7, 1234, 2999)),
    "nothing": ("$d.n < 0", lambda n: False),
    "by edges": ("$d cites $e", lambda n: n < 100),
    "by a node": (f'$d cites $e $e.slug = "{slug(60)}"', lambda n: n == 10),
    "by a negation": ("not { $d cites $e } $d.n < 200", lambda n: 100 <= n < 200),
    "on values": ("$d.n + 1 > 2900", lambda n: n + 1 > 2900),
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return vectors.build(tmp_path_factory.mktemp("vectors") / "g", COUNT)


def test_most_of_the_nearest_vectors_are_in_the_result(graph: Graph) -> None:
    hits = 0
    for query in QUERIES:
        found = {row["s"] for row in nearest(graph, query, 10)}
        hits += len(found & set(brute_force("l2", query, STORED, range(COUNT), 10)))
    assert hits >= 0.9 * 10 * len(QUERIES)


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("limit", [5, 40])
def test_a_limit_is_filled_under_any_condition(graph: Graph, condition: str, limit: int) -> None:
    written, holds = CONDITIONS[condition]
    among = [n for n in range(COUNT) if holds(n)]
    for query in QUERIES[:3]:
        result = nearest(graph, query, limit, written)
        assert len({row["s"] for row in result}) == len(result) == min(limit, len(among))
        assert {row["s"] for row in result} <= {slug(n) for n in among}
        apart = [row["apart"] for row in result]
        assert apart == sorted(apart)
        measured = vectors.distances("l2", query, STORED[[int(row["s"][1:]) for row in result]])
        assert np.allclose(apart, measured)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_an_exact_search_is_brute_force(graph: Graph, condition: str) -> None:
    written, holds = CONDITIONS[condition]
    among = [n for n in range(COUNT) if holds(n)]
    for query in QUERIES[:3]:
        result = [row["s"] for row in nearest(graph, query, 10, written, exact=True)]
        assert result == brute_force("l2", query, STORED, among, 10)


@pytest.mark.parametrize("metric", ["cosine", "dot"])
def test_other_metrics(tmp_path: Path, metric: str) -> None:
    graph = vectors.build(tmp_path / "g", 1_500, metric)
    stored, hits = clustered(1_500), 0
    for query in QUERIES[:10]:
        right = brute_force(metric, query, stored, range(1_500), 10)
        assert [row["s"] for row in nearest(graph, query, 10, exact=True)] == right
        hits += len({row["s"] for row in nearest(graph, query, 10)} & set(right))
    assert hits >= 90


def test_a_fusion_takes_an_exact_arm(graph: Graph) -> None:
    query = (
        f"query q($q: Vector({vectors.DIMENSION})) {{ match {{ $d: Doc }} return {{ $d.slug as s }} "
        "order { rrf(nearest($d.vec, $q, exact: true), nearest($d.vec, $q, exact: true)) } limit 5 }"
    )
    right = brute_force("l2", QUERIES[0], STORED, range(COUNT), 5)
    assert [row["s"] for row in graph.query(query, q=QUERIES[0].tolist())] == right


@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_deleted_updated_and_new_rows_count_before_the_next_optimize(tmp_path: Path, metric: str) -> None:
    graph = vectors.build(tmp_path / "g", 1_500, metric)
    query, stored = QUERIES[0], clustered(1_500)
    first, second = brute_force(metric, query, stored, range(1_500), 2)
    far = slug(700)
    graph.mutate(f'query q() {{ delete Doc where slug = "{first}" }}')
    graph.mutate(
        f'query q($v: Vector({vectors.DIMENSION})) {{ update Doc set {{ vec: $v }} where slug = "{far}" }}',
        v=query.tolist(),
    )
    graph.mutate(
        f'query q($v: Vector({vectors.DIMENSION})) {{ update Doc set {{ vec: $v }} where slug = "{second}" }}',
        v=(-query).tolist(),
    )
    graph.load(vectors.rows((query + 0.01)[None, :], start=9_000), type="Doc", mode="append")
    for exact in (False, True):
        slugs = [row["s"] for row in nearest(graph, query, 10, exact=exact)]
        assert slugs[:2] == [far, "d09000"]
        assert not {first, second} & set(slugs)
    again = [row["s"] for row in nearest(graph, query, 10, exact=True)]
    graph.maintenance.optimize()
    assert [row["s"] for row in nearest(graph, query, 10, exact=True)] == again
    assert [row["s"] for row in nearest(graph, query, 2)] == again[:2]


def test_small_types_are_searched_exactly(tmp_path: Path) -> None:
    graph = vectors.build(tmp_path / "g", 1_500, parameters="")
    stored = clustered(1_500)
    for query in QUERIES:
        result = [row["s"] for row in nearest(graph, query, 10)]
        assert result == brute_force("l2", query, stored, range(1_500), 10)
    (way,) = (line for line in graph.explain(vectors.text(), q=QUERIES[0].tolist()) if "nearest:" in line)
    assert way.strip() == "nearest: exact, Doc has at most 100000 nodes"


def test_explain_says_whether_a_search_is_exact_and_why(graph: Graph) -> None:
    def way(query: str) -> str:
        plan = graph.explain(query, q=QUERIES[0].tolist())
        return next(line.strip() for line in plan if line.strip().startswith("nearest:"))

    approximate = way(vectors.text())
    assert approximate.startswith("nearest: approximate, 8 partitions of 1 segment are looked at (measured recall ")
    assert approximate.endswith("); exact: true compares all vectors")
    assert way(vectors.text(exact=True)) == "nearest: exact, as the query says"
    behind = vectors.text("").replace("match { $d: Doc  }", "match { $e: Doc  $e cites $d  $e.n < 9 }")
    assert way(behind).startswith("nearest: ")


def test_a_profile_says_how_it_was_searched(graph: Graph) -> None:
    few = graph.profile(vectors.text("$d.n < 100"), q=QUERIES[0].tolist())
    assert "nearest: exact, 100 nodes to compare" in "\n".join(few.lines())
    half = graph.profile(vectors.text("$d.n < 1500"), q=QUERIES[0].tolist())
    assert "nearest: approximate" in "\n".join(half.lines())
