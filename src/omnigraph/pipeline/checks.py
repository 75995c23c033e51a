"""Rules that span rows, judged on executors: ids, uniqueness, endpoints, cardinality.

The same rules and words as `engine.constraints`, which judges changes that fit in memory. Each rule is asked as a
`Question`: keys that may break it are found first, and only their rows are looked at closely, with Spark's joins.
Rows to refuse are told by place, with the reason; nothing is removed here. A violation that no incoming row can be
blamed for raises at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.window import Window

from omnigraph.engine.bulk.places import PLACE
from omnigraph.engine.bulk.staged_run import IncomingType
from omnigraph.engine.columns import column_of
from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import Cardinality, EdgeType, NodeType, TableType
from omnigraph.language.types import Scalar
from omnigraph.pipeline import matching
from omnigraph.pipeline.ends import lost_ends
from omnigraph.pipeline.exchange import Lane, exchange
from omnigraph.pipeline.incoming import IncomingTables
from omnigraph.pipeline.matching import ROLE
from omnigraph.pipeline.scanning import KeyFilter, TableScan
from omnigraph.pipeline.suspicion import Suspects, crowded_keys, suspects

_UNBOUNDED = Cardinality()
_NEW, _OLD = "new", "old"


@dataclass(frozen=True, slots=True)
class Question:
    """A rule of one type: who may break it, None for everybody, and the verdict on the rows of suspects."""

    suspicion: DataFrame | None
    verdict: Callable[[Suspects], DataFrame]


def all_of(frames: Sequence[DataFrame]) -> DataFrame:
    """Every row of frames that have the same columns."""
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionByName(frame)
    return whole


# Ids


def met_ids(tables: IncomingTables, key: str, *, merges: bool, keep_last: bool) -> Question:
    """Rows of a type whose id comes in more than once or is stored already, each with its role.

    It answers three questions: repeats, conflicts of an append, replaced rows of a merge.
    """
    new, old = tables.fresh(key, {"id": "id", **_key_columns(tables.by_key[key].type)}), tables.stored(key, ["id"])

    def verdict(found: Suspects) -> DataFrame:
        def receive(rows: Mapping[str, pa.Table]) -> Iterator[pa.RecordBatch]:
            yield from matching.met_ids(rows[_NEW], rows[_OLD], keep_last=keep_last).to_batches()

        lanes = [Lane(name, _among(scan, ["id"], found), ("id",)) for name, scan in ((_NEW, new), (_OLD, old))]
        return exchange(tables.spark, lanes, receive, pa.schema([*new.transport_schema, ROLE]))

    # A merge expects to meet most of what is stored, so that looking for suspects would be in vain.
    if merges and old.fragment_ids:
        return Question(None, verdict)
    return Question(crowded_keys(tables.spark, [new, old], ["id"], 1), verdict)


def repeats(tables: IncomingTables, key: str, met: DataFrame) -> DataFrame:
    """Incoming rows whose id another incoming row holds as well, without the one that stays."""
    type_ = tables.by_key[key].type
    names = _key_members(type_)
    if names:
        reason = _unique_reason(type_, names, list(_key_columns(type_).values()), F.col("id"))
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
    named = _columns(type_, members)
    columns, wanted = list(named.values()), {"id": "id", **named}
    new, old = tables.fresh(key, wanted), tables.stored(key, wanted)

    def verdict(found: Suspects) -> DataFrame:
        rows, stored = (tables.frame(_among(scan, columns, found)).dropna(subset=columns) for scan in (new, old))
        groups = rows.groupBy(*columns).agg(
            F.count("*").alias("times"), F.min(PLACE).alias("first"), F.min_by("id", PLACE).alias("holder")
        )
        told = [PLACE, "holder", *wanted.values()]
        within = rows.join(groups.where("times > 1"), columns).where(F.col(PLACE) != F.col("first"))
        holders = _staying(tables, key, stored).select(*columns, F.col("id").alias("holder"))
        once = (
            all_of([within.select(*told), rows.join(holders, columns).select(*told)])
            .groupBy(PLACE)
            .agg(F.min("holder").alias("holder"), *(F.first(column).alias(column) for column in wanted.values()))
        )
        reason = _unique_reason(type_, members, columns, F.col("holder"))
        return _refused(key, once, members[0] if len(members) == 1 else None, reason)

    return Question(crowded_keys(tables.spark, [new, old], columns, 1), verdict)


def _among(scan: TableScan, key: Sequence[str], suspects: Suspects) -> TableScan:
    return scan if suspects is None else replace(scan, among=KeyFilter(tuple(key), suspects))


def _staying(tables: IncomingTables, key: str, stored: DataFrame) -> DataFrame:
    """Stored rows that no incoming row replaces."""
    return stored.join(tables.frame(tables.fresh(key, ["id"])).select("id"), "id", "left_anti")


# Ends of edges


def dangling(tables: IncomingTables, edge: EdgeType) -> Question:
    """Incoming edges whose `src` or `dst` is neither an incoming node nor a stored one that stays."""
    ends = _ends(edge)
    edges = tables.fresh(edge.type_key, list(ends))
    nodes = {node: _node_ids(tables, node) for node in ends.values()}

    def verdict(found: Suspects) -> DataFrame:
        refused = []
        for end, node in ends.items():
            known = all_of([tables.frame(_among(scan, ["id"], found)).select("id") for scan in nodes[node]])
            rows = tables.frame(_among(replace(edges, columns=(end,)), [end], found))
            missing = rows.join(known.withColumnRenamed("id", end), end, "left_anti")
            reason = F.concat(F.lit(f"edge {edge.name}: {end} '"), F.col(end), F.lit(f"' not found in {node}"))
            refused.append(_refused(edge.type_key, missing, end, reason))
        return all_of(refused)

    return Question(lost_ends(tables.spark, replace(edges, places=False), ends, nodes), verdict)


def refuse_orphans(tables: IncomingTables, node: IncomingType) -> None:
    """Edges that stay while the run replaces the type of a node they end in, and drops that node."""
    if not isinstance(node.type, NodeType) or not node.replaces or not node.base.rows:
        return
    name = node.type.name
    for edge in tables.catalog.incident_edges(name):
        if edge.type_key in tables.by_key:
            continue
        for end in (end for end, node in _ends(edge).items() if node == name):
            lost = _orphans(tables, edge, end, name)
            if lost:
                raise BadRequestError(
                    f"edge {edge.name} '{lost[0][0]}' would be orphaned: {end} '{lost[0][1]}' not found in {name}"
                    f"; keep the node, or load {edge.name} in the same overwrite"
                )


def _orphans(tables: IncomingTables, edge: EdgeType, end: str, node: str) -> list[Row]:
    """The first committed edge, as its id and the id it ends in, that leads to no node of the run."""
    edges, nodes = tables.committed(edge.type_key, ["id", end]), tables.fresh(f"node:{node}", ["id"])
    asking = replace(edges, columns=(end,), places=False)
    (found,) = suspects([lost_ends(tables.spark, asking, {end: node}, {node: [replace(nodes, places=False)]})])
    if found is not None and not len(found):
        return []
    present = tables.frame(_among(nodes, ["id"], found)).select(F.col("id").alias(end))
    orphans = tables.frame(_among(edges, [end], found)).join(present, end, "left_anti")
    return orphans.orderBy("id").select("id", end).limit(1).collect()


def _ends(edge: EdgeType) -> dict[str, str]:
    """The node type of each end."""
    return {"src": edge.from_type, "dst": edge.to_type}


def _node_ids(tables: IncomingTables, node: str) -> list[TableScan]:
    """Ids of a node type in the graph as the run would leave it. May hold an id twice."""
    key = f"node:{node}"
    return [replace(scan, places=False) for scan in (tables.fresh(key, ["id"]), tables.stored(key, ["id"]))]


# Cardinality


def outside_cardinality(tables: IncomingTables, key: str) -> Question | None:
    """Incoming edges that leave a source with too many or too few edges. None when the type has no bounds.

    Of too many, the earliest stay. Of too few, every incoming edge of the source goes, and so does every incoming
    edge that moves a stored one away from its source.
    """
    edge = tables.by_key[key].type
    if not isinstance(edge, EdgeType) or edge.cardinality == _UNBOUNDED:
        return None

    most, columns = edge.cardinality.maximum, ["id", "src"]
    new, old = tables.fresh(key, columns), tables.stored(key, columns)

    def verdict(found: Suspects) -> DataFrame:
        rows, stored = (tables.frame(_among(scan, ["src"], found)) for scan in (new, old))
        stored = stored.select("id", "src")
        staying = _staying(tables, key, stored).groupBy("src").agg(F.count("*").alias("kept"))
        gained = rows.groupBy("src").agg(F.count("*").alias("gained"))
        totals = gained.join(staying, "src", "left").select("src", "gained", F.coalesce("kept", F.lit(0)).alias("kept"))
        counted = totals.withColumn("total", F.col("gained") + F.col("kept"))
        broken = _over(edge, rows, counted)
        if edge.cardinality.minimum:
            broken = broken.unionByName(_under(tables, edge, rows, stored, counted))
        return broken.dropDuplicates([PLACE])

    # A source that has too few edges can't be told by the edges it has.
    if most is None or edge.cardinality.minimum:
        return Question(None, verdict)
    return Question(crowded_keys(tables.spark, [new, old], ["src"], most), verdict)


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
        nodes = all_of([tables.frame(scan) for scan in _node_ids(tables, edge.from_type)])
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
    value = F.col(column)
    prop = type_.properties.get(name)
    if prop is not None and prop.type.scalar is Scalar.DATETIME:
        # Spark shows moments in the zone of the session, the graph in UTC.
        return F.date_format(F.to_utc_timestamp(value, F.current_timezone()), "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")
    return value.cast("string")


def _key_members(type_: TableType) -> tuple[str, ...]:
    return type_.key if isinstance(type_, NodeType) else ()


def _key_columns(type_: TableType) -> dict[str, str]:
    """Where the members of a key are read, and what they are called meanwhile: a single text is the id itself."""
    names = _key_members(type_)
    if len(names) == 1 and type_.properties[names[0]].type.scalar is Scalar.STRING:
        return {"id": "id"}
    return _columns(type_, names)


def _columns(type_: TableType, names: Sequence[str]) -> dict[str, str]:
    """Columns of a rule by names of our own: Spark may not tell a graph's names apart that differ by case."""
    columns = [_column(type_, name) for name in names]
    return {c: c if c in type_.system_columns else f"member_{number}" for number, c in enumerate(columns)}


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
