"""Damaged files: verify sees them, repair explains them, and whoever needs them gets an error that names them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.engine.query.traversal.topology import PROCESS_TOPOLOGIES
from omnigraph.errors import (
    BranchNotFoundError,
    ConflictError,
    HistoricalVersionReclaimedError,
    IntegrityError,
    OmniGraphError,
)
from omnigraph.storage.models import manifest_name
from omnigraph.storage.tables.indexes import index_coverage
from tests.conftest import Place
from tests.engine.library import SCHEMA, blob, book, content, load, loan, reader
from tests.support.log_entries import list_commits

BOOKS = "node:Book"

READS: dict[str, str] = {
    "scan": "query q() { match { $b: Book } return { $b.isbn, $b.title } }",
    "key": 'query q() { match { $b: Book { isbn: "b1" } } return { $b.title } }',
    "traversal": "query q() { match { $r: Reader $r borrowed $b } return { $b.title } }",
    "search": 'query q() { match { $b: Book search($b.title, "title") } return { $b.isbn } }',
    "fuzzy": 'query q() { match { $b: Book fuzzy($b.title, "titel", 2) } return { $b.isbn } }',
    "bm25": 'query q() { match { $b: Book } return { $b.isbn } order { bm25($b.title, "title") } limit 2 }',
    "nearest": "query q() { match { $b: Book } return { $b.isbn } order { nearest($b.mood, [1.0, 0.0, 0.0]) } limit 9}",
}


def use(graph: Graph) -> Iterator[tuple[str, Callable[[], object]]]:
    """Everything a user does with a graph, by name."""
    for name, query in READS.items():
        yield name, lambda query=query: graph.query(query).rows()
    yield "load", lambda: load(graph, [book("b1", title="new"), book("b77")])
    yield "mutate", lambda: graph.mutate('query q() { update Book set { pages: 3 } where isbn = "b2" }')
    yield "export", lambda: list(graph.export())
    yield "blob", lambda: graph.read_blob("node", "Book", "b5", "cover").content.read()  # type: ignore[union-attr]
    yield "entity", lambda: graph.entity(BOOKS, "b1")
    yield "diff", lambda: graph.diff(list_commits(graph).commits[-1].commit.id, "main")
    yield "poll", lambda: graph.changes.poll(start="beginning")
    yield "merge", lambda: graph.merge("side")
    yield "optimize", lambda: graph.maintenance.optimize()
    yield "cleanup", lambda: graph.maintenance.cleanup(keep_versions=1)
    yield "history", lambda: graph.commit_history()


def outcomes(graph: Graph) -> dict[str, OmniGraphError | None]:
    """How each use ends. Whatever is not one of our errors fails the test."""
    found: dict[str, OmniGraphError | None] = {}
    for name, act in use(graph):
        try:
            act()
            found[name] = None
        except OmniGraphError as error:
            found[name] = error
    return found


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("damage") / "sound"
    graph = Graph.init(root, SCHEMA)
    covers = {1: blob(b"small"), 2: blob(bytes(80_000))}
    books = [book(f"b{i}", mood=[float(i), 0.0, 1.0], pages=i, cover=covers.get(i % 3)) for i in range(1, 9)]
    load(graph, [*books, reader("r1", name="Ann"), loan("r1", "b1")])
    graph.maintenance.optimize()
    graph.create_branch("side")
    load(graph, [book("side")], branch="side")
    graph.mutate('query q() { delete Book where isbn = "b8" }')
    load(graph, [book("b9", mood=[1.0, 1.0, 1.0])])
    graph.close()
    return root


@pytest.fixture
def root(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "graph"))


def only_damaged(root: Path, *patterns: str) -> list[Path]:
    """The files of main's books that fit, as their head names them."""
    table = Graph.open(root).snapshot().table(BOOKS)
    folder = root / table.state.path
    named = [folder / name for name in table.files()]
    files = [file for path in named for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file()]
    files += [file for path in named for file in path.with_suffix("").rglob("*.blob")]
    return sorted(file for file in files if any(file.relative_to(folder).match(pattern) for pattern in patterns))


def halve(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def empty(file: Path) -> None:
    os.truncate(file, 0)


def blacken(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


DAMAGES: dict[str, Callable[[Path], None]] = {
    "halved": halve,
    "emptied": empty,
    "zeros": blacken,
    "removed": lambda file: file.unlink(),
}


def test_a_sound_graph_serves_every_use(root: Path) -> None:
    assert {name: str(error) for name, error in outcomes(Graph.open(root)).items() if error is not None} == {}


@pytest.mark.parametrize("damage", ["halved", "emptied", "removed"])
@pytest.mark.parametrize(
    ("what", "who"),
    [
        ("data/*.lance", {"scan", "search", "export", "load", "optimize", "diff", "poll", "merge"}),
        ("_deletions/*", {"scan", "export"}),
        ("data/*/*.blob", {"blob", "export"}),
        ("_versions/*", {name for name in READS if name != "traversal"} | {"load", "mutate", "export", "blob"}),
    ],
)
def test_a_damaged_table_file_is_seen_and_named(root: Path, what: str, who: set[str], damage: str) -> None:
    for file in (damaged := only_damaged(root, what)):
        DAMAGES[damage](file)
    assert damaged
    names = {str(file.relative_to(root)) for file in damaged}
    table = next(iter(names)).rsplit("/", 2)[0] if what != "data/*/*.blob" else next(iter(names)).rsplit("/", 3)[0]
    problems = Graph.open(root).maintenance.verify().problems
    if what == "_versions/*" and damage == "removed":
        assert [p for p in problems if "no longer in the store" in p.reason and p.where == f"{BOOKS} on branch main"]
    else:
        assert {p.path for p in problems if p.where == f"{BOOKS} on branch main"} == names
    report = Graph.open(root).maintenance.repair(confirm=True, force=True)
    row = next(row for row in report.datasets if row.type_key == BOOKS)
    assert (row.classification.value, row.action.value) == ("unverifiable", "refused")
    assert row.error is not None
    failed = {name: error for name, error in outcomes(Graph.open(root)).items() if error is not None}
    assert who <= failed.keys()
    for name in who:
        error = failed[name]
        if damage == "removed" and what == "_versions/*":
            assert isinstance(error, HistoricalVersionReclaimedError), (name, error)
        else:
            assert isinstance(error, IntegrityError), (name, error)
            assert error.path in names | {table}, (name, error)


@pytest.mark.parametrize("damage", ["halved", "emptied", "removed"])
def test_a_damaged_index_is_named_and_built_again(root: Path, damage: str) -> None:
    before = content(Graph.open(root), BOOKS)
    for file in (damaged := only_damaged(root, "_indices/*/*")):
        DAMAGES[damage](file)
    segments = {f"{file.parent.relative_to(root)}/" for file in damaged}
    assert {
        p.path for p in Graph.open(root).maintenance.verify().problems if p.where == f"{BOOKS} on branch main"
    } == segments
    with pytest.raises(IntegrityError, match="_indices/"):
        Graph.open(root).query(READS["search"])
    graph = Graph.open(root)
    shown = next(row for row in graph.maintenance.repair().datasets if row.type_key == BOOKS)
    assert shown.action.value == "preview"
    assert "confirm builds it again" in str(shown.error)
    healed = graph.maintenance.repair(confirm=True)
    assert next(row for row in healed.datasets if row.type_key == BOOKS).action.value == "healed"
    assert healed.graph_manifest_version == graph.snapshot().version
    fresh = Graph.open(root)
    assert content(fresh, BOOKS) == before
    assert [p for p in fresh.maintenance.verify().problems if p.where.endswith("on branch main")] == []
    assert len(fresh.query(READS["search"]).rows()) == len(before)
    title = graph.catalog.nodes["Book"].properties["title"]
    assert not index_coverage(graph.snapshot().table(BOOKS), title.column).unindexed_rows


@pytest.mark.parametrize("damage", ["halved", "emptied", "zeros"])
def test_a_torn_head_is_explained_and_set_aside_only_by_consent(root: Path, damage: str) -> None:
    before = Graph.open(root)
    head = before.snapshot().entry
    slot = f"__manifest/log/{head.branch_id}/{head.version:020d}.json"
    DAMAGES[damage](root / slot)
    assert {p.path for p in Graph.open(root).maintenance.verify().problems} == {slot}
    for name, error in outcomes(Graph.open(root)).items():
        assert isinstance(error, OmniGraphError), name
        assert slot in str(error), name
    graph = Graph.open(root)
    (shown,) = [row for row in graph.maintenance.repair().datasets if row.type_key == "__manifest"]
    assert (shown.classification.value, shown.action.value) == ("unverifiable", "preview")
    assert (shown.published_dataset_version, shown.lance_head_version) == (head.version - 1, str(head.version))
    assert slot in str(shown.error)
    assert graph.maintenance.repair(confirm=True).refused == 1
    assert (root / slot).exists(), "nothing goes without force"
    forced = [
        row for row in graph.maintenance.repair(confirm=True, force=True).datasets if row.type_key == "__manifest"
    ]
    assert [row.action.value for row in forced] == ["forced"]
    assert len(list((root / "__manifest/damaged").iterdir())) == 1
    assert graph.snapshot().version == head.version - 1
    fresh = Graph.open(root)
    assert fresh.maintenance.verify().clean
    assert sorted(content(fresh, BOOKS)) == [f"b{i}" for i in range(1, 8)]
    load(fresh, [book("b10")])
    assert fresh.snapshot().version == head.version


@pytest.mark.parametrize("damage", [lambda path: path.write_text("not ours"), lambda path: path.write_text("[]")])
def test_a_head_that_somebody_wrote_over_is_never_set_aside(root: Path, damage: Callable[[Path], None]) -> None:
    head = Graph.open(root).snapshot().entry
    damage(root / f"__manifest/log/{head.branch_id}/{head.version:020d}.json")
    rows = [
        r for r in Graph.open(root).maintenance.repair(confirm=True, force=True).datasets if r.type_key == "__manifest"
    ]
    assert [row.action.value for row in rows] == ["refused"]


def test_a_torn_head_that_was_acknowledged_is_never_set_aside(root: Path) -> None:
    """The commit before it was released by a cleanup, which had read the head: there is nothing to go on from."""
    graph = Graph.open(root)
    load(graph, [book("b11")])
    graph.maintenance.optimize()
    graph.maintenance.cleanup(keep_versions=1)
    head = graph.snapshot().entry
    slot = root / f"__manifest/log/{head.branch_id}/{head.version:020d}.json"
    slot.write_bytes(b"")
    rows = [
        r for r in Graph.open(root).maintenance.repair(confirm=True, force=True).datasets if r.type_key == "__manifest"
    ]
    assert [row.action.value for row in rows] == ["refused"]
    assert "It was whole once" in str(rows[0].error)
    assert slot.exists()


@pytest.mark.parametrize("damage", ["halved", "emptied", "removed"])
def test_a_damaged_middle_of_the_log_is_seen(root: Path, damage: str) -> None:
    graph = Graph.open(root)
    branch_id = graph.snapshot().entry.branch_id
    slot = f"__manifest/log/{branch_id}/{2:020d}.json"
    before = content(graph, BOOKS)
    DAMAGES[damage](root / slot)
    for handle in (graph, Graph.open(root)):  # what a handle remembers is not believed
        assert slot in {p.path for p in handle.maintenance.verify().problems}
    fresh = Graph.open(root)
    assert content(fresh, BOOKS) == before
    for needs_it in (lambda: fresh.snapshot(version=2), lambda: list_commits(fresh), lambda: fresh.commit_history()):
        with pytest.raises(IntegrityError) as named:
            needs_it()
        assert named.value.path == slot
    rows = [row for row in fresh.maintenance.repair(confirm=True, force=True).datasets if row.action.value == "refused"]
    assert rows
    assert all(slot in str(row.error) for row in rows)


@pytest.mark.parametrize("damage", ["halved", "emptied", "removed", "zeros"])
def test_a_damaged_schema_is_seen_and_named(root: Path, damage: str) -> None:
    path = f"schemas/{Graph.open(root).snapshot().entry.schema}.json"
    DAMAGES[damage](root / path)
    assert {p.path for p in Graph.open(root).maintenance.verify().problems} == {path}
    with pytest.raises(IntegrityError) as named:
        Graph.open(root).query(READS["scan"])
    assert named.value.path == path
    rows = [row for row in Graph.open(root).maintenance.repair().datasets if row.action.value == "refused"]
    assert [row.type_key for row in rows] == ["__manifest"]
    assert path in str(rows[0].error)


@pytest.mark.parametrize("damage", ["halved", "zeros"])
def test_a_damaged_ref_is_seen_and_named(root: Path, damage: str) -> None:
    path = "__manifest/refs/side/000001.json"
    DAMAGES[damage](root / path)
    assert path in {p.path for p in Graph.open(root).maintenance.verify().problems}
    with pytest.raises(IntegrityError) as named:
        Graph.open(root).snapshot("side")
    assert named.value.path == path
    assert Graph.open(root).snapshot().version, "main does not depend on it"
    assert any(
        path in str(row.error)
        for row in Graph.open(root).maintenance.repair().datasets
        if row.action.value == "refused"
    )


def test_a_branch_whose_parent_was_removed_is_seen(root: Path) -> None:
    graph = Graph.open(root)
    graph.create_branch("child", source="side")
    shutil.rmtree(root / "__manifest/refs/side")
    problems = Graph.open(root).maintenance.verify().problems
    assert [(p.where, "created from" in p.reason) for p in problems] == [("branch child", True)]


def flip(file: Path, at: int, bit: int = 0) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1 << bit
    file.write_bytes(data)


def test_a_flipped_byte_in_a_manifest_never_changes_an_answer(root: Path) -> None:
    """Some of them make Lance panic, some make it read another column without a word."""
    (file,) = only_damaged(root, "_versions/*")
    path, whole = str(file.relative_to(root)), file.read_bytes()
    for at in range(0, len(whole), len(whole) // 12):
        flip(file, at, at % 8)
        graph = Graph.open(root)
        with pytest.raises(IntegrityError) as named:
            graph.query(READS["scan"])
        assert named.value.path == path
        assert [r["n"] for r in graph.query("query q() { match { $r: Reader } return { $r.name as n } }").rows()] == [
            "Ann"
        ]
        assert [p.path for p in graph.maintenance.verify().problems] == [path]
        row = next(row for row in graph.maintenance.repair().datasets if row.type_key == BOOKS)
        assert (row.action.value, path in str(row.error)) == ("refused", True)
        file.write_bytes(whole)
        assert len(graph.query(READS["scan"]).rows()) == 8, "the same handle goes on once the file is back"
        graph.close()


def test_a_flipped_byte_in_a_deletion_vector_never_changes_an_answer(root: Path) -> None:
    """Lance panics on some of them in a thread of its own, and its search then waits for ever."""
    (file,) = only_damaged(root, "_deletions/*")
    path, whole = str(file.relative_to(root)), file.read_bytes()
    for at in (236, len(whole) // 2, len(whole) - 1):
        flip(file, at, 4)
        for name in ("search", "scan"):
            with pytest.raises(IntegrityError) as named:
                Graph.open(root).query(READS[name])
            assert named.value.path == path
        assert [p.path for p in Graph.open(root).maintenance.verify().problems] == [path]
        file.write_bytes(whole)


def test_a_blob_whose_size_was_damaged_is_not_read_for_ever(root: Path) -> None:
    size = (80_000).to_bytes(8, "little")
    (file,) = (file for file in only_damaged(root, "data/*.lance") if size in file.read_bytes())
    flip(file, file.read_bytes().index(size) + 7)
    with pytest.raises(IntegrityError, match="larger than every file"):
        list(Graph.open(root).export())


@pytest.mark.parametrize("what", ["data/*.lance", "_indices/*/*"])
def test_a_flipped_byte_in_a_data_or_index_file_is_a_typed_error_where_it_is_seen(root: Path, what: str) -> None:
    """Lance keeps no checksums: a byte that still decodes is another value. Whatever fails is an error of ours."""
    failed = 0
    for file in only_damaged(root, what):
        whole = file.read_bytes()
        for at in range(0, len(whole), max(1, len(whole) // 5)):
            flip(file, at, at % 8)
            with Graph.open(root) as graph:
                for query in READS.values():
                    try:
                        graph.query(query).rows()
                    except IntegrityError:
                        failed += 1
        file.write_bytes(whole)
    assert failed


def test_a_panic_of_lance_is_an_error_that_names_the_manifest(remote_place: Place) -> None:
    """On an object store, where manifests have no digest: the type of a column is none that Lance knows."""
    graph = Graph.init(remote_place.uri, "node Person { name: String @key }  node Pet { name: String @key }")
    load(graph, ['{"type":"Person","data":{"name":"Ada"}}', '{"type":"Pet","data":{"name":"Rex"}}'])
    state = graph.snapshot().table("node:Person").state
    path, objects = f"{state.path}/_versions/{manifest_name(state.number)}", graph._workspace.root.objects
    manifest = objects.get(path)
    assert manifest is not None
    objects.put(path, manifest.replace(b"string", b"suring"))
    names = "query q() {{ match {{ $p: {} }} return {{ $p.name as name }} }}"
    fresh = Graph.open(remote_place.uri)
    for _ in range(2):
        with pytest.raises(IntegrityError) as named:
            fresh.query(names.format("Person"))
        assert named.value.path == path
        assert fresh.query(names.format("Pet")).rows() == [{"name": "Rex"}], "the same handle goes on"
    found = fresh.maintenance.verify()
    assert (found.tables, [p.path for p in found.problems]) == (2, [path])
    rows = {row.type_key: row.action.value for row in fresh.maintenance.repair().datasets}
    assert (rows["node:Person"], rows["node:Pet"]) == ("refused", "no_op")
    objects.put(path, manifest)
    assert fresh.query(names.format("Person")).rows() == [{"name": "Ada"}]


# Stored topologies


@pytest.mark.parametrize("what", ["topology.json", "out.targets.*", "in.offsets.*"])
def test_a_flipped_bit_in_a_topology_is_seen_and_the_topology_built_again(
    root: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", "csr")
    PROCESS_TOPOLOGIES.clear()
    graph = Graph.open(root)
    load(graph, [reader("r2"), loan("r2", "b2"), loan("r2", "b3")])
    expected = graph.query(READS["traversal"]).rows()
    (file,) = root.glob(f"topology/*/*/{what}")
    path, whole = str(file.relative_to(root)), file.read_bytes()
    for at in {0, len(whole) // 2, len(whole) - 1}:
        flip(file, at)
        assert path in {p.path for p in Graph.open(root).maintenance.verify().problems}
        PROCESS_TOPOLOGIES.clear()
        assert Graph.open(root).query(READS["traversal"]).rows() == expected
        assert Graph.open(root).maintenance.verify().clean, "it was built again"
    flip(file, 0)
    shown = [row for row in Graph.open(root).maintenance.repair().datasets if path in str(row.error)]
    assert [row.action.value for row in shown] == ["preview"]
    healed = [row for row in Graph.open(root).maintenance.repair(confirm=True).datasets if path in str(row.error)]
    assert [row.action.value for row in healed] == ["healed"]
    assert Graph.open(root).maintenance.verify().clean
    PROCESS_TOPOLOGIES.clear()


@pytest.mark.parametrize("what", ["topology.json", "out.targets.*"])
def test_a_damaged_topology_is_made_again_from_an_older_one(
    root: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", "csr")
    PROCESS_TOPOLOGIES.clear()
    graph = Graph.open(root)
    graph.query(READS["traversal"])
    older = {file: file.read_bytes() for file in root.glob("topology/*/*/*")}
    load(graph, [reader("r2"), loan("r2", "b2"), loan("r2", "b3")])
    graph.maintenance.optimize()
    for file, whole in older.items():  # as if another process had stored it again
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(whole)
    expected = graph.query(READS["traversal"]).rows()
    (file,) = {*root.glob(f"topology/*/*/{what}")} - older.keys()
    flip(file, 0)
    assert [p.path for p in Graph.open(root).maintenance.verify().problems] == [str(file.relative_to(root))]
    PROCESS_TOPOLOGIES.clear()
    assert Graph.open(root).query(READS["traversal"]).rows() == expected
    assert Graph.open(root).maintenance.verify().clean
    PROCESS_TOPOLOGIES.clear()


def test_topologies_of_an_earlier_version_are_made_again_and_are_not_damage(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", "csr")
    PROCESS_TOPOLOGIES.clear()
    expected = Graph.open(root).query(READS["traversal"]).rows()
    (file,) = root.glob("topology/*/*/topology.json")
    described = json.loads(file.read_text())
    for name in ("revision", "crc32"):
        del described[name]
    file.write_text(json.dumps(described))
    assert Graph.open(root).maintenance.verify().clean
    PROCESS_TOPOLOGIES.clear()
    assert Graph.open(root).query(READS["traversal"]).rows() == expected
    assert "revision" in json.loads(file.read_text())
    PROCESS_TOPOLOGIES.clear()


# Refs and logs


@pytest.mark.parametrize("committed", [True, False])
def test_an_emptied_ref_is_seen_and_named(root: Path, committed: bool) -> None:
    name = "side" if committed else "idle"
    if not committed:
        Graph.open(root).create_branch(name)
    path = f"__manifest/refs/{name}/000001.json"
    empty(root / path)
    graph = Graph.open(root)
    assert [(p.where, p.path) for p in graph.maintenance.verify().problems] == [(f"branch {name}", path)]
    with pytest.raises(IntegrityError) as named:
        graph.snapshot(name)
    assert named.value.path == path
    for beneath in ("", "/sub", "/sub/sub"):
        with pytest.raises(IntegrityError) as refused:
            graph.create_branch(name + beneath)
        assert refused.value.path == path
    assert [p.path for p in graph.maintenance.verify().problems] == [path]
    with pytest.raises(ConflictError, match="nothing was removed"):
        graph.maintenance.cleanup(keep_versions=1)
    assert any(path in str(row.error) for row in graph.maintenance.repair().datasets if row.action.value == "refused")


def test_a_name_that_only_holds_a_path_is_not_damage(root: Path) -> None:
    graph = Graph.open(root)
    graph.create_branch("team/one")
    assert graph.maintenance.verify().clean
    with pytest.raises(BranchNotFoundError):
        graph.snapshot("team")
    empty(root / "__manifest/refs/team/000001.json")  # as earlier versions wrote it
    assert Graph.open(root).maintenance.verify().clean
    with pytest.raises(BranchNotFoundError):
        Graph.open(root).snapshot("team")
    assert "team/one" in Graph.open(root).list_branches()


@pytest.mark.parametrize("damage", ["removed", "replaced"])
def test_a_commit_that_is_gone_and_was_merged_is_seen(root: Path, damage: str) -> None:
    graph = Graph.open(root)
    graph.merge("side")
    merged = graph.snapshot().entry.commit.parents[1]
    graph.delete_branch("side")
    slot = f"__manifest/log/{merged.branch_id}/{merged.version:020d}.json"
    if damage == "removed":
        (root / slot).unlink()
    else:
        text = (root / slot).read_text()
        assert merged.commit_id in text
        (root / slot).write_text(text.replace(merged.commit_id, "0" * len(merged.commit_id)))
    assert [(p.where, p.path) for p in Graph.open(root).maintenance.verify().problems] == [("branch main", slot)]


def test_the_head_of_a_branch_that_is_gone_and_was_forked_from_is_seen(root: Path) -> None:
    graph = Graph.open(root)
    graph.create_branch("fork")
    head = graph.snapshot().entry
    slot = f"__manifest/log/{head.branch_id}/{head.version:020d}.json"
    (root / slot).unlink()
    assert [(p.where, p.path) for p in Graph.open(root).maintenance.verify().problems] == [("branch fork", slot)]
    with pytest.raises(IntegrityError) as named:
        Graph.open(root).snapshot("fork")
    assert named.value.path == slot


def test_changed_content_of_the_right_length_is_an_integrity_error_when_it_no_longer_decodes(root: Path) -> None:
    for file in only_damaged(root, "data/*.lance"):
        blacken(file)
    with pytest.raises(IntegrityError, match="can't be read"):
        Graph.open(root).query(READS["scan"])
