"""Exports: what a line says, which lines there are, and that nothing is lost on the way into a new graph."""

from __future__ import annotations

import errno
import io
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph import Graph
from omnigraph.engine.write.external_blobs import AllowedBase, ExternalBlobPolicy, Scope
from omnigraph.errors import BadRequestError
from tests.engine.museum import SCHEMA as MUSEUM
from tests.engine.museum import edge, lines, node
from tests.engine.town import new_town, person, put

SAMPLE = node(
    "Sample",
    code=42,
    flag=False,
    small=-(2**31),
    large=2**63 - 1,
    positive=2**64 - 1,
    narrow=0.1,
    wide=-0.0,
    day="2031-05-04",
    moment="2031-05-04T01:02:03.456Z",
    scores=[1, -1],
    days=["1970-01-02"],
)


@pytest.fixture
def museum(tmp_path: Path) -> Graph:
    graph = Graph.init(tmp_path / "museum", MUSEUM)
    graph.load(
        lines(
            SAMPLE,
            node("Sample", code=7),
            node("Exhibit", accession=3, wing="east", photo="base64:AAE=", tags=[], vec=[1, 0.5, -2]),
            node("Exhibit", accession=4, wing="e", photo="base64:"),
            node("Curator", badge="k7", name="Ines"),
            edge("Guards", "k7", '["3","east"]', id="g1", since=0),
        ),
        mode="append",
    )
    return graph


def test_every_declared_property_is_there_exact_and_in_its_export_form(museum: Graph) -> None:
    sample = next(json.loads(line) for line in museum.export(types=["Sample"], epoch=True) if '"42"' in line)
    assert sample == {
        "type": "Sample",
        "data": {
            "id": "42",
            "code": 42,
            "flag": False,
            "small": -(2**31),
            "large": 2**63 - 1,
            "positive": 2**64 - 1,
            "narrow": 0.10000000149011612,
            "wide": -0.0,
            "day": 22403,
            "moment": 1935622923456,
            "scores": [1, -1],
            "days": [1],
        },
    }
    empty = json.loads(next(museum.export(types=["Sample"])).replace('"42"', '"7"'))
    assert set(empty["data"]) == set(sample["data"])


def test_dates_are_texts_of_iso_8601_unless_numbers_are_asked_for(museum: Graph) -> None:
    sample = next(json.loads(line) for line in museum.export(types=["Sample"]) if '"42"' in line)["data"]
    assert (sample["day"], sample["days"]) == ("2031-05-04", ["1970-01-02"])
    assert sample["moment"] == "2031-05-04T01:02:03.456Z"
    everywhere = [museum.export(), museum.branch("main").export(), museum.snapshot().export()]
    assert len({"".join(lines) for lines in everywhere}) == 1
    numbers = [
        museum.export(epoch=True),
        museum.branch("main").export(epoch=True),
        museum.snapshot().export(epoch=True),
    ]
    assert len({"".join(lines) for lines in numbers}) == 1
    buffer = io.BytesIO()
    museum.export_to(buffer, epoch=True)
    assert buffer.getvalue().decode() == "".join(museum.export(epoch=True)) != "".join(museum.export())


def test_edges_come_first_then_types_by_name_and_entities_by_id(museum: Graph) -> None:
    records = [json.loads(line) for line in museum.export()]
    assert [(r.get("edge") or r["type"], r["data"]["id"]) for r in records] == [
        ("Guards", "g1"),
        ("Curator", "k7"),
        ("Exhibit", '["3","east"]'),
        ("Exhibit", '["4","e"]'),
        ("Sample", "42"),
        ("Sample", "7"),
    ]
    assert records[0] == {
        "edge": "Guards",
        "from": "k7",
        "to": '["3","east"]',
        "data": {"id": "g1", "since": "1970-01-01T00:00:00.000Z"},
    }
    assert [r["data"]["photo"] for r in records[2:4]] == ["base64:AAE=", "base64:"]


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_an_export_rebuilds_an_equal_graph_in_any_mode(museum: Graph, tmp_path: Path, mode: str) -> None:
    with Graph.init(tmp_path / "copy", MUSEUM) as copy:
        copy.load(museum.export(), mode=mode)
        assert list(copy.export()) == list(museum.export())


def test_an_old_snapshot_is_exported_as_it_was(tmp_path: Path) -> None:
    with new_town(tmp_path / "town", person("ada", age=1)) as town:
        commit = town.snapshot().commit_id
        put(town, "main", person("ada", age=2))
        assert '"age":1' in "".join(town.export(snapshot=commit))
        assert '"age":1' in "".join(town.export(version=2))
        assert '"age":2' in "".join(town.export())


def test_unknown_types_are_refused(museum: Graph) -> None:
    with pytest.raises(BadRequestError, match="unknown export type 'Ghost'"):
        list(museum.export(types=["Ghost"]))


def test_chunks_stay_within_64_kib(tmp_path: Path) -> None:
    class Chunks(list[bytes]):
        write = list.append

    with new_town(tmp_path / "town", *(person(f"p{i}", tags=["x" * 50]) for i in range(2_000))) as town:
        chunks = Chunks()
        assert town.export_to(chunks) == 2_000
        assert max(map(len, chunks)) <= 64 << 10
        assert b"".join(chunks).decode() == "".join(town.export())


def test_an_external_reference_is_exported_even_when_its_object_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "media"
    folder.mkdir()
    picture = folder / "p.png"
    picture.write_bytes(b"picture")
    policy = ExternalBlobPolicy.allow(AllowedBase(folder.as_uri(), Scope.EMBEDDED_ONLY))
    with new_town(tmp_path / "town").with_external_blobs(policy) as town:
        town.load(person("ada", photo=picture.as_uri()), mode="overwrite")
        picture.unlink()
        assert json.loads(next(town.export()))["data"]["photo"] == picture.as_uri()


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_files_hold_each_type_under_its_property_names(museum: Graph, tmp_path: Path, format: str) -> None:
    files = museum.export_files(tmp_path / "files", format=format)
    assert {f.type_key: f.rows for f in files}["node:Exhibit"] == 2
    by_type = {f.type_key: _read(f.path, format) for f in files}
    guards = by_type["edge:Guards"]
    assert guards.column_names == ["id", "from", "to", "since"]
    assert guards.column("to").to_pylist() == ['["3","east"]']
    sample = by_type["node:Sample"]
    assert sample.schema.field("positive").type == pa.uint64()
    assert sample.column("positive").to_pylist() == [2**64 - 1, None]
    assert by_type["node:Exhibit"].column("photo").to_pylist() == [
        {"data": b"\x00\x01", "uri": None},
        {"data": b"", "uri": None},
    ]
    assert by_type["node:Memo"].num_rows == 0


def _read(path: str, format: str) -> pa.Table:
    if format == "parquet":
        return pq.read_table(path)
    with pa.OSFile(path) as file:
        return pa.ipc.open_file(file).read_all()


def test_unknown_formats_and_unwritable_places_are_refused(museum: Graph, tmp_path: Path) -> None:
    with pytest.raises(BadRequestError, match="unknown file format 'xls'"):
        museum.export_files(tmp_path / "files", format="xls")
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(BadRequestError, match="can't write"):
        museum.export_files(tmp_path / "taken")


def test_writing_into_a_buffer_counts_the_entities(museum: Graph) -> None:
    buffer = io.BytesIO()
    assert museum.export_to(buffer, types=["Exhibit", "Guards"]) == 3
    assert buffer.getvalue().count(b"\n") == 3


def test_csv_files_load_back_unchanged(museum: Graph, tmp_path: Path) -> None:
    """Every type, edges with their ends, nulls beside empty texts, lists, vectors, blobs and dates."""
    museum.export_files(tmp_path / "files", format="csv")
    copy = Graph.init(tmp_path / "copy", museum.schema.show())
    for kind in ("node", "edge"):
        for file in sorted((tmp_path / "files").glob(f"{kind}.*.csv")):
            copy.load(file, type=file.name.split(".")[1], mode="append")
    assert list(copy.export()) == list(museum.export())


def test_files_are_not_replaced_where_there_are_no_hard_links(
    museum: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(os, "link", refuse)
    written = museum.export_files(tmp_path / "files", format="csv", types=["Exhibit"])
    file = Path(written[0].path)
    kept = file.read_bytes()
    assert kept.startswith(b"id,")
    with pytest.raises(BadRequestError, match="exists already"):
        museum.export_files(tmp_path / "files", format="csv", types=["Exhibit"])
    assert (file.read_bytes(), [path.name for path in file.parent.iterdir()]) == (kept, [file.name])
