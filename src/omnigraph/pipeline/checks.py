"""Rules that span rows, judged on executors: ids, uniqueness, endpoints, cardinality.

The same rules and words as `engine.constraints`, which judges changes that fit in memory. Each rule is asked as a
`Question`: an exchange finds the rows that may break it, and only those are looked at closely, with Spark's joins.
Rows to refuse are told by place, with the reason; nothing is removed here. A violation that no incoming row can be
blamed for raises at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.window import Window

from omnigraph.engine.columns import column_of
from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import Cardinality, EdgeType, NodeType, TableType
from omnigraph.language.types import Scalar
from omnigraph.pipeline import matching
from omnigraph.pipeline.exchange import Lane, exchange
from omnigraph.pipeline.incoming import IncomingTables, IncomingType
from omnigraph.pipeline.matching import ROLE, STORED
from omnigraph.storage.tables.distributed import PLACE

_UNBOUNDED = Cardinality()
_NEW, _OLD = "new", "old"
_LOST = pa.schema([("type", pa.string()), ("property", pa.string()), ("reason", pa.string()), (PLACE, pa.int64())])


@dataclass(frozen=True, slots=True)
class Question:
    """A rule on its way: rows that may break it, mostly none, and what makes of them the rows to refuse."""

    suspects: DataFrame
    verdict: Callable[[DataFrame], DataFrame]


def all_of(frames: Sequence[DataFrame]) -> DataFrame:
    """Every row of frames that have the same columns."""
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionByName(frame)
    return whole


# Ids


def met_ids(tables: IncomingTables, key: str, *, keep_last: bool) -> DataFrame:
    """Rows of a type whose id comes in more than once or is stored already, each with its role.

    One exchange of ids answers three questions: repeats, conflicts of an append, replaced rows of a merge.
    """
    new = tables.fresh(key, list(dict.fromkeys(["id", *_key_columns(tables.by_key[key].type)])))

    def receive(rows: Mapping[str, pa.Table]) -> Iterator[pa.Table]:
        yield matching.met_ids(rows[_NEW], rows[_OLD], keep_last=keep_last)

    lanes = [Lane(_NEW, new, ("id",)), Lane(_OLD, tables.stored(key, ["id"]), ("id",))]
    return exchange(tables.spark, lanes, receive, pa.schema([*new.transport_schema, ROLE]))


def repeats(tables: IncomingTables, key: str, met: DataFrame) -> DataFrame:
    """Incoming rows whose id another incoming row holds as well, without the one that stays."""
    type_ = tables.by_key[key].type
    names = _key_members(type_)
    if names:
        reason = _unique_reason(type_, names, _key_columns(type_), F.col("id"))
    else:
        reason = F.concat(F.lit(f"the input holds the {key} id '"), F.col("id"), F.lit("' more than once"))
    rows = met.where(F.col(ROLE.name) == matching.REPEAT)
    return _refused(key, rows, names[0] if len(names) == 1 else "id", reason)


def taken_ids(key: str, met: DataFrame) -> DataFrame:
    """Incoming rows of an append whose id is stored already."""
    reason = F.concat(F.lit(f"{key} already holds the id '"), F.col("id"), F.lit("'"))
    return _refused(key, met.where(F.col(ROLE.name) == matching.TAKEN), "id", reason)


def replaced_places(met: DataFrame) -> DataFrame:
    """Stored rows whose id comes in again."""
    return met.where(F.col(ROLE.name) == matching.REPLACED).select(PLACE)


# Uniqueness


def shared_values(tables: IncomingTables, key: str, members: tuple[str, ...]) -> Question:
    """Incoming rows that share a `@unique` tuple with an earlier incoming row, or with a stored row that stays."""
    type_ = tables.by_key[key].type
    _refuse_incomparable(type_, members)
    columns = [_column(type_, name) for name in members]
    wanted = list(dict.fromkeys(["id", *columns]))

    def verdict(suspects: DataFrame) -> DataFrame:
        rows = suspects.where(f"not {STORED.name}")
        groups = rows.groupBy(*columns).agg(
            F.count("*").alias("times"), F.min(PLACE).alias("first"), F.min_by("id", PLACE).alias("holder")
        )
        told = [PLACE, "holder", *wanted]
        within = rows.join(groups.where("times > 1"), columns).where(F.col(PLACE) != F.col("first"))
        staying = _staying(tables, key, suspects.where(STORED.name))
        holders = staying.select(*columns, F.col("id").alias("holder"))
        once = (
            all_of([within.select(*told), rows.join(holders, columns).select(*told)])
            .groupBy(PLACE)
            .agg(F.min("holder").alias("holder"), *(F.first(column).alias(column) for column in wanted))
        )
        reason = _unique_reason(type_, members, columns, F.col("holder"))
        return _refused(key, once, members[0] if len(members) == 1 else None, reason)

    return Question(_crowded(tables, key, wanted, columns, 1), verdict)


def _crowded(tables: IncomingTables, key: str, columns: Sequence[str], by: Sequence[str], most: int) -> DataFrame:
    """Incoming and stored rows that share their key `by` with more than `most - 1` others."""
    new = tables.fresh(key, columns)

    def receive(rows: Mapping[str, pa.Table]) -> Iterator[pa.Table]:
        yield matching.crowded(rows[_NEW], rows[_OLD], by, most)

    lanes = [Lane(_NEW, new, tuple(by)), Lane(_OLD, tables.stored(key, columns), tuple(by))]
    return exchange(tables.spark, lanes, receive, pa.schema([*new.transport_schema, STORED]))


def _staying(tables: IncomingTables, key: str, stored: DataFrame) -> DataFrame:
    """Stored rows that no incoming row replaces."""
    return stored.join(tables.frame(tables.fresh(key, ["id"])).select("id"), "id", "left_anti")


# Ends of edges


def dangling(tables: IncomingTables) -> Question | None:
    """Incoming edges whose `src` or `dst` is neither an incoming node nor a stored one that stays."""
    edges = [incoming.type for incoming in tables.types("edge") if isinstance(incoming.type, EdgeType)]
    asked = [(f"{edge.type_key} {end}", edge, end, node) for edge in edges for end, node in _ends(edge)]
    if not asked:
        return None
    nodes = {node: _node_lanes(tables, node) for _, _, _, node in asked}
    known = {node: [lane.name for lane in lanes] for node, lanes in nodes.items()}
    lanes = [lane for found in nodes.values() for lane in found]
    lanes += [Lane(name, tables.fresh(edge.type_key, [end]), (end,)) for name, edge, end, _ in asked]
    told = [(name, edge.type_key, edge.name, end, node) for name, edge, end, node in asked]

    def receive(rows: Mapping[str, pa.Table]) -> Iterator[pa.Table]:
        for lane, key, name, end, node in told:
            lost = matching.missing(rows[lane], end, [rows[other] for other in known[node]])
            reasons = pc.binary_join_element_wise(
                f"edge {name}: {end} '", lost.column(end), f"' not found in {node}", ""
            )
            same = ([value] * lost.num_rows for value in (key, end))
            yield pa.table([*same, reasons, lost.column(PLACE)], schema=_LOST)

    def verdict(lost: DataFrame) -> DataFrame:
        # An edge that dangles at both ends is refused once, for its source.
        order = F.when(F.col("property") == "src", 0).otherwise(1)
        first = [F.min_by(name, order).alias(name) for name in ("property", "reason")]
        return lost.groupBy("type", PLACE).agg(*first).select("type", PLACE, "property", "reason")

    return Question(exchange(tables.spark, lanes, receive, _LOST), verdict)


def refuse_orphans(tables: IncomingTables, node: IncomingType) -> None:
    """Edges that stay while the run replaces the type of a node they end in, and drops that node."""
    if not isinstance(node.type, NodeType) or not node.replaces or not node.base.rows:
        return
    name = node.type.name
    for edge in tables.catalog.incident_edges(name):
        if edge.type_key in tables.by_key:
            continue
        for end, _ in (found for found in _ends(edge) if found[1] == name):
            lost = _orphans(tables, edge, end, name).orderBy("id").limit(1).collect()
            if lost:
                raise BadRequestError(
                    f"edge {edge.name} '{lost[0][0]}' would be orphaned: {end} '{lost[0][1]}' not found in {name}"
                    f"; keep the node, or load {edge.name} in the same overwrite"
                )


def _orphans(tables: IncomingTables, edge: EdgeType, end: str, node: str) -> DataFrame:
    """Committed edges, as `id` and the id they end in, that lead to no node of the run."""
    edges = tables.committed(edge.type_key, ["id", end])

    def receive(rows: Mapping[str, pa.Table]) -> Iterator[pa.Table]:
        yield matching.missing(rows[_OLD], end, [rows[_NEW]]).select(["id", end])

    lanes = [Lane(_OLD, edges, (end,)), Lane(_NEW, tables.fresh(f"node:{node}", ["id"]), ("id",))]
    schema = edges.transport_schema
    return exchange(tables.spark, lanes, receive, pa.schema([schema.field("id"), schema.field(end)]))


def _ends(edge: EdgeType) -> tuple[tuple[str, str], ...]:
    return (("src", edge.from_type), ("dst", edge.to_type))


def _node_lanes(tables: IncomingTables, node: str) -> list[Lane]:
    """Ids of a node type in the graph as the run would leave it. May hold an id twice."""
    key = f"node:{node}"
    scans = {_NEW: tables.fresh(key, ["id"]), _OLD: tables.stored(key, ["id"])}
    return [Lane(f"{key} {name}", scan, ("id",)) for name, scan in scans.items()]


# Cardinality


def outside_cardinality(tables: IncomingTables, key: str) -> Question | None:
    """Incoming edges that leave a source with too many or too few edges. None when the type has no bounds.

    Of too many, the earliest stay. Of too few, every incoming edge of the source goes, and so does every incoming
    edge that moves a stored one away from its source.
    """
    edge = tables.by_key[key].type
    if not isinstance(edge, EdgeType) or edge.cardinality == _UNBOUNDED:
        return None

    def verdict(suspects: DataFrame) -> DataFrame:
        rows = suspects.where(f"not {STORED.name}").drop(STORED.name)
        stored = suspects.where(STORED.name).select("id", "src")
        staying = _staying(tables, key, stored).groupBy("src").agg(F.count("*").alias("kept"))
        gained = rows.groupBy("src").agg(F.count("*").alias("gained"))
        totals = gained.join(staying, "src", "left").select("src", "gained", F.coalesce("kept", F.lit(0)).alias("kept"))
        counted = totals.withColumn("total", F.col("gained") + F.col("kept"))
        found = _over(edge, rows, counted)
        if edge.cardinality.minimum:
            found = found.unionByName(_under(tables, edge, rows, stored, counted))
        return found.dropDuplicates([PLACE])

    return Question(_counted_edges(tables, edge), verdict)


def _counted_edges(tables: IncomingTables, edge: EdgeType) -> DataFrame:
    """Edges of sources that have many of them; all edges where a source could have too few."""
    key, columns = edge.type_key, ["id", "src"]
    most = edge.cardinality.maximum
    if most is not None and not edge.cardinality.minimum:
        return _crowded(tables, key, columns, ["src"], most)
    sides = ((tables.fresh(key, columns), False), (tables.stored(key, columns), True))
    return all_of([tables.frame(scan).withColumn(STORED.name, F.lit(stored)) for scan, stored in sides])


def _over(edge: EdgeType, rows: DataFrame, counted: DataFrame) -> DataFrame:
    most = edge.cardinality.maximum
    over = counted.where(F.lit(False) if most is None else F.col("total") > most)
    ranked = rows.join(over, "src").withColumn("rank", F.row_number().over(Window.partitionBy("src").orderBy(PLACE)))
    return _refused(
        edge.type_key,
        ranked.where(F.col("rank") + F.col("kept") > (most or 0)),
        "src",
        _card_reason(edge, f"max {most}"),
    )


def _under(tables: IncomingTables, edge: EdgeType, rows: DataFrame, stored: DataFrame, counted: DataFrame) -> DataFrame:
    least = edge.cardinality.minimum
    reason = _card_reason(edge, f"min {least}")
    few = counted.where(F.col("total") < least)
    gaining = _refused(edge.type_key, rows.join(few, "src"), "src", reason)
    if tables.by_key[edge.type_key].replaces:
        before = tables.frame(tables.committed(edge.type_key, ["src"])).select("src").distinct()
        lost = before.join(counted.select("src"), "src", "left_anti")
        nodes = all_of([tables.frame(lane.scan).select("id") for lane in _node_lanes(tables, edge.from_type)])
        lost = lost.join(nodes.withColumnRenamed("id", "src"), "src", "left_semi")
        first = lost.orderBy("src").limit(1).collect()
        if first:
            raise BadRequestError(
                f"@card violation on edge {edge.name}: source '{first[0][0]}' has 0 edges (min {least})"
            )
        return gaining
    left = stored.withColumnRenamed("src", "left").join(rows, "id").where(F.col("left") != F.col("src"))
    after = _staying(tables, edge.type_key, stored).groupBy("src").agg(F.count("*").alias("kept"))
    arriving = rows.groupBy("src").agg(F.count("*").alias("gained"))
    total = F.coalesce("kept", F.lit(0)) + F.coalesce("gained", F.lit(0))
    totals = after.join(arriving, "src", "full").select(F.col("src").alias("left"), total.alias("total"))
    moved = left.drop("src").join(totals, "left", "left").withColumn("total", F.coalesce("total", F.lit(0)))
    moving = _refused(
        edge.type_key, moved.where(F.col("total") < least).withColumnRenamed("left", "src"), "src", reason
    )
    return gaining.unionByName(moving)


def _card_reason(edge: EdgeType, bound: str) -> Column:
    return F.concat(
        F.lit(f"@card violation on edge {edge.name}: source '"),
        F.col("src"),
        F.lit("' has "),
        F.col("total").cast("string"),
        F.lit(f" edges ({bound})"),
    )


def _refused(key: str, rows: DataFrame, property: str | None, reason: Column) -> DataFrame:
    named = F.lit(property).cast("string").alias("property")
    return rows.select(F.lit(key).alias("type"), PLACE, named, reason.alias("reason"))


def _unique_reason(type_: TableType, members: Sequence[str], columns: Sequence[str], holder: Column) -> Column:
    shown = [_shown(type_, name, column) for name, column in zip(members, columns, strict=True)]
    if len(members) == 1:
        named, value = members[0], shown[0]
    else:
        named = f"({', '.join(members)})"
        value = F.concat(F.lit("("), F.concat_ws(", ", *shown), F.lit(")"))
    return F.concat(
        F.lit(f"@unique violation on {type_.name}.{named}: value '"),
        value,
        F.lit("' held by '"),
        holder,
        F.lit("' and '"),
        F.col("id"),
        F.lit("'"),
    )


def _shown(type_: TableType, name: str, column: str) -> Column:
    value = F.col(f"`{column}`")
    prop = type_.properties.get(name)
    if prop is not None and prop.type.scalar is Scalar.DATETIME:
        return F.date_format(value, "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")
    return value.cast("string")


def _key_members(type_: TableType) -> tuple[str, ...]:
    return type_.key if isinstance(type_, NodeType) else ()


def _key_columns(type_: TableType) -> list[str]:
    """Where the members of a key are read: a single text is the id itself."""
    names = _key_members(type_)
    if len(names) == 1 and type_.properties[names[0]].type.scalar is Scalar.STRING:
        return ["id"]
    return [_column(type_, name) for name in names]


def _refuse_incomparable(type_: TableType, members: Sequence[str]) -> None:
    for name in members:
        prop = type_.properties.get(name)
        if prop is not None and (prop.type.list or prop.type.is_vector or prop.type.is_blob):
            raise BadRequestError(f"@unique on {type_.name}.{name}: unsupported column type {prop.type}")


def _column(type_: TableType, name: str) -> str:
    column = column_of(type_, name)
    if column is None:
        raise BadRequestError(f"a rule of {type_.name} names '{name}', which the type does not have")
    return column
