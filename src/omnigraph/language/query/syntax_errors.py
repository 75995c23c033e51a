"""Words syntax errors: the token that was found, what could have been there, and the remedy where one is known.

The parser calls it when a token does not fit. It explains an error and never decides whether there is one.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from omnigraph.language.query.tokens import END, INVALID, Lexeme
from omnigraph.language.source import did_you_mean, one_of

_LITERALS = frozenset({"STRING", "INT", "FLOAT", "BOOLEAN", "DATE", "DATETIME", "LSQB"})
_CALLS = frozenset({"NEAREST", "BM25", "RRF", "TEXT_FUNCTION", "FUZZY", "AGGREGATE", "NOW"})
_COMPARISONS = frozenset({"COMPARISON", "LESS", "GREATER"})
# Read in order: a wide group absorbs its members, so that a list of thirty tokens becomes three phrases.
_GROUPS: tuple[tuple[frozenset[str], str], ...] = (
    (_LITERALS | _CALLS | {"VAR", "IDENT", "NOT"}, "a clause"),
    (_LITERALS | _CALLS | {"VAR", "IDENT"}, "an expression"),
    (_LITERALS | (_CALLS - {"NEAREST"}) | {"VAR", "IDENT"}, "an expression"),
    (_LITERALS | {"VAR", "NOW"}, "a literal, a parameter or now()"),
    (_LITERALS, "a literal"),
    (_COMPARISONS | {"CONTAINS", "STARTS_WITH"}, "a comparison"),
    (_COMPARISONS, "a comparison"),
)
_PHRASES = {
    "VAR": "a variable",
    "IDENT": "a name",
    "TYPE_NAME": "a type name",
    "STRING": "a string",
    "INT": "a whole number",
    "FLOAT": "a number",
    "META": "'@description' or '@instruction'",
    "DIRECTION": "'asc' or 'desc'",
    "LBRACE": "'{'",
    "RBRACE": "'}'",
    "LPAR": "'('",
    "RPAR": "')'",
    "LSQB": "'['",
    "RSQB": "']'",
    "COMMA": "','",
    "COLON": "':'",
    "DOT": "'.'",
    "QUESTION": "'?'",
    "LESS": "'<'",
    "GREATER": "'>'",
    "COMPARISON": "a comparison",
    END: "the end of the file",
}
_LONGEST_TOKEN = 40
# Nothing but these may be completed by a near word: offering `count` for every odd name would be noise.
_STRUCTURAL = frozenset(
    ["QUERY", "MATCH", "RETURN", "ORDER", "LIMIT", "INSERT", "UPDATE", "DELETE", "SET", "WHERE", "NOT", "ASC", "DESC"]
)


NO_NULL = "there is no null literal; pass it as a nullable parameter"
DISTINCT = "there is no distinct; beside an aggregate there is one row for each value: return { $x.p, count($x) as n }"
_ANATOMY = "query name() { match { $p: Person } return { $p.name } }"
_SHELL = "a variable is missing here; a shell replaces $p within double quotes, so put the query in single quotes"
_PATTERNS = 'use contains or starts_with, which compare exactly, or search($x.p, "words")'
_ONE_COMPARISON = "a mutation predicate is one comparison: =, !=, <, <=, > or >="
_COMPARISON_SIGNS = frozenset({"=", "!=", "<", "<=", ">", ">="})
# Functions that other languages write in capitals, by the token that each one is.
_FUNCTIONS = {**dict.fromkeys(("count", "sum", "avg", "min", "max"), "AGGREGATE"), "now": "NOW"}
# What other languages write where a comparison may be, and what is written here. `{}` is the left side.
_COMPARED = {
    "in": 'the list comes first: ["a", "b"] contains {}',
    "like": _PATTERNS,
    "ilike": _PATTERNS,
    "matches": _PATTERNS,
    "between": "write two clauses: {0} >= 1  {0} <= 9",
}
_OFFSET = "there is no offset; order by a key and go on after the last one: $x.key > $last"
_STATEMENTS = frozenset({"match", "return", "insert", "update", "delete"})
_OTHER_LANGUAGES = frozenset({"select", "with", "create", "merge", "optional"})


def null_tests(named: str) -> str:
    """What to write for a property that is null, or is not. A row filter, which names it without a variable, has no
    `not`."""
    if not named.startswith("$"):
        return f"a row filter can't ask for null; `{named} = {named}` is true where there is a value"
    return f"`not {{ {named} = {named} }}` keeps rows without a value, `{named} = {named}` those with one"


def _null(previous: Sequence[str], after: Sequence[str]) -> str:
    """The remedy for a null, by its position."""
    if not previous or previous[-1] not in _COMPARISON_SIGNS:
        compared = after[1:4] if after[2:3] == ["."] else after[1:2]
        return null_tests(_property(compared)) if after and after[0] in _COMPARISON_SIGNS else NO_NULL
    if previous[-3:-2] == ["where"]:
        reading = f"read them first: not {{ $p.{previous[-2]} = $p.{previous[-2]} }}"
        return f"a comparison with null is never true; choose the rows by another property ({reading})"
    return null_tests(_property(previous[:-1]))


def _property(previous: Sequence[str]) -> str:
    """The property at the end of these words. That of a row filter is its name alone."""
    if previous[-2:-1] == ["."]:
        return "".join(previous[-3:])
    return previous[-1] if previous and not previous[-1].startswith("$") else "$x.p"


def describe_unexpected(
    token: Lexeme, before: Sequence[Lexeme], after: Sequence[Lexeme], accepted: Set[str]
) -> tuple[str, str | None]:
    """The message and the suggestion for a token that can't stand between `before` and `after`."""
    if token.type == INVALID and token.startswith(('"', "/*")):
        return ("string is not closed" if token[0] == '"' else "comment is not closed"), None
    # Enough of a token to recognise it; the caret points at the rest.
    shown = token if len(token) <= _LONGEST_TOKEN else f"{token[:_LONGEST_TOKEN]}…"
    description = "the end of the file" if token.type == END and not token else f"'{shown}'"
    remedy = _foreign_syntax_hint(token, list(map(str, before)), list(map(str, after)), accepted)
    rest = set(accepted)
    phrases: list[str] = []
    for group, phrase in _GROUPS:
        if group <= rest:
            rest -= group
            phrases.append(phrase)
    phrases += sorted(_PHRASES.get(name, f"'{name.lower()}'") for name in rest)
    return f"expected {one_of(phrases)}, found {description}", remedy or _way_out(token, before, after, accepted)


def _foreign_syntax_hint(
    token: Lexeme, previous: Sequence[str], after: Sequence[str], accepted: Set[str]
) -> str | None:
    """The remedy for what other languages write, and for what a shell leaves of a query."""
    word = token.casefold()
    last = previous[-1] if previous else ""
    if word == "match" and after[:1] == ["("]:
        return f"this reads like Cypher; a query is written {_ANATOMY}"
    if "QUERY" in accepted:
        if word in _STATEMENTS:
            return "a statement belongs in a query: query name() { … }"
        return f"a query is written {_ANATOMY}" if word in _OTHER_LANGUAGES else None
    following = [seen.casefold() for seen in after]
    if "COMPARISON" in accepted and (
        word in _COMPARED or word == "is" or (word == "not" and following and following[0] in _COMPARED)
    ):
        return _comparison_hint([word, *following], previous, accepted)
    if token != word and _FUNCTIONS.get(word) in accepted and following[:1] == ["("]:
        example = {"count": "count($x)", "now": "now()"}.get(word, f"{word}($x.p)")
        return f"functions are written in small letters: {example}"
    if token in (":", ".") and "VAR" in accepted and not last.startswith("$"):
        return _SHELL
    if token == "(" and ("match" in (last.casefold(), *previous[-2:-1]) or last == "{"):
        return f"nodes are written $p: Person, traversals $a knows $b: {_ANATOMY}"
    if last == "(" and token in ("*", ")") and "AGGREGATE" in accepted:
        return "count rows by a variable: count($x)" if token == "*" else "name what is aggregated: count($x)"
    if word in ("offset", "skip") and "RBRACE" in accepted:
        return _OFFSET
    if word == "distinct" or last.casefold() == "distinct":
        return DISTINCT
    if (last, token) in (("=", "="), ("<", ">")):
        return "equality is written =" if token == "=" else "inequality is written !="
    if word == "by" and last == "order":
        return "sort keys are in braces: order { $x.p desc }"
    if "where" in (word, last.casefold()) and "WHERE" not in accepted:
        return "conditions are clauses of match: match { $p: Person  $p.age > 3 }"
    if token == "-" and last.startswith("$"):
        return "a traversal is written $a knows $b"
    if token == "{" and "LPAR" in accepted and previous[-2:-1] == ["query"]:
        return f"parameters are in parentheses, which may be empty: query {last}() {{"
    if token != word and word.upper() in accepted & _STRUCTURAL:
        return f"keywords are written in small letters: {word}"
    return None


def _comparison_hint(words: Sequence[str], previous: Sequence[str], accepted: Set[str]) -> str:
    """The remedy for a comparison that there is not, which begins with these words."""
    if "CONTAINS" not in accepted:
        return _ONE_COMPARISON
    named = _property(previous)
    if words[0] == "is":
        return null_tests(named)
    if words[0] != "not":
        return _positive(words, named)
    if not named.startswith("$"):
        return "a row filter has no not" + (f': {named} != "a" and {named} != "b"' if words[1] == "in" else "")
    return f"{_positive(words[1:], named)}; for the opposite, put it in not {{ }}"


def _positive(words: Sequence[str], named: str) -> str:
    if words[0] == "in" and len(words) > 1 and words[1].startswith("$"):
        listed = "$x.tags" if named.startswith("$") else "tags"
        ways = f'["a", "b"] contains {named}, {listed} contains {named}'
        return f"the list comes first, and is a literal or a list property: {ways}"
    return _COMPARED[words[0]].format(named)


def _way_out(token: Lexeme, before: Sequence[Lexeme], after: Sequence[Lexeme], accepted: Set[str]) -> str | None:
    previous = [str(seen) for seen in before]
    last = previous[-1] if previous else ""
    if token == "-":
        return "there are no negative literals; pass the number as a parameter"
    if token.casefold() == "null" and "STRING" in accepted:
        return _null(previous, after)
    if token == "#":
        return "comments begin with //"
    if token == "'":
        return 'strings are written in double quotes: "text"'
    if token == "}" and last == "{":
        return "braces can't be empty; leave them out"
    if token == "." and len(previous) >= 3 and previous[-2] in ("contains", "starts_with"):
        return (
            f"'{' '.join(previous[-3:])}' reads as a traversal over an edge named '{previous[-2]}'; "
            "put a property or a literal on the left of a string predicate"
        )
    # Where a parenthesis may follow, the words were understood: that is a row filter, which joins by them.
    if (token in ("and", "or") or last in ("and", "or")) and "LPAR" not in accepted:
        return "clauses follow each other without a word between them and must all hold"
    if token in ("asc", "desc"):
        return "nearest(...) always ranks the closest first and takes no direction"
    if token == "order" and "limit" in previous:
        return "order comes before limit"
    if token in ("contains", "starts_with") and "COMPARISON" in accepted:
        return _ONE_COMPARISON
    if "TYPE_NAME" in accepted and token.type == "IDENT":
        return "type names begin with a capital letter"
    if token.type == "IDENT":
        return did_you_mean(token, (name.lower() for name in accepted & _STRUCTURAL))
    return None
