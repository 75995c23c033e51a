"""Turns what the grammar did not expect into a sentence that says what was wrong and what may stand there.

Only the parser calls it. It reads the text around the error to name the construct; it never parses.
"""

from __future__ import annotations

import re

from lark import UnexpectedInput
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from omnigraph.language.schema.annotations import MISPLACED_CARD
from omnigraph.language.source import TextSpan, did_you_mean, one_of
from omnigraph.language.types import SCALAR_NAMES

# In the order in which they are named; a terminal that is missing here is never the interesting one.
_EXPECTED: dict[str, str] = {
    "COLUMN": "property name in constraint",
    "TYPE_NAME": "a type name (it starts with an uppercase letter)",
    "PROPERTY_NAME": "a property",
    "ENUM_VALUE": "an enum value (letters, digits, '_' or '-')",
    "ARGUMENT_NAME": "an argument name",
    "VALUE_NAME": "a value",
    "STRING": "a string",
    "NUMBER": "a number",
    "INT": "a whole number",
    "BOUND": "a number",
    "DEFAULT_WORD": "a value",
    "IMPLEMENTS": "'implements'",
    "COLUMNS_RULE": "a body rule",
    "ANNOTATION": "an annotation",
    "LBRACE": "'{'",
    "RBRACE": "'}'",
    "LPAR": "'('",
    "RPAR": "')'",
    "RSQB": "']'",
    "COLON": "':'",
    "COMMA": "','",
    "EQUAL": "'='",
    "_ARROW": "'->'",
    "_DOTS": "'..'",
    "$END": "the end of the declaration",
}

_OPEN_RULE = re.compile(r"@(key|unique|index|range|check|card)\s*\([^()]*\Z")
_CARDINALITY = re.compile(r"@card\s*\(\s*[0-9]+\s*\.\.\s*[0-9]*\s*\)")
_RULE_FORMS = {
    "range": "@range takes a property and bounds, as in @range(pages, 1..5000)",
    "check": '@check takes a property and a regular expression string, as in @check(isbn, "^[0-9-]+$")',
    "card": "@card takes bounds, as in @card(0..5) or @card(1..)",
}
# A string is masked by quotes.
_WORD = re.compile(r'@?\w+|"+')


def explain_missing_head(text: str) -> tuple[str, str | None]:
    """Text before the first declaration, and a near keyword."""
    if text.startswith("*"):
        return "the comment is never closed", None
    word = _WORD.match(text)
    suggestion = did_you_mean(word.group(), ("interface", "node", "edge")) if word else None
    return "expected a declaration: 'interface', 'node' or 'edge'", suggestion


def explain(error: UnexpectedInput, structure: str, start: int, end: int) -> tuple[str, TextSpan, str | None]:
    """The message, the position and the suggestion for a declaration that lies in `structure[start:end]`."""
    offset, expected = _stop_position(error, end)
    piece = structure[start:end].rstrip()
    if offset >= (last := start + len(piece)):
        message = "the '{' of this declaration is never closed"
        if piece.count("{") <= piece.count("}"):
            message = f"the declaration ends too early, expected {_list_expected(expected)}"
        return message, TextSpan(last - 1, last), None
    word = _WORD.match(structure, offset, end)
    token = word.group() if word else structure[offset]
    if token.startswith("*"):
        return "the comment is never closed", TextSpan(offset, offset + 2), None
    if isinstance(error, UnexpectedCharacters) and token.startswith('"'):
        return "the string is never closed", TextSpan(offset, offset + 1), None
    at = TextSpan(offset, offset + len(token))
    rule = _OPEN_RULE.search(structure, start, offset)
    if rule is not None and (misused := _misused_rule(rule, structure, start, end, expected)) is not None:
        return misused, TextSpan(rule.start(), max(at.end, rule.end())), None
    shown = "a string" if token.startswith('"') else f"'{token}'"
    return f"unexpected {shown}, expected {_list_expected(expected)}", at, _suggest(token, expected)


def _misused_rule(rule: re.Match[str], structure: str, start: int, end: int, expected: set[str]) -> str | None:
    """The mistake in the rule around the error, when that says more than the unexpected word."""
    name = rule.group(1)
    in_head = "{" not in structure[start : rule.start()]
    if name == "card":
        is_complete = _CARDINALITY.match(structure, rule.start(), end) is not None
        return MISPLACED_CARD if is_complete or not in_head else _RULE_FORMS["card"]
    if in_head:
        return f"@{name} with arguments is a body rule: it belongs between the braces"
    if name not in _RULE_FORMS:
        return None
    missing = f"expected {_EXPECTED['COLUMN']}: " if "COLUMN" in expected else ""
    return missing + _RULE_FORMS[name]


def _stop_position(error: UnexpectedInput, end: int) -> tuple[int, set[str]]:
    """Where the parser stopped, and the terminals it would have taken."""
    if isinstance(error, UnexpectedCharacters):
        stopped = error.pos_in_stream
        return (end if stopped is None else stopped), set(error.allowed or ())
    if isinstance(error, UnexpectedToken):
        offset: int | None = error.token.start_pos
        return (end if offset is None or error.token.type == "$END" else offset), set(error.expected)
    return end, set()


def _list_expected(expected: set[str]) -> str:
    if "DEFAULT_WORD" in expected:
        expected = expected - {"STRING"}
    names = list(dict.fromkeys(text for terminal, text in _EXPECTED.items() if terminal in expected))
    if "ENUM" in expected:
        names[:1] = ["a type such as String, I64?, [Date], enum(a, b) or Vector(4)"]
    return one_of(names or [_EXPECTED["$END"]])


def _suggest(token: str, expected: set[str]) -> str | None:
    if "TYPE_NAME" in expected and "ENUM" in expected:
        return did_you_mean(token, [*SCALAR_NAMES, "Vector", "enum"])
    if "TYPE_NAME" in expected and token[0].islower():
        return f"did you mean '{token[0].upper()}{token[1:]}'?"
    if "IMPLEMENTS" in expected:
        return did_you_mean(token, ["implements"])
    return None
