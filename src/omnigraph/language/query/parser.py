"""Parses `.gq` text into a `QueryFile`, or says everything that is wrong with its syntax.

`parse_queries` is the entry for files. The fast path parses the whole file at once; only when that fails is the
text cut at query boundaries, so that each broken query is reported. `parse_row_filter` reads a single expression, the
row filter of a policy. Neither looks at a catalog.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final, cast

from lark import Lark, UnexpectedToken
from lark.lexer import PatternStr
from lark.parsers.lalr_analysis import Shift
from lark.parsers.lalr_parser_state import ParserState
from msgspec import Struct

from omnigraph.api.governance import QueryLimits
from omnigraph.errors import CompileError, Diagnostic
from omnigraph.language.query.syntax import Expression, Query, QueryFile
from omnigraph.language.query.syntax_errors import MISFIT, REFUSED, SEVERAL_STATEMENTS, describe_unexpected
from omnigraph.language.query.tokens import (
    ANGLE,
    EDGE_VARIABLE,
    END,
    LESS,
    PUNCTUATION,
    RESERVED_WORDS,
    VARIABLE,
    WORD,
    Lexeme,
    scan,
)
from omnigraph.language.query.tree import MAX_NESTING, MisplacedError, TreeBuilder, check_operator_depth
from omnigraph.language.source import (
    LONE_SURROGATE,
    MOST_DIAGNOSTICS,
    MalformedTokenError,
    SourceText,
    TextSpan,
    between,
    grammar_parser,
)

DEFAULT_LIMITS: Final = QueryLimits()

_FILE = "file"
_ROW_FILTER = "row_filter"
GRAMMAR_OPTIONS: Final[dict[str, Any]] = {"start": [_FILE, _ROW_FILTER], "lexer": "basic"}


def parse_queries(text: str, path: str | None = None, limits: QueryLimits = DEFAULT_LIMITS) -> QueryFile:
    """The queries of one file, or its only statement. Raises `CompileError` with one finding per broken query, in
    source order."""
    file, problems = parse_recovering(text, path, limits)
    if problems:
        raise CompileError(problems)
    return file


def parse_recovering(
    text: str, path: str | None = None, limits: QueryLimits = DEFAULT_LIMITS
) -> tuple[QueryFile, tuple[Diagnostic, ...]]:
    """The readable queries of a file, or its only statement, and a finding for each broken query. Raises `CompileError`
    for a text that is not read at all."""
    source = _source(text, path, limits)
    whole = _parse(*scan(text), source, _FILE)
    if not isinstance(whole, Diagnostic):
        return cast(QueryFile, whole), ()
    problems: list[Diagnostic] = []
    queries: list[Query] = []
    # Tokens know what they were taken for, so the text is scanned anew.
    for piece in _pieces(text):
        outcome = _parse(*piece, source, _FILE)
        if isinstance(outcome, Diagnostic):
            problems.append(outcome)
            if len(problems) == MOST_DIAGNOSTICS:
                break
        else:
            queries += cast(QueryFile, outcome).queries
    return QueryFile(tuple(queries)), tuple(problems) or (whole,)


def declared_queries(text: str, path: str | None = None) -> tuple[Query, ...]:
    """The queries of a text that offers them by name. As `parse_queries`, but a statement is refused: it is run and
    never stored."""
    file = parse_queries(text, path)
    if file.statement is not None:
        raise statement_refusal(text, path)
    return file.queries


def statement_refusal(text: str, path: str | None) -> CompileError:
    """The error of a statement where queries are declared."""
    message = "a statement is not a query: queries are declared as query name() { … }"
    suggestion = "run it by itself: `omnigraph query -e '…'`, for branches also `omnigraph mutate -e '…'`"
    source, at = SourceText(text, path), TextSpan(0, len(text))
    return CompileError([source.diagnostic(SEVERAL_STATEMENTS, message, at, suggestion=suggestion)])


_FIRST_WORD: Final = re.compile(r"(?:[ \t\r\n]|//[^\n]*+|/\*(?:[^*]|\*(?!/))*+\*/)*+([a-z]++)")


def first_word(text: str) -> str:
    """The first word of a text that is not in a comment: `query`, `branch` or `explain` where it may parse. It tells
    a statement from queries without parsing them."""
    match = _FIRST_WORD.match(text)
    return "" if match is None else match[1]


def parse_row_filter(text: str, path: str | None = None) -> Expression:
    """A condition of one row, in which bare names are its properties. Raises `CompileError`."""
    source = _source(text, path, DEFAULT_LIMITS)
    parsed = _parse(*scan(text), source, _ROW_FILTER)
    if isinstance(parsed, Diagnostic):
        raise CompileError([parsed])
    return cast(Expression, parsed)


def _source(text: str, path: str | None, limits: QueryLimits) -> SourceText:
    source = SourceText(text, path)
    remedy = "pass long values as parameters, load many rows with `load`, or raise " + limits.setting("bytes")
    source.check_size("query_bytes", limits.bytes, remedy)
    if (surrogate := LONE_SURROGATE.search(text)) is not None:
        message = "the text holds half of a surrogate pair, which no file can"
        raise CompileError([source.diagnostic(MISFIT, message, TextSpan(*surrogate.span()))])
    return source


def _pieces(text: str) -> Iterator[tuple[Sequence[Lexeme], Lexeme]]:
    """The tokens cut before everything that looks like the head of a query, each with the token that ends it.

    Braces can't be trusted in a broken text, so a head is recognised by its shape, `query name (` or `query name {`,
    after something that may end a query or after a line break.
    """
    tokens, end = scan(text)
    starts = [i for i in range(len(tokens)) if _begins_query(text, tokens, i)]
    if not starts or starts[0] > 0:
        starts.insert(0, 0)
    for start, stop in zip(starts, [*starts[1:], len(tokens)], strict=True):
        # A piece that stops early is at fault where the next query begins, which is where a person looks.
        after = tokens[stop] if stop < len(tokens) else end
        yield tokens[start:stop], Lexeme(END, str(after), after.start_pos, after.end_pos)


def _begins_query(text: str, tokens: Sequence[Lexeme], i: int) -> bool:
    if tokens[i] != "query" or i + 2 >= len(tokens) or tokens[i + 1].type != WORD or tokens[i + 2] not in ("(", "{"):
        return False
    if i == 0 or tokens[i - 1] == "}":
        return True
    return tokens[i - 1] != "explain" and "\n" in text[tokens[i - 1].end_pos : tokens[i].start_pos]


def _parse(tokens: Sequence[Lexeme], end: Lexeme, source: SourceText, start: str) -> object:
    """What the builder makes of the tokens, or the `Diagnostic` of why they make nothing."""
    words, marks = _spellings()
    run = _lark().parse_interactive(start=start)
    state = run.parser_state
    feed = state.feed_token
    depth = 0
    position = -1
    token = end
    try:
        for position, token in enumerate(tokens):
            kind = token.type
            if kind == WORD:
                keywords = words.get(token)
                if keywords is not None:
                    token.type = _word_kind(keywords, tokens, position, state)
            elif kind == PUNCTUATION:
                token.type = marks[token]
            elif kind == VARIABLE:
                if position and tokens[position - 1].type == VARIABLE and _names_edge(tokens, position, state):
                    token.type = EDGE_VARIABLE
            elif kind == LESS and _opens_angle(tokens, position, state):
                token.type = ANGLE
            nesting = _NESTING.get(token.type)
            if nesting is not None:
                depth += nesting
                if depth > MAX_NESTING:
                    nested = "'case' is" if token.type == "CASE" else "brackets are"
                    message = f"{nested} nested deeper than {MAX_NESTING} levels"
                    raise MalformedTokenError(message, between(token, token))
            feed(token)
        position, token = len(tokens), end
        parsed = cast(Struct, feed(end, True))
        kinds = [token.type for token in tokens]
        if sum(map(kinds.count, _NESTING_OPERATORS)) > MAX_NESTING:
            check_operator_depth(parsed)
        return parsed
    except MisplacedError as misplaced:
        return source.diagnostic(MISFIT, misplaced.message, misplaced.at, suggestion=misplaced.suggestion)
    except MalformedTokenError as malformed:
        return source.diagnostic(REFUSED, malformed.message, malformed.at)
    except UnexpectedToken:
        before, after = tokens[max(0, position - 4) : position], tokens[position + 1 : position + 5]
        code, message, suggestion = describe_unexpected(token, before, after, _acceptable(tokens[:position], start))
        return source.diagnostic(code, message, between(token, token), suggestion=suggestion)


def _acceptable(tokens: Sequence[Lexeme], start: str) -> set[str]:
    """The terminals that fit behind these tokens. The parser that met another one can't tell any more: it may have
    reduced what was before."""
    run = _lark().parse_interactive(start=start)
    for token in tokens:
        run.parser_state.feed_token(token)
    return cast(set[str], run.accepts())  # type: ignore[no-untyped-call]


# ---- keywords and names ---------------------------------------------------------------------------------

_RESERVED = frozenset(word.upper() for word in RESERVED_WORDS)
_STRING_OPERATORS = frozenset({"CONTAINS", "STARTS_WITH"})
_LAST_OF_EXPRESSION = frozenset({"NULL", "BOOLEAN", "END"})
_NESTING_OPERATORS = ("NOT", "MINUS", "ARITHMETIC", "STAR")
_NESTING: Final = {
    **dict.fromkeys(("LBRACE", "LPAR", "LSQB", "CASE"), 1),
    **dict.fromkeys(("RBRACE", "RPAR", "RSQB", "END"), -1),
}
_CALLS = ("LIST_FUNCTION", "REDUCE", "NEAREST", "BM25", "RRF", "FUZZY", "TEXT_FUNCTION", "AGGREGATE")
# Where a keyword and a name may both begin something, the next token decides: `count(…)`, and a column `count`.
_FOLLOWED_BY: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys(_CALLS, frozenset("(")),
    "COUNT": frozenset("({"),
    "EXISTS": frozenset("{"),
    "OPTIONAL": frozenset("{"),
    "PATH": frozenset({VARIABLE}),
    "EACH": frozenset({VARIABLE}),
}


def _mark(tokens: Sequence[Lexeme], position: int) -> str:
    """The punctuation at a position, or the kind of what else is there."""
    if position >= len(tokens):
        return END
    token = tokens[position]
    return token if token.type == PUNCTUATION else token.type


def _word_kind(keywords: tuple[str, ...], tokens: Sequence[Lexeme], position: int, state: ParserState[int]) -> str:
    """The terminal that a word is here: the keyword if the grammar can use it, or a name."""
    after = _mark(tokens, position + 1)
    before = tokens[position - 1] if position else ""
    for keyword in keywords:
        needed = _FOLLOWED_BY.get(keyword)
        if needed is not None and after not in needed:
            continue
        if keyword == "DISTINCT" and after in (")", ","):
            continue
        if after == ":" and (keyword not in _LAST_OF_EXPRESSION or before in ("(", ",")):
            continue  # `limit: 3` assigns, even where the expression before it could go on
        if _fits(keyword, state) and not _is_edge(keyword, after, state):
            return keyword
    if keywords[0] in _RESERVED and not (before in (".", "query") or after == ":"):
        return keywords[0]
    return WORD


def _is_edge(keyword: str, after: str, state: ParserState[int]) -> bool:
    """Whether a word behind the variable that begins a clause names an edge. The parser is there when a name goes on
    and a keyword ends what was read."""
    row = state.parse_conf.states[state.state_stack[-1]]
    if keyword in _RESERVED or row[keyword][0] is Shift or row.get(WORD, _NO_ACTION)[0] is not Shift:
        return False
    return keyword not in _STRING_OPERATORS or after in (VARIABLE, "{")


_NO_ACTION = (None, None)


def _names_edge(tokens: Sequence[Lexeme], position: int, state: ParserState[int]) -> bool:
    """Whether the second of two variables is the edge of a traversal, `$a $e:wrote $b`. If not, the first is a clause
    of its own, and the second begins the next: `$flag $b: Paper`."""
    if _mark(tokens, position + 1) != ":" or not _fits(EDGE_VARIABLE, state):
        return False
    first, second = _mark(tokens, position + 2), _mark(tokens, position + 3)
    if first == "*":
        return second == VARIABLE or (second == "{" and _mark(tokens, position + 4) == "INT")
    return first in (WORD, "STRING", LESS) or (first == "(" and second in (WORD, "STRING"))


def _opens_angle(tokens: Sequence[Lexeme], position: int, state: ParserState[int]) -> bool:
    """Whether `<` opens an undirected edge: `$a <knows> $b`, but not `$a < knows`."""
    edge, after = _mark(tokens, position + 1), _mark(tokens, position + 2)
    return edge in (WORD, "STRING", "*") and after in ("GREATER", "|") and _fits(ANGLE, state)


def _fits(terminal: str, state: ParserState[int]) -> bool:
    """Whether the grammar can use a word as this keyword here; otherwise it is a name like any other.

    The row of the parse table alone does not tell: LALR merges states, so it may promise a keyword that only
    another context takes. Following the reductions does.
    """
    states = state.parse_conf.states
    stack = state.state_stack
    if terminal not in states[stack[-1]]:
        return False
    stack = stack.copy()
    while (action := states[stack[-1]].get(terminal)) is not None:
        kind, rule = action
        if kind is Shift:
            return True
        if rule.expansion:
            del stack[-len(rule.expansion) :]
        stack.append(states[stack[-1]][rule.origin.name][1])
    return False


@cache
def _lark() -> Lark:
    return grammar_parser(__package__, TreeBuilder(), **GRAMMAR_OPTIONS)


@cache
def _spellings() -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """Every word of the grammar with its terminals, `all` has two, and every punctuation mark with its own."""
    words: dict[str, tuple[str, ...]] = {}
    marks: dict[str, str] = {}
    for terminal in _lark().terminals:
        pattern = terminal.pattern
        # A terminal of several words has become an alternation.
        spellings = [pattern.value] if isinstance(pattern, PatternStr) else pattern.value[3:-1].split("|")
        for spelling in spellings:
            if spelling.isidentifier():
                words[spelling] = (*words.get(spelling, ()), terminal.name)
            else:
                marks[spelling] = terminal.name
    return words, marks
