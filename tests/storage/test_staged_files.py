"""Taking back files that a write made: never one that a commit could come to name, and nobody else's."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.engine.bulk.executor import RemoteTable
from omnigraph.engine.resources import Resources
from omnigraph.errors import CommitOutcomeUnknownError
from omnigraph.storage.creation import create_root
from omnigraph.storage.location import Location
from omnigraph.storage.models import TableState
from omnigraph.storage.root import GraphRoot
from omnigraph.storage.tables.files import StagedFiles
from omnigraph.storage.tables.fragments import FragmentStaging, write_new_fragments
from tests.support.tables import PEOPLE, append_one, ids, new_graph

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False)])


@pytest.fixture
def root(tmp_path: Path) -> GraphRoot:
    return create_root(Location.parse(tmp_path / "g"), {"node:Thing": SCHEMA})


def written(root: GraphRoot, state: TableState, *names: str) -> list[str]:
    """Fragments as an executor writes them."""
    rows = pa.table({"id": list(names)}, schema=SCHEMA)
    return write_new_fragments(RemoteTable.of(Resources(root), state), rows, SCHEMA, replaces=False)


def data_files(root: GraphRoot) -> set[str]:
    return {stored.path for stored in root.objects.below("nodes") if "/data/" in stored.path}


def test_a_refused_write_takes_back_its_own_files_and_no_others(root: GraphRoot) -> None:
    stored = root.staging.append(root.create_table("node:Thing", SCHEMA), pa.table({"id": ["a"]}, schema=SCHEMA)).state
    before = data_files(root)
    mine, theirs = StagedFiles(root.objects), written(root, stored, "theirs")
    for fragment in written(root, stored, "b", "c"):
        mine.add(stored.path, fragment)
    FragmentStaging(root.reader, root.trace).add_fragments(stored, written(root, stored, "staged by another"))
    others = data_files(root)
    mine.discard()
    mine.discard()
    assert len(theirs) == 1
    assert len(others - data_files(root)) == 1
    assert before < data_files(root)
    assert root.reader.open(stored).read().column("id").to_pylist() == ["a"]


def test_what_may_have_been_published_is_never_taken_back(tmp_path: Path) -> None:
    """The store confirms a publish to nobody. The entry stands, and so must the rows it names."""
    graph = new_graph(str(tmp_path / "g"))
    root, state = graph._workspace.root, graph.snapshot().entry.tables[PEOPLE]

    class Silent:
        def before(self, kind: str, path: str) -> None: ...

        def after(self, kind: str, path: str) -> None:
            if kind == "create" and "/log/" in path:
                raise TimeoutError("injected: no answer")

    root.objects.interceptor = Silent()
    with pytest.raises(CommitOutcomeUnknownError):
        append_one(graph, "ann")
    root.objects.interceptor = None
    table = root.reader.open(graph.snapshot().entry.tables[PEOPLE])
    files = StagedFiles(root.objects)
    (name,) = (file for file in table.files() if file.startswith("data/"))
    files.add(state.path, f'{{"files": [{{"path": "{name.removeprefix("data/")}"}}]}}')
    files.keep()
    files.discard()
    assert ids(graph) == ["ann"]
    assert graph.maintenance.verify().clean
