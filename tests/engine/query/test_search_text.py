"""Text search answers from the rows of a version, whatever part of them an index covers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.engine.query.search.bm25 import bm25
from omnigraph.engine.query.search.ranked_rows import Candidates
from omnigraph.engine.query.search.text import text_match
from omnigraph.errors import BadRequestError
from omnigraph.language.query.syntax import TextFunction
from tests.engine.search_tables import Shelf, choose_text_way, naive_bm25

BOOKS = {
    "n1": "Lichen",
    "n2": "Lichen Field Guide",
    "n3": "Lichen and Moss Survey Methods",
    "n4": "Tide Tables",
    "n5": None,
    "n6": "",
    "n7": "the of and",
    "n8": "Moss, moss and more moss; by the sea.",
}


def unindexed(shelf: Shelf) -> Shelf:
    return shelf.add(list(BOOKS), list(BOOKS.values()))


def indexed(shelf: Shelf) -> Shelf:
    return unindexed(shelf).index_text()


def partly_indexed(shelf: Shelf) -> Shelf:
    ids = list(BOOKS)
    shelf.add(ids[:3], [BOOKS[i] for i in ids[:3]]).index_text()
    return shelf.add(ids[3:], [BOOKS[i] for i in ids[3:]])


def indexed_in_segments(shelf: Shelf) -> Shelf:
    return partly_indexed(shelf).index_text()


def updated_since(shelf: Shelf) -> Shelf:
    """Every text was another one when the index was built, and some rows are gone."""
    stale = [f"stale moss tide lichen number {i}" for i in range(len(BOOKS))]
    shelf.add([*BOOKS, "gone"], [*stale, "lichen lichen"]).index_text()
    return shelf.put(list(BOOKS), list(BOOKS.values())).remove(["gone"])


def some_updated_since(shelf: Shelf) -> Shelf:
    old = {**BOOKS, "n1": "Tide moss", "n6": "Moss", "gone": "lichen lichen moss"}
    shelf.add(list(old), list(old.values())).index_text()
    return shelf.put(["n1", "n6"], [BOOKS["n1"], BOOKS["n6"]]).remove(["gone"])


def extended_after_updates(shelf: Shelf) -> Shelf:
    """The index has a segment with the new texts beside the one that still knows the old ones."""
    return some_updated_since(shelf).index_text()


def emptied_then_extended(shelf: Shelf) -> Shelf:
    return extended_after_updates(shelf).put(["n6"], [""]).index_text()


def compacted_after_deletes(shelf: Shelf) -> Shelf:
    old = {**BOOKS, "gone": "lichen lichen moss"}
    shelf.add(["n0"], ["lichen dust"]).add(list(old), list(old.values())).index_text()
    return shelf.remove(["gone", "n0"]).compact_covered()


def deleted_before_and_after_indexing(shelf: Shelf) -> Shelf:
    old = {"g1": "moss moss", **BOOKS, "g2": "lichen moss", "g3": "tide"}
    return shelf.add(list(old), list(old.values())).remove(["g1"]).index_text().remove(["g2", "g3"])


STATES = [
    unindexed,
    indexed,
    partly_indexed,
    indexed_in_segments,
    updated_since,
    some_updated_since,
    extended_after_updates,
    emptied_then_extended,
    compacted_after_deletes,
    deleted_before_and_after_indexing,
]


@pytest.fixture(scope="module", params=STATES, ids=lambda state: state.__name__)
def shelf(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    build: Callable[[Shelf], Shelf] = request.param
    built = build(Shelf(tmp_path_factory.mktemp("shelf") / "graph"))
    assert built.texts() == BOOKS
    return built


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lichens", {"n1", "n2", "n3"}),
        ("guide moss", {"n2", "n3", "n8"}),
        ("TIDES", {"n4"}),
        ("zzz", set()),
        ("the", set()),
        ("", set()),
        ("stale number", set()),
    ],
)
@pytest.mark.parametrize("mode", [TextFunction.SEARCH, TextFunction.MATCH_TEXT])
def test_any_shared_token_matches(shelf: Shelf, mode: TextFunction, text: str, expected: set[str]) -> None:
    found = text_match(shelf.table, "text", text, mode)
    assert set(shelf.ids_of(found)) == expected
    assert len(found) == len(expected)


@pytest.mark.parametrize(
    ("text", "max_edits", "expected"),
    [
        ("lichem", None, {"n1", "n2", "n3"}),
        ("lichem", 1, {"n1", "n2", "n3"}),
        ("lichem", 0, set()),
        ("lixxen", 1, set()),
        ("lixxen", 2, {"n1", "n2", "n3"}),
        ("tidx mosz", 1, {"n3", "n4", "n8"}),
        ("xxxxen", 4, {"n1", "n2", "n3"}),
    ],
)
def test_fuzzy_accepts_tokens_within_the_distance(
    shelf: Shelf, text: str, max_edits: int | None, expected: set[str]
) -> None:
    found = text_match(shelf.table, "text", text, TextFunction.FUZZY, max_edits)
    assert set(shelf.ids_of(found)) == expected


def test_a_negative_distance_is_refused(shelf: Shelf) -> None:
    with pytest.raises(BadRequestError, match="at least 0"):
        text_match(shelf.table, "text", "lichen", TextFunction.FUZZY, -1)


@pytest.mark.parametrize(
    "query", ["lichen", "moss lichen", "moss moss lichen", "tide sea guide", "zzz", "the", "zzz moss"]
)
@pytest.mark.parametrize("k", [None, 1, 2, 100])
def test_bm25_ranks_by_the_formula_and_then_by_id(shelf: Shelf, query: str, k: int | None) -> None:
    expected = naive_bm25(BOOKS, query)
    order = sorted(expected, key=lambda i: (-expected[i], i))[:k]
    ranked = bm25(shelf.table, "text", query, k=k)
    assert shelf.ids_of(ranked.row_ids) == order
    assert ranked.values.tolist() == pytest.approx([expected[i] for i in order], rel=1e-11)


def test_shorter_documents_come_first(shelf: Shelf) -> None:
    assert shelf.ids_of(bm25(shelf.table, "text", "lichen").row_ids) == ["n1", "n2", "n3"]


def test_candidates_restrict_the_rows_and_not_the_statistics(shelf: Shelf) -> None:
    expected = naive_bm25(BOOKS, "moss lichen")
    chosen = shelf.row_ids_of(["n8", "n2", "n4"])
    for candidates in (
        Candidates(rows=chosen),
        Candidates(filter="id IN ('n8', 'n2', 'n4')"),
        Candidates(filter="id != 'n4'", rows=chosen),
        Candidates(filter="id IN ('n8', 'n2')", rows=shelf.row_ids_of(BOOKS)),
    ):
        for k in (None, 1, 2):
            ranked = bm25(shelf.table, "text", "moss lichen", candidates, k)
            assert shelf.ids_of(ranked.row_ids) == ["n8", "n2"][:k]
            assert ranked.values.tolist() == pytest.approx([expected["n8"], expected["n2"]][:k], rel=1e-11)
        assert set(
            shelf.ids_of(text_match(shelf.table, "text", "moss lichen", TextFunction.SEARCH, None, candidates))
        ) == {
            "n2",
            "n8",
        }
        assert set(shelf.ids_of(text_match(shelf.table, "text", "mosz", TextFunction.FUZZY, 1, candidates))) == {"n8"}


def test_a_column_without_any_text_matches_nothing(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "graph")
    assert not bm25(shelf.table, "text", "moss").row_ids.size
    assert not text_match(shelf.table, "text", "moss", TextFunction.SEARCH).size
    shelf.add(["a", "b"], [None, "the"]).index_text()
    assert not bm25(shelf.table, "text", "moss").row_ids.size
    assert not text_match(shelf.table, "text", "moss", TextFunction.FUZZY).size


def test_ties_are_broken_by_id_even_where_the_limit_cuts_them(tmp_path: Path) -> None:
    ids = [f"b{(i * 7919) % 5000:05d}" for i in range(5000)]
    shelf = Shelf(tmp_path / "graph").add(ids, ["moss tale" if i % 3 else "sea tale" for i in range(5000)]).index_text()
    expected = sorted(i for i, n in zip(ids, range(5000), strict=True) if n % 3)
    for query in ("moss", "moss tales"):
        assert shelf.ids_of(bm25(shelf.table, "text", query, k=7).row_ids) == expected[:7]
    assert shelf.ids_of(bm25(shelf.table, "text", "moss").row_ids) == expected


WORDS = ["lichen", "Lichens", "moss", "sea", "tide", "tides", "guide", "the", "café", "cafe", "x"]
texts = st.one_of(st.none(), st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join))
names = st.sampled_from([f"k{i:02d}" for i in range(14)])
rows = st.dictionaries(names, texts, min_size=1, max_size=8)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), rows),
        st.tuples(st.just("remove"), st.lists(names, min_size=1, max_size=3)),
        st.tuples(st.just("index"), st.none()),
    ),
    min_size=1,
    max_size=7,
)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(history=steps, query=st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join), k=st.integers(1, 4))
def test_any_history_of_writes_and_index_builds_gives_the_answer_of_its_rows(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[str, object]], query: str, k: int
) -> None:
    """Asked after every step: what is remembered of a state serves the next one."""
    shelf = Shelf(tmp_path_factory.mktemp("shelf") / "graph")
    order: list[str] = []
    for step, argument in history:
        if step == "put":
            assert isinstance(argument, dict)
            shelf.put(list(argument), list(argument.values()))
        elif shelf.state.rows:
            if step == "remove":
                assert isinstance(argument, list)
                shelf.remove(argument)
            elif any(shelf.texts().values()):
                shelf.index_text()
        expected = naive_bm25(shelf.texts(), query)
        order = sorted(expected, key=lambda i, scores=expected: (-round(scores[i], 12), i))
        assert shelf.ids_of(bm25(shelf.table, "text", query).row_ids) == order
    assert shelf.ids_of(bm25(shelf.table, "text", query, k=k).row_ids) == order[:k]
    assert set(shelf.ids_of(text_match(shelf.table, "text", query, TextFunction.SEARCH))) == set(expected)


@pytest.mark.parametrize("extra", ["", "appended", "updated", "removed"])
def test_a_large_column_ranks_alike_with_and_without_an_index(tmp_path: Path, extra: str) -> None:
    """Many terms, common and rare, high counts and long texts: what an index proposes is never cut short."""
    random = np.random.default_rng(11)
    words = np.array([f"w{i}x" for i in range(300)])
    count = 6000
    bodies = [
        " ".join(words[np.minimum(random.pareto(0.8, n) * 2, 299).astype(int)]) for n in random.integers(1, 90, count)
    ]
    bodies[0] = " ".join(["w0x"] * 3000)
    ids = [f"d{i:05d}" for i in random.permutation(count)]
    plain = Shelf(tmp_path / "plain").add(ids, bodies)
    shelf = Shelf(tmp_path / "indexed").add(ids, bodies).index_text()
    for each in (plain, shelf):
        if extra == "appended":
            each.add(["e1", "e2"], ["w0x w7x w9x", "w7x"])
        elif extra == "updated":
            each.put(ids[:400], [bodies[i + 1] for i in range(400)])
        elif extra == "removed":
            each.remove(ids[100:2100])
    for query in ("w0x", "w7x", "w299x", "w0x w5x", "w7x w9x w250x", "w0x w1x w2x w3x absent"):
        for candidates in (Candidates(), Candidates(filter="id > 'd02'")):
            whole = bm25(plain.table, "text", query, candidates)
            expected = plain.ids_of(whole.row_ids)
            for way, k in (("proposed", None), *product(("proposed", "in memory and filtered before"), (1, 10, 200))):
                with pytest.MonkeyPatch.context() as patch:
                    choose_text_way(patch, way)
                    ranked = bm25(shelf.table, "text", query, candidates, k)
                assert shelf.ids_of(ranked.row_ids) == expected[:k], (query, way, k)
                assert ranked.values.tolist() == whole.values[:k].tolist()
