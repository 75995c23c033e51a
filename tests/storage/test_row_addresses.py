"""Row addresses derived from manifests are those that Lance gives to a scan, through any history of a table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from omnigraph.errors import IntegrityError
from omnigraph.storage.cache import SHARED_MEMORY
from omnigraph.storage.creation import create_root
from omnigraph.storage.location import Location
from omnigraph.storage.models import TableState
from omnigraph.storage.root import GraphRoot
from omnigraph.storage.tables import Table
from omnigraph.storage.tables import rows as table_rows
from omnigraph.storage.tables.memory.addresses import NOWHERE
from omnigraph.storage.tables.memory.columns import COLUMNS
from omnigraph.storage.tables.memory.deletions import decode_bitmap
from omnigraph.storage.tables.rows import ROW_ADDRESS, ROW_ID, row_ids_of

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("n", pa.int64())])
KEY = "node:Thing"


@pytest.fixture
def root(tmp_path: Path) -> Iterator[GraphRoot]:
    made = create_root(Location.parse(tmp_path / "g"), {KEY: SCHEMA})
    yield made
    made.close()


def things(numbers: range | list[int], n: int = 0) -> pa.Table:
    return pa.table({"id": [f"t{i:06}" for i in numbers], "n": [n] * len(numbers)}, schema=SCHEMA)


def ids(numbers: range | list[int]) -> list[str]:
    return [f"t{i:06}" for i in numbers]


def scanned(table: Table) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row ids and addresses as Lance gives them, in the order of a scan."""
    rows = table.read([ROW_ADDRESS], row_ids=True)
    return row_ids_of(rows), rows.column(ROW_ADDRESS).to_numpy().view(np.int64)


def check(table: Table) -> None:
    row_ids, addresses = scanned(table)
    highest = int(row_ids.max(initial=0)) + 9
    everywhere = np.arange(-3, highest)
    expected = np.full(len(everywhere), NOWHERE, np.int64)
    expected[row_ids + 3] = addresses
    assert table.addresses.addresses(everywhere).tolist() == expected.tolist()
    assert table.addresses.addresses(row_ids, live=True).tolist() == addresses.tolist()
    fragments = table.addresses.fragments
    assert np.concatenate([[], *(f.live_row_ids() for f in fragments)]).tolist() == row_ids.tolist()
    assert [f.live_rows for f in fragments] == [f.metadata.num_rows for f in table._fragments()]
    for fragment in fragments:
        ranks = fragment.ranks(fragment.live_offsets())
        assert ranks.tolist() == list(range(fragment.live_rows))


numbers = st.integers(0, 40)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 12)),
        st.tuples(st.just("upsert"), st.sets(numbers, min_size=1, max_size=8)),
        st.tuples(st.just("delete"), st.sets(numbers, min_size=1, max_size=8)),
        st.tuples(st.just("compact"), st.sets(st.integers(0, 5), min_size=1)),
    ),
    max_size=10,
)


def step(root: GraphRoot, state: TableState, kind: str, what: Any, unused: int) -> TableState:
    if kind == "append":
        return root.staging.append(state, things(range(unused, unused + what))).state
    if kind == "upsert":
        return root.staging.upsert(state, things(sorted(what), 1)).state
    if kind == "delete":
        return root.staging.delete(state, ids(sorted(what))).state
    fragments = [f.id for f in root.reader.open(state).addresses.fragments]
    return root.staging.compact(state, [fragments[i] for i in what if i < len(fragments)]).state


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps)
def test_addresses_are_those_of_a_scan_through_any_history(sequence: list[tuple[str, Any]]) -> None:
    with TemporaryDirectory() as directory:
        root = create_root(Location.parse(f"{directory}/g"), {KEY: SCHEMA})
        state = root.create_table(KEY, SCHEMA)
        for number, (kind, what) in enumerate(sequence):
            state = step(root, state, kind, what, 100 * (number + 1))
            check(root.reader.open(state))
        root.close()


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps, st.randoms(use_true_random=False), st.sampled_from([(256, 4), (0, 0), (256, 0)]))
def test_rows_are_read_by_address_in_any_order_and_number(
    sequence: list[tuple[str, Any]], random: Random, singly: tuple[int, int]
) -> None:
    """From each fragment alone, and in one scan of the rows; both ways give what a scan of the table gives."""
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_rows, "_TAKEN_SINGLY", singly[0])
        patch.setattr(table_rows, "_FRAGMENTS_TAKEN_SINGLY", singly[1])
        patch.setattr(table_rows, "_TAKEN_SHARE", 0)
        root = create_root(Location.parse(f"{directory}/g"), {KEY: SCHEMA})
        state = root.create_table(KEY, SCHEMA)
        for number, (kind, what) in enumerate([("append", 12), *sequence]):
            state = step(root, state, kind, what, 100 * number)
        table = root.reader.open(state)
        rows = table.read(["id", "n"], row_ids=True)
        stored = dict(zip(rows.column(ROW_ID).to_pylist(), rows.select(["id", "n"]).to_pylist(), strict=True))
        chosen = random.choices(list(stored), k=random.randrange(30)) if stored else []
        wanted = np.array(chosen, np.int64)
        assert table.take(wanted, ["id", "n"]).to_pylist() == [stored[row_id] for row_id in chosen]
        assert table.take(wanted, []).num_rows == len(chosen)
        asked = np.array(random.sample(range(200), 20), np.int64)
        for condition in (None, "n = 1"):
            selected = table.select(asked, ["id", "n"], filter=condition)
            passing = {i: stored[i] for i in asked.tolist() if i in stored and (not condition or stored[i]["n"] == 1)}
            by_row_id = zip(row_ids_of(selected).tolist(), selected.select(["id", "n"]).to_pylist(), strict=True)
            assert dict(by_row_id) == passing
        if len(asked) > len(stored):
            with pytest.raises(IntegrityError, match="lacks rows that it numbered itself"):
                table.take(asked, ["n"])
        root.close()


@pytest.mark.parametrize("deleted", [range(1, 30_000, 2), range(100, 25_000), range(0, 80_000, 7)])
def test_thousands_of_deletions_are_read_from_their_bitmap(root: GraphRoot, deleted: range) -> None:
    state = root.staging.append(root.create_table(KEY, SCHEMA), things(range(80_000))).state
    table = root.reader.open(root.staging.delete(state, ids(deleted)).state)
    (fragment,) = table._fragments()
    assert fragment.deletion_file().endswith(".bin")
    assert table.addresses.fragments[0].deleted.tolist() == list(deleted)
    check(table)


def test_a_bitmap_may_hold_runs() -> None:
    """Lance writes arrays and bits; the format has a third kind of container, which another version may write."""
    runs = b"\x02\x00" + b"\x05\x00\x02\x00" + b"\x64\x00\x00\x00"
    content = b"\x3b\x30\x00\x00" + b"\x01" + b"\x01\x00\x03\x00" + runs
    assert decode_bitmap(content).tolist() == [65_541, 65_542, 65_543, 65_636]


def test_the_next_version_reuses_the_fragments_that_did_not_change(root: GraphRoot) -> None:
    state = root.staging.append(root.create_table(KEY, SCHEMA), things(range(100))).state
    state = root.staging.append(state, things(range(100, 200))).state
    before = root.reader.open(state).addresses
    after = root.reader.open(root.staging.delete(state, ids([150])).state).addresses
    assert after.fragments[0] is before.fragments[0]
    assert after.fragments[1] is not before.fragments[1]


def test_addresses_are_derived_again_after_they_were_forgotten(root: GraphRoot) -> None:
    state = root.staging.append(root.create_table(KEY, SCHEMA), things(range(100))).state
    state = root.staging.upsert(state, things([5, 3, 8], 1)).state
    assert SHARED_MEMORY.uses()["row addresses"].held > 0
    SHARED_MEMORY.clear()
    table = root.reader.open(state)
    table.__dict__.pop("_addresses", None)
    check(table)


def test_a_deletion_file_that_was_replaced_is_refused(root: GraphRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(COLUMNS, "limit", 0)
    state = root.staging.append(root.create_table(KEY, SCHEMA), things(range(100))).state
    state = root.staging.delete(state, ids([1, 2, 3])).state
    other = root.staging.delete(state, ids([4])).state
    table = root.reader.open(state)
    (file,), (longer,) = ([f.deletion_file() for f in root.reader.open(s)._fragments()] for s in (state, other))
    folder = Path(root.location.child(state.path))
    (folder / file).write_bytes((folder / longer).read_bytes())
    with pytest.raises(IntegrityError, match="lists 4 deleted rows, and there were 3"):
        table.addresses.addresses(np.arange(10))
    (folder / file).unlink()
    with pytest.raises(IntegrityError, match="is missing"):
        table.addresses.addresses(np.arange(10))
