"""Columns in memory are what the files hold, through any history of a table and whatever is evicted."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.storage.creation import create_root
from omnigraph.storage.location import Location
from omnigraph.storage.models import TableState
from omnigraph.storage.root import GraphRoot
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.memory import columns
from omnigraph.storage.tables.memory.columns import COLUMNS, encode
from omnigraph.storage.tables.memory.key_hashes import text_hash, text_hashes
from omnigraph.storage.tables.memory.value_index import rows_with
from omnigraph.storage.tables.rows import by_row_id, row_ids_of

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("n", pa.int64()),
        pa.field("kind", pa.string()),
        pa.field("tags", pa.list_(pa.string())),
    ]
)
NAMES = ["id", "n", "kind", "tags"]
KEY = "node:Thing"


@pytest.fixture
def root(tmp_path: Path) -> Iterator[GraphRoot]:
    made = create_root(Location.parse(tmp_path / "g"), {KEY: SCHEMA})
    yield made
    made.close()


@pytest.fixture(autouse=True)
def no_columns() -> Iterator[None]:
    COLUMNS.clear()
    yield
    COLUMNS.clear()


def things(numbers: list[int], round: int = 0) -> pa.Table:
    rows = {
        "id": [f"t{i}" for i in numbers],
        "n": [None if i % 5 == 0 else i + round for i in numbers],
        "kind": [None if i % 7 == 0 else f"kind {i % 3 + round % 2}" for i in numbers],
        "tags": [[f"tag {i}"] * (i % 3) for i in numbers],
    }
    return pa.table(rows, schema=SCHEMA)


def large(root: GraphRoot, rows: int = 3_000) -> Table:
    """So many rows that texts which repeat are coded."""
    empty = root.create_table(KEY, SCHEMA)
    return root.reader.open(root.staging.append(empty, things(list(range(rows)))).state)


def check(table: Table) -> None:
    """What is in memory agrees with what Lance reads; what is not there is missing as a whole."""
    stored = by_row_id(table.read(NAMES, row_ids=True))
    row_ids = row_ids_of(stored)
    assert COLUMNS.rows(table).space.rows.tolist() == row_ids.tolist()
    if (whole := COLUMNS.whole(table, NAMES)) is not None:
        for name in NAMES:
            assert whole[name].take(np.arange(len(row_ids))).to_pylist() == stored.column(name).to_pylist()
    picks = np.random.default_rng(1).permutation(len(row_ids))[:9]
    assert table.take(row_ids[picks], NAMES).to_pylist() == stored.select(NAMES).take(pa.array(picks)).to_pylist()
    numbers = stored.column("n").to_pylist()
    ids, kinds = stored.column("id").to_pylist(), stored.column("kind").to_pylist()
    for column, values, texts in (("id", ids, ["t3", "t11", "none"]), ("kind", kinds, ["kind 1"]), ("id", ids, [])):
        if (rows := rows_with(table, column, texts)) is not None:
            assert rows.tolist() == [row for row, value in zip(row_ids, values, strict=True) if value in texts]
        expected = [{"n": n, "id": own} for n, own, value in zip(numbers, ids, values, strict=True) if value in texts]
        matches = by_row_id(table.rows_among(column, texts, ["n", "id"], row_ids=True))
        assert matches.select(["n", "id"]).to_pylist() == expected


numbers = st.integers(0, 40)
several = st.sets(numbers, min_size=1, max_size=8)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 12)),
        st.tuples(st.just("upsert"), several),
        st.tuples(st.just("delete"), several),
        st.tuples(st.just("compact"), st.sets(st.integers(0, 5), min_size=1)),
    ),
    max_size=8,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps, st.sampled_from([0, 1_500, 1 << 20]), st.booleans())
def test_every_version_reads_the_same_from_memory(
    monkeypatch: pytest.MonkeyPatch, history: list[tuple[str, object]], room: int, coded: bool
) -> None:
    monkeypatch.setattr(COLUMNS, "limit", room)
    monkeypatch.setattr(columns, "_FEWEST_CODED", 1 if coded else 1 << 10)
    with TemporaryDirectory() as folder:
        root = create_root(Location.parse(Path(folder) / "g"), {KEY: SCHEMA})
        state, count, older = root.create_table(KEY, SCHEMA), 0, []
        for round, (step, what) in enumerate(history):
            match step, what:
                case "append", int(more):
                    state = root.staging.append(state, things(list(range(100 + count, 100 + count + more)))).state
                    count += more
                case "upsert", set(chosen):
                    state = root.staging.upsert(state, things(sorted(chosen), round)).state
                case "delete", set(chosen):
                    state = root.staging.delete(state, [f"t{i}" for i in chosen]).state
                case "compact", set(chosen):
                    fragments = [f.fragment_id for f in root.reader.open(state)._fragments()]
                    state = root.staging.compact(state, [fragments[i] for i in chosen if i < len(fragments)]).state
            older.append(state)
            check(root.reader.open(state))
        for each in older:  # an older version is read beside newer ones
            check(root.reader.open(each))
        root.close()


def test_texts_that_repeat_are_kept_as_codes() -> None:
    repeated = encode(pa.array([f"kind {i % 3}" for i in range(5_000)] + [None]))
    assert repeated.codes is not None
    assert len(repeated.values) == 3
    assert repeated.codes[-1] == -1
    assert encode(pa.array([f"text {i}" for i in range(5_000)])).codes is None


def test_a_commit_reads_only_what_it_added(root: GraphRoot) -> None:
    table = large(root)
    assert COLUMNS.whole(table, ["n", "kind"]) is not None
    newer = root.reader.open(root.staging.upsert(table.state, things([7], 4)).state)
    newer._dataset.io_stats_incremental()
    whole = COLUMNS.whole(newer, ["n", "kind"])
    assert whole is not None
    assert whole["n"].values[7].as_py() == 11
    assert newer._dataset.io_stats_incremental().read_bytes < 10_000


def test_reads_of_rows_earn_the_column(root: GraphRoot) -> None:
    table = large(root, 200_000)
    reads = next(i for i in range(100) if COLUMNS.take(table, np.arange(3), ["id"]) is not None)
    assert 1 < reads < 20
    assert COLUMNS.take(table, np.arange(3), ["n"]) is None, "each column is earned for itself"


def test_a_column_beyond_its_share_is_not_kept(root: GraphRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    table = large(root)
    monkeypatch.setattr(COLUMNS, "limit", 1_000)
    assert COLUMNS.whole(table, ["n"]) is None
    assert not COLUMNS.held_bytes()


def test_a_text_column_that_turns_out_too_large_is_given_up_once(
    root: GraphRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = root.create_table(KEY, SCHEMA)
    rows = things([1, 2, 3]).set_column(0, SCHEMA.field("id"), pa.array(["x" * 100_000, "y", "z"]))
    table = root.reader.open(root.staging.append(empty, rows).state)
    monkeypatch.setattr(COLUMNS, "limit", 200_000)
    assert COLUMNS.whole(table, ["id"]) is None
    table._dataset.io_stats_incremental()
    assert COLUMNS.whole(table, ["id"]) is None
    assert not table._dataset.io_stats_incremental().read_bytes
    assert COLUMNS.whole(table, ["n"]) is not None


def test_memory_stays_within_its_limit(root: GraphRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    state: TableState = large(root).state
    monkeypatch.setattr(COLUMNS, "limit", 300_000)
    for round in range(12):
        state = root.staging.upsert(state, things([round], round)).state
        check(root.reader.open(state))
        assert COLUMNS.held_bytes() <= 300_000


def test_threads_that_load_one_column_agree(root: GraphRoot) -> None:
    table = large(root)
    answers: list[list[int | None]] = []

    def read() -> None:
        whole = COLUMNS.whole(table, ["n"])
        assert whole is not None
        answers.append(whole["n"].values.to_pylist())

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 8
    assert all(answer == answers[0] for answer in answers)


@given(st.lists(st.one_of(st.text(max_size=30), st.text("ab", min_size=6, max_size=40)), min_size=1))
def test_one_text_has_the_hash_that_it_has_among_others(texts: list[str]) -> None:
    assert [text_hash(text, 16) for text in texts] == text_hashes(pa.array(texts, pa.string()), 16).tolist()


def test_a_column_that_fits_only_fragment_by_fragment_is_given_up_once(
    root: GraphRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = root.create_table(KEY, SCHEMA)
    for part in range(4):
        rows = things(list(range(300 * part, 300 * (part + 1))))
        texts = pa.array([f"{i} {'x' * 300}" for i in range(300 * part, 300 * (part + 1))])
        state = root.staging.append(state, rows.set_column(0, SCHEMA.field("id"), texts)).state
    table = root.reader.open(state)
    monkeypatch.setattr(COLUMNS, "limit", 800_000)
    assert COLUMNS.whole(table, ["id"]) is None
    table._dataset.io_stats_incremental()
    assert COLUMNS.whole(table, ["id"]) is None
    assert not table._dataset.io_stats_incremental().read_bytes


def test_columns_that_evict_each_other_are_given_up(root: GraphRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    table = large(root)
    monkeypatch.setattr(columns, "_SHARE_OF_ONE", 1)
    monkeypatch.setattr(columns, "_TEXT_BYTES", 8)
    monkeypatch.setattr(COLUMNS, "limit", 60_000)
    names = ["id", "kind", "n"]
    assert [COLUMNS.whole(table, names) for _ in range(6)] == [None] * 6
    table._dataset.io_stats_incremental()
    assert COLUMNS.whole(table, names) is None
    assert not table._dataset.io_stats_incremental().read_bytes
    assert COLUMNS.whole(table, ["n"]) is not None or COLUMNS.whole(table, ["id"]) is not None
