"""Reading tables by row id, and telling two versions of a table apart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.errors import IntegrityError
from omnigraph.storage.location import Location
from omnigraph.storage.models import TableState
from omnigraph.storage.root import GraphRoot, create_root
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.rows import index_coverage, row_changes, rows_by_id, rows_with, take_rows

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("n", pa.int64())])
KEY = "node:Thing"


@pytest.fixture
def root(tmp_path: Path) -> Iterator[GraphRoot]:
    made = create_root(Location.parse(tmp_path / "g"), {KEY: SCHEMA})
    yield made
    made.close()


@pytest.fixture
def empty(root: GraphRoot) -> TableState:
    return root.create_table(KEY, SCHEMA)


def things(**values: int | None) -> pa.Table:
    return pa.table({"id": list(values), "n": list(values.values())}, schema=SCHEMA)


def opened(root: GraphRoot, state: TableState) -> Table:
    return root.reader.open(state)


def test_rows_come_by_row_id_even_after_an_update_moved_them(root: GraphRoot, empty: TableState) -> None:
    first = root.staging.append(empty, things(a=1, b=2, c=3)).state
    table = opened(root, root.staging.upsert(first, things(a=9)).state)
    assert rows_by_id(table, ["id", "n"]).to_pydict() == {"id": ["a", "b", "c"], "n": [9, 2, 3], "_rowid": [0, 1, 2]}
    assert rows_by_id(table, ["id"], filter="n > 2").column("id").to_pylist() == ["a", "c"]
    assert take_rows(table, np.array([2, 0]), ["n"]).to_pydict() == {"n": [3, 9]}


def test_a_row_id_of_another_version_is_no_silent_gap(root: GraphRoot, empty: TableState) -> None:
    table = opened(root, root.staging.append(empty, things(a=1)).state)
    with pytest.raises(IntegrityError, match="lacks rows"):
        take_rows(table, np.array([0, 7]), ["n"])


@pytest.mark.parametrize("extra", [0, 60_000], ids=["looked up", "scanned"])
def test_rows_are_found_by_value(root: GraphRoot, empty: TableState, extra: int) -> None:
    table = opened(root, root.staging.append(empty, things(a=1, b=2, c=None)).state)
    wanted = ["c", "a", "it's", *(f"x{i}" for i in range(extra))]
    assert rows_with(table, "id", wanted, ["n"]).to_pydict() == {"n": [1, None], "_rowid": [0, 2]}
    assert rows_with(table, "id", [], ["n"]).to_pydict() == {"n": [], "_rowid": []}


def test_changes_are_what_differs_and_nothing_else(root: GraphRoot, empty: TableState) -> None:
    base = root.staging.append(empty, things(a=1, b=2, c=3)).state
    newer = root.staging.upsert(base, things(b=7, d=4)).state
    newer = root.staging.delete(newer, ["a"]).state
    changes = row_changes(opened(root, base), opened(root, newer), ["id", "n"], at_most=100)
    assert changes is not None
    assert changes.old.select(["id", "n"]).to_pydict() == {"id": ["a", "b"], "n": [1, 2]}
    assert changes.new.select(["id", "n"]).to_pydict() == {"id": ["b", "d"], "n": [7, 4]}
    by_id = row_changes(opened(root, base), opened(root, newer), ["id"], at_most=100)
    assert by_id is not None
    assert (by_id.old.column("id").to_pylist(), by_id.new.column("id").to_pylist()) == (["a"], ["d"])


def test_shared_fragments_are_not_read(root: GraphRoot, empty: TableState) -> None:
    """Three rows lie in fragments of their own on either side, and no more may be read."""
    base = root.staging.append(empty, things(**{f"k{i}": i for i in range(50)})).state
    left, right = root.staging.append(base, things(x=1)).state, root.staging.append(base, things(y=1, z=2)).state
    assert row_changes(opened(root, left), opened(root, right), ["id"], at_most=2) is None
    changes = row_changes(opened(root, left), opened(root, right), ["id"], at_most=3)
    assert changes is not None
    assert (changes.old.column("id").to_pylist(), changes.new.column("id").to_pylist()) == (["x"], ["y", "z"])


@pytest.mark.parametrize("gone", [0, 3, 6_000], ids=["first", "listed", "as a bitmap"])
def test_of_a_fragment_that_lost_a_row_only_that_row_counts(root: GraphRoot, empty: TableState, gone: int) -> None:
    base = root.staging.append(empty, things(**{f"k{i}": i for i in range(2 * gone + 50)})).state
    if gone:
        base = root.staging.delete(base, [f"k{2 * i}" for i in range(gone)]).state
    newer = root.staging.delete(base, ["k1", "k7"]).state
    newest = root.staging.upsert(newer, things(k9=-9)).state
    assert row_changes(opened(root, base), opened(root, newer), ["id"], at_most=1) is None
    changes = row_changes(opened(root, base), opened(root, newer), ["id", "n"], at_most=2)
    assert changes is not None
    assert (changes.old.column("id").to_pylist(), changes.new.num_rows) == (["k1", "k7"], 0)
    back = row_changes(opened(root, newest), opened(root, base), ["id", "n"], at_most=4)
    assert back is not None
    assert (back.old.column("n").to_pylist(), back.new.column("n").to_pylist()) == ([-9], [1, 7, 9])


def test_coverage_counts_rows_that_an_index_does_not_know(root: GraphRoot, empty: TableState) -> None:
    base = root.staging.append(empty, things(a=1, b=2)).state
    indexed = root.staging.build_index(base, "n", "BTREE", "n_btree").state
    newer = opened(root, root.staging.append(indexed, things(c=3)).state)
    coverage = index_coverage(newer, "n")
    assert (coverage.indexed_rows, coverage.unindexed_rows, coverage.is_complete) == (2, 1, False)
    assert index_coverage(newer, "n", "INVERTED").indexed_rows == 0
    assert index_coverage(opened(root, indexed), "n").is_complete
