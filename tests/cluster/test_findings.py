"""Every code that a command can report of a state, a lock, an approval or a graph has a case here that provokes it.

`test_every_code_is_provoked` reads the sources: a code without a case, or a case of a code that is gone, fails.
"""

from __future__ import annotations

import ast
import itertools
import json
import re
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.api.enums import ChangeDisposition, ResourceOperation, Severity
from omnigraph.api.service.cluster import ClusterChange
from omnigraph.cluster.commands.apply import _approval
from omnigraph.cluster.commands.plan import Preview
from omnigraph.cluster.plan.approvals import Gates
from omnigraph.cluster.plan.reconcile import GraphViews, Reconciliation
from omnigraph.cluster.resources import ClusterError
from omnigraph.cluster.state import StateBuilder
from omnigraph.cluster.state_ledger import LOCK_PATH, Ledger, acquire
from omnigraph.cluster.storage_root import make_root
from omnigraph.errors import StorageError, StorageErrorKind
from tests.cluster.test_configuration import CASES_OF_CONFIG
from tests.support.cluster_files import (
    LARGER_SCHEMA,
    PIPELINE,
    POLICY,
    QUERIES,
    SCHEMA,
    ClusterFiles,
    Declared,
    codes,
    outcomes,
)
from tests.support.every_store import watched

KB = {"kb": Declared(queries={"people.gq": QUERIES})}
RULES = {"policies": {"p": {"file": "p.yaml", "applies_to": ["kb"]}}}
QUERY_FILES = "__cluster/resources/query/kb/find"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("template") / "cluster"
    files = ClusterFiles(directory)
    files.file("p.yaml", POLICY)
    files.write(KB, **RULES)
    assert files.import_().ok
    applied = files.apply("ana")
    assert applied.converged
    return directory


@pytest.fixture
def files(template: Path, tmp_path: Path) -> ClusterFiles:
    """A cluster with one graph, two queries and a policy, applied."""
    shutil.copytree(template, tmp_path / "cluster")
    return ClusterFiles(tmp_path / "cluster")


class Refusing:
    """A store that refuses some requests."""

    def __init__(self, kind: str, part: str) -> None:
        self.kind, self.part = kind, part

    def before(self, kind: str, path: str) -> None:
        if kind == self.kind and self.part in path:
            raise StorageError(StorageErrorKind.CONFIGURATION, f"{kind} {path}: access denied")

    def after(self, kind: str, path: str) -> None:
        """Requests are refused before they reach the store."""


Refuse = Callable[[str, str], None]


@pytest.fixture
def refuse() -> Iterator[Refuse]:
    """Have every store that is opened from now on refuse requests of a kind whose path has a part."""
    with ExitStack() as stack:
        yield lambda kind, part: stack.enter_context(watched(Refusing(kind, part)))


Provoke = Callable[[ClusterFiles, Refuse], Any]
CASES: dict[str, tuple[Severity, Provoke]] = {}


def provokes(code: str, severity: Severity = Severity.ERROR) -> Callable[[Provoke], Provoke]:
    def register(provoke: Provoke) -> Provoke:
        CASES[f"{code} ({severity})"] = (severity, provoke)
        return provoke

    return register


ERROR, WARNING = Severity.ERROR, Severity.WARNING


def revision_file(files: ClusterFiles) -> Path:
    return max((files.directory / "__cluster/state").iterdir(), key=lambda path: int(path.stem))


def forget_state(files: ClusterFiles) -> None:
    shutil.rmtree(files.directory / "__cluster/state")


# State


@provokes("state_missing")
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    forget_state(files)
    assert codes(files.refresh()) == codes(files.approve("graph.kb")) == ["state_missing"]
    return files.apply()


@provokes("state_missing", WARNING)
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    forget_state(files)
    return files.status()


@provokes("state_already_exists")
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    return files.import_()


@provokes("state_read_error")
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    refuse("get", "__cluster/state/")
    return files.plan()


@provokes("invalid_state_json")
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    revision_file(files).write_text("{")
    return files.apply()


@provokes("unsupported_state_version")
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    revision_file(files).write_text('{"version": 9}')
    return files.status()


@provokes("state_write_error")
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    before = files.state
    refuse("create", "__cluster/state/")
    report = files.refresh()
    assert report.resource_statuses == before.resource_statuses
    return report


@provokes("state_cas_mismatch")
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    """Another apply makes the next revision while this one looks at the graphs."""
    files.write({"kb": Declared(LARGER_SCHEMA, {"people.gq": QUERIES})}, **RULES)
    return overtaken(files, lambda kind, path: kind == "list" and path == "graphs")


@provokes("external_blob_policy_digest_mismatch")
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    members = json.loads(revision_file(files).read_text())
    members["applied_revision"]["resources"]["graph.kb"]["digest"] = "0" * 64
    revision_file(files).write_text(json.dumps(members))
    assert codes(files.refresh()) == ["external_blob_policy_digest_mismatch"]
    return files.apply()


# Lock


@provokes("state_lock_held")
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    lock = acquire(files.objects, "apply")
    report = files.plan()
    assert all(part in report.diagnostics[0].message for part in (lock.lock_id, "apply", str(lock.pid), "held for "))
    seen = report.state_observations
    assert (seen.locked, seen.lock_acquired, seen.lock_id) == (True, False, lock.lock_id)
    assert (seen.acquired_lock_id, seen.lock_operation, seen.lock_pid) == (None, "apply", lock.pid)
    return report


@provokes("state_lock_error")
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    refuse("create", LOCK_PATH)
    return files.plan()


@provokes("state_lock_error", WARNING)
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    """The work is done; only the lock stays."""
    refuse("delete", LOCK_PATH)
    return files.apply()


@provokes("state_lock_read_error")
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    lock = acquire(files.objects, "apply")
    refuse("get", LOCK_PATH)
    assert "state_lock_read_error" in codes(files.plan())
    return files.force_unlock(lock.lock_id)


@provokes("state_lock_read_error", WARNING)
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    refuse("get", LOCK_PATH)
    return files.status()


@provokes("invalid_state_lock")
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    files.file(LOCK_PATH, '{"version": 1}')
    return files.plan()


@provokes("invalid_state_lock", WARNING)
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    files.file(LOCK_PATH, "{")
    return files.status()


@provokes("unsupported_state_lock_version")
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    files.file(LOCK_PATH, '{"version": 2}')
    return files.apply()


@provokes("state_lock_missing")
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    return files.force_unlock("01")


@provokes("state_lock_id_mismatch")
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    acquire(files.objects, "apply")
    return files.force_unlock("01")


@provokes("state_lock_disabled", WARNING)
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    files.write(KB, **RULES, state={"lock": False})
    acquire(files.objects, "apply")
    report = files.plan()
    assert not report.state_observations.lock_acquired
    return report


# What stands


def change_by_hand(files: ClusterFiles) -> None:
    with omnigraph.open(files.graph_uri("kb")) as graph:
        graph.schema.apply(SCHEMA.replace("age: I32?", "height: I32?\n    age: I32?"))


@provokes("cluster_recovery_pending", WARNING)
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    change_by_hand(files)
    files.write({"kb": Declared(LARGER_SCHEMA, {"people.gq": QUERIES})}, **RULES)
    assert "cluster_recovery_pending" in codes(files.plan())
    report = files.apply()
    assert outcomes(report)["schema.kb"] == "update blocked cluster_recovery_pending"
    assert files.state.resource_statuses["schema.kb"].conditions == ("actual_applied_state_pending",)
    return report


@provokes("cluster_recovery_rolled_forward", WARNING)
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    """An apply that made its graph and died before it could record it."""
    before = revision_file(files)
    later = before.read_bytes()
    files.write({**KB, "lab": Declared()}, **RULES)
    assert files.apply().converged
    revision_file(files).unlink()
    assert before.read_bytes() == later
    planned = files.plan()
    assert "cluster_recovery_pending" in codes(planned)
    assert "next apply records it" in str(planned.diagnostics)
    report = files.apply()
    assert report.converged
    (record,) = files.state.recovery_records.values()
    assert (record.kind, record.graph_id) == ("graph_create", "lab")
    return report


@provokes("graph_create_incomplete")
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    files.file("graphs/lab.omni/notes.txt", "this is no graph")
    files.write({**KB, "lab": Declared(), "third": Declared()}, **RULES)
    report = files.apply()
    found = outcomes(report)
    assert found["graph.lab"] == found["schema.lab"] == "create blocked cluster_recovery_pending"
    assert found["graph.third"] == "create applied"
    return report


@provokes("graph_delete_incomplete", WARNING)
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    """The root of a graph that was deleted is still there: whoever deleted it died, or made it again too late."""
    root = files.directory / "graphs/kb.omni"
    shutil.copytree(root, files.directory / "copy")
    files.write({})
    files.approve("graph.kb")
    assert files.apply().converged
    shutil.copytree(files.directory / "copy", root)
    assert codes(files.plan()) == ["graph_delete_incomplete"]
    report = files.apply()
    assert report.ok
    assert not root.exists()
    return report


@provokes("graph_observation_error")
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    (files.directory / "graphs/kb.omni/__manifest/graph.json").write_text("{")
    report = files.refresh()
    assert files.state.resource_statuses["graph.kb"].conditions == ("graph_observation_error",)
    assert report.state_observations.state_revision == 3
    return report


@provokes("graph_observation_error", WARNING)
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    """What the state says can be told, also when a graph does not open; only the last run of its pipeline can't."""
    files.file("load.yaml", PIPELINE)
    files.write(KB, **RULES, pipelines={"load": {"file": "load.yaml", "graph": "kb"}})
    assert files.apply().converged
    (files.directory / "graphs/kb.omni/__manifest/graph.json").write_text("{")
    report = files.status()
    assert [(pipeline.name, pipeline.last_commit) for pipeline in report.pipelines] == [("load", None)]
    return report


# Approvals


def delete_kb(files: ClusterFiles) -> Path:
    """An approved delete; the approval's file."""
    files.write({})
    approved = files.approve("graph.kb")
    assert approved.ok
    return files.directory / f"__cluster/approvals/{approved.approval_id}.json"


@provokes("approval_read_error", WARNING)
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    delete_kb(files)
    refuse("get", "__cluster/approvals/")
    return files.plan()


@provokes("invalid_approval_artifact", WARNING)
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    delete_kb(files).write_text('{"schema_version": 1}')
    return files.apply()


@provokes("unsupported_approval_version", WARNING)
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    delete_kb(files).write_text('{"schema_version": 2}')
    return files.plan()


@provokes("approval_write_error")
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    files.write({})
    refuse("create", "__cluster/approvals/")
    return files.approve("graph.kb")


@provokes("approval_write_error", WARNING)
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    approval = delete_kb(files)
    refuse("put", "__cluster/approvals/")
    report = files.apply()
    assert report.converged
    assert approval.stem in files.state.approval_records
    return report


@provokes("approval_stale", WARNING)
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    delete_kb(files)
    files.write({"lab": Declared()})
    report = files.plan()
    assert not report.approvals_required[0].satisfied
    return report


@provokes("approval_not_required")
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    return files.approve("graph.kb")


@provokes("apply_approval_invariant_violation")
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    """Nothing that apply does leads here; the guard itself is asked."""
    change = ClusterChange(
        resource="graph.kb", operation=ResourceOperation.DELETE, disposition=ChangeDisposition.APPLIED
    )
    with pytest.raises(ClusterError) as refused:
        _approval(Preview(Reconciliation(StateBuilder(), GraphViews({})), {}, (change,), Gates(), ()), change)
    return refused.value


# Doing it


@provokes("graph_create_failed")
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    files.file("p.yaml", POLICY + "# edited\n")
    rules = {"policies": {"p": {"file": "p.yaml", "applies_to": ["kb", "lab"]}}}
    files.write({**KB, "lab": Declared(queries={"people.gq": QUERIES})}, **rules)
    refuse("create", "schemas/")
    report = files.apply()
    assert outcomes(report) == {
        "graph.lab": "create blocked graph_create_failed",
        "policy.p": "update blocked dependency_not_applied",
        "query.lab.add": "create blocked dependency_not_applied",
        "query.lab.find": "create blocked dependency_not_applied",
        "schema.lab": "create blocked dependency_not_applied",
    }
    return report


@provokes("graph_create_skipped", WARNING)
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    files.write({**KB, "lab": Declared(), "mine": Declared()}, **RULES)
    refuse("create", "schemas/")
    return files.apply()


@provokes("schema_apply_failed")
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    """A required property can't join a type that may hold rows."""
    files.write({"kb": Declared(SCHEMA.replace("age: I32?", "age: I32?\n    height: I32"))}, **RULES)
    planned = files.plan()
    (change,) = (change for change in planned.changes if change.resource == "schema.kb")
    assert change.migration is not None
    assert not change.migration.supported
    report = files.apply()
    found = outcomes(report)
    assert found["schema.kb"] == "update blocked schema_apply_failed"
    assert found["query.kb.find"] == "delete blocked dependency_not_applied"
    assert files.state.resource_statuses["schema.kb"].conditions == ("schema_apply_failed",)
    return report


@provokes("schema_apply_skipped", WARNING)
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    files.write({"kb": Declared(LARGER_SCHEMA, {"people.gq": QUERIES}), "lab": Declared()}, **RULES)
    refuse("create", "schemas/")
    return files.apply()


@provokes("graph_delete_skipped", WARNING)
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    files.write({"lab": Declared()})
    files.approve("graph.kb")
    refuse("create", "schemas/")
    report = files.apply()
    found = outcomes(report)
    assert found["graph.kb"] == "delete blocked graph_delete_skipped"
    assert found["policy.p"] == "delete blocked dependency_not_applied", "a graph that stays keeps its rules"
    assert (files.directory / "graphs/kb.omni/__manifest/graph.json").exists()
    return report


@provokes("graph_delete_failed")
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    delete_kb(files)
    refuse("delete", "graphs/kb.omni")
    report = files.apply()
    assert "graph.kb" not in files.state.resources
    return report


@provokes("graph_delete_export_in_progress")
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    with omnigraph.open(files.graph_uri("kb")) as graph:
        graph.load([{"name": "Ada"}], type="Person", mode="append")
        delete_kb(files)
        lines = graph.export()
        next(lines)
        report = files.apply()
        assert outcomes(report)["graph.kb"] == "delete blocked graph_delete_failed"
        assert outcomes(report)["policy.p"] == "delete blocked dependency_not_applied"
        assert list(lines) == []
    assert files.apply().converged
    return report


def edited(label: str) -> str:
    """The query file with both queries described otherwise."""
    return QUERIES.replace(") {", f') @description("{label}") {{')


@provokes("resource_content_changed")
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    """Somebody saves a file while it is applied."""
    files.file("kb/people.gq", edited("one"))
    before = revision_file(files)
    report = during_apply(files, lambda kind, path: kind == "list", lambda: files.file("kb/people.gq", edited("two")))
    assert revision_file(files) == before
    assert outcomes(report)["query.kb.find"] == "update blocked resource_content_changed"
    return report


@provokes("resource_payload_write_error")
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    files.file("kb/people.gq", edited("one"))
    refuse("create", "__cluster/resources/")
    report = files.apply()
    assert not report.state_written
    return report


@provokes("apply_unsupported_change", WARNING)
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    """A schema without its graph: only a ledger that was edited has one."""
    members = json.loads(revision_file(files).read_text())
    members["applied_revision"]["resources"]["schema.ghost"] = {"digest": "0" * 64}
    revision_file(files).write_text(json.dumps(members))
    assert files.plan().approvals_required[0].resource == "schema.ghost"
    return files.apply()


@provokes("apply_dependency_blocked", WARNING)
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    files.write({})
    report = files.apply()
    assert outcomes(report) == {
        "graph.kb": "delete blocked approval_required",
        "policy.p": "delete blocked dependency_not_applied",
        "query.kb.add": "delete blocked approval_required",
        "query.kb.find": "delete blocked approval_required",
        "schema.kb": "delete blocked approval_required",
    }
    assert "run `omnigraph cluster approve graph.kb --as <name>`" in report.diagnostics[-1].message
    return report


@provokes("schema_preview_unavailable", WARNING)
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    files.write({"kb": Declared(LARGER_SCHEMA)}, **RULES)
    shutil.rmtree(files.directory / "graphs/kb.omni")
    return files.plan()


@provokes("catalog_payload_missing", WARNING)
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    shutil.rmtree(files.directory / QUERY_FILES)
    assert codes(files.status()) == codes(files.plan()) == ["catalog_payload_missing"]
    report = files.refresh()
    assert files.state.resource_statuses["query.kb.find"].conditions == ("payload_missing",)
    assert outcomes(files.apply())["query.kb.find"] == "create applied"
    return report


@provokes("catalog_payload_mismatch", WARNING)
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    (payload,) = (files.directory / QUERY_FILES).iterdir()
    payload.write_text("query find() {}")
    assert codes(files.status()) == codes(files.plan()) == ["catalog_payload_mismatch"]
    report = files.apply()
    assert payload.read_text() == QUERIES
    assert not report.state_written
    assert codes(files.plan()) == []
    return report


@provokes("catalog_payload_read_error")
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    refuse("get", QUERY_FILES)
    report = files.refresh()
    assert report.resource_statuses["query.kb.find"].conditions == ("payload_read_error",)
    return report


@provokes("storage_root_invalid")
def _(files: ClusterFiles, refuse: Refuse) -> Any:
    files.write(KB, **RULES)
    files.file("cluster.yaml", "version: 1\nstorage: ftp://host/x\n")
    return files.plan()


@pytest.mark.parametrize("case", CASES)
def test_a_code_is_reported(case: str, files: ClusterFiles, refuse: Refuse) -> None:
    severity, provoke = CASES[case]
    report = provoke(files, refuse)
    code = case.split(" ")[0]
    assert (code, severity) in {(f.code, f.severity) for f in report.diagnostics}, report.diagnostics
    if not isinstance(report, ClusterError):
        assert report.ok is all(finding.severity is WARNING for finding in report.diagnostics)


class During:
    """Does something once, before the first request that is meant."""

    def __init__(self, meant: Callable[[str, str], bool], action: Callable[[], object]) -> None:
        self.meant, self.action, self.is_done = meant, action, False

    def before(self, kind: str, path: str) -> None:
        if not self.is_done and self.meant(kind, path):
            self.is_done = True
            self.action()

    def after(self, kind: str, path: str) -> None:
        """Only what comes before a request matters."""


def during_apply(files: ClusterFiles, meant: Callable[[str, str], bool], action: Callable[[], object]) -> Any:
    with watched(during := During(meant, action)):
        report = files.apply()
    assert during.is_done
    return report


def make_next_state(files: ClusterFiles) -> None:
    """As another command does, whatever it changes."""
    ledger = Ledger(make_root(files.root))
    before = ledger.newest()
    assert before is not None
    ledger.create(before.state, before)


def overtaken(files: ClusterFiles, meant: Callable[[str, str], bool]) -> Any:
    return during_apply(files, meant, lambda: make_next_state(files))


def before_looking() -> Callable[[str, str], bool]:
    return lambda kind, path: (kind, path) == ("list", "graphs")


def before_changing() -> Callable[[str, str], bool]:
    """A graph is opened to be looked at, and opened again to be changed."""
    openings = itertools.count(1)
    return lambda kind, path: (kind, path) == ("get", "__manifest/graph.json") and next(openings) == 2


@pytest.mark.parametrize("moment", [before_looking, before_changing])
def test_what_others_delete_meanwhile_is_not_taken_for_a_loss(
    files: ClusterFiles, moment: Callable[[], Callable[[str, str], bool]]
) -> None:
    """Their state stands before they remove anything. Whoever still has the one before must not advise a refresh, or
    tell of failures: it comes too late, that is all."""

    def delete() -> None:
        make_next_state(files)
        shutil.rmtree(files.graph_uri("kb"))

    files.write({"kb": Declared(LARGER_SCHEMA, {"people.gq": QUERIES})}, **RULES)
    report = during_apply(files, moment(), delete)
    assert codes(report) == ["state_cas_mismatch"]
    assert (report.applied_count, report.state_written, report.converged) == (0, False, False)


# The list is whole

SOURCES = Path(omnigraph.__file__).parent / "cluster"
PAGE = Path(__file__).parents[2] / "docs/user/cluster-diagnostics.md"
QUERY_CHECKS = {"list_queries"}
SERVED = {"_Verification", "AppliedState", "read_applied", *QUERY_CHECKS}
"""What a server finds has its own cases in `test_serving`."""


def codes_in_sources(without: Collection[str]) -> Iterator[str]:
    trees = {path.name: ast.parse(path.read_text()) for path in SOURCES.rglob("*.py")}
    for tree in trees.values():
        tree.body = [node for node in tree.body if getattr(node, "name", None) not in without]
    constants = {
        node.target.id: node.value.value
        for tree in trees.values()
        for node in tree.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called = ast.unparse(node.func)
            arguments = node.args if called == "Step" else node.args[:1]
            for argument in arguments if called in ("error", "warning", "ClusterError.of", "Step") else ():
                match argument:
                    case ast.Constant(value=str() as code):
                        yield code
                    case ast.Name(id=constant) if constant in constants:
                        yield str(constants[constant])
                    case ast.Name(id="code") | ast.Attribute(value=ast.Name(id="step" | "DELETE")):
                        yield from codes_assigned(tree)
                    case _:
                        pytest.fail(f"{name}:{node.lineno} has a code that can't be read from the source")


def codes_assigned(tree: ast.Module) -> Iterator[str]:
    """`code = "a" if … else "b"`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "code":
            yield from (
                str(c.value) for c in ast.walk(node.value) if isinstance(c, ast.Constant) and "_" in str(c.value)
            )


def test_every_code_is_provoked() -> None:
    provoked = {case.split(" ")[0] for case in CASES} | {case[0] for case in CASES_OF_CONFIG}
    elsewhere = {"config_dir_not_found", "query_dir_unreadable", "pipeline_not_applied"}
    assert provoked | elsewhere == set(codes_in_sources(SERVED))


def test_every_code_is_explained() -> None:
    rows = [line.split("|")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    explained = [code for row in rows for code in re.findall("`([a-z_]+)`", row)]
    assert sorted(explained) == sorted(set(codes_in_sources(QUERY_CHECKS)))
