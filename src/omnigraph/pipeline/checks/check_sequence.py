"""The order of the checks on the incoming rows of a run, until the rows that are left satisfy all rules together.

Ids first, then uniqueness, endpoints and cardinality. The order matters: edges that end in a rejected node are rejected
as well. Only where rejected rows would have replaced stored ones do all checks run once more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from omnigraph.api.enums import LoadMode
from omnigraph.engine.bulk.executor import OFFSET_BITS, PLACE, EntityRecords
from omnigraph.language.catalog import EdgeType
from omnigraph.pipeline.checks import rules
from omnigraph.pipeline.checks.candidate_keys import CandidateKeys, candidate_keys
from omnigraph.pipeline.checks.id_lookup import REPEAT, REPLACED, ROLE, TAKEN
from omnigraph.pipeline.checks.rules import Check
from omnigraph.pipeline.execution.report import rejected_by_checks
from omnigraph.pipeline.execution.staged_tables import IncomingTables
from omnigraph.pipeline.file import Pipeline
from omnigraph.pipeline.spark.tasks import union_of

OpenCheck: TypeAlias = tuple[Check, CandidateKeys]
"""A check with the candidates that it found."""


@dataclass
class CheckSequence:
    """Checks the tables of one attempt. `refuse` gets rejected rows and raises when the run must end; `keep` has Spark
    keep a frame until the run ends. `outcomes` are those of the ingest, by number and name of a source."""

    tables: IncomingTables
    pipeline: Pipeline
    outcomes: Mapping[tuple[int, str], DataFrame]
    refuse: Callable[[int, DataFrame], None]
    keep: Callable[[DataFrame], DataFrame]
    frames: list[DataFrame] = field(default_factory=list)
    rejected: int = 0
    rejected_by_type: Counter[str] = field(default_factory=Counter)
    superseded: dict[str, int] = field(default_factory=dict)
    _met: dict[str, DataFrame] = field(default_factory=dict)
    _replacing: list[str] = field(default_factory=list)

    def run(self) -> None:
        # One job finds the candidates of all checks; most runs have none.
        id_checks = [self._met_ids(key) for key in sorted(self.tables.by_key) if self._may_meet(key)]
        ids, *others = self._with_candidates([id_checks, *(rule() for rule in self._rules)])
        changed = self._check_ids(ids)
        rejected = self._check_rules(None if changed else others)
        # Where a rejected row would have replaced a stored one, that one stays and may break a rule in turn.
        while rejected and self._replacing:
            rejected = self._check_rules(None)
        for node in list(self.tables.types("node")):
            rules.refuse_orphans(self.tables, node)
        for key in self._replacing:
            # Rejected rows no longer replace anything.
            met = self._met_ids(key).violations(None) if self.rejected_by_type[key] else self._met[key]
            replaced = met.where(F.col(ROLE.name) == REPLACED).select("id", PLACE)
            if self.pipeline.mode is LoadMode.MERGE:
                replaced = self._without_unchanged(key, met, replaced)
            self.tables.note_updated(key, self.tables.take_out(key, replaced.select(PLACE)))

    def _without_unchanged(self, key: str, met: DataFrame, replaced: DataFrame) -> DataFrame:
        """Take out incoming rows that are stored with the same values. The stored rows that the others replace."""
        taken = met.where(F.col(ROLE.name) == TAKEN).select("id", F.col(PLACE).alias("new"))
        pairs = taken.join(replaced.withColumnRenamed(PLACE, "stored"), "id")
        compared = self.keep(self.tables.unchanged_rows(key, pairs, self._left_out(key)))
        nulled = {row[0] for row in compared.where("nulled is not null").select("nulled").distinct().collect()}
        same = compared.where("nulled is null")
        unchanged = self.tables.take_out(key, same.select(F.col("new").alias(PLACE)))
        names = {prop.column: prop.name for prop in self.tables.by_key[key].type.property_list}
        self.tables.note_unchanged(key, unchanged, [names[column] for column in nulled])
        return replaced.join(same.select(F.col("stored").alias(PLACE)), PLACE, "left_anti") if unchanged else replaced

    def _left_out(self, key: str) -> list[str]:
        """The columns that no mapping of a type selects. What graph records leave out is not known here."""
        mappings = [mapping for mapping in self.pipeline.mappings if mapping.type_key == key]
        if any(source.is_graph for source in self.pipeline.sources.values()):
            return []
        selected = {name for mapping in mappings for name in mapping.select}
        return [prop.column for prop in self.tables.by_key[key].type.property_list if prop.name not in selected]

    def _is_keyed(self, key: str) -> bool:
        return bool(self.tables.by_key[key].type.key)

    def _may_meet(self, key: str) -> bool:
        """Whether an id of this type can occur twice or be stored already; ids that the run generated can't."""
        graph_sources = any(source.is_graph for source in self.pipeline.sources.values())
        identity = self.tables.by_key[key].type.system_name("id")
        chosen = any(identity in m.select for m in self.pipeline.mappings if m.type_key == key)
        is_update = self.pipeline.mode is LoadMode.UPDATE
        return is_update or self._is_keyed(key) or graph_sources or chosen

    def _keeps_last(self, key: str) -> bool:
        return self.pipeline.quality.keeps_last(self.pipeline.mode, keyed=self._is_keyed(key))

    def _with_candidates(self, rules: Sequence[Sequence[Check]]) -> list[list[OpenCheck]]:
        """Per rule the checks that have candidates, with the candidates."""
        frames = [check.candidates for rule in rules for check in rule if check.candidates is not None]
        candidates = iter(candidate_keys(frames))
        checks = [[(check, None if check.candidates is None else next(candidates)) for check in rule] for rule in rules]
        return [[(check, keys) for check, keys in rule if keys is None or len(keys)] for rule in checks]

    def _check_ids(self, opened: Sequence[OpenCheck]) -> bool:
        """Whether rows were taken out because of their ids."""
        if not opened:
            return False
        self._met = {check.type_key: self.keep(check.violations(keys)) for check, keys in opened}
        by_role = [frame.groupBy(ROLE.name).count().withColumn("type", F.lit(key)) for key, frame in self._met.items()]
        counts = {(row["type"], row[ROLE.name]): row["count"] for row in union_of(by_role).collect()}
        changed = False
        for key, met in self._met.items():
            if counts.get((key, REPEAT)):
                changed = True
                repeats = rules.repeats(self.tables, key, met)
                if self._keeps_last(key):
                    self.superseded[key] = self.tables.take_out(key, repeats)
                else:
                    self._reject(repeats)
            if counts.get((key, TAKEN)):
                if self.pipeline.mode is LoadMode.APPEND:
                    changed = True
                    self._reject(rules.taken_ids(key, met))
                else:
                    self._replacing.append(key)
        return changed

    def _check_rules(self, opened: Sequence[Sequence[OpenCheck]] | None) -> int:
        """How many rows break a rule and were rejected. `opened` is valid up to the first rule that rejects rows; later
        rules look for candidates in what is left."""
        rejected = 0
        for number, rule in enumerate(self._rules):
            broken = self._with_candidates([rule()])[0] if rejected or opened is None else opened[number]
            if broken:
                rejected += self._reject(union_of([check.violations(keys) for check, keys in broken]))
        return rejected

    @property
    def _rules(self) -> tuple[Callable[[], list[Check]], ...]:
        return (self._shared_values, self._endpoint_checks, self._outside_cardinality)

    def _met_ids(self, key: str) -> Check:
        merges = self.pipeline.mode is LoadMode.MERGE
        return rules.met_ids(self.tables, key, merges=merges, keep_last=self._keeps_last(key))

    def _shared_values(self) -> list[Check]:
        types = [self.tables.by_key[key].type for key in sorted(self.tables.by_key)]
        return [rules.shared_values(self.tables, t.type_key, members) for t in types for members in t.uniques]

    def _endpoint_checks(self) -> list[Check]:
        edges = [edge.type for edge in self.tables.types("edge") if isinstance(edge.type, EdgeType)]
        return [rules.dangling_edges(self.tables, edge) for edge in edges]

    def _outside_cardinality(self) -> list[Check]:
        checks = [rules.outside_cardinality(self.tables, edge.key) for edge in self.tables.types("edge")]
        return [check for check in checks if check is not None]

    def _reject(self, violations: DataFrame) -> int:
        """Take out the rows, of any types, that break a rule: each once, with all of its violations."""
        # Of an edge that has neither of its nodes, `src` comes before `dst`.
        problems = F.sort_array(F.collect_set(F.struct("property", "reason", "rule")), asc=False).alias("problems")
        rows = self.keep(violations.groupBy("type", PLACE).agg(problems))
        counts = {row[0]: row[1] for row in rows.groupBy("type").count().collect()}
        for key, count in sorted(counts.items()):
            places = rows.where(F.col("type") == key).drop("type")
            incoming = self.tables.by_key[key]
            records = EntityRecords.of(self.tables.txn.snapshot, incoming.type, incoming.all_rows)
            fragment, offset = F.shiftright(PLACE, OFFSET_BITS), F.col(PLACE).bitwiseAND((1 << OFFSET_BITS) - 1)
            located = places.select(fragment.cast("int").alias("_fragment"), offset.alias("_offset"), "problems")
            self.frames.append(rejected_by_checks(located, self._positions(key), records))
            self.rejected += count
            self.rejected_by_type[key] += count
            self.refuse(self.rejected, self.frames[-1])
            self.tables.take_out(key, places)
        return sum(counts.values())

    def _positions(self, key: str) -> DataFrame:
        """Per incoming fragment of a type, the row numbers of its rows."""
        incoming = self.tables.by_key[key]
        frames = []
        for (order, source), outcomes in self.outcomes.items():
            ids = [(f.first, number) for number, f in incoming.fragments.items() if f.order == order]
            if ids:
                numbered = self.tables.spark.createDataFrame(ids, "first long, _fragment int")
                written = outcomes.where(F.col("kind") == "fragment").where(F.col("type") == key)
                joined = written.join(F.broadcast(numbered), "first")
                frames.append(joined.select("_fragment", F.lit(source).alias("source"), "positions"))
        return union_of(frames)
