"""The order in which the incoming rows of a run are judged, until all that is left is valid together.

Ids first, then uniqueness, endpoints and cardinality, again and again while rows are being refused: a refused row may
have been what made another one valid. A run without bad rows is judged once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from omnigraph.engine.receipts import LoadMode
from omnigraph.language.catalog import EdgeType, NodeType
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
        self._replacing: dict[str, DataFrame] = {}

    def judge(self) -> None:
        for key in sorted(self._tables.by_key):
            if self._may_meet(key):
                self._judge_ids(key)
        refused = self._judge_rules()
        while refused:
            refused = self._judge_rules()
        for node in list(self._tables.types("node")):
            checks.refuse_orphans(self._tables, node)
        for key in sorted(self._replacing):
            self._replace_stored(key)

    def _may_meet(self, key: str) -> bool:
        """Whether an id of this type can occur twice or be stored already; ids that the run made up can't."""
        type_ = self._tables.by_key[key].type
        if isinstance(type_, NodeType) and type_.key:
            return True
        graph_sources = any(source.is_graph for source in self._pipeline.sources.values())
        return graph_sources or any("id" in m.select for m in self._pipeline.mappings if m.type_key == key)

    def _judge_ids(self, key: str) -> None:
        matches = checks.id_matches(self._tables, key).persist(StorageLevel.DISK_ONLY)
        repeated, stored = matches.agg(
            F.count(F.when(F.col("times") > 1, 1)), F.count(F.when(F.col("stored").isNotNull(), 1))
        ).collect()[0]
        mode = self._pipeline.mode
        if repeated:
            last = self._pipeline.quality.duplicates_in(mode) is Duplicates.LAST
            found = checks.repeats(self._tables, key, matches, keep_last=last)
            if last:
                self.superseded[key] = self._tables.take_out(key, found)
            else:
                self._take_out(key, found)
        if stored and mode is LoadMode.APPEND:
            self._take_out(key, checks.taken_ids(self._tables, key, matches))
        elif stored:
            self._replacing[key] = matches

    def _judge_rules(self) -> int:
        tables = self._tables
        refused = 0
        for key in sorted(tables.by_key):
            for members in tables.by_key[key].type.uniques:
                refused += self._take_out(key, checks.shared_values(tables, key, members))
        for edge in list(tables.types("edge")):
            for end in ("src", "dst"):
                refused += self._take_out(edge.key, checks.dangling(tables, edge.key, end))
        for edge in list(tables.types("edge")):
            if isinstance(edge.type, EdgeType) and (found := checks.outside_cardinality(tables, edge.key)) is not None:
                refused += self._take_out(edge.key, found)
        return refused

    def _take_out(self, key: str, found: DataFrame) -> int:
        found = found.persist(StorageLevel.DISK_ONLY)
        count = found.count()
        if count:
            incoming = self._tables.by_key[key]
            described = refused_by_checks(
                found, self._positions(key), self._tables.address(incoming.all_rows), key
            ).persist(StorageLevel.DISK_ONLY)
            self.frames.append(described)
            self.rejected += count
            self.rejected_by_type[key] = self.rejected_by_type.get(key, 0) + count
            self._refuse(self.rejected, described)
            self._tables.take_out(key, found)
        return count

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
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.unionByName(frame)
        return whole

    def _replace_stored(self, key: str) -> None:
        """Take out the stored rows whose id comes in again. Refused rows no longer replace anything."""
        matches = self._replacing[key]
        if self.rejected_by_type.get(key):
            matches = checks.id_matches(self._tables, key)
        replaced = matches.where("stored is not null").select("stored._fragment", "stored._offset")
        self._tables.note_updated(key, self._tables.take_out(key, replaced))
