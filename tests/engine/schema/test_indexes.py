"""Declared indexes: what is built, what waits, and that no answer ever depends on how far they got."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph import Graph
from omnigraph.api import wire
from omnigraph.engine.maintenance.declared_indexes import declared_indexes, table_types
from omnigraph.engine.query.operators.pushdown import equals_any
from omnigraph.storage.models import TableState
from omnigraph.storage.tables.indexes import MOST_SEGMENTS, covered_fragments, stored_indexes
from tests.engine.library import SCHEMA, book, load, loan, reader
from tests.support.lance_tables import lance_of


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return Graph.init(tmp_path / "graph", SCHEMA)


def coverage(graph: Graph, type_key: str = "node:Book", branch: str | None = None) -> dict[str, set[int]]:
    return covered_fragments(graph.snapshot(branch).table(type_key))


def fragments(graph: Graph, type_key: str = "node:Book") -> set[int]:
    return {f.fragment_id for f in lance_of(graph.snapshot().table(type_key)).get_fragments()}


def test_what_the_library_schema_declares(graph: Graph) -> None:
    types = table_types(graph.catalog)
    declared = {key: {(s.column, s.kind) for s in declared_indexes(type_)} for key, type_ in types.items()}
    assert declared == {
        "edge:Borrowed": {("id", "BTREE"), ("src", "BTREE"), ("dst", "BTREE")},
        "node:Book": {
            ("id", "BTREE"),
            ("isbn", "BTREE"),
            ("isbn", "INVERTED"),
            ("title", "INVERTED"),
            ("title", "NGRAM"),
            ("pages", "BTREE"),
            ("genre", "BTREE"),
            ("tags", "LABEL_LIST"),
            ("mood", "IVF_FLAT"),
        },
        "node:Reader": {("id", "BTREE"), ("card", "BTREE"), ("card", "INVERTED")},
    }


def test_empty_types_are_skipped_and_publish_nothing(graph: Graph) -> None:
    before = graph.snapshot().commit_id
    assert graph.maintenance.ensure_indices() == []
    assert graph.snapshot().commit_id == before


def test_every_declared_index_is_built_in_one_commit_and_then_there_is_nothing_to_do(graph: Graph) -> None:
    load(graph, [book("a", pages=1, tags=["x"], mood=[1, 2, 3]), reader("r"), loan("r", "a")])
    before = graph.snapshot().version
    assert graph.maintenance.ensure_indices() == []
    assert graph.snapshot().version == before + 1
    for key, type_ in table_types(graph.catalog).items():
        covered = coverage(graph, key)
        assert covered.keys() == {spec.name for spec in declared_indexes(type_)}
        assert all(found == fragments(graph, key) for found in covered.values())
    assert graph.maintenance.ensure_indices() == []
    assert graph.snapshot().version == before + 1


def test_a_vector_property_without_vectors_waits_with_its_reason(graph: Graph) -> None:
    load(graph, [book("a")])
    pending = [wire.to_builtins(p) for p in graph.maintenance.ensure_indices()]
    reason = "property has no non-null vectors to train on yet"
    assert pending == [{"type_key": "node:Book", "property": "mood", "reason": reason}]
    load(graph, [book("b", mood=[1, 2, 3])])
    assert graph.maintenance.ensure_indices() == []
    assert "mood_vector" in coverage(graph)


def test_new_rows_cost_one_more_segment_and_old_ones_are_not_read_again(graph: Graph) -> None:
    load(graph, [book("a", pages=1)])
    graph.maintenance.ensure_indices()
    first = {s.uuid for s in stored_indexes(graph.snapshot().table("node:Book"))["pages_btree"]}
    load(graph, [book("b", pages=2)])
    graph.maintenance.ensure_indices()
    both = {s.uuid for s in stored_indexes(graph.snapshot().table("node:Book"))["pages_btree"]}
    assert first < both
    assert len(both) == 2


def test_an_index_that_knew_rows_by_older_values_is_built_anew(graph: Graph) -> None:
    load(graph, [book("a", pages=1), book("b", pages=2)])
    graph.maintenance.ensure_indices()
    old = {s.uuid for s in stored_indexes(graph.snapshot().table("node:Book"))["pages_btree"]}
    load(graph, [book("a", pages=9)])
    graph.maintenance.ensure_indices()
    table = graph.snapshot().table("node:Book")
    assert old.isdisjoint(s.uuid for s in stored_indexes(table)["pages_btree"])
    assert table.read(["id"], filter="pages = 1").num_rows == 0
    assert table.read(["id"], filter="pages = 9").column("id").to_pylist() == ["a"]


def test_segments_stay_few(graph: Graph) -> None:
    for i in range(MOST_SEGMENTS + 3):
        load(graph, [book(f"b{i}", pages=i)], "append")
        graph.maintenance.ensure_indices()
        segments = stored_indexes(graph.snapshot().table("node:Book"))
        assert max(len(found) for found in segments.values()) <= MOST_SEGMENTS


def test_indexes_belong_to_a_branch(graph: Graph) -> None:
    load(graph, [book("a")])
    graph.create_branch("side")
    graph.maintenance.ensure_indices("side")
    assert coverage(graph, branch="side").keys() >= {"id_btree", "isbn_btree"}
    assert coverage(graph) == {}


# One table, every kind of index, random writes and random maintenance: filters and nearest must agree with a plain
# model.

OPTIONAL = SCHEMA.replace("title: String @index", "title: String? @index").replace("cover: Blob?", "")
WORDS = ["alpha", "beta", "gamma", "delta", "it's"]
TABLE = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("isbn", pa.string(), nullable=False),
        pa.field("title", pa.string()),
        pa.field("pages", pa.int32()),
        pa.field("genre", pa.string()),
        pa.field("tags", pa.list_(pa.field("item", pa.string()))),
        pa.field("mood", pa.list_(pa.field("item", pa.float32()), 3)),
    ]
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "upsert", "patch", "delete", "index", "tidy", "overtaken", "overwrite"]),
        st.integers(0, 2**16),
    ),
    min_size=3,
    max_size=8,
)


class Shelf:
    """A table of books beside a dictionary that says what it should hold."""

    def __init__(self, graph: Graph) -> None:
        self.root = graph._workspace.root
        self.state: TableState = graph.snapshot().entry.tables["node:Book"]
        self.type = graph.catalog.nodes["Book"]
        self.specs = declared_indexes(self.type)
        self.model: dict[str, dict[str, Any]] = {}

    @property
    def table(self):  # type: ignore[no-untyped-def]
        return self.root.reader.open(self.state)

    def do(self, step: str, seed: int) -> None:
        chance, staging = random.Random(seed), self.root.staging
        known = sorted(self.model)
        some = chance.sample(known, min(len(known), chance.randint(1, 6)))
        if step == "append":
            rows = {f"n{seed}-{i}": self.row(chance) for i in range(chance.randint(1, 6))}
            rows = {k: v for k, v in rows.items() if k not in self.model}
            self.state = staging.append(self.state, self.arrow(rows)).state if rows else self.state
            self.model |= rows
        elif step == "upsert":
            rows = {k: self.row(chance) for k in [*some, f"u{seed}"]}
            self.state = staging.upsert(self.state, self.arrow(rows)).state
            self.model |= rows
        elif step == "patch" and some:
            rows = {k: chance.randrange(5) for k in some}
            patch = pa.table(
                {"id": list(rows), "pages": list(rows.values())},
                schema=pa.schema([TABLE.field("id"), TABLE.field("pages")]),
            )
            self.state = staging.update(self.state, patch).state
            for key, pages in rows.items():
                self.model[key]["pages"] = pages
        elif step == "delete" and some:
            self.state = staging.delete(self.state, some).state
            for key in some:
                del self.model[key]
        elif step == "overwrite":
            self.model = {f"o{seed}-{i}": self.row(chance) for i in range(3)}
            self.state = staging.overwrite(self.state, self.arrow(self.model)).state
        elif step == "index":
            self.state = self.root.table_maintenance.index_only(self.state, self.specs).staged.state
        elif step == "tidy":
            self.state = self.root.table_maintenance.optimize(self.state, self.specs).staged.state
            assert not self.root.table_maintenance.optimize(self.state, self.specs).changed, "a second run does nothing"

        elif step == "overtaken":
            # A writer moves the table on while it is tidied; the work is replayed on what the writer made.
            work = self.root.table_maintenance.optimize(self.state, self.specs)
            self.do(chance.choice(["append", "upsert", "patch", "delete", "overwrite"]), seed + 1)
            replayed = self.root.table_maintenance.replay(work, self.state)
            self.state = self.state if replayed is None else replayed.staged.state

    @staticmethod
    def row(chance: random.Random) -> dict[str, Any]:
        return {
            "title": chance.choice([None, " ".join(chance.sample(WORDS, 2))]),
            "pages": chance.choice([None, *range(4)]),
            "genre": chance.choice(["novel", "essay", None]),
            "tags": chance.choice([None, [], chance.sample(WORDS, 2)]),
            "mood": chance.choice([None, [chance.random() for _ in range(3)]]),
        }

    @staticmethod
    def arrow(rows: dict[str, dict[str, Any]]) -> pa.Table:
        return pa.Table.from_pylist([{"id": k, "isbn": k, **v} for k, v in rows.items()], schema=TABLE)

    def ask(self, filter: str) -> list[str]:
        return sorted(self.table.read(["id"], filter=filter).column("id").to_pylist())

    def check(self) -> None:
        model = self.model
        assert sorted(self.table.read(["id"]).column("id").to_pylist()) == sorted(model)
        for pages in range(5):
            assert self.ask(f"pages = {pages}") == sorted(k for k, r in model.items() if r["pages"] == pages)
        assert self.ask("pages IS NULL") == sorted(k for k, r in model.items() if r["pages"] is None)
        assert self.ask("pages >= 2") == sorted(k for k, r in model.items() if (r["pages"] or 0) >= 2)
        assert self.ask("genre = 'novel'") == sorted(k for k, r in model.items() if r["genre"] == "novel")
        for word in WORDS:
            text = word.replace("'", "''")
            assert self.ask(f"contains(title, '{text}')") == sorted(
                k for k, r in model.items() if word in (r["title"] or "")
            )
            assert self.ask(f"array_has(tags, '{text}')") == sorted(
                k for k, r in model.items() if word in (r["tags"] or [])
            )
        titles = sorted({r["title"] for r in model.values() if r["title"]})
        for sought in filter(None, (["none"], titles[:1], titles[:3])):
            assert self.ask(equals_any(self.type, self.type.properties["title"], sought)) == sorted(
                k for k, r in model.items() if r["title"] in sought
            )
        for key in sorted(model)[:4]:
            assert self.ask(f"isbn = '{key}'") == [key]
            assert self.ask(f"id = '{key}'") == [key]
        vectors = {k: np.array(r["mood"], np.float32) for k, r in model.items() if r["mood"] is not None}
        if vectors:
            query = np.array([0.5, 0.5, 0.5], np.float32)
            # An index keeps the vectors of rows that a compaction removed, and Lance counts them among the nearest.
            asked = {"column": "mood", "q": query, "k": 1_000}
            found = lance_of(self.table).to_table(columns=["id", "_distance"], nearest=asked, prefilter=True)
            expected = sorted(vectors, key=lambda k: float(((vectors[k] - query) ** 2).sum()))
            assert found.column("id").to_pylist() == expected


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS)
def test_no_answer_depends_on_what_is_indexed(tmp_path_factory: pytest.TempPathFactory, steps: Any) -> None:
    shelf = Shelf(Graph.init(tmp_path_factory.mktemp("g") / "graph", OPTIONAL))
    for step, seed in steps:
        shelf.do(step, seed)
        shelf.check()
