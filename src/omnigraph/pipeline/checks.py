"""Rules that span rows, as Spark joins: ids, uniqueness, endpoints, cardinality.

The same rules and words as `engine.constraints`, which judges changes that fit in memory. Each function returns the
rows to refuse, by place, with the reason; nothing is removed here. Joins carry ids and places, never whole rows. A
violation that no incoming row can be blamed for raises at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.window import Window

from omnigraph.engine.columns import column_of
from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import Cardinality, EdgeType, NodeType, TableType
from omnigraph.language.types import Scalar
from omnigraph.pipeline.incoming import IncomingTables, IncomingType

_UNBOUNDED = Cardinality()
_OFFSET_BITS = 32


def _place() -> Column:
    """Fragment and offset as one number in input order: Spark hashes numbers where it would have to sort structs."""
    return F.shiftleft(F.col("_fragment").cast("long"), _OFFSET_BITS).bitwiseOR(F.col("_offset"))


def stored_places(matches: DataFrame) -> DataFrame:
    """Where the stored rows of some matches stand."""
    fragment = F.shiftright("stored", _OFFSET_BITS).cast("int")
    offset = F.col("stored").bitwiseAND(F.lit((1 << _OFFSET_BITS) - 1))
    return matches.where("stored is not null").select(fragment.alias("_fragment"), offset.alias("_offset"))


def id_matches(tables: IncomingTables, keys: Sequence[str]) -> DataFrame:
    """Ids by `type` that come in more than once or are stored already, with `first`, `last` and `stored` places.

    One shuffle of ids answers three questions: repeats, conflicts of an append, replaced rows of a merge.
    """
    nowhere = F.lit(None).cast("long")
    parts = []
    for key in keys:
        type_ = F.lit(key).alias("type")
        parts.append(tables.fresh(key, ["id"]).select(type_, "id", _place().alias("new"), nowhere.alias("old")))
        if tables.has_stored(key):
            parts.append(tables.stored(key, ["id"]).select(type_, "id", nowhere.alias("new"), _place().alias("old")))
    return (
        all_of(parts)
        .groupBy("type", "id")
        .agg(
            F.count("new").alias("times"),
            F.min("new").alias("first"),
            F.max("new").alias("last"),
            F.max("old").alias("stored"),
        )
        .where("times > 1 or (times = 1 and stored is not null)")
    )


def all_of(frames: Sequence[DataFrame]) -> DataFrame:
    """Every row of frames that have the same columns."""
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionByName(frame)
    return whole


def repeats(tables: IncomingTables, key: str, matches: DataFrame, *, keep_last: bool) -> DataFrame:
    """Incoming rows whose id another incoming row holds as well: all but the last, or all but the first."""
    incoming = tables.by_key[key]
    names = _key_members(incoming.type)
    columns = [_column(incoming.type, name) for name in names]
    repeated = matches.where((F.col("type") == key) & (F.col("times") > 1)).select(
        "id", F.col("last" if keep_last else "first").alias("kept")
    )
    rows = tables.fresh(key, list(dict.fromkeys(["id", *columns]))).join(repeated, "id")
    later = rows.where(_place() != F.col("kept"))
    if names:
        reason = _unique_reason(incoming.type, names, columns, F.col("id"))
    else:
        reason = F.concat(F.lit(f"the input holds the {key} id '"), F.col("id"), F.lit("' more than once"))
    return _refused(key, later, names[0] if len(names) == 1 else "id", reason)


def taken_ids(tables: IncomingTables, key: str, matches: DataFrame) -> DataFrame:
    """Incoming rows of an append whose id is stored already."""
    taken = matches.where((F.col("type") == key) & F.col("stored").isNotNull()).select("id")
    rows = tables.fresh(key, ["id"]).join(taken, "id")
    return _refused(key, rows, "id", F.concat(F.lit(f"{key} already holds the id '"), F.col("id"), F.lit("'")))


def shared_values(tables: IncomingTables, key: str, members: tuple[str, ...]) -> DataFrame:
    """Incoming rows that share a `@unique` tuple with an earlier incoming row, or with a stored row that stays."""
    incoming = tables.by_key[key]
    columns = [_column(incoming.type, name) for name in members]
    _refuse_incomparable(incoming.type, members)
    wanted = list(dict.fromkeys(["id", *columns]))
    rows = tables.fresh(key, wanted).dropna(subset=columns).withColumn("place", _place())
    groups = rows.groupBy(*columns).agg(
        F.count("*").alias("times"), F.min("place").alias("first"), F.min_by("id", "place").alias("holder")
    )
    told = ["_fragment", "_offset", "holder", *wanted]
    clashes = [rows.join(groups.where("times > 1"), columns).where("place != first").select(*told)]
    if tables.has_stored(key):
        stored = tables.stored(key, wanted).dropna(subset=columns)
        staying = stored.join(tables.fresh(key, ["id"]).select("id"), "id", "left_anti")
        holders = staying.select(*columns, F.col("id").alias("holder"))
        clashes.append(rows.join(holders, columns).select(*told))
    once = (
        all_of(clashes)
        .groupBy("_fragment", "_offset")
        .agg(F.min("holder").alias("holder"), *(F.first(column).alias(column) for column in wanted))
    )
    reason = _unique_reason(incoming.type, members, columns, F.col("holder"))
    return _refused(key, once, members[0] if len(members) == 1 else None, reason)


def dangling(tables: IncomingTables, key: str) -> DataFrame:
    """Incoming edges whose `src` or `dst` is neither an incoming node nor a stored one that stays."""
    edge = tables.by_key[key].type
    if not isinstance(edge, EdgeType):
        raise AssertionError(f"{key} is no edge type")
    ends = {"src": edge.from_type, "dst": edge.to_type}
    lost = []
    # One join per node type: both ends of an edge between nodes of one type are looked up together.
    for node in sorted(set(ends.values())):
        named = [
            tables.fresh(key, [end]).select(F.lit(end).alias("end"), F.col(end).alias("id"), "_fragment", "_offset")
            for end in ends
            if ends[end] == node
        ]
        missing = all_of(named).join(node_ids(tables, node).hint("shuffle_hash"), "id", "left_anti")
        reason = F.concat(
            F.lit(f"edge {edge.name}: "), F.col("end"), F.lit(" '"), F.col("id"), F.lit(f"' not found in {node}")
        )
        lost.append(missing.select("_fragment", "_offset", F.col("end").alias("property"), reason.alias("reason")))
    # An edge that dangles at both ends is refused once, for its source.
    order = F.when(F.col("property") == "src", 0).otherwise(1)
    first = (
        all_of(lost)
        .groupBy("_fragment", "_offset")
        .agg(F.min_by("property", order).alias("property"), F.min_by("reason", order).alias("reason"))
    )
    return first.select(F.lit(key).alias("type"), "_fragment", "_offset", "property", "reason")


def node_ids(tables: IncomingTables, node: str) -> DataFrame:
    """Ids of a node type in the graph as the run would leave it. May hold an id twice."""
    key = f"node:{node}"
    stored = tables.stored(key, ["id"]).select("id")
    if key not in tables.by_key:
        return stored
    fresh = tables.fresh(key, ["id"]).select("id")
    return fresh.unionAll(stored) if tables.has_stored(key) else fresh


def refuse_orphans(tables: IncomingTables, node: IncomingType) -> None:
    """Edges that stay while the run replaces the type of a node they end in, and drops that node."""
    if not isinstance(node.type, NodeType) or not node.replaces or not node.base.rows:
        return
    for edge in tables.catalog.incident_edges(node.type.name):
        if edge.type_key in tables.by_key:
            continue
        for end, name in (("src", edge.from_type), ("dst", edge.to_type)):
            if name != node.type.name:
                continue
            present = tables.fresh(node.key, ["id"]).select(F.col("id").alias(end))
            orphans = tables.committed(edge.type_key, ["id", end]).join(present, end, "left_anti")
            first = orphans.orderBy("id").select("id", end).limit(1).collect()
            if first:
                raise BadRequestError(
                    f"edge {edge.name} '{first[0][0]}' would be orphaned: {end} '{first[0][1]}' not found in {name}"
                    f"; keep the node, or load {edge.name} in the same overwrite"
                )


def outside_cardinality(tables: IncomingTables, key: str) -> DataFrame | None:
    """Incoming edges that leave a source with too many or too few edges. None when the type has no bounds.

    Of too many, the earliest stay. Of too few, every incoming edge of the source goes, and so does every incoming
    edge that moves a stored one away from its source.
    """
    edge = tables.by_key[key].type
    if not isinstance(edge, EdgeType) or edge.cardinality == _UNBOUNDED:
        return None
    rows = tables.fresh(key, ["id", "src"])
    stored = tables.stored(key, ["id", "src"]).select("id", "src")
    staying = stored.join(rows.select("id"), "id", "left_anti").groupBy("src").agg(F.count("*").alias("kept"))
    gained = rows.groupBy("src").agg(F.count("*").alias("gained"))
    totals = gained.join(staying, "src", "left").select("src", "gained", F.coalesce("kept", F.lit(0)).alias("kept"))
    counted = totals.withColumn("total", F.col("gained") + F.col("kept"))
    found = _over(edge, rows, counted)
    if edge.cardinality.minimum:
        found = found.unionByName(_under(tables, edge, rows, stored, counted))
    return found.dropDuplicates(["_fragment", "_offset"])


def _over(edge: EdgeType, rows: DataFrame, counted: DataFrame) -> DataFrame:
    most = edge.cardinality.maximum
    over = counted.where(F.lit(False) if most is None else F.col("total") > most)
    ranked = rows.join(over, "src").withColumn(
        "rank", F.row_number().over(Window.partitionBy("src").orderBy("_fragment", "_offset"))
    )
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
        before = tables.committed(edge.type_key, ["src"]).select("src").distinct()
        lost = before.join(counted.select("src"), "src", "left_anti")
        lost = lost.join(node_ids(tables, edge.from_type).withColumnRenamed("id", "src"), "src", "left_semi")
        first = lost.orderBy("src").limit(1).collect()
        if first:
            raise BadRequestError(
                f"@card violation on edge {edge.name}: source '{first[0][0]}' has 0 edges (min {least})"
            )
        return gaining
    left = stored.withColumnRenamed("src", "left").join(rows, "id").where(F.col("left") != F.col("src"))
    after = stored.join(rows.select("id"), "id", "left_anti").groupBy("src").agg(F.count("*").alias("kept"))
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
    return rows.select(F.lit(key).alias("type"), "_fragment", "_offset", named, reason.alias("reason"))


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
