"""The constraint stage: every rule that spans rows, checked on the graph as a change would leave it.

Loads, mutations and merges call it with their change and the pinned snapshot, after the row kernels have checked
single rows. The order is uniqueness, endpoints, cardinality; loads and mutations raise the first violation, merges
report all. Reads go into a read set that the publish machine compares with a moved head. Ids that a strict insert
repeats are refused last. Before all that, loads and mutations find out the types of ends that are given by an id alone.
Sentences come from `language.violations`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.engine.rows.columns import EPOCH_TYPES, column_of
from omnigraph.engine.rows.end_ids import (
    end_of_column,
    ids_of_type,
    interface_ends,
    plain_id,
    plain_ids,
    stored_id,
    type_names,
    untyped_ids,
)
from omnigraph.engine.rows.kernels.ids import key_ids
from omnigraph.engine.rows.kernels.typed_rows import TypedRows
from omnigraph.engine.write.author_visibility import AuthorVisibility
from omnigraph.engine.write.change import GraphChange, TypeChange
from omnigraph.engine.write.publish import ReadSet, WriteTxn
from omnigraph.errors import BadRequestError, ConstraintError, KeyConflictError
from omnigraph.language.catalog import Cardinality, EdgeEnd, EdgeType, IndexKind, NodeType, TableType
from omnigraph.language.types import PropertyType, Scalar
from omnigraph.language.violations import (
    AMBIGUITY_REMEDY,
    ORPHAN_REMEDY,
    Sentence,
    members_name,
    the_property,
    value_text,
)

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
        self._present: defaultdict[str, list[pa.Array]] = defaultdict(list)

    def read_set(self) -> ReadSet:
        written = self.change.by_type.keys()
        return ReadSet(
            tables=frozenset(self._tables - written),
            present={
                key: pc.unique(pa.chunked_array(ids))
                for key, ids in sorted(self._present.items())
                if key not in written
            },
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
        removed = pc.is_in(ids, value_set=pa.array(change.deleted, pa.string()))
        return rows.filter(pc.invert(pc.or_(change.writes(ids), removed)))

    def rows_before(self, type_key: str, columns: Sequence[str], among: Among | None = None) -> pa.Table:
        """Rows of the snapshot as they are before the change."""
        self._tables.add(type_key)
        table = self.snapshot.table(type_key)
        return table.read(columns) if among is None else table.rows_among(*among, columns)

    def missing_nodes(self, wanted: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
        """Per node type, those of some distinct ids that no node of the final image has. All types are probed at the
        same time."""
        missing: dict[str, pa.Array] = {}
        probes = {}
        for name, ids in wanted.items():
            change = self.change.by_type.get(f"node:{name}")
            uncertain = ids if change is None else ids.filter(pc.invert(change.writes(ids)))
            missing[name] = uncertain.slice(0, 0)
            if change is not None and change.replaces:
                missing[name], uncertain = uncertain, missing[name]
            elif change is not None and change.deleted:
                is_deleted = pc.is_in(uncertain, value_set=pa.array(change.deleted, pa.string()))
                missing[name], uncertain = uncertain.filter(is_deleted), uncertain.filter(pc.invert(is_deleted))
            if len(uncertain):
                self._present[f"node:{name}"].append(uncertain)
                probes[name] = self._workers.submit(self._absent_among, name, uncertain)
        for name, probe in probes.items():
            missing[name] = pa.concat_arrays([missing[name], probe.result()])
        return missing

    def holders(self, names: Sequence[str], ids: pa.Array) -> dict[str, list[str]]:
        """Per id, those of some node types that have it in the final image. A node of another type that comes meanwhile
        could make the id ambiguous."""
        missing = {
            name: set(absent.to_pylist()) for name, absent in self.missing_nodes(dict.fromkeys(names, ids)).items()
        }
        self._tables |= {f"node:{name}" for name, absent in missing.items() if absent}
        return {node_id: [name for name in names if node_id not in missing[name]] for node_id in ids.to_pylist()}

    def removed_ids(self, name: str) -> set[str]:
        """Ids of a node type that are committed and not in the final image."""
        change = self.change.by_type.get(f"node:{name}")
        if change is None:
            return set()
        if not change.replaces:
            return set(change.deleted)
        committed = self.rows_before(change.type_key, ["id"]).column("id")
        return set(committed.filter(pc.invert(change.writes(committed))).to_pylist())

    def _absent_among(self, name: str, ids: pa.Array) -> pa.Array:
        """Those of some ids that do not exist for the author: an edge to an invisible node is dangling."""
        if self._visibility.is_unrestricted:
            existing = self.snapshot.table(f"node:{name}").ids_among(ids)
        else:
            visible = self._visibility.visible_among(self.snapshot.catalog.nodes[name], sorted(ids.to_pylist()))
            existing = pa.array(visible, pa.string())
        # Both are distinct.
        return (
            ids.slice(0, 0) if len(existing) == len(ids) else ids.filter(pc.invert(pc.is_in(ids, value_set=existing)))
        )


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule broken by the final image. `row` is the row of `change` that breaks it, where one does.

    `absent_node` has the type key and id of a node that an edge names, and that does not exist.
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


_PROBED_VALUES = 1_000
# Names that no property column can have.
_ROW, _HOLDER = "#row", "#holder"
_PROBED_SCALARS = frozenset({Scalar.STRING, Scalar.I32, Scalar.I64, Scalar.U32})


def check_constraints(image: FinalImage, order: Sequence[TypeChange]) -> ReadSet:
    """Raise the first violation of the final image, or return the reads that found none."""
    for violation in _violations(image, order):
        raise violation.error()
    return image.read_set()


def _violations(image: FinalImage, order: Sequence[TypeChange]) -> Iterator[Violation]:
    for change in order:
        yield from shared_values(image, change)
    yield from dangling_edges(image, order)
    for change in order:
        if change.replaces:
            yield from orphaned_edges(image, change)
    for change in order:
        yield from miscounted_sources(image, change)


def shared_values(image: FinalImage, change: TypeChange) -> Iterator[Violation]:
    """Every entity of the change that shares a tuple with another one, rule by rule, in row order."""
    if not change.rows.num_rows:
        return
    if change.type.key:
        yield from _repeats(change, Sentence.SHARED_KEY, change.type.key, _comparable(change.rows, ["id"]), ["id"])
    for members in change.type.uniques:
        yield from _uniqueness_violations(image, change, members)


def repeated_tuples(change: TypeChange, members: tuple[str, ...], sentence: Sentence) -> Iterator[Violation]:
    """Every row of a change that has the tuple of an earlier one."""
    complete, columns = _complete_tuples(change, members)
    if complete.num_rows:
        yield from _repeats(change, sentence, members, complete, columns)


def _complete_tuples(change: TypeChange, members: tuple[str, ...]) -> tuple[pa.Table, list[str]]:
    """The rows of a change that have a value for every member, and the columns of the members."""
    columns = [member_column(change.type, name) for name in members]
    rows = _comparable(change.rows, columns)
    for name, column in zip(members, columns, strict=True):
        values = rows.column(column)
        if pa.types.is_nested(values.type) and values.null_count < len(values):
            raise incomparable(change.type, name)
    return rows.drop_null(), columns


def _uniqueness_violations(image: FinalImage, change: TypeChange, members: tuple[str, ...]) -> Iterator[Violation]:
    complete, columns = _complete_tuples(change, members)
    if not complete.num_rows:
        return
    yield from _repeats(change, Sentence.SHARED_VALUE, members, complete, columns)
    if change.replaces:
        return
    survivors = image.survivors(change.type_key, ["id", *columns], _among(change.type, complete, columns))
    stored = _comparable(survivors, columns)
    holders = stored.rename_columns({"id": _HOLDER}).select([*columns, _HOLDER])
    clashes = complete.select([*columns, _ROW]).join(holders, keys=columns, join_type="inner")
    ordered = clashes.sort_by([(_ROW, "ascending"), (_HOLDER, "ascending")])
    for row, holder in zip(ordered.column(_ROW).to_pylist(), ordered.column(_HOLDER).to_pylist(), strict=True):
        yield _violation(change, Sentence.SHARED_VALUE, members, row, holder)


def _repeats(
    change: TypeChange, sentence: Sentence, members: tuple[str, ...], rows: pa.Table, columns: list[str]
) -> Iterator[Violation]:
    """Rows of the change itself that repeat the tuple of an earlier one."""
    if len(columns) == 1 and len(pc.unique(rows.column(columns[0]))) == rows.num_rows:
        return
    groups = rows.group_by(columns).aggregate([(_ROW, "min"), (_ROW, "count")])
    repeated = groups.filter(pc.greater(groups.column(f"{_ROW}_count"), 1))
    if not repeated.num_rows:
        return
    together = rows.select([*columns, _ROW]).join(repeated, keys=columns, join_type="inner")
    later = together.filter(pc.greater(together.column(_ROW), together.column(f"{_ROW}_min"))).sort_by(_ROW)
    for row, first in zip(later.column(_ROW).to_pylist(), later.column(f"{_ROW}_min").to_pylist(), strict=True):
        yield _violation(change, sentence, members, row, change.ids[first].as_py())


def _violation(change: TypeChange, sentence: Sentence, members: tuple[str, ...], row: int, holder: str) -> Violation:
    entity_id: str = change.ids[row].as_py()
    property, value = members_name(members), members_name([_value_text(change, name, row) for name in members])
    reason = sentence.text(type=change.type.name, property=property, value=value, holder=holder, entity_id=entity_id)
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
    return pa.table({**chosen, _ROW: pa.array(np.arange(rows.num_rows))})


def _among(type_: TableType, rows: pa.Table, columns: list[str]) -> Among | None:
    """One member whose few values narrow the search in the table; None when only a scan finds the tuples. A member with
    a BTREE comes first: by any other one the search looks at every row."""
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


def incomparable(type_: TableType, name: str) -> BadRequestError:
    """The error for a rule over lists, vectors or blobs, which are not compared."""
    return BadRequestError(f"@unique on {type_.name}.{name}: unsupported column type {type_.properties[name].type}")


def _value_text(change: TypeChange, name: str, row: int) -> str:
    prop = change.type.properties.get(name)
    scalar = Scalar.STRING if prop is None else prop.type.scalar
    column = member_column(change.type, name)
    value = change.rows.column(column)[row]
    if (end := end_of_column(change.type, column)) is not None:
        return plain_id(end, value.as_py())
    return value_text(scalar, value.cast(EPOCH_TYPES.get(scalar, value.type)).as_py())


def dangling_edges(image: FinalImage, order: Sequence[TypeChange]) -> Iterator[Violation]:
    """Every end of a written edge that no node has, end by end and in row order. The ends of stored edges that stay
    where they are have their nodes: a commit that removes one of those removes the edge, which is written here."""
    written = [(change, change.rows_with_new_ends) for change in order if isinstance(change.type, EdgeType)]
    ends = [(change, rows, end) for change, rows in written if len(rows) for end in _ends(change.type)]
    named: defaultdict[str, list[pa.Array]] = defaultdict(list)
    for change, _, end in ends:
        for node in end.types:
            named[node] += ids_of_type(end, node, change.of_new_ends(end.column)).drop_null().chunks
    distinct = {name: pc.unique(pa.chunked_array(chunks, pa.string())) for name, chunks in sorted(named.items())}
    missing = image.missing_nodes(distinct)
    for change, rows, end in ends:
        if end.interface is None and not len(missing[end.types[0]]):
            continue
        column = change.of_new_ends(end.column)
        types = type_names(end, column)
        for at in np.flatnonzero(_lacking(end, column, missing)).tolist():
            row, node_id, node = int(rows[at]), plain_id(end, column[at].as_py()), types[at].as_py()
            broken = _edge_without_node(
                Sentence.DANGLING_EDGE, change.type, change.ids[row].as_py(), end, node_id, node
            )
            yield replace(broken, change=change, row=row)


def _lacking(end: EdgeEnd, column: pa.ChunkedArray, missing: Mapping[str, pa.Array]) -> NDArray[np.bool_]:
    """Which values in the column of an end name no node. The type of one may be gone, when branches are merged."""
    present = np.zeros(len(column), np.bool_)
    for node in end.types:
        ids = ids_of_type(end, node, column)
        absent = pc.is_in(ids, value_set=missing[node])
        present |= pc.and_(pc.is_valid(ids), pc.invert(absent)).to_numpy()
    return ~present


def orphaned_edges(image: FinalImage, change: TypeChange) -> Iterator[Violation]:
    """Every end of an edge that stays while the change makes its node go."""
    node = change.type
    if not isinstance(node, NodeType):
        return
    replaced = {key for key, each in image.change.by_type.items() if each.replaces}
    touching = [edge for edge in image.snapshot.catalog.incident_edges(node.name) if edge.type_key not in replaced]
    gone = image.removed_ids(node.name) if touching else set()
    if not gone:
        return
    for edge, end in [(touched, end) for touched in touching for end in touched.ends if node.name in end.types]:
        stored = {stored_id(end, node.name, node_id) for node_id in gone}
        orphans = image.survivors(edge.type_key, ["id", end.column], (end.column, stored)).sort_by("id")
        node_ids = plain_ids(end, orphans.column(end.column)).to_pylist()
        for entity_id, node_id in zip(orphans.column("id").to_pylist(), node_ids, strict=True):
            broken = _edge_without_node(Sentence.ORPHANED_EDGE, edge, entity_id, end, node_id, node.name)
            yield replace(broken, remedy=ORPHAN_REMEDY.format(type=edge.name))


def _edge_without_node(
    sentence: Sentence, edge: TableType, edge_id: str, end: EdgeEnd, node_id: str, node: str | None
) -> Violation:
    """`node` is the type of the node; None if the end has a type that is gone."""
    named = node if node is not None else "any type that it may have"
    reason = sentence.text(type=edge.name, end=end.column, node=named, entity_id=edge_id, node_id=node_id)
    absent = None if node is None else (f"node:{node}", node_id)
    return Violation(sentence, edge.type_key, reason, end.column, edge_id, absent_node=absent)


def _ends(type_: TableType) -> tuple[EdgeEnd, ...]:
    """The ends of an edge; a node has none."""
    return type_.ends if isinstance(type_, EdgeType) else ()


# ---- the types of ends ---------------------------------------------------------------------------------


def has_untyped_ends(typed: TypedRows) -> bool:
    """Whether some end is given by an id alone."""
    return any(_ids_without_type(typed, end).null_count < len(typed) for end in interface_ends(typed.type))


def find_end_types(typed: TypedRows, image: FinalImage, unit: str) -> TypedRows:
    """The same rows with the type of every end, by the nodes that there are after the change of the `image`. `unit` is
    what the numbers of the rows count."""
    edge, rows = typed.type, typed.rows
    if not isinstance(edge, EdgeType) or not has_untyped_ends(typed):
        return typed
    for end in interface_ends(edge):
        ids = _ids_without_type(typed, end)
        wanted = pc.unique(ids).drop_null()
        if not len(wanted):
            continue
        holders = image.holders(end.types, wanted)
        values = wanted.to_pylist()
        unclear = pa.array([value for value in values if len(holders[value]) != 1], pa.string())
        for row in np.flatnonzero(pc.is_in(ids, value_set=unclear, skip_nulls=True).to_numpy(zero_copy_only=False)):
            raise _unclear_end(typed, edge, end, int(row), ids[int(row)].as_py(), holders, unit)
        types = [holders[value][0] for value in values]
        stored = pa.array([stored_id(end, *pair) for pair in zip(types, values, strict=True)], pa.string())
        resolved = stored.take(pc.index_in(ids, value_set=wanted))
        index = rows.schema.get_field_index(end.column)
        column = pc.coalesce(resolved, rows.column(end.column).combine_chunks())
        rows = rows.set_column(index, rows.schema.field(index), column)
    if edge.key:
        # A partial record may name its edge by the id alone.
        named = pc.coalesce(key_ids(edge, rows), rows.column("id").combine_chunks())
        rows = rows.set_column(0, rows.schema.field(0), named)
    return typed.with_rows(rows)


def _ids_without_type(typed: TypedRows, end: EdgeEnd) -> pa.Array:
    return untyped_ids(typed.rows.column(end.column)).combine_chunks()


def _unclear_end(
    typed: TypedRows,
    edge: EdgeType,
    end: EdgeEnd,
    row: int,
    node_id: str,
    holders: Mapping[str, list[str]],
    unit: str,
) -> ConstraintError:
    """The error about an id that no node type of an interface has, or several."""
    line = typed.lines[row].as_py()
    if nodes := holders[node_id]:
        sentence = Sentence.AMBIGUOUS_END
        reason = sentence.text(type=edge.name, end=end.column, node_id=node_id, nodes=", ".join(nodes))
        reason = f"{reason}; {AMBIGUITY_REMEDY.format(name=end.name)}"
    else:
        sentence = Sentence.DANGLING_EDGE
        interface = edge.from_type if end.column == "src" else edge.to_type
        reason = sentence.text(type=edge.name, end=end.column, node_id=node_id, node=interface)
    entity_id = None if edge.key else typed.rows.column("id")[row].as_py()
    message = f"{unit} {line}: {reason}"
    return ConstraintError(sentence.rule, edge.type_key, end.column, entity_id, line, message=message)


# ---- cardinality ---------------------------------------------------------------------------------------


_UNBOUNDED = Cardinality()


def miscounted_sources(image: FinalImage, change: TypeChange) -> Iterator[Violation]:
    """Every touched source with too many or too few edges of this type."""
    edge = change.type
    if not isinstance(edge, EdgeType) or edge.cardinality == _UNBOUNDED:
        return
    gained = pc.unique(change.of_new_ends("src")).to_pylist()
    lost = _sources_that_lost(image, change) if edge.cardinality.minimum else set()
    touched = [*gained, *sorted(lost.difference(gained))]
    if not touched:
        return
    sources_end = edge.ends[0]
    gone = {stored_id(sources_end, node, each) for node in edge.source_types for each in image.removed_ids(node)}
    stored = image.survivors(edge.type_key, ["id", "src"], ("src", set(touched)))
    sources = pa.chunked_array([*change.rows.column("src").chunks, *stored.column("src").chunks], pa.string())
    tally = pc.value_counts(sources)
    counts = dict(zip(tally.field("values").to_pylist(), tally.field("counts").to_pylist(), strict=True))
    broken = {
        source: breach
        for source in touched
        if source not in gone and (breach := broken_bound(edge.cardinality, counts.get(source, 0))) is not None
    }
    written = _rows_by_source(change, broken) if broken else {}
    for source, (sentence, bound) in broken.items():
        count, rows = counts.get(source, 0), written.get(source, [])
        # Of too many edges the earliest may stay, so the first one beyond them breaks the rule.
        surplus = count - bound if sentence is Sentence.TOO_MANY_EDGES else len(rows)
        row = rows[max(0, len(rows) - surplus)] if rows else None
        entity_id = None if row is None else change.ids[row].as_py()
        named = plain_id(sources_end, source)
        reason = sentence.text(type=edge.name, source=named, count=count, bound=bound)
        yield Violation(sentence, edge.type_key, reason, "src", entity_id, change, row)


def _rows_by_source(change: TypeChange, sources: Iterable[str]) -> dict[str, list[int]]:
    """The rows of a change that have one of these sources."""
    column = change.rows.column("src")
    wanted = pc.is_in(change.of_new_ends("src"), value_set=pa.array(list(sources), pa.string())).to_numpy()
    by_source: dict[str, list[int]] = {}
    for row in change.rows_with_new_ends[wanted].tolist():
        by_source.setdefault(column[row].as_py(), []).append(row)
    return by_source


def _sources_that_lost(image: FinalImage, change: TypeChange) -> set[str]:
    """Sources of edges that the change removes or gives another source."""
    moved = [] if change.fresh or change.replaces else change.of_new_ends("id").to_pylist()
    among = None if change.replaces else ("id", {*change.deleted, *moved})
    return set(image.rows_before(change.type_key, ["src"], among).column("src").to_pylist())


def broken_bound(cardinality: Cardinality, count: int) -> tuple[Sentence, int] | None:
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
