"""Creating and deleting a branch under a key happens once, wherever a try dies or stalls and whatever others do."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.errors import BranchNotFoundError, ConflictError, IdempotencyKeyReusedError
from omnigraph.storage.log.ref_generations import RefGenerations
from omnigraph.storage.models import IDEMPOTENCY_WINDOW, BranchRef, KeyUse, Tombstone, encode
from tests.support.preempt import DiedError, preempted
from tests.support.tables import append_one, ids, new_graph

LAST_REQUEST = 40
KEY = "once"


@dataclass(frozen=True)
class Request:
    """What is asked for under the key."""

    verb: str
    name: str = "a"

    def __call__(self, graph: Graph) -> bool:
        """Whether an earlier try had done it."""
        call = graph.create_branch if self.verb == "create" else graph.delete_branch
        return call(self.name, idempotency_key=KEY).replayed

    def times_done(self, uri: Path) -> int:
        """How many lives of the name the key has made, or ended."""
        return sum(getattr(use, "key", None) == KEY for use in self._uses(uri))

    def _uses(self, uri: Path) -> list[KeyUse | None]:
        with Graph.open(uri) as graph:
            root = graph._workspace.root
            lives = RefGenerations(root.objects)
            refs = [lives.read(life.name, life.number) for life in lives.of(self.name) if not life.is_path]
            logs = [(ref, root.log.newest(ref)) for ref in refs if ref is not None]
            if self.verb == "delete":
                return [end.key for _, end in logs if isinstance(end, Tombstone)]
            alive = self.name in graph.list_branches()
            newest = logs[-1][0] if logs and alive else None
            return [ref.key for ref, end in logs if isinstance(end, Tombstone) or ref is newest]

    def __str__(self) -> str:
        return f"{self.verb} {self.name.replace('/', '.')}"


Work = Callable[[Graph], object]


def create(name: str) -> Work:
    return lambda graph: graph.create_branch(name)


def delete(name: str) -> Work:
    return lambda graph: graph.delete_branch(name)


PASTS: dict[str, list[Work]] = {
    "unused": [],
    "lives": [create("a")],
    "is gone": [create("a"), delete("a")],
    "lives again": [create("a"), delete("a"), create("a")],
    "was a path": [create("a/x"), delete("a/x")],
    "a branch, then a path": [create("a"), delete("a"), create("a/x"), delete("a/x")],
}
REQUESTS = [
    ("unused", Request("create")),
    ("unused", Request("create", "a/b")),
    ("is gone", Request("create")),
    ("was a path", Request("create")),
    ("a branch, then a path", Request("create")),
    ("lives", Request("delete")),
    ("lives again", Request("delete")),
]


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    found = {}
    for past, works in PASTS.items():
        found[past] = tmp_path_factory.mktemp("keys") / "graph"
        with new_graph(str(found[past])) as graph:
            for work in works:
                work(graph)
    return found


def take_the_name(uri: Path, name: str) -> None:
    """Another one deletes whatever has the name, and makes a branch of its own with it."""
    with Graph.open(uri) as other:
        if name in other.list_branches():
            other.delete_branch(name)
        other.create_branch(name)
        append_one(other, "theirs", name)


def is_theirs(uri: Path, name: str) -> bool:
    with Graph.open(uri) as graph:
        return "theirs" in ids(graph, branch=name)


@pytest.mark.parametrize("others", [False, True], ids=["alone", "others"])
@pytest.mark.parametrize(("past", "request_"), REQUESTS, ids=str)
def test_a_try_that_died_anywhere_is_repeated(
    originals: dict[str, Path], tmp_path: Path, past: str, request_: Request, others: bool
) -> None:
    for nth in range(1, LAST_REQUEST):
        uri = tmp_path / str(nth)
        shutil.copytree(originals[past], uri)
        with Graph.open(uri) as graph:
            graph.snapshot()
            with preempted(graph, nth, lambda: None, dies=True) as death, contextlib.suppress(DiedError):
                assert not request_(graph)
        happened = request_.times_done(uri)
        assert happened or death.happened
        if others:
            take_the_name(uri, request_.name)
        with Graph.open(uri) as graph:
            if not happened and others and request_.verb == "create":
                with pytest.raises(ConflictError, match="exists already"):
                    request_(graph)
            else:
                # A claim to the name of a path may stand unconfirmed; the repeat completes it.
                assert request_(graph) == bool(happened) or "path" in past
                assert request_.times_done(uri) == 1
                assert request_(graph), "and again"
        kept = others and (happened or request_.verb == "create")
        assert not kept or is_theirs(uri, request_.name)
        shutil.rmtree(uri)
        if not death.happened:
            return
    raise AssertionError("there are more requests than this test looks at")


@pytest.mark.parametrize("others", [False, True], ids=["alone", "others"])
@pytest.mark.parametrize(("past", "request_"), REQUESTS, ids=str)
def test_a_try_that_stalls_is_overtaken_by_its_repeat(
    originals: dict[str, Path], tmp_path: Path, past: str, request_: Request, others: bool
) -> None:
    for nth in range(1, LAST_REQUEST):
        uri = tmp_path / str(nth)
        shutil.copytree(originals[past], uri)
        repeats: list[bool] = []

        def repeat(uri: Path = uri, repeats: list[bool] = repeats) -> None:
            with Graph.open(uri) as graph:
                repeats.append(request_(graph))
            if others:
                take_the_name(uri, request_.name)

        with Graph.open(uri) as graph:
            graph.snapshot()
            with preempted(graph, nth, repeat) as stall:
                first = request_(graph)
        assert request_.times_done(uri) == 1
        if stall.happened:
            assert first or repeats[0], "one of them did it"
            assert not others or is_theirs(uri, request_.name)
        shutil.rmtree(uri)
        if not stall.happened:
            return
    raise AssertionError("there are more requests than this test looks at")


def test_a_branch_that_is_made_while_the_one_before_it_is_deleted(originals: dict[str, Path], tmp_path: Path) -> None:
    """Whoever takes the name at the very moment of its deletion knows the key of that deletion."""
    made = 0
    for nth in range(1, LAST_REQUEST):
        uri = tmp_path / str(nth)
        shutil.copytree(originals["lives"], uri)
        with Graph.open(uri) as graph:
            # A deletion that died before its tombstone: from now on only the log says whether the branch lives.
            RefGenerations(graph._workspace.root.objects).mark("a", 1, "deleting")

        def end(uri: Path = uri) -> None:
            with Graph.open(uri) as graph:
                assert not Request("delete")(graph)

        with Graph.open(uri) as graph:
            graph.snapshot()
            with preempted(graph, nth, end) as stall:
                try:
                    graph.create_branch("a")
                    made += 1
                except ConflictError:
                    pass
            if stall.happened:
                before = graph.list_branches()
                with Graph.open(uri) as fresh:
                    assert Request("delete")(fresh)
                assert graph.list_branches() == before
        shutil.rmtree(uri)
        if not stall.happened:
            assert made, "the name was free in time"
            return
    raise AssertionError("there are more requests than this test looks at")


# What is remembered


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return new_graph(str(tmp_path / "graph"))


def test_a_key_is_known_over_later_lives_of_the_name(graph: Graph) -> None:
    graph.create_branch("a", actor="ana", idempotency_key="made")
    graph.delete_branch("a", actor="rob", idempotency_key="ended")
    graph.create_branch("a/x")  # the name is a path now, which has no content
    graph.delete_branch("a/x")
    for _ in range(3):
        graph.create_branch("a")
        graph.delete_branch("a")
    graph.create_branch("a")
    fresh = Graph.open(graph.uri)
    made = fresh.create_branch("a", actor="eve", idempotency_key="made")
    ended = fresh.delete_branch("a", actor="eve", idempotency_key="ended")
    assert (made.replayed, made.actor_id, ended.replayed, ended.actor_id) == (True, "ana", True, "rob")
    assert "a" in fresh.list_branches()


def test_the_oldest_keys_are_forgotten(graph: Graph) -> None:
    rounds = IDEMPOTENCY_WINDOW // 2 + 1
    for n in range(rounds):
        graph.create_branch("a", idempotency_key=f"made {n}")
        graph.delete_branch("a", idempotency_key=f"ended {n}")
    graph.create_branch("a")
    ref = graph._workspace.head("a").ref
    assert len(ref.earlier_keys) == IDEMPOTENCY_WINDOW
    assert ref.earlier_keys[0].key == "made 1"
    assert graph.create_branch("a", idempotency_key="made 1").replayed
    with pytest.raises(ConflictError, match="exists already"):
        graph.create_branch("a", idempotency_key="made 0")


def test_a_source_that_is_gone_does_not_matter_to_a_repeat(graph: Graph) -> None:
    graph.create_branch("source")
    graph.create_branch("a", source="source", idempotency_key=KEY)
    graph.delete_branch("a")
    graph.delete_branch("source")
    assert graph.create_branch("a", source="source", idempotency_key=KEY).replayed
    with pytest.raises(BranchNotFoundError, match="source"):
        graph.create_branch("a", source="source", idempotency_key="other")


def test_a_path_that_became_a_branch_does_not_matter_to_a_repeat(graph: Graph) -> None:
    graph.create_branch("a/b", idempotency_key=KEY)
    graph.delete_branch("a/b")
    graph.create_branch("a")
    assert graph.create_branch("a/b", idempotency_key=KEY).replayed
    with pytest.raises(ConflictError, match="beneath the live branch 'a'"):
        graph.create_branch("a/b", idempotency_key="other")


def test_a_key_belongs_to_one_request(graph: Graph) -> None:
    graph.create_branch("side")
    graph.create_branch("a", idempotency_key=KEY)
    others: list[Work] = [
        lambda g: g.create_branch("a", source="side", idempotency_key=KEY),
        lambda g: g.delete_branch("a", idempotency_key=KEY),
    ]
    for other in others:
        with pytest.raises(IdempotencyKeyReusedError, match="'once' was used for another request; nothing was") as told:
            other(graph)
        assert told.value.commit_id is None
    assert "a" in graph.list_branches()
    graph.delete_branch("a", idempotency_key="end")
    for other in others:
        with pytest.raises(IdempotencyKeyReusedError):
            other(Graph.open(graph.uri))
    assert not graph.create_branch("b", idempotency_key=KEY).replayed, "a key belongs to the name of a branch"


def test_what_did_not_happen_is_not_remembered(graph: Graph) -> None:
    with pytest.raises(BranchNotFoundError):
        graph.delete_branch("a", idempotency_key=KEY)
    graph.create_branch("a")
    with pytest.raises(ConflictError, match="exists already"):
        graph.create_branch("a", idempotency_key="second")
    assert not graph.delete_branch("a", idempotency_key=KEY).replayed
    assert not graph.create_branch("a", idempotency_key="second").replayed


@pytest.mark.parametrize("name", ["", "..", "a//b", "__internal", "main/.."])
def test_a_name_that_no_branch_can_have(graph: Graph, name: str) -> None:
    with pytest.raises(BranchNotFoundError):
        graph.delete_branch(name, idempotency_key=KEY)
    with pytest.raises(BranchNotFoundError, match="none"):
        graph.create_branch(name, source="none", idempotency_key=KEY)


def test_without_a_key_the_stored_forms_are_what_they_were(graph: Graph) -> None:
    graph.create_branch("a")
    ref = graph._workspace.head("a").ref
    graph.delete_branch("a")
    end = graph._workspace.root.log.newest(ref)
    graph.create_branch("a")
    for stored in (ref, end, graph._workspace.head("a").ref):
        assert b"key" not in encode(stored)
    assert isinstance(ref, BranchRef)
