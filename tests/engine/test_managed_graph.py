"""Graphs that somebody else keeps: what stands is told apart; a change is made on what was looked at, or not at all."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path

import pytest

import omnigraph
from omnigraph.cluster.storage_root import make_root
from omnigraph.engine.managed_graph import Standing, change_schema, look_at, make, preview_change, schema_made_by
from omnigraph.errors import AlreadyInitializedError, BadRequestError, ConflictError, StorageError
from omnigraph.storage.log.cleanup_journal import JOURNAL_FOLDER
from omnigraph.storage.log.tracing import Trace
from tests.conftest import Place
from tests.support.every_store import Meanwhile, watched

FIRST = "node A { k: String @key }\n"
SECOND = "node A { k: String @key\n x: I32? }\n"
SAME = f"// said otherwise\n{FIRST}"


def append(uri: str, key: str) -> None:
    with omnigraph.open(uri) as graph:
        graph.load([{"k": key}], type="A", mode="append")


def test_what_stands_is_told_apart(place: Place) -> None:
    assert look_at(place.uri).standing is Standing.NOTHING
    objects = make_root(place.uri)
    assert look_at(place.uri).standing is Standing.NOTHING
    objects.claim("schemas/left.json", b"{}")
    assert look_at(place.uri).standing is Standing.UNFINISHED
    make(place.uri, FIRST, "op-1", "ana")
    found = look_at(place.uri)
    assert (found.standing, found.version, found.schema) == (Standing.GRAPH, 1, FIRST)
    assert schema_made_by(place.uri) == "op-1"
    with pytest.raises(AlreadyInitializedError):
        make(place.uri, FIRST, "op-2", None)
    objects.put("__manifest/graph.json", b"{", durable=True)
    broken = look_at(place.uri)
    assert broken.standing is Standing.BROKEN
    assert broken.problem is not None
    objects.delete("__manifest/graph.json")
    objects.claim("notes.txt", b"")
    assert look_at(place.uri).standing is Standing.OCCUPIED


def test_an_init_that_died_is_no_graph_and_no_obstacle(tmp_path: Path) -> None:
    uri = str(tmp_path / "g")

    class DiedError(BaseException):
        pass

    def die(point: str) -> None:
        if point == "init.genesis.after":
            raise DiedError

    trace = Trace()
    trace.observer = die
    with pytest.raises(DiedError):
        omnigraph.Graph.init(uri, FIRST, trace=trace)
    assert look_at(uri).standing in (Standing.UNFINISHED, Standing.NOTHING)
    make(uri, SECOND, "op", None)
    assert look_at(uri).schema == SECOND


def test_of_two_inits_the_loser_takes_nothing_from_the_winner(tmp_path: Path) -> None:
    """It made the folder, and takes back what it made; by then the folder is the winner's, also what is empty in it."""
    uri = str(tmp_path / "g")

    def overtake(point: str) -> None:
        if point == "init.genesis.after":
            make(uri, FIRST, "op", None)

    trace = Trace()
    trace.observer = overtake
    with pytest.raises(AlreadyInitializedError):
        omnigraph.Graph.init(uri, SECOND, trace=trace)
    assert look_at(uri).schema == FIRST
    assert (tmp_path / "g" / JOURNAL_FOLDER).is_dir()
    append(uri, "a")


def test_a_graph_that_is_made_while_it_is_looked_at_is_whole_or_not_there(tmp_path: Path) -> None:
    """Leftovers of an init lie there; another one makes the graph between any two requests of the look."""
    for nth in itertools.count(1):
        root = tmp_path / f"{nth}.omni"
        (root / "schemas").mkdir(parents=True)
        (root / "schemas/left.json").write_text("{}")
        with watched(stop := Meanwhile(nth, partial(make, str(root), FIRST, "op", None))):
            found = look_at(str(root))
        if not stop.happened:
            break
        assert found.standing in (Standing.GRAPH, Standing.UNFINISHED), (nth, found)
    assert nth > 2


def test_a_store_that_does_not_answer_is_no_empty_place(monkeypatch: pytest.MonkeyPatch, s3_place: Place) -> None:
    make(s3_place.uri, FIRST, "op", None)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(StorageError):
        look_at(s3_place.uri)


def test_a_root_may_vanish_while_it_is_looked_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another apply removes it between the look at the directory and the opening of its store."""
    monkeypatch.setattr("omnigraph.storage.objects.os.path.isdir", lambda path: True)
    assert look_at(str(tmp_path / "gone")).standing is Standing.NOTHING


@pytest.fixture
def uri(tmp_path: Path) -> str:
    made = str(tmp_path / "g")
    make(made, FIRST, "op-1", None)
    return made


def test_a_graph_holds_the_text_word_for_word(uri: str) -> None:
    applied = change_schema(uri, look_at(uri), SAME, "op-2", "ana")
    assert (applied.applied, applied.steps) == (True, ())
    assert look_at(uri).schema == SAME
    assert schema_made_by(uri) == "op-2"
    again = change_schema(uri, look_at(uri), SAME, "op-3", "ana")
    assert not again.applied
    assert schema_made_by(uri) == "op-2"


def test_data_that_came_meanwhile_is_no_obstacle(uri: str) -> None:
    seen = look_at(uri)
    append(uri, "a")
    append(uri, "b")
    assert change_schema(uri, seen, SECOND, "op-2", None).applied
    with omnigraph.open(uri) as graph:
        assert graph.query("query q() { match { $a: A } return { $a.k, $a.x } }").num_rows == 2


def test_a_schema_that_was_changed_meanwhile_is_left_alone_also_if_it_was_changed_back(uri: str) -> None:
    seen = look_at(uri)
    change_schema(uri, seen, SAME, "op-2", None)
    change_schema(uri, look_at(uri), FIRST, "op-3", None)
    append(uri, "a")
    with pytest.raises(ConflictError, match="was changed meanwhile, in version 2"):
        change_schema(uri, seen, SECOND, "op-4", None)
    assert look_at(uri).schema == FIRST


def test_another_graph_at_the_same_place_is_left_alone(uri: str, tmp_path: Path) -> None:
    seen = look_at(uri)
    (tmp_path / "g").rename(tmp_path / "away")
    make(uri, FIRST, "op-2", None)
    with pytest.raises(ConflictError, match="not the graph that was looked at"):
        change_schema(uri, seen, SECOND, "op-3", None)


def test_what_can_not_be_done_is_previewed_and_refused(uri: str) -> None:
    impossible = "node A { k: String @key\n x: I32 }\n"
    assert not preview_change(uri, impossible).supported
    with pytest.raises(BadRequestError, match="can't be applied"):
        change_schema(uri, look_at(uri), impossible, "op-2", None)
    assert look_at(uri).version == 1
