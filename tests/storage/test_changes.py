"""Upserts, updates and deletes that are composed of new fragments and deletions: what Lance's own merge would leave."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import lance
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.storage.creation import create_root
from omnigraph.storage.location import Location
from omnigraph.storage.models import ChangeCounts, TableState
from omnigraph.storage.root import GraphRoot
from omnigraph.storage.tables import Table, staging
from omnigraph.storage.tables.blobs import blob_column, blob_field, stored_blob
from omnigraph.storage.tables.indexes import BTREE
from omnigraph.storage.tables.rows import row_ids_of
from tests.support.lance_tables import build_index, lance_of

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("n", pa.int64()), pa.field("s", pa.string())])
KEY = "node:Thing"
_MOVED = "_row_created_at_version != _row_last_updated_at_version"


@pytest.fixture
def root(tmp_path: Path) -> Iterator[GraphRoot]:
    made = create_root(Location.parse(tmp_path / "g"), {KEY: SCHEMA})
    yield made
    made.close()


def things(values: dict[str, int]) -> pa.Table:
    texts = [f"text {n}" for n in values.values()]
    return pa.table({"id": list(values), "n": list(values.values()), "s": texts}, schema=SCHEMA)


def keys(ids: set[str]) -> pa.Table:
    return pa.table({"id": sorted(ids)}, schema=pa.schema([SCHEMA.field("id")]))


def patch_of(values: dict[str, int]) -> pa.Table:
    return things(values).select(["id", "n"])


def composed(root: GraphRoot, state: TableState, kind: str, what: Any) -> tuple[TableState, ChangeCounts]:
    if kind == "upsert":
        staged = root.staging.upsert(state, things(what))
    elif kind == "update":
        staged = root.staging.update(state, patch_of(what))
    else:
        staged = root.staging.delete(state, what)
    return staged.state, staged.changes


def merged(root: GraphRoot, state: TableState, kind: str, what: Any) -> tuple[TableState, ChangeCounts]:
    """The same by `merge_insert`."""
    dataset = lance_of(root.reader.open(state))
    merge = dataset.merge_insert("id")
    if kind == "upsert":
        merge, rows = merge.when_matched_update_all().when_not_matched_insert_all(), things(what)
    elif kind == "update":
        merge, rows = merge.when_matched_update_all(), patch_of(what)
    else:
        merge, rows = merge.when_matched_delete(), keys(what)
    transaction, stats = merge.execute_uncommitted(rows)
    counts = ChangeCounts(*(stats[f"num_{change}_rows"] for change in ("inserted", "updated", "deleted")))
    if not any((counts.inserted, counts.updated, counts.deleted)):
        return state, counts
    made = lance.LanceDataset.commit(dataset, transaction, detached=True)
    rows_now = made.count_rows()
    opened = TableState(table_id=state.table_id, path=state.path, version=str(made.version), rows=rows_now, fragments=1)
    return root.reader.keep(Table(opened, made, root.location)).state, counts


def seen(table: Table, old: set[int]) -> dict[str, Any]:
    """What can be known of a version. New rows may be numbered in another order."""
    rows = table.read(["id", "n", "s"], row_ids=True).to_pylist()
    return {
        "rows": sorted((r["id"], r["n"], r["s"], r["_rowid"] if r["_rowid"] in old else "new") for r in rows),
        "moved": sorted(table.read(["id"], filter=_MOVED).column("id").to_pylist()),
        "by value": [sorted(table.read(["id"], filter=f"n = {n}").column("id").to_pylist()) for n in range(5)],
        "by id": [table.read(["n"], filter=f"id = '{name}'").column("n").to_pylist() for name in "abcdef"],
        "distinct": len({r["_rowid"] for r in rows}) == len(rows) == table.state.rows,
    }


names = st.sampled_from("abcdef")
steps = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), st.dictionaries(names, st.integers(0, 4), min_size=1)),
        st.tuples(st.just("update"), st.dictionaries(names, st.integers(0, 4), min_size=1)),
        st.tuples(st.just("delete"), st.sets(names, min_size=1)),
        st.tuples(st.just("index"), st.sampled_from(["n", "id"])),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps, st.sampled_from([0, 1 << 16]))
def test_a_composed_change_leaves_what_a_merge_leaves(sequence: list[tuple[str, Any]], looked_through: int) -> None:
    """Whether Lance looks through the fragments that rows come from, or is told that they are old."""
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(staging, "_ROWS_LOOKED_THROUGH", looked_through)
        root = create_root(Location.parse(f"{directory}/g"), {KEY: SCHEMA})
        ours = theirs = root.staging.append(root.create_table(KEY, SCHEMA), things(dict.fromkeys("abcd", 1))).state
        for kind, what in sequence:
            if kind == "index":
                ours, theirs = (build_index(root, s, what, BTREE, f"{what}_btree").state for s in (ours, theirs))
                continue
            old = set(row_ids_of(root.reader.open(ours).read([], row_ids=True)).tolist())
            before = row_ids_of(root.reader.open(theirs).read(["id"], row_ids=True)).tolist()
            assert old == set(before)
            ours, mine = composed(root, ours, kind, what)
            theirs, other = merged(root, theirs, kind, what)
            assert mine == other
            assert seen(root.reader.open(ours), old) == seen(root.reader.open(theirs), old)
            theirs = ours  # new rows are numbered the same from here on
        root.close()


def test_one_write_replaces_inserts_and_deletes(root: GraphRoot) -> None:
    state = root.staging.append(root.create_table(KEY, SCHEMA), things(dict.fromkeys("abcd", 1))).state
    staged = root.staging.change(state, things({"a": 2, "new": 2}), [patch_of({"b": 3, "gone": 3})], {"c", "never"})
    assert staged.changes == ChangeCounts(inserted=1, updated=2, deleted=1)
    rows = root.reader.open(staged.state).read(["id", "n", "s"]).to_pylist()
    assert sorted((r["id"], r["n"], r["s"]) for r in rows) == [
        ("a", 2, "text 2"),
        ("b", 3, "text 1"),
        ("d", 1, "text 1"),
        ("new", 2, "text 2"),
    ]


def test_a_change_of_nothing_makes_no_version(root: GraphRoot) -> None:
    state = root.staging.append(root.create_table(KEY, SCHEMA), things({"a": 1})).state
    assert root.staging.delete(state, {"x"}).state == state
    assert root.staging.update(state, patch_of({"x": 1})).state == state
    with pytest.raises(ValueError, match="names each row once"):
        root.staging.upsert(state, pa.concat_tables([things({"a": 1})] * 2))


def blobs(cells: list[bytes | tuple[str, int, int] | None]) -> pa.Array:
    """A reference with a size of zero is to the whole object."""
    spans = [cell if isinstance(cell, tuple) else (None, None, None) for cell in cells]
    return blob_column(
        pa.array([cell if isinstance(cell, bytes) else None for cell in cells], pa.large_binary()),
        pa.array([span[0] for span in spans], pa.string()),
        pa.array([cell is not None for cell in cells]),
        pa.array([span[1] if span[2] else None for span in spans], pa.uint64()),
        pa.array([span[2] or None for span in spans], pa.uint64()),
    )


def test_an_update_of_other_columns_carries_every_kind_of_blob(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "_BYTES_COMPLETED", 100_000)
    cells = [b"small", b"", None, b"p" * 80_000, ("file:///tmp/a", 0, 0), ("file:///tmp/b", 7, 9), b"d" * 5_000_000]
    schema = pa.schema([*SCHEMA, blob_field("b", nullable=True)])
    root = create_root(Location.parse(tmp_path / "g"), {KEY: schema})
    names = [f"k{i}" for i in range(len(cells))]
    stored = pa.table([names, [1] * len(cells), names, blobs(cells)], schema=schema)
    state = root.staging.append(root.create_table(KEY, schema), stored).state
    staged = root.staging.update(state, patch_of(dict.fromkeys(reversed(names), 2)))
    assert staged.changes == ChangeCounts(updated=len(cells))
    table = root.reader.open(staged.state)
    rows = table.read(["id", "n", "s", "b"], row_ids=True).sort_by("id")
    assert rows.column("n").to_pylist() == [2] * len(cells)
    assert rows.column("s").to_pylist() == names
    for row, cell, expected in zip(row_ids_of(rows), rows.column("b").to_pylist(), cells, strict=True):
        blob = stored_blob(cell)
        if not isinstance(expected, bytes):
            assert (blob and (blob.uri, blob.offset, blob.size)) == expected
        else:
            assert blob is not None
            assert table.blobs("b", [int(row)])[0].read() == expected
    root.close()


def test_changing_one_row_costs_the_same_in_a_large_table(root: GraphRoot) -> None:
    """Of bytes, what Lance reads; of processor time, which an index of all row ids would take."""
    sizes = (2_000, 200_000)
    states = [indexed(root, size) for size in sizes]
    fresh = count()
    best = [float("inf")] * 2
    read = [0, 0]
    for _ in range(12):
        for i, state in enumerate(states):
            number = next(fresh)
            before = lance_of(root.reader.open(states[i])).io_stats_snapshot().read_bytes
            seconds = spent(lambda s=state, n=number: root.staging.upsert(s, things({f"t{n:06}": 2})))
            read[i] = lance_of(root.reader.open(states[i])).io_stats_snapshot().read_bytes - before
            best[i] = min(best[i], seconds)
    assert read[1] < read[0] + 65_536
    assert best[1] < 3 * best[0]


def indexed(root: GraphRoot, size: int) -> TableState:
    state = root.create_table(KEY, SCHEMA)
    state = root.staging.append(state, things({f"t{i:06}": i % 5 for i in range(size)})).state
    state = build_index(root, state, "id", BTREE, "id_btree").state
    return root.staging.upsert(state, things({"t000999": 7})).state


def spent(work: Callable[[], Any]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started
