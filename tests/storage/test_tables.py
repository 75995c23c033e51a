"""Staged table versions: every kind of write, its counts, and that nobody sees it before it is published."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.storage.models import ChangeCounts, TableState
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.lance_metadata import (
    CEILING_BYTES,
    COMPACT_SMALL_AT,
    FLOOR_BYTES,
    small_fragments_to_compact,
)
from omnigraph.storage.tables.staging import StagedTable, TableColumn
from tests.conftest import Place
from tests.support.lance_tables import build_index, lance_of
from tests.support.tables import NODE, PEOPLE, append, append_one, ids, new_graph, nodes


@pytest.fixture
def graph(place: Place) -> Graph:
    graph = new_graph(place.uri)
    append(graph, {PEOPLE: nodes({"ann": 1, "bob": 2, "carl": 3})})
    return graph


def base(graph: Graph) -> TableState:
    return graph.snapshot().entry.tables[PEOPLE]


def rows(graph: Graph, staged: StagedTable) -> dict[str, int]:
    table = graph._workspace.root.reader.open(staged.state).read(["id", "n"])
    return dict(sorted(zip(table["id"].to_pylist(), table["n"].to_pylist(), strict=True)))


def test_append(graph: Graph) -> None:
    staged = graph._workspace.root.staging.append(base(graph), nodes({"dora": 4}))
    assert rows(graph, staged) == {"ann": 1, "bob": 2, "carl": 3, "dora": 4}
    assert staged.changes == ChangeCounts(inserted=1)
    assert staged.state.rows == 4


def test_upsert_replaces_and_inserts_and_keeps_row_ids(graph: Graph) -> None:
    def row_id(state: TableState) -> int:
        table = graph._workspace.root.reader.open(state).read(["id"], filter="id = 'bob'", row_ids=True)
        return table["_rowid"][0].as_py()

    before = row_id(base(graph))
    staged = graph._workspace.root.staging.upsert(base(graph), nodes({"bob": 20, "dora": 4}))
    assert rows(graph, staged) == {"ann": 1, "bob": 20, "carl": 3, "dora": 4}
    assert staged.changes == ChangeCounts(inserted=1, updated=1)
    assert row_id(staged.state) == before


def test_delete_counts_only_what_was_there(graph: Graph) -> None:
    staged = graph._workspace.root.staging.delete(base(graph), ["bob", "nobody", "bob"])
    assert rows(graph, staged) == {"ann": 1, "carl": 3}
    assert staged.changes == ChangeCounts(deleted=1)
    everything = graph._workspace.root.staging.delete(base(graph), ["ann", "bob", "carl"])
    assert everything.state.rows == 0


def test_ids_with_quotes_are_data(graph: Graph) -> None:
    odd = "o'hara \" -- \\ %_"
    staged = graph._workspace.root.staging.append(base(graph), nodes({odd: 7}))
    table = graph._workspace.root.reader.open(staged.state)
    assert table.existing_ids([odd, "o'"]) == {odd}
    assert rows(graph, graph._workspace.root.staging.delete(staged.state, [odd])) == {"ann": 1, "bob": 2, "carl": 3}


def test_overwrite(graph: Graph) -> None:
    staged = graph._workspace.root.staging.overwrite(base(graph), nodes({"new": 1}))
    assert rows(graph, staged) == {"new": 1}
    assert staged.changes == ChangeCounts(inserted=1, deleted=3)
    assert rows(graph, graph._workspace.root.staging.overwrite(base(graph), nodes({}))) == {}


def test_a_new_column_is_null_in_old_rows_and_costs_no_data(graph: Graph) -> None:
    table = graph._workspace.root.reader.open(base(graph))
    columns = [TableColumn(field) for field in (*table.schema, pa.field("nick", pa.string()))]
    staged = graph._workspace.root.staging.reshape(base(graph), columns)
    wider = graph._workspace.root.reader.open(staged.state)
    assert wider.read(["nick"])["nick"].null_count == 3
    assert {f for f in wider.files() if f.startswith("data/")} == {f for f in table.files() if f.startswith("data/")}
    schema = NODE.append(pa.field("nick", pa.string()))
    more = graph._workspace.root.staging.append(
        staged.state, pa.table({"id": ["d"], "n": [4], "nick": ["dd"]}, schema=schema)
    )
    assert graph._workspace.root.reader.open(more.state).read(filter="nick = 'dd'")["id"].to_pylist() == ["d"]


def plan_of(table: Table, filter: str) -> str:
    return str(lance_of(table).scanner(filter=filter).explain_plan())


def test_an_index_answers_like_a_scan_and_grows_by_segments(graph: Graph) -> None:
    root = graph._workspace.root
    staging, reader = root.staging, root.reader
    first = build_index(root, base(graph), "id", "BTREE", "id_btree")
    assert "ScalarIndexQuery" in plan_of(reader.open(first.state), "id = 'bob'")
    more = staging.append(first.state, nodes({"dora": 4}))
    assert reader.open(more.state).existing_ids(["dora", "bob"]) == {"dora", "bob"}, "uncovered rows are found"
    second = build_index(root, more.state, "id", "BTREE", "id_btree")
    segments = [len(i.segments) for i in lance_of(reader.open(second.state)).describe_indices()]
    assert segments == [2]
    assert reader.open(second.state).existing_ids(["dora", "bob", "x"]) == {"dora", "bob"}
    assert build_index(root, second.state, "id", "BTREE", "id_btree").state == second.state, "nothing left to do"


def test_compaction_changes_fragments_and_nothing_else(graph: Graph) -> None:
    state = base(graph)
    for i in range(3):
        state = graph._workspace.root.staging.append(state, nodes({f"p{i}": i})).state
    before = rows(graph, StagedTable(state))
    fragments = [f.fragment_id for f in lance_of(graph._workspace.root.reader.open(state)).get_fragments()]
    compacted = graph._workspace.root.staging.compact(state, fragments)
    assert compacted.state.fragments == 1
    assert rows(graph, compacted) == before
    assert compacted.changes == ChangeCounts()


def test_no_write_moves_the_attached_head_or_shows_before_publish(place: Place) -> None:
    graph = new_graph(place.uri)
    append_one(graph, "ann")
    graph._workspace.root.staging.append(base(graph), nodes({"unpublished": 1}))
    graph._workspace.root.staging.overwrite(base(graph), nodes({"unpublished": 1}))
    assert ids(graph) == ids(Graph.open(place.uri)) == ["ann"]
    state = base(graph)
    attached = TableState(table_id=state.table_id, path=state.path, version="1", rows=0, fragments=0)
    dataset = lance_of(graph._workspace.root.reader.open(attached))
    assert dataset.latest_version == 1
    assert dataset.count_rows() == 0


def test_reads_do_not_decay_while_nobody_optimizes(local_place: Place) -> None:
    """Sixty single-row commits leave a handful of fragments, whose rows are all there."""
    graph = new_graph(local_place.uri)
    seen = []
    for i in range(60):
        append_one(graph, f"p{i:03}")
        seen.append(base(graph).fragments)
    assert max(seen) < COMPACT_SMALL_AT
    assert ids(graph) == [f"p{i:03}" for i in range(60)]
    assert base(graph).fragments == len(lance_of(graph._workspace.root.reader.open(base(graph))).get_fragments())


def test_folding_leaves_indexed_fragments_alone(local_place: Place) -> None:
    graph = new_graph(local_place.uri)
    append(graph, {PEOPLE: nodes({"ann": 1})})
    state = build_index(graph._workspace.root, base(graph), "id", "BTREE", "id_btree").state
    indexed = {f.fragment_id for f in lance_of(graph._workspace.root.reader.open(state)).get_fragments()}
    for i in range(COMPACT_SMALL_AT + 1):
        state = graph._workspace.root.staging.append(state, nodes({f"p{i}": i})).state
    table = graph._workspace.root.reader.open(state)
    assert indexed <= {f.fragment_id for f in lance_of(table).get_fragments()}
    assert "ScalarIndexQuery" in plan_of(table, "id = 'ann'")
    assert state.rows == COMPACT_SMALL_AT + 2


def test_reading_beside_the_building_of_an_index(local_place: Place) -> None:
    """Both through one handle, on one version: Lance lends a dataset to one of them at a time."""
    graph = new_graph(local_place.uri)
    append(graph, {PEOPLE: nodes({f"p{i}": i for i in range(20_000)})})
    table, done, failed = graph._workspace.root.reader.open(base(graph)), threading.Event(), list[BaseException]()

    def read() -> None:
        while not done.is_set():
            try:
                assert table.read(["id"], limit=5).num_rows == 5
            except Exception as error:
                failed.append(error)
                return

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for _ in range(5):
            build_index(graph._workspace.root, base(graph), "id", "BTREE", "id_btree")
    finally:
        done.set()
        for reader in readers:
            reader.join()
    assert failed == []


def sizes(*byte_counts: int) -> dict[int, int]:
    return dict(enumerate(byte_counts))


@pytest.mark.parametrize(
    ("fragments", "chosen"),
    [
        (sizes(*[100] * (COMPACT_SMALL_AT - 1)), []),
        (sizes(*[100] * COMPACT_SMALL_AT), list(range(COMPACT_SMALL_AT))),
        (sizes(*[CEILING_BYTES + 1] * 10), []),
        # One large fragment is not rewritten for the sake of a few tiny ones.
        (sizes(30 * FLOOR_BYTES, *[100] * COMPACT_SMALL_AT), list(range(1, COMPACT_SMALL_AT + 1))),
        # A full tier of larger ones folds by itself.
        (sizes(100, *[2 * FLOOR_BYTES] * COMPACT_SMALL_AT), list(range(1, COMPACT_SMALL_AT + 1))),
    ],
)
def test_what_a_fold_takes(fragments: dict[int, int], chosen: list[int]) -> None:
    assert small_fragments_to_compact(fragments) == chosen


@pytest.mark.parametrize("commits", [3_000, 12_000])
def test_tiny_commits_do_not_write_the_square_of_what_they_hold(commits: int) -> None:
    """Every copy that a fold makes of a small table stays until cleanup, so there must not be many of each row."""
    fragments: dict[int, int] = {}
    written = most = 0
    for i in range(commits):
        fragments[i] = 200
        chosen = small_fragments_to_compact(fragments)
        if chosen:
            fragments[i] = sum(fragments.pop(fragment_id) for fragment_id in chosen)
            written += fragments[i]
        most = max(most, len(fragments))
    assert written < 50 * commits * 200
    assert most < 3 * COMPACT_SMALL_AT


def test_a_row_is_rewritten_a_logarithmic_number_of_times() -> None:
    """Appending small fragments one by one: total bytes rewritten stay within a small factor per tier."""
    fragments: dict[int, int] = {}
    rewritten, next_id, appended = 0, 0, 200_000
    for _ in range(3_000):
        fragments[next_id] = appended
        next_id += 1
        while chosen := small_fragments_to_compact(fragments):
            total = sum(fragments.pop(i) for i in chosen)
            rewritten += total
            fragments[next_id] = total
            next_id += 1
    assert rewritten < 6 * 3_000 * appended
    assert len(fragments) < 40


def test_many_tables_open_within_a_byte_bound(local_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from omnigraph.storage.tables import reader as reading

    graph = new_graph(local_place.uri)
    monkeypatch.setattr(reading, "_OPEN_BYTES", 5 * reading._BYTES_PER_DATASET)
    for i in range(20):
        append_one(graph, f"p{i}")
    assert len(graph._workspace.root.reader.open_tables()) <= 5
    for version in range(1, 22):
        assert graph.snapshot(version=version).count(PEOPLE) == version - 1


def test_log_entries_hold_the_whole_graph_as_readable_json(local_place: Place) -> None:
    graph = new_graph(local_place.uri)
    append_one(graph, "ann", actor="me", message="first")
    entry = graph.snapshot().entry
    stored = json.loads((Path(graph.uri) / f"__manifest/log/{entry.branch_id}/{2:020d}.json").read_text())
    assert stored["tables"].keys() == {PEOPLE, "node:Place", "edge:Knows"}
    assert isinstance(stored["tables"][PEOPLE]["version"], str)
    assert stored["commit"]["actor"] == "me"
    assert stored["commit"]["changes"] == {PEOPLE: {"inserted": 1}}
