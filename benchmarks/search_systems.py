"""The systems of `bench_search`: OmniGraph and LanceDB, each through its public API.

LanceDB takes part twice: with the index its documentation recommends, which is approximate, and with an exact one. Both
have the same text index. Hybrid is LanceDB's own hybrid query with its default reranker, reciprocal rank fusion, and
`rrf` in ours.
"""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.contest import Contender, Ours

# Otherwise LanceDB's hybrid query warns about itself, twice per question.
os.environ.setdefault("LANCEDB_LOG", "error")

DIMENSION, BEST = 128, 10
DOCUMENTS = "documents.parquet"
ALL_SHELVES = 100


class SearchSystem(Contender):
    def documents(self) -> pa.Table:
        return pq.read_table(self.folder.parent / DOCUMENTS)


class OmniGraph(Ours, SearchSystem):
    SCHEMA = f"""
    node Document {{
        slug: String @key
        title: String
        text: String @index
        shelf: I32 @index
        vector: Vector({DIMENSION}) @index
    }}
    """
    QUERY = """
    query {name}($text: String, $vector: Vector({dimension}), $shelf: I32) {{
        match {{ $d: Document  {filter} }}
        return {{ $d.slug as slug, $d.title as title }}
        order {{ {rank} }}
        limit {best}
    }}
    """
    RANKS = (
        ("near", "nearest($d.vector, $vector)"),
        ("words", "bm25($d.text, $text)"),
        ("hybrid", "rrf(nearest($d.vector, $vector), bm25($d.text, $text))"),
    )

    def build(self) -> None:
        import omnigraph

        omnigraph.init(self.folder, self.SCHEMA).close()
        # Any number of documents is loaded here as one commit.
        with omnigraph.open(self.folder, limits=omnigraph.Limits(rows=1 << 40, bytes=1 << 50)) as graph:
            graph.load(self.documents(), type="Document", mode="append")
            graph.maintenance.optimize()

    def open(self) -> None:
        import omnigraph

        self.graph = omnigraph.open(self.folder)
        self.texts = "\n".join(
            self.QUERY.format(name=name + suffix, filter=filter, rank=rank, best=BEST, dimension=DIMENSION)
            for name, rank in self.RANKS
            for suffix, filter in (("", ""), ("_on", "$d.shelf < $shelf"))
        )

    def close(self) -> None:
        self.graph.close()

    def _ids(self, name: str, text: str, vector: list[float], shelf: int) -> list[str]:
        name = name if shelf == ALL_SHELVES else f"{name}_on"
        params = {"text": text, "vector": vector, "shelf": shelf}
        return [row["slug"] for row in self.graph.query(self.texts, name, params).to_arrow().to_pylist()]

    def near(self, vector: list[float], shelf: int) -> list[str]:
        return self._ids("near", "", vector, shelf)

    def words(self, text: str, shelf: int) -> list[str]:
        return self._ids("words", text, [0.0] * DIMENSION, shelf)

    def hybrid(self, text: str, vector: list[float], shelf: int) -> list[str]:
        return self._ids("hybrid", text, vector, shelf)


class LanceDb(SearchSystem):
    """With the approximate index that `create_index` makes by default; ten times as many candidates are compared
    exactly, as its documentation advises for a better recall."""

    name = "lancedb"
    module = "lancedb"

    def build(self) -> None:
        import lancedb
        from lancedb.index import FTS, BTree

        table = lancedb.connect(str(self.folder)).create_table("documents", self.documents())
        table.create_index("vector", config=self._vector_index())
        table.create_index("text", config=FTS())
        table.create_index("shelf", config=BTree())
        table.optimize()

    @staticmethod
    def _vector_index() -> Any:
        from lancedb.index import IvfPq

        return IvfPq(distance_type="l2")

    def open(self) -> None:
        import lancedb
        from lancedb.rerankers import RRFReranker

        self.table = lancedb.connect(str(self.folder)).open_table("documents")
        self.reranker = RRFReranker()

    def _ids(self, search: Any, shelf: int, *score: str) -> list[str]:
        chosen = search if shelf == ALL_SHELVES else search.where(f"shelf < {shelf}")
        return [row["slug"] for row in chosen.select(["slug", "title", *score]).limit(BEST).to_arrow().to_pylist()]

    def near(self, vector: list[float], shelf: int) -> list[str]:
        return self._ids(self._refined(self.table.search(vector, vector_column_name="vector")), shelf, "_distance")

    def words(self, text: str, shelf: int) -> list[str]:
        return self._ids(self.table.search(text, query_type="fts", fts_columns="text"), shelf, "_score")

    def hybrid(self, text: str, vector: list[float], shelf: int) -> list[str]:
        search = self.table.search(query_type="hybrid", vector_column_name="vector", fts_columns="text")
        return self._ids(self._refined(search.vector(vector).text(text).rerank(self.reranker)), shelf)

    @staticmethod
    def _refined(search: Any) -> Any:
        return search.refine_factor(10)


class LanceDbExact(LanceDb):
    name = "lancedb, exact index"

    @staticmethod
    def _vector_index() -> Any:
        from lancedb.index import IvfFlat

        return IvfFlat(distance_type="l2", num_partitions=1)

    @staticmethod
    def _refined(search: Any) -> Any:
        return search


SYSTEMS: tuple[type[SearchSystem], ...] = (OmniGraph, LanceDb, LanceDbExact)
