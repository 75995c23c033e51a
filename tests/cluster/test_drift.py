"""What people change by hand is seen, reported where it matters, and taken in only when somebody says so."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import omnigraph
from omnigraph.cluster.serving import read_serving
from omnigraph.cluster.state import GraphObservation, GraphTombstone
from omnigraph.engine.managed_graph import schema_made_by
from tests.server.test_pipeline_route import ran
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


@pytest.fixture
def files(tmp_path: Path) -> ClusterFiles:
    made = ClusterFiles(tmp_path / "config")
    made.write({"kb": Declared(queries={"people.gq": QUERIES})})
    assert made.import_().ok
    assert made.apply("ana").converged
    return made


def test_a_schema_that_was_changed_by_hand(files: ClusterFiles) -> None:
    with omnigraph.open(files.graph_uri("kb")) as graph:
        graph.schema.apply(LARGER_SCHEMA)
    assert codes(files.plan()) == ["cluster_recovery_pending"]
    held = files.apply()
    assert held.ok
    assert not held.converged
    assert held.resource_statuses["schema.kb"].conditions == ("actual_applied_state_pending",)
    again = files.apply()
    assert not again.state_written, "nothing new was found, so nothing new is recorded"

    refreshed = files.refresh()
    assert refreshed.ok
    assert refreshed.resource_statuses["schema.kb"].conditions == ("schema_mismatch",)
    seen = refreshed.observations["graph.kb"]
    assert isinstance(seen, GraphObservation)
    assert (seen.exists, seen.schema_matches_desired, seen.graph_manifest_version) == (True, False, 2)

    (change,) = (change for change in files.plan().changes if change.migration is not None)
    assert [step.kind for step in change.migration.steps] == ["drop_property"]
    assert files.apply().converged
    with omnigraph.open(files.graph_uri("kb")) as graph:
        assert graph.snapshot().schema_document.source == SCHEMA


def test_a_schema_that_was_changed_by_hand_to_what_is_declared(files: ClusterFiles) -> None:
    """That is no contradiction: it is recorded, and nothing is left to do."""
    with omnigraph.open(files.graph_uri("kb")) as graph:
        graph.schema.apply(LARGER_SCHEMA)
    files.write({"kb": Declared(LARGER_SCHEMA, {"people.gq": QUERIES})})
    report = files.apply()
    assert codes(report) == ["cluster_recovery_rolled_forward"]
    assert report.converged


def test_a_graph_that_was_removed_by_hand_is_not_replaced_without_a_word(files: ClusterFiles) -> None:
    shutil.rmtree(files.graph_uri("kb"))
    assert codes(files.plan()) == ["graph_observation_error"]
    report = files.apply()
    assert not report.ok
    assert not Path(files.graph_uri("kb")).exists()
    assert report.resource_statuses["graph.kb"].conditions == ("graph_missing",)
    refreshed = files.refresh()
    assert refreshed.ok
    assert "graph.kb" not in refreshed.resource_digests
    assert refreshed.resource_statuses["graph.kb"].conditions == ("graph_missing",)
    assert outcomes(files.apply()) == {"graph.kb": "create applied", "schema.kb": "create applied"}


def test_a_loss_that_was_accepted_keeps_nobody_from_serving_the_rest(files: ClusterFiles) -> None:
    """What is still recorded of the graph (queries, rules, pipelines) waits for the apply that makes it again."""
    files.file("p.yaml", POLICY)
    files.file("load.yaml", PIPELINE)
    files.write(
        {"kb": Declared(queries={"people.gq": QUERIES}), "lab": Declared()},
        policies={"p": {"file": "p.yaml", "applies_to": ["kb"]}},
        pipelines={"load": {"file": "load.yaml", "graph": "kb"}},
    )
    assert files.apply().converged
    shutil.rmtree(files.graph_uri("kb"))
    assert files.refresh().ok
    served = read_serving(files.root)
    assert [graph.graph_id for graph in served.graphs] == ["lab"]
    assert (served.queries, served.policies, served.pipelines) == ((), (), ())
    assert [pipeline.last_commit for pipeline in files.status().pipelines] == [None]
    assert outcomes(files.apply()) == {"graph.kb": "create applied", "schema.kb": "create applied"}
    assert len(read_serving(files.root).queries) == 2


def test_a_change_of_a_comment_is_a_change_of_the_text(files: ClusterFiles) -> None:
    files.write({"kb": Declared(f"// people\n{SCHEMA}", {"people.gq": QUERIES})})
    (change,) = (change for change in files.plan().changes if change.migration is not None)
    assert change.migration.steps == ()
    assert files.apply("ana").converged
    with omnigraph.open(files.graph_uri("kb")) as graph:
        assert graph.snapshot().schema_document.source == f"// people\n{SCHEMA}"
        assert graph._workspace.head("main").entry.commit.actor == "ana"
    assert files.refresh().resource_statuses["schema.kb"].conditions == ()


def test_import_takes_over_graphs_that_stand(tmp_path: Path) -> None:
    files = ClusterFiles(tmp_path)
    files.write({"kb": Declared(LARGER_SCHEMA), "lab": Declared()})
    for graph_id in ("kb", "lab"):
        omnigraph.init(tmp_path / f"graphs/{graph_id}.omni", SCHEMA).close()
    imported = files.import_()
    assert imported.state_observations.state_revision == 1
    assert imported.resource_statuses["schema.kb"].conditions == ("schema_mismatch",)
    assert imported.resource_statuses["schema.lab"].conditions == ()
    assert outcomes(files.apply()) == {"graph.kb": "update derived", "schema.kb": "update applied"}


def test_import_of_what_does_not_open_makes_nothing(tmp_path: Path) -> None:
    files = ClusterFiles(tmp_path)
    files.write({"kb": Declared()})
    files.file("graphs/kb.omni/notes.txt", "no graph")
    report = files.import_()
    assert not report.ok
    assert not report.state_observations.state_found
    assert codes(files.status()) == ["state_missing"]


def test_metadata_alone_is_a_change(files: ClusterFiles) -> None:
    files.file("p.yaml", POLICY)
    files.file("load.yaml", PIPELINE)
    graphs = {"kb": Declared(queries={"people.gq": QUERIES}), "lab": Declared()}

    def described(scopes: list[str], graph: str, model: str) -> None:
        files.write(
            graphs,
            policies={"p": {"file": "p.yaml", "applies_to": scopes}},
            pipelines={"load": {"file": "load.yaml", "graph": graph}},
            providers={"embedding": {"e": {"provider": "mock", "model": model}}},
        )

    described(["kb"], "kb", "m")
    assert files.apply().converged
    described(["lab", "kb"], "lab", "n")
    changes = {change.resource: change for change in files.plan().changes}
    assert set(changes) == {"policy.p", "pipeline.load", "provider.embedding.e"}
    assert changes["policy.p"].binding_change
    assert changes["policy.p"].metadata_change == "policy_bindings"
    assert changes["pipeline.load"].metadata_change == "pipeline_graph"
    assert files.apply().converged
    assert files.state.resources["policy.p"].applies_to == ("graph.kb", "graph.lab")
    assert files.state.resources["pipeline.load"].pipeline_graph == "graph.lab"


def test_status_lists_pipelines_with_their_last_commits(files: ClusterFiles) -> None:
    files.file("load.yaml", PIPELINE)
    files.file("side.yaml", PIPELINE + "branch: side\n")
    files.write(
        {"kb": Declared(), "lab": Declared()},
        pipelines={
            "weekly": {"file": "side.yaml", "graph": "kb"},
            "nightly": {"file": "load.yaml", "graph": "kb"},
            "never": {"file": "load.yaml", "graph": "graph.lab"},
        },
    )
    assert files.apply().converged
    assert [pipeline.last_commit for pipeline in files.status().pipelines] == [None, None, None]
    with omnigraph.open(files.graph_uri("kb")) as graph:
        graph.create_branch("side")
        made = {name: ran(graph, name, branch) for name, branch in (("nightly", "main"), ("weekly", "side"))}
    found = {
        pipeline.name: (pipeline.graph_id, pipeline.branch, pipeline.last_commit.id if pipeline.last_commit else None)
        for pipeline in files.status().pipelines
    }
    assert found == {
        "never": ("lab", "main", None),
        "nightly": ("kb", "main", made["nightly"]),
        "weekly": ("kb", "side", made["weekly"]),
    }
    assert files.status(3).pipelines == (), "an earlier state opens no graph"


def test_rules_and_providers_stay_for_as_long_as_their_graph_does(files: ClusterFiles) -> None:
    """A delete that waits for approval must not leave a graph without its rules, or a server that can't start."""
    files.file("p.yaml", POLICY)
    provider = {"providers": {"embedding": {"e": {"kind": "mock"}}}}
    bound = {"kb": Declared(queries={"people.gq": QUERIES}, settings={"embedding_provider": "e"})}
    files.write(bound, policies={"p": {"file": "p.yaml", "applies_to": ["kb"]}}, **provider)
    assert files.apply().converged
    files.write({})
    found = outcomes(files.apply())
    assert found["policy.p"] == found["provider.embedding.e"] == "delete blocked dependency_not_applied"
    assert {"policy.p", "provider.embedding.e", "graph.kb"} <= files.state.resources.keys()
    assert files.approve("graph.kb").ok
    assert files.apply("ana").converged
    assert files.state.resources == {}
    gone = files.state.observations["graph.kb"]
    assert isinstance(gone, GraphTombstone)
    assert gone.actor == "ana"
    assert gone.approval_id in files.state.approval_records


def test_a_delete_that_waits_for_approval_does_not_hold_up_other_bindings_of_its_policy(files: ClusterFiles) -> None:
    files.file("p.yaml", POLICY)
    graphs = {"kb": Declared(queries={"people.gq": QUERIES}), "lab": Declared()}
    files.write(graphs, policies={"p": {"file": "p.yaml", "applies_to": ["kb", "lab"]}})
    assert files.apply().converged
    remaining = {"kb": Declared(queries={"people.gq": QUERIES.replace("$p.name }", "$p.age }")}), "new": Declared()}
    files.write(remaining, policies={"p": {"file": "p.yaml", "applies_to": ["kb", "new"]}})
    report = files.apply()
    found = outcomes(report)
    assert found["policy.p"] == found["query.kb.find"] == "update applied"
    assert found["graph.lab"] == "delete blocked approval_required"
    assert not report.converged
    bound = ("graph.kb", "graph.lab", "graph.new")
    assert files.state.resources["policy.p"].applies_to == bound, "the graph keeps its rules"
    assert outcomes(files.apply())["policy.p"] == "update blocked dependency_not_applied", "only the binding is left"
    assert files.approve("graph.lab").ok
    assert files.apply("ana").converged
    assert files.state.resources["policy.p"].applies_to == ("graph.kb", "graph.new")


@pytest.mark.parametrize("remaining", [["kb"], ["kb", "new"]])
def test_a_graph_whose_delete_waits_for_approval_gets_no_new_rules(files: ClusterFiles, remaining: list[str]) -> None:
    files.file("p.yaml", POLICY)
    shared = {"p": {"file": "p.yaml", "applies_to": ["kb", "lab"]}}
    files.write({"kb": Declared(), "lab": Declared()}, policies=shared)
    assert files.apply().converged
    had = files.state.resources["policy.p"]
    files.file("p.yaml", POLICY.replace("[ana]", "[ana, bob]"))
    files.write(dict.fromkeys(remaining, Declared()), policies={"p": {"file": "p.yaml", "applies_to": remaining}})
    assert outcomes(files.apply())["policy.p"] == "update blocked dependency_not_applied"
    assert files.state.resources["policy.p"] == had


def test_rules_of_a_graph_that_stays_do_not_become_rules_of_the_server(files: ClusterFiles) -> None:
    files.file("p.yaml", POLICY)
    files.write({"kb": Declared(), "lab": Declared()}, policies={"p": {"file": "p.yaml", "applies_to": ["lab"]}})
    assert files.apply().converged
    files.file("p.yaml", POLICY.replace("[read, change], branch_scope: any", "[graph_list]"))
    files.write({"kb": Declared()}, policies={"p": {"file": "p.yaml", "applies_to": ["cluster"]}})
    assert outcomes(files.apply())["policy.p"] == "update blocked dependency_not_applied"


def test_a_file_with_one_edited_query_is_one_update(files: ClusterFiles) -> None:
    files.write({"kb": Declared(queries={"people.gq": QUERIES})})
    assert files.apply().converged
    applied = dict(files.state.resources)
    edited = "// who is who\n" + QUERIES.replace("return { $p.name }", "return { $p.name, $p.age }")
    files.write({"kb": Declared(queries={"people.gq": edited})})
    changed = {change.resource: change.operation for change in files.plan().changes}
    assert changed == {"graph.kb": "update", "query.kb.find": "update"}
    report = files.apply()
    assert report.converged
    assert outcomes(report) == {"graph.kb": "update derived", "query.kb.find": "update applied"}
    assert files.state.resources["query.kb.add"] == applied["query.kb.add"]
    assert files.plan().changes == ()
    assert {query.name: "$p.age" in query.source for query in read_serving(files.source).queries} == {
        "find": True,
        "add": False,
    }
    again = files.apply()
    assert (again.converged, again.state_written) == (True, False)


def test_a_query_whose_applied_text_is_lost_is_applied_again(files: ClusterFiles) -> None:
    files.write({"kb": Declared(queries={"people.gq": QUERIES})})
    assert files.apply().converged
    for payload in (files.directory / "__cluster/resources/query/kb").rglob("*.gq"):
        payload.unlink()
    files.write({"kb": Declared(queries={"people.gq": QUERIES + "// edited\n"})})
    assert {change.resource for change in files.plan().changes} == {"graph.kb", "query.kb.add", "query.kb.find"}
    assert files.apply().converged


def test_an_earlier_state_can_be_looked_at(files: ClusterFiles) -> None:
    files.write({"kb": Declared()})
    assert files.apply().converged
    assert "query.kb.find" in files.status(2).resource_digests
    assert "query.kb.find" not in files.status().resource_digests
    missing = files.status(9)
    assert codes(missing) == ["state_missing"]
    assert not missing.ok
    newest, *_ = files.history(1).revisions
    assert [(change.operation, change.resource) for change in newest.changes] == [
        ("update", "graph.kb"),
        ("delete", "query.kb.add"),
        ("delete", "query.kb.find"),
    ]
    assert [revision.state_revision for revision in files.history().revisions] == [3, 2, 1]


def test_what_was_held_up_once_is_applied_when_it_is_taken_back(files: ClusterFiles) -> None:
    whole = {"kb": Declared(queries={"people.gq": QUERIES})}
    files.write({})
    assert files.apply().resource_statuses["graph.kb"].conditions == ("approval_required",)
    files.write(whole)
    report = files.apply()
    assert report.converged
    assert {str(said.status) for said in report.resource_statuses.values()} == {"applied"}
    assert not files.apply().state_written


def test_a_graph_that_is_to_go_can_be_refreshed_too(files: ClusterFiles) -> None:
    """Somebody changed its schema by hand; without a refresh nobody could delete it."""
    with omnigraph.open(files.graph_uri("kb")) as graph:
        graph.schema.apply(LARGER_SCHEMA)
    files.write({})
    assert outcomes(files.apply())["graph.kb"] == "delete blocked cluster_recovery_pending"
    assert files.refresh().ok
    assert files.approve("graph.kb").ok
    assert files.apply().converged


def test_each_step_of_a_dead_apply_is_recorded(files: ClusterFiles) -> None:
    files.write({"kb": Declared(LARGER_SCHEMA, {"people.gq": QUERIES}), "a": Declared(), "b": Declared()})
    assert files.apply().converged
    max((files.directory / "__cluster/state").iterdir(), key=lambda path: int(path.stem)).unlink()
    assert codes(files.apply("ana")) == ["cluster_recovery_rolled_forward"] * 3
    found = {(record.graph_id, record.kind, record.actor) for record in files.state.recovery_records.values()}
    assert found == {("a", "graph_create", "ana"), ("b", "graph_create", "ana"), ("kb", "schema_apply", "ana")}


def test_who_made_a_schema_is_found_below_later_commits(files: ClusterFiles) -> None:
    with omnigraph.open(files.graph_uri("kb")) as graph:
        for number in range(11):
            graph.load([{"name": f"p{number}"}], type="Person", mode="append")
            made = schema_made_by(files.graph_uri("kb"))
            assert made is not None
        graph.schema.apply(LARGER_SCHEMA)
        for number in range(5):
            assert schema_made_by(files.graph_uri("kb")) is None
            graph.load([{"name": f"q{number}"}], type="Person", mode="append")


def test_a_pipeline_that_moves_away_from_a_graph_that_goes(files: ClusterFiles) -> None:
    """Where it moves to is in doubt, so the move is held up; what it loaded is gone. The others must be served."""
    files.file("load.yaml", PIPELINE)
    graphs = {"kb": Declared(), "lab": Declared(), "third": Declared()}
    files.write(graphs, pipelines={"load": {"file": "load.yaml", "graph": "kb"}})
    assert files.apply().converged
    with omnigraph.open(files.graph_uri("lab")) as graph:
        graph.schema.apply(LARGER_SCHEMA)
    del graphs["kb"]
    files.write(graphs, pipelines={"load": {"file": "load.yaml", "graph": "lab"}})
    assert files.approve("graph.kb").ok
    found = outcomes(files.apply())
    assert (found["graph.kb"], found["pipeline.load"]) == ("delete applied", "update blocked cluster_recovery_pending")
    assert [graph.graph_id for graph in read_serving(files.root).graphs] == ["third"]
    assert files.refresh().ok
    assert outcomes(files.apply())["pipeline.load"] == "create applied"


def test_rules_that_move_to_another_file_move_together(files: ClusterFiles) -> None:
    """While a graph is in doubt its new rules are held up, so its old ones have to stay."""
    files.file("p.yaml", POLICY)
    graphs = {"kb": Declared(queries={"people.gq": QUERIES})}
    files.write(graphs, policies={"old": {"file": "p.yaml", "applies_to": ["kb"]}})
    assert files.apply().converged
    with omnigraph.open(files.graph_uri("kb")) as graph:
        graph.schema.apply(LARGER_SCHEMA)
    files.write(graphs, policies={"new": {"file": "p.yaml", "applies_to": ["kb"]}})
    assert outcomes(files.apply()) == {
        "policy.new": "create blocked cluster_recovery_pending",
        "policy.old": "delete blocked cluster_recovery_pending",
    }
    assert "policy.old" in files.state.resources


def test_a_graph_that_was_made_again_needs_an_approval_of_its_own(files: ClusterFiles) -> None:
    """Two people approved the delete of the first one. Neither has said anything about the second."""
    whole = {"kb": Declared(queries={"people.gq": QUERIES})}
    files.write({})
    assert files.approve("graph.kb", "ana").ok
    assert files.approve("graph.kb", "bob").ok
    assert files.apply().converged
    files.write(whole)
    assert files.apply().converged
    files.write({})
    (gate,) = files.plan().approvals_required
    assert not gate.satisfied
    assert outcomes(files.apply())["graph.kb"] == "delete blocked approval_required"
    assert codes(files.plan()) == ["approval_stale"]
