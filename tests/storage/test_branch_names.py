"""`a` and `a/b` never live at the same time, wherever the processes that create and delete them are stopped or die."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.errors import BranchNotFoundError, ConflictError
from tests.support.preempt import DiedError, preempted
from tests.support.tables import append_one, ids, new_graph

LAST_REQUEST = 40


@dataclass(frozen=True)
class Work:
    """Something that is done to the branch of one name."""

    verb: str
    name: str

    def __call__(self, graph: Graph) -> None:
        if self.verb == "delete":
            graph.delete_branch(self.name)
            return
        graph.create_branch(self.name)
        if self.verb == "write":
            append_one(graph, self.name, self.name)

    def __str__(self) -> str:
        return f"{self.verb} {self.name.replace('/', '.')}"


def create(name: str) -> Work:
    return Work("create", name)


def create_and_write(name: str) -> Work:
    return Work("write", name)


def delete(name: str) -> Work:
    return Work("delete", name)


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Graphs in which the name `a` has never been used, is a path, was a path and then a branch, or was a branch."""
    pasts: dict[str, list[Work]] = {
        "unused": [],
        "a path": [create("a/x"), delete("a/x")],
        "a branch that is gone": [create("a"), delete("a")],
        "a path, then a branch that is gone": [create("a/x"), delete("a/x"), create("a"), delete("a")],
        "a branch, then a path": [create("a"), delete("a"), create("a/x"), delete("a/x")],
    }
    found = {}
    for past, works in pasts.items():
        found[past] = tmp_path_factory.mktemp("names") / "graph"
        with new_graph(str(found[past])) as graph:
            for work in works:
                work(graph)
    return found


def check(uri: Path, acknowledged: list[str]) -> None:
    for graph in (Graph.open(uri), Graph.open(uri)):
        names = graph.list_branches()
        nested = [(one, other) for one, other in itertools.permutations(names, 2) if other.startswith(f"{one}/")]
        assert not nested
        for name in acknowledged:
            assert name in names, f"'{name}' was acknowledged"
            graph.snapshot(name)
        for name in {"a", "a/b", "a/c"} - set(names):
            with pytest.raises(BranchNotFoundError):
                graph.snapshot(name)
        graph.close()
    with Graph.open(uri) as graph:
        for name in names:
            if name != "main":
                append_one(graph, f"after-{name}", name)
                assert f"after-{name}" in ids(graph, branch=name)
                graph.delete_branch(name)
        for name in ("a", "a/b"):  # no name is lost for ever
            graph.create_branch(name)
            graph.delete_branch(name)


PASTS = ["unused", "a path", "a branch that is gone", "a path, then a branch that is gone", "a branch, then a path"]
PAIRS = [
    (create("a"), create_and_write("a/b")),
    (create("a/b"), create_and_write("a")),
    (create("a/b"), create_and_write("a/b/c")),
    (create("a/b"), create_and_write("a/c")),
]


@pytest.mark.parametrize(
    ("stopped", "other", "dies"), [*((*pair, False) for pair in PAIRS), *((*pair, True) for pair in PAIRS[:2])], ids=str
)
@pytest.mark.parametrize("past", PASTS)
def test_a_branch_and_a_branch_beneath_it(
    originals: dict[str, Path], tmp_path: Path, past: str, stopped: Work, other: Work, dies: bool
) -> None:
    for nth in range(1, LAST_REQUEST):
        uri = tmp_path / str(nth)
        shutil.copytree(originals[past], uri)
        acknowledged: list[str] = []

        def attempt(work: Work, graph: Graph, acknowledged: list[str] = acknowledged) -> None:
            try:
                work(graph)
                acknowledged.append(work.name)
            except ConflictError:
                pass

        def meanwhile(uri: Path = uri, attempt: Callable[..., None] = attempt) -> None:
            with Graph.open(uri) as another:
                attempt(other, another)

        with Graph.open(uri) as graph:
            graph.snapshot()
            with preempted(graph, nth, meanwhile, dies=dies) as preemption:
                try:
                    attempt(stopped, graph)
                except DiedError:
                    assert dies
        check(uri, acknowledged)
        shutil.rmtree(uri)
        if not preemption.happened:
            return
    raise AssertionError("there are more requests than this test looks at")
