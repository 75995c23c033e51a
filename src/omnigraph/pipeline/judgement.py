"""The order in which the incoming rows of a run are judged, until all that is left is valid together.

Ids first, then uniqueness, endpoints and cardinality. The order matters: a refused node takes the edges that end in
it along. Only where refused rows would have replaced stored ones is everything judged once more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from omnigraph.api.enums import LoadMode
from omnigraph.language.catalog import EdgeType, NodeType
from omnigraph.pipeline import checks
from omnigraph.pipeline.checks import Question
from omnigraph.pipeline.incoming import IncomingTables
from omnigraph.pipeline.matching import REPEAT, ROLE, TAKEN
from omnigraph.pipeline.model import Pipeline
from omnigraph.pipeline.rejections import RefusedRows, refused_by_checks
from omnigraph.pipeline.suspicion import Suspects, suspects
from omnigraph.storage.tables.distributed import OFFSET_BITS, PLACE


@dataclass(frozen=True, slots=True)
class _Asked:
    key: str
    question: Question
    suspects: Suspects


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
        self._met: dict[str, DataFrame] = {}
        self._replacing: list[str] = []
        self._kept: list[DataFrame] = []

    def judge(self) -> None:
        # One job asks everything; most runs end there.
        ids, *rules = self._ask([self._ids(), *(rule() for rule in self._rules)])
        changed = self._judge_ids(ids)
        refused = self._judge_rules(None if changed else rules)
        # A refused row that would have replaced a stored one brings that one back, which may break a rule anew.
        while refused and self._replacing:
            refused = self._judge_rules(None)
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

    def _ask(self, rules: Sequence[Sequence[tuple[str, Question]]]) -> list[list[_Asked]]:
        """Per rule the questions that anybody is suspected in, with the suspects."""
        asked = [question.suspicion for rule in rules for _, question in rule if question.suspicion is not None]
        answers = iter(suspects(asked))
        found = []
        for rule in rules:
            answered = [(key, q, None if q.suspicion is None else next(answers)) for key, q in rule]
            found.append([_Asked(key, q, who) for key, q, who in answered if who is None or len(who)])
        return found

    def _judge_ids(self, asked: Sequence[_Asked]) -> bool:
        """Whether rows were taken out because of their ids."""
        if not asked:
            return False
        self._met = {a.key: self._keep(a.question.verdict(a.suspects)) for a in asked}
        by_role = [frame.groupBy(ROLE.name).count().withColumn("type", F.lit(key)) for key, frame in self._met.items()]
        counts = {(row["type"], row[ROLE.name]): row["count"] for row in checks.all_of(by_role).collect()}
        changed = False
        for key, met in self._met.items():
            if counts.get((key, REPEAT)):
                changed = True
                found = checks.repeats(self._tables, key, met)
                if self._keeps_last(key):
                    self.superseded[key] = self._tables.take_out(key, found)
                else:
                    self._take_out(found)
            if counts.get((key, TAKEN)):
                if self._pipeline.mode is LoadMode.APPEND:
                    changed = True
                    self._take_out(checks.taken_ids(key, met))
                else:
                    self._replacing.append(key)
        return changed

    def _judge_rules(self, asked: Sequence[Sequence[_Asked]] | None) -> int:
        """How many rows break a rule and were refused.

        `asked` is right up to the first rule that refuses rows; later rules are asked again on what is left.
        """
        refused = 0
        for number, rule in enumerate(self._rules):
            broken = self._ask([rule()])[0] if refused or asked is None else asked[number]
            if broken:
                refused += self._take_out(checks.all_of([a.question.verdict(a.suspects) for a in broken]))
        return refused

    @property
    def _rules(self) -> tuple[Callable[[], list[tuple[str, Question]]], ...]:
        return (self._shared_values, self._dangling, self._outside_cardinality)

    def _keeps_last(self, key: str) -> bool:
        type_ = self._tables.by_key[key].type
        keyed = isinstance(type_, NodeType) and bool(type_.key)
        return self._pipeline.quality.keeps_last(self._pipeline.mode, keyed=keyed)

    def _ids(self) -> list[tuple[str, Question]]:
        return [(key, self._met_ids(key)) for key in sorted(self._tables.by_key) if self._may_meet(key)]

    def _met_ids(self, key: str) -> Question:
        merges = self._pipeline.mode is LoadMode.MERGE
        return checks.met_ids(self._tables, key, merges=merges, keep_last=self._keeps_last(key))

    def _shared_values(self) -> list[tuple[str, Question]]:
        tables = self._tables
        return [
            (key, checks.shared_values(tables, key, members))
            for key in sorted(tables.by_key)
            for members in tables.by_key[key].type.uniques
        ]

    def _dangling(self) -> list[tuple[str, Question]]:
        edges = [edge.type for edge in self._tables.types("edge") if isinstance(edge.type, EdgeType)]
        return [(edge.type_key, checks.dangling(self._tables, edge)) for edge in edges]

    def _outside_cardinality(self) -> list[tuple[str, Question]]:
        found = [(edge.key, checks.outside_cardinality(self._tables, edge.key)) for edge in self._tables.types("edge")]
        return [(key, question) for key, question in found if question is not None]

    def _take_out(self, found: DataFrame) -> int:
        """Refuse rows, of any types, that a check found: each once, whatever is wrong with it."""
        # Of an edge that dangles at both ends, `src` is told before `dst`.
        problems = F.sort_array(F.collect_set(F.struct("property", "reason")), asc=False).alias("problems")
        found = self._keep(found.groupBy("type", PLACE).agg(problems))
        counts = {row[0]: row[1] for row in found.groupBy("type").count().collect()}
        for key, count in sorted(counts.items()):
            places = found.where(F.col("type") == key).drop("type")
            incoming = self._tables.by_key[key]
            rows = RefusedRows(self._tables.txn.root.location, incoming.type, incoming.all_rows)
            fragment, offset = F.shiftright(PLACE, OFFSET_BITS), F.col(PLACE).bitwiseAND((1 << OFFSET_BITS) - 1)
            told = places.select(fragment.cast("int").alias("_fragment"), offset.alias("_offset"), "problems")
            self.frames.append(refused_by_checks(told, self._positions(key), rows))
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
        met = self._met_ids(key).verdict(None) if self.rejected_by_type.get(key) else self._met[key]
        self._tables.note_updated(key, self._tables.take_out(key, checks.replaced_places(met)))
