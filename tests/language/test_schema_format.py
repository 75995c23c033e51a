"""The canonical layout: nothing a schema says changes, no comment is lost, and formatting is idempotent."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.errors import CompileError
from omnigraph.language.schema.compile import compile_schema
from omnigraph.language.schema.formatter import format_schema
from omnigraph.language.schema.parser import parse_schema
from omnigraph.language.source import comments, quote, unquote

from .schema_programs import schema_texts

generated = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def failure_of(text: str) -> CompileError | None:
    """The one error that compiling or formatting may end in; any other exception fails the test."""
    try:
        compile_schema(text)
        format_schema(text)
    except CompileError as error:
        return error
    return None


@generated
@given(schema_texts)
def test_formatting_keeps_the_tree_and_the_comments_and_settles_at_once(text: str) -> None:
    formatted = format_schema(text)
    assert parse_schema(formatted) == parse_schema(text)
    assert sorted(c.text for c in comments(formatted)) == sorted(c.text for c in comments(text))
    assert format_schema(formatted) == formatted


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(
        st.text(max_size=80),
        st.text(alphabet='node edge{}()[]@"\\/*,:?->.1A \n', max_size=80),
        st.lists(
            st.sampled_from(
                ["node", "edge", "interface", "A", "b", "{", "}", "(", ")", ":", "->", "@key", "@x", "@range",
                 "@card", "I32", "enum", ",", "..", "1", '"s"', "?", "[", "]", "/*", "//\n", "=", "implements",
                 "Vector", "\n"]
            ),
            max_size=40,
        ).map(" ".join),
    )
)  # fmt: skip
def test_arbitrary_text_compiles_or_raises_a_compile_error(text: str) -> None:
    error = failure_of(text)
    # A finding that can't be shown is not a finding.
    assert error is None or all(d.span is not None and d.render() for d in error.diagnostics)


@generated
@given(schema_texts, st.integers(0, 400), st.sampled_from(["", "}", "{", '"', "/*", "@", "node ", ")", "\x00", "é"]))
def test_a_damaged_schema_never_breaks_the_parser(text: str, at: int, junk: str) -> None:
    error = failure_of(text[:at] + junk + text[at + 1 :])
    assert error is None or str(error)


@given(st.text())
def test_a_quoted_text_reads_back(text: str) -> None:
    assert unquote(quote(text)) == text


LAYOUTS = [
    pytest.param("node A{}", "node A {}\n", id="empty body"),
    pytest.param("edge E:A->B", "edge E: A -> B\n", id="bare edge"),
    pytest.param("edge E:A->B@card( 0 .. 5 ){}", "edge E: A -> B @card(0..5) {}\n", id="cardinality"),
    pytest.param(
        "node A implements I,J{p:[String]?@index @key(p,q)}",
        "node A implements I, J {\n    p: [String]? @index\n    @key(p, q)\n}\n",
        id="one member a line",
    ),
    pytest.param(
        "edge E: A -> B\nedge F: A -> B\n\n\n\nedge G: A -> B",
        "edge E: A -> B\nedge F: A -> B\n\nedge G: A -> B\n",
        id="bare edges stay together, blank lines collapse",
    ),
    pytest.param("node A {}\nnode B {}", "node A {}\n\nnode B {}\n", id="declarations are set apart"),
    pytest.param(
        "node A { // why\n a: I32 // first\n\n\n // second\n b: I32\n // end\n } // done",
        "node A {  // why\n    a: I32  // first\n\n    // second\n    b: I32\n    // end\n}  // done\n",
        id="comments",
    ),
    pytest.param("node A { a: /* odd */ I32 }", "node A {\n    /* odd */\n    a: I32\n}\n", id="inner comment"),
    pytest.param("node A { /* nothing */ }", "node A {  /* nothing */\n}\n", id="only a comment"),
    pytest.param(
        "node A { a: I32 /* one\n   two */ b: I32 }",
        "node A {\n    a: I32\n    /* one\n   two */\n    b: I32\n}\n",
        id="a comment of several lines stands alone",
    ),
    pytest.param('node A @d("x\ny\t") {}', 'node A @d("x\\ny\\t") {}\n', id="strings on one line"),
    pytest.param("// just this", "// just this\n", id="no declaration"),
    pytest.param("", "", id="nothing"),
    pytest.param(
        f'node A @description("{"x" * 60}") @instruction("{"y" * 60}") implements I {{ a: I32 }}',
        f"""node A
        @description("{"x" * 60}")
        @instruction("{"y" * 60}")
        implements I {{
    a: I32
}}
""",
        id="a long head is broken",
    ),
]


@pytest.mark.parametrize(("text", "expected"), LAYOUTS)
def test_layout(text: str, expected: str) -> None:
    assert format_schema(text) == expected
    assert format_schema(expected) == expected


def test_a_schema_that_does_not_parse_is_not_formatted() -> None:
    with pytest.raises(CompileError):
        format_schema("node A {")
