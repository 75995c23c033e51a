"""A writer killed at any instant leaves a graph that opens, verifies clean and takes the next write.

Real processes, killed with SIGKILL: first at every named point of the write path, then at random instants.
"""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from omnigraph import Graph
from omnigraph.errors import BranchNotFoundError, NotFoundError
from omnigraph.storage.log.tracing import POINTS, Trace
from tests.conftest import Place
from tests.storage.writer import write_everything
from tests.support.child import SOON_AFTER_STEP, STEP, Steps
from tests.support.log_entries import list_commits
from tests.support.processes import Process, start_together
from tests.support.tables import KNOWS, NODE, PEOPLE, PLACES, append_one, create_graph, ids, new_graph

INIT_POINTS = [p for p in POINTS if p.startswith("init.")]
WRITE_POINTS = [p for p in POINTS if not p.startswith("init.")]
LOCAL_KILLS, S3_KILLS = 200, 100
KILLS_PER_GRAPH = 50
"""Every check reads the whole history: on one graph for all, most of the time would go into checking."""
AT_ONCE = 4
ROUNDS = 2
"""The longest life, in rounds of work that nobody disturbs."""


def start(place: Place, *arguments: str, kill_at: str = "") -> Process:
    return Process("tests.storage.writer", place.uri, *arguments, environment=place.environment, kill_at=kill_at)


def check_survivor(uri: str, said: list[list[str]], probe: str, new: int = 0) -> None:
    """Everything that was acknowledged is there; everything else is there completely or not at all.

    Branches are looked at one by one from the `new`th line on; the last check of a test looks at all.
    """
    graph = Graph.open(uri)
    report = graph.maintenance.verify()
    assert report.clean, report.problems

    people = ids(graph)
    assert people == ids(graph, PLACES) == ids(graph, KNOWS), "a commit over three tables is half visible"
    assert {words[1] for words in said if words[0] == "row"} <= set(people)

    names = graph.list_branches()
    for branch in names:
        graph.snapshot(branch)
    gone = {words[1] for words in said if words[0] == "gone"}
    assert not gone & set(names)
    for words in said[new:]:
        if words[0] == "gone":
            with pytest.raises(BranchNotFoundError):
                graph.snapshot(words[1])
        if words[0] == "branch" and words[1] not in gone and words[1] in names:
            assert graph.snapshot(words[1]).count(PEOPLE) >= 1

    history = list_commits(graph, limit=10_000).commits
    assert [e.version for e in history] == list(range(len(history), 0, -1))
    side = f"probe-{probe}"
    graph.create_branch(side)
    append_one(graph, f"after-{probe}", side)
    assert f"after-{probe}" in ids(graph, branch=side)
    graph.delete_branch(side)
    graph.close()


def test_the_points_named_here_are_all_the_points_there_are(local_place: Place) -> None:
    """A new durable step must be announced, and an announced one must be reached: else a kill there tests nothing."""
    reached: set[str] = set()
    trace = Trace()
    trace.observer = reached.add
    graph = new_graph(local_place.uri, trace=trace)
    for i in range(7):
        append_one(graph, f"a{i}")
    graph.create_branch("b")
    graph.delete_branch("b")
    assert reached == set(POINTS)


@pytest.mark.parametrize("point", WRITE_POINTS)
def test_a_writer_killed_at_a_named_point(place: Place, point: str) -> None:
    new_graph(place.uri).close()
    # Folding and branch deletion need a few rounds before they happen for the first time.
    for nth in (1, 3):
        process = start(place, "everything", f"n{nth}", "8", kill_at=f"{point}:{nth}")
        start_together([process])
        said = process.acknowledged()
        assert process.returncode == -9, f"{point} was not reached {nth} times"
        check_survivor(place.uri, said, f"{nth}")


@pytest.mark.parametrize("point", INIT_POINTS)
def test_an_init_killed_at_a_named_point(place: Place, point: str) -> None:
    process = start(place, "init", kill_at=point)
    process.acknowledged()
    assert process.returncode == -9
    if point == "init.claim.after":
        graph = Graph.open(place.uri)
    else:
        with pytest.raises(NotFoundError):
            Graph.open(place.uri)
        graph = create_graph(place.uri, {PEOPLE: NODE}, force=True)
    assert graph.maintenance.verify().clean
    append_one(graph, "first")
    assert ids(graph) == ["first"]


@pytest.mark.parametrize(("kind", "kills"), [("local", LOCAL_KILLS), ("remote", S3_KILLS)])
def test_writers_killed_at_random_instants(request: pytest.FixtureRequest, kind: str, kills: int) -> None:
    """Several writers share a graph. How long one lives is told in steps of its own, so that a slow machine kills it
    as deep in its work as a fast one: exactly at a step, or in the midst of what comes after it."""
    place: Place = request.getfixturevalue(f"{kind}_place")
    chance = random.Random(20_261)
    kinds: set[str] = set()
    for number in range(kills // KILLS_PER_GRAPH):
        said = kill_many(replace(place, uri=f"{place.uri}-{number}"), chance)
        kinds |= {words[0] for words in said}
    assert kinds == {"row", "branch", "gone"}, "no writer lived long enough to get through its work once"


def kill_many(place: Place, chance: random.Random) -> list[list[str]]:
    """Everything that the writers of one graph acknowledged before they were killed."""
    with new_graph(place.uri) as graph:
        steps = Steps(graph)
        write_everything(graph, "alone", ROUNDS)
    said: list[list[str]] = []
    checked = killed = 0
    with ThreadPoolExecutor(AT_ONCE) as watchers:
        while killed < KILLS_PER_GRAPH:
            processes = []
            for writer in range(killed, min(killed + AT_ONCE, KILLS_PER_GRAPH)):
                fate = f"{chance.choice((STEP, SOON_AFTER_STEP))}:{chance.randint(1, steps.count)}"
                processes.append(start(place, "everything", f"r{writer}", "1000", kill_at=fate))
            start_together(processes)
            for lines in watchers.map(Process.kill_when_dying, processes):
                said += lines
            for process in processes:
                process.wait()
                assert process.returncode == -9, process.errors()
                killed += 1
            if killed % (5 * AT_ONCE) == 0:
                check_survivor(place.uri, said, str(killed), checked)
                checked = len(said)
    check_survivor(place.uri, said, "last")
    return said
