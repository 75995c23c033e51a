"""Reads a tree of tree-sitter: positions in characters, children without comments."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from tree_sitter import Node

from omnigraph.language.source import Name, TextSpan, unquote


class SourceTree:
    """The tree of one text."""

    def __init__(self, text: str, root: Node) -> None:
        self.text = text
        self.root = root
        self._characters = None if text.isascii() else _characters(text)

    def offset(self, byte: int) -> int:
        return byte if self._characters is None else self._characters[byte]

    def span(self, first: Node, last: Node | None = None) -> TextSpan:
        """From the beginning of a node to the end of the same or another one."""
        return TextSpan(self.offset(first.start_byte), self.offset((last or first).end_byte))

    def read(self, node: Node) -> str:
        span = self.span(node)
        return self.text[span.start : span.end]

    def name(self, node: Node) -> Name:
        """A name that may be written as a string."""
        written = self.read(node)
        return Name(unquote(written) if written.startswith('"') else written, at=self.span(node))


def _characters(text: str) -> list[int]:
    """The character at which each byte is, and the end."""
    numbers = [number for number, character in enumerate(text) for _ in character.encode()]
    return [*numbers, len(text)]


def children(node: Node) -> list[Node]:
    """The named children but for comments."""
    return [child for child in node.named_children if not child.is_extra]


def last_child(node: Node) -> Node:
    return [child for child in node.children if not child.is_extra][-1]


def field(node: Node, name: str) -> Node:
    child = node.child_by_field_name(name)
    assert child is not None, f"{node.type} has no {name}"
    return child


def has_word(node: Node, word: str) -> bool:
    """Whether a keyword or sign is directly in a node."""
    return any(child.type == word and not child.is_named for child in node.children)


def outline(value: Any) -> Any:
    """A syntax tree with its positions, which take no part in the equality of the trees themselves."""
    if isinstance(value, TextSpan):
        return value.start, value.end
    if isinstance(value, tuple):
        return tuple(map(outline, value))
    if isinstance(value, Struct):
        return type(value).__name__, *(outline(getattr(value, name)) for name in value.__struct_fields__)
    return value
