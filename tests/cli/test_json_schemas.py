"""What `--json` prints, held against the schemas of the contract: every member is declared, none that is needed lacks.

The golden texts are what commands print byte for byte (test_golden_json.py); commands without one are run here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from omnigraph.api import wire
from omnigraph.api.branches import BranchCreated, BranchDeleted, BranchList, MergePreview, MergeResult, SnapshotListing
from omnigraph.api.commits import CommitList, CommitSummary
from omnigraph.api.history import ChangeBaseline, ChangePoll, ChangeSet, CommitChangesPage
from omnigraph.api.load import LoadOutput, LoadReceipt, MutationReceipt
from omnigraph.api.maintenance import CleanupReport, IndexListing, OptimizeReport, RepairReport
from omnigraph.api.queries import BlobDescription, ReadOutput
from omnigraph.api.schema import SchemaApplied, SchemaPlanOutput, SchemaSource
from omnigraph.api.service.cluster import VersionOutput
from omnigraph.api.service.http import ChangeErrorOutput, ErrorOutput
from omnigraph.api.service.pipeline import PipelineValidated
from omnigraph.cli.printing.reports import DoctorReport, FormatReport, ListedProfile, Quickstart, ShownProfile
from omnigraph.language.lint import LintReport
from tests.cli.conftest import Cli

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "json"

# By the beginning of a golden file's name; the longest that fits counts.
SHAPES: dict[str, Any] = {
    "blob-stat": BlobDescription,
    "blob-stat-unknown": ErrorOutput,
    "branch-create": BranchCreated,
    "branch-delete": BranchDeleted,
    "branch-list": BranchList,
    "changes-baseline": ChangeBaseline,
    "changes-poll": ChangePoll,
    "cleanup": CleanupReport,
    "commit-changes": CommitChangesPage,
    "commit-changes-first": ChangeErrorOutput,
    "commit-list": CommitList,
    "commit-show": CommitSummary,
    "diff": ChangeSet,
    "error": ErrorOutput,
    "fmt": FormatReport,
    "ingest": LoadReceipt,
    "lint": LintReport,
    "load": LoadOutput,
    "load-new-branch": ErrorOutput,
    "merge": MergeResult,
    "merge-conflicts": ErrorOutput,
    "merge-preview": MergePreview,
    "mutate": MutationReceipt,
    "mutate-lost-race": ErrorOutput,
    "index-status": IndexListing,
    "optimize": OptimizeReport,
    "pipeline-validate": PipelineValidated,
    "profile-list": ListedProfile,
    "profile-show": ShownProfile,
    "query": ReadOutput,
    "repair": RepairReport,
    "schema-apply": SchemaApplied,
    "schema-apply-blocked": ErrorOutput,
    "schema-plan": SchemaPlanOutput,
    "schema-show": SchemaSource,
    "snapshot": SnapshotListing,
    "version": VersionOutput,
}


def shape_of(name: str) -> Any:
    return SHAPES[max((known for known in SHAPES if name.startswith(known)), key=len)]


def validator(shape: Any) -> jsonschema.Draft202012Validator:
    components = wire.schema_components([shape])
    for schema in components.values():
        if "properties" in schema:
            schema.setdefault("additionalProperties", False)
    reference = f"#/components/schemas/{wire.wire_name(shape)}"
    return jsonschema.Draft202012Validator({"components": {"schemas": components}, "$ref": reference})


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.json")), ids=lambda path: path.stem)
def test_what_commands_print_is_what_the_contract_declares(path: Path) -> None:
    printed = json.loads(path.read_text(encoding="utf-8"))
    check = validator(shape_of(path.stem))
    for form in printed if isinstance(printed, list) else [printed]:
        check.validate(form)


@pytest.mark.parametrize(
    ("arguments", "shape"), [(["doctor", "--json"], DoctorReport), (["quickstart", "first", "--json"], Quickstart)]
)
def test_what_only_the_command_line_makes(arguments: list[str], shape: Any, cli: Cli) -> None:
    validator(shape).validate(cli(*arguments).json)


def test_a_shape_that_is_not_declared_is_noticed() -> None:
    with pytest.raises(jsonschema.ValidationError):
        validator(BranchList).validate({"branches": ["main"], "more": 1})
    with pytest.raises(jsonschema.ValidationError):
        validator(BranchList).validate({})
