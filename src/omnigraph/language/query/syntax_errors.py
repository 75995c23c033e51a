"""Words syntax errors: the token that was found, what could have been there, and the remedy where one is known.

The parser calls it when a token does not fit. It explains an error and never decides whether there is one. The remedies
are for habits of other query languages, and for what a shell leaves of a query.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Final, NamedTuple

from omnigraph.language.query.tokens import END, INVALID, RESERVED_WORDS, Lexeme
from omnigraph.language.source import did_you_mean, one_of

MISFIT = "Q001"
"""What does not fit the grammar here."""

NO_PARAMETERS = "Q002"
"""A query without the parentheses of its parameters."""

SETTING = "Q003"
"""`set`, `reset` or `show`: a text changes no setting."""

SEVERAL_STATEMENTS = "Q004"
"""More than one statement, or a statement beside query declarations."""

REFUSED = "Q005"
"""A declaration with a body, or a part of one, that the language refuses."""

# ---- what could have been there -------------------------------------------------------------------------

_OPERAND = frozenset({
    "VAR", "FIELD", "IDENT", "STRING", "INT", "FLOAT", "BOOLEAN", "NULL", "LSQB", "LPAR", "CASE", "EXISTS", "COUNT",
    "AGGREGATE", "LIST_FUNCTION", "REDUCE", "TEXT_FUNCTION", "FUZZY", "NEAREST", "BM25", "RRF",
})  # fmt: skip
_OPERATORS = frozenset(
    {"COMPARISON", "EQUAL", "LESS", "GREATER", "CONTAINS", "STARTS_WITH", "IN", "ARITHMETIC", "STAR"}
)
# Read in order: a wide group absorbs its members, so that a list of thirty tokens becomes three phrases.
_GROUPS: tuple[tuple[frozenset[str], str], ...] = (
    (_OPERAND | {"NOT", "OPTIONAL", "PATH"}, "a clause"),
    (_OPERAND | {"NOT"}, "an expression"),
    (_OPERAND, "an expression"),
    (_OPERATORS | {"AND", "OR", "IS"}, "an operator"),
    (frozenset({"AND", "OR"}), "'and', 'or'"),
    (frozenset({"STRING", "IDENT", "TYPE_NAME"}), "a name or a string"),
    (frozenset({"STRING", "IDENT"}), "a name or a string"),
    (frozenset({"BRANCH", "EXPLAIN"}), "a statement"),
)
_PHRASES = {
    "VAR": "a variable",
    "IDENT": "a name",
    "TYPE_NAME": "a type name",
    "STRING": "a string",
    "INT": "a whole number",
    "FLOAT": "a number",
    "META": "'@description' or '@instruction'",
    "FIELD": "'@id', '@src', '@dst' or '@type'",
    "DIRECTION": "'asc' or 'desc'",
    "NULLS_PLACE": "'first' or 'last'",
    "PATH_MODE": "'shortest', 'all_shortest' or 'trails'",
    "LBRACE": "'{'",
    "RBRACE": "'}'",
    "LPAR": "'('",
    "RPAR": "')'",
    "LSQB": "'['",
    "RSQB": "']'",
    "COMMA": "','",
    "COLON": "':'",
    "SEMICOLON": "';'",
    "DOT": "'.'",
    "QMARK": "'?'",
    "VBAR": "'|'",
    "STAR": "'*'",
    "LESS": "'<'",
    "GREATER": "'>'",
    "EQUAL": "'='",
    "COMPARISON": "a comparison",
    END: "the end of the file",
}
# Kinds of what another kind in the list already says: `-` of an expression or an operator, `<` of an edge.
_UNLISTED = frozenset({"MINUS", "EDGE_VAR", "ANGLE"})
_LONGEST_TOKEN = 40


def _expectation(accepted: Set[str]) -> str:
    rest = accepted - _UNLISTED
    phrases: list[str] = []
    for group, phrase in _GROUPS:
        if group <= rest:
            rest -= group
            phrases.append(phrase)
    phrases += sorted(_PHRASES.get(name, f"'{name.lower()}'") for name in rest)
    return one_of(phrases) if phrases else "something else"


# ---- what to write instead ------------------------------------------------------------------------------


class _Position(NamedTuple):
    """A token that does not fit, with what is around it."""

    token: Lexeme
    before: Sequence[Lexeme]
    after: Sequence[Lexeme]
    accepted: Set[str]

    @property
    def word(self) -> str:
        return self.token.casefold()

    @property
    def last(self) -> str:
        """The token before, in small letters."""
        return self.before[-1].casefold() if self.before else ""

    @property
    def next(self) -> str:
        return self.after[0].casefold() if self.after else ""

    @property
    def operand(self) -> str:
        return _operand(self.before)


def _operand(before: Sequence[Lexeme]) -> str:
    """The property or the name at the end of these tokens, for an example."""
    if before[-2:-1] == ["."]:
        return "".join(before[-3:])
    return before[-1] if before and before[-1].type == "IDENT" else "$x.p"


_ANATOMY = "query name() { match { $p: Person } return { $p.name } }"
_SHELL = "a variable is missing here; a shell replaces $p within double quotes, so put the query in single quotes"
_PATTERNS = 'compare with contains, starts_with, ends_with($x.p, "…") or matches($x.p, "…"), or search by words'
_NODES = f"nodes are written $p: Person, traversals $a knows $b: {_ANATOMY}"
_EDGE = "a traversal is written $a knows $b, either way $a <knows> $b, and several hops $a knows{1,3} $b"
_ALONE = "a statement is a text of its own; in a query, one reads (match, return) or writes (insert, update, delete)"
_NO_SETTINGS = (
    "a text changes no settings; limits are those of the request (`ReadOptions` in Python, `traversal_work` over HTTP) "
    "or of the server (`omnigraph serve --help`)"
)
_BOTH = "run each statement as a text of its own, and keep queries in a file without statements"

_CONDITIONS = "conditions are clauses of match: match { $p: Person  $p.age > 3 }"
FOREIGN_OPERATORS: Final = {
    "like": _PATTERNS,
    "ilike": _PATTERNS,
    "rlike": _PATTERNS,
    "similar": _PATTERNS,
    "regexp": 'write matches($x.p, "regular expression")',
    "matches": 'write matches($x.p, "regular expression")',
    "between": "write $x.p >= 1 and $x.p <= 9",
}
"""What other languages write between operands. `$x.p` stands for the one before it."""

FOREIGN_CLAUSES: Final = {**FOREIGN_OPERATORS, "where": _CONDITIONS}
"""Names that are a clause of their own where somebody meant an operator or a keyword."""

# What other languages write elsewhere.
_FOREIGN_WORDS = {
    "skip": "rows are skipped by offset: offset 20 limit 10",
    "group": "there is one row for each value of what is returned beside aggregates: return { $x.p, count($x) as n }",
    "having": "a filter of the next stage: return { $x.p as p, count($x) as n } then match { $n > 3 }",
    "cheapest": "there are no weights yet: shortest takes the fewest hops",
    "elif": "write another when: case when … then … when … then … else … end",
    "elseif": "write another when: case when … then … when … then … else … end",
    "xor": "two Booleans differ: ($a.p != $b.q)",
}
_FOREIGN_SIGNS = {
    "&": "conditions are joined by the word and",
    "!": "write not before a condition, != between values",
    "~": 'write matches($x.p, "regular expression")',
    "^": "write power(x, y)",
    "#": "comments begin with //",
    "'": 'strings are written in double quotes: "text"',
    "`": 'names are written as they are; an edge or a column of any text in double quotes: as "text"',
    "|": "conditions are joined by the word or, texts by +",
    ";": "nothing is written between queries and clauses; leave out ';'",
}
# Signs of two tokens, of which the second does not fit.
_FOREIGN_PAIRS = {
    ("=", "="): "equality is written =",
    ("<", ">"): "inequality is written !=",
    ("-", ">"): _EDGE,
    ("<", "-"): _EDGE,
    ("order", "by"): "sort keys are in braces: order { $x.p desc }",
}
_STATEMENTS = frozenset({"match", "return", "unwind", "insert", "upsert", "update", "delete"})
_OTHER_LANGUAGES = frozenset({"select", "with", "create", "merge", "optional", "call", "use"})
_SETTINGS = frozenset({"set", "reset", "show"})
_AGGREGATES = frozenset({"count", "sum", "avg", "min", "max", "collect"})
_BRACED = {
    "match": "clauses are in braces: match { $p: Person  $p.age > 3 }",
    "return": "columns are in braces: return { $p.name }",
    "order": "sort keys are in braces: order { $x.p desc }",
    "set": "assignments are in braces: update Type set { name: value } where …",
}
# Nothing but these may be completed by a near word: offering `count` for every odd name would be noise.
_STRUCTURAL = frozenset({
    "QUERY", "MATCH", "OPTIONAL", "RETURN", "DISTINCT", "ORDER", "LIMIT", "OFFSET", "UNWIND", "THEN", "UNION", "ALL",
    "INSERT", "UPSERT", "UPDATE", "DELETE", "SET", "WHERE", "BRANCH", "EXPLAIN", "AS", "ASC", "DESC", "NULLS", "AND",
    "OR", "NOT", "IN", "IS", "NULL", "CASE", "WHEN", "ELSE", "END", "EXISTS", "PATH", "EACH",
})  # fmt: skip


def describe_unexpected(
    token: Lexeme, before: Sequence[Lexeme], after: Sequence[Lexeme], accepted: Set[str]
) -> tuple[str, str, str | None]:
    """The code, the message and the suggestion for a token that can't stand between `before` and `after`."""
    if token.type == INVALID and token.startswith(('"', "/*")):
        return MISFIT, ("string is not closed" if token[0] == '"' else "comment is not closed"), None
    # Enough of a token to recognise it; the caret points at the rest.
    shown = token if len(token) <= _LONGEST_TOKEN else f"{token[:_LONGEST_TOKEN]}…"
    description = "the end of the file" if token.type == END and not token else f"'{shown}'"
    at = _Position(token, before, after, accepted)
    code, remedy = _statement_problem(at) or (MISFIT, None)
    if remedy is None:
        remedy = next((text for rule in _RULES if (text := rule(at)) is not None), None)
    return code, f"expected {_expectation(accepted)}, found {description}", remedy


def _statement_problem(at: _Position) -> tuple[str, str] | None:
    """The code and the remedy where a text, or the body of a query, is not what one may hold."""
    is_next = at.word in ("branch", "explain", "query")
    if at.accepted <= {"SEMICOLON", END} or (is_next and (at.accepted == {"QUERY", END} or "SEMICOLON" in at.accepted)):
        return SEVERAL_STATEMENTS, _BOTH
    if "BRANCH" in at.accepted and at.word in _SETTINGS:
        return SETTING, _NO_SETTINGS
    if at.token == "{" and "LPAR" in at.accepted and at.before[-2:-1] == ["query"]:
        return NO_PARAMETERS, f"parameters are in parentheses, which may be empty: query {at.before[-1]}() {{"
    if {"MATCH", "INSERT", "RETURN"} <= at.accepted:
        if at.word in ("branch", "explain", *_SETTINGS, *_OTHER_LANGUAGES):
            return REFUSED, _ALONE
        if at.token == "}" and at.last == "{":
            return REFUSED, f"a query reads or writes: {_ANATOMY}"
    return None


def _cypher(at: _Position) -> str | None:
    if at.word == "match" and at.next == "(":
        return f"this reads like Cypher; a query is written {_ANATOMY}"
    if "QUERY" in at.accepted:
        if at.word in _STATEMENTS:
            return "a statement belongs in a query: query name() { … }"
        return f"a query is written {_ANATOMY}" if at.word in _OTHER_LANGUAGES else None
    if at.token == "(" and at.last == "match":
        return _NODES
    if at.token == ":" and at.before[-2:-1] == ["("] and "VAR" not in at.accepted:
        return _NODES
    if at.token == ":" and "[" in at.before and "-" in at.before:
        return _EDGE
    return None


def _shell(at: _Position) -> str | None:
    if at.token not in (":", ".") or "VAR" not in at.accepted or at.last.startswith("$"):
        return None
    return None if at.last == "?" or at.before[-2:-1] == ["."] else _SHELL


def _capitals(at: _Position) -> str | None:
    """Words that are written in small letters here."""
    if at.token == at.word:
        return None
    if at.word == "is" and at.next in ("null", "not"):
        test = "is null" if at.next == "null" else "is not null"
        return f"operators are written in small letters: {at.operand} {test}"
    if at.word == "null" and at.last in ("=", "!="):
        return "a null is tested by is null, or is not null"
    if at.next == "(" and (at.word == "now" or at.word in _AGGREGATES) and "COUNT" in at.accepted:
        example = {"count": "count($x)", "now": "now()"}.get(at.word, f"{at.word}($x.p)")
        return f"functions are written in small letters: {example}"
    if at.word.upper() in at.accepted & _STRUCTURAL:
        return f"keywords are written in small letters: {at.word}"
    if at.last.startswith("$") and {"IDENT", "STAR"} <= at.accepted and at.next.startswith("$"):
        name = at.word if at.token.isupper() else f"{at.token[0].lower()}{at.token[1:]}"
        return f"edges are written with a small first letter: {at.before[-1]} {name} {at.after[0]}"
    return None


def _foreign(at: _Position) -> str | None:
    if (pair := _FOREIGN_PAIRS.get((at.last, at.word))) is not None:
        return pair
    if at.token.type == INVALID or at.token in (";", "|"):
        return _FOREIGN_SIGNS.get(at.token)
    if at.word in FOREIGN_OPERATORS:
        return FOREIGN_OPERATORS[at.word].replace("$x.p", at.operand)
    if at.word in _FOREIGN_WORDS:
        return _FOREIGN_WORDS[at.word]
    if "where" in (at.word, at.last):
        return None if "WHERE" in at.accepted else _CONDITIONS
    if at.word == "limit" and "OFFSET" not in at.accepted and "offset" in at.before:
        return "limit and offset are written once each"
    return None


def _negation(at: _Position) -> str | None:
    """`not` between operands, at which the word after it or `not` itself does not fit."""
    before, operator = (at.before[:-1], at.word) if at.last == "not" else (at.before, at.next)
    if "not" not in (at.last, at.word) or operator not in ("in", *FOREIGN_OPERATORS):
        return None
    test = FOREIGN_OPERATORS.get(operator, "$x.p in […]").replace("$x.p", _operand(before))
    return f"not comes before the test: not {test}" if operator == "in" else f"{test}, with not before it"


def _traversal(at: _Position) -> str | None:
    """A clause that begins with a variable and turned out to be a traversal."""
    words = list(map(str, at.before))
    if at.token == "." and words[-2:-1] in (["contains"], ["starts_with"]):
        clause = f"{' '.join(words[-3:])}"
        return f"'{clause}' reads as a traversal over an edge named '{words[-2]}'; write ({clause}.…)"
    if at.token.type == "VAR" and at.accepted == {"IDENT", "STRING"} and words[-1:] == ["("]:
        return "a variable and a parenthesis begin a traversal, $a (x | y) $b; put the variable in parentheses: ($a)"
    if at.accepted == {"LBRACE", "VAR"} and words[-2:] and words[-2].startswith("$"):
        clause = " ".join(words[-2:])
        return f"'{clause}' reads as the beginning of a traversal; an expression is in parentheses: ({clause} …)"
    if at.accepted == {"COMMA"} and words[-2:-1] == ["{"]:
        return f"the bounds of hops are a range: {{1,{words[-1]}}}, or {{{words[-1]},}} without an upper bound"
    if at.token.type == "VAR" and {"IDENT", "STRING", "STAR"} <= at.accepted and at.next == ":":
        return "a path has no edge variable; edges($p) is the list of its edges"
    return None


def _braces(at: _Position) -> str | None:
    if at.token == "}" and at.last == "{":
        return "braces can't be empty; leave them out"
    if at.accepted - {"DISTINCT"} == {"LBRACE"} and at.last in _BRACED:
        return _BRACED[at.last]
    if at.token == "=" and at.accepted == {"COLON"}:
        return f"a value is assigned by a colon: {at.operand}: …"
    return None


def _order_of_parts(at: _Position) -> str | None:
    if at.word == "order" and "limit" in at.before:
        return "order comes before limit"
    if "THEN" in at.accepted and at.word in _STATEMENTS:
        return f"stages are joined by then: return {{ … }} then {at.word} …"
    if at.token == "}" and "THEN" in at.accepted and not at.accepted & {"UNION", *_OPERATORS}:
        return "a query that writes returns nothing; rows to write from are joined by then: return { … } then insert …"
    if at.token.type == "VAR" and at.last in ("update", "delete"):
        return f"'{at.last} {at.token}' needs a match before it; without, {at.last} Type … where …"
    return None


def _names(at: _Position) -> str | None:
    if at.token in RESERVED_WORDS and not at.accepted & _OPERATORS:
        return f"'{at.token}' is a reserved word; the name of an edge, a column or a branch is written \"{at.token}\""
    if "TYPE_NAME" in at.accepted and at.token.type == "IDENT":
        return "type names begin with a capital letter"
    if at.token.type == "IDENT":
        return did_you_mean(at.token, (name.lower() for name in at.accepted & _STRUCTURAL))
    return None


_RULES: tuple[Callable[[_Position], str | None], ...] = (
    _cypher, _shell, _negation, _capitals, _foreign, _traversal, _braces, _order_of_parts, _names,
)  # fmt: skip
