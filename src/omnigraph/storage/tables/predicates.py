"""The text of Lance's filter language: column names and values, quoted so that they mean what they say."""

from __future__ import annotations

from collections.abc import Iterable


def quoted(text: str) -> str:
    """A string literal."""
    return "'" + text.replace("'", "''") + "'"


def literal(value: str | int) -> str:
    return quoted(value) if isinstance(value, str) else str(value)


def identifier(column: str) -> str:
    """A column name: any name, its case kept, even one that is a keyword there."""
    return f"`{column}`"


def one_of(column: str, values: Iterable[str | int]) -> str:
    """The rows whose column holds one of these values."""
    return f"{identifier(column)} IN ({', '.join(map(literal, values))})"
