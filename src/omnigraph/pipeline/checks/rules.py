"""Rules that span rows, checked on executors: ids, uniqueness, endpoints, cardinality.

The check sequence calls it. The rules and their sentences are those of `engine.write.constraints`, which checks changes
that fit in memory. A `Check` first finds the candidate keys that may break its rule and then reads only their rows,
with Spark's joins. Rows that break a rule are returned by address with the violation; nothing is removed here. A
violation that no incoming row causes raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.window import Window

from omnigraph.engine.bulk.executor import PLACE
from omnigraph.engine.bulk.scan_plans import starts_with
from omnigraph.engine.bulk.staged_run import IncomingType
from omnigraph.engine.rows.end_ids import PLAIN, TAG, IdForm, end_of_column, plain_id
from omnigraph.engine.write.constraints import incomparable, member_column
from omnigraph.errors import ConstraintError
from omnigraph.language.catalog import TAG_SIGN, Cardinality, EdgeEnd, EdgeType, NodeType, TableType
from omnigraph.language.types import FLOATS, Scalar
from omnigraph.language.violations import ORPHAN_REMEDY, Sentence, members_name, the_property, value_text
from omnigraph.pipeline.checks import id_lookup
from omnigraph.pipeline.checks.candidate_keys import CandidateKeys, Lane, candidate_keys, crowded_keys, exchange
from omnigraph.pipeline.checks.id_lookup import ROLE, missing_endpoints
from omnigraph.pipeline.execution.staged_tables import IncomingTables
from omnigraph.pipeline.spark.table_frames import KeyFilter, TableScan
from omnigraph.pipeline.spark.tasks import union_of


@dataclass(frozen=True, slots=True)
class Check:
    """A rule of one type: `candidates` finds the keys that may break it, `violations` the rows of some keys that do.
    `candidates` is None where every key is a candidate. A violation has `type`, place, `property`, `reason`, `rule`."""

    type_key: str
    candidates: DataFrame | None
    violations: Callable[[CandidateKeys], DataFrame]


# Ids


def met_ids(tables: IncomingTables, key: str, *, merges: bool, keep_last: bool) -> Check:
    """Rows of a type whose id comes in more than once or is stored already, each with its role. `repeats` and
    `taken_ids` select from them."""
    new, old = tables.fresh(key, {"id": "id", **_key_columns(tables.by_key[key].type)}), tables.scan_stored(key, ["id"])

    def violations(keys: CandidateKeys) -> DataFrame:
        def receive(rows: Mapping[str, pa.Table]) -> Iterator[pa.RecordBatch]:
            yield from id_lookup.met_ids(rows["new"], rows["stored"], keep_last=keep_last).to_batches()

        lanes = [Lane(name, _among(scan, ["id"], keys), ("id",)) for name, scan in (("new", new), ("stored", old))]
        return exchange(tables.spark, lanes, receive, pa.schema([*new.transport_schema, ROLE]))

    # A merge expects to meet most of what is stored, so almost every key would be a candidate.
    if merges and old.table.fragment_ids:
        return Check(key, None, violations)
    return Check(key, crowded_keys(tables.spark, [new, old], ["id"], 1), violations)


def repeats(tables: IncomingTables, key: str, met: DataFrame) -> DataFrame:
    """Incoming rows whose id another incoming row holds as well, without the one that stays."""
    type_ = tables.by_key[key].type
    members = type_.key
    rows = met.where(F.col(ROLE.name) == id_lookup.REPEAT)
    if not members:
        return _violations(key, rows, Sentence.REPEATED_ID, "id", type_key=key, entity_id=F.col("id"))
    columns = list(_key_columns(type_).values())
    return _sharing_violations(type_, rows, Sentence.SHARED_KEY, members, columns, F.col("id"))


def taken_ids(key: str, met: DataFrame) -> DataFrame:
    """Incoming rows of an append whose id is stored already."""
    rows = met.where(F.col(ROLE.name) == id_lookup.TAKEN)
    return _violations(key, rows, Sentence.TAKEN_ID, "id", type_key=key, entity_id=F.col("id"))


# Uniqueness


def shared_values(tables: IncomingTables, key: str, members: tuple[str, ...]) -> Check:
    """Incoming rows that share a `@unique` tuple with an earlier incoming row, or with a stored row that stays."""
    type_ = tables.by_key[key].type
    for name in members:
        prop = type_.properties.get(name)
        if prop is not None and (prop.type.list or prop.type.is_vector or prop.type.is_blob):
            raise incomparable(type_, name)
    named = _columns(type_, members)
    columns, wanted = list(named.values()), {"id": "id", **named}
    new, old = tables.fresh(key, wanted), tables.scan_stored(key, wanted)

    def violations(keys: CandidateKeys) -> DataFrame:
        rows, stored = (tables.frame(_among(scan, columns, keys)).dropna(subset=columns) for scan in (new, old))
        groups = rows.groupBy(*columns).agg(
            F.count("*").alias("times"), F.min(PLACE).alias("first"), F.min_by("id", PLACE).alias("holder")
        )
        kept = [PLACE, "holder", *wanted.values()]
        within = rows.join(groups.where("times > 1"), columns).where(F.col(PLACE) != F.col("first"))
        holders = _rows_that_stay(tables, key, stored).select(*columns, F.col("id").alias("holder"))
        once = (
            union_of([within.select(*kept), rows.join(holders, columns).select(*kept)])
            .groupBy(PLACE)
            .agg(F.min("holder").alias("holder"), *(F.first(column).alias(column) for column in wanted.values()))
        )
        return _sharing_violations(type_, once, Sentence.SHARED_VALUE, members, columns, F.col("holder"))

    return Check(key, crowded_keys(tables.spark, [new, old], columns, 1), violations)


def _among(scan: TableScan, key: Sequence[str], candidates: CandidateKeys) -> TableScan:
    return scan if candidates is None else replace(scan, among=KeyFilter(tuple(key), candidates))


def _rows_that_stay(tables: IncomingTables, key: str, stored: DataFrame) -> DataFrame:
    """Stored rows that no incoming row replaces."""
    return stored.join(tables.frame(tables.fresh(key, ["id"])).select("id"), "id", "left_anti")


# Ends of edges


def dangling_edges(tables: IncomingTables, edge: EdgeType) -> Check:
    """Incoming edges whose `src` or `dst` is neither an incoming node nor a stored one that stays."""
    groups = {end.column: _nodes_of(end) for end in edge.ends}
    named = {"src": edge.from_type, "dst": edge.to_type}
    edges = tables.fresh(edge.type_key, list(groups))
    nodes = {_nodes_of(end): [scan for node in end.types for scan in _node_ids(tables, node, end)] for end in edge.ends}

    def violations(keys: CandidateKeys) -> DataFrame:
        broken = []
        for end, group in groups.items():
            ids = union_of([tables.frame(_among(scan, ["id"], keys)).select("id") for scan in nodes[group]])
            rows = tables.frame(_among(replace(edges, columns=(end,)), [end], keys))
            missing = rows.join(ids.withColumnRenamed("id", end), end, "left_anti")
            values: dict[str, Column | str] = {"node_id": _plain_end(edge, end), "node": named[end]}
            sentence = Sentence.DANGLING_EDGE
            broken.append(_violations(edge.type_key, missing, sentence, end, type=edge.name, end=end, **values))
        return union_of(broken)

    asking = replace(edges, places=False)
    return Check(edge.type_key, missing_endpoints(tables.spark, asking, groups, nodes), violations)


def _nodes_of(end: EdgeEnd) -> str:
    """The name of the nodes that an end may be. Two ends of one node type have the same ones."""
    return end.types[0] if end.interface is None else f"@{end.column}"


def _plain_end(edge: EdgeType, column: str) -> Column:
    """The id of the node at an end as sentences show it."""
    return F.col(column) if end_of_column(edge, column) is None else F.regexp_replace(column, TAG, "")


def refuse_orphans(tables: IncomingTables, node: IncomingType) -> None:
    """Raise when an edge stays whose node the run drops, because it replaces the type of the node."""
    if not isinstance(node.type, NodeType) or not node.replaces or not node.base.rows:
        return
    name = node.type.name
    for edge in tables.catalog.incident_edges(name):
        if edge.type_key in tables.by_key:
            continue
        for end in (end for end in edge.ends if name in end.types):
            for entity_id, missing in _orphans(tables, edge, end, name):
                sentence, values = Sentence.ORPHANED_EDGE, {"entity_id": entity_id, "node_id": plain_id(end, missing)}
                reason = sentence.text(type=edge.name, end=end.column, node=name, **values)
                message = f"{reason}; {ORPHAN_REMEDY.format(type=edge.name)}"
                raise ConstraintError(sentence.rule, edge.type_key, end.column, entity_id, message=message)


def _orphans(tables: IncomingTables, edge: EdgeType, end: EdgeEnd, node: str) -> list[Row]:
    """The first committed edge, as its id and what it ends in, that leads to no node of the run."""
    form, column = IdForm.of(end, node), end.column
    edges = replace(tables.scan_committed(edge.type_key, ["id", column]), filter=_of_type(column, form))
    nodes = replace(tables.fresh(f"node:{node}", ["id"]), id_form=form)
    asking = replace(edges, columns=(column,), places=False)
    (keys,) = candidate_keys(
        [missing_endpoints(tables.spark, asking, {column: node}, {node: [replace(nodes, places=False)]})]
    )
    if keys is not None and not len(keys):
        return []
    present = tables.frame(_among(nodes, ["id"], keys)).select(F.col("id").alias(column))
    orphans = tables.frame(_among(edges, [column], keys)).join(present, column, "left_anti")
    return orphans.orderBy("id").select("id", column).limit(1).collect()


def _of_type(column: str, form: IdForm) -> str | None:
    """The filter for edges whose end has the type of a form."""
    if form == PLAIN:
        return None
    if form.tag:
        return starts_with(column, form.tag)
    return f"(NOT {starts_with(column, TAG_SIGN)} OR {starts_with(column, form.signed)})"


def _node_ids(tables: IncomingTables, node: str, end: EdgeEnd) -> list[TableScan]:
    """Ids of a node type, as an end holds them, in the graph as the run would leave it. May hold an id twice."""
    key, form = f"node:{node}", IdForm.of(end, node)
    scans = tables.fresh(key, ["id"]), tables.scan_stored(key, ["id"])
    return [replace(scan, places=False, id_form=form) for scan in scans]


# Cardinality


def outside_cardinality(tables: IncomingTables, key: str) -> Check | None:
    """Incoming edges that leave a source with too many or too few edges. None when the type has no bounds. Of too many,
    the earliest stay. Of too few, every incoming edge of the source is rejected, and so is every incoming edge that
    moves a stored one away from its source."""
    edge = tables.by_key[key].type
    if not isinstance(edge, EdgeType) or edge.cardinality == Cardinality():
        return None

    most, columns = edge.cardinality.maximum, ["id", "src"]
    new, old = tables.fresh(key, columns), tables.scan_stored(key, columns)

    def violations(keys: CandidateKeys) -> DataFrame:
        rows, stored = (tables.frame(_among(scan, ["src"], keys)) for scan in (new, old))
        stored = stored.select("id", "src")
        staying = _rows_that_stay(tables, key, stored).groupBy("src").agg(F.count("*").alias("kept"))
        gained = rows.groupBy("src").agg(F.count("*").alias("gained"))
        totals = gained.join(staying, "src", "left").select("src", "gained", F.coalesce("kept", F.lit(0)).alias("kept"))
        counted = totals.withColumn("total", F.col("gained") + F.col("kept"))
        broken = _over(edge, rows, counted)
        if edge.cardinality.minimum:
            broken = broken.unionByName(_under(tables, edge, rows, stored, counted))
        return broken.dropDuplicates([PLACE])

    # A source that has too few edges can't be found by the edges it has.
    if most is None or edge.cardinality.minimum:
        return Check(key, None, violations)
    return Check(key, crowded_keys(tables.spark, [new, old], ["src"], most), violations)


def _over(edge: EdgeType, rows: DataFrame, counted: DataFrame) -> DataFrame:
    most = edge.cardinality.maximum
    over = counted.where(F.lit(False) if most is None else F.col("total") > most)
    ranked = rows.join(over, "src").withColumn("rank", F.row_number().over(Window.partitionBy("src").orderBy(PLACE)))
    surplus = ranked.where(F.col("rank") + F.col("kept") > (most or 0))
    return _count_violations(edge, surplus, Sentence.TOO_MANY_EDGES, most or 0)


def _under(tables: IncomingTables, edge: EdgeType, rows: DataFrame, stored: DataFrame, counted: DataFrame) -> DataFrame:
    least = edge.cardinality.minimum
    few = counted.where(F.col("total") < least)
    gaining = _count_violations(edge, rows.join(few, "src"), Sentence.TOO_FEW_EDGES, least)
    if tables.by_key[edge.type_key].replaces:
        before = tables.frame(tables.scan_committed(edge.type_key, ["src"])).select("src").distinct()
        lost = before.join(counted.select("src"), "src", "left_anti")
        sources = edge.ends[0]
        scans = [scan for node in sources.types for scan in _node_ids(tables, node, sources)]
        nodes = union_of([tables.frame(scan) for scan in scans])
        lost = lost.join(nodes.withColumnRenamed("id", "src"), "src", "left_semi")
        first = lost.orderBy("src").limit(1).collect()
        if first:
            source = plain_id(sources, first[0][0])
            message = Sentence.TOO_FEW_EDGES.text(type=edge.name, source=source, count=0, bound=least)
            raise ConstraintError(Sentence.TOO_FEW_EDGES.rule, edge.type_key, "src", message=message)
        return gaining
    left = stored.withColumnRenamed("src", "left").join(rows, "id").where(F.col("left") != F.col("src"))
    after = _rows_that_stay(tables, edge.type_key, stored).groupBy("src").agg(F.count("*").alias("kept"))
    arriving = rows.groupBy("src").agg(F.count("*").alias("gained"))
    total = F.coalesce("kept", F.lit(0)) + F.coalesce("gained", F.lit(0))
    totals = after.join(arriving, "src", "full").select(F.col("src").alias("left"), total.alias("total"))
    moved = left.drop("src").join(totals, "left", "left").withColumn("total", F.coalesce("total", F.lit(0)))
    moving = moved.where(F.col("total") < least).withColumnRenamed("left", "src")
    return gaining.unionByName(_count_violations(edge, moving, Sentence.TOO_FEW_EDGES, least))


def _count_violations(edge: EdgeType, rows: DataFrame, sentence: Sentence, bound: int) -> DataFrame:
    counted = {"source": _plain_end(edge, "src"), "count": F.col("total")}
    return _violations(edge.type_key, rows, sentence, "src", type=edge.name, bound=str(bound), **counted)


# Violations


def _violations(key: str, rows: DataFrame, sentence: Sentence, field: str | None, **values: Column | str) -> DataFrame:
    """Rows that break a rule, with the sentence about each."""
    return rows.select(
        F.lit(key).alias("type"),
        PLACE,
        F.lit(field).cast("string").alias("property"),
        sentence_column(sentence, **values).alias("reason"),
        F.lit(sentence.rule.value).alias("rule"),
    )


def sentence_column(sentence: Sentence, **values: Column | str) -> Column:
    """A sentence as a column: `Sentence.text` for columns instead of Python values."""
    parts = []
    for fixed, name in sentence.pieces():
        if fixed:
            parts.append(F.lit(fixed))
        if name is not None:
            value = values[name]
            parts.append(F.lit(value) if isinstance(value, str) else value.cast("string"))
    return F.concat(*parts)


def _sharing_violations(
    type_: TableType,
    rows: DataFrame,
    sentence: Sentence,
    members: Sequence[str],
    columns: Sequence[str],
    holder: Column,
) -> DataFrame:
    texts = [_value_text(type_, name, column) for name, column in zip(members, columns, strict=True)]
    tuple_text = F.concat(F.lit("("), F.concat_ws(", ", *texts), F.lit(")"))
    names = {"type": type_.name, "property": members_name(members)}
    values = {"value": texts[0] if len(members) == 1 else tuple_text, "holder": holder, "entity_id": F.col("id")}
    return _violations(type_.type_key, rows, sentence, the_property(members), **names, **values)


def _value_text(type_: TableType, name: str, column: str) -> Column:
    """A value as sentences show it. Spark writes floats and dates in ways of its own, so Python writes these."""
    value = F.col(column)
    prop = type_.properties.get(name)
    if isinstance(type_, EdgeType) and prop is None:
        return _plain_end(type_, member_column(type_, name))
    scalar = Scalar.STRING if prop is None else prop.type.scalar
    if scalar is Scalar.DATE:
        value = F.unix_date(value)
    elif scalar is Scalar.DATETIME:
        value = F.unix_millis(value)
    elif scalar not in FLOATS:
        return value.cast("string")
    return F.udf(lambda stored: value_text(scalar, stored), "string", useArrow=False)(value)


def _key_columns(type_: TableType) -> dict[str, str]:
    """The columns of a key by the names that they have in its frames: a single text is the id itself."""
    names = type_.key
    if len(names) == 1 and type_.properties[names[0]].type.scalar is Scalar.STRING:
        return {"id": "id"}
    return _columns(type_, names)


def _columns(type_: TableType, names: Sequence[str]) -> dict[str, str]:
    """Columns of a rule by names of our own: Spark may not tell a graph's names apart that differ by case."""
    columns = [member_column(type_, name) for name in names]
    return {c: c if c in type_.system_columns else f"member_{number}" for number, c in enumerate(columns)}
