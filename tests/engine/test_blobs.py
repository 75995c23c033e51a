"""Reading blob cells: states, ranges, tags, targets, and what renames and re-added names mean for the past."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.api import wire
from omnigraph.api.queries import LONGEST_READ
from omnigraph.engine.blobs import ExternalBlob, ManagedBlob
from omnigraph.engine.write.external_blobs import AllowedBase, ExternalBlobPolicy, Scope
from omnigraph.errors import BadRequestError, BlobRangeError, NotFoundError, ResourceLimitError
from tests.conftest import Place
from tests.engine.library import SCHEMA, blob, book, load, reader

SIZES = {"empty": 0, "inline": 10, "packed": 100_000, "dedicated": LONGEST_READ + 100}


def value(size: int) -> bytes:
    return bytes(i * 31 % 251 for i in range(min(size, 251))) * (size // 251 + 1) if size else b""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = Graph.init(tmp_path / "graph", SCHEMA)
    load(graph, [book(name, cover=blob(value(size)[:size])) for name, size in SIZES.items()])
    load(graph, [book("null")])
    return graph


def managed(graph: Graph, isbn: str, **target: object) -> ManagedBlob:
    content = graph.read_blob("node", "Book", isbn, "cover", **target).content  # type: ignore[arg-type]
    assert isinstance(content, ManagedBlob)
    return content


@pytest.mark.parametrize("name", SIZES)
def test_managed_values_of_every_size(graph: Graph, name: str) -> None:
    content = managed(graph, name)
    assert content.length == SIZES[name]
    assert content.read() == value(SIZES[name])[: SIZES[name]]


def test_a_null_cell_is_not_found_and_an_empty_one_is_a_value(graph: Graph) -> None:
    with pytest.raises(NotFoundError, match="Blob cell not found"):
        managed(graph, "null")
    assert managed(graph, "empty").read() == b""


@pytest.mark.parametrize(("start", "end"), [(0, 0), (0, 10), (3, 7), (10, 10), (9, 10)])
def test_ranges_are_half_open(graph: Graph, start: int, end: int) -> None:
    assert managed(graph, "inline").read_range(start, end) == value(10)[:10][start:end]


@pytest.mark.parametrize(("start", "end"), [(0, 11), (11, 11), (5, 4), (-1, 3)])
def test_ranges_outside_the_value_are_refused_with_their_numbers(graph: Graph, start: int, end: int) -> None:
    with pytest.raises(BlobRangeError) as refused:
        managed(graph, "inline").read_range(start, end)
    assert (refused.value.start, refused.value.end, refused.value.length) == (start, end, 10)


def test_one_read_has_a_ceiling(graph: Graph) -> None:
    large = managed(graph, "dedicated")
    assert len(large.read_range(100, LONGEST_READ + 100)) == LONGEST_READ
    with pytest.raises(ResourceLimitError) as refused:
        large.read_range(0, LONGEST_READ + 1)
    assert refused.value.resource == "Blob read range bytes"


@pytest.mark.parametrize(
    ("kind", "type_", "entity", "prop", "error"),
    [
        ("vertex", "Book", "inline", "cover", BadRequestError),
        ("node", "Tome", "inline", "cover", NotFoundError),
        ("edge", "Book", "inline", "cover", NotFoundError),
        ("node", "Book", "inline", "title", BadRequestError),
        ("node", "Book", "inline", "back", NotFoundError),
        ("node", "Book", "nobody", "cover", NotFoundError),
        ("node", "Book", "x' OR '1'='1", "cover", NotFoundError),
    ],
)
def test_wrong_selectors(graph: Graph, kind: str, type_: str, entity: str, prop: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        graph.read_blob(kind, type_, entity, prop)


@pytest.mark.parametrize("isbn", ["it's", 'a "quote"', "back\\slash", "naïve ☃", "%_*"])
def test_ids_are_taken_literally(graph: Graph, isbn: str) -> None:
    load(graph, [book(isbn, cover=blob(b"mine"))])
    assert managed(graph, isbn).read() == b"mine"


def test_a_reader_stays_on_its_snapshot(graph: Graph) -> None:
    before, then = managed(graph, "inline"), graph.snapshot()
    load(graph, [book("inline", cover=blob(b"new"))])
    assert before.read() == value(10)[:10]
    assert managed(graph, "inline").read() == b"new"
    assert managed(graph, "inline", version=then.version).read() == value(10)[:10]
    read = graph.read_blob("node", "Book", "inline", "cover", snapshot=then.commit_id)
    assert read.resolved_target == then.commit_id


def test_tags_are_strong_stable_and_never_shared(graph: Graph) -> None:
    tag = managed(graph, "inline").etag
    assert tag == managed(Graph.open(graph.uri), "inline").etag
    assert tag.startswith('"')
    assert tag[1:-1] == tag[1:-1].lower()
    int(tag[1:-1], 16)
    assert tag != managed(graph, "packed").etag
    load(graph, [reader("r")])
    assert tag == managed(graph, "inline").etag, "another type changed"
    graph.create_branch("b")
    load(graph, [book("inline", cover=blob(b"one"))], branch="b")
    first = managed(graph, "inline", branch="b").etag
    graph.delete_branch("b")
    graph.create_branch("b")
    load(graph, [book("inline", cover=blob(b"two"))], branch="b")
    assert managed(graph, "inline", branch="b").etag not in (tag, first)


def test_the_form_of_a_stat(graph: Graph) -> None:
    found = graph.read_blob("node", "Book", "inline", "cover", branch="main")
    assert wire.to_builtins(found.description) == {
        "selector": {"entity": "node", "type": "Book", "id": "inline", "property": "cover"},
        "kind": "managed",
        "size": 10,
        "etag": managed(graph, "inline").etag,
        "target": {"branch": "main", "resolved_snapshot": graph.snapshot().commit_id},
    }


def test_an_external_value_is_described_and_never_opened(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    picture = tmp_path / "pictures" / "a.png"
    picture.write_bytes(b"pixels")
    graph = Graph.init(tmp_path / "graph", SCHEMA)
    policy = ExternalBlobPolicy.allow(AllowedBase(f"file://{tmp_path}/pictures", Scope.EMBEDDED_ONLY))
    load(graph.with_external_blobs(policy), [book("a", cover=f"file://{picture}"), book("b")], "overwrite")
    picture.unlink()
    load(graph, [book("c")])
    graph.maintenance.optimize()
    found = graph.read_blob("node", "Book", "a", "cover")
    assert found.content == ExternalBlob(f"file://{picture}", 0, None)
    stat = wire.to_builtins(found.description)
    assert (stat["kind"], stat["uri"]) == ("external", f"file://{picture}")
    assert stat.keys().isdisjoint({"size", "etag"})


def test_a_renamed_type_and_property_read_their_past(graph: Graph) -> None:
    before = graph.snapshot().version
    renamed = SCHEMA.replace("node Book {", 'node Tome @rename_from("Book") {').replace(
        "Reader -> Book", "Reader -> Tome"
    )
    graph.schema.apply(renamed.replace("cover: Blob?", 'jacket: Blob? @rename_from("cover")'))
    old = graph.read_blob("node", "Tome", "inline", "jacket", version=before).content
    assert isinstance(old, ManagedBlob)
    assert old.read() == value(10)[:10]
    with pytest.raises(NotFoundError):
        graph.read_blob("node", "Book", "inline", "cover", version=before)


def test_a_property_added_again_does_not_show_its_earlier_life(graph: Graph) -> None:
    before = graph.snapshot().version
    graph.schema.apply(SCHEMA.replace("cover: Blob?", ""))
    graph.schema.apply(SCHEMA)
    with pytest.raises(NotFoundError, match="did not exist"):
        managed(graph, "inline", version=before)
    with pytest.raises(NotFoundError):
        managed(graph, "inline")


def test_on_any_store(place: Place) -> None:
    graph = Graph.init(place.uri, SCHEMA)
    load(graph, [book("a", cover=blob(b"x" * 100_000)), book("b", cover=blob(b"small"))])
    assert managed(graph, "a").read_range(99_990, 100_000) == b"x" * 10
    assert managed(Graph.open(place.uri), "b").read() == b"small"
