"""The lexical rules that both languages share, and how positions are reported."""

from __future__ import annotations

from difflib import get_close_matches

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.language.source import (
    MalformedTokenError,
    SourceText,
    TextSpan,
    comments,
    did_you_mean,
    structure_of,
    unquote,
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a // b\nc", ["// b"]),
        ("a // b\r\nc", ["// b"]),
        ("/* a */ b /**/", ["/* a */", "/**/"]),
        ("/* // */ x", ["/* // */"]),
        ("// /* \n x", ["// /*"]),
        ('"// no" // yes', ["// yes"]),
        (r'"\"// no" /* yes */', ["/* yes */"]),
        ("/* a /* b */ c */", ["/* a /* b */"]),
    ],
)
def test_comments(text: str, found: list[str]) -> None:
    assert [comment.text for comment in comments(text)] == found
    assert all(text[c.start : c.end].rstrip() == c.text for c in comments(text))


def test_structure_keeps_offsets_and_hides_strings_and_comments() -> None:
    text = 'node "edge A" /* node B */ x // y\nz'
    structure = structure_of(text)
    assert structure == "node " + '"' * 8 + " " * 14 + "x" + " " * 5 + "\nz"
    assert len(structure) == len(text)


def test_an_unclosed_comment_stays_visible() -> None:
    assert structure_of("a /* b") == "a ****"
    assert structure_of("a /*/") == "a ***"


@given(st.text(alphabet='a"\\/*\n ', max_size=40))
def test_structure_never_changes_the_length(text: str) -> None:
    assert len(structure_of(text)) == len(text)


@pytest.mark.parametrize(
    ("literal", "value"), [('"a"', "a"), (r'"\"\\\n\r\t"', '"\\\n\r\t'), ('"a\nb"', "a\nb"), ('""', "")]
)
def test_string_literals(literal: str, value: str) -> None:
    assert unquote(literal) == value


def test_the_first_unknown_escape_is_located() -> None:
    with pytest.raises(MalformedTokenError, match=r"unsupported escape sequence '\\u'") as caught:
        unquote(r'"a\n\u0041\x"', 10)
    assert (caught.value.at.start, caught.value.at.end) == (14, 16)


def test_lines_and_columns() -> None:
    source = SourceText("ab\r\n\u00e9cd\n", "f.pg")
    span = source.span(5, 7)
    assert (span.line, span.column, span.start, span.end) == (2, 2, 6, 8)
    assert source.line_text(1) == "ab"
    assert source.line_text(3) == ""
    end = source.span(8, 8)
    assert (end.line, end.column, end.end - end.start) == (3, 1, 1)


def test_a_shown_line_can_always_be_encoded() -> None:
    diagnostic = SourceText("a \ud800 b").diagnostic("code", "message", TextSpan(2, 3))
    assert diagnostic.render().encode("utf-8").count("\ufffd".encode()) == 1


def test_the_caret_stands_under_the_finding() -> None:
    diagnostic = SourceText("\tnode book {}", "f.pg").diagnostic("code", "message", TextSpan(6, 10), suggestion="try")
    assert diagnostic.render() == "f.pg:1:7: code: message\n  \tnode book {}\n  \t     ^^^^\n  help: try"


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("titel", ["title", "isbn"], "did you mean 'title'?"),
        ("string", ["String", "Bool"], "did you mean 'String'?"),
        ("x", ["title", "isbn"], None),
        ("title", ["title"], None),
        ("a", [], None),
    ],
)
def test_suggestions(name: str, known: list[str], expected: str | None) -> None:
    assert did_you_mean(name, known) == expected


@given(st.text("abA0", max_size=6), st.lists(st.text("abA0", max_size=7), max_size=12))
def test_the_suggestion_is_the_closest_match(name: str, known: list[str]) -> None:
    said = did_you_mean(name, known)
    alike = [candidate for candidate in known if candidate != name and candidate.casefold() == name.casefold()]
    near = [candidate for candidate in set(known) - {name} if abs(len(candidate) - len(name)) <= 1 + len(name) // 3]
    expected = [min(alike)] if alike else get_close_matches(name, near, n=1, cutoff=0.7)
    assert said == (f"did you mean '{expected[0]}'?" if expected else None)
