"""The narrowest type of a column: facts are collected batch by batch, and the type is decided when all rows were read.

A value is of a type when a load takes it for that type and nothing of it is lost; where a load itself cuts or rounds, a
note says so. Only facts are kept, never values, so a column costs the same memory however many rows it has.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from omnigraph.api.load import plain_array
from omnigraph.api.values import is_pandas_null, numpy_value, plain_number
from omnigraph.engine.rows.columns import BLOB_CELL, whole_array
from omnigraph.engine.rows.kernels.coerce import MANAGED_PREFIX
from omnigraph.engine.rows.kernels.source_values import array_text, coerce_arrow
from omnigraph.errors import BadRequestError
from omnigraph.language.types import INTEGER_RANGES, PropertyType, Scalar

MOST_ENUM_VALUES: Final = 12
ROWS_PER_ENUM_VALUE: Final = 5
"""An enum has at most so many values, and the column so many rows for each of them."""
SHORTEST_VECTOR: Final = 8
"""Lists of fractions are vectors where a file declares their length, or all have one length of at least this."""

_ENUM_VALUE: Final = re.compile(r"[A-Za-z0-9_-]{1,40}", re.ASCII)
_TYPED_INTEGERS: Final = {
    **dict.fromkeys((pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16()), Scalar.I32),
    pa.uint32(): Scalar.U32,
    pa.int64(): Scalar.I64,
    pa.uint64(): Scalar.U64,
}
_BY_WIDTH: Final = (Scalar.I32, Scalar.I64, Scalar.U64)
_EXACT_IN_F64: Final = 2**53
_LARGEST_F32: Final = float(np.finfo(np.float32).max)
_PER_MILLI: Final = {"us": 1_000, "ns": 1_000_000}

_MOMENT: Final = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?( ?([Zz]|[+-][0-9]{2}(:?[0-9]{2})?))?)?$"
)
_FORMS: Final = {
    "bool": r"^(?i:true|false)$",
    "integer": r"^(0|-?[1-9][0-9]*)$",
    "number": r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$",
    "date": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
    "moment": _MOMENT,
    "list": r"^\s*\[",
    "blob": f"^{MANAGED_PREFIX}[A-Za-z0-9+/]*={{0,2}}$",
}
"""What texts may be. Numbers with leading zeros or a plus are none: they would lose them."""
_ONLY_IN_TEXT_FILES: Final = frozenset({"bool", "integer", "number", "list"})
"""Where a file has types, a text of digits was meant as a text."""
_LONG_DIGITS: Final = r"^-?[0-9]{16,}$"
_FINER_THAN_MILLIS: Final = r"\.[0-9]{3}[0-9]*[1-9]"


@dataclass(frozen=True, slots=True)
class Decision:
    """The type of a column without its nullability, or why no type takes it; and notes about either."""

    type: PropertyType | None
    notes: tuple[str, ...] = ()
    problem: str | None = None


@dataclass
class ColumnFacts:
    """What is known of a column so far. `spells` says that its texts may spell other values, as those of CSV do."""

    spells: bool = False
    values: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    """How many values there are of each kind."""
    distinct: set[str] | None = field(default_factory=set)
    """The different texts, as long as they may be those of an enum."""
    longest_text: int = 0
    items: ColumnFacts | None = None
    """Facts about the items of lists."""
    lengths: tuple[int, int] | None = None
    _forms: set[str] = field(default_factory=lambda: set(_FORMS))
    _bounds: tuple[int, int] | None = None
    _typed: set[Scalar] = field(default_factory=set)
    _fixed_size: bool = False
    _notes: dict[str, None] = field(default_factory=dict)
    _largest: float = 0.0

    def add(self, column: pa.Array | pa.ChunkedArray) -> None:
        """The values of a column of Arrow."""
        array = plain_array(whole_array(column)).drop_null()
        self.values += len(array)
        if len(array):
            self._add_present(array)

    def add_values(self, values: Iterable[Any]) -> None:
        """Values as JSON or a Python program gives them; None is null."""
        parts: dict[type, list[Any]] = {}
        for value in map(plain, values):
            if value is not None:
                kind = next((kind for kind in _KINDS if isinstance(value, kind)), type(value))
                parts.setdefault(kind, []).append(value)
        for kind, part in parts.items():
            self.values += len(part)
            self._add_part(kind, part)

    def _add_part(self, kind: type, part: list[Any]) -> None:
        if kind is list:
            self._add_lists(part)
        elif kind is int:
            self.kinds["integer"] += len(part)
            self._widen(min(part), max(part))
        elif kind is datetime:
            self.kinds["moment"] += len(part)
            if any(value.microsecond % 1000 for value in part):
                self._note_finer()
        elif kind in (bool, float, str, date, bytes):
            types = {bool: pa.bool_(), float: pa.float64(), str: pa.string(), date: pa.date32(), bytes: pa.binary()}
            try:
                self._add_present(pa.array(part, types[kind]))
            except UnicodeEncodeError:
                self.kinds["texts with half of a surrogate pair"] += len(part)
        else:
            self.kinds["objects" if kind is dict else f"values of the type '{kind.__name__}'"] += len(part)

    def _add_present(self, array: pa.Array) -> None:
        type_ = array.type
        if pt.is_string(type_) or pt.is_large_string(type_):
            self._add_texts(array.cast(pa.string()))
        elif pt.is_integer(type_):
            self.kinds["integer"] += len(array)
            self._typed.add(_TYPED_INTEGERS[type_])
            bounds = pc.min_max(array).as_py()
            self._widen(bounds["min"], bounds["max"])
        elif pt.is_floating(type_):
            self._add_floats(array)
        elif pt.is_decimal(type_):
            self.add_decimals(array)
        elif pt.is_timestamp(type_):
            self.kinds["moment"] += len(array)
            per_milli = _PER_MILLI.get(type_.unit)
            if per_milli and np.any(array.cast(pa.int64()).to_numpy(zero_copy_only=False) % per_milli):
                self._note_finer()
        elif pt.is_list(type_) or pt.is_large_list(type_) or pt.is_fixed_size_list(type_):
            self._fixed_size |= pt.is_fixed_size_list(type_)
            lengths = pc.min_max(pc.list_value_length(array)).as_py()
            self._add_items(len(array), lengths["min"], lengths["max"]).add_with_nulls(array.flatten())
        else:
            self.kinds[_kind_of(type_)] += len(array)

    def add_with_nulls(self, items: pa.Array) -> None:
        if items.null_count:
            self.kinds["nulls"] += items.null_count
        self.add(items)

    def add_decimals(self, array: pa.Array) -> None:
        numbers = [plain_number(value) for value in array.to_pylist()]
        if any(isinstance(number, float) for number in numbers):
            self._notes["decimals, which are stored as the nearest 64-bit floats"] = None
            self._add_floats(pa.array(list(map(float, numbers)), pa.float64()))
        else:
            self.kinds["integer"] += len(numbers)
            self._widen(int(min(numbers)), int(max(numbers)))

    def _add_floats(self, array: pa.Array) -> None:
        self.kinds["float"] += len(array)
        self._typed.add(Scalar.F64 if pt.is_float64(array.type) else Scalar.F32)
        numbers = array.cast(pa.float64()).to_numpy(zero_copy_only=False)
        self._largest = max(self._largest, float(np.abs(numbers).max()))
        if not np.isfinite(numbers).all():
            self._largest = float("inf")
            self._notes["NaN or infinite numbers, which no load takes"] = None

    def _widen(self, low: int, high: int) -> None:
        if self._bounds is not None:
            low, high = min(low, self._bounds[0]), max(high, self._bounds[1])
        self._bounds = low, high

    def _note_finer(self) -> None:
        self._notes["times finer than a millisecond, which are cut"] = None

    # Lists

    def _add_items(self, count: int, shortest: int, longest: int) -> ColumnFacts:
        self.kinds["list"] += count
        low, high = (shortest, longest) if self.lengths is None else self.lengths
        self.lengths = min(low, shortest), max(high, longest)
        if self.items is None:
            self.items = ColumnFacts()
        return self.items

    def _add_lists(self, lists: Sequence[Sequence[Any]]) -> None:
        items = self._add_items(len(lists), min(map(len, lists)), max(map(len, lists)))
        every = [item for each in lists for item in each]
        if nulls := sum(plain(item) is None for item in every):
            items.kinds["nulls"] += nulls
        items.add_values(every)

    # Texts

    def _add_texts(self, texts: pa.Array) -> None:
        self.kinds["text"] += len(texts)
        self.longest_text = max(self.longest_text, pc.max(pc.utf8_length(texts)).as_py())
        if not self.spells:
            self._forms -= _ONLY_IN_TEXT_FILES
        self._forms = {form for form in self._forms if _have_form(form, texts)}
        if "list" in self._forms and not self._spell_lists(texts):
            self._forms.discard("list")
        if "integer" in self._forms:
            numbers = list(map(int, texts.to_pylist())) if pc.max(pc.utf8_length(texts)).as_py() > 18 else None
            low, high = _bounds_of(texts) if numbers is None else (min(numbers), max(numbers))
            self._widen(low, high)
        if "moment" in self._forms and pc.any(pc.match_substring_regex(texts, _FINER_THAN_MILLIS)).as_py():
            self._note_finer()
        if self.distinct is not None:
            self.distinct.update(pc.unique(texts).to_pylist())
            if len(self.distinct) > MOST_ENUM_VALUES:
                self.distinct = None

    def _spell_lists(self, texts: pa.Array) -> bool:
        values = [array_text(text) for text in texts.to_pylist()]
        lists = [value for value in values if isinstance(value, list)]
        if len(lists) < len(values):
            return False
        counted = self.kinds["list"]
        self._add_lists(lists)
        self.kinds["list"] = counted  # they are counted as texts
        if not self.kinds["list"]:
            del self.kinds["list"]
        return True

    # The decision

    def decide(self, *, enums: bool = True) -> Decision:
        """The narrowest type of all values. Without `enums`, few texts are texts."""
        kinds = set(self.kinds)
        notes = tuple(self._notes)
        if not kinds:
            return Decision(PropertyType(Scalar.STRING), ("no row has a value, so the type is a guess",))
        if kinds == {"text"}:
            return self._decide_texts(enums)
        if kinds == {"integer"}:
            scalar = self._integer()
            if scalar is not None:
                return Decision(PropertyType(scalar), notes)
        if kinds <= {"integer", "float"}:
            return self._decide_floats(notes)
        if kinds <= {"date", "moment"}:
            return Decision(PropertyType(Scalar.DATE if kinds == {"date"} else Scalar.DATETIME), notes)
        if kinds <= {"bool"} or kinds <= {"blob"}:
            return Decision(PropertyType(Scalar.BOOL if kinds == {"bool"} else Scalar.BLOB), notes)
        if kinds == {"list"}:
            return self._decide_lists()
        named = ", ".join(f"{_PLURALS.get(kind, kind)} ({count:,})" for kind, count in sorted(self.kinds.items()))
        why = "no type takes both" if len(kinds) > 1 else "no property holds that"
        return Decision(None, problem=f"holds {named}: {why}")

    def _decide_floats(self, notes: tuple[str, ...]) -> Decision:
        if self._bounds is not None and max(map(abs, self._bounds)) > _EXACT_IN_F64:
            notes = (*notes, "integers beyond 2^53 among fractions, which are rounded")
        is_narrow = self._typed == {Scalar.F32} and not self.kinds["integer"]
        return Decision(PropertyType(Scalar.F32 if is_narrow else Scalar.F64), notes)

    def _integer(self) -> Scalar | None:
        """The declared width where a file has types, else the narrowest one."""
        low, high = self._bounds or (0, 0)
        declared = self._typed if len(self._typed) == 1 else set()
        widths = (*declared, *_BY_WIDTH)
        return next((each for each in widths if _holds(each, low) and _holds(each, high)), None)

    def _decide_texts(self, enums: bool) -> Decision:
        forms, notes = self._forms, tuple(self._notes)
        if "bool" in forms:
            return Decision(PropertyType(Scalar.BOOL))
        if "integer" in forms and (scalar := self._integer()) is not None:
            return Decision(PropertyType(scalar))
        if "number" in forms and "integer" not in forms:
            return Decision(PropertyType(Scalar.F64))
        if "moment" in forms:
            return Decision(PropertyType(Scalar.DATE if "date" in forms else Scalar.DATETIME), notes)
        if "list" in forms:
            decided = self._decide_lists()
            if decided.type is not None:
                return decided
        if "blob" in forms:
            return Decision(PropertyType(Scalar.BLOB))
        if enums and self.distinct is not None and self._is_enum(self.distinct):
            return Decision(PropertyType.enum(tuple(self.distinct)))
        return Decision(PropertyType(Scalar.STRING))

    def _is_enum(self, texts: set[str]) -> bool:
        enough = self.values >= ROWS_PER_ENUM_VALUE * len(texts)
        return len(texts) > 1 and enough and all(map(_ENUM_VALUE.fullmatch, texts))

    def _decide_lists(self) -> Decision:
        items, (shortest, longest) = self.items or ColumnFacts(), self.lengths or (0, 0)
        if items.kinds["nulls"]:
            return Decision(None, problem="holds lists with nulls in them, which no load takes")
        del items.kinds["nulls"]
        is_vector = shortest == longest > 0 and (self._fixed_size or longest >= SHORTEST_VECTOR)
        is_of_fractions = items.kinds["float"] > 0 and set(items.kinds) <= {"integer", "float"}
        if is_vector and is_of_fractions and items.fits_f32:
            return Decision(PropertyType.vector(longest), ("a vector of 32-bit floats",))
        decided = items.decide(enums=False)
        if decided.type is None or decided.type.list or decided.type.is_vector or decided.type.is_blob:
            return Decision(None, problem=f"holds lists of {_items_of(items)}, which no property can")
        notes = decided.notes if items.kinds else ("every list is empty, so the type of the items is a guess",)
        return Decision(PropertyType(decided.type.scalar, list=True), notes)

    @property
    def fits_f32(self) -> bool:
        """Whether no number is beyond a 32-bit float."""
        return max(self._largest, *map(abs, self._bounds or (0, 0))) <= _LARGEST_F32


_PLURALS: Final = {
    "bool": "truth values",
    "integer": "integers",
    "float": "fractions",
    "text": "texts",
    "date": "days",
    "moment": "times",
    "list": "lists",
    "blob": "bytes",
}


def _holds(scalar: Scalar, number: int) -> bool:
    low, high = INTEGER_RANGES[scalar]
    return low <= number <= high


def _items_of(items: ColumnFacts) -> str:
    return " and ".join(sorted(_PLURALS.get(kind, kind) for kind in items.kinds)) or "nothing"


def _kind_of(type_: pa.DataType) -> str:
    if pt.is_boolean(type_):
        return "bool"
    if pt.is_date(type_):
        return "date"
    if type_ == BLOB_CELL or pt.is_binary(type_) or pt.is_large_binary(type_) or pt.is_fixed_size_binary(type_):
        return "blob"
    if pt.is_struct(type_) or pt.is_map(type_):
        return "objects"
    return f"values of the type '{type_}'"


_KINDS: Final = (bool, int, float, str, datetime, date, bytes, list, dict)
"""The kinds of values; the first that fits counts."""


def plain(value: Any) -> Any:
    """A value of a Python program as JSON would have it, but for days, times and bytes."""
    if isinstance(value, Enum):
        return plain(value.value)
    if is_pandas_null(value):
        return None
    if isinstance(value, Decimal):
        return plain_number(value)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, np.generic | np.ndarray):
        try:
            return numpy_value(value)
        except BadRequestError:
            return value
    return value


def _have_form(form: str, texts: pa.Array) -> bool:
    """Whether all texts have a form, and are valid where a form alone does not tell."""
    if not pc.all(pc.match_substring_regex(texts, _FORMS[form]), min_count=0).as_py():
        return False
    if form == "number":
        # A long run of digits among fractions is more likely a number of something than a quantity.
        if pc.any(pc.match_substring_regex(texts, _LONG_DIGITS)).as_py():
            return False
        return not coerce_arrow(PropertyType(Scalar.F64), texts).unfit
    if form == "blob":
        return not coerce_arrow(PropertyType(Scalar.BLOB), texts).unfit
    if form in ("date", "moment"):
        return not coerce_arrow(PropertyType(Scalar.DATE if form == "date" else Scalar.DATETIME), texts).unfit
    return True


def _bounds_of(texts: pa.Array) -> tuple[int, int]:
    bounds = pc.min_max(texts.cast(pa.int64())).as_py()
    return bounds["min"], bounds["max"]
