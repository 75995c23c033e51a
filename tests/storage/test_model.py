"""The protocol against a trivial model: random branch, commit, delete and reopen sequences on a real graph."""

from __future__ import annotations

import shutil
import tempfile
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from omnigraph import Graph
from omnigraph.errors import BranchNotFoundError, ConflictError, NotFoundError
from tests.support.tables import PEOPLE, PLACES, append, ids, new_graph, nodes, upsert

NAMES = st.sampled_from(["a", "b", "a/x", "a/y", "b/x/deep", "Upper", "upper"])


class GraphAgainstModel(RuleBasedStateMachine):
    """The model: per live branch, the list of states it has gone through; a state is two dicts."""

    commits: Bundle[Any] = Bundle("commits")

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.mkdtemp()
        self.uri = f"{self.directory}/graph"
        self.graph = new_graph(self.uri)
        self.history: dict[str, list[dict[str, dict[str, int]]]] = {"main": [{PEOPLE: {}, PLACES: {}}]}
        self.parent: dict[str, str] = {}
        self.life: dict[str, int] = {"main": 0}
        self.lives = 0

    def teardown(self) -> None:
        self.graph.close()
        shutil.rmtree(self.directory)

    def state(self, branch: str) -> dict[str, dict[str, int]]:
        return self.history[branch][-1]

    @initialize(target=commits)
    def first(self) -> Any:
        return self.graph.snapshot().commit_id, "main", 1, 0

    @rule(
        target=commits,
        data=st.data(),
        people=st.dictionaries(st.sampled_from("pqrstuv"), st.integers(0, 9), max_size=3),
    )
    def commit(self, data: st.DataObject, people: dict[str, int]) -> Any:
        branch = data.draw(st.sampled_from(sorted(self.history)))
        known = self.state(branch)
        new = {k: v for k, v in people.items() if k not in known[PEOPLE]}
        published = append(self.graph, {PEOPLE: nodes(new), PLACES: nodes(new)}, branch)
        self.history[branch].append({PEOPLE: {**known[PEOPLE], **new}, PLACES: {**known[PLACES], **new}})
        assert published.version == len(self.history[branch])
        return published.commit_id, branch, published.version, self.life[branch]

    @rule(data=st.data(), value=st.integers(0, 99))
    def overwrite_values(self, data: st.DataObject, value: int) -> None:
        branch = data.draw(st.sampled_from(sorted(self.history)))
        known = self.state(branch)
        changed = dict.fromkeys(known[PEOPLE], value)
        upsert(self.graph, PEOPLE, nodes(changed), branch)
        self.history[branch].append({PEOPLE: changed, PLACES: known[PLACES]})

    @rule(name=NAMES, data=st.data())
    def create_branch(self, name: str, data: st.DataObject) -> None:
        source = data.draw(st.sampled_from(sorted(self.history)))
        others = [b for b in self.history if b != "main"]
        blocked = any(b == name or b.startswith(f"{name}/") or name.startswith(f"{b}/") for b in others)
        if blocked:
            with pytest.raises(ConflictError):
                self.graph.create_branch(name, source=source)
            return
        self.graph.create_branch(name, source=source)
        self.history[name] = list(self.history[source])
        self.parent[name] = source
        self.lives += 1
        self.life[name] = self.lives

    @rule(data=st.data())
    def delete_branch(self, data: st.DataObject) -> None:
        branch = data.draw(st.sampled_from([*sorted(b for b in self.history if b != "main"), "absent"]))
        if branch == "absent":
            with pytest.raises(BranchNotFoundError):
                self.graph.delete_branch(branch)
            return
        if branch in self.parent.values():
            with pytest.raises(ConflictError, match="still depends on it"):
                self.graph.delete_branch(branch)
            return
        self.graph.delete_branch(branch)
        del self.history[branch], self.parent[branch], self.life[branch]

    @rule(commit=commits)
    def read_by_commit_id(self, commit: Any) -> None:
        commit_id, branch, version, life = commit
        alive = self.life.get(branch) == life
        inherited = [b for b, states in self.history.items() if len(states) >= version]
        try:
            snapshot = self.graph.snapshot(snapshot=commit_id)
        except NotFoundError:
            assert not alive
            return
        assert snapshot.version == version
        assert inherited
        if alive:
            assert people_of(snapshot) == self.history[branch][version - 1][PEOPLE]

    @rule(commit=consumes(commits))
    def forget(self, commit: Any) -> None:
        """Keeps the bundle small, so that old and new commits are both read."""

    @rule(data=st.data())
    def read_by_version(self, data: st.DataObject) -> None:
        branch = data.draw(st.sampled_from(sorted(self.history)))
        version = data.draw(st.integers(1, len(self.history[branch])))
        assert people_of(self.graph.snapshot(branch, version=version)) == self.history[branch][version - 1][PEOPLE]

    @rule()
    def reopen(self) -> None:
        self.graph.close()
        self.graph = Graph.open(self.uri)

    @invariant()
    def heads_are_the_model(self) -> None:
        assert self.graph.list_branches() == sorted(self.history)
        for branch, states in self.history.items():
            snapshot = self.graph.snapshot(branch)
            assert snapshot.version == len(states)
            assert people_of(snapshot) == states[-1][PEOPLE]
            assert ids(self.graph, PLACES, branch) == sorted(states[-1][PLACES])


def people_of(snapshot: Any) -> dict[str, int]:
    table = snapshot.scan(PEOPLE)
    return dict(zip(table["id"].to_pylist(), table["n"].to_pylist(), strict=True))


TestGraphAgainstModel = GraphAgainstModel.TestCase
TestGraphAgainstModel.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
