"""Positions of the protocol: lines and code units, in every encoding and whatever ends a line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.editor.documents import Document, Encoding, Lines, Position, apply_edits, minimal_edits
from omnigraph.language.query.parser import parse_recovering

TEXTS = st.text(st.sampled_from("ab\t\r\n é漢😀\u2028\x0c"), max_size=40)


@settings(max_examples=200, deadline=None)
@given(TEXTS, st.sampled_from(Encoding))
def test_every_place_of_a_text_has_a_position_of_its_own(text: str, encoding: Encoding) -> None:
    lines = Lines(text)
    places = [i for i in range(len(text) + 1) if text[i - 1 : i + 1] != "\r\n" or i == 0]
    positions = [lines.position(offset, encoding) for offset in places]
    assert [lines.offset(position, encoding) for position in positions] == places
    assert sorted(set(positions)) == positions


@settings(max_examples=200, deadline=None)
@given(TEXTS, TEXTS, st.sampled_from(Encoding))
def test_the_edits_from_one_text_to_another_survive_the_protocol(before: str, after: str, encoding: Encoding) -> None:
    edits = minimal_edits(before, after)
    assert apply_edits(before, edits) == after
    lines = Lines(before)
    for edit in edits:
        for offset in (edit.at.start, edit.at.end):
            assert lines.offset(lines.position(offset, encoding), encoding) == offset


@pytest.mark.parametrize(("encoding", "character"), [(Encoding.UTF8, 5), (Encoding.UTF16, 3), (Encoding.UTF32, 2)])
def test_an_astral_character_counts_by_the_encoding(encoding: Encoding, character: int) -> None:
    lines = Lines("\t😀x")
    assert lines.position(2, encoding) == Position(0, character)
    assert lines.offset(Position(0, character), encoding) == 2


def test_only_line_feeds_and_carriage_returns_end_a_line() -> None:
    lines = Lines("a\u2028b\r\nc\rd\x0ce")
    assert lines.position(3, Encoding.UTF16) == Position(0, 3)
    assert lines.position(5, Encoding.UTF16) == Position(1, 0)
    assert lines.position(7, Encoding.UTF16) == Position(2, 0)


def test_a_position_beyond_its_line_or_text_is_at_the_end() -> None:
    lines = Lines("ab\ncd")
    assert lines.offset(Position(0, 99), Encoding.UTF16) == 2
    assert lines.offset(Position(9, 0), Encoding.UTF16) == 5


def test_findings_of_compilers_are_in_characters_of_the_text() -> None:
    document = Document(Path("/q.gq"), "// 😀é\r\nquery q() { match { $p: bok } }")
    _, (finding,) = parse_recovering(document.text)
    at = document.problem(finding).at
    assert document.text[at.start : at.end] == "bok"
