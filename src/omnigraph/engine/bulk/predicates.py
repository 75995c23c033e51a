"""Predicates over stored columns, as text for a scan: only such that a scan answers exactly as their author means."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from omnigraph.storage.tables.predicates import identifier, quoted


def is_null(column: str) -> str:
    return f"{identifier(column)} IS NULL"


def is_not_null(column: str) -> str:
    return f"{identifier(column)} IS NOT NULL"


def is_not_blank(column: str) -> str:
    """A text with something in it."""
    return f"regexp_like({identifier(column)}, '[^\\s]')"


def compares(column: str, operator: str, value: Any) -> str | None:
    """A comparison with a literal; None where the value has none that means the same in the scan."""
    text = _literal(value)
    return None if text is None else f"{identifier(column)} {operator} {text}"


def is_one_of(column: str, values: Sequence[Any]) -> str | None:
    listed = [text for value in values if (text := _literal(value)) is not None]
    if not listed or len(listed) < len(values):
        return None
    return f"{identifier(column)} IN ({', '.join(listed)})"


def starts_with(column: str, prefix: Any) -> str | None:
    text = _literal(prefix)
    return None if text is None else f"starts_with({identifier(column)}, {text})"


def all_of(predicates: Sequence[str]) -> str:
    """At least one predicate, each of which has to hold."""
    return " AND ".join(f"({text})" for text in predicates)


def _literal(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, int) or (isinstance(value, Decimal) and value == value.to_integral_value()):
        return str(int(value))
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return f"date '{value.isoformat()}'"
    return None
