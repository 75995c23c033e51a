"""Filters that find texts by an index: which column to ask, and how.

Queries and mutations build their filters for text properties here, because what can be looked up depends on what is
declared (`catalog.index_kinds_of`). A filter means the same with and without an index.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from omnigraph.language.catalog import IndexKind, NodeType, Property, TableType
from omnigraph.storage.tables.predicates import identifier, one_of, quoted

# N-grams are three letters or digits of ASCII in a row; a text without any can't be narrowed by them.
_NGRAM: Final = re.compile(r"[A-Za-z0-9]{3}", re.ASCII)
# Each text costs a lookup; from here on one scan of the column costs less.
_MOST_LOOKUPS: Final = 16


def lookup_column(owner: TableType, prop: Property) -> str:
    """The column in which the whole text of a property is compared: a text key is the id, which has a BTREE."""
    if _has_ngrams(owner, prop) and isinstance(owner, NodeType) and owner.key == (prop.name,):
        return "id"
    return prop.column


def equals_any(owner: TableType, prop: Property, texts: Sequence[str]) -> str:
    """The filter for rows whose property is one of `texts`."""
    column = lookup_column(owner, prop)
    # One list, however many texts: alternatives would nest, and the store's parser with them.
    equal = one_of(column, texts) if len(texts) > 1 else f"{identifier(column)} = {quoted(texts[0])}"
    if column == prop.column and _has_ngrams(owner, prop) and _can_be_narrowed(texts):
        return f"({equal} AND {_any(f'contains({identifier(column)}, {quoted(text)})' for text in texts)})"
    return equal


def _any(tests: Iterable[str]) -> str:
    listed = list(tests)
    return listed[0] if len(listed) == 1 else f"({' OR '.join(listed)})"


def _has_ngrams(owner: TableType, prop: Property) -> bool:
    return IndexKind.NGRAM in owner.index_kinds(prop.name)


def _can_be_narrowed(texts: Sequence[str]) -> bool:
    return len(texts) <= _MOST_LOOKUPS and all(_NGRAM.search(text) for text in texts)
