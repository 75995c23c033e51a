"""Filtered vector search and BM25 against LanceDB: the same rows, the same kinds of index, the same run.

    python benchmarks/bench_search.py [--rows 200000] [--repeats 30]

needs `lancedb` beside omnigraph. Both sides return the ids of the best ten rows. Each line gives the median time of
either side over the same queries, taken in turns, and their ratio; the aim is a ratio of at most 1.5.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa
from lancedb.index import FTS, BTree, IvfFlat

from omnigraph.engine.query.analyzer import TEXT_INDEX_KIND, TEXT_INDEX_OPTIONS
from omnigraph.engine.query.search import Candidates, RankedRows, bm25, nearest
from omnigraph.engine.query.search_vectors import VECTOR_INDEX_KIND, vector_index_options
from omnigraph.language.catalog import Metric
from omnigraph.storage.location import Location
from omnigraph.storage.root import create_root
from omnigraph.storage.tables import Table
from omnigraph.storage.tables.searching import take_rows

DIMENSION = 128
VOCABULARY = 50_000
LIMIT = 10
FILTERS = (None, "shelf < 50", "shelf < 2")


def word(number: int) -> str:
    return f"w{np.base_repr(number, 36).lower()}x"


QUERIES = {
    "a common word": [word(i) for i in (2, 4, 6)],
    "a rare word": [word(i) for i in (900, 1700, 2500)],
    "three words": [f"{word(5)} {word(300)} {word(1200)}", f"{word(40)} {word(90)} {word(700)}"],
}


def documents(count: int) -> pa.Table:
    """Texts of 5 to 120 words whose frequencies fall off like those of a language, vectors, and a number in 0..99."""
    random = np.random.default_rng(1)
    lengths = random.integers(5, 120, count)
    drawn = np.minimum((random.pareto(0.9, int(lengths.sum())) * 3).astype(np.int64), VOCABULARY - 1)
    words = np.array([word(i) for i in range(VOCABULARY)])[drawn]
    ends = np.cumsum(lengths)
    texts = [" ".join(words[end - length : end]) for end, length in zip(ends, lengths, strict=True)]
    vectors = random.standard_normal((count, DIMENSION), dtype=np.float32)
    return pa.table(
        {
            "id": [f"d{i:08d}" for i in range(count)],
            "text": texts,
            "shelf": random.integers(0, 100, count).astype(np.int32),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIMENSION),
        },
        schema=pa.schema(
            [
                pa.field("id", pa.string(), nullable=False),
                pa.field("text", pa.string()),
                pa.field("shelf", pa.int32()),
                pa.field("vector", pa.list_(pa.field("item", pa.float32()), DIMENSION)),
            ]
        ),
    )


def our_table(directory: Path, rows: pa.Table) -> Table:
    root = create_root(Location.parse(str(directory / "omnigraph")), {})
    staging = root.staging
    state = staging.append(root.create_table("node:Document", rows.schema), rows).state
    state = staging.build_index(state, "text", TEXT_INDEX_KIND, "words", **TEXT_INDEX_OPTIONS).state
    state = staging.build_index(state, "vector", VECTOR_INDEX_KIND, "near", **vector_index_options(Metric.L2)).state
    state = staging.build_index(state, "shelf", "BTREE", "shelf").state
    return root.reader.open(state)


def their_table(directory: Path, rows: pa.Table) -> Any:
    table = lancedb.connect(str(directory / "lancedb")).create_table("documents", rows)
    table.create_index("text", config=FTS(**TEXT_INDEX_OPTIONS))
    table.create_index("vector", config=IvfFlat(distance_type="l2", num_partitions=1))
    table.create_index("shelf", config=BTree())
    return table


def our_ids(table: Table, found: RankedRows) -> list[str]:
    return take_rows(table, found.row_ids, ["id"]).column("id").to_pylist()


def their_ids(search: Any, filter: str | None, measure: str) -> list[str]:
    chosen = search.where(filter, prefilter=True) if filter else search
    return chosen.select(["id", measure]).limit(LIMIT).to_arrow().column("id").to_pylist()


def compare(
    name: str, questions: Sequence[Any], ours: Callable[[Any], Any], theirs: Callable[[Any], Any], repeats: int
) -> None:
    times: tuple[list[float], list[float]] = ([], [])
    for repeat in range(repeats + 1):
        for question in questions:
            for answer, taken in zip((ours, theirs), times, strict=True):
                began = time.perf_counter()
                answer(question)
                if repeat:  # the first round warms both sides up
                    taken.append(time.perf_counter() - began)
    mine, other = (statistics.median(taken) * 1e3 for taken in times)
    print(f"{name:<44} {mine:9.2f} ms {other:9.2f} ms {mine / other:7.2f}x", flush=True)


def compare_under(filter: str | None, mine: Table, other: Any, repeats: int) -> None:
    candidates, condition = Candidates(filter), filter or "unfiltered"
    vectors = np.random.default_rng(7).standard_normal((5, DIMENSION), dtype=np.float32)
    compare(
        f"nearest, {condition}",
        list(vectors),
        lambda vector: our_ids(mine, nearest(mine, "vector", Metric.L2, vector, LIMIT, candidates)),
        lambda vector: their_ids(other.search(vector), filter, "_distance"),
        repeats,
    )
    for kind, texts in QUERIES.items():
        compare(
            f"bm25 of {kind}, {condition}",
            texts,
            lambda text: our_ids(mine, bm25(mine, "text", text, candidates, LIMIT)),
            lambda text: their_ids(other.search(text, query_type="fts"), filter, "_score"),
            repeats,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = documents(options.rows)
        mine, other = our_table(Path(folder), rows), their_table(Path(folder), rows)
        print(f"{f'{options.rows} rows, top {LIMIT}':<44} {'omnigraph':>12} {'lancedb':>12} {'ratio':>8}")
        for filter in FILTERS:
            compare_under(filter, mine, other, options.repeats)


if __name__ == "__main__":
    main()
