"""Tables with very many columns are read and written another way: the same rows, row ids and counts as ever."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.storage.creation import create_root
from omnigraph.storage.location import Location
from omnigraph.storage.models import ChangeCounts, TableState
from omnigraph.storage.root import GraphRoot
from omnigraph.storage.tables.indexes import BTREE
from omnigraph.storage.tables.rows import TAKEN_ROWS, WIDE_COLUMNS
from tests.support.lance_tables import build_index

NARROW = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("n", pa.int64())])
WIDE = pa.schema([*NARROW, *(pa.field(f"c{i}", pa.int64()) for i in range(WIDE_COLUMNS))])
KEYS = {"node:Narrow": NARROW, "node:Wide": WIDE}
_MOVED = "_row_created_at_version != _row_last_updated_at_version"


@pytest.fixture
def root(tmp_path: Path) -> Iterator[GraphRoot]:
    made = create_root(Location.parse(tmp_path / "g"), KEYS)
    yield made
    made.close()


def rows(schema: pa.Schema, values: dict[str, int]) -> pa.Table:
    filler = {field.name: list(values.values()) for field in schema if field.name not in ("id", "n")}
    return pa.table({"id": list(values), "n": list(values.values()), **filler}, schema=schema)


def seen(root: GraphRoot, state: TableState) -> dict[str, Any]:
    """What can be known of a version: its rows with their row ids, and which of them were updated."""
    table = root.reader.open(state)
    read = table.read(table.schema.names, row_ids=True)
    last = table.schema.names[-1]
    return {
        "rows": sorted(zip(*(read.column(c).to_pylist() for c in ("id", "n", "_rowid")), strict=True)),
        "same in all columns": read.column("n").to_pylist() == read.column(last).to_pylist(),
        "moved": sorted(table.read(["id"], filter=_MOVED).column("id").to_pylist()),
        "by value": [sorted(table.read(["id"], filter=f"n = {n}").column("id").to_pylist()) for n in range(4)],
        "count": state.rows,
    }


names = st.sampled_from(["a", "b", "c", "d", "it's"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), st.dictionaries(names, st.integers(0, 3), min_size=1)),
        st.tuples(st.just("delete"), st.sets(names, min_size=1)),
        st.tuples(st.just("index"), st.none()),
    ),
    max_size=6,
)


def taken(root: GraphRoot, state: TableState, schema: pa.Schema, step: tuple[str, Any]) -> tuple[TableState, Any]:
    kind, what = step
    if kind == "index":
        return build_index(root, state, "n", BTREE, "n_btree").state, None
    staged = root.staging.upsert(state, rows(schema, what)) if kind == "upsert" else root.staging.delete(state, what)
    return staged.state, staged.changes


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps)
def test_a_wide_table_goes_through_the_same_versions_as_a_narrow_one(sequence: list[tuple[str, Any]]) -> None:
    with TemporaryDirectory() as directory:
        root = create_root(Location.parse(f"{directory}/g"), KEYS)
        states = {key: root.create_table(key, schema) for key, schema in KEYS.items()}
        for step in sequence:
            changes = {}
            for key, schema in KEYS.items():
                states[key], changes[key] = taken(root, states[key], schema, step)
            assert changes["node:Wide"] == changes["node:Narrow"]
            assert seen(root, states["node:Wide"]) == seen(root, states["node:Narrow"])
        root.close()


def test_rows_are_replaced_in_many_fragments_and_whole_fragments_go(root: GraphRoot) -> None:
    state = root.create_table("node:Wide", WIDE)
    for first in range(0, 6, 2):
        state = root.staging.append(state, rows(WIDE, {f"k{first}": 1, f"k{first + 1}": 1})).state
    staged = root.staging.upsert(state, rows(WIDE, {"k0": 2, "k1": 2, "k4": 2, "new": 2}))
    assert staged.changes == ChangeCounts(inserted=1, updated=3)
    read = root.reader.open(staged.state).read(WIDE.names, row_ids=True)
    found = {
        i: (n, row) for i, n, row in zip(*(read.column(c).to_pylist() for c in ("id", "n", "_rowid")), strict=True)
    }
    assert found == {"k0": (2, 0), "k1": (2, 1), "k2": (1, 2), "k3": (1, 3), "k4": (2, 4), "k5": (1, 5), "new": (2, 6)}


@pytest.mark.parametrize("count", [TAKEN_ROWS - 1, TAKEN_ROWS + 1], ids=["taken", "scanned"])
def test_filters_limits_and_row_ids_mean_the_same_in_a_wide_read(root: GraphRoot, count: int) -> None:
    narrow = root.staging.append(
        root.create_table("node:Narrow", NARROW), rows(NARROW, {f"k{i}": i for i in range(count)})
    )
    schema = pa.schema([*NARROW, *(pa.field(f"c{i}", pa.bool_()) for i in range(WIDE_COLUMNS))])
    nulls = [pa.nulls(count, pa.bool_())] * WIDE_COLUMNS
    content = root.reader.open(narrow.state).read()
    wide = root.staging.append(
        root.create_table("node:Wide", schema), pa.table([*content.columns, *nulls], schema=schema)
    )
    here, there = root.reader.open(wide.state), root.reader.open(narrow.state)
    for filter_, limit in ((None, None), ("n > 5", None), ("n > 5", 3), ("n < 0", None)):
        read = here.read(schema.names, filter=filter_, limit=limit, row_ids=True)
        assert read.select(["id", "n", "_rowid"]).equals(
            there.read(["id", "n"], filter=filter_, limit=limit, row_ids=True)
        )
    batches = pa.Table.from_batches(here.batches(filter="n > 5"), schema)
    assert batches.select(["id", "n"]).equals(there.read(["id", "n"], filter="n > 5"))
