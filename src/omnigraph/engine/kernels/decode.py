"""NDJSON graph batches to typed rows per type: the front door of every load."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import pyarrow as pa

from omnigraph.engine.kernels.ids import new_ulids
from omnigraph.engine.kernels.rows import DecodedInput, Grammar, Limits
from omnigraph.language.catalog import Catalog

Mint: TypeAlias = Callable[[int], pa.Array]
NO_LIMITS = Limits()


def decode(
    data: bytes | Iterable[bytes],
    catalog: Catalog,
    grammar: Grammar = Grammar.STRICT,
    *,
    limits: Limits = NO_LIMITS,
    mint: Mint = new_ulids,
) -> DecodedInput:
    """Typed rows of the whole input, or a BadRequestError for its first failure in stage order.

    Value constraints (`@range`, `@check`, enum) are part of it. Raises ResourceLimitError beyond `limits`.
    `mint` makes ids for entities that have none.
    """
    raise NotImplementedError


def decode_collecting(
    data: bytes | Iterable[bytes],
    catalog: Catalog,
    grammar: Grammar = Grammar.STRICT,
    *,
    limits: Limits = NO_LIMITS,
    first_line: int = 1,
    mint: Mint = new_ulids,
) -> DecodedInput:
    """As `decode`, but bad rows are left out and listed in `rejected`; `first_line` numbers a part of a larger file."""
    raise NotImplementedError
