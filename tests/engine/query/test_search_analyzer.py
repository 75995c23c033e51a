"""The analysis of texts is the index's own, for one text, for a few and for a whole column."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engine.query.search.analyzer import (
    analyse_column,
    counts_of,
    query_words,
    tokens_of,
)
from omnigraph.engine.query.search.text import tokens_within
from omnigraph.storage.tables.indexes import TEXT_INDEX_KIND, TEXT_INDEX_OPTIONS
from omnigraph.storage.tables.search import ROW_ID, SCORE, index_of, indexed_documents, matching_rows
from tests.engine.search_tables import Shelf, naive_bm25
from tests.support.edit_distance import levenshtein
from tests.support.lance_tables import lance_of


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Lichen and Moss Survey Methods", ["lichen", "moss", "survey", "method"]),
        ("x-ray, 3.14; foo_bar", ["x", "ray", "3", "14", "foo", "bar"]),
        ("Café naïve Straße ÆTHER", ["cafe", "naiv", "strasse", "aether"]),
        ("foo—bar don’t", ["foo", "bar", "don", "t"]),
        ("running runs run", ["run", "run", "run"]),
        ("the of and", []),
        ("", []),
        ("a" * 40, ["a" * 40]),
        ("a" * 41, []),
    ],
)
def test_words_are_split_folded_stopped_and_stemmed(text: str, tokens: list[str]) -> None:
    assert tokens_of(text) == tokens


def test_a_query_word_keeps_the_spelling_that_leads_to_its_token() -> None:
    assert query_words("The generalizations—run") == [("generalizations", "general"), ("run", "run")]


awkward = st.text(alphabet="abcTHEie sS .,-_'’—éÉßİΣς漢字ﬁ①1२\x00\n\u0301", max_size=40)
any_texts = st.lists(st.one_of(st.none(), awkward, st.text(max_size=30)), max_size=12)


@given(texts=any_texts, cut=st.integers(0, 5))
def test_a_column_is_analysed_like_its_texts_one_by_one(texts: list[str | None], cut: int) -> None:
    """Also when the array is a slice of a larger one."""
    numbers, tokens, text_of = analyse_column(pa.array([*["skipped words"] * cut, *texts], pa.string())[cut:])
    vocabulary = list(numbers)
    found: list[list[str]] = [[] for _ in texts]
    for token, text in zip(tokens.tolist(), text_of.tolist(), strict=True):
        found[text].append(vocabulary[token])
    expected = [tokens_of(text or "") for text in texts]
    assert found == expected
    assert counts_of(texts) == [dict(Counter(tokens)) for tokens in expected]


@given(
    token=st.text("abcé", max_size=6),
    vocabulary=st.lists(st.text("abcé", max_size=7), max_size=8, unique=True),
    edits=st.integers(0, 4),
)
def test_tokens_within_a_distance_are_those_of_the_textbook(token: str, vocabulary: list[str], edits: int) -> None:
    assert tokens_within(token, vocabulary, edits) == [w for w in vocabulary if levenshtein(token, w) <= edits]


def test_an_index_with_our_options_sees_the_same_tokens_and_scores(tmp_path: Path) -> None:
    """The ground of everything else: Lance's own answers equal ours wherever nothing has changed since the build."""
    texts = {
        "a": "Lichens grow on the Café wall",
        "b": "lichen lichen LICHEN moss",
        "c": "x-ray of a naïve fish—and chips " + "z" * 40 + " " + "y" * 41,
        "d": "the of and",
        "e": None,
        "f": "generalizations of running",
        "g": "漢字 ÆTHER Straße 3.14",
    }
    shelf = Shelf(tmp_path / "graph").add(list(texts), list(texts.values())).index_text()
    table = shelf.table
    index = index_of(table, "text", TEXT_INDEX_KIND)
    assert index is not None
    assert {key: index.parameters[key] for key in TEXT_INDEX_OPTIONS} == TEXT_INDEX_OPTIONS

    row_ids, lengths = indexed_documents(table, index.segments[0])
    expected_lengths = {i: len(tokens_of(text)) for i, text in texts.items() if text and tokens_of(text)}
    assert dict(zip(shelf.ids_of(row_ids), lengths.tolist(), strict=True)) == expected_lengths

    words = {word for text in texts.values() if text for word in text.split()}
    for query in [*words, "lichen moss", "moss moss cafe", "y" * 41]:
        found = matching_rows(table, "text", query)
        scores = dict(zip(shelf.ids_of(found.column(ROW_ID).to_numpy()), found.column(SCORE).to_pylist(), strict=True))
        assert scores == pytest.approx(naive_bm25(texts, query), rel=1e-5), query


def test_rows_of_chosen_fragments_only(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "graph").add(["a"], ["x"]).index_text().add(["b"], ["y"])
    fragments = [f.fragment_id for f in lance_of(shelf.table).get_fragments()]
    for fragment, expected in zip(fragments, ["a", "b"], strict=True):
        assert shelf.table.read(["id"], fragments=[fragment]).column("id").to_pylist() == [expected]
    assert shelf.table.read(["id"], fragments=[]).num_rows == 0
