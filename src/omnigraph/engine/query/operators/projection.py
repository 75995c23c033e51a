"""The order of rows, and the output columns of a result, a batch at a time.

`run` calls it. Sort keys become arrays of codes, a key is evaluated only for rows that the keys before it left
undecided, and a limit selects before it sorts. Never holds more than the batch at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.engine.query.bindings import Bindings, Indices
from omnigraph.engine.query.context import ReadContext
from omnigraph.engine.query.limits import MemoryBudget
from omnigraph.engine.query.objects import Objects, TooManyRowsError
from omnigraph.engine.query.plans import entity_of
from omnigraph.engine.query.properties import Located, gathering_parts
from omnigraph.engine.query.value_columns import compact_lists, repeat
from omnigraph.engine.query.values.elementwise import Evaluated, HeldValues
from omnigraph.engine.query.values.evaluate import evaluate
from omnigraph.engine.query.values.stored import load_together
from omnigraph.errors import ResourceLimitError
from omnigraph.language.query import ir
from omnigraph.language.query.syntax import MetaField
from omnigraph.language.query.value_types import EntityType, PathType
from omnigraph.storage.integer_sets import factorize, is_ascending

BATCH_ROWS = 65_536
_FEWER_ROWS = 8


def project(
    values: Sequence[ir.Value], schema: pa.Schema, rows: Bindings, context: ReadContext
) -> Iterator[pa.RecordBatch]:
    """The values of some rows as the columns of a result."""
    start, size = 0, BATCH_ROWS
    while start < rows.length:
        context.cancellation.check()
        part, columns, done = rows.slice(start, start + size), None, 0
        with Objects(part.length, context) as objects, HeldValues(context.budget) as held:
            try:
                load_together(values, part, context)
                columns = [held.keep(value, _output(value, part, objects, context)) for value in values]
                for batch in _batches(columns, part.length, schema, context):
                    done += len(batch)
                    yield batch
                    del batch  # the next one is made beside what others keep of it
            except TooManyRowsError:
                size = max(1, part.length // _FEWER_ROWS)
            except ResourceLimitError:
                if part.length == 1 or (columns is not None and not (objects.held or held.nbytes)):
                    raise
                # Values and objects may be of any size: those of fewer rows may fit.
                size = max(1, (part.length - done) // _FEWER_ROWS)
        start += done


def _output(value: ir.Value, rows: Bindings, objects: Objects, context: ReadContext) -> Evaluated:
    evaluated = evaluate(value, rows, context)
    return objects.present(evaluated, value) if isinstance(evaluated, Located) else evaluated


def _batches(
    evaluated: Sequence[Evaluated], length: int, schema: pa.Schema, context: ReadContext
) -> Iterator[pa.RecordBatch]:
    """The rows in batches of bounded bytes. Texts of one batch never come near the 2 GiB that Arrow allows them."""
    columns = [value for value in evaluated if isinstance(value, Located)]
    constant = sum(pa.repeat(value, 1).nbytes for value in evaluated if not isinstance(value, Located))
    for rows in gathering_parts(columns, length, context.budget, most_rows=BATCH_ROWS, beside=constant):
        size = min(length, rows.stop) - rows.start
        arrays = [v.part(rows).gather() if isinstance(v, Located) else repeat(v, size) for v in evaluated]
        typed = [a if a.type == f.type else a.cast(f.type) for a, f in zip(arrays, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(typed, schema=schema)


# Codes, ranks and the order of a key, each one number per row.
_CODED_COPIES = 4

Codes: TypeAlias = NDArray[Any]
Key: TypeAlias = Callable[[Indices], Codes]
"""The codes of some rows, given by index; smaller comes first."""


def sorted_rows(plan: ir.Sort, rows: Bindings, limit: int | None, context: ReadContext) -> Bindings:
    """The rows in order, only the first `limit` when there is one. Ties are broken by some variables."""

    def code(key: ir.SortKey) -> Key:
        def codes(chosen: Indices) -> Codes:
            context.cancellation.check()
            some = rows if len(chosen) == rows.length and is_ascending(chosen) else rows.take(chosen)
            values = evaluate(key.value, some, context)
            return codes_of(values, len(chosen), key.descending, context.budget, nulls_first=key.nulls_first)

        return codes

    def code_paths(tie: ir.TieBreak) -> Key:
        def codes(chosen: Indices) -> Codes:
            context.cancellation.check()
            paths = context.bound.locate(tie.variable, tie.type, rows.rows[tie.variable][chosen])
            assert isinstance(tie.type, PathType)
            return _path_codes(paths, tie.type.edges, context)

        return codes

    keys = [code(part) for key in plan.keys for part in _by_identity(key)]
    for tie in plan.tie_break:
        if isinstance(tie.type, EntityType):
            by_entity = ir.SortKey(ir.EntityValue(tie.variable, tie.type), descending=False)
            keys += [code(part) for part in _by_identity(by_entity)]
        else:
            keys.append(code_paths(tie))
    return rows.take(first_in_order(keys, rows.length, limit))


def _by_identity(key: ir.SortKey) -> tuple[ir.SortKey, ...]:
    """An entity is ordered by the name of its type, then by its id; everything else by its value."""
    if (entity := entity_of(key.value)) is None:
        return (key,)
    variable, type_ = entity
    fields = (MetaField.TYPE, MetaField.ID) if len(type_.members) > 1 else (MetaField.ID,)
    parts = (ir.MetaValue(variable, type_.members, field, type_.nullable) for field in fields)
    return tuple(ir.SortKey(part, key.descending, key.nulls_first) for part in parts)


def first_in_order(keys: Sequence[Key], length: int, limit: int | None = None) -> Indices:
    """The indices of the first `limit` rows in the order of the keys, rows that tie in all of them as they come."""
    chosen = np.arange(length)
    if limit is not None and limit < length:
        chosen = _select_first(keys, chosen, limit)
    return _sort_order(keys, chosen)


def _select_first(keys: Sequence[Key], candidates: Indices, count: int) -> Indices:
    """Which rows are among the first `count`, ascending. Only rows tied at the edge are looked at twice."""
    chosen: list[Indices] = []
    for key in keys:
        if count == 0 or count >= len(candidates):
            break
        codes = key(candidates)
        edge = np.partition(codes, count - 1)[count - 1]
        before = codes < edge
        chosen.append(candidates[before])
        count -= int(before.sum())
        candidates = candidates[codes == edge]
    chosen.append(candidates[:count])
    return np.sort(np.concatenate(chosen))


def _sort_order(keys: Sequence[Key], order: Indices) -> Indices:
    order = order.copy()
    group = np.zeros(len(order), np.int64)
    tied = np.arange(len(order))
    for key in keys:
        if len(tied) < 2:
            break
        codes, own = key(order[tied]), group[tied]
        order_in_group = np.lexsort((codes, own))
        order[tied] = order[tied][order_in_group]
        codes = codes[order_in_group]
        differs = (own[1:] != own[:-1]) | (codes[1:] != codes[:-1])
        group[tied] = np.concatenate(([0], np.cumsum(differs)))
        alone = np.concatenate(([True], differs)) & np.concatenate((differs, [True]))
        tied = tied[~alone]
    return order


def codes_of(
    evaluated: Evaluated, length: int, descending: bool, budget: MemoryBudget, *, nulls_first: bool | None = None
) -> Codes:
    """Numbers that compare like the values, reversed when descending. Null is less than everything, or it is where
    `nulls_first` says."""
    if not isinstance(evaluated, Located):
        return np.zeros(length, np.int64)
    if (numbers := _integers(evaluated)) is not None:
        budget.step(_CODED_COPIES * 8 * length)
        codes = numbers[evaluated.positions]
        return ~codes if descending else codes
    column = evaluated.condense(budget)
    budget.step(column.values.nbytes + _CODED_COPIES * 8 * length)
    null_is_least = nulls_first is None or nulls_first is not descending
    codes = _ascending_codes(column.values, null_is_least=null_is_least)[column.positions]
    if not descending:
        return codes
    return -codes if codes.dtype == np.float64 else ~codes


def _integers(column: Located) -> Codes | None:
    """The values of a column that compare as they are, if every row has one."""
    type_ = column.values.type
    if column.values.null_count or not pa.types.is_integer(type_) or type_ == pa.uint64():
        return None
    return None if column.positions.min(initial=0) < 0 else column.values.to_numpy()


def _ascending_codes(values: pa.Array, *, null_is_least: bool) -> Codes:
    type_ = values.type
    if not values.null_count and pa.types.is_floating(type_):
        numbers = _numpy(values, np.float64)
        if not np.isnan(numbers).any():
            return numbers
    if not values.null_count and pa.types.is_integer(type_) and type_ != pa.uint64():
        return _numpy(values, np.int64)
    if pa.types.is_boolean(type_):
        values = values.cast(pa.int8())
    if pa.types.is_floating(type_):
        values = pc.add(values, pa.scalar(0.0, type_))
    ranks = _numpy(pc.rank(values, sort_keys="ascending", tiebreaker="dense"), np.int64)
    return np.where(_numpy(values.is_valid(), np.bool_), ranks, 0 if null_is_least else len(values) + 1)


def _numpy(values: pa.Array, kind: type[np.generic]) -> Codes:
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=kind)


_TIE: Final = "#tie"
"""The variable under which the ids of edges of paths are read."""


def _path_codes(paths: Located, edges: EntityType, context: ReadContext) -> Codes:
    """Numbers that compare like the sequences of the edges, each by type name and id; a path before its
    continuations, null first."""
    column = paths.condense(context.budget)
    lists = compact_lists(pc.struct_field(column.values, 1))
    starts = np.asarray(lists.offsets.to_numpy(zero_copy_only=False), np.int64)
    lengths = np.diff(starts)
    edge_codes = _edge_codes(lists.values, edges, context)
    codes = _numpy(column.values.is_valid(), np.int64)
    for place in range(int(lengths.max(initial=0))):
        context.cancellation.check()
        longer = lengths > place
        at = np.where(longer, starts[:-1] + place, 0)
        values, _, codes = factorize(codes * (len(edge_codes) + 1) + np.where(longer, edge_codes[at] + 1, 0))
        if len(values) == len(codes):
            break
    return codes[column.positions]


def _edge_codes(references: pa.Array, edges: EntityType, context: ReadContext) -> Codes:
    """Numbers that compare like the edges, by type name, then id."""
    members, rows = (_numpy(pc.struct_field(references, name), np.int64) for name in ("member", "row"))
    codes = np.zeros(len(rows), np.int64)
    counted = 0
    for number in sorted(range(len(edges.members)), key=lambda number: edges.members[number].name):
        own = members == number
        table = context.table(edges.members[number])
        ids = context.properties.locate(table, _TIE, "id", rows[own])
        codes[own] = codes_of(ids, int(own.sum()), False, context.budget) + counted
        counted = int(codes[own].max(initial=counted)) + 1
    return codes
