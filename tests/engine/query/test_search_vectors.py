"""Nearest neighbours are exact under every metric, with any index, and in one total order."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.engine.query.search.ranked_rows import Candidates, RankedRows, round_off
from omnigraph.engine.query.search.vectors import nearest
from omnigraph.errors import BadRequestError
from omnigraph.graph import Graph
from omnigraph.language.catalog import Metric
from tests.engine.search_tables import Shelf, naive_distance

METRICS = list(Metric)
QUERY = [0.25, -1.0, 0.5]


def ids_and_vectors(count: int, seed: int = 3) -> dict[str, list[float] | None]:
    """Vectors from a small grid, so that ties are many; every tenth row has none."""
    random = np.random.default_rng(seed)
    grid = random.integers(-3, 4, (count, 3)).astype(float)
    grid[(grid == 0).all(axis=1)] = 1.0
    names = [f"v{i:05d}" for i in random.permutation(count)]
    return {name: None if i % 10 == 7 else grid[i].tolist() for i, name in enumerate(names)}


def expected_order(rows: dict[str, list[float] | None], metric: Metric) -> list[str]:
    measured = {i: round(naive_distance(metric, v, QUERY), 12) for i, v in rows.items() if v is not None}
    return sorted(measured, key=lambda i: (measured[i], i))


def found(shelf: Shelf, metric: Metric, k: int | None, candidates: Candidates | None = None) -> RankedRows:
    return nearest(shelf.table, "vector", metric, np.array(QUERY, np.float32), k, candidates or Candidates())


STATES = ["unindexed", "indexed", "partly_indexed", "updated_then_extended", "other_metric"]


@pytest.fixture(scope="module", params=[(s, m) for s in STATES for m in METRICS], ids=lambda p: f"{p[0]}-{p[1].value}")
def case(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Shelf, Metric, dict[str, list[float] | None]]:
    state, metric = request.param
    rows = ids_and_vectors(600)
    shelf = Shelf(tmp_path_factory.mktemp("vectors") / "graph")
    names = list(rows)
    if state == "updated_then_extended":
        shelf.add([*names, "gone"], vectors=[*[QUERY] * len(names), QUERY]).index_vectors(metric)
        shelf.put(names, vectors=list(rows.values())).remove(["gone"]).index_vectors(metric)
    elif state == "partly_indexed":
        shelf.add(names[:300], vectors=[rows[i] for i in names[:300]]).index_vectors(metric)
        for start in range(300, 600, 60):
            part = names[start : start + 60]
            shelf.add(part, vectors=[rows[i] for i in part])
    else:
        shelf.add(names, vectors=list(rows.values()))
        if state == "indexed":
            shelf.index_vectors(metric)
        elif state == "other_metric":
            shelf.index_vectors(Metric.COSINE if metric is Metric.L2 else Metric.L2)
    return shelf, metric, rows


@pytest.mark.parametrize("k", [1, 7, 40, 300, 600, None])
def test_the_k_nearest_in_order_of_distance_and_then_id(
    case: tuple[Shelf, Metric, dict[str, list[float] | None]], k: int | None
) -> None:
    shelf, metric, rows = case
    ranked = found(shelf, metric, k)
    order = expected_order(rows, metric)[:k]
    assert shelf.ids_of(ranked.row_ids) == order
    distances = [naive_distance(metric, rows[i] or [], QUERY) for i in order]
    assert ranked.values.tolist() == pytest.approx(distances, rel=1e-9, abs=1e-9)


def test_candidates_are_chosen_before_the_nearest(case: tuple[Shelf, Metric, dict[str, list[float] | None]]) -> None:
    shelf, metric, rows = case
    passing = {i: v for i, v in rows.items() if i >= "v00300"}
    listed = shelf.row_ids_of([i for i in rows if i[-1] in "02468"])
    both = {i: v for i, v in passing.items() if i[-1] in "02468"}
    for k in (5, 100, None):
        only_filter = found(shelf, metric, k, Candidates(filter="id >= 'v00300'"))
        assert shelf.ids_of(only_filter.row_ids) == expected_order(passing, metric)[:k]
        filter_and_rows = found(shelf, metric, k, Candidates("id >= 'v00300'", listed))
        assert shelf.ids_of(filter_and_rows.row_ids) == expected_order(both, metric)[:k]


def test_a_limit_beyond_a_batch_keeps_the_global_order_across_fragments(tmp_path: Path) -> None:
    count = 48_000
    random = np.random.default_rng(5)
    vectors = random.standard_normal((count, 3)).astype(np.float32)
    shelf = Shelf(tmp_path / "graph")
    for start in range(0, count, 12_000):
        span = range(start, start + 12_000)
        shelf.add([f"r{i:06d}" for i in span], vectors=vectors[start : start + 12_000].tolist())
    ranked = found(shelf, Metric.L2, 9_500)
    exact = np.sqrt(((vectors.astype(np.float64) - np.array(QUERY)) ** 2).sum(axis=1))
    assert shelf.ids_of(ranked.row_ids) == [f"r{i:06d}" for i in np.argsort(exact, kind="stable")[:9_500]]


def test_a_vector_of_length_zero_has_no_cosine_rank(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "graph").add(["a", "b"], vectors=[[0, 0, 0], [1, 0, 0]])
    assert shelf.ids_of(found(shelf, Metric.COSINE, 1).row_ids) == ["b"]
    assert shelf.ids_of(found(shelf, Metric.COSINE, None).row_ids) == ["b"]
    assert sorted(shelf.ids_of(found(shelf, Metric.L2, None).row_ids)) == ["a", "b"]


def test_an_empty_table_has_no_nearest_row(tmp_path: Path) -> None:
    assert not found(Shelf(tmp_path / "graph"), Metric.L2, 3).row_ids.size


@pytest.mark.parametrize(
    ("vector", "k", "complaint"),
    [
        ([1.0, 2.0], 1, "vectors of 3 numbers, the query has 2"),
        ([1.0, 2.0, float("nan")], 1, "finite"),
        ([1.0, 2.0, 3.0], 0, "at least 1"),
    ],
)
def test_malformed_questions_are_refused(tmp_path: Path, vector: list[float], k: int, complaint: str) -> None:
    shelf = Shelf(tmp_path / "graph").add(["a"], vectors=[[1, 2, 3]])
    with pytest.raises(BadRequestError, match=complaint):
        nearest(shelf.table, "vector", Metric.L2, np.array(vector, np.float32), k)


numbers = st.integers(-2, 2).map(float)
vectors = st.one_of(st.none(), st.tuples(numbers, numbers, numbers).map(list))


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    first=st.lists(vectors, min_size=1, max_size=60),
    second=st.lists(vectors, max_size=30),
    metric=st.sampled_from([Metric.L2, Metric.DOT]),
    k=st.integers(1, 6),
)
def test_an_index_never_changes_the_answer(
    tmp_path_factory: pytest.TempPathFactory,
    first: list[list[float] | None],
    second: list[list[float] | None],
    metric: Metric,
    k: int,
) -> None:
    rows = {f"x{i:03d}": v for i, v in enumerate([*first, *second])}
    names = list(rows)
    shelf = Shelf(tmp_path_factory.mktemp("law") / "graph").add(names[: len(first)], vectors=first)
    if any(first):
        shelf.index_vectors(metric)
    if second:
        shelf.add(names[len(first) :], vectors=second)
    assert shelf.ids_of(found(shelf, metric, k).row_ids) == expected_order(rows, metric)[:k]


# ---- beyond single precision ----------------------------------------------------------------------------


def of_lengths(lengths: list[float], seed: int) -> list[list[float]]:
    random = np.random.default_rng(seed)
    vectors = random.standard_normal((len(lengths), 3)) * np.array(lengths).reshape(-1, 1)
    return np.clip(vectors, -3e38, 3e38).astype(np.float32).tolist()


LENGTHS = {
    "long": [1e18] * 30 + [1e25] * 30 + [3e38] * 30,
    "short": [1e-25] * 60 + [1e-38] * 30,
    "all kinds": [10.0 ** (i % 70 - 36) for i in range(90)],
    "a few among ordinary ones": [1.0] * 84 + [1e-25, 1e-20, 1e19, 1e25, 1e38, 1e-40],
}


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.value)
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
def test_vectors_of_any_length_are_ranked_exactly(tmp_path: Path, lengths: list[float], metric: Metric) -> None:
    stored = of_lengths(lengths, seed=9)
    names = [f"v{i:02d}" for i in range(len(stored))]
    shelf = Shelf(tmp_path / "graph").add(names, vectors=stored)
    half = Shelf(tmp_path / "half").add(names[:45], vectors=stored[:45]).index_vectors(metric)
    half.add(names[45:], vectors=stored[45:]).index_vectors(metric)
    for query in (stored[0], stored[88], of_lengths([1.0], 1)[0]):
        inner = round_off(np.array([naive_inner(metric, vector, query) for vector in stored]))
        distances = inner if metric is Metric.L2 else 1 - inner
        order = sorted(range(len(stored)), key=lambda i: (distances[i], names[i]))
        for each in (shelf, half):
            for filter in (None, "id != 'v03'"):
                ranked = nearest(each.table, "vector", metric, np.array(query, np.float32), 4, Candidates(filter))
                expected = [names[i] for i in order if filter is None or i != 3][:4]
                assert each.ids_of(ranked.row_ids) == expected
                assert np.isfinite(ranked.values).all()


def naive_inner(metric: Metric, left: list[float], right: list[float]) -> float:
    """What a distance is settled from."""
    measured = naive_distance(metric, left, right)
    if metric is Metric.L2:
        return measured
    inner = math.fsum(a * b for a, b in zip(left, right, strict=True))
    return inner / (math.hypot(*left) * math.hypot(*right)) if metric is Metric.COSINE else inner


def test_a_query_beyond_single_precision_is_answered(tmp_path: Path) -> None:
    """Every difference to it overflows, so that no proposal means anything."""
    rows = {f"v{i:02d}": [float(i), 1.0, 0.0] for i in range(90)}
    shelf = Shelf(tmp_path / "graph").add(list(rows), vectors=list(rows.values())).index_vectors(Metric.L2)
    for metric, expected in [(Metric.L2, "v00"), (Metric.COSINE, "v89"), (Metric.DOT, "v89")]:
        ranked = nearest(shelf.table, "vector", metric, np.array([3e38, 0, 0], np.float32), 1)
        assert shelf.ids_of(ranked.row_ids) == [expected]
        assert np.isfinite(ranked.values).all()


def test_an_index_that_vectors_can_not_have_is_pending(tmp_path: Path) -> None:
    schema = "node Note { slug: String @key  vec: Vector(3)? @index }"
    lines = [
        json.dumps({"type": "Note", "data": {"slug": f"n{i:02d}", "vec": [1e25 * (i + 1), 1e25, 0.0]}})
        for i in range(60)
    ]
    with Graph.init(tmp_path / "g", schema) as graph:
        graph.load("\n".join(lines), mode="append")
        (table,) = graph.maintenance.optimize().datasets
        assert "searched without one" in table.pending_indexes[0].reason
        text = """query q($q: Vector(3)) {
            match { $n: Note } return { $n.slug, nearest($n.vec, $q) as d } order { d } limit 2
        }"""
        assert [tuple(row.values()) for row in graph.query(text, params={"q": [2.9e25, 1e25, 0.0]}).rows()] == [
            ("n02", pytest.approx(1e24)),
            ("n01", pytest.approx(9e24)),
        ]
