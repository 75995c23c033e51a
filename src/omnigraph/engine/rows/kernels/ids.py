"""Where ids come from: the canonical text of a key, an explicit id, or a fresh ULID.

`key_ids` is the vectorised form of `canonical_text` and `composite_id` and must agree with them to the last
character: a stored id never changes.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.engine.rows.kernels.scalars import UnfitError, stored_scalar
from omnigraph.language.catalog import NodeType
from omnigraph.language.types import FLOATS, INTEGERS, Scalar
from omnigraph.language.values import canonical_text, composite_id

Mint: TypeAlias = Callable[[int], pa.Array]

_CROCKFORD: Final = np.frombuffer(b"0123456789ABCDEFGHJKMNPQRSTVWXYZ", np.uint8)
_DIGIT_PAIRS: Final = np.stack([np.repeat(_CROCKFORD, 32), np.tile(_CROCKFORD, 32)], 1).view(np.uint16)[:, 0]
_TIME_DIGITS: Final = 10
_RANDOM_DIGITS: Final = 16
_ULID_LENGTH: Final = _TIME_DIGITS + _RANDOM_DIGITS
_COUNTER_DIGITS: Final = 4
_COUNTER_BITS: Final = 5 * _COUNTER_DIGITS

_NEEDS_ESCAPING: Final = r'["\\\x00-\x1f]'
# Below these, whole numbers lie apart in the column, so their shortest digits are all their digits.
_WHOLE_NUMBERS: Final = {Scalar.F32: 2.0**24, Scalar.F64: 2.0**53}

_DECIMAL: Final = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)


def new_ulids(count: int) -> pa.Array:
    """Fresh ULIDs as a string column: one millisecond, eighty random bits each."""
    digits = np.empty((count, _ULID_LENGTH), np.uint8)
    digits[:, :_TIME_DIGITS] = _digits(time.time_ns() // 1_000_000, _TIME_DIGITS)
    noise = np.frombuffer(os.urandom(count * _RANDOM_DIGITS), np.uint8).reshape(count, _RANDOM_DIGITS)
    digits[:, _TIME_DIGITS:] = noise & 31
    return _as_texts(_CROCKFORD[digits])


def seeded_ulids(seed: str, millis: int) -> Mint:
    """ULIDs that depend on the seed alone, so that work which runs twice makes the same ones.

    A million ids share sixty bits of a digest and are counted, as ULIDs of one millisecond may be; then comes the next.
    """
    counted = 0

    def mint(count: int) -> pa.Array:
        nonlocal counted
        first, counted = counted, counted + count
        numbers = np.arange(first, counted)
        texts = np.empty((count, _ULID_LENGTH), np.uint8)
        for series in range(first >> _COUNTER_BITS, (counted - 1 >> _COUNTER_BITS) + 1):
            digest = hashlib.blake2b(f"{seed}\n{series}".encode(), digest_size=8).digest()
            shared = _digits(int.from_bytes(digest) << _COUNTER_BITS, _RANDOM_DIGITS)
            rows = slice(max(0, (series << _COUNTER_BITS) - first), (series + 1 << _COUNTER_BITS) - first)
            texts[rows] = _CROCKFORD[_digits(millis, _TIME_DIGITS) + shared]
        pairs = texts.view(np.uint16)
        pairs[:, -2] = _DIGIT_PAIRS[numbers >> 10 & 1023]
        pairs[:, -1] = _DIGIT_PAIRS[numbers & 1023]
        return _as_texts(texts)

    return mint


def _digits(number: int, count: int) -> list[int]:
    return [number >> shift & 31 for shift in range(5 * (count - 1), -1, -5)]


def _as_texts(texts: NDArray[np.uint8]) -> pa.Array:
    offsets = np.arange(len(texts) + 1, dtype=np.int32) * _ULID_LENGTH
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(offsets), pa.py_buffer(texts))


def key_ids(type_: NodeType, rows: pa.Table | pa.RecordBatch) -> pa.Array:
    """The id of every row of a keyed node type, from its typed key columns. A null member gives a null id."""
    members = [type_.properties[name] for name in type_.key]
    texts = [canonical_texts(member.type.scalar, _whole(rows.column(member.column))) for member in members]
    if len(texts) == 1:
        return texts[0]
    if any(_needs_escaping(text) for text in texts):
        tuples = zip(*(text.to_pylist() for text in texts), strict=True)
        return pa.array([None if None in parts else composite_id(parts) for parts in tuples], pa.string())
    joined = pc.binary_join_element_wise(*texts, '","', null_handling="emit_null")
    return pc.binary_join_element_wise('["', joined, '"]', "", null_handling="emit_null")


def canonical_texts(scalar: Scalar, column: pa.Array) -> pa.Array:
    """`canonical_text` of a whole column of stored values; null stays null."""
    if scalar is Scalar.STRING:
        return column
    if scalar is Scalar.BOOL or scalar in INTEGERS:
        return column.cast(pa.string())
    if scalar is Scalar.DATE:
        return column.cast(pa.int32()).cast(pa.string())
    if scalar is Scalar.DATETIME:
        return column.cast(pa.int64()).cast(pa.string())
    if scalar in FLOATS and _is_whole(scalar, column):
        # Also turns a negative zero into "0".
        return column.cast(pa.int64()).cast(pa.string())
    return pa.array([None if v is None else canonical_text(scalar, v) for v in column.to_pylist()], pa.string())


def is_spelling_of(scalar: Scalar, canonical: str, spelled: str) -> bool:
    """Whether a text names the same key value under another spelling: `00042` for 42, a date for its epoch day."""
    if spelled == canonical:
        return True
    value: object = spelled
    if scalar in INTEGERS:
        value = int(spelled) if _DECIMAL.fullmatch(spelled) else None
    elif scalar in FLOATS:
        value = float(spelled) if _NUMBER.fullmatch(spelled) else None
    elif scalar not in (Scalar.DATE, Scalar.DATETIME):
        return False
    try:
        return value is not None and canonical_text(scalar, stored_scalar(scalar, value)) == canonical
    except UnfitError:
        return False


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _needs_escaping(text: pa.Array) -> bool:
    return bool(pc.any(pc.match_substring_regex(text, _NEEDS_ESCAPING), min_count=0).as_py())


def _is_whole(scalar: Scalar, column: pa.Array) -> bool:
    numbers = column.cast(pa.float64())
    whole = pc.and_(pc.equal(pc.trunc(numbers), numbers), pc.less(pc.abs(numbers), _WHOLE_NUMBERS[scalar]))
    return bool(pc.all(whole, min_count=0).as_py())
