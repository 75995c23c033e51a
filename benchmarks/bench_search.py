"""Vector, text and hybrid search against LanceDB: the same documents, each system through its public API, in turns.

    python -m benchmarks search [--scale 1] [--rounds 15] [--folder DIR] [--json FILE]

Scale 1 is 50,000 documents. Needs `pip install lancedb`; without it only our own figures are shown. LanceDB stands here
twice: with the index its documentation recommends, which is approximate (its recall against the exact answer is
printed), and with an exact one, which is what ours is. Both have the same text index. Hybrid is LanceDB's own hybrid
query with its default reranker, reciprocal rank fusion, and `rrf` in ours. A question is a whole one: from the text
and the vector to the ids and titles of the best ten as Python values.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.contest import Contender, Report, Running, all_running, arguments, installed, machine, workplace

# Otherwise LanceDB's hybrid query warns about itself, twice per question.
os.environ.setdefault("LANCEDB_LOG", "error")

DOCUMENTS_AT_SCALE_1 = 50_000
DIMENSION, VOCABULARY, BEST = 128, 50_000, 10
DOCUMENTS = "documents.parquet"
SHELVES = {"": 100, ", half of the rows": 50, ", 2% of the rows": 2}


def word(number: int) -> str:
    return f"w{np.base_repr(number, 36).lower()}x"


WORDS = {
    "a common word": [word(i) for i in (2, 4, 6)],
    "a rare word": [word(i) for i in (900, 1700, 2500)],
    "three words": [f"{word(5)} {word(300)} {word(1200)}", f"{word(40)} {word(90)} {word(700)}"],
}


def make_file(folder: Path, count: int) -> None:
    """Texts of 5 to 120 words whose frequencies fall off like those of a language; vectors around 200 centres."""
    drawn = np.random.default_rng(1)
    lengths = drawn.integers(5, 120, count)
    words = np.minimum((drawn.pareto(0.9, int(lengths.sum())) * 3).astype(np.int64), VOCABULARY - 1)
    spelled = np.array([word(i) for i in range(VOCABULARY)])[words]
    texts = [" ".join(spelled[end - length : end]) for end, length in zip(np.cumsum(lengths), lengths, strict=True)]
    centres = drawn.standard_normal((200, DIMENSION), dtype=np.float32)
    noise = drawn.standard_normal((count, DIMENSION), dtype=np.float32) * np.float32(0.3)
    vectors = centres[drawn.integers(0, 200, count)] + noise
    table = {
        "slug": [f"d{i:08d}" for i in range(count)],
        "title": [f"title {i}" for i in range(count)],
        "text": texts,
        "shelf": pa.array(drawn.integers(0, 100, count), pa.int32()),
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIMENSION),
    }
    pq.write_table(pa.table(table), folder / DOCUMENTS)


class SearchSystem(Contender):
    def documents(self) -> pa.Table:
        return pq.read_table(self.folder.parent / DOCUMENTS)


class OmniGraph(SearchSystem):
    name = "omnigraph"
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

        graph = omnigraph.init(self.folder, self.SCHEMA)
        records = self.folder.parent / "records.ndjson"
        with records.open("w") as file:
            for batch in self.documents().to_batches(1_000):
                for row in batch.to_pylist():
                    file.write(json.dumps({"type": "Document", "data": row}) + "\n")
        graph.load(records, mode="append")
        records.unlink()
        graph.maintenance.optimize()
        graph.close()

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
        name = name if shelf == 100 else f"{name}_on"
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
        chosen = search if shelf == 100 else search.where(f"shelf < {shelf}")
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


def compare(report: Report, systems: list[Running], folder: Path) -> None:
    stored = pq.read_table(folder / DOCUMENTS, columns=["vector"]).column("vector")
    drawn = np.random.default_rng(7)
    noise = drawn.standard_normal((report.rounds + 1, DIMENSION)) / 10
    near = [stored[int(drawn.integers(len(stored)))].as_py() for _ in noise]
    vectors = [[float(np.float32(x)) for x in np.array(v) + n] for v, n in zip(near, noise, strict=True)]
    recall = [
        [len(set(system.ask("near", v, 100).answer) & set(systems[0].ask("near", v, 100).answer)) for v in vectors]
        for system in systems
    ]
    for system, found in zip(systems, recall, strict=True):
        print(f"recall of {system.name}: {sum(found) / len(found) / BEST:.2f}", flush=True)
    # Ties and approximation order answers differently, so they are not compared one by one.
    for among, shelf in SHELVES.items():
        report.heading(f"the best {BEST}{among or ', all rows'}")
        report.compare(f"nearest{among}", systems, "near", [(v, shelf) for v in vectors], same_answers=False)
        for kind, texts in WORDS.items():
            report.compare(f"{kind}{among}", systems, "words", [(t, shelf) for t in texts], same_answers=False)
        mixed = [(WORDS["three words"][i % 2], v, shelf) for i, v in enumerate(vectors)]
        report.compare(f"hybrid, three words{among}", systems, "hybrid", mixed, same_answers=False)


def main() -> None:
    options = arguments(__doc__ or "", rounds=15).parse_args()
    with workplace(options.folder) as folder:
        chosen = installed(SYSTEMS)
        count = round(DOCUMENTS_AT_SCALE_1 * options.scale)
        print(f"{machine()}; {count} documents; medians of {options.rounds} rounds")
        report = Report(options.rounds)
        if not (folder / DOCUMENTS).exists():
            make_file(folder, count)
            report.build(chosen, folder)
        with all_running(chosen, folder) as systems:
            compare(report, systems, folder)
        if options.json:
            report.save(options.json)


if __name__ == "__main__":
    main()
