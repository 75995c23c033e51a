"""Many processes on one branch: every success is in the history exactly once, every failure is a clean conflict."""

from __future__ import annotations

import itertools
import threading
from collections import Counter

import pytest

from omnigraph import Graph
from omnigraph.engine.workspace import Workspace
from omnigraph.engine.write.publish import Intent, PublishPlan, ReadSet
from omnigraph.errors import BranchNotFoundError, PreconditionFailedError, ReadSetChangedError
from tests.conftest import Place
from tests.support.log_entries import list_commits
from tests.support.processes import Process, start_together
from tests.support.tables import (
    KNOWS,
    PEOPLE,
    PLACES,
    append,
    append_one,
    connect,
    edges,
    ids,
    new_graph,
    nodes,
    upsert,
)

PROCESSES, COMMITS = 8, 25


def run_together(place: Place, *commands: tuple[str, ...]) -> list[list[list[str]]]:
    processes = [Process("tests.storage.writer", place.uri, *c, environment=place.environment) for c in commands]
    start_together(processes)
    return [process.acknowledged() for process in processes]


def test_eight_processes_lose_and_double_nothing(place: Place) -> None:
    graph = new_graph(place.uri)
    said = run_together(place, *(("append", f"w{i}", str(COMMITS)) for i in range(PROCESSES)))

    rows = [words for lines in said for words in lines]
    assert len(rows) == PROCESSES * COMMITS
    history = list_commits(graph, limit=1_000).commits
    assert [e.version for e in history] == list(range(PROCESSES * COMMITS + 1, 0, -1))
    for child, parent in itertools.pairwise(history):
        assert [p.commit_id for p in child.commit.parents] == [parent.commit.id]
    assert Counter(e.commit.id for e in history[:-1]) == Counter(words[2] for words in rows)
    assert ids(graph) == sorted(words[1] for words in rows)
    assert graph.maintenance.verify().clean


def test_strict_writers_win_or_get_a_conflict_and_nothing_else(place: Place) -> None:
    graph = new_graph(place.uri)
    said = run_together(place, *(("strict", f"w{i}", "10") for i in range(4)))

    outcomes = Counter(" ".join(words[:2]) if words[0] == "conflict" else words[0] for lines in said for words in lines)
    assert set(outcomes) <= {"won", "conflict ReadSetChangedError"}
    assert outcomes["won"] + outcomes["conflict ReadSetChangedError"] == 40
    assert outcomes["won"] == graph.snapshot().version - 1
    assert ids(graph) == ["contended"]


@pytest.mark.parametrize("round_number", range(4))
def test_an_edge_and_the_removal_of_its_endpoint_never_both_commit(place: Place, round_number: int) -> None:
    graph = new_graph(place.uri)
    append(graph, {PEOPLE: nodes({"ann": 1, "bob": 2})})
    connected, removed = run_together(place, ("connect", "e", "ann", "bob"), ("remove", "bob"))
    outcomes = (connected[0][0], removed[0][0])
    assert outcomes != ("committed", "committed")
    assert "committed" in outcomes
    edge_exists, bob_exists = ids(graph, KNOWS) == ["e"], "bob" in ids(graph)
    assert not edge_exists or bob_exists


def test_a_read_set_conflict_is_found_between_disjoint_tables(local_place: Place) -> None:
    """The same race, step by step: both prepare on one head, the second publish must see the first."""
    graph = new_graph(local_place.uri)
    append(graph, {PEOPLE: nodes({"ann": 1, "bob": 2})})
    edge = graph._workspace.begin("main", Intent(kind="mutate"))
    removal = graph._workspace.begin("main", Intent(kind="mutate"))
    row = edges([("e", "ann", "bob")])
    edge_plan = PublishPlan(
        edge.stage({KNOWS: lambda s: graph._workspace.root.staging.append(s, row)}),
        ReadSet(present={PEOPLE: frozenset({"ann", "bob"})}),
    )
    removal_plan = PublishPlan(
        removal.stage({PEOPLE: lambda s: graph._workspace.root.staging.delete(s, ["bob"])}),
        ReadSet(tables=frozenset({KNOWS})),
    )
    graph._workspace.publish(removal, removal_plan)
    with pytest.raises(ReadSetChangedError) as refused:
        graph._workspace.publish(edge, edge_plan)
    assert refused.value.member == "graph_head:main"
    assert refused.value.expected == edge.base.commit.id
    assert refused.value.actual == graph.snapshot().commit_id
    assert ids(graph, KNOWS) == []


def test_an_unrelated_commit_only_moves_a_strict_write_to_the_next_slot(local_place: Place) -> None:
    graph = new_graph(local_place.uri)
    txn = graph._workspace.begin("main", Intent(kind="mutate"))
    staged = txn.stage({PEOPLE: lambda s: graph._workspace.root.staging.append(s, nodes({"ann": 1}))})
    append(graph, {PLACES: nodes({"home": 1})})
    published = graph._workspace.publish(txn, PublishPlan(staged))
    assert published.version == 3
    # Re-pointed, not staged again: the very version that was staged first is the published one.
    assert published.entry.tables[PEOPLE] == staged[PEOPLE].state
    assert ids(graph, PLACES) == ["home"]


def test_other_ids_of_a_read_table_may_change_under_a_strict_write(
    local_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = new_graph(local_place.uri)
    append(graph, {PEOPLE: nodes({"ann": 1, "bob": 2})})
    other = Graph.open(local_place.uri)
    original = Workspace.begin

    def begin_then_move(*arguments: object) -> object:
        txn = original(*arguments)  # type: ignore[arg-type]
        append_one(other, "carl")
        return txn

    monkeypatch.setattr(Workspace, "begin", begin_then_move)
    assert connect(graph, "e", "ann", "bob") is not None
    assert ids(graph, KNOWS) == ["e"]


def test_threads_of_one_process_take_turns_and_never_redo_each_others_work(local_place: Place) -> None:
    graph = new_graph(local_place.uri)
    other_handle = Graph.open(local_place.uri)
    prepared = Counter[str]()

    def work(handle: Graph, label: str) -> None:
        for i in range(10):

            def prepare(txn, name=f"{label}-{i}"):  # type: ignore[no-untyped-def]
                prepared[name] += 1
                return PublishPlan(txn.stage({PEOPLE: lambda s: txn.root.staging.append(s, nodes({name: 1}))}))

            handle._workspace.commit("main", prepare, Intent(kind="load"))

    threads = [
        threading.Thread(target=work, args=(handle, f"t{i}"))
        for i, handle in enumerate([graph, other_handle, graph, other_handle])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(prepared.values()) == {1}
    assert len(ids(graph)) == 40


def test_a_repeated_write_with_the_same_key_returns_the_first_commit(place: Place) -> None:
    graph = new_graph(place.uri)
    first = append_one(graph, "ann", idempotency_key="request-1")
    append_one(graph, "bob")
    again = append_one(Graph.open(place.uri), "ann", idempotency_key="request-1")
    assert again.replayed
    assert again.commit_id == first.commit_id
    assert ids(graph) == ["ann", "bob"]


def test_a_conditional_write_is_refused_when_the_head_is_another(local_place: Place) -> None:
    graph = new_graph(local_place.uri)
    head = graph.snapshot().commit_id
    append_one(graph, "ann", expected_head=head)
    with pytest.raises(PreconditionFailedError) as refused:
        append_one(graph, "bob", expected_head=head)
    assert (refused.value.expected, refused.value.actual) == (head, graph.snapshot().commit_id)
    assert ids(graph) == ["ann"]


def test_writers_of_a_deleted_branch_lose_to_its_tombstone(local_place: Place) -> None:
    graph = new_graph(local_place.uri)
    graph.create_branch("doomed")
    txn = graph._workspace.begin("doomed", Intent(kind="load"))
    staged = txn.stage({PEOPLE: lambda s: graph._workspace.root.staging.append(s, nodes({"late": 1}))})
    other = Graph.open(local_place.uri)
    other.delete_branch("doomed")
    other.create_branch("doomed")
    with pytest.raises(BranchNotFoundError):
        graph._workspace.publish(txn, PublishPlan(staged))
    assert ids(graph, branch="doomed") == []
    upsert(graph, PEOPLE, nodes({"new": 1}), "doomed")
    assert ids(other, branch="doomed") == ["new"]
