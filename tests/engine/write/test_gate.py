"""Rules at the handle: every way of writing asks them, whoever calls it, and nothing is written when they say no."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import omnigraph
from omnigraph import Graph
from omnigraph.api.enums import PolicyAction
from omnigraph.api.governance import AccessRequest, Decision
from omnigraph.errors import IdempotencyKeyReusedError, PolicyError, PolicyEvaluationError
from tests.support.receipts import replayed

SCHEMA = "node Person { name: String @key }"
ADD = 'query add() { insert Person { name: "Ada" } }'
RECORD = '{"type":"Person","data":{"name":"Bob"}}'


class Asked:
    """Allows some actions to one actor, and remembers what it was asked."""

    def __init__(self, *allowed: PolicyAction) -> None:
        self.allowed = allowed
        self.requests: list[tuple[str | None, AccessRequest]] = []

    def decide(self, actor: str | None, request: AccessRequest) -> Decision:
        self.requests.append((actor, request))
        if request.action in self.allowed and actor == "ana":
            return Decision(True, "yes", "rule")
        return Decision(False, f"policy denied action '{request.action}' for actor '{actor}'")


WRITES: dict[str, tuple[Callable[[Graph, str | None], object], list[AccessRequest]]] = {
    "mutate": (
        lambda g, who: g.mutate(ADD, branch=" side ", actor=who),
        [AccessRequest(PolicyAction.CHANGE, "side")],
    ),
    "load": (
        lambda g, who: g.load(RECORD, mode="merge", actor=who),
        [AccessRequest(PolicyAction.CHANGE, "main")],
    ),
    "load on a new branch": (
        lambda g, who: g.load(RECORD, mode="merge", branch="new", base="side", actor=who),
        [AccessRequest(PolicyAction.CHANGE, "new"), AccessRequest(PolicyAction.BRANCH_CREATE, "side", "new")],
    ),
    "schema": (
        lambda g, who: g.schema.apply(f"{SCHEMA}\nnode Dog {{ name: String @key }}", actor=who),
        [AccessRequest(PolicyAction.SCHEMA_APPLY, None, "main")],
    ),
    "create": (
        lambda g, who: g.create_branch("new", source="side", actor=who),
        [AccessRequest(PolicyAction.BRANCH_CREATE, "side", "new")],
    ),
    "delete": (
        lambda g, who: g.delete_branch("side", actor=who),
        [AccessRequest(PolicyAction.BRANCH_DELETE, None, "side")],
    ),
    "merge": (
        lambda g, who: g.merge("side", "main", actor=who),
        [AccessRequest(PolicyAction.BRANCH_MERGE, "side", "main")],
    ),
}


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with omnigraph.init(tmp_path / "g", SCHEMA) as graph:
        graph.create_branch("side")
        graph.load('{"type":"Person","data":{"name":"Cy"}}', mode="append", branch="side")
        yield graph


@pytest.mark.parametrize("name", WRITES)
def test_a_write_that_the_rules_deny_leaves_no_trace(graph: Graph, name: str) -> None:
    write, asked = WRITES[name]
    gate = Asked()
    before = (graph.list_branches(), [graph.resolve_snapshot(branch) for branch in graph.list_branches()])
    with pytest.raises(PolicyError, match=r"^policy: policy denied: policy denied action"):
        write(graph._with_gate(gate), "ana")
    assert gate.requests == [("ana", asked[0])]
    assert (graph.list_branches(), [graph.resolve_snapshot(branch) for branch in graph.list_branches()]) == before


@pytest.mark.parametrize("name", WRITES)
def test_a_write_that_the_rules_allow_is_made(graph: Graph, name: str) -> None:
    write, asked = WRITES[name]
    gate = Asked(*(request.action for request in asked))
    write(graph._with_gate(gate), "ana")
    assert gate.requests == [("ana", request) for request in asked]


@pytest.mark.parametrize("name", WRITES)
def test_under_rules_nobody_in_particular_may_do_nothing(graph: Graph, name: str) -> None:
    write, _ = WRITES[name]
    with pytest.raises(PolicyError):
        write(graph._with_gate(Asked(*PolicyAction)), None)


def test_a_merge_may_be_allowed_and_its_deletion_not(graph: Graph) -> None:
    merged = graph._with_gate(Asked(PolicyAction.BRANCH_MERGE)).merge("side", "main", delete_branch=True, actor="ana")
    assert merged.branch_deleted is False
    assert "policy denied action 'branch_delete'" in str(merged.branch_delete_error)
    assert "side" in graph.list_branches()


def test_rules_that_can_not_be_evaluated_are_no_permission(graph: Graph) -> None:
    class Broken:
        def decide(self, actor: str | None, request: AccessRequest) -> Decision:
            raise PolicyEvaluationError(["overflow"])

    with pytest.raises(PolicyError, match=r"^policy: policy evaluation failed: overflow$"):
        graph._with_gate(Broken()).mutate(ADD, actor="ana")


def test_the_receipt_of_a_write_is_for_its_author(graph: Graph) -> None:
    """It counts what its author saw; and what another one sees, the first write has perhaps not changed."""

    class Everybody:
        def decide(self, actor: str | None, request: AccessRequest) -> Decision:
            return Decision(True, "yes", "rule")

    governed = graph._with_gate(Everybody())
    writes: dict[str, Callable[[str], object]] = {
        "mutation": lambda who: governed.mutate(ADD, actor=who, idempotency_key="mutation"),
        "load": lambda who: governed.load(RECORD, mode="merge", actor=who, idempotency_key="load"),
        "merge": lambda who: governed.merge("side", "main", actor=who, idempotency_key="merge"),
        "schema": lambda who: governed.schema.apply(
            SCHEMA + " node Place {}", actor=who, allow_data_loss=True, idempotency_key="schema"
        ),
        "branch": lambda who: governed.create_branch("new", actor=who, idempotency_key="branch"),
        "deletion": lambda who: governed.delete_branch("new", actor=who, idempotency_key="deletion"),
    }
    for key, write in writes.items():
        first = write("ana")
        assert write("ana") == replayed(first)
        with pytest.raises(IdempotencyKeyReusedError, match=f"idempotency key '{key}'"):
            write("bob")
