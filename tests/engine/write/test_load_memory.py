"""Large loads: their rows are kept in scratch files, which changes nothing but the memory that they take."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from omnigraph import Graph
from omnigraph.api import load
from omnigraph.engine.rows.kernels import ndjson, spool
from omnigraph.errors import ConstraintError, StorageError
from tests.engine.museum import SCHEMA, edge, lines, node
from tests.engine.stored import everything

PEOPLE = 100
TOWN = "node Person { slug: String @key }\nedge Knows: Person -> Person { since: I32? }"


def records(modified: int | None = None) -> list[str]:
    """Curators, exhibits and who guards what; one curator may be another, who guards nothing."""
    nodes = [node("Curator", badge=f"k{i}", name="Ines", email=f"{i}@museum") for i in range(PEOPLE)]
    nodes += [node("Exhibit", accession=i, wing="east", tags=["a"], vec=[i, 0.5, 1]) for i in range(PEOPLE)]
    if modified is not None:
        nodes[modified] = node("Curator", badge=f"k{modified}", name="Ivo")
    return [*nodes, *(edge("Guards", f"k{i}", f'["{i}","east"]', id=f"g{i}") for i in range(PEOPLE) if i != modified)]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """An input has many parts, so that one of them is written before the next one comes."""
    monkeypatch.setattr(ndjson, "_BLOCK_BYTES", 4096)


def load_in_turns(graph: Graph) -> list[object]:
    """One load of each mode; what it said, and what is stored then."""
    outcomes: list[object] = []
    changed = [
        node("Curator", badge="new", name="Una", email=None),
        node("Exhibit", accession=400, wing="east", tags=[]),
    ]
    for mode, texts in (
        ("append", records()),
        ("merge", [*records(modified=7)[:200], *changed]),
        (
            "update",
            [node("Curator", badge="k9", name="Ada"), edge("Guards", "k1", '["1","east"]', id="g1", since=None)],
        ),
        ("overwrite", records(modified=5)),
    ):
        receipt = graph.load(lines(*texts), mode=mode)
        outcomes += [receipt.changes, receipt.nulled, everything(graph)]
    return outcomes


def test_rows_in_scratch_files_are_loaded_like_rows_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Graph.init(tmp_path / "memory", SCHEMA) as graph:
        expected = load_in_turns(graph)
    monkeypatch.setattr(spool, "IN_MEMORY_BYTES", 0)
    with Graph.init(tmp_path / "files", SCHEMA) as graph:
        assert load_in_turns(graph) == expected


@pytest.mark.parametrize("limit", [spool.IN_MEMORY_BYTES, 0])
def test_a_rule_that_spans_rows_names_the_line(limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "IN_MEMORY_BYTES", limit)
    with Graph.init(tmp_path / "graph", SCHEMA) as graph:
        bad = [*records(), edge("Guards", "k0", "nowhere"), edge("Guards", "nobody", '["1","east"]')]
        with pytest.raises(ConstraintError) as raised:
            graph.load(lines(*bad), mode="append")
        assert raised.value.line == len(bad)
        again = [*records(), node("Curator", badge="k50", name="Ivo")]
        with pytest.raises(ConstraintError, match="'k50'") as raised:
            graph.load(lines(*again), mode="append")
        assert raised.value.line == len(again)
        assert graph.load(lines(*records()), mode="append").total_entities == 3 * PEOPLE


def test_a_scratch_directory_that_takes_nothing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "IN_MEMORY_BYTES", 0)
    with Graph.init(tmp_path / "graph", SCHEMA) as graph:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
        with pytest.raises(StorageError, match=r"can't keep the rows of a load in .*gone.*Set TMPDIR"):
            graph.load(lines(*records()), mode="append")
        assert graph.snapshot().version == 1


def edges(count: int) -> pa.Table:
    people = pa.array([f"p{i:03d}" for i in range(PEOPLE)])
    ends = [people.take(pa.array([(i * step) % PEOPLE for i in range(count)])) for step in (1, 7)]
    return pa.table({"from": ends[0], "to": ends[1], "since": pa.array(range(count), pa.int32())})


def write_ndjson(rows: pa.Table, path: Path) -> None:
    columns = [column.to_pylist() for column in rows.columns]
    with path.open("w") as file:
        for source, target, since in zip(*columns, strict=True):
            file.write(f'{{"edge":"Knows","from":"{source}","to":"{target}","data":{{"since":{since}}}}}\n')


WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    "records.ndjson": write_ndjson,
    "rows.csv": pacsv.write_csv,
    "rows.parquet": lambda rows, path: pq.write_table(rows, path, row_group_size=10_000),
}


def arrow_bytes(run: Callable[[], object]) -> int:
    """The most memory that Arrow held meanwhile."""
    outer = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(outer)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(pool))  # caches keep arrays of this pool
    pa.set_memory_pool(pool)
    try:
        run()
        return pool.max_memory() or 0
    finally:
        pa.set_memory_pool(outer)


@pytest.mark.parametrize("name", WRITERS)
def test_memory_does_not_grow_with_the_load(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "IN_MEMORY_BYTES", 1 << 20)
    monkeypatch.setattr(ndjson, "_BLOCK_BYTES", 256 << 10)
    monkeypatch.setattr(load, "PIECE_BYTES", 256 << 10)
    monkeypatch.setattr(load, "BATCH_ROWS", 8_192)
    people = lines(*(node("Person", slug=f"p{i:03d}") for i in range(PEOPLE)))
    held = []
    for count in (30_000, 120_000):
        path = tmp_path / name
        WRITERS[name](edges(count), path)
        with Graph.init(tmp_path / f"graph-{count}", TOWN) as graph:
            graph.load(people, mode="append")
            type_name = None if name.endswith("ndjson") else "Knows"
            loaded = path if type_name is None else str(path)
            receipts: list[load.LoadReceipt] = []
            held.append(arrow_bytes(lambda: receipts.append(graph.load(loaded, type=type_name, mode="append"))))  # noqa: B023 run at once
            assert receipts[0].inserted == count
    assert held[1] < 1.5 * held[0]
