"""The order of the checks on the incoming rows of a run, until the rows that are left satisfy all rules together.

Ids first, then uniqueness, endpoints and cardinality. The order matters: edges that end in a rejected node are rejected
as well. Only where rejected rows would have replaced stored ones do all checks run once more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from omnigraph.api.enums import LoadMode
from omnigraph.engine.bulk.executor import OFFSET_BITS, PLACE, EntityRecords
from omnigraph.language.catalog import EdgeType, NodeType
from omnigraph.pipeline.checks import rules
from omnigraph.pipeline.checks.candidate_keys import CandidateKeys, candidate_keys
from omnigraph.pipeline.checks.id_lookup import REPEAT, ROLE, TAKEN
from omnigraph.pipeline.checks.rules import Check
from omnigraph.pipeline.execution.report import RejectedRows, rejected_by_checks
from omnigraph.pipeline.execution.staged_tables import IncomingTables
from omnigraph.pipeline.file import Pipeline


@dataclass(frozen=True, slots=True)
class _OpenCheck:
    """A check that has candidates."""

    key: str
    check: Check
    candidates: CandidateKeys

    def violations(self) -> DataFrame:
        return self.check.violations(self.candidates)


class CheckSequence:
    """Checks the tables of one attempt. `refuse` gets rejected rows and raises when the run must end."""

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

    def run(self) -> None:
        # One job finds the candidates of all checks; most runs have none.
        ids, *others = self._with_candidates([self._ids(), *(rule() for rule in self._rules)])
        changed = self._check_ids(ids)
        rejected = self._check_rules(None if changed else others)
        # Where a rejected row would have replaced a stored one, that one stays and may break a rule in turn.
        while rejected and self._replacing:
            rejected = self._check_rules(None)
        for node in list(self._tables.types("node")):
            rules.refuse_orphans(self._tables, node)
        for key in self._replacing:
            self._replace_stored(key)

    def release(self) -> None:
        """Free what Spark keeps; the frames of rejected rows can't be read afterwards."""
        for frame in self._kept:
            frame.unpersist()

    def _keep(self, frame: DataFrame) -> DataFrame:
        self._kept.append(frame.persist(StorageLevel.DISK_ONLY))
        return self._kept[-1]

    def _may_meet(self, key: str) -> bool:
        """Whether an id of this type can occur twice or be stored already; ids that the run generated can't."""
        type_ = self._tables.by_key[key].type
        if isinstance(type_, NodeType) and type_.key:
            return True
        graph_sources = any(source.is_graph for source in self._pipeline.sources.values())
        return graph_sources or any("id" in m.select for m in self._pipeline.mappings if m.type_key == key)

    def _with_candidates(self, rules: Sequence[Sequence[tuple[str, Check]]]) -> list[list[_OpenCheck]]:
        """Per rule the checks that have candidates, with the candidates."""
        frames = [check.candidates for rule in rules for _, check in rule if check.candidates is not None]
        found = iter(candidate_keys(frames))
        opened = []
        for rule in rules:
            each = [_OpenCheck(key, c, None if c.candidates is None else next(found)) for key, c in rule]
            opened.append([c for c in each if c.candidates is None or len(c.candidates)])
        return opened

    def _check_ids(self, opened: Sequence[_OpenCheck]) -> bool:
        """Whether rows were taken out because of their ids."""
        if not opened:
            return False
        self._met = {c.key: self._keep(c.violations()) for c in opened}
        by_role = [frame.groupBy(ROLE.name).count().withColumn("type", F.lit(key)) for key, frame in self._met.items()]
        counts = {(row["type"], row[ROLE.name]): row["count"] for row in rules.all_of(by_role).collect()}
        changed = False
        for key, met in self._met.items():
            if counts.get((key, REPEAT)):
                changed = True
                found = rules.repeats(self._tables, key, met)
                if self._keeps_last(key):
                    self.superseded[key] = self._tables.take_out(key, found)
                else:
                    self._reject(found)
            if counts.get((key, TAKEN)):
                if self._pipeline.mode is LoadMode.APPEND:
                    changed = True
                    self._reject(rules.taken_ids(key, met))
                else:
                    self._replacing.append(key)
        return changed

    def _check_rules(self, opened: Sequence[Sequence[_OpenCheck]] | None) -> int:
        """How many rows break a rule and were rejected.

        `opened` is valid up to the first rule that rejects rows; later rules look for candidates in what is left.
        """
        rejected = 0
        for number, rule in enumerate(self._rules):
            broken = self._with_candidates([rule()])[0] if rejected or opened is None else opened[number]
            if broken:
                rejected += self._reject(rules.all_of([c.violations() for c in broken]))
        return rejected

    @property
    def _rules(self) -> tuple[Callable[[], list[tuple[str, Check]]], ...]:
        return (self._shared_values, self._dangling, self._outside_cardinality)

    def _keeps_last(self, key: str) -> bool:
        type_ = self._tables.by_key[key].type
        keyed = isinstance(type_, NodeType) and bool(type_.key)
        return self._pipeline.quality.keeps_last(self._pipeline.mode, keyed=keyed)

    def _ids(self) -> list[tuple[str, Check]]:
        return [(key, self._met_ids(key)) for key in sorted(self._tables.by_key) if self._may_meet(key)]

    def _met_ids(self, key: str) -> Check:
        merges = self._pipeline.mode is LoadMode.MERGE
        return rules.met_ids(self._tables, key, merges=merges, keep_last=self._keeps_last(key))

    def _shared_values(self) -> list[tuple[str, Check]]:
        tables = self._tables
        return [
            (key, rules.shared_values(tables, key, members))
            for key in sorted(tables.by_key)
            for members in tables.by_key[key].type.uniques
        ]

    def _dangling(self) -> list[tuple[str, Check]]:
        edges = [edge.type for edge in self._tables.types("edge") if isinstance(edge.type, EdgeType)]
        return [(edge.type_key, rules.dangling(self._tables, edge)) for edge in edges]

    def _outside_cardinality(self) -> list[tuple[str, Check]]:
        found = [(edge.key, rules.outside_cardinality(self._tables, edge.key)) for edge in self._tables.types("edge")]
        return [(key, check) for key, check in found if check is not None]

    def _reject(self, found: DataFrame) -> int:
        """Take out the rows, of any types, that break a rule: each once, with all of its violations."""
        # Of an edge that has neither of its nodes, `src` comes before `dst`.
        problems = F.sort_array(F.collect_set(F.struct("property", "reason", "rule")), asc=False).alias("problems")
        found = self._keep(found.groupBy("type", PLACE).agg(problems))
        counts = {row[0]: row[1] for row in found.groupBy("type").count().collect()}
        for key, count in sorted(counts.items()):
            places = found.where(F.col("type") == key).drop("type")
            incoming = self._tables.by_key[key]
            rows = RejectedRows(EntityRecords.of(self._tables.txn.snapshot, incoming.type, incoming.all_rows))
            fragment, offset = F.shiftright(PLACE, OFFSET_BITS), F.col(PLACE).bitwiseAND((1 << OFFSET_BITS) - 1)
            located = places.select(fragment.cast("int").alias("_fragment"), offset.alias("_offset"), "problems")
            self.frames.append(rejected_by_checks(located, self._positions(key), rows))
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
        return rules.all_of(frames)

    def _replace_stored(self, key: str) -> None:
        """Take out the stored rows whose id comes in again. Rejected rows no longer replace anything."""
        met = self._met_ids(key).violations(None) if self.rejected_by_type.get(key) else self._met[key]
        self._tables.note_updated(key, self._tables.take_out(key, rules.replaced_rows(met)))
