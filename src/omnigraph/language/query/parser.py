"""Parses `.gq` text into a `QueryFile`, or says everything that is wrong with its syntax.

`parse_queries` is the entry for files. The fast path parses the whole file at once; only when that fails is the
text cut at query boundaries, so that each broken query is reported. `parse_row_filter` reads a single filter with the
same words. Neither looks at a catalog.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Any, Final, cast

from lark import Lark, UnexpectedToken
from lark.lexer import PatternStr
from lark.parsers.lalr_analysis import Shift
from lark.parsers.lalr_parser_state import ParserState

from omnigraph.api.governance import QueryLimits
from omnigraph.errors import CompileError, Diagnostic
from omnigraph.language.query.syntax import QueryFile, RowTest
from omnigraph.language.query.syntax_errors import describe_unexpected
from omnigraph.language.query.tokens import END, PUNCTUATION, WORD, Lexeme, scan
from omnigraph.language.query.tree import TreeBuilder
from omnigraph.language.source import (
    LONE_SURROGATE,
    MOST_DIAGNOSTICS,
    SYNTAX,
    MalformedTokenError,
    SourceText,
    TextSpan,
    between,
    grammar_parser,
)

# Far above anything a person nests, and far below what the recursive passes over the tree can take.
MAX_NESTING = 64
DEFAULT_LIMITS: Final = QueryLimits()

_FILE = "file"
_ROW_FILTER = "row_filter"
GRAMMAR_OPTIONS: Final[dict[str, Any]] = {"start": [_FILE, _ROW_FILTER], "lexer": "basic"}


def parse_queries(text: str, path: str | None = None, limits: QueryLimits = DEFAULT_LIMITS) -> QueryFile:
    """The queries of one file. Raises `CompileError` with one finding per broken query, in source order."""
    source = _source(text, path, limits)
    whole = _parse(*scan(text), source, _FILE)
    if isinstance(whole, Diagnostic):
        # Tokens know what they were taken for, so the text is scanned anew.
        outcomes = (_parse(*piece, source, _FILE) for piece in _pieces(text))
        problems = (outcome for outcome in outcomes if isinstance(outcome, Diagnostic))
        raise CompileError(list(islice(problems, MOST_DIAGNOSTICS)) or [whole])
    return cast(QueryFile, whole)


def parse_row_filter(text: str, path: str | None = None) -> RowTest:
    """Tests of the properties of one row, joined by `and` and `or`. Raises `CompileError`."""
    source = _source(text, path, DEFAULT_LIMITS)
    parsed = _parse(*scan(text), source, _ROW_FILTER)
    if isinstance(parsed, Diagnostic):
        raise CompileError([parsed])
    return cast(RowTest, parsed)


def _source(text: str, path: str | None, limits: QueryLimits) -> SourceText:
    source = SourceText(text, path)
    remedy = "pass long values as parameters, load many rows with `load`, or raise " + limits.setting("bytes")
    source.check_size("query_bytes", limits.bytes, remedy)
    if (surrogate := LONE_SURROGATE.search(text)) is not None:
        message = "the text holds half of a surrogate pair, which no file can"
        raise CompileError([source.diagnostic(SYNTAX, message, TextSpan(*surrogate.span()))])
    return source


def _pieces(text: str) -> Iterator[tuple[Sequence[Lexeme], Lexeme]]:
    """The tokens cut before everything that looks like the head of a query, each with the token that ends it.

    Braces can't be trusted in a broken text, so a head is recognised by its shape, `query name (`, after
    something that may end a query or after a line break.
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
    if tokens[i] != "query" or i + 2 >= len(tokens) or tokens[i + 1].type != WORD or tokens[i + 2] != "(":
        return False
    return i == 0 or tokens[i - 1] == "}" or "\n" in text[tokens[i - 1].end_pos : tokens[i].start_pos]


def _parse(tokens: Sequence[Lexeme], end: Lexeme, source: SourceText, start: str) -> object:
    """What the builder makes of the tokens, or the `Diagnostic` of why they make nothing."""
    lark = _lark()
    words = _spellings()
    run = lark.parse_interactive(start=start)
    state = run.parser_state
    feed = state.feed_token
    depth = 0
    token = end
    try:
        for token in tokens:
            kind = token.type
            if kind == WORD:
                keyword = words.get(token)
                if keyword is not None and _fits(keyword, state):
                    token.type = keyword
            elif kind == PUNCTUATION:
                token.type = words[token]
                if token in "{([":
                    depth += 1
                    if depth > MAX_NESTING:
                        message = f"brackets are nested deeper than {MAX_NESTING} levels"
                        raise MalformedTokenError(message, between(token, token))
                elif token in "})]":
                    depth -= 1
            feed(token)
        token = end
        return cast(object, feed(end, True))
    except MalformedTokenError as malformed:
        return source.diagnostic(SYNTAX, malformed.message, malformed.at)
    except UnexpectedToken:
        position = next((i for i, seen in enumerate(tokens) if seen is token), len(tokens))
        before = tokens[max(0, position - 4) : position]
        accepts: set[str] = run.accepts()  # type: ignore[no-untyped-call]
        message, suggestion = describe_unexpected(token, before, tokens[position + 1 : position + 5], accepts)
        return source.diagnostic(SYNTAX, message, between(token, token), suggestion=suggestion)


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
def _spellings() -> dict[str, str]:
    """Every spelling of the grammar with its terminal: `match` is MATCH, `{` LBRACE, `sum` AGGREGATE."""
    spellings: dict[str, str] = {}
    for terminal in _lark().terminals:
        pattern = terminal.pattern
        # A terminal of several words has become an alternation.
        words = [pattern.value] if isinstance(pattern, PatternStr) else pattern.value[3:-1].split("|")
        spellings |= dict.fromkeys(words, terminal.name)
    return spellings
