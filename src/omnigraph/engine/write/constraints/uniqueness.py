"""`@unique` and `@key`: no two entities of the final image share a tuple of values.

Tuples are compared member by member; a null member exempts its row. The key of a node is its id, so two stored nodes
can't share one: only an input that lists a key twice can break it, and the caller keeps such rows for this check.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.rows.columns import column_of
from omnigraph.engine.write.change import TypeChange
from omnigraph.engine.write.constraints.image import Among, FinalImage
from omnigraph.engine.write.constraints.violation import Violation, refuse
from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import IndexKind, NodeType, TableType
from omnigraph.language.types import PropertyType, Scalar
from omnigraph.language.violations import Sentence, members_name, members_value, the_property, value_text

_PROBED_VALUES = 1_000
# Names that no property column can have.
_ROW, _HOLDER = "#row", "#holder"
_PROBED_SCALARS = frozenset({Scalar.STRING, Scalar.I32, Scalar.I64, Scalar.U32})


def check_uniqueness(image: FinalImage, change: TypeChange) -> None:
    """Raise for the first rule that two entities of this type would break together."""
    refuse(shared_values(image, change))


def shared_values(image: FinalImage, change: TypeChange) -> Iterator[Violation]:
    """Every entity of the change that shares a tuple with another one, rule by rule, in row order."""
    if not change.rows.num_rows:
        return
    if isinstance(change.type, NodeType) and change.type.key:
        yield from _repeats(change, Sentence.SHARED_KEY, change.type.key, _comparable(change.rows, ["id"]), ["id"])
    for members in change.type.uniques:
        yield from _broken(image, change, members)


def _broken(image: FinalImage, change: TypeChange, members: tuple[str, ...]) -> Iterator[Violation]:
    columns = [member_column(change.type, name) for name in members]
    rows = _comparable(change.rows, columns)
    for name, column in zip(members, columns, strict=True):
        _refuse_incomparable(change.type, name, rows.column(column))
    given = rows.filter(_all_valid(rows, columns))
    if not given.num_rows:
        return
    yield from _repeats(change, Sentence.SHARED_VALUE, members, given, columns)
    if change.replaces:
        return
    stored = _comparable(
        image.survivors(change.type_key, ["id", *columns], _among(change.type, given, columns)), columns
    )
    holders = stored.rename_columns({"id": _HOLDER}).select([*columns, _HOLDER])
    clashes = given.select([*columns, _ROW]).join(holders, keys=columns, join_type="inner")
    ordered = clashes.sort_by([(_ROW, "ascending"), (_HOLDER, "ascending")])
    for row, holder in zip(ordered.column(_ROW).to_pylist(), ordered.column(_HOLDER).to_pylist(), strict=True):
        yield _violation(change, Sentence.SHARED_VALUE, members, row, holder)


def _repeats(
    change: TypeChange, sentence: Sentence, members: tuple[str, ...], rows: pa.Table, columns: list[str]
) -> Iterator[Violation]:
    """Rows of the change itself that repeat the tuple of an earlier one."""
    groups = rows.group_by(columns).aggregate([(_ROW, "min"), (_ROW, "count")])
    repeated = groups.filter(pc.greater(groups.column(f"{_ROW}_count"), 1))
    if not repeated.num_rows:
        return
    together = rows.select([*columns, _ROW]).join(repeated, keys=columns, join_type="inner")
    later = together.filter(pc.greater(together.column(_ROW), together.column(f"{_ROW}_min"))).sort_by(_ROW)
    for row, first in zip(later.column(_ROW).to_pylist(), later.column(f"{_ROW}_min").to_pylist(), strict=True):
        yield _violation(change, sentence, members, row, change.ids[first].as_py())


def _violation(change: TypeChange, sentence: Sentence, members: tuple[str, ...], row: int, holder: str) -> Violation:
    values = [_shown(change, name, row) for name in members]
    entity_id: str = change.ids[row].as_py()
    reason = sentence.text(
        type=change.type.name,
        property=members_name(members),
        value=members_value(values),
        holder=holder,
        entity_id=entity_id,
    )
    named = the_property(members)
    return Violation(sentence, change.type_key, reason, named, entity_id, change, row, members=members)


def _comparable(rows: pa.Table, columns: list[str]) -> pa.Table:
    """`id`, the columns to compare with both zeros of a float made one, and the number of each row."""
    chosen = {"id": rows.column("id")}
    for column in columns:
        values = rows.column(column)
        if pa.types.is_floating(values.type):
            values = pc.add(values, pa.scalar(0.0, values.type))
        chosen[column] = values
    return pa.table({**chosen, _ROW: pa.array(range(rows.num_rows), pa.int64())})


def _all_valid(rows: pa.Table, columns: list[str]) -> pa.ChunkedArray:
    valid = pc.is_valid(rows.column(columns[0]))
    for column in columns[1:]:
        valid = pc.and_(valid, pc.is_valid(rows.column(column)))
    return valid


def _among(type_: TableType, given: pa.Table, columns: list[str]) -> Among | None:
    """One member whose few values narrow the search in the table; None when only a scan finds the tuples.

    A member with a BTREE comes first: by any other one every row is looked at.
    """
    probed: list[tuple[bool, int, Among]] = []
    properties = {prop.column: prop for prop in type_.property_list}
    for column in columns:
        prop = properties.get(column)
        kind = PropertyType(Scalar.STRING) if prop is None else prop.type
        if kind.scalar in _PROBED_SCALARS and not kind.list:
            values = pc.unique(given.column(column))
            if len(values) <= _PROBED_VALUES:
                is_scanned = prop is not None and IndexKind.BTREE not in type_.index_kinds(prop.name)
                probed.append((is_scanned, len(values), (column, values.to_pylist())))
    return min(probed, key=lambda one: one[:2])[2] if probed else None


def member_column(type_: TableType, name: str) -> str:
    """The column of a rule's member: a property, or an endpoint of an edge."""
    column = column_of(type_, name)
    if column is None:
        raise BadRequestError(f"a rule of {type_.name} names '{name}', which the type does not have")
    return column


def _refuse_incomparable(type_: TableType, name: str, values: pa.ChunkedArray) -> None:
    if pa.types.is_nested(values.type) and values.null_count < len(values):
        raise incomparable(type_, name)


def incomparable(type_: TableType, name: str) -> BadRequestError:
    """The error for a rule over lists, vectors or blobs, which are not compared."""
    return BadRequestError(f"@unique on {type_.name}.{name}: unsupported column type {type_.properties[name].type}")


def _shown(change: TypeChange, name: str, row: int) -> str:
    value = change.rows.column(member_column(change.type, name))[row]
    if pa.types.is_date(value.type):
        value = value.cast(pa.int32())
    elif pa.types.is_timestamp(value.type):
        value = value.cast(pa.int64())
    prop = change.type.properties.get(name)
    return value_text(Scalar.STRING if prop is None else prop.type.scalar, value.as_py())
