"""The wire form of every result that Python hands out, member by member, as programs know it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import structs

from omnigraph.api import wire
from omnigraph.api.branches import MergeConflict, MergePreview, MergeResult
from omnigraph.api.commits import CommitHistory, CommitReceipt, CommitSummary, EntityCounts
from omnigraph.api.enums import Action, Classification, EntityKind, LoadMode, MergeOutcome, Operation, TypeChange
from omnigraph.api.history import (
    ChangeBaseline,
    ChangeBlock,
    ChangeCause,
    ChangedEnds,
    ChangedType,
    ChangePoll,
    ChangeRecord,
    ChangeSet,
    CommitChangesPage,
    Endpoints,
    EntityChange,
    EntityImage,
    SchemaChange,
)
from omnigraph.api.load import BranchOutcome, LoadReceipt, MutationReceipt, TypeLoaded
from omnigraph.api.maintenance import (
    CleanupReport,
    MaintenanceReport,
    OptimizeReport,
    PendingIndex,
    PendingProperty,
    RepairReport,
    TableCleaned,
    TableOptimized,
    TableRepaired,
)
from omnigraph.api.queries import BlobCell, ExportedFile, ReadPoint
from omnigraph.api.schema import (
    AddConstraint,
    AddProperty,
    AddType,
    AnnotationOutput,
    Breakage,
    ChangeCardinality,
    ChangeDefault,
    ChangeEmbed,
    ChangeInterfaces,
    ChangeMetric,
    ChangePropertyType,
    CheckOutput,
    Constraint,
    DropConstraint,
    DropProperty,
    DropType,
    EmbedOutput,
    ExtendEnum,
    NarrowEnum,
    RangeOutput,
    RenameEnumValue,
    RenameProperty,
    RenameType,
    SchemaApplied,
    SchemaPlan,
    StepEffect,
    UnsupportedChange,
    UpdatePropertyMetadata,
    UpdateTypeMetadata,
)
from omnigraph.api.service.pipeline import (
    PipelinePlan,
    PipelineReport,
    PipelineStep,
    ReembedOutcome,
    RejectedSample,
    RowProblem,
    StageEvent,
    TypeCounts,
)
from omnigraph.cli.commands.source_files import _Outcome, _report
from omnigraph.engine.blobs import BlobRead, ExternalBlob, ManagedBlob
from omnigraph.engine.query.result import OperatorProfile
from omnigraph.errors import BadRequestError, ConstraintRule
from omnigraph.language.lint import Finding, LintReport, QueryResult, SchemaSource
from omnigraph.language.query.compile import Operation as QueryOperation
from omnigraph.language.query.compile import TouchedType, ValueShape
from omnigraph.language.schema.migration import MigrationCode, type_output
from omnigraph.language.types import PropertyType, Scalar
from omnigraph.storage.tables import Table
from tests.golden import assert_golden

COMMIT = CommitReceipt("C2", "review", 2, "C1", None, "ada", 7)
FIRST = CommitReceipt("C1", None, 1, None, None, None, 5)
MERGED = CommitReceipt("C4", None, 4, "C3", "C2", None, 9)
CAUSE = ChangeCause(
    graph_commit_id="C2", parent_commit_id="C1", authored_branch="review", actor_id="ada", authored_at=7
)
BARE_CAUSE = ChangeCause(graph_commit_id="C1", authored_branch="main", authored_at=5)
PERSON, KNOWS = ChangedType("t1", "Person"), ChangedType("t2", "Knows")
NODE = ChangeRecord(EntityKind.NODE, PERSON, "Ada", Operation.INSERT, after=EntityImage({"age": None, "name": "Ada"}))
EDGE = ChangeRecord(
    EntityKind.EDGE,
    KNOWS,
    "E1",
    Operation.UPDATE,
    EntityImage({"since": 1}, Endpoints("Ada", "Bob")),
    EntityImage({"since": None}, Endpoints("Ada", "Cy")),
)
GONE = ChangeRecord(EntityKind.NODE, PERSON, "Ada", Operation.DELETE, before=EntityImage({}))
DROPPED = SchemaChange(
    kind=EntityKind.EDGE,
    type=KNOWS,
    change=TypeChange.DROPPED,
    entities=3,
    steps=(DropType("edge", "Knows", "soft"),),
    schema_before="old",
    schema_after="new",
)
RENAMED = SchemaChange(
    kind=EntityKind.NODE,
    type=PERSON,
    change=TypeChange.CHANGED,
    renamed_from="Human",
    steps=(RenameType("node", "Human", "Person"), DropProperty("node", "Person", "age", "soft")),
    schema_before="old",
    schema_after="new",
)
CHANGES = (
    EntityChange(EntityKind.NODE, "Person", "Ada", Operation.UPDATE, 7),
    EntityChange(EntityKind.EDGE, "Knows", "E1", Operation.DELETE, 8, ChangedEnds("Ada", "Bob")),
)
CONFLICTS = (
    MergeConflict.of("node:Person", "Ada", "divergent_update", "changed twice"),
    MergeConflict.of("edge:Knows", None, "cardinality_violation", "too many"),
)
TIDIED = TableOptimized(
    type_key="node:Person",
    fragments_removed=3,
    fragments_added=1,
    committed=True,
    pending_indexes=(PendingIndex("taste", "too few rows"),),
)
OPTIMIZED = OptimizeReport.of("g.omni", "main", (TIDIED,), COMMIT)
CLEANED = CleanupReport("g.omni", None, 60, (TableCleaned("node:Person", 10, 2), TableCleaned("x", error="broken")))
CODE = MigrationCode.CHANGE_PROPERTY_TYPE
STEPS = (
    AddType("interface", "Named"),
    RenameType("node", "A", "B"),
    DropType("edge", "E", "hard"),
    UpdateTypeMetadata(
        "node", "B", (AnnotationOutput("description", "people"), AnnotationOutput("x", None, {"k": "v"}))
    ),
    AddProperty("node", "B", "p", type_output(PropertyType(Scalar.STRING, nullable=True))),
    AddProperty("node", "B", "v", type_output(PropertyType.vector(3))),
    AddProperty("node", "B", "e", type_output(PropertyType.enum(("b", "a")))),
    AddProperty("node", "B", "l", type_output(PropertyType(Scalar.I64, list=True))),
    RenameProperty("node", "B", "p", "q"),
    ExtendEnum("node", "B", "e", ("c", "d")),
    UpdatePropertyMetadata("node", "B", "q", ()),
    DropProperty("node", "B", "l", "soft"),
    AddConstraint("node", "B", Constraint(index=("p", "q"))),
    DropConstraint("node", "B", Constraint(unique=("p",)), effect=StepEffect()),
    AddConstraint("node", "B", Constraint(range=RangeOutput("n", 1, None)), effect=StepEffect(checks=("a",))),
    AddConstraint("node", "B", Constraint(check=CheckOutput("p", '^"x"$')), effect=StepEffect(offences=("b", "c"))),
    AddConstraint("edge", "E", Constraint(key=("@src", "@dst")), effect=StepEffect(False, rows=3, bytes=9, files=1)),
    ChangeCardinality("edge", "E", "0..", "0..5"),
    ChangeInterfaces("node", "B", ("Named",), ()),
    ChangePropertyType("node", "B", "n", *map(type_output, (PropertyType(Scalar.I32), PropertyType(Scalar.I64)))),
    NarrowEnum("node", "B", "e", ("a",)),
    RenameEnumValue("node", "B", "e", "c", "d"),
    ChangeDefault("node", "B", "n", None, 3, effect=StepEffect(needs_format=3)),
    ChangeDefault("node", "B", "l", (1, 2), None),
    ChangeMetric("node", "B", "v", "l2", "cosine"),
    ChangeEmbed("node", "B", "v", None, EmbedOutput("p", "m")),
    AddProperty("node", "B", "stock", type_output(PropertyType(Scalar.I32)), 0),
    UnsupportedChange("schema", "no step covers it"),
    UnsupportedChange("node:B.q", "the type", CODE.value, CODE.tier.value),
)
PLAN = SchemaPlan(False, STEPS, breaks=(Breakage("stored_query", "names", "gone (T6)"),))
OPERATION = QueryOperation(
    (
        ValueShape(name="name", kind="string", nullable=False),
        ValueShape(name="tags", kind="list", nullable=True, item_kind="string"),
        ValueShape(name="v", kind="vector", nullable=True, vector_dim=3),
    ),
    (TouchedType("node", "Person"), TouchedType("edge", "Knows")),
    (),
)
LINT = LintReport.of(
    SchemaSource.graph("g.omni"),
    "q.gq",
    (
        QueryResult("a", "read", "ok", operation=OPERATION),
        QueryResult("b", "mutation", "ok", ("hard-coded",), operation=QueryOperation((), (), ())),
        QueryResult("c", "read", "error", error="type error"),
    ),
    (
        Finding("error", "Q000", "does not parse"),
        Finding("warning", "L201", "never set", "Person", "age", ("b",)),
    ),
)
PROBLEMS = (RowProblem("age", "not a number", ConstraintRule.TYPE), RowProblem(None, "odd", ConstraintRule.RECORD))
SAMPLE = RejectedSample.of("people", "p.csv", 3, "node:Person", "p", PROBLEMS, '{"a":1}')
COUNTS = TypeCounts(type_key="node:Person", read=10, rejected=2, superseded=1, inserted=6, updated=1)
SELECTOR = BlobCell("node", "Doc", "d", "body")
NO_TABLE: Table = None  # type: ignore[assignment]
PROFILE = OperatorProfile("query", 2, 0.0012345, 3, ["note"], [OperatorProfile("scan", 2, 0.001)])


def summary(commit: CommitReceipt, kind: str, message: str | None, changes: Any) -> CommitSummary:
    return CommitSummary(**structs.asdict(commit), kind=kind, message=message, changes=changes)


FORMS: dict[str, Any] = {
    "commit": COMMIT,
    "commit-first": FIRST,
    "commit-merged": MERGED,
    "commit-summary": summary(COMMIT, "load", "why", {"edge:A": EntityCounts(), "node:B": EntityCounts(1, 0, 2)}),
    "commit-summary-reclaimed": summary(FIRST, "init", None, None),
    "commit-history": CommitHistory((summary(FIRST, "init", None, {}),), None),
    "commit-history-page": CommitHistory((), 7),
    "load-receipt": LoadReceipt.of(
        "review",
        "main",
        True,
        LoadMode.MERGE,
        [TypeLoaded("B", 2, 1, 1, 0, 0, ("note",)), TypeLoaded("A", 1, 0, 0, 1, 0)],
        [],
        COMMIT,
    ),
    "load-receipt-main": LoadReceipt.of("main", None, False, LoadMode.APPEND, [], [TypeLoaded("Knows", 1)], FIRST),
    "mutation-receipt": MutationReceipt("main", "add", 1, 2, "ada", COMMIT),
    "mutation-receipt-nothing": MutationReceipt("main", "add", 0, 0, None, None),
    "mutation-receipt-statement": MutationReceipt(
        "main", "branch merge", 0, 0, "ada", COMMIT, False, BranchOutcome("merged", MergeOutcome.MERGED)
    ),
    "merge-result": MergeResult("a", "main", MergeOutcome.MERGED, "ada", commit=COMMIT),
    "merge-result-deleted": MergeResult("a", "main", MergeOutcome.FAST_FORWARD, None, True, commit=COMMIT),
    "merge-result-kept": MergeResult("a", "b", MergeOutcome.ALREADY_UP_TO_DATE, None, False, "it has children"),
    "merge-preview": MergePreview.of("a", "main", MergeOutcome.MERGED, "C1", CHANGES, CONFLICTS),
    "merge-preview-nothing": MergePreview.of("a", "main", MergeOutcome.ALREADY_UP_TO_DATE, None, (), ()),
    "merge-conflict": CONFLICTS[1],
    "change-set": ChangeSet.of(1, 3, "review", CHANGES),
    "change-set-main": ChangeSet.of(1, 3, None, ()),
    "change-cause": CAUSE,
    "change-cause-bare": BARE_CAUSE,
    "change-record-node": NODE,
    "change-record-edge": EDGE,
    "change-record-delete": GONE,
    "commit-changes-page": CommitChangesPage(CAUSE, (NODE, EDGE), "token"),
    "commit-changes-page-schema": CommitChangesPage(CAUSE, (NODE,), "token", (DROPPED, RENAMED)),
    "commit-changes-last-page": CommitChangesPage(CAUSE, (), None),
    "change-poll": ChangePoll((ChangeBlock(CAUSE, (NODE,)),), cursor="cursor", caught_up=True),
    "change-poll-page": ChangePoll((ChangeBlock(CAUSE, (GONE,)),), next_page_token="token"),
    "change-poll-schema": ChangePoll((ChangeBlock(CAUSE, (), (RENAMED,)),), cursor="cursor", caught_up=True),
    "change-poll-empty": ChangePoll((), cursor="cursor", caught_up=False),
    "schema-change": DROPPED,
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
            TableRepaired(
                type_key="node:Person",
                published_dataset_version=7,
                dataset_version_id="17",
                lance_head_version="18",
                classification=Classification.SUSPICIOUS,
                action=Action.HEALED,
                operations=("appended 2 rows",),
                foreign_rows=2,
            ),
            TableRepaired(
                type_key="node:City",
                published_dataset_version=7,
                dataset_version_id="17",
                lance_head_version="17",
                classification=Classification.NO_DRIFT,
                action=Action.NO_OP,
                error="broken",
            ),
        ),
    ),
    "exported-file": ExportedFile("node:Person", "out/node.Person.parquet", 3),
    "blob-managed": BlobRead(SELECTOR, ReadPoint("main"), "C2", ManagedBlob(3, '"abc"', NO_TABLE, "c", 0)).description,
    "blob-external": BlobRead(SELECTOR, ReadPoint(snapshot="C2"), "C2", ExternalBlob("s3://b/k", 0, None)).description,
    "blob-default-target": BlobRead(SELECTOR, ReadPoint(), "C2", ExternalBlob("s3://b/k")).description,
    "schema-applied": SchemaApplied.of("g.omni", PLAN, 4, None),
    "schema-plan": PLAN,
    "schema-plan-nothing": SchemaPlan(True, ()),
    "lint-report": LINT,
    "operator-profile": PROFILE.report,
    "fmt-outcome": _report([_Outcome("a.gq", "x", "y")]).files[0],  # type: ignore[arg-type]
    "fmt-outcome-error": _report([_Outcome("a.gq", error=BadRequestError("no"))]).files[0],  # type: ignore[arg-type]
    "pipeline-plan": PipelinePlan(
        pipeline="p",
        target="g.omni, branch main",
        sources={"people": ("name",)},
        steps=("pin main",),
        origins={"people": "csv"},
        plan=(PipelineStep("driver", "pin main"),),
    ),
    "reembed-nothing": ReembedOutcome(0, None),
    "rejected-sample": SAMPLE,
    "stage-started": StageEvent.start_of("read", "people"),
    "stage-done": StageEvent.done("publish", "", 1.23456),
    "type-counts": COUNTS,
    "pipeline-report": PipelineReport(
        pipeline="p",
        run_id="R1",
        run_key="key",
        graph="g.omni",
        branch="main",
        mode="merge",
        types=(COUNTS,),
        rejected=2,
        samples=(SAMPLE,),
        quarantine="q.jsonl",
        commit_id="C2",
        version=2,
        branch_created=True,
        seconds=1.23456,
        stages={"read": 0.98765},
        spark_ui="http://x",
    ),
    "pipeline-report-dry": PipelineReport(
        pipeline="p", run_id="R1", run_key=None, graph="g.omni", branch="main", mode="merge", dry_run=True
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_wire_form_is_what_programs_know(name: str) -> None:
    assert_golden(f"wire/{name}.json", json.dumps(wire.to_builtins(FORMS[name]), indent=2, ensure_ascii=False) + "\n")


@pytest.mark.parametrize("name", FORMS)
def test_a_wire_form_can_be_read_back(name: str) -> None:
    """A client holds the same struct; only what stays in the process that made it is missing."""
    sent = wire.encode(FORMS[name])
    received = wire.decode(sent, type(FORMS[name]))
    assert wire.encode(received) == sent
    assert wire.to_builtins(received) == wire.to_builtins(FORMS[name])
