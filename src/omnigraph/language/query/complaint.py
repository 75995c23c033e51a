"""Words for syntax errors: what was found, what could have stood there, and the way out where one is known.

Called by the parser when a token does not fit. It judges nothing; it only explains.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from omnigraph.language.query.tokens import END, INVALID, Lexeme
from omnigraph.language.source import did_you_mean

SYNTAX = "parse error"

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
    [
        "QUERY",
        "MATCH",
        "RETURN",
        "ORDER",
        "LIMIT",
        "INSERT",
        "UPDATE",
        "DELETE",
        "SET",
        "WHERE",
        "NOT",
        "ASC",
        "DESC",
    ]
)


def describe_unexpected(token: Lexeme, before: Sequence[Lexeme], accepted: Set[str]) -> tuple[str, str | None]:
    """The message and the suggestion for a token that can't stand after `before`."""
    if token.type == INVALID and token.startswith(('"', "/*")):
        return ("string is not closed" if token[0] == '"' else "comment is not closed"), None
    found = "the end of the file" if token.type == END and not token else f"'{_shortened(token)}'"
    return f"expected {_phrase(accepted)}, found {found}", _way_out(token, before, accepted)


def _shortened(token: str) -> str:
    """Enough of a token to recognise it; the caret points at the rest."""
    return token if len(token) <= _LONGEST_TOKEN else f"{token[:_LONGEST_TOKEN]}…"


def _phrase(accepted: Set[str]) -> str:
    rest = set(accepted)
    phrases: list[str] = []
    for group, phrase in _GROUPS:
        if group <= rest:
            rest -= group
            phrases.append(phrase)
    phrases += sorted(_PHRASES.get(name, f"'{name.lower()}'") for name in rest)
    return phrases[0] if len(phrases) == 1 else f"{', '.join(phrases[:-1])} or {phrases[-1]}"


def _way_out(token: Lexeme, before: Sequence[Lexeme], accepted: Set[str]) -> str | None:
    previous = [str(seen) for seen in before]
    last = previous[-1] if previous else ""
    if token == "-":
        return "there are no negative literals; pass the number as a parameter"
    if token == "null" and "STRING" in accepted:
        return "there is no null literal; pass it as a nullable parameter"
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
        return "order stands before limit"
    if token in ("contains", "starts_with") and "COMPARISON" in accepted:
        return "a mutation predicate is one comparison: =, !=, <, <=, > or >="
    if "TYPE_NAME" in accepted and token.type == "IDENT":
        return "type names begin with a capital letter"
    if token.type == "IDENT":
        return did_you_mean(token, (name.lower() for name in accepted & _STRUCTURAL))
    return None
