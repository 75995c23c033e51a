"""Reading tables by row id, and telling two versions of a table apart."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.errors import IntegrityError
from omnigraph.storage.creation import create_root
from omnigraph.storage.location import Location
from omnigraph.storage.models import TableState
from omnigraph.storage.root import GraphRoot
from omnigraph.storage.tables import Table, rows
from omnigraph.storage.tables.indexes import index_coverage
from omnigraph.storage.tables.rows import ROW_ADDRESS, ROW_ID, by_row_id, row_ids_of
from omnigraph.storage.tables.version_diff import RowChanges, VersionDiff
from tests.support.lance_tables import build_index, lance_of

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
    assert by_row_id(table.read(["id", "n"], row_ids=True)).to_pydict() == {
        "id": ["a", "b", "c"],
        "n": [9, 2, 3],
        "_rowid": [0, 1, 2],
    }
    assert by_row_id(table.read(["id"], filter="n > 2", row_ids=True)).column("id").to_pylist() == ["a", "c"]
    assert table.take(np.array([2, 0]), ["n"]).to_pydict() == {"n": [3, 9]}


def test_a_row_id_of_another_version_is_no_silent_gap(root: GraphRoot, empty: TableState) -> None:
    table = opened(root, root.staging.append(empty, things(a=1)).state)
    with pytest.raises(IntegrityError, match="lacks rows"):
        table.take(np.array([0, 7]), ["n"])


@pytest.mark.parametrize("extra", [0, 60_000], ids=["looked up", "scanned"])
def test_rows_are_found_by_value(root: GraphRoot, empty: TableState, extra: int) -> None:
    table = opened(root, root.staging.append(empty, things(a=1, b=2, c=None)).state)
    wanted = ["c", "a", "it's", *(f"x{i}" for i in range(extra))]
    assert by_row_id(table.rows_among("id", wanted, ["n"], row_ids=True)).to_pydict() == {
        "n": [1, None],
        "_rowid": [0, 2],
    }
    assert table.rows_among("id", [], ["n"], row_ids=True).to_pydict() == {"n": [], "_rowid": []}


letters = st.sampled_from("abcdefgh")
history = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), st.dictionaries(letters, st.integers(0, 9), min_size=1)),
        st.tuples(st.just("delete"), st.sets(letters, min_size=1)),
        st.tuples(st.just("index"), st.none()),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(history, st.sets(letters), st.integers(1, 3), st.booleans(), st.booleans())
def test_every_way_to_read_gives_the_same_rows(
    steps: list[tuple[str, Any]], wanted: set[str], per_lookup: int, scanned: bool, wide: bool
) -> None:
    """By predicate, by value (looked up in lists or scanned), by row id and fragment by fragment; also where a table
    counts as wide after two columns."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "_VALUES_PER_LOOKUP", per_lookup)
        patch.setattr(rows, "_LOOKUP_SHARE", 1_000 if scanned else 1)
        patch.setattr(rows, "_FEW_VALUES", 0 if scanned else 100)
        patch.setattr(rows, "WIDE_COLUMNS", 1 if wide else 500)
        root = create_root(Location.parse(f"{folder}/g"), {KEY: SCHEMA})
        state = root.create_table(KEY, SCHEMA)
        for kind, what in steps:
            if kind == "index":
                state = build_index(root, state, "id", "BTREE", "id_btree").state
            elif kind == "upsert":
                state = root.staging.upsert(state, things(**what)).state
            else:
                state = root.staging.delete(state, what).state
        table = opened(root, state)
        whole = by_row_id(table.read(["id", "n"], row_ids=True))
        chosen = whole.filter(pc.is_in(whole.column("id"), value_set=pa.array(wanted, pa.string())))
        ids = row_ids_of(chosen)
        assert by_row_id(table.rows_among("id", wanted, ["id", "n"], row_ids=True)).equals(chosen)
        assert table.existing_ids(wanted) == set(chosen.column("id").to_pylist())
        assert table.take(ids[::-1], ["id", "n"]).equals(chosen.drop_columns(ROW_ID).take(np.arange(len(ids))[::-1]))
        assert by_row_id(table.select(ids, ["id", "n"])).equals(chosen)
        assert by_row_id(table.select(np.append(ids, 1_000), ["id", "n"])).equals(chosen), "an id that does not exist"
        high = table.select(ids, ["id"], filter="n > 4").column("id").to_pylist()
        assert set(high) == {row["id"] for row in chosen.to_pylist() if row["n"] > 4}
        batches = [pa.table(batch) for batch in table.batches(["id", "n"], row_ids=True)]
        fragments = [f.fragment_id for f in lance_of(table).get_fragments()]
        parts = [table.read(["id", "n"], row_ids=True, fragments=[fragment]) for fragment in fragments]
        none = table.read(["id", "n"], row_ids=True, fragments=[])
        places = {
            row["id"]: row[ROW_ADDRESS] for row in table.rows_among("id", wanted, ["id", ROW_ADDRESS]).to_pylist()
        }
        for fragment in fragments:
            stored = table.read(["id", ROW_ADDRESS], fragments=[fragment]).to_pylist()
            here = {row["id"]: row[ROW_ADDRESS] for row in stored if row["id"] in wanted}
            assert here == {name: place for name, place in places.items() if place >> 32 == fragment}
        assert by_row_id(pa.concat_tables([none, *parts])).equals(whole)
        assert by_row_id(pa.concat_tables([none, *batches])).equals(whole)
        root.close()


def row_changes(old: Table, new: Table, columns: list[str], *, at_most: int) -> RowChanges | None:
    """What differs, unless the manifests say that it is more than `at_most` rows."""
    diff = VersionDiff.of(old, new, columns, columns)
    return None if diff.row_count > at_most else diff.changes(columns)


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


def test_added_rows_are_those_of_new_fragments(root: GraphRoot, empty: TableState) -> None:
    """Taken by their offsets where they are few, scanned where they are many, and never those that are deleted."""
    first = root.staging.append(empty, things(a=1)).state
    many = {f"m{i}": i for i in range(100)}
    later = root.staging.append(root.staging.append(first, things(b=2, c=None)).state, things(**many)).state
    diff = VersionDiff.of(opened(root, first), opened(root, later), ["n"], ["n"])
    assert diff.only_adds
    assert sorted(diff.new_rows(["n"]).column("n").to_pylist(), key=str) == sorted([2, None, *many.values()], key=str)
    thinned = root.staging.delete(later, ["b", "m7"]).state
    diff = VersionDiff.of(opened(root, first), opened(root, thinned), ["id"], ["id"])
    assert set(diff.new_rows(["id"]).column("id").to_pylist()) == {"c", *many} - {"m7"}
    assert not VersionDiff.of(opened(root, later), opened(root, thinned), ["id"], ["id"]).only_adds


def test_a_writer_knows_the_rows_that_it_appended(root: GraphRoot, empty: TableState) -> None:
    """Those of a version on top of its own base, however small fragments were joined; another reader reads them."""
    state = empty
    for number in range(12):
        rows = things(**{f"t{number}": number})
        base, state = state, root.staging.append(state, rows).state
        table = opened(root, state)
        assert table.appended_to(opened(root, base)) == rows
        assert table.appended_to(table) is None
        assert number == 0 or table.appended_to(opened(root, empty)) is None
        assert table.read(["id", "n"]).num_rows == number + 1
    with contextlib.closing(GraphRoot.open(root.objects.location)) as other:
        assert opened(other, state).appended_to(opened(other, base)) is None


def test_rows_of_other_changes_and_of_large_ones_are_read(root: GraphRoot, empty: TableState) -> None:
    first = root.staging.append(empty, things(a=1, b=2)).state
    large = things(**{f"l{i}": i for i in range(5_000)})
    for staged in (
        root.staging.upsert(first, things(a=3, c=4)),
        root.staging.delete(first, ["a"]),
        root.staging.overwrite(first, things(d=1)),
        root.staging.append(first, large),
    ):
        assert opened(root, staged.state).appended_to(opened(root, first)) is None


def test_coverage_counts_rows_that_an_index_does_not_know(root: GraphRoot, empty: TableState) -> None:
    base = root.staging.append(empty, things(a=1, b=2)).state
    indexed = build_index(root, base, "n", "BTREE", "n_btree").state
    newer = opened(root, root.staging.append(indexed, things(c=3)).state)
    coverage = index_coverage(newer, "n")
    assert (coverage.indexed_rows, coverage.unindexed_rows) == (2, 1)
    assert index_coverage(newer, "n", "INVERTED").indexed_rows == 0
    assert not index_coverage(opened(root, indexed), "n").unindexed_rows
