"""The order in which the incoming rows of a run are judged, until all that is left is valid together.

Ids first, then uniqueness, endpoints and cardinality. The order matters: a refused node takes the edges that end in
it along. Only where refused rows would have replaced stored ones is everything judged once more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from omnigraph.engine.receipts import LoadMode
from omnigraph.language.catalog import NodeType
from omnigraph.pipeline import checks
from omnigraph.pipeline.incoming import IncomingTables
from omnigraph.pipeline.model import Duplicates, Pipeline
from omnigraph.pipeline.rejections import refused_by_checks


class Judgement:
    """Judges the tables of one attempt. `refuse` is told of refused rows and raises when the run must end."""

    def __init__(
        self,
        tables: IncomingTables,
        pipeline: Pipeline,
        outcomes: Mapping[str, DataFrame],
        refuse: Callable[[int, DataFrame], None],
    ) -> None:
        self._tables = tables
        self._pipeline = pipeline
        self._outcomes = outcomes
        self._refuse = refuse
        self.frames: list[DataFrame] = []
        self.rejected = 0
        self.rejected_by_type: dict[str, int] = {}
        self.superseded: dict[str, int] = {}
        self._replacing: list[str] = []
        self._matches: DataFrame | None = None
        self._kept: list[DataFrame] = []

    def judge(self) -> None:
        keys = [key for key in sorted(self._tables.by_key) if self._may_meet(key)]
        if keys:
            self._judge_ids(keys)
        refused = self._judge_rules()
        # A refused row that would have replaced a stored one brings that one back, which may break a rule anew.
        while refused and self._replacing:
            refused = self._judge_rules()
        for node in list(self._tables.types("node")):
            checks.refuse_orphans(self._tables, node)
        for key in self._replacing:
            self._replace_stored(key)

    def release(self) -> None:
        """Let go of what Spark kept; the frames of refused rows can't be read afterwards."""
        for frame in self._kept:
            frame.unpersist()

    def _keep(self, frame: DataFrame) -> DataFrame:
        self._kept.append(frame.persist(StorageLevel.DISK_ONLY))
        return self._kept[-1]

    def _may_meet(self, key: str) -> bool:
        """Whether an id of this type can occur twice or be stored already; ids that the run made up can't."""
        type_ = self._tables.by_key[key].type
        if isinstance(type_, NodeType) and type_.key:
            return True
        graph_sources = any(source.is_graph for source in self._pipeline.sources.values())
        return graph_sources or any("id" in m.select for m in self._pipeline.mappings if m.type_key == key)

    def _judge_ids(self, keys: list[str]) -> None:
        self._matches = matches = self._keep(checks.id_matches(self._tables, keys))
        repeated, stored = F.count(F.when(F.col("times") > 1, 1)), F.count("stored")
        mode = self._pipeline.mode
        for key, repeats, taken in sorted(matches.groupBy("type").agg(repeated, stored).collect()):
            if repeats:
                last = self._pipeline.quality.duplicates_in(mode) is Duplicates.LAST
                found = checks.repeats(self._tables, key, matches, keep_last=last)
                if last:
                    self.superseded[key] = self._tables.take_out(key, found)
                else:
                    self._take_out(found)
            if taken and mode is LoadMode.APPEND:
                self._take_out(checks.taken_ids(self._tables, key, matches))
            elif taken:
                self._replacing.append(key)

    def _judge_rules(self) -> int:
        """One job asks all rules of all types, and most runs end there.

        What it found is right up to the first rule that refuses rows; later rules are asked again on what is left.
        """
        rules = (self._shared_values, self._dangling, self._outside_cardinality)
        found = [frame.withColumn("rule", F.lit(n)) for n, rule in enumerate(rules) for frame in rule()]
        if not found:
            return 0
        together = self._keep(checks.all_of(found))
        broken = {row[0] for row in together.select("rule").distinct().collect()}
        refused = 0
        for number, rule in enumerate(rules):
            if not refused and number in broken:
                refused += self._take_out(together.where(F.col("rule") == number).drop("rule"))
            elif refused and (frames := rule()):
                refused += self._take_out(checks.all_of(frames))
        return refused

    def _shared_values(self) -> list[DataFrame]:
        tables = self._tables
        return [
            checks.shared_values(tables, key, members)
            for key in sorted(tables.by_key)
            for members in tables.by_key[key].type.uniques
        ]

    def _dangling(self) -> list[DataFrame]:
        return [checks.dangling(self._tables, edge.key) for edge in self._tables.types("edge")]

    def _outside_cardinality(self) -> list[DataFrame]:
        found = (checks.outside_cardinality(self._tables, edge.key) for edge in self._tables.types("edge"))
        return [frame for frame in found if frame is not None]

    def _take_out(self, found: DataFrame) -> int:
        """Refuse rows, of any types, that a check found."""
        found = self._keep(found.dropDuplicates(["type", "_fragment", "_offset"]))
        counts = {row[0]: row[1] for row in found.groupBy("type").count().collect()}
        for key, count in sorted(counts.items()):
            places = found.where(F.col("type") == key).drop("type")
            all_rows = self._tables.address(self._tables.by_key[key].all_rows)
            self.frames.append(refused_by_checks(places, self._positions(key), all_rows, key))
            self.rejected += count
            self.rejected_by_type[key] = self.rejected_by_type.get(key, 0) + count
            self._refuse(self.rejected, self.frames[-1])
            self._tables.take_out(key, places)
        return sum(counts.values())

    def _positions(self, key: str) -> DataFrame:
        """Per incoming fragment of a type, the row numbers of its rows."""
        incoming = self._tables.by_key[key]
        numbers = {(f.order, f.first): number for number, f in incoming.fragments.items()}
        frames = []
        for name, outcomes in self._outcomes.items():
            order, source = name.split("\t")
            ids = [(first, number) for (at, first), number in numbers.items() if at == int(order)]
            if ids:
                known = self._tables.spark.createDataFrame(ids, "first long, _fragment int")
                written = outcomes.where(F.col("kind") == "fragment").where(F.col("type") == key)
                joined = written.join(F.broadcast(known), "first")
                frames.append(joined.select("_fragment", F.lit(source).alias("source"), "positions"))
        return checks.all_of(frames)

    def _replace_stored(self, key: str) -> None:
        """Take out the stored rows whose id comes in again. Refused rows no longer replace anything."""
        matches = self._matches
        if matches is None or self.rejected_by_type.get(key):
            matches = checks.id_matches(self._tables, [key])
        places = checks.stored_places(matches.where(F.col("type") == key))
        self._tables.note_updated(key, self._tables.take_out(key, places))
