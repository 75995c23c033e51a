"""Laws of history, on random edits of a small town: merges, diffs, feed and export must agree with each other."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from omnigraph import Graph
from omnigraph.api import wire
from omnigraph.errors import BadRequestError, MergeConflictsError
from tests.engine.town import SCHEMA, content, drop, knows, lives, new_town, person, place, put

PEOPLE = ("ada", "bob", "cy")
Edit: TypeAlias = tuple[str, ...]

person_edits = st.tuples(st.just("person"), st.sampled_from(PEOPLE), st.sampled_from(("", "1", "2")), st.just(""))
email_edits = st.tuples(st.just("email"), st.sampled_from(PEOPLE), st.sampled_from(("x", "y")), st.just(""))
place_edits = st.tuples(
    st.just("place"), st.sampled_from(("inn", "mill")), st.sampled_from(("house", "shop")), st.just("")
)
knows_edits = st.tuples(
    st.just("knows"), st.sampled_from(("k1", "k2")), st.sampled_from(PEOPLE), st.sampled_from(PEOPLE)
)
lives_edits = st.tuples(
    st.just("lives"), st.sampled_from(("l1", "l2")), st.sampled_from(PEOPLE), st.sampled_from(("inn", "mill"))
)
drops = st.tuples(st.just("drop"), st.sampled_from(PEOPLE), st.just(""), st.just(""))
edits = st.lists(
    st.one_of(person_edits, email_edits, place_edits, knows_edits, lives_edits, drops), min_size=1, max_size=5
)

few = settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

BASE = (person("ada", age=0), person("bob", photo="base64:AAE="), place("inn"), knows("k1", "ada", "bob"))


@contextmanager
def town() -> Iterator[Graph]:
    with tempfile.TemporaryDirectory() as folder, new_town(Path(folder) / "town", *BASE) as graph:
        graph.create_branch("left")
        graph.create_branch("right")
        yield graph


def edit(graph: Graph, branch: str, script: list[Edit]) -> None:
    """Each edit is a commit of its own; one that breaks a rule on its branch does nothing."""
    for kind, name, one, other in script:
        record = {
            "person": lambda n=name, a=one: person(n, **({"age": int(a)} if a else {"tags": []})),
            "email": lambda n=name, e=one: person(n, email=e),
            "place": lambda n=name, k=one: place(n, kind=k),
            "knows": lambda n=name, a=one, b=other: knows(n, a, b),
            "lives": lambda n=name, a=one, b=other: lives(n, a, b),
        }.get(kind)
        try:
            if record is None:
                drop(graph, branch, "Person", name)
            else:
                put(graph, branch, record())
        except BadRequestError:
            continue


def merged(graph: Graph, source: str, target: str) -> Any:
    """The merged graph, or what keeps it from being: without the entity that a clash happens to blame."""
    name = f"{source}-into-{target}"
    graph.create_branch(name, source=target)
    try:
        graph.merge(source, name)
    except MergeConflictsError as error:
        blamed = {"unique_violation"}
        return {(c.type_key, None if c.kind in blamed else c.entity_id, c.kind) for c in error.conflicts}
    return content(graph, name)


@contextmanager
def diverged(left: list[Edit], right: list[Edit]) -> Iterator[Graph]:
    """A town whose branches `left` and `right` have these edits."""
    with town() as graph:
        edit(graph, "left", left)
        edit(graph, "right", right)
        yield graph


@few
@given(left=edits, right=edits)
def test_merging_in_either_order_gives_the_same_graph_or_the_same_conflicts(
    left: list[Edit], right: list[Edit]
) -> None:
    with diverged(left, right) as graph:
        assert merged(graph, "left", "right") == merged(graph, "right", "left")


@few
@given(left=edits, right=edits)
def test_merging_twice_is_merging_once_and_both_ways_makes_equals(left: list[Edit], right: list[Edit]) -> None:
    with diverged(left, right) as graph:
        try:
            graph.merge("left", "right")
        except MergeConflictsError:
            return
        assert graph.merge("left", "right").outcome == "already_up_to_date"
        assert graph.merge("right", "left").outcome in ("fast_forward", "already_up_to_date")
        assert content(graph, "left") == content(graph, "right")
        assert graph.diff("left", "right").changes == ()


@few
@given(left=edits, right=edits)
def test_a_diff_applied_to_one_state_gives_the_other(left: list[Edit], right: list[Edit]) -> None:
    with diverged(left, right) as graph:
        before, after = content(graph, "left"), content(graph, "right")
        patched = dict(before)
        for change in graph.diff("left", "right").changes:
            key = (change.type_name, change.id)
            assert (key in before, key in after) == (change.op != "insert", change.op != "delete")
            if change.op == "delete":
                del patched[key]
            else:
                assert patched.get(key) != after[key]
                patched[key] = after[key]
        assert patched == after


@few
@given(left=edits, right=edits, page=st.integers(1, 5))
def test_the_feed_replayed_from_the_beginning_rebuilds_the_head(left: list[Edit], right: list[Edit], page: int) -> None:
    with diverged(left, right) as graph:
        merged(graph, "left", "right")
        branch = "left-into-right"
        rebuilt: dict[tuple[str, str], dict[str, Any]] = {}
        poll = graph.changes.poll(branch=branch, start="beginning", max_changes=page)
        while True:
            for block in poll.blocks:
                for change in block.changes:
                    _replay(rebuilt, wire.to_builtins(change))
            if poll.next_page_token is not None:
                poll = graph.changes.poll(branch=branch, page_token=poll.next_page_token, max_changes=page)
            elif not poll.caught_up:
                poll = graph.changes.poll(branch=branch, cursor=poll.cursor, max_changes=page)
            else:
                break
        assert rebuilt == content(graph, branch)


def _replay(state: dict[tuple[str, str], dict[str, Any]], change: dict[str, Any]) -> None:
    kind, name = change["kind"], change["type"]["name"]
    key = (name, change["id"])
    images = {
        side: {("type" if kind == "node" else "edge"): name, **image.get("endpoints", {}), **image["properties"]}
        for side in ("before", "after")
        if (image := change.get(side)) is not None
    }
    assert state.get(key) == images.get("before")
    state.pop(key, None)
    if "after" in images:
        state[key] = images["after"]


@few
@given(script=edits)
def test_an_export_loaded_into_a_fresh_graph_is_an_equal_graph(script: list[Edit]) -> None:
    with town() as graph, tempfile.TemporaryDirectory() as folder:
        edit(graph, "main", script)
        exported = list(graph.export())
        with Graph.init(Path(folder) / "copy", SCHEMA) as copy:
            copy.load(reversed(exported), mode="overwrite")
            assert list(copy.export()) == exported
            assert json.dumps(exported).count("\\n") == len(exported)
