"""The constraint stage: every rule that spans rows, checked on the graph as a change would leave it.

Loads, mutations and merges call it with their change and the pinned snapshot, after the row kernels have checked
single rows. The order is uniqueness, endpoints, cardinality; loads and mutations raise the first violation, merges
report all. Reads go into a read set that the publish machine compares with a moved head. Ids that a strict insert
repeats are refused last. Sentences come from `language.violations`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.rows.columns import column_of
from omnigraph.engine.write.author_visibility import AuthorVisibility
from omnigraph.engine.write.change import GraphChange, TypeChange
from omnigraph.engine.write.publish import ReadSet, WriteTxn
from omnigraph.errors import BadRequestError, ConstraintError, KeyConflictError
from omnigraph.language.catalog import Cardinality, Catalog, EdgeType, IndexKind, NodeType, TableType
from omnigraph.language.types import PropertyType, Scalar
from omnigraph.language.violations import ORPHAN_REMEDY, Sentence, members_name, the_property, value_text

Among: TypeAlias = tuple[str, Collection[str | int]]
"""A column and the values of it that matter."""


class FinalImage:
    """One change applied to one snapshot. Not shared between threads, except for the probes it starts itself."""

    def __init__(self, txn: WriteTxn, change: GraphChange) -> None:
        self.snapshot = txn.snapshot
        self._visibility = AuthorVisibility(txn)
        self.change = change
        self._workers = txn.root.workers
        self._tables: set[str] = set()
        self._present: defaultdict[str, set[str]] = defaultdict(set)

    @property
    def catalog(self) -> Catalog:
        return self.snapshot.catalog

    def read_set(self) -> ReadSet:
        written = self.change.by_type.keys()
        return ReadSet(
            tables=frozenset(self._tables - written),
            present={key: frozenset(ids) for key, ids in sorted(self._present.items()) if key not in written},
        )

    def survivors(self, type_key: str, columns: Sequence[str], among: Among | None = None) -> pa.Table:
        """Committed rows that the change neither replaces nor removes; `among` narrows them to values of a column."""
        change = self.change.by_type.get(type_key)
        if change is not None and change.replaces:
            return self.rows_before(type_key, columns, ("id", ()))
        rows = self.rows_before(type_key, columns, among)
        if change is None or not rows.num_rows:
            return rows
        ids = rows.column("id")
        return rows.filter(pc.invert(pc.or_(change.writes(ids), change.removes(ids))))

    def rows_before(self, type_key: str, columns: Sequence[str], among: Among | None = None) -> pa.Table:
        """Rows of the snapshot as they are before the change."""
        self._tables.add(type_key)
        table = self.snapshot.table(type_key)
        return table.read(columns) if among is None else table.rows_among(*among, columns)

    def missing_nodes(self, wanted: Mapping[str, pa.Array]) -> dict[str, set[str]]:
        """Per node type, the ids that no node of the final image has. All types are probed at the same time."""
        missing: dict[str, set[str]] = {}
        uncertain: dict[str, set[str]] = {}
        for name, ids in wanted.items():
            change = self.change.of_node(name)
            if change is None:
                missing[name], uncertain[name] = set(), set(ids.to_pylist())
                continue
            unwritten = ids.filter(pc.invert(change.writes(ids)))
            gone = pa.array([True] * len(unwritten), pa.bool_()) if change.replaces else change.removes(unwritten)
            missing[name] = set(unwritten.filter(gone).to_pylist())
            uncertain[name] = set(unwritten.filter(pc.invert(gone)).to_pylist())
        for name, found in self._existing(uncertain).items():
            missing[name] |= uncertain[name] - found
        return missing

    def removed_ids(self, name: str) -> set[str]:
        """Ids of a node type that are committed and not in the final image."""
        change = self.change.of_node(name)
        if change is None:
            return set()
        if not change.replaces:
            return set(change.deleted)
        committed = self.rows_before(change.type_key, ["id"]).column("id")
        return set(committed.filter(pc.invert(change.writes(committed))).to_pylist())

    def _existing(self, by_name: Mapping[str, set[str]]) -> dict[str, set[str]]:
        probes = {}
        for name, ids in by_name.items():
            if ids:
                self._present[f"node:{name}"] |= ids
                probes[name] = self._workers.submit(self._probe, f"node:{name}", ids)
        return {name: probe.result() for name, probe in probes.items()}

    def _probe(self, type_key: str, ids: set[str]) -> set[str]:
        """Those of some ids that exist for the author: an edge to an invisible node is dangling."""
        if self._visibility.is_unrestricted:
            return self.snapshot.table(type_key).existing_ids(ids)
        return self._visibility.visible_among(self.catalog.nodes[type_key.partition(":")[2]], sorted(ids))


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule broken by the final image. `row` is the row of `change` that breaks it, where one does.

    `absent_node` is the type key and id of the node that an edge ends in and that does not exist. `members` are the
    properties of a rule over several.
    """

    sentence: Sentence
    type_key: str
    reason: str
    property: str | None = None
    entity_id: str | None = None
    change: TypeChange | None = None
    row: int | None = None
    remedy: str = ""
    absent_node: tuple[str, str] | None = None
    members: tuple[str, ...] = ()

    def error(self) -> ConstraintError:
        where, line = "", None
        if self.change is not None and self.row is not None:
            where, line = self.change.where(self.row), self.change.line(self.row)
        message = f"{where}{self.reason}" + (f"; {self.remedy}" if self.remedy else "")
        return ConstraintError(self.sentence.rule, self.type_key, self.property, self.entity_id, line, message=message)


def refuse(violations: Iterator[Violation]) -> None:
    """Raise the first violation, and look no further."""
    for violation in violations:
        raise violation.error()


_PROBED_VALUES = 1_000
# Names that no property column can have.
_ROW, _HOLDER = "#row", "#holder"
_PROBED_SCALARS = frozenset({Scalar.STRING, Scalar.I32, Scalar.I64, Scalar.U32})


def check_constraints(image: FinalImage, order: Sequence[TypeChange]) -> ReadSet:
    """Raise the first violation of the final image, or return the reads that found none."""
    for change in order:
        check_uniqueness(image, change)
    check_endpoints(image, order)
    for change in order:
        check_cardinality(image, change)
    return image.read_set()


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
        yield from _uniqueness_violations(image, change, members)


def _uniqueness_violations(image: FinalImage, change: TypeChange, members: tuple[str, ...]) -> Iterator[Violation]:
    columns = [member_column(change.type, name) for name in members]
    rows = _comparable(change.rows, columns)
    for name, column in zip(members, columns, strict=True):
        _refuse_incomparable(change.type, name, rows.column(column))
    complete = rows.filter(_all_valid(rows, columns))
    if not complete.num_rows:
        return
    yield from _repeats(change, Sentence.SHARED_VALUE, members, complete, columns)
    if change.replaces:
        return
    stored = _comparable(
        image.survivors(change.type_key, ["id", *columns], _among(change.type, complete, columns)), columns
    )
    holders = stored.rename_columns({"id": _HOLDER}).select([*columns, _HOLDER])
    clashes = complete.select([*columns, _ROW]).join(holders, keys=columns, join_type="inner")
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
    values = [_value_text(change, name, row) for name in members]
    entity_id: str = change.ids[row].as_py()
    reason = sentence.text(
        type=change.type.name,
        property=members_name(members),
        value=members_name(values),
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


def _among(type_: TableType, rows: pa.Table, columns: list[str]) -> Among | None:
    """One member whose few values narrow the search in the table; None when only a scan finds the tuples.

    A member with a BTREE comes first: by any other one every row is looked at.
    """
    probed: list[tuple[bool, int, Among]] = []
    properties = {prop.column: prop for prop in type_.property_list}
    for column in columns:
        prop = properties.get(column)
        kind = PropertyType(Scalar.STRING) if prop is None else prop.type
        if kind.scalar in _PROBED_SCALARS and not kind.list:
            values = pc.unique(rows.column(column))
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


def _value_text(change: TypeChange, name: str, row: int) -> str:
    value = change.rows.column(member_column(change.type, name))[row]
    if pa.types.is_date(value.type):
        value = value.cast(pa.int32())
    elif pa.types.is_timestamp(value.type):
        value = value.cast(pa.int64())
    prop = change.type.properties.get(name)
    return value_text(Scalar.STRING if prop is None else prop.type.scalar, value.as_py())


def check_endpoints(image: FinalImage, order: Sequence[TypeChange]) -> None:
    """Raise for the first edge, of the first edge type in `order`, that ends in no node."""
    refuse(dangling_edges(image, order))
    for change in order:
        if isinstance(change.type, NodeType) and change.replaces:
            refuse(orphaned_edges(image, change))


def dangling_edges(image: FinalImage, order: Sequence[TypeChange]) -> Iterator[Violation]:
    """Every end of a written edge that no node has, end by end and in row order."""
    missing = image.missing_nodes(_endpoint_ids(order))
    for change, end, node_type in _written_ends(order):
        if absent := missing[node_type]:
            yield from _dangling(change, end, node_type, absent)


def orphaned_edges(image: FinalImage, change: TypeChange) -> Iterator[Violation]:
    """Every end of an edge that stays while the change makes its node go."""
    node = change.type
    if not isinstance(node, NodeType):
        return
    touching = [edge for edge in image.catalog.incident_edges(node.name) if not _is_replaced(image, edge)]
    gone = image.removed_ids(node.name) if touching else set()
    if not gone:
        return
    for edge in touching:
        for end in _ends_at(edge, node.name):
            orphans = image.survivors(edge.type_key, ["id", end], (end, gone)).sort_by("id")
            for entity_id, missing in zip(
                orphans.column("id").to_pylist(), orphans.column(end).to_pylist(), strict=True
            ):
                yield Violation(
                    Sentence.ORPHANED_EDGE,
                    edge.type_key,
                    Sentence.ORPHANED_EDGE.text(
                        type=edge.name, entity_id=entity_id, end=end, node_id=missing, node=node.name
                    ),
                    end,
                    entity_id,
                    remedy=ORPHAN_REMEDY.format(type=edge.name),
                    absent_node=(node.type_key, missing),
                )


def _ends(edge: EdgeType) -> tuple[tuple[str, str], tuple[str, str]]:
    return (("src", edge.from_type), ("dst", edge.to_type))


def _written_ends(order: Sequence[TypeChange]) -> Iterator[tuple[TypeChange, str, str]]:
    """Each end of each edge type that gets rows: its change, its column and the node type it must be found in."""
    for change in order:
        if isinstance(change.type, EdgeType) and change.rows.num_rows:
            for end, node_type in _ends(change.type):
                yield change, end, node_type


def _endpoint_ids(changes: Sequence[TypeChange]) -> dict[str, pa.Array]:
    """Per node type, the distinct ids that written edges name."""
    named: defaultdict[str, list[pa.Array]] = defaultdict(list)
    for change, end, node_type in _written_ends(changes):
        named[node_type] += change.rows.column(end).chunks
    return {name: pc.unique(pa.chunked_array(chunks, pa.string())) for name, chunks in sorted(named.items())}


def _dangling(change: TypeChange, end: str, node_type: str, absent: set[str]) -> Iterator[Violation]:
    values = change.rows.column(end)
    lacking = pc.is_in(values, value_set=pa.array(absent, pa.string())).to_numpy()
    for row in np.flatnonzero(lacking).tolist():
        node = values[row].as_py()
        yield Violation(
            Sentence.DANGLING_EDGE,
            change.type_key,
            Sentence.DANGLING_EDGE.text(type=change.type.name, end=end, node_id=node, node=node_type),
            end,
            change.ids[row].as_py(),
            change,
            row,
            absent_node=(f"node:{node_type}", node),
        )


def _is_replaced(image: FinalImage, edge: EdgeType) -> bool:
    change = image.change.by_type.get(edge.type_key)
    return change is not None and change.replaces


def _ends_at(edge: EdgeType, node_type: str) -> Iterator[str]:
    return (end for end, name in _ends(edge) if name == node_type)


_UNBOUNDED = Cardinality()


def check_cardinality(image: FinalImage, change: TypeChange) -> None:
    """Raise for the first touched source with too many or too few edges of this type."""
    refuse(miscounted_sources(image, change))


def miscounted_sources(image: FinalImage, change: TypeChange) -> Iterator[Violation]:
    """Every touched source with too many or too few edges of this type."""
    edge = change.type
    if not isinstance(edge, EdgeType) or edge.cardinality == _UNBOUNDED:
        return
    gained = pc.unique(change.rows.column("src")).to_pylist()
    lost = _sources_that_lost(image, change) if edge.cardinality.minimum else set()
    touched = [*gained, *sorted(lost.difference(gained))]
    if not touched:
        return
    gone = image.removed_ids(edge.from_type)
    stored = image.survivors(edge.type_key, ["id", "src"], ("src", set(touched)))
    counts = _count(pa.chunked_array([*change.rows.column("src").chunks, *stored.column("src").chunks], pa.string()))
    broken = {
        source: found
        for source in touched
        if source not in gone and (found := _broken_bound(edge.cardinality, counts.get(source, 0))) is not None
    }
    written = _rows_by_source(change, broken) if broken else {}
    for source, (sentence, bound) in broken.items():
        count, rows = counts.get(source, 0), written.get(source, [])
        # Of too many edges the earliest may stay, so the first one beyond them breaks the rule.
        surplus = count - bound if sentence is Sentence.TOO_MANY_EDGES else len(rows)
        row = rows[max(0, len(rows) - surplus)] if rows else None
        yield Violation(
            sentence,
            edge.type_key,
            sentence.text(type=edge.name, source=source, count=count, bound=bound),
            "src",
            None if row is None else change.ids[row].as_py(),
            change,
            row,
        )


def _rows_by_source(change: TypeChange, sources: Iterable[str]) -> dict[str, list[int]]:
    """The rows of a change that have one of these sources."""
    column = change.rows.column("src")
    by_source: dict[str, list[int]] = {}
    for row in np.flatnonzero(pc.is_in(column, value_set=pa.array(list(sources), pa.string())).to_numpy()).tolist():
        by_source.setdefault(column[row].as_py(), []).append(row)
    return by_source


def _sources_that_lost(image: FinalImage, change: TypeChange) -> set[str]:
    """Sources of edges that the change removes or gives another source."""
    if change.replaces:
        before = image.rows_before(change.type_key, ["src"])
    else:
        ids = change.deleted if change.fresh else {*change.deleted, *change.ids.to_pylist()}
        before = image.rows_before(change.type_key, ["src"], ("id", ids))
    return set(before.column("src").to_pylist())


def _count(sources: pa.ChunkedArray) -> dict[str, int]:
    tally = pc.value_counts(sources)
    return dict(zip(tally.field("values").to_pylist(), tally.field("counts").to_pylist(), strict=True))


def _broken_bound(cardinality: Cardinality, count: int) -> tuple[Sentence, int] | None:
    if cardinality.maximum is not None and count > cardinality.maximum:
        return Sentence.TOO_MANY_EDGES, cardinality.maximum
    return (Sentence.TOO_FEW_EDGES, cardinality.minimum) if count < cardinality.minimum else None


def refuse_repeated_ids(type_key: str, ids: pa.ChunkedArray) -> None:
    """Raise for the first id that occurs more than once."""
    counts = pc.value_counts(ids)
    repeated = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
    if len(repeated):
        raise _conflict(Sentence.REPEATED_ID, type_key, repeated[0].as_py())


def taken_id(type_key: str, entity_id: str) -> KeyConflictError:
    """The error for an id that is stored already."""
    return _conflict(Sentence.TAKEN_ID, type_key, entity_id)


def _conflict(sentence: Sentence, type_key: str, entity_id: str) -> KeyConflictError:
    message = f"{sentence.text(type_key=type_key, entity_id=entity_id)}; nothing was written"
    return KeyConflictError(type_key, entity_id, message=message)
