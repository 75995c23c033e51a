"""Ids of nodes and edges: the canonical text of a key, an explicit id, or a new ULID; and the ends of edges.

`key_ids` is the vectorised form of `canonical_text` and `composite_id` and must agree with them to the last
character, because a stored id never changes. The end of an edge is the id of a node or its key in the key's own type.
Loads, mutations and Spark executors all resolve ends here.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from numpy.typing import NDArray

from omnigraph.api.load import plain_array
from omnigraph.engine.rows.columns import EPOCH_TYPES, whole_array
from omnigraph.engine.rows.end_ids import ids_of_type, interface_ends, plain_ids, stored_id, stored_ids
from omnigraph.engine.rows.kernels.coerce import Column, UnfitError, all_match, stored_scalar
from omnigraph.engine.rows.kernels.source_values import coerce_arrow, plain_value, python_values, reread
from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import TAG_SIGN, UNTYPED, Catalog, EdgeEnd, EdgeType, NodeType, TableType
from omnigraph.language.source import did_you_mean
from omnigraph.language.types import FLOATS, INTEGERS, PropertyType, Scalar
from omnigraph.language.values import canonical_text, composite_id, shape_of
from omnigraph.language.violations import Sentence

Mint: TypeAlias = Callable[[int], pa.Array]

_CROCKFORD: Final = np.frombuffer(b"0123456789ABCDEFGHJKMNPQRSTVWXYZ", np.uint8)
_DIGIT_PAIRS: Final = np.stack([np.repeat(_CROCKFORD, 32), np.tile(_CROCKFORD, 32)], 1).view(np.uint16)[:, 0]
_TIME_DIGITS: Final = 10
_RANDOM_DIGITS: Final = 16
_ULID_LENGTH: Final = _TIME_DIGITS + _RANDOM_DIGITS
_RANDOM_BYTES: Final = 10
_COUNTER_BITS: Final = 20  # the last four digits
_LOW_DIGITS: Final = 8
_LOW_BITS: Final = 5 * _LOW_DIGITS
_PAIR_BITS: Final = 10
_PAIR_MASK: Final = (1 << _PAIR_BITS) - 1

_NEEDS_ESCAPING: Final = r'["\\\x00-\x1f]'
# Below these, whole numbers lie apart in the column, so their shortest digits are all their digits.
_WHOLE_NUMBERS: Final = {Scalar.F32: 2.0**24, Scalar.F64: 2.0**53}


def new_ulids(count: int) -> pa.Array:
    """Fresh ULIDs as a string column: one millisecond, counted from eighty random bits. So they ascend, which makes
    them cheap to sort into an index, and two calls meet as rarely as two random numbers do."""
    start = int.from_bytes(os.urandom(_RANDOM_BYTES)) >> 1  # half of all numbers are left to count on
    high, low = divmod(start, 1 << _LOW_BITS)
    numbers = low + np.arange(count, dtype=np.int64)
    texts = np.empty((count, _ULID_LENGTH), np.uint8)
    texts[:, :_TIME_DIGITS] = _CROCKFORD[_digits(time.time_ns() // 1_000_000, _TIME_DIGITS)]
    texts[:, _TIME_DIGITS:-_LOW_DIGITS] = _CROCKFORD[_digits(high, _RANDOM_DIGITS - _LOW_DIGITS)]
    if count and numbers[-1] >> _LOW_BITS:
        texts[numbers >> _LOW_BITS > 0, _TIME_DIGITS:-_LOW_DIGITS] = _CROCKFORD[
            _digits(high + 1, _RANDOM_DIGITS - _LOW_DIGITS)
        ]
    pairs = texts.view(np.uint16)
    for pair in range(_LOW_DIGITS // 2):
        pairs[:, -1 - pair] = _DIGIT_PAIRS[numbers >> _PAIR_BITS * pair & _PAIR_MASK]
    return _as_texts(texts)


def seeded_ulids(seed: str, millis: int) -> Mint:
    """ULIDs that depend on the seed alone, so that work which runs twice makes the same ones. A million ids share sixty
    bits of a digest and are counted, as ULIDs of one millisecond may be; then comes the next digest."""
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
        pairs[:, -2] = _DIGIT_PAIRS[numbers >> _PAIR_BITS & _PAIR_MASK]
        pairs[:, -1] = _DIGIT_PAIRS[numbers & _PAIR_MASK]
        return _as_texts(texts)

    return mint


def _digits(number: int, count: int) -> list[int]:
    return [number >> shift & 31 for shift in range(5 * (count - 1), -1, -5)]


def _as_texts(texts: NDArray[np.uint8]) -> pa.Array:
    offsets = np.arange(len(texts) + 1, dtype=np.int32) * _ULID_LENGTH
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(offsets), pa.py_buffer(texts))


def key_ids(type_: TableType, rows: pa.Table | pa.RecordBatch) -> pa.Array:
    """The id of every row of a keyed type, from its typed key columns. A null member gives a null id."""
    texts = [canonical_texts(scalar, whole_array(rows.column(column))) for column, scalar in type_.key_columns]
    if ends := interface_ends(type_):
        columns = [column for column, _ in type_.key_columns]
        members: list[list[object]] = [text.to_pylist() for text in texts]
        for end in ends:
            at = columns.index(end.column)
            members[at] = _end_members(end, texts[at])
        rows = zip(*members, strict=True)
        return pa.array([None if None in parts else composite_id(parts) for parts in rows], pa.string())
    if len(texts) == 1:
        return texts[0]
    if any(pc.any(pc.match_substring_regex(text, _NEEDS_ESCAPING)).as_py() for text in texts):
        tuples = zip(*(text.to_pylist() for text in texts), strict=True)
        return pa.array([None if None in parts else composite_id(parts) for parts in tuples], pa.string())
    joined = pc.binary_join_element_wise(*texts, '","', null_handling="emit_null")
    return pc.binary_join_element_wise('["', joined, '"]', "", null_handling="emit_null")


def _end_members(end: EdgeEnd, column: pa.Array) -> list[object]:
    """The ends of edges as members of their ids: the id of the node, behind the name of its type where the id is
    tagged. So an id never changes when a type is renamed, or an end widened."""
    assert end.interface is not None
    members: list[object] = plain_ids(end, column).to_pylist()
    for member in end.interface.members:
        tagged = pc.and_(pc.is_valid(ids_of_type(end, member.name, column)), pc.starts_with(column, TAG_SIGN))
        for row in np.flatnonzero(tagged.to_numpy(zero_copy_only=False)).tolist():
            members[row] = [member.key_name, members[row]]
    return members


def is_same_key(type_: TableType, one: str, other: str) -> bool:
    """Whether two ids of edges say the same but for the types of their ends: the other graph may name them otherwise,
    and a record says by itself which they are."""
    if not interface_ends(type_):
        return one == other
    return _without_types(one) == _without_types(other)


def _without_types(entity_id: str) -> object:
    try:
        members = json.loads(entity_id)
    except ValueError:
        return entity_id
    if not isinstance(members, list):
        return entity_id
    return [member[-1] if isinstance(member, list) and member else member for member in members]


def canonical_texts(scalar: Scalar, column: pa.Array) -> pa.Array:
    """`canonical_text` of a whole column of stored values; null stays null."""
    if scalar is Scalar.STRING:
        return column
    if scalar is Scalar.BOOL or scalar in INTEGERS:
        return column.cast(pa.string())
    if scalar in EPOCH_TYPES:
        return column.cast(EPOCH_TYPES[scalar]).cast(pa.string())
    if scalar in FLOATS:
        numbers = column.cast(pa.float64())
        whole = pc.and_(pc.equal(pc.trunc(numbers), numbers), pc.less(pc.abs(numbers), _WHOLE_NUMBERS[scalar]))
        if pc.all(whole, min_count=0).as_py():
            # Also turns a negative zero into "0".
            return column.cast(pa.int64()).cast(pa.string())
    return pa.array([None if v is None else canonical_text(scalar, v) for v in column.to_pylist()], pa.string())


def is_spelling_of(scalar: Scalar, canonical: str, spelled: str) -> bool:
    """Whether a text names the same key value under another spelling: `00042` for 42, a date for its epoch day."""
    if spelled == canonical or scalar is Scalar.BOOL:
        return spelled == canonical
    try:
        return canonical_text(scalar, stored_scalar(scalar, reread(scalar, spelled))) == canonical
    except UnfitError:
        return False


_TEXT: Final = PropertyType(Scalar.STRING)
# A key of these types makes ids of digits. Digits are an id, also where they could spell a date.
_DIGITS: Final = re.compile(r"-?(?:0|[1-9][0-9]*)", re.ASCII)
_ALL_DIGITS: Final = r"^-?(0|[1-9][0-9]*)$"


class EnvelopeError(Exception):
    """A value that is not a graph record, or that names no node at the end of an edge. The caller adds the position."""

    def __init__(self, sentence: Sentence, **values: object) -> None:
        super().__init__(sentence.text(**values))
        self.sentence = sentence
        self.values = values


class EndpointIds:
    """The ids of nodes of one type, at the end of an edge that is called `name` (`from` or `to`). They are given in the
    form that the column of the end holds, `end` where that is an interface."""

    def __init__(self, name: str, node: NodeType, end: EdgeEnd | None = None) -> None:
        self.name = name
        self._end = end
        self._node = node
        self._members = {member: node.properties[member].type.scalar for member in node.key}
        scalars = list(self._members.values())
        self._scalar = scalars[0] if len(scalars) == 1 else None
        self.takes_any_text = self._scalar in (None, Scalar.STRING)
        """Whether a text is always the id itself, and never another spelling of the key."""

    @property
    def is_interface(self) -> bool:
        """Whether ids are tagged, and a type may be given beside them."""
        return self._end is not None

    def of_type(self, name: object) -> EndpointIds:
        """The same end where the type of the node is given; raises EnvelopeError if it can't have that type."""
        if name == self._node.name:
            return self
        raise other_end_type(self.name, (self._node.name,), name)

    def type_alone(self) -> EnvelopeError:
        """The error about a type that is given without the id of a node."""
        return EnvelopeError(Sentence.END_TYPE_ALONE, name=f"{self.name}_type", end=self.name)

    def id_of(self, value: object) -> str:
        """The id that a value of JSON or of a query names; raises EnvelopeError."""
        return self._store(self._plain_id(value))

    def _store(self, node_id: str) -> str:
        return node_id if self._end is None else stored_id(self._end, self._node.name, node_id)

    def _plain_id(self, value: object) -> str:
        if isinstance(value, str):
            return value if self.takes_any_text else self._id_of_text(value)
        is_composite = isinstance(value, Mapping) and len(self._members) > 1
        if value is None or (self.takes_any_text and not is_composite):
            raise EnvelopeError(Sentence.NO_NODE_ID, name=self.name, shape=shape_of(value))
        try:
            return self._id_of_key(value)
        except UnfitError as unfit:
            raise self.refusal(str(unfit)) from None

    def id_of_python(self, value: object) -> str:
        """As `id_of`, for a value of a Python program. An integer also names the node with that text as its key."""
        if isinstance(value, Mapping):
            return self.id_of(value)
        plain = plain_value(_TEXT if self._scalar is None else PropertyType(self._scalar), value)
        return self._store(str(plain)) if type(plain) is int and self.takes_any_text else self.id_of(plain)

    def column(self, array: pa.Array) -> Column:
        """As `id_of_python`, for a column of Arrow; rows that name no node are null and have a reason."""
        column = self._plain_column(array)
        if self._end is None:
            return column
        return Column(stored_ids(self._end, self._node.name, column.array), column.unfit)

    def _plain_column(self, array: pa.Array) -> Column:
        array = plain_array(whole_array(array))
        if pt.is_null(array.type) or pt.is_string(array.type) or pt.is_large_string(array.type):
            texts = coerce_arrow(_TEXT, array).array
            if self.takes_any_text or all_match(texts, _ALL_DIGITS):
                return Column(texts)
            ids = [text if text is None else self._id_of_text(text) for text in texts.to_pylist()]
            return Column(pa.array(ids, pa.string()))
        if pt.is_integer(array.type) and (self._scalar in INTEGERS | EPOCH_TYPES.keys() or self.takes_any_text):
            return Column(canonical_texts(Scalar.I64, array))
        if self._scalar is not None and not self.takes_any_text:
            typed = coerce_arrow(PropertyType(self._scalar), array)
            return Column(canonical_texts(self._scalar, typed.array), typed.unfit)
        if pt.is_struct(array.type) and len(self._members) > 1:
            return self._composite_column(array)
        raise BadRequestError(f"column '{self.name}' must hold ids as strings, not {array.type}")

    def refusal(self, unfit: str) -> EnvelopeError:
        """The error about a key that does not fit, such as an unfit row of `column`."""
        return EnvelopeError(Sentence.NO_NODE_KEY, name=self.name, node=self._node.name, reason=unfit)

    def _id_of_key(self, value: object) -> str:
        if self._scalar is not None:
            return canonical_text(self._scalar, stored_scalar(self._scalar, value))
        if not isinstance(value, Mapping) or value.keys() != self._members.keys():
            members = f"one with {', '.join(map(str, value)) or 'nothing'}" if isinstance(value, Mapping) else None
            got = members or shape_of(value)
            raise UnfitError(f"expects an object with {', '.join(self._members)}, got {got}")
        parts = []
        for member, scalar in self._members.items():
            part = plain_value(PropertyType(scalar), value[member])
            try:
                parts.append(canonical_text(scalar, stored_scalar(scalar, part)))
            except UnfitError as unfit:
                raise UnfitError(f"{member}: {unfit}") from None
        return composite_id(parts)

    def _id_of_text(self, text: str) -> str:
        """A text is the id of the node, unless it spells the key in another way: 2020-01-01, or 007."""
        if _DIGITS.fullmatch(text) is not None:
            return text
        try:
            return self._id_of_key(reread(self._scalar or Scalar.STRING, text))
        except UnfitError:
            return text

    def _composite_column(self, array: pa.Array) -> Column:
        ids: list[str | None] = [None] * len(array)
        unfit: dict[int, str] = {}
        for row, value in enumerate(python_values(array)):
            try:
                ids[row] = None if value is None else self._id_of_key(value)
            except UnfitError as error:
                unfit[row] = str(error)
        return Column(pa.array(ids, pa.string()), unfit)


class InterfaceIds(EndpointIds):
    """The ids of nodes at an end that is an interface. Where no type is given, the end is an id of any of its types,
    and a write finds out which of them have it."""

    def __init__(self, end: EdgeEnd, catalog: Catalog) -> None:
        super().__init__(end.name, catalog.nodes[end.types[0]], end)
        self._by_type = {name: EndpointIds(end.name, catalog.nodes[name], end) for name in end.types}
        self.takes_any_text = True

    def of_type(self, name: object) -> EndpointIds:
        typed = self._by_type.get(name) if isinstance(name, str) else None
        if typed is None:
            raise other_end_type(self.name, tuple(self._by_type), name)
        return typed

    def _store(self, node_id: str) -> str:
        return f"{UNTYPED}{node_id}"

    def _plain_id(self, value: object) -> str:
        if isinstance(value, str):
            return value
        raise EnvelopeError(Sentence.NO_NODE_ID, name=self.name, shape=shape_of(value))

    def id_of_python(self, value: object) -> str:
        plain = plain_value(_TEXT, value)
        return self._store(str(plain)) if type(plain) is int else self.id_of(plain)

    def column(self, array: pa.Array) -> Column:
        array = plain_array(whole_array(array))
        if pt.is_integer(array.type):
            texts = canonical_texts(Scalar.I64, array)
        elif pt.is_null(array.type) or pt.is_string(array.type) or pt.is_large_string(array.type):
            texts = coerce_arrow(_TEXT, array).array
        else:
            raise BadRequestError(f"column '{self.name}' must hold ids as strings, not {array.type}")
        return Column(pc.binary_join_element_wise(UNTYPED, texts, ""))


def other_end_type(name: str, types: Sequence[str], value: object) -> EnvelopeError:
    """The error about a type that an end of an edge can't have."""
    shown = f"'{value}'" if isinstance(value, str) else shape_of(value)
    hint = did_you_mean(value, types) if isinstance(value, str) else None
    values = {"name": f"{name}_type", "types": ", ".join(types), "value": shown}
    return EnvelopeError(Sentence.OTHER_END_TYPE, **values, suggestion=f"; {hint}" if hint else "")


EdgeEnds: TypeAlias = tuple[EndpointIds, EndpointIds]


def edge_ends(catalog: Catalog, edge: EdgeType) -> EdgeEnds:
    """How the two ends of an edge name their nodes."""
    source, target = (
        EndpointIds(end.name, catalog.nodes[end.types[0]]) if end.interface is None else InterfaceIds(end, catalog)
        for end in edge.ends
    )
    return source, target
