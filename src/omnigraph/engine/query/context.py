"""What values and operators are evaluated in: parameters, limits, bound values, and where stored columns come from.

`read` makes a `ReadContext` per query and every operator takes it: it finds tables and remembers what was read. Rows
that are not stored yet have a `RowsContext`, constants need no more than a `ValueContext`. Nothing is executed here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.engine.query.bindings import Mask
from omnigraph.engine.query.limits import Cancellation, MemoryBudget, TraversalWork
from omnigraph.engine.query.properties import Properties
from omnigraph.engine.query.result import Profiler
from omnigraph.engine.query.search.embedder import Embedder
from omnigraph.engine.query.value_columns import BoundValues, column_type
from omnigraph.engine.snapshot import Snapshot
from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import Catalog, EdgeType, NodeType
from omnigraph.language.query import ir
from omnigraph.language.query.params import BoundValue
from omnigraph.language.query.row_filter import EVERY_ROW, UNRESTRICTED, Visibility
from omnigraph.language.query.value_types import ValueType
from omnigraph.language.types import PropertyType, Scalar
from omnigraph.language.values import parse_date, parse_datetime
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.memory.row_space import RowSpace
from omnigraph.storage.tables.rows import RowIds

MODE_VARIABLE = "OMNIGRAPH_TRAVERSAL_MODE"


class TraversalMode(StrEnum):
    """`INDEXED` looks edges up by their endpoints, `CSR` walks the adjacency arrays; the answers are the same."""

    AUTO = "auto"
    INDEXED = "indexed"
    CSR = "csr"

    @classmethod
    def from_environment(cls) -> TraversalMode:
        text = os.environ.get(MODE_VARIABLE, "").strip().lower()
        try:
            return cls(text) if text else cls.AUTO
        except ValueError:
            raise BadRequestError(f"{MODE_VARIABLE} is '{text}'; set it to indexed, csr or auto") from None


ConstantValue = ir.ParameterValue | ir.Constant | ir.Now
Plain = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class NodeScores:
    """The scores of a ranking, by row id of the ranked node."""

    space: RowSpace
    values: NDArray[np.float64]


@dataclass(slots=True, kw_only=True)
class ValueContext:
    """All that a value needs that reads nothing stored."""

    parameters: Mapping[str, BoundValue]
    budget: MemoryBudget
    cancellation: Cancellation
    bound: BoundValues

    @classmethod
    def of(cls, parameters: Mapping[str, BoundValue]) -> ValueContext:
        """For values outside of a running query, with the limits that a query has by default."""
        cancellation = Cancellation()
        budget = MemoryBudget(cancellation=cancellation)
        return ValueContext(parameters=parameters, budget=budget, cancellation=cancellation, bound=BoundValues(budget))

    def constant(self, value: ConstantValue) -> Plain | list[Plain]:
        """One plain value, dates as days and instants as milliseconds."""
        return plain_constant(value, self.parameters)


@dataclass(slots=True, kw_only=True)
class RowsContext(ValueContext):
    """Rows of one type outside of a snapshot: those of a load, or what a mutation is about to write. A row of the
    bindings is an index of `rows`, whose columns have the names that the table gives them."""

    rows: pa.Table

    @classmethod
    def over(cls, rows: pa.Table, parameters: Mapping[str, BoundValue]) -> RowsContext:
        shared = ValueContext.of(parameters)
        return cls(
            parameters=parameters,
            budget=shared.budget,
            cancellation=shared.cancellation,
            bound=shared.bound,
            rows=rows.combine_chunks(),
        )


@dataclass(slots=True, kw_only=True)
class ReadContext(ValueContext):
    snapshot: Snapshot
    catalog: Catalog
    mode: TraversalMode
    profiler: Profiler
    properties: Properties
    work: TraversalWork = field(default_factory=TraversalWork)
    embedder: Embedder | None = None
    visibility: Visibility = UNRESTRICTED
    visible_rows: Callable[[NodeType | EdgeType], RowIds | None] = lambda _: None
    """The visible rows of a type, ascending; None for all of them."""
    named: tuple[ir.PropertyValue, ...] = ()
    """The properties that the plan names, for operators that read rows before they bind them."""
    share: float = 1.0
    """The part of its whole input that a plan works on now. Costs are compared for the whole."""
    scores: dict[ir.Ranking, NodeScores] = field(default_factory=dict)
    query_vectors: dict[ir.NearestRank, NDArray[np.float32]] = field(default_factory=dict)
    """What a ranking compares with: a text is embedded once, however often the ranking is asked for more."""
    visibility_checks: dict[int, tuple[RowSpace, Mask]] = field(default_factory=dict)
    """By the id of a restricted type, the rows tested so far and which are visible; kept by `edge_visibility`."""
    _marks: Mask = field(default_factory=lambda: np.zeros(0, np.bool_))
    _tables: dict[int, Table] = field(default_factory=dict)

    def table(self, owner: NodeType | EdgeType) -> Table:
        """The table of a type at the snapshot, held open for the whole query, whose limits its reads keep."""
        if (table := self._tables.get(owner.id)) is None:
            table = self._tables[owner.id] = self.snapshot.table_of(owner).with_watch(self.budget.step)
        return table

    def is_restricted(self, type_: NodeType | EdgeType) -> bool:
        """Whether some rows of a type may be invisible to the reader."""
        return self.visibility.of(type_).rows != EVERY_ROW

    def marks(self, size: int) -> Mask:
        """Room for so many marks, all unset. The caller unsets what it sets: fresh pages cost more than that."""
        if len(self._marks) < size:
            self._marks = np.zeros(size, np.bool_)
        return self._marks[:size]

    def has_column(self, value: ir.PropertyValue) -> bool:
        """Whether the snapshot stores the property: one declared later reads as null."""
        if value.prop.column in self.table(value.owner).columns:
            return True
        self.profiler.note(f"{value.owner.name}.{value.prop.name} does not exist at this snapshot and reads as null")
        return False


def plain_constant(value: ConstantValue, parameters: Mapping[str, BoundValue]) -> Plain | list[Plain]:
    """The value of a literal, a parameter or the moment, with these parameters."""
    match value:
        case ir.Constant():
            raw: object = list(value.value) if isinstance(value.value, tuple) else value.value
        case ir.Now():
            raw = parameters[ir.NOW_PARAMETER]
        case _:
            if value.name not in parameters:
                raise BadRequestError(f"parameter '{value.name}' not provided")
            raw = parameters[value.name]
    type_ = value.type
    if isinstance(raw, list):
        if isinstance(type_, PropertyType) and type_.is_vector:
            return list(raw)  # thousands of numbers, which are stored as they are
        return [_stored_value(item, type_) for item in raw]
    return _stored_value(raw, type_)


def scalar_constant(value: ConstantValue, parameters: Mapping[str, BoundValue]) -> pa.Scalar:
    """The same in the Arrow type of its own kind."""
    return pa.scalar(plain_constant(value, parameters), column_type(value.type))


def _stored_value(value: object, type_: ValueType) -> Plain:
    if isinstance(value, str):
        try:
            value.encode()  # JSON can spell half of a surrogate pair, which no stored text can hold
        except UnicodeEncodeError as error:
            raise BadRequestError(f"a text of the query is not valid Unicode: {error.reason}") from None
        if isinstance(type_, PropertyType) and type_.scalar is Scalar.DATE:
            return parse_date(value)
        if isinstance(type_, PropertyType) and type_.scalar is Scalar.DATETIME:
            return parse_datetime(value)
    assert value is None or isinstance(value, str | int | float | bool)
    return value
