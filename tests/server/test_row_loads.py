"""`POST /load/rows` and `GET /count`: rows of one type over HTTP, from senders that are not to be trusted."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.server.settings import ServerLimits
from tests.server.running import RunningServer, faultless
from tests.server.sample import people

ARROW = "application/vnd.apache.arrow.stream"


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with people(tmp_path_factory.mktemp("rows") / "kb") as graph:
        yield graph


@pytest.fixture(scope="module")
def server(graph: Graph) -> Iterator[RunningServer]:
    with faultless({"kb": graph}, limits=ServerLimits(load_bytes=1 << 20)) as server:
        yield server


def sent(server: RunningServer, content: bytes | str, media: str, **parameters: Any) -> Any:
    headers = {"Content-Type": media}
    options = {"type": "Person", "mode": "merge", "branch": "main", **parameters}
    return server.client.post("/graphs/kb/load/rows", params=options, content=content, headers=headers)


def stream(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def test_rows_come_as_arrow_csv_and_lines(server: RunningServer, graph: Graph) -> None:
    for content, media, more in (
        (stream(pa.table({"name": ["Rita"], "tags": [["x"]]})), ARROW, {}),
        ("name,age\nRolf,7\n", "text/csv; charset=utf-8", {}),
        ("name;age\n'Ruth';\n", "text/csv", {"delimiter": ";", "quote": "'"}),
        (b"\xe9\t8\n", "application/octet-stream", {"file": "p.tsv", "header": "true"}),
        ('{"name": "Rosa", "age": 9}\n', "application/x-ndjson", {}),
        ('{"name": "Rosa", "age": 9}\n', "application/octet-stream", {"format": "jsonl"}),
    ):
        answer = sent(server, content, media, **more)
        if content == b"\xe9\t8\n":
            assert answer.status_code == 400
            continue
        assert answer.status_code == 200, answer.text
        (loaded,) = answer.json()["nodes"]
        assert (loaded["name"], loaded["entities_loaded"], loaded["updated"], loaded["deleted"]) == ("Person", 1, 0, 0)
        if loaded["unchanged"]:
            assert (loaded["inserted"], answer.json()["commit"]) == (0, None)
            continue
        assert answer.headers["Omnigraph-Commit"] == answer.json()["commit"]["graph_commit_id"]
        assert "uri" not in answer.json()
    names = {row["name"] for row in graph.query("query q() { match { $p: Person } return { $p.name as name } }")}
    assert names >= {"Rita", "Rolf", "Ruth", "Rosa"}
    edges = sent(server, '{"from": "Rita", "to": "Rolf"}', "application/x-ndjson", type="Knows", mode="append")
    counts = {"inserted": 1, "updated": 0, "unchanged": 0, "deleted": 0}
    assert edges.json()["edges"] == [{"name": "Knows", "entities_loaded": 1, **counts}]
    told = server.client.get("/graphs/kb/count", params={"type": "Person"}).json()
    assert told == {"entity_kind": "node", "type_name": "Person", "entity_count": graph.at().count("Person")}


@pytest.mark.parametrize(
    ("content", "media", "more", "status", "words"),
    [
        ("name,age\nA,old\n", "text/csv", {"file": "p.csv"}, 400, "p.csv, line 2: node:Person: property 'age'"),
        ("name,age\nA,old\n", "text/csv", {}, 400, "the body, line 2: node:Person: property 'age'"),
        ('{"name": "A"}\n{"name": "B", "age": "x"}', "application/x-ndjson", {}, 400, "row 2: node:Person"),
        ("name,agee\nA,1\n", "text/csv", {}, 400, "no property for the column 'agee'; did you mean 'age'"),
        ("name\nA\n", "text/csv", {"type": "Persn"}, 400, "no type 'Persn'; did you mean 'Person'"),
        ("x", "application/octet-stream", {}, 400, "say how the rows are written"),
        ("x", "application/octet-stream", {"file": "p.xml"}, 400, "does not tell a format"),
        ("x", "application/octet-stream", {"file": "p.parquet"}, 415, "send the rows as"),
        ("x", "application/octet-stream", {"file": "p.arrow"}, 415, "send the rows as"),
        ("x", "application/json", {}, 415, "the body must be rows of one type"),
        ("name\nA\n", "text/csv", {"delimiter": ";;"}, 400, "must be one ASCII character"),
        ("name\nA\n", "text/csv", {"mode": "replace"}, 400, "invalid query parameters"),
        ("name\nA\n", "text/csv", {"branch": "none"}, 404, "pass `from` to create it"),
        ("x" * (1 << 21), "text/csv", {}, 413, "--load-bytes"),
    ],
)
def test_what_is_wrong_is_named_by_its_place(
    server: RunningServer, content: str, media: str, more: dict[str, str], status: int, words: str
) -> None:
    answer = sent(server, content, media, **more)
    assert (answer.status_code, words in answer.json()["error"]) == (status, True), answer.text


MOST = 2**63 - 1
ODD: dict[str, pa.Array] = {
    "a far day": pa.array([2**31 - 1], pa.date32()),
    "a farther day": pa.array([MOST - MOST % 86_400_000]).view(pa.date64()),
    "a far second": pa.array([MOST], pa.timestamp("s")),
    "a far millisecond": pa.array([MOST], pa.timestamp("ms")),
    "a far microsecond": pa.array([-MOST], pa.timestamp("us")),
    "an unknown zone": pa.array([1], pa.timestamp("ms", "Nowhere/City")),
    "a long time": pa.array([MOST], pa.duration("s")),
}


@pytest.mark.parametrize("odd", ODD)
def test_values_that_python_does_not_have_are_judged(server: RunningServer, odd: str) -> None:
    listed = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), ODD[odd])
    for column in ("email", "age", "score", "tags", "name", "born", "seen"):
        for array in (ODD[odd], listed):
            answer = sent(server, stream(pa.table({"name": ["Odo"], column: array})), ARROW)
            fits = (column == "born" and odd in ("a far day", "a far microsecond", "an unknown zone")) or (
                column == "seen" and odd not in ("a far second", "a long time")
            )
            assert answer.status_code == (200 if fits and array is ODD[odd] else 400), (column, answer.text)
            assert answer.status_code == 200 or "row 1: node:Person: property" in answer.json()["error"]


def _broken_offsets() -> bytes:
    """A stream whose texts end far behind their buffer."""
    whole = stream(pa.table({"name": pa.array(["abcdefgh", "ijklmnop"])}))
    return whole.replace(struct.pack("<iii", 0, 8, 16), struct.pack("<iii", 0, 8, 1 << 30))


def _negative_length() -> bytes:
    """A struct whose member claims to have -1 values."""
    whole = stream(pa.table({"name": ["abc", "de", "f"], "st": pa.array([{"a": 1}] * 3)}))
    lengths = struct.pack("<6q", 3, 0, 3, 0, 3, 0)
    assert lengths in whole
    return whole.replace(lengths, struct.pack("<6q", 3, 0, 3, 0, -1, 0))


BOMBS: dict[str, Callable[[], bytes]] = {
    "compressed": lambda: stream(pa.table({"name": ["x" * (1 << 20)] * 50}), compression="zstd"),
    "dictionaries": lambda: stream(pa.table({"name": pa.array(["x" * 1000] * 9000).dictionary_encode()})),
    "runs": lambda: stream(pa.table({"age": pa.RunEndEncodedArray.from_arrays([1 << 30], [7])})),
    "views": lambda: stream(pa.table({"name": pa.array(["x" * 100] * 9, pa.string_view())})),
    "nulls": lambda: stream(pa.table({"age": pa.nulls(1 << 30)})),
    "nulls in lists": lambda: stream(
        pa.table({"tags": pa.ListArray.from_arrays(pa.array([0, 1 << 30], pa.int32()), pa.nulls(1 << 30))})
    ),
    "offsets": _broken_offsets,
    "lengths": _negative_length,
    "a name that is not a text": lambda: stream(pa.table({"name": ["A"]})).replace(b"name", b"n\xffme"),
    "no end": lambda: stream(pa.table({"name": ["A"]}))[:-40],
    "no end mark": lambda: stream(pa.table({"name": ["A"]}))[:-8],
    "no stream": lambda: b"ARROW1\0\0 and so on",
    "nothing": lambda: b"",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_stream_that_is_not_what_it_says_is_refused(server: RunningServer, graph: Graph, bomb: str) -> None:
    before = graph.resolve_snapshot()
    answer = sent(server, BOMBS[bomb](), ARROW)
    assert answer.status_code in (400, 413), answer.text
    assert answer.json()["error"]
    assert graph.resolve_snapshot() == before


FLIPS = """
import random, struct, sys, tempfile
import pyarrow as pa
from omnigraph.api.governance import Limits
from omnigraph.engine.write.row_input import received_batches
from omnigraph.errors import OmniGraphError

columns = {
    "name": ["abc", "de", "f"], "age": pa.array([1, None, 3], pa.int32()), "tags": [["a"], [], ["b", "c"]],
    "st": [{"a": 1, "b": [1.5]}, None, {"a": 2, "b": []}], "vec": pa.array([[1, 2]] * 3, pa.list_(pa.float32(), 2)),
}
sink = pa.BufferOutputStream()
table = pa.table(columns)
with pa.ipc.new_stream(sink, table.schema) as writer:
    writer.write_table(table)
whole, chance = sink.getvalue().to_pybytes(), random.Random(int(sys.argv[1]))
outcomes = {"read": 0, "refused": 0}
with tempfile.NamedTemporaryFile() as file:
    for _ in range(2000):
        data = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(0, len(data) - 16) & ~7
            number = chance.choice([-1, -2**31, -2**63, 2**31 - 1, 2**62, chance.randrange(256)])
            data[at : at + 8] = struct.pack("<q", number)
        file.seek(0)
        file.truncate()
        file.write(data)
        file.flush()
        try:
            for block in received_batches("body", file.name, Limits(bytes=1 << 24)):
                block.values.to_pylist()
            outcomes["read"] += 1
        except OmniGraphError:
            outcomes["refused"] += 1
print(outcomes)
"""


@pytest.mark.parametrize("seed", [1, 2])
def test_no_stream_ends_the_process(seed: int) -> None:
    """Numbers of a stream replaced at random: it is read or refused. In a process of its own, which it may end."""
    run = subprocess.run([sys.executable, "-c", FLIPS, str(seed)], capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
    assert "'refused': 0" not in run.stdout
