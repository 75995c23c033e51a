"""The rows of one type while a schema is inferred: facts about its columns, and sets of what may be a key or an end.

Rows come in the blocks of the load's own readers. Of the values that tell rows apart, hashes of 64 bits are kept, for
at most `MOST_HASHES` rows of a few columns: a key is proposed when no two hashes are equal, and an edge when all of its
ends are among the hashes of a key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from omnigraph.api.load import plain_array
from omnigraph.engine.infer.column_types import ColumnFacts, plain
from omnigraph.engine.rows.columns import whole_array
from omnigraph.engine.rows.kernels.decoder import ENDS
from omnigraph.errors import BadRequestError
from omnigraph.storage.tables.memory.key_hashes import Hashes, among, every_hash, key_hashes

MOST_HASHES: Final = 4_000_000
"""How many rows of a column are compared, which is more than one load takes by default: 32 MB."""
_MOST_CANDIDATES: Final = 8
_NO_TEXTS: Final = pa.nulls(0, pa.string())
IDENTITY: Final = "@id"
"""The ids that records have beside their properties, and that files of types with a property `id` have as a column."""
KEY_NAMES: Final = ("id", "key", "uuid", "guid", "isbn", "sku", "slug", "code", "email", "username", "number", "name")
_KEY_ENDINGS: Final = ("_id", "_key", "_code", "_no", "_number", "id")


def key_rank(column: str) -> int | None:
    """How much a name is like that of a key: the less, the more. None for a name that is not."""
    name = column.lower()
    if name in KEY_NAMES:
        return KEY_NAMES.index(name)
    return len(KEY_NAMES) if name.endswith(_KEY_ENDINGS) else None


@dataclass
class ValueSet:
    """The different values of a column, as hashes. `example` is the first one."""

    hashes: Hashes = field(default_factory=lambda: np.empty(0, np.uint64))
    rows: int = 0
    is_unique: bool = True
    example: str = ""

    def add(self, texts: pa.Array) -> None:
        if not len(texts) or self.rows >= MOST_HASHES:
            return
        self.example = self.example or texts[0].as_py()
        self.rows += len(texts)
        before = len(self.hashes)
        self.hashes = every_hash([self.hashes, key_hashes([texts])])
        self.is_unique = self.is_unique and len(self.hashes) == before + len(texts)

    def holds(self, other: ValueSet) -> bool:
        """Whether every value of another set is in this one."""
        return other.rows > 0 and bool(among(other.hashes, self.hashes).all())


@dataclass
class TableFacts:
    """What is known of the rows of one type."""

    name: str
    spells: bool = False
    files: list[str] = field(default_factory=list)
    rows: int = 0
    columns: dict[str, ColumnFacts] = field(default_factory=dict)
    candidates: dict[str, ValueSet] = field(default_factory=dict)
    """Columns that are unique and never null so far."""
    ends: dict[str, ValueSet] = field(default_factory=dict)
    typed_ends: dict[tuple[str, str], ValueSet] = field(default_factory=dict)
    """The ends whose types records give, by side and type."""
    ids: ValueSet = field(default_factory=ValueSet)
    """The ids that records of a graph have beside their properties."""
    same_as_id: set[str] | None = None
    """The columns that have been the same as those ids so far; None before the first of them."""
    is_complete: bool = True
    """Whether all rows were read."""
    is_record: bool = False
    is_edge: bool = False
    """Whether records say that they are edges."""

    def add_batch(self, batch: pa.RecordBatch) -> None:
        columns = {name: batch.column(number) for number, name in enumerate(batch.schema.names)}
        if len(columns) < len(batch.schema.names):
            twice = next(name for name in columns if batch.schema.names.count(name) > 1)
            raise BadRequestError(f"{self.files[-1] if self.files else self.name}: the column '{twice}' is there twice")
        for name, column in columns.items():
            self._column(name).add(column)
        self._end_rows(batch.num_rows, columns)

    def add_records(self, records: Sequence[Mapping[str, Any]], ids: Sequence[object] = ()) -> None:
        """Rows as dictionaries, and the ids that stand beside them, None for a row without one."""
        values: dict[str, list[Any]] = {}
        for record in records:
            for name, value in record.items():
                values.setdefault(name, []).append(value)
        for name, column in values.items():
            self._column(name).add_values(column)
        if any(each is not None for each in ids):
            self._add_ids(list(ids), values)
        self._end_rows(len(records), values)

    def add_ends(self, records: Sequence[Mapping[str, Any]]) -> None:
        """The ends of records of edges."""
        for name in ENDS[0]:
            by_type: dict[str | None, list[Any]] = {}
            for record in records:
                by_type.setdefault(record.get(f"{name}_type"), []).append(record[name])
            for type_name, values in by_type.items():
                if type_name is None:
                    self._add_end(name, values)
                elif (texts := _texts(values)) is not None:
                    self.typed_ends.setdefault((name, type_name), ValueSet()).add(texts.drop_null())

    def _column(self, name: str) -> ColumnFacts:
        if name not in self.columns:
            self.columns[name] = ColumnFacts(self.spells)
            if not self.rows:
                self.candidates[name] = ValueSet()
        return self.columns[name]

    def _end_rows(self, rows: int, columns: Mapping[str, Any]) -> None:
        self.rows += rows
        for name in list(self.candidates):
            texts = _texts(columns.get(name))
            if texts is None or len(texts) < rows or texts.null_count:
                del self.candidates[name]
                continue
            self.candidates[name].add(texts)
            if not self.candidates[name].is_unique:
                del self.candidates[name]
        ranked = sorted(self.candidates, key=lambda name: (key_rank(name) is None, key_rank(name) or 0))
        for name in ranked[_MOST_CANDIDATES:]:
            del self.candidates[name]
        for name in (name for pair in ENDS for name in pair if name in columns and not self.is_record):
            self._add_end(name, columns[name])

    def _add_end(self, name: str, column: Any) -> None:
        texts = _texts(column)
        if texts is not None:
            self.ends.setdefault(name, ValueSet()).add(texts.drop_null())

    def _add_ids(self, ids: list[object], columns: Mapping[str, list[Any]]) -> None:
        texts = _texts(ids)
        if texts is None:
            return
        names = columns.keys() if self.same_as_id is None else self.same_as_id
        self.same_as_id = {name for name in names if texts.equals(_texts(columns.get(name)) or _NO_TEXTS)}
        self.ids.add(texts.drop_null())

    @property
    def end_columns(self) -> tuple[str, str] | None:
        """The columns that hold the ends of an edge, if the rows are edges."""
        return next((pair for pair in ENDS if set(pair) <= self.columns.keys()), None)


def _texts(column: Any) -> pa.Array | None:
    """Values as the texts of ids; None for values that no key has."""
    if isinstance(column, list):
        values = list(map(plain, column))
        kinds = set(map(type, values)) - {type(None)}
        if not kinds <= {str, int}:
            return None
        try:
            return pa.array([value if value is None else str(value) for value in values], pa.string())
        except UnicodeEncodeError:
            return None
    if column is None:
        return None
    array = plain_array(whole_array(column))
    is_plain = pt.is_string(array.type) or pt.is_large_string(array.type) or pt.is_integer(array.type)
    return array.cast(pa.string()) if is_plain else None
