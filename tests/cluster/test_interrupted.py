"""An apply may die anywhere, be stopped anywhere for as long as it likes, and run beside others: the next one makes the
cluster what its configuration says, and nothing that others have made is lost.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph
from omnigraph.cluster.plan.reconcile import graph_folders
from omnigraph.cluster.resources import ClusterError
from omnigraph.cluster.serving import read_serving
from omnigraph.cluster.state import file_digest
from omnigraph.engine.managed_graph import Standing, look_at
from omnigraph.storage.log.writer_queue import FairLocks
from tests.conftest import Place
from tests.support.cluster_files import ClusterFiles, Declared, codes
from tests.support.every_store import Counter, Death, Meanwhile, watched
from tests.support.preempt import DiedError
from tests.support.processes import Process, start_together

SCHEMAS = (
    "node A { k: String @key }\n",
    "node A { k: String @key\n x: I32? }\n",
    "// the same, said otherwise\nnode A { k: String @key }\n",
)
QUERIES = (
    "query all() { match { $a: A } return { $a.k } }\n",
    "query all() { match { $a: A } return { $a.k } limit 5 }\n",
    "query one($k: String) { match { $a: A { k: $k } } return { $a.k } }\n",
)
RULES = """version: 1
groups: {team: [ana]}
rules:
  - {id: all, allow: {actors: {group: team}, actions: [read], branch_scope: any}}
"""
LOAD = """version: 1
sources:
  letters: {format: csv, path: letters.csv}
nodes:
  A: {from: letters, select: {k: letter}}
"""
UNLOCKED = {"state": {"lock": False}}

Config = dict[str, tuple[int, int]]
"""By graph: which schema, and which queries."""


def write(files: ClusterFiles, config: Config) -> None:
    """Every kind of resource: rules for all graphs, a pipeline into the first, a provider for those of the second
    queries."""
    files.file("p.yaml", RULES)
    files.file("load.yaml", LOAD)
    embedding = {"embedding_provider": "e"}
    graphs = {
        g: Declared(SCHEMAS[schema], {"q.gq": QUERIES[query]}, embedding if query == 1 else {})
        for g, (schema, query) in config.items()
    }
    bound = (
        {
            "policies": {"p": {"file": "p.yaml", "applies_to": list(config)}},
            "pipelines": {"load": {"file": "load.yaml", "graph": min(config)}},
            "providers": {"embedding": {"e": {"kind": "mock", "model": min(config)}}},
        }
        if config
        else {}
    )
    files.write(graphs, **bound, **UNLOCKED)


def approve_all(files: ClusterFiles) -> None:
    for gate in files.plan().approvals_required:
        if not gate.satisfied:
            assert files.approve(gate.resource).ok


def converge(files: ClusterFiles) -> None:
    """What an operator does after an accident: apply, approve what has to go, apply again."""
    report = files.apply()
    assert report.ok, report.diagnostics
    if not report.converged:
        approve_all(files)
        report = files.apply()
    assert report.converged, (report.changes, report.diagnostics)


def assert_is(files: ClusterFiles, config: Config) -> None:
    """The cluster is what one clean apply of a configuration makes of nothing."""
    state = files.state
    validated = files.validate()
    assert {address: r.digest for address, r in state.resources.items()} == validated.resource_digests
    assert state.applied_revision.config_digest is not None
    for graph_id, (schema, _) in config.items():
        assert look_at(files.graph_uri(graph_id)).schema == SCHEMAS[schema]
    current = {(graph_id, state.generation(graph_id)) for graph_id in config}
    beside = {folder for place, folder in graph_folders(files.objects).items() if place not in current}
    # What an init that died leaves of a graph nobody wants any more is no graph; another init may be at work there.
    assert {look_at(f"{files.objects.location.uri}/{folder}").standing for folder in beside} <= {Standing.UNFINISHED}
    with watched(counter := Counter()):
        again = files.apply()
    assert (again.changes, again.converged, again.state_written) == ((), True, False)
    assert again.diagnostics == files.plan().diagnostics
    assert counter.writes == []


def assert_servable(files: ClusterFiles) -> None:
    """Whatever stands was recorded as a whole: a server boots from it, unless there is no graph in it."""
    try:
        read_serving(files.root)
    except ClusterError as refused:
        assert refused.codes == ["cluster_empty"], refused  # noqa: PT017 (it need not raise)


def die(files: ClusterFiles, nth: int) -> bool:
    """Apply, and die before the n-th write. False when there were fewer."""
    with watched(death := Death(nth)):
        try:
            files.apply()
        except DiedError:
            return True
    return death.happened


CONFIGS = st.dictionaries(
    st.sampled_from(["a", "b"]), st.tuples(st.integers(0, len(SCHEMAS) - 1), st.integers(0, len(QUERIES) - 1))
)
EDITS = st.lists(st.tuples(CONFIGS, st.integers(1, 30), st.booleans()), min_size=1, max_size=3)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=EDITS, last=CONFIGS)
def test_edits_and_deaths_end_where_one_clean_apply_does(
    tmp_path: Path, edits: list[tuple[Config, int, bool]], last: Config
) -> None:
    shutil.rmtree(tmp_path / "cluster", ignore_errors=True)
    files = ClusterFiles(tmp_path / "cluster")
    write(files, {})
    assert files.import_().ok
    for config, nth, is_approved in edits:
        write(files, config)
        if is_approved:
            approve_all(files)
        die(files, nth)
        assert_servable(files)
    write(files, last)
    converge(files)
    assert_is(files, last)
    assert_servable(files)


BEFORE: Config = {"a": (0, 0), "b": (0, 0), "c": (0, 0)}
AFTER: Config = {"a": (1, 1), "c": (2, 0), "d": (0, 2)}


SMALL: Config = {"b": (0, 0)}


def applied(directory: Path, config: Config) -> Path:
    files = ClusterFiles(directory)
    write(files, config)
    assert files.import_().ok
    converge(files)
    return directory


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return applied(tmp_path_factory.mktemp("template") / "cluster", BEFORE)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return applied(tmp_path_factory.mktemp("template") / "cluster", SMALL)


def copied(template: Path, tmp_path: Path) -> ClusterFiles:
    shutil.rmtree(tmp_path / "cluster", ignore_errors=True)
    shutil.copytree(template, tmp_path / "cluster")
    return ClusterFiles(tmp_path / "cluster")


def test_an_apply_that_dies_before_any_of_its_writes_is_finished_by_the_next(template: Path, tmp_path: Path) -> None:
    """It makes a graph, changes two schemas, deletes a graph, changes and stores queries and rules."""
    for nth in itertools.count(1):
        files = copied(template, tmp_path)
        write(files, AFTER)
        approve_all(files)
        if not die(files, nth):
            break
        converge(files)
        assert_is(files, AFTER)
    assert nth > 15


def test_what_died_and_was_taken_back_is_undone(template: Path, tmp_path: Path) -> None:
    """The configuration goes back to what it was before the next apply: nothing of the dead one may stay."""
    for nth in itertools.count(1):
        files = copied(template, tmp_path)
        write(files, {**BEFORE, "a": (1, 0), "e": (0, 0)})
        if not die(files, nth):
            break
        write(files, BEFORE)
        converge(files)
        assert_is(files, BEFORE)
    assert nth > 8


def insert(files: ClusterFiles, graph_id: str, key: str) -> None:
    with omnigraph.open(files.graph_uri(graph_id)) as graph:
        graph.load([{"k": key}], type="A", mode="append")


def rows(files: ClusterFiles, graph_id: str) -> int:
    with omnigraph.open(files.graph_uri(graph_id)) as graph:
        return graph.query("query q() { match { $a: A } return { $a.k } }").num_rows


class Race(NamedTuple):
    """What an apply is to do, what others do while it is stopped, and what has to hold in the end."""

    prepare: Callable[[ClusterFiles], None]
    meanwhile: Callable[[ClusterFiles], None]
    check: Callable[[ClusterFiles], None]


# Every outcome but silence is fine: it was first, it was late, or it met what the others were doing.
LATE = {
    "state_cas_mismatch",
    "graph_create_failed",
    "schema_apply_failed",
    "resource_content_changed",  # its threads may read a file in the moment in which the others write it
}


def run_stalled(template: Path, tmp_path: Path, race: Race) -> int:
    """Stop the apply before its n-th request, for every n; how many requests there were."""
    for nth in itertools.count(1):
        files = copied(template, tmp_path)
        race.prepare(files)
        with watched(stop := Meanwhile(nth, partial(race.meanwhile, files))):
            report = files.apply()
        if not stop.happened:
            return nth - 1
        assert report.ok or LATE.intersection(codes(report)), report.diagnostics
        race.check(files)
    raise AssertionError("unreachable")


@contextmanager
def other_people(files: ClusterFiles) -> Iterator[None]:
    """Other people have another process, and another checkout: what they edit in theirs is not seen here."""
    before = {path: path.read_bytes() for path in files.directory.rglob("*") if path.suffix in (".yaml", ".pg", ".gq")}
    own = {path: data for path, data in before.items() if "__cluster" not in path.parts}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("omnigraph.engine.workspace.BRANCH_LOCKS", FairLocks())
        yield
    for path, data in own.items():
        path.write_bytes(data)


def test_a_stalled_delete_never_removes_a_graph_that_was_made_again(small: Path, tmp_path: Path) -> None:
    def prepare(files: ClusterFiles) -> None:
        write(files, {})
        approve_all(files)

    def meanwhile(files: ClusterFiles) -> None:
        """Another apply deletes the graph too, a third makes it again, and somebody writes to it."""
        with other_people(files):
            converge(files)
            write(files, SMALL)
            converge(files)
            insert(files, "b", "precious")

    def check(files: ClusterFiles) -> None:
        write(files, SMALL)
        made_again = files.state.generation("b") == 2 and "graph.b" in files.state.resources
        converge(files)
        if made_again:
            assert rows(files, "b") == 1
        assert_is(files, SMALL)

    assert run_stalled(small, tmp_path, Race(prepare, meanwhile, check)) > 10


def test_a_stalled_schema_change_does_not_undo_what_others_decided(small: Path, tmp_path: Path) -> None:
    """While it is stopped, the schema is changed by another apply and changed back: it must not be changed again."""
    wanted: Config = {"b": (1, 0)}

    def meanwhile(files: ClusterFiles) -> None:
        with other_people(files):
            for schema in (2, 0):
                write(files, {"b": (schema, 0)})
                converge(files)

    def check(files: ClusterFiles) -> None:
        live = look_at(files.graph_uri("b")).schema
        assert live is not None
        assert file_digest(live.encode()) == files.state.resources["schema.b"].digest
        converge(files)
        assert_is(files, wanted)

    def prepare(files: ClusterFiles) -> None:
        write(files, wanted)

    assert run_stalled(small, tmp_path, Race(prepare, meanwhile, check)) > 15


def test_two_creators_of_one_graph(small: Path, tmp_path: Path) -> None:
    """Both want the same graph, with other schemas; the one that is late says so or finds it."""

    def prepare(files: ClusterFiles) -> None:
        write(files, {**SMALL, "new": (1, 0)})

    def meanwhile(files: ClusterFiles) -> None:
        with other_people(files):
            write(files, {**SMALL, "new": (0, 0)})
            converge(files)
            insert(files, "new", "precious")

    def check(files: ClusterFiles) -> None:
        converge(files)
        assert rows(files, "new") == 1
        assert_is(files, {**SMALL, "new": (1, 0)})

    assert run_stalled(small, tmp_path, Race(prepare, meanwhile, check)) > 15


@pytest.mark.parametrize("nth", [3, 12, 18])
def test_a_killed_process_leaves_what_the_next_one_finishes(template: Path, tmp_path: Path, nth: int) -> None:
    files = copied(template, tmp_path)
    write(files, AFTER)
    approve_all(files)
    text = (files.directory / "cluster.yaml").read_text()
    files.file("cluster.yaml", text.replace("lock: false", "lock: true"))
    process = Process("tests.cluster.applier", files.source, str(nth))
    assert process.acknowledged() == []
    held = files.status().state_observations
    assert held.lock_operation == "apply"
    assert codes(files.apply()) == ["state_lock_held"]
    assert files.force_unlock(held.lock_id or "").lock_removed
    converge(files)
    assert_is_locked(files, AFTER)


def assert_is_locked(files: ClusterFiles, config: Config) -> None:
    assert files.plan().changes == ()
    assert {g for g, _ in graph_folders(files.objects)} == set(config)


def test_processes_that_apply_at_once(template: Path, tmp_path: Path) -> None:
    files = copied(template, tmp_path)
    write(files, AFTER)
    approve_all(files)
    racers = [Process("tests.cluster.applier", files.source, "") for _ in range(3)]
    start_together(racers)
    outcomes = [" ".join(words) for racer in racers for words in racer.acknowledged()]
    told = "\n".join([*outcomes, *map(str, files.history().revisions)])
    assert len(outcomes) == 3, told
    assert any(outcome.startswith("converged") for outcome in outcomes), told
    assert all(outcome.startswith("converged") or any(code in outcome for code in LATE) for outcome in outcomes), told
    assert_is(files, AFTER)


def test_a_cluster_on_any_store(place: Place, tmp_path: Path) -> None:
    """Bootstrap, change, delete, make again: on a disk and in a bucket."""
    files = ClusterFiles(tmp_path / "config", place.uri)
    write(files, {"a": (0, 0), "b": (0, 0)})
    assert files.import_().state_observations.state_revision == 1
    assert files.apply().converged
    insert(files, "b", "x")
    write(files, {"a": (1, 1)})
    assert not files.apply().converged
    converge(files)
    assert_is(files, {"a": (1, 1)})
    write(files, {"a": (1, 1), "b": (0, 0)})
    converge(files)
    assert rows(files, "b") == 0
    assert_is(files, {"a": (1, 1), "b": (0, 0)})
    assert [revision.operation for revision in files.history().revisions][-2:] == ["apply", "import"]
