"""The grammars of the editors and the parsers of the compiler read every text alike.

Each text of the repository, random ones and random ones with a hole go through both. What the compiler takes must give
the same syntax tree, position by position; what it refuses must be an error in the editor too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.errors import CompileError
from omnigraph.language.query.formatter import format_queries
from omnigraph.language.query.parser import parse_queries
from omnigraph.language.schema.formatter import format_schema
from omnigraph.language.schema.parser import parse_schema
from tests.language.query_programs import programs
from tests.language.schema_programs import schema_texts
from tests.support.feature_queries import READS, WRITES

from .corpus import queries, schemas
from .grammars import parser
from .query_tree import QueryTree
from .schema_tree import SchemaTree
from .source_tree import children, field, outline

STRICTER: Final = (
    "duplicate @",
    "integer literal does not fit",
    "the number is too large",
    "nested deeper than",
    "behind a ranking",
    "distinct comes before the braces",
    "is neither a clause nor an operator",
    "takes no where",
    "nearest() has no option",
)
"""Messages of what fits the grammar and is refused by the parser all the same. An editor learns of it from the language
server."""


@dataclass(frozen=True)
class Language:
    """Both parsers of one language."""

    name: str
    compile: Callable[[str], Any]
    format: Callable[[str], str]
    build: Callable[[str, Any], Any]

    def difference(self, text: str) -> str | None:
        """What the parsers disagree about, or None."""
        root = parser(self.name).parse(text.encode()).root_node
        try:
            expected = self.compile(text)
        except CompileError as error:
            if root.has_error or all(any(reason in d.message for reason in STRICTER) for d in error.diagnostics):
                return None
            return f"only the compiler refuses it: {error}"
        if root.has_error:
            return f"only the grammar refuses it: {root}"
        read, compiled = outline(self.build(text, root)), outline(expected)
        return None if read == compiled else f"\n{read}\nis not\n{compiled}"

    def agree(self, text: str) -> None:
        assert self.difference(text) is None, text


SCHEMAS = Language("pg", parse_schema, format_schema, lambda text, root: SchemaTree(text, root).schema())
QUERIES = Language("gq", parse_queries, format_queries, lambda text, root: QueryTree(text, root).file())
CORPORA = [(SCHEMAS, schemas), (QUERIES, queries)]
BOTH = pytest.mark.parametrize(("language", "texts"), CORPORA, ids=["pg", "gq"])


@BOTH
def test_the_texts_of_the_repository(language: Language, texts: Callable[[], tuple[str, ...]]) -> None:
    differences = {text: found for text in texts() if (found := language.difference(text)) is not None}
    assert differences == {}


@BOTH
def test_the_repository_has_many_texts(language: Language, texts: Callable[[], tuple[str, ...]]) -> None:
    assert len(texts()) > 500


@BOTH
def test_what_the_formatter_writes(language: Language, texts: Callable[[], tuple[str, ...]]) -> None:
    for text in texts():
        try:
            formatted = language.format(text)
        except CompileError:
            continue
        language.agree(formatted)


EXAMPLES = (*READS, *WRITES)


@pytest.mark.parametrize("text", [e.text for e in EXAMPLES], ids=[e.feature for e in EXAMPLES])
def test_every_feature(text: str) -> None:
    QUERIES.agree(text)


@settings(max_examples=80)
@given(schema_texts)
def test_random_schemas(text: str) -> None:
    SCHEMAS.agree(text)


@settings(max_examples=80)
@given(programs())
def test_random_queries(text: str) -> None:
    QUERIES.agree(text)


_PIECES = st.sampled_from(
    [
        *"(){}[],:.?|;*-<>=/\"\\@$ ",
        *("$a", "$_", "Paper", "node", "edge", "match", "return", "not", "order", "limit", "as", "contains", "now"),
        *("nearest", "count", "search", "insert", "update", "where", "in", "null", "case", "end", "then", "each"),
        *("!=", ">=", "1", "1.5", '"x"', "//", "/*", "*/", "\n", "@id", "@key", "@key(", "->", "..", "true", "é"),
    ]
)  # fmt: skip


@settings(max_examples=100)
@given(st.one_of(schema_texts.map(lambda t: (SCHEMAS, t)), programs().map(lambda t: (QUERIES, t))), st.data())
def test_a_text_with_a_hole(whole: tuple[Language, str], data: st.DataObject) -> None:
    language, text = whole
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 10)))
    language.agree(text[:start] + data.draw(_PIECES) + text[end:])


@pytest.mark.parametrize(
    "text",
    [
        "query q() { return { @idx } }",
        "query q() { return { $x.@idx } }",
        "query q() { match { $a contains $b.x } return { $a } }",
        "query q() { match { $a ($b) } return { $a } }",
        "query q() { match { $x = 1 = 2 } return { $x } }",
        "query q() { return { null() } }",
        "query q() { return { $a as null } }",
        'query q() { return { "\\q" } }',
        "query q() { return { 1 } } branch list",
        "query q() { insert A { x: 1 in: 2 and: 3 null: 4 true: case when $a then 1 end limit: 5 } }",
        "query q() { match { $a $e:knows $b  $flag $b: Paper  $a $e:*{1,} $b  $a $e:* $b } return { $a } }",
        "query q() { match { $a each $b  $a knows $b each  $a knows $b each $_ $n { $n.x } } return { each } }",
        "query q() { match { $a < knows  $a <knows> $b  $a <a | b> $c  $a < *> $c } return { $a } }",
        "query q() { return { count(distinct), count(distinct distinct), distinct, count, optional } }",
        "query q() { delete A where count { $a x $b } > 1 match { $a: A } delete $a }",
    ],
)
def test_tokens_that_their_neighbours_decide(text: str) -> None:
    QUERIES.agree(text)


@pytest.mark.parametrize(
    "text",
    [
        "node A @key(a) {}",
        "node A @key(a, b) {}",
        "node A { p: String @key(a) }",
        "interface I { p: String @key(a) }",
        'edge E: A -> B @card("x")',
        'edge E: A -> B @x @card("x")',
        "node A { p: String @card }",
        "node A { p: [[String]] }",
        "node A { p: [enum(a)?]? }",
    ],
)
def test_rules_and_annotations(text: str) -> None:
    SCHEMAS.agree(text)


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ('"a \\n b"', "string"),
        ("3", "number"),
        ("-2.5e-3", "number"),
        ("true", "boolean"),
        ("kept", "enum_value"),
        ("on-hold", "enum_value"),
        ("2nd", "enum_value"),
        ("1.5.0", "enum_value"),
        ("node", "enum_value"),
        ("[]", "default_list"),
        ('[1, "a", kept, false]', "default_list"),
    ],
)
def test_default_values(written: str, kind: str) -> None:
    root = parser("pg").parse(f"node A {{ p: String = {written} @index q: I64 @unique(p) }}".encode()).root_node
    assert not root.has_error
    first, second, rule = children(field(children(root)[0], "body"))
    value = field(first, "default")
    assert (value.type, value.text) == (kind, written.encode())
    assert [first.type, second.type, rule.type] == ["property", "property", "columns_rule"]


@pytest.mark.parametrize("written", ["=", "== 1", "= [1,]", "= [[1]]", "= 1 2", "= @key", "= {}", '= "\\q"'])
def test_what_is_not_a_default_value(written: str) -> None:
    assert parser("pg").parse(f"node A {{ p: String {written} q: I64 }}".encode()).root_node.has_error
