"""A graph of clustered vectors, whose index is approximate from a few hundred rows on, and rankings by brute force."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.graph import Graph

DIMENSION, CLUSTERS = 8, 30

Vectors = NDArray[np.float32]


def schema(metric: str = "l2", parameters: str = "exact_rows=500") -> str:
    index = f"@index({parameters})" if parameters else "@index"
    return f"""
node Doc {{
  slug: String @key
  n: I64
  topic: String
  vec: Vector({DIMENSION})? @metric("{metric}") {index}
}}
edge Cites: Doc -> Doc
"""


def clustered(count: int, seed: int = 0) -> Vectors:
    draw = np.random.default_rng(seed)
    centres = np.random.default_rng(99).standard_normal((CLUSTERS, DIMENSION)) * 4
    return (centres[draw.integers(0, CLUSTERS, count)] + draw.standard_normal((count, DIMENSION))).astype(np.float32)


def slug(number: int) -> str:
    return f"d{number:05}"


def rows(vectors: Vectors, start: int = 0) -> pa.Table:
    """Documents of these vectors, numbered from `start`."""
    numbers = np.arange(start, start + len(vectors))
    return pa.table(
        {
            "slug": [slug(n) for n in numbers],
            "n": numbers,
            "topic": [f"t{n % 7}" for n in numbers],
            "vec": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIMENSION),
        }
    )


def build(path: Path, count: int, metric: str = "l2", parameters: str = "exact_rows=500") -> Graph:
    """So many documents with their indexes; each of the first hundred cites the one fifty after it."""
    graph = Graph.init(path, schema(metric, parameters))
    graph.load(rows(clustered(count)), type="Doc", mode="append")
    cited = [{"from": slug(n), "to": slug(n + 50)} for n in range(100)]
    graph.load(cited, type="Cites", mode="append")
    graph.maintenance.optimize()
    return graph


def distances(metric: str, query: Vectors, vectors: Vectors) -> NDArray[np.float64]:
    wide, asked = vectors.astype(np.float64), query.astype(np.float64)
    if metric == "l2":
        return np.sqrt(((wide - asked) ** 2).sum(axis=1))
    inner = wide @ asked
    if metric == "cosine":
        inner = inner / (np.linalg.norm(wide, axis=1) * np.linalg.norm(asked))
    apart: NDArray[np.float64] = 1.0 - inner
    return apart


def brute_force(metric: str, query: Vectors, vectors: Vectors, among: Iterable[int], limit: int) -> list[str]:
    """The nearest of some documents, by their numbers."""
    numbers = np.fromiter(among, np.int64)
    order = np.argsort(distances(metric, query, vectors[numbers]), kind="stable")[:limit]
    return [slug(int(n)) for n in numbers[order]]


def nearest(
    graph: Graph, query: Vectors, limit: int, condition: str = "", *, exact: bool = False
) -> list[dict[str, Any]]:
    return graph.query(text(condition, limit, exact=exact), q=query.tolist()).rows()


def text(condition: str = "", limit: int = 10, *, exact: bool = False) -> str:
    option = ", exact: true" if exact else ""
    return (
        f"query near($q: Vector({DIMENSION})) {{ match {{ $d: Doc {condition} }} "
        f"return {{ $d.slug as s, nearest($d.vec, $q) as apart }} "
        f"order {{ nearest($d.vec, $q{option}) }} limit {limit} }}"
    )
