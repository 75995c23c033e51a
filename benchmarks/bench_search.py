"""Vector, text and hybrid search beside LanceDB: the same documents, each system through its public API, in turns.

    python -m benchmarks search [--scale 1] [--rounds 15] [--folder DIR] [--json FILE]

Scale 1 is 50,000 documents; a larger scale has these and as many times more, 500,000 at most. Needs `pip install
lancedb`; without it only our own figures are shown. A question is a whole one: from the text and the vector to the ids
and titles of the best ten as Python values. Recall is measured against the exact answer, from the vectors themselves.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.contest import Running, all_running, built, installed
from benchmarks.report import Goal, Report
from benchmarks.search_systems import ALL_SHELVES, BEST, DIMENSION, DOCUMENTS, SYSTEMS, SearchSystem

DOCUMENTS_AT_SCALE_1 = 50_000
VOCABULARY = 50_000
ROUNDS = 15
GOAL = Goal(1.2)
RECALL = Goal(0.95, "of 1", at_least=True)
SCALES = (1, 10)
"""The numbers of documents, as far as the scale of the run goes."""
SHELVES = {"": ALL_SHELVES, ", half of the rows": 50, ", 2% of the rows": 2}


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


def measure(report: Report, options: argparse.Namespace, folder: Path) -> None:
    chosen = installed(SYSTEMS)
    counts = sorted({round(DOCUMENTS_AT_SCALE_1 * min(options.scale, scale)) for scale in SCALES})
    sizes = " and ".join(f"{count:,}" for count in counts)
    report.begin("search", options.rounds or ROUNDS, chosen, f"{sizes} documents of {DIMENSION} dimensions")
    for count in counts:
        files = folder / f"search-{count}"
        files.mkdir(exist_ok=True)
        if not (files / DOCUMENTS).exists():
            make_file(files, count)
        build(report, chosen, files, count)
        with all_running(chosen, files) as systems:
            compare(report, systems, files, f", {count:,}")


def build(report: Report, chosen: Sequence[type[SearchSystem]], files: Path, count: int) -> None:
    """Once per folder; only then it is measured, too."""
    report.heading(f"build of {count:,} documents and their indexes")
    for contender in chosen:
        if timed := built(contender, files, DOCUMENTS):
            report.add(f"build of {count:,} documents", contender.name, [timed])


def compare(report: Report, systems: Sequence[Running], files: Path, size: str) -> None:
    table = pq.read_table(files / DOCUMENTS, columns=["vector", "shelf", "slug"])
    stored = table["vector"].combine_chunks().flatten().to_numpy().reshape(-1, DIMENSION)
    drawn = np.random.default_rng(7)
    noise = drawn.standard_normal((report.rounds + 1, DIMENSION), dtype=np.float32) / 10
    vectors = stored[drawn.integers(0, len(stored), len(noise))] + noise
    asked = [[float(x) for x in vector] for vector in vectors]
    for shelves, shelf in SHELVES.items():
        among = shelves + size
        report.heading(f"the best {BEST}{among}")
        chosen = np.flatnonzero(table["shelf"].to_numpy() < shelf)
        poor = recall(report, systems, asked, shelf, nearest(vectors, stored, chosen, table["slug"]), among)
        # Ties and approximation order answers differently, so they are not compared one by one.
        near = [(vector, shelf) for vector in asked]
        report.compare(f"nearest{among}", systems, "near", near, goal=GOAL, meaning=None, beside=poor)
        for kind, texts in WORDS.items():
            words = [(text, shelf) for text in texts]
            report.compare(f"BM25, {kind}{among}", systems, "words", words, goal=GOAL, meaning=None)
        mixed = [(WORDS["three words"][i % 2], vector, shelf) for i, vector in enumerate(asked)]
        report.compare(f"hybrid, three words{among}", systems, "hybrid", mixed, goal=GOAL, meaning=None, beside=poor)


def nearest(vectors: Any, stored: Any, chosen: Any, slugs: Any) -> list[set[str]]:
    """The exact answers."""
    answers = []
    for vector in vectors:
        distances = ((stored[chosen] - vector) ** 2).sum(axis=1)
        best = chosen[np.argpartition(distances, BEST)[:BEST]]
        answers.append(set(slugs.take(pa.array(best)).to_pylist()))
    return answers


def recall(
    report: Report, systems: Sequence[Running], asked: list[list[float]], shelf: int, exact: list[set[str]], among: str
) -> list[str]:
    """The systems whose recall is too low for a comparison of their times."""
    poor = []
    for system in systems:
        hits = [len(set(system.ask("near", v, shelf).answer) & best) for v, best in zip(asked, exact, strict=True)]
        share = sum(hits) / len(hits) / BEST
        report.add_value(f"recall of nearest{among}", system.name, share, "of 1", RECALL)
        poor += [system.name] if share < RECALL.limit else []
    return poor
