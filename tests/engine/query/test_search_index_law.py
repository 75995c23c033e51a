"""A law of text search: which rows an index covers shows in no answer.

The words are those that an analysis changes: by stem, case, accent and folding, or away altogether.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.engine.query.search.analyzer import tokens_of
from omnigraph.engine.query.search.bm25 import bm25
from omnigraph.engine.query.search.text import text_match
from omnigraph.graph import Graph
from omnigraph.language.query.syntax import TextFunction
from tests.engine.search_tables import Shelf, naive_bm25
from tests.support.edit_distance import levenshtein

WORDS = [
    *("running", "runs", "RUN", "ran", "rnu", "universities", "University", "universe", "flies", "fly", "ponies"),
    *("café", "CAFÉ", "cafe", "cafe\u0301", "naïve", "Straße", "strasse", "ÆTHER", "İstanbul", "ΣΑΣ", "ᴀpple", "ﬁne"),
    *("the", "being", "of", "x", "漢字", "漢", "⑴", "½", "12", "a1b2", "foo_bar", "don’t", "generalizations", "z" * 40),
]
TEXTS = {
    **{f"w{i:02d}": word for i, word in enumerate(WORDS)},
    **{
        f"p{i:02d}": f"{word}, {WORDS[i * 7 % len(WORDS)]} {WORDS[i * 11 % len(WORDS)]}" for i, word in enumerate(WORDS)
    },
    "empty": "",
    "none": None,
}
TOKENS = {name: set(tokens_of(text or "")) for name, text in TEXTS.items()}

near_words = st.builds(
    lambda word, at, letter: word[: at % len(word)] + letter + word[at % len(word) + 1 :],
    st.sampled_from(WORDS),
    st.integers(0, 40),
    st.sampled_from(["", "e", "É", "n", "1", "漢"]),
)
queries = st.lists(st.one_of(st.sampled_from(WORDS), near_words), max_size=3).map(" ".join)


@pytest.fixture(scope="module")
def shelves(tmp_path_factory: pytest.TempPathFactory) -> list[Shelf]:
    """The same rows without an index, under one, under one that covers a part, and under one that knew other texts."""
    ids, texts = list(TEXTS), list(TEXTS.values())
    half = len(ids) // 2
    place = tmp_path_factory.mktemp("shelves")
    return [
        Shelf(place / "plain").add(ids, texts),
        Shelf(place / "indexed").add(ids, texts).index_text(),
        Shelf(place / "partly").add(ids[:half], texts[:half]).index_text().add(ids[half:], texts[half:]),
        Shelf(place / "updated")
        .add(ids, texts[::-1])
        .index_text()
        .put(ids[:half], texts[:half])
        .index_text()
        .put(ids[half:], texts[half:]),
    ]


@settings(max_examples=40, deadline=None)
@given(query=queries, edits=st.one_of(st.none(), st.integers(0, 3)))
def test_fuzzy_finds_tokens_within_the_distance_on_and_off_an_index(
    shelves: list[Shelf], query: str, edits: int | None
) -> None:
    asked, most = tokens_of(query), 2 if edits is None else edits
    expected = {
        name for name, held in TOKENS.items() if any(levenshtein(token, t) <= most for token in asked for t in held)
    }
    for shelf in shelves:
        assert set(shelf.ids_of(text_match(shelf.table, "text", query, TextFunction.FUZZY, edits))) == expected


@settings(max_examples=12, deadline=None)
@given(query=queries)
def test_search_and_bm25_answer_alike_on_and_off_an_index(shelves: list[Shelf], query: str) -> None:
    scores = naive_bm25(TEXTS, query)
    for shelf in shelves:
        for mode in (TextFunction.SEARCH, TextFunction.MATCH_TEXT):
            assert set(shelf.ids_of(text_match(shelf.table, "text", query, mode))) == set(scores)
        ranked = bm25(shelf.table, "text", query)
        assert dict(zip(shelf.ids_of(ranked.row_ids), ranked.values.tolist(), strict=True)) == pytest.approx(scores)


def test_optimize_changes_no_answer_of_fuzzy(tmp_path: Path) -> None:
    text = "query q($w: String) { match { $n: Note  fuzzy($n.text, $w, 1) } return { $n.slug } order { $n.slug } }"
    records = [{"type": "Note", "data": {"slug": slug, "text": text}} for slug, text in TEXTS.items()]
    with Graph.init(tmp_path / "g", "node Note { slug: String @key  text: String? @index }") as graph:
        graph.load("\n".join(map(json.dumps, records)), mode="append")

        def found() -> dict[str, list[str]]:
            words = ("running", "flies", "CAFÉ", "Universities", "⑴")
            return {w: [row["n.slug"] for row in graph.query(text, params={"w": w}).rows()] for w in words}

        before = found()
        graph.maintenance.optimize()
        assert found() == before
        assert {"w00", "w01", "w02"} <= set(before["running"])
