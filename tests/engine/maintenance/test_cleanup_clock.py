"""Ages are taken from the store's clock: a cleaner whose own clock is wrong deletes nothing that is in use."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from omnigraph import Graph
from omnigraph.engine.write.publish import Intent, PublishPlan
from omnigraph.errors import ClockSkewError, ConflictError
from omnigraph.storage.log.write_guard import GRACE
from tests.conftest import Place
from tests.support.tables import PEOPLE, append_one, ids, new_graph, nodes


def turn_clock(monkeypatch: pytest.MonkeyPatch, by: timedelta) -> None:
    """The clock of this machine as Python sees it; what the store notes of its objects stays right."""
    right = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: right() + round(by.total_seconds() * 1e9))


@pytest.mark.parametrize("ahead", [GRACE - timedelta(hours=1), -(GRACE - timedelta(hours=1))])
def test_a_write_in_flight_survives_a_cleaner_in_another_time(
    place: Place, monkeypatch: pytest.MonkeyPatch, ahead: timedelta
) -> None:
    writer, cleaner = new_graph(place.uri), Graph.open(place.uri)
    append_one(writer, "ann")
    txn = writer._workspace.begin("main", Intent(kind="load"))
    staged = txn.stage({PEOPLE: lambda state: writer._workspace.root.staging.append(state, nodes({"bob": 1}))})
    with monkeypatch.context() as turned:
        turn_clock(turned, ahead)
        cleaner.maintenance.cleanup(keep_versions=1)
    writer._workspace.publish(txn, PublishPlan(staged))
    assert ids(Graph.open(place.uri)) == ["ann", "bob"]
    assert Graph.open(place.uri).maintenance.verify().clean


@pytest.mark.parametrize("ahead", [GRACE + timedelta(days=3), -GRACE - timedelta(days=3)])
def test_a_cleaner_whose_clock_is_off_by_more_than_the_grace_is_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch, ahead: timedelta
) -> None:
    graph = new_graph(place.uri)
    for name in ("ann", "bob"):
        append_one(graph, name)
    with monkeypatch.context() as turned:
        turn_clock(turned, ahead)
        with pytest.raises(ConflictError, match=r"nothing was removed: this machine's clock says .* set the clock"):
            graph.maintenance.cleanup(keep_versions=1)
    assert Graph.open(place.uri).snapshot(version=2).scan(PEOPLE).num_rows == 1
    assert graph.maintenance.cleanup(keep_versions=1).versions_removed == 1


@pytest.mark.parametrize("is_open", [True, False], ids=["turned while it is open", "wrong from the start"])
@pytest.mark.parametrize("ahead", [timedelta(days=3), -timedelta(hours=2)])
def test_a_writer_whose_clock_is_far_from_the_stores_publishes_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch, ahead: timedelta, is_open: bool
) -> None:
    """Its commits, and all that follow them, would carry times that `at` and cleanup by age go by."""
    append_one(new_graph(place.uri), "ann")
    graph = Graph.open(place.uri)
    if is_open:
        append_one(graph, "bob")
    names = ids(graph)
    with monkeypatch.context() as turned:
        turn_clock(turned, ahead)
        for write in (lambda: append_one(graph, "cid"), lambda: graph.create_branch("side")):
            with pytest.raises(ClockSkewError, match=r"this machine's clock says .* set the clock") as refused:
                write()
            assert refused.value.clock[:13] != refused.value.store[:13]
        with pytest.raises(ClockSkewError):
            new_graph(f"{place.uri}-new")
    assert ids(Graph.open(place.uri)) == names
    assert graph.list_branches() == ["main"]
    append_one(graph, "cid")
    assert ids(graph) == [*names, "cid"]
    new_graph(f"{place.uri}-new")


def test_a_machine_that_was_stopped_for_days_goes_on_writing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It did not count the time, but its clock was set when it went on: the store is asked again."""
    append_one(new_graph(place.uri), "ann")
    graph = Graph.open(place.uri)
    append_one(graph, "bob")
    counted = time.clock_gettime
    monkeypatch.setattr(time, "clock_gettime", lambda clock: counted(clock) - 2 * 86_400)
    append_one(graph, "cid")
    assert ids(graph) == ["ann", "bob", "cid"]
