"""The wire form of every result that Python hands out, member by member, as programs know it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from omnigraph.cli.commands.fmt import _Outcome
from omnigraph.engine.blobs import BlobCell, BlobRead, BlobReader, ExternalBlob, ManagedBlob
from omnigraph.engine.blobs import ReadTarget as BlobTarget
from omnigraph.engine.changes import ChangeBlock, ChangeCause, ChangeRecord, CommitChangesPage, EntityImage
from omnigraph.engine.cleanup import CleanupReport, TableCleaned
from omnigraph.engine.commits import CommitHistory, CommitSummary
from omnigraph.engine.diff import ChangeSet, EntityChange
from omnigraph.engine.export import ExportedFile
from omnigraph.engine.feed import ChangeBaseline, ChangePoll
from omnigraph.engine.indexes import PendingProperty
from omnigraph.engine.maintain import MaintenanceReport
from omnigraph.engine.merge.merging import MergeOutcome, MergePreview, MergeResult
from omnigraph.engine.optimize import OptimizeReport, TableOptimized
from omnigraph.engine.query.profile import OperatorProfile
from omnigraph.engine.receipts import CommitReceipt, LoadMode, LoadReceipt, MutationReceipt
from omnigraph.engine.repair import Action, Classification, RepairReport, TableRepaired
from omnigraph.engine.schema_apply import SchemaApplied
from omnigraph.engine.scope import Operation
from omnigraph.errors import BadRequestError, ConstraintRule, MergeConflict
from omnigraph.language.catalog import Annotation
from omnigraph.language.lint import Finding, LintReport, QueryResult, SchemaSource
from omnigraph.language.migration import MigrationPlan
from omnigraph.language.migration_steps import (
    AddConstraint,
    AddProperty,
    AddType,
    DropProperty,
    DropType,
    ExtendEnum,
    MigrationCode,
    RenameProperty,
    RenameType,
    UnsupportedChange,
    UpdatePropertyMetadata,
    UpdateTypeMetadata,
)
from omnigraph.language.query.operation import Operation as QueryOperation
from omnigraph.language.query.operation import TouchedType, ValueShape
from omnigraph.language.types import PropertyType, Scalar
from omnigraph.pipeline.model import Source
from omnigraph.pipeline.plan import PipelinePlan, Step
from omnigraph.pipeline.reembedding import ReembedOutcome
from omnigraph.pipeline.rejections import Problem, RejectedSample
from omnigraph.pipeline.report import PipelineReport, StageEvent, TypeCounts
from omnigraph.storage.models import ChangeCounts
from tests.golden import assert_golden

COMMIT = CommitReceipt("C2", "review", 2, "C1", None, "ada", 7)
FIRST = CommitReceipt("C1", None, 1, None, None, None, 5)
MERGED = CommitReceipt("C4", None, 4, "C3", "C2", None, 9)
CAUSE = ChangeCause("C2", "C1", None, "review", "ada", 7)
BARE_CAUSE = ChangeCause("C1", None, None, "main", None, 5)
NODE = ChangeRecord("node", "t1", "Person", "Ada", Operation.INSERT, None, EntityImage({"age": None, "name": "Ada"}))
EDGE = ChangeRecord(
    "edge",
    "t2",
    "Knows",
    "E1",
    Operation.UPDATE,
    EntityImage({"since": 1}, ("Ada", "Bob")),
    EntityImage({"since": None}, ("Ada", "Cy")),
)
GONE = ChangeRecord("node", "t1", "Person", "Ada", Operation.DELETE, EntityImage({}), None)
CHANGES = (
    EntityChange("node", "Person", "Ada", Operation.UPDATE, "7"),
    EntityChange("edge", "Knows", "E1", Operation.DELETE, "8", "Ada", "Bob"),
)
CONFLICTS = (
    MergeConflict("node:Person", "Ada", "divergent_update", "changed twice"),
    MergeConflict("edge:Knows", None, "cardinality_violation", "too many"),
)
OPTIMIZED = OptimizeReport(
    "g.omni",
    "main",
    (TableOptimized("node:Person", 3, 1, True, (PendingProperty("node:Person", "taste", "too few rows"),)),),
    None,
)
CLEANED = CleanupReport("g.omni", None, 60, (TableCleaned("node:Person", 10, 2), TableCleaned("x", error="broken")))
STEPS = (
    AddType("interface", "Named"),
    RenameType("node", "A", "B"),
    DropType("edge", "E", "hard"),
    UpdateTypeMetadata("node", "B", (Annotation("description", "people"), Annotation("x", None, (("k", "v"),)))),
    AddProperty("node", "B", "p", PropertyType(Scalar.STRING, nullable=True)),
    AddProperty("node", "B", "v", PropertyType.vector(3)),
    AddProperty("node", "B", "e", PropertyType.enum(("b", "a"))),
    AddProperty("node", "B", "l", PropertyType(Scalar.I64, list=True)),
    RenameProperty("node", "B", "p", "q"),
    ExtendEnum("node", "B", "e", ("c", "d")),
    UpdatePropertyMetadata("node", "B", "q", ()),
    DropProperty("node", "B", "l", "soft"),
    AddConstraint("node", "B", ("p", "q")),
    UnsupportedChange("schema", "no step covers it"),
    UnsupportedChange("node:B.q", "the type", MigrationCode.CHANGE_PROPERTY_TYPE),
)
PLAN = MigrationPlan(STEPS)
OPERATION = QueryOperation(
    (
        ValueShape("name", "string", False),
        ValueShape("tags", "list", True, "string"),
        ValueShape("v", "vector", True, None, 3),
    ),
    (TouchedType(False, "Person"), TouchedType(True, "Knows")),
    (),
)
LINT = LintReport(
    SchemaSource("graph", "g.omni"),
    "q.gq",
    (
        QueryResult("a", False, operation=OPERATION),
        QueryResult("b", True, ("hard-coded",), operation=QueryOperation((), (), ())),
        QueryResult("c", False, error="type error"),
    ),
    (
        Finding("error", "Q000", "does not parse"),
        Finding("warning", "L201", "never set", "Person", "age", ("b",)),
    ),
)
PROBLEMS = (Problem("age", "not a number", ConstraintRule.TYPE), Problem(None, "odd", ConstraintRule.RECORD))
SAMPLE = RejectedSample("people", "p.csv", 3, "node:Person", "p", PROBLEMS, '{"a":1}')
COUNTS = TypeCounts("node:Person", 10, 2, 1, 6, 1, 0)
SELECTOR = BlobCell("node", "Doc", "d", "body")
NO_READER: BlobReader = None  # type: ignore[assignment]
PROFILE = OperatorProfile("query", 2, 0.0012345, 3, ["note"], [OperatorProfile("scan", 2, 0.001)])

FORMS: dict[str, Any] = {
    "commit": COMMIT,
    "commit-first": FIRST,
    "commit-merged": MERGED,
    "commit-summary": CommitSummary(COMMIT, "load", "why", {"node:B": ChangeCounts(1, 0, 2), "edge:A": ChangeCounts()}),
    "commit-summary-reclaimed": CommitSummary(FIRST, "init", None, None),
    "commit-history": CommitHistory((CommitSummary(FIRST, "init", None, {}),), None),
    "commit-history-page": CommitHistory((), 7),
    "load-receipt": LoadReceipt("review", "main", True, LoadMode.MERGE, {"B": 2, "A": 1}, {}, COMMIT),
    "load-receipt-main": LoadReceipt("main", None, False, LoadMode.APPEND, {}, {"Knows": 1}, FIRST),
    "mutation-receipt": MutationReceipt("main", "add", 1, 2, "ada", COMMIT),
    "mutation-receipt-nothing": MutationReceipt("main", "add", 0, 0, None, None),
    "merge-result": MergeResult("a", "main", MergeOutcome.MERGED, "ada", COMMIT),
    "merge-result-deleted": MergeResult("a", "main", MergeOutcome.FAST_FORWARD, None, COMMIT, True),
    "merge-result-kept": MergeResult("a", "b", MergeOutcome.ALREADY_UP_TO_DATE, None, None, False, "it has children"),
    "merge-preview": MergePreview("a", "main", MergeOutcome.MERGED, "C1", CHANGES, CONFLICTS),
    "merge-preview-nothing": MergePreview("a", "main", MergeOutcome.ALREADY_UP_TO_DATE, None, (), ()),
    "merge-conflict": CONFLICTS[1],
    "change-set": ChangeSet(1, 3, "review", CHANGES),
    "change-set-main": ChangeSet(1, 3, None, ()),
    "change-cause": CAUSE,
    "change-cause-bare": BARE_CAUSE,
    "change-record-node": NODE,
    "change-record-edge": EDGE,
    "change-record-delete": GONE,
    "commit-changes-page": CommitChangesPage(ChangeBlock(CAUSE, (NODE, EDGE)), "token"),
    "commit-changes-last-page": CommitChangesPage(ChangeBlock(CAUSE, ()), None),
    "change-poll": ChangePoll((ChangeBlock(CAUSE, (NODE,)),), cursor="cursor", caught_up=True),
    "change-poll-page": ChangePoll((ChangeBlock(CAUSE, (GONE,)),), next_page_token="token"),
    "change-poll-empty": ChangePoll((), cursor="cursor", caught_up=False),
    "change-baseline": ChangeBaseline("C2", "cursor"),
    "optimize-report": OPTIMIZED,
    "cleanup-report": CLEANED,
    "maintenance-report": MaintenanceReport({"node:Person": "17 small fragments"}, OPTIMIZED, CLEANED),
    "maintenance-report-idle": MaintenanceReport({}),
    "pending-property": PendingProperty("node:Person", "taste", "too few rows"),
    "repair-report": RepairReport(
        "g.omni",
        True,
        False,
        4,
        (
            TableRepaired("node:Person", "7", "8", Classification.SUSPICIOUS, Action.HEALED, ("appended 2 rows",), 2),
            TableRepaired("node:City", "7", "7", Classification.NO_DRIFT, Action.NO_OP, error="broken"),
        ),
    ),
    "exported-file": ExportedFile("node:Person", "out/node.Person.parquet", 3),
    "blob-managed": BlobRead(SELECTOR, BlobTarget("main"), "C2", ManagedBlob(3, '"abc"', NO_READER)),
    "blob-external": BlobRead(SELECTOR, BlobTarget(snapshot="C2"), "C2", ExternalBlob("s3://b/k", 0, None)),
    "blob-default-target": BlobRead(SELECTOR, BlobTarget(), "C2", ExternalBlob("s3://b/k")),
    "schema-applied": SchemaApplied("g.omni", PLAN, 4, None),
    "schema-plan": PLAN,
    "schema-plan-nothing": MigrationPlan(()),
    "lint-report": LINT,
    "operator-profile": PROFILE,
    "fmt-outcome": _Outcome("a.gq", "x", "y"),  # type: ignore[arg-type]
    "fmt-outcome-error": _Outcome("a.gq", error=BadRequestError("no")),  # type: ignore[arg-type]
    "pipeline-plan": PipelinePlan(
        "p", "g.omni, branch main", (Source("people"),), {"people": ["name"]}, (Step("driver", "pin main"),)
    ),
    "reembed-nothing": ReembedOutcome(0, None),
    "rejected-sample": SAMPLE,
    "stage-started": StageEvent("read", "people"),
    "stage-done": StageEvent("publish", "", 1.23456),
    "type-counts": COUNTS,
    "pipeline-report": PipelineReport(
        "p",
        "R1",
        "key",
        "g.omni",
        "main",
        "merge",
        (COUNTS,),
        2,
        (SAMPLE,),
        "q.jsonl",
        "C2",
        2,
        True,
        False,
        False,
        1.23456,
        {"read": 0.98765},
        "http://x",
    ),
    "pipeline-report-dry": PipelineReport("p", "R1", None, "g.omni", "main", "merge", dry_run=True),
}


def wire(form: Any) -> Any:
    return form.to_dict() if hasattr(form, "to_dict") else form.to_json_dict()


@pytest.mark.parametrize("name", FORMS)
def test_a_wire_form_is_what_programs_know(name: str) -> None:
    assert_golden(f"wire/{name}.json", json.dumps(wire(FORMS[name]), indent=2, ensure_ascii=False) + "\n")
