"""`omnigraph cluster`: reports on stdout, members in their order, exit codes, and what a person sees on a terminal."""

from __future__ import annotations

import json
import os
import pty
from pathlib import Path
from typing import Any

import pytest

from omnigraph.cli.commands.cluster import read_pipeline_text
from omnigraph.cli.printing import cluster_reports
from omnigraph.cli.printing.cluster_reports import style, wrap
from omnigraph.cluster.commands.plan import plan
from tests.cli.conftest import Cli
from tests.support.cluster_files import LARGER_SCHEMA, PIPELINE, POLICY, QUERIES, SCHEMA, ClusterFiles, Declared

CONFIG = "--config"


@pytest.fixture
def files(tmp_path: Path) -> ClusterFiles:
    made = ClusterFiles(tmp_path / "config")
    made.write({"kb": Declared(queries={"people.gq": QUERIES})})
    return made


@pytest.fixture
def applied(files: ClusterFiles) -> ClusterFiles:
    assert files.import_().ok
    assert files.apply().converged
    return files


OBSERVED = [
    "state_path", "lock_path", "state_found", "applied_config_digest", "state_revision", "state_cas", "resource_count",
    "locked", "lock_id", "lock_acquired", "acquired_lock_id", "lock_operation", "lock_created_at", "lock_pid",
    "lock_age_seconds",
]  # fmt: skip


def test_members_come_in_their_order(cli: Cli, applied: ClusterFiles) -> None:
    def members(*command: str) -> dict[str, Any]:
        done = cli("cluster", *command, CONFIG, applied.source, "--json")
        found: dict[str, Any] = done.json
        assert found["ok"] is (done.code == 0)
        return found

    assert list(members("validate")) == [
        "ok", "config_dir", "config_file", "resource_digests", "resources", "dependencies", "diagnostics",
    ]  # fmt: skip
    planned = members("plan")
    assert list(planned) == [
        "ok", "config_dir", "desired_revision", "resource_digests", "dependencies", "state_observations", "changes",
        "blast_radius", "approvals_required", "diagnostics",
    ]  # fmt: skip
    assert list(planned["state_observations"]) == OBSERVED
    assert list(planned["dependencies"][0]) == ["from", "to"]
    assert list(members("apply", "--as", "ana")) == [
        "ok", "config_dir", "actor", "desired_revision", "state_observations", "changes", "applied_count",
        "deferred_count", "converged", "state_written", "resource_statuses", "diagnostics",
    ]  # fmt: skip
    status = [
        "config_dir",
        "state_observations",
        "resource_digests",
        "resource_statuses",
        "observations",
        "diagnostics",
    ]
    assert list(members("status")) == ["ok", *status]
    assert list(members("refresh")) == ["ok", "operation", *status]
    assert list(members("import")) == ["ok", "operation", *status]
    assert list(members("force-unlock", "01")) == [
        "ok", "config_dir", "state_observations", "lock_removed", "diagnostics",
    ]  # fmt: skip
    assert list(members("history")) == ["ok", "config_dir", "revisions", "diagnostics"]
    applied.write({})
    assert list(members("approve", "graph.kb", "--as", "ana")) == [
        "ok", "config_dir", "approval_id", "resource", "operation", "approved_by", "diagnostics",
    ]  # fmt: skip
    (gone,) = (change for change in members("plan")["changes"] if change["resource"] == "graph.kb")
    assert list(gone) == ["resource", "operation", "before_digest", "disposition"]


def test_a_report_goes_to_stdout_also_when_it_is_a_failure(cli: Cli, files: ClusterFiles) -> None:
    done = cli("cluster", "apply", CONFIG, files.source)
    assert (done.code, done.err) == (1, "")
    assert done.lines[0] == "cluster apply failed"
    assert done.lines[1].startswith("ERROR state_missing __cluster/state: ")
    (files.directory / "kb.pg").unlink()
    done = cli("cluster", "validate", CONFIG, files.source)
    assert done.code == 1
    assert done.lines[0] == "cluster config invalid"
    done = cli("cluster", "status", CONFIG, str(files.directory / "absent"), "--json")
    assert done.code == 1
    assert [finding["code"] for finding in done.json["diagnostics"]] == ["config_dir_not_found"]
    done = cli("cluster", "status", CONFIG, str(files.directory / "absent"))
    assert len(done.lines) == 2, "of a lock that nobody looked at there is nothing to say"


def test_a_missing_state_is_no_failure_of_status(cli: Cli, files: ClusterFiles) -> None:
    done = cli("cluster", "status", CONFIG, files.source)
    assert done.code == 0
    assert done.lines[:2] == ["cluster state missing", "  lock: not held"]
    assert not (files.directory / "__cluster").exists(), "who looks changes nothing"


def test_an_approval_needs_a_name(cli: Cli, applied: ClusterFiles) -> None:
    done = cli("cluster", "approve", "graph.kb", CONFIG, applied.source)
    assert done.code == 1
    assert "requires an approver" in done.err


@pytest.mark.parametrize("flags", [("--store", "x"), ("--as", "ana"), ("--cluster", "x"), ("--profile", "x")])
def test_flags_that_mean_nothing_here_are_refused(cli: Cli, flags: tuple[str, str]) -> None:
    done = cli("cluster", "plan", *flags)
    assert done.code == 1
    assert "`cluster` is a cluster control command" in done.err
    assert "--config <dir>" in done.err


def test_a_lock_is_removed_by_its_id(cli: Cli, applied: ClusterFiles) -> None:
    from omnigraph.cluster.state_ledger import acquire

    lock = acquire(applied.objects, "apply")
    assert f"  lock: held (id={lock.lock_id}, operation=apply" in cli("cluster", "status", CONFIG, applied.source).out
    done = cli("cluster", "force-unlock", lock.lock_id, CONFIG, applied.source)
    assert done.code == 0
    assert done.lines[0].startswith(f"cluster force-unlock: removed lock (id={lock.lock_id}, ")


def changed(files: ClusterFiles) -> None:
    queries = QUERIES.replace("$p.name }", "$p.name, $p.email }").replace(
        "insert Person { ", "insert Person { email: $name, "
    )
    files.write({"kb": Declared(LARGER_SCHEMA, {"people.gq": queries})})


def review(files: ClusterFiles) -> list[str]:
    return cluster_reports.plan_lines(plan(files.source, read_pipeline_text, for_review=True), for_review=True)


def test_a_plan_for_review_shows_steps_and_lines(applied: ClusterFiles) -> None:
    changed(applied)
    lines = review(applied)
    assert lines == [
        "cluster plan: 4 change(s), 0 approval gate(s)",
        "  ~ Update graph.kb",
        "  ~ Update query.kb.add",
        "        @@ -1,5 +1,5 @@",
        "         query find($name: String) {",
        "             match { $p: Person { name: $name } }",
        "        -    return { $p.name }",
        "        +    return { $p.name, $p.email }",
        "         }",
        "        -query add($name: String) { insert Person { name: $name } }",
        "        +query add($name: String) { insert Person { email: $name, name: $name } }",
        "  ~ Update query.kb.find",
        "      as query.kb.add",
        "  ~ Update schema.kb",
        "      add property 'Person.email' (String?) on node 'Person'",
        "          metadata only",
    ]
    assert [style(line) for line in lines[:8]] == [
        "bold", "yellow", "yellow", "cyan", "dim", "dim", "red", "green",
    ]  # fmt: skip


def test_a_plan_for_review_shows_settings(applied: ClusterFiles) -> None:
    """What differs is in no file of its own, so a digest would be all there is to see."""
    for name, text in {"p.yaml": POLICY, "load.yaml": PIPELINE}.items():
        applied.file(name, text)

    def describe(model: str, scopes: list[str], graph: str, base: str | None) -> None:
        bound = {"embedding_provider": "e", "external_blobs": {"allow": [{"base": base, "scope": "server_safe"}]}}
        applied.write(
            {"kb": Declared(settings=bound if base is not None else {}), "lab": Declared()},
            providers={"embedding": {"e": {"kind": "mock", "model": model}}},
            policies={"p": {"file": "p.yaml", "applies_to": scopes}},
            pipelines={"load": {"file": "load.yaml", "graph": graph}},
        )

    describe("m", ["kb"], "kb", None)
    assert applied.apply().converged
    describe("n", ["lab", "kb"], "lab", "s3://b/x")
    assert review(applied) == [
        "cluster plan: 4 change(s), 0 approval gate(s)",
        "  ~ Update graph.kb",
        "      embedding_provider: (none) -> provider.embedding.e",
        "      external_blobs: (none) -> s3://b/x/ (server_safe)",
        "      also touches schema.kb",
        "  ~ Update pipeline.load [graph]",
        "      graph: graph.kb -> graph.lab",
        "  ~ Update policy.p [bindings]",
        "      applies_to: graph.kb -> graph.kb, graph.lab",
        "  ~ Update provider.embedding.e",
        "      model: m -> n",
    ]


def test_a_plan_for_review_says_what_has_to_be_done_first(files: ClusterFiles) -> None:
    assert review(files)[-1] == "  ! there is no state yet: run `omnigraph cluster import` before apply"
    assert files.import_().ok
    assert files.apply().converged
    files.write({"kb": Declared(SCHEMA.replace("age: I32?", "age: I32?\n    height: I32"))})
    assert review(files)[-1].startswith("  ! schema.kb can't be changed like this: apply fails")
    files.write({})
    assert review(files)[-1].endswith("it must be approved with `omnigraph cluster approve graph.kb --as <name>`")
    assert files.approve("graph.kb").ok
    assert review(files)[-1] == "  ! graph.kb is approved"


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("cluster apply failed", "bold red"),
        ("  + Create query.kb.find [Applied]", "green"),
        ("  + Create query.kb.find [Blocked: dependency_not_applied]", "bold red"),
        ("  ~ Update graph.kb [Derived]", "dim"),
        ("      unsupported change on node:Person.age: no", "bold red"),
        ("      + graph.kb", "green"),
        ("  ! graph.kb is approved", "green"),
        ("  ! graph.kb needs approval: it goes", "bold red"),
        ("  graph.kb: drifted (graph_missing)", "yellow"),
        ("  graph.kb: error (graph_create_incomplete)", "bold red"),
        ("WARN  approval_stale graph.kb: blocked: old", "yellow"),
    ],
)
def test_colours_go_with_what_a_line_says(line: str, wanted: str) -> None:
    assert style(line) == wanted
    assert style(wrap(line, 20)) == wanted


def test_long_lines_are_broken_between_words(applied: ClusterFiles) -> None:
    applied.write({})
    report = applied.apply()
    for line in cluster_reports.apply_lines(report, for_review=True):
        pieces = wrap(line, 60).splitlines()
        assert all(len(piece) <= 60 for piece in pieces)
        assert all(piece.startswith("      ") for piece in pieces[1:])
        assert " ".join(" ".join(pieces).split()) == " ".join(line.split())
    of_a_file = f"        +{'x y ' * 40}"
    assert wrap(of_a_file, 60) == of_a_file
    excerpt = f"      return {{ {'$p.name, ' * 10} }}\n             ^^^^^^"
    assert wrap(f"ERROR query_typecheck_error q: no\n{excerpt}", 60).endswith(excerpt)


def test_status_on_a_terminal_lists_everything(applied: ClusterFiles) -> None:
    lines = cluster_reports.status(applied.status(), for_review=True)
    assert lines[2:] == [
        "  lock: not held",
        "  graph.kb: applied",
        "  query.kb.add: applied",
        "  query.kb.find: applied",
        "  schema.kb: applied",
    ]
    assert len(cluster_reports.status(applied.status(), for_review=False)) == 3


def test_an_import_on_a_terminal_says_how_to_go_on(files: ClusterFiles) -> None:
    report = files.import_()
    assert cluster_reports.refresh_lines(report, for_review=True)[-1] == "  the next apply makes what is missing"
    assert len(cluster_reports.refresh_lines(report, for_review=False)) == 3


def test_piped_steps_are_compact_json(cli: Cli, applied: ClusterFiles) -> None:
    changed(applied)
    lines = cli("cluster", "plan", CONFIG, applied.source).lines
    assert lines[4] == "  Update schema.kb"
    assert json.loads(lines[5])["kind"] == "add_property"
    assert lines[5].startswith('      {"kind":"add_property",')


def read_terminal(terminal: int) -> bytes:
    """The next piece of what was written; nothing at the end, which a terminal tells as an error."""
    try:
        return os.read(terminal, 1 << 16)
    except OSError:
        return b""


def test_on_a_terminal_a_plan_has_marks(cli: Cli, applied: ClusterFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    changed(applied)
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.setattr("sys.stdout", terminal)
        from omnigraph.cli.main import run

        assert run(["cluster", "plan", CONFIG, applied.source]) == 0
    seen = b"".join(iter(lambda: read_terminal(ours), b"")).decode()
    os.close(ours)
    assert "~ Update schema.kb" in seen
    assert "\x1b[33m" in seen
