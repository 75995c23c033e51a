"""Reading a graph type from Spark: a pinned snapshot, fragments as partitions, columns and filters in the Lance scan.

Used by the data source, `to_spark` and `register_views`. Columns carry the names of properties; how they lie in the
table is the catalog's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import datasource as ds
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from omnigraph.engine.bulk import scan_plans
from omnigraph.engine.bulk.executor import visible_table
from omnigraph.engine.bulk.scan_plans import PinnedTable
from omnigraph.engine.rows.columns import table_schema
from omnigraph.engine.rows.end_ids import interface_ends
from omnigraph.engine.snapshot import Snapshot
from omnigraph.engine.workspace import GraphHandle
from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import TableType
from omnigraph.language.source import did_you_mean
from omnigraph.language.types import Scalar
from omnigraph.pipeline.spark.table_frames import TableScan, scan_frame

_CONDITIONS: dict[type[Filter], Callable[[str, Any], str | None]] = {
    ds.IsNull: lambda column, _: scan_plans.is_null(column),
    ds.IsNotNull: lambda column, _: scan_plans.is_not_null(column),
    ds.In: scan_plans.is_one_of,
    ds.StringStartsWith: scan_plans.starts_with,
    ds.EqualTo: lambda column, value: scan_plans.compares(column, "=", value),
    ds.GreaterThan: lambda column, value: scan_plans.compares(column, ">", value),
    ds.GreaterThanOrEqual: lambda column, value: scan_plans.compares(column, ">=", value),
    ds.LessThan: lambda column, value: scan_plans.compares(column, "<", value),
    ds.LessThanOrEqual: lambda column, value: scan_plans.compares(column, "<=", value),
}
# Where Lance and Spark compare alike. Floats differ in NaN, moments in the zone of the literal.
_COMPARABLE = frozenset({Scalar.STRING, Scalar.BOOL, Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64, Scalar.DATE})


def type_scan(snapshot: Snapshot, type_: TableType, columns: Sequence[str] | None = None) -> TableScan:
    """The rows of a type that the reader of a snapshot sees; `columns` are `id`, `src`, `dst` (`system_name`), the
    types of ends that are interfaces (`src_type`, `dst_type`), or property names."""
    ends = tuple(interface_ends(type_))
    system = {type_.system_name(column): column for column in type_.system_columns}
    system |= {f"{end.column}_type": f"{end.column}_type" for end in ends}
    names = {prop.column: prop.name for prop in type_.property_list}
    names |= {column: name for name, column in system.items()}
    physical = {**system, **{prop.name: prop.column for prop in type_.property_list}}
    chosen = list(physical) if columns is None else list(columns)
    for name in chosen:
        if name not in physical:
            hint = did_you_mean(name, physical)
            raise BadRequestError(f"{type_.name} has no property '{name}'" + (f"; {hint}" if hint else ""))
    table = PinnedTable.of(snapshot.resources, snapshot.table(type_.type_key).state)
    wanted = tuple(physical[name] for name in chosen)
    table = replace(table, schema=table_schema(type_))
    return TableScan(table, wanted, names, visible=visible_table(snapshot, type_), ends=ends)


def to_spark(
    graph: GraphHandle,
    type_name: str,
    spark: SparkSession | None = None,
    *,
    columns: Sequence[str] | None = None,
    branch: str | None = None,
    snapshot: str | None = None,
) -> DataFrame:
    """A type as a DataFrame, pinned to the state it has now."""
    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise BadRequestError("there is no active Spark session; start one, or pass it")
    state = graph._workspace.snapshot(branch, snapshot=snapshot)
    return scan_frame(session, type_scan(state, state.catalog.type_named(type_name), columns))


def register_views(spark: SparkSession, graph: GraphHandle, branch: str | None = None, prefix: str = "") -> list[str]:
    """Temporary views of every type of a branch, all of one snapshot; returns their names."""
    state = graph._workspace.snapshot(branch)
    names = []
    for type_key in state.types():
        type_ = state.catalog.type_named(type_key)
        names.append(f"{prefix}{type_.name}")
        scan_frame(spark, type_scan(state, type_)).createOrReplaceTempView(names[-1])
    return sorted(names)


@dataclass
class FragmentGroup(InputPartition):
    """The fragments that one task reads."""

    fragment_ids: tuple[int, ...]


class TypeReader(DataSourceReader):
    """Reads one pinned scan."""

    def __init__(self, scan: TableScan) -> None:
        self._scan = scan

    def partitions(self) -> Sequence[InputPartition]:
        return [FragmentGroup(group) for group in self._scan.groups()] or [FragmentGroup(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, FragmentGroup) and partition.fragment_ids:
            yield from self._scan.read(partition.fragment_ids)


class FilteringTypeReader(TypeReader):
    """Takes filters that Lance answers exactly like Spark into the scan. Spark plans a Python source once per relation:
    a frame that occurs twice in one query, with different filters, would get the filters of one occurrence for both. So
    only callers that ask for it get this reader."""

    def __init__(self, scan: TableScan, comparable: Mapping[str, str]) -> None:
        super().__init__(scan)
        self._comparable = comparable

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802  (Spark's name)
        conditions = []
        for condition in filters:
            attribute: tuple[str, ...] = getattr(condition, "attribute", ())
            column = self._comparable.get(attribute[0]) if len(attribute) == 1 else None
            predicate = _CONDITIONS.get(type(condition))
            text = predicate(column, getattr(condition, "value", None)) if predicate and column else None
            if text is None:
                yield condition
            else:
                conditions.append(text)
        if conditions:
            self._scan = replace(self._scan, filter=scan_plans.all_of(conditions))


def comparable_columns(type_: TableType) -> dict[str, str]:
    """Names that filters may push down on, with their columns."""
    properties = {
        prop.name: prop.column for prop in type_.property_list if prop.type.scalar in _COMPARABLE and not prop.type.list
    }
    tagged = {end.column for end in interface_ends(type_)}
    system = {type_.system_name(column): column for column in type_.system_columns if column not in tagged}
    return {**system, **properties}
