"""Which systems take part in the graph benchmarks, and their stores: made once per folder, and never changed there."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.contest import built, installed
from benchmarks.graph_cypher import Kuzu, Ladybug
from benchmarks.graph_files import PEOPLE_AT_SCALE_1, make_files
from benchmarks.graph_omnigraph import OmniGraph
from benchmarks.graph_sql import DuckDb, Sqlite
from benchmarks.graph_systems import KNOWS, PEOPLE, GraphSystem

SYSTEMS: tuple[type[GraphSystem], ...] = (OmniGraph, Ladybug, Kuzu, DuckDb, Sqlite)


def graph_systems() -> list[type[GraphSystem]]:
    return installed(SYSTEMS)


def graph_files(folder: Path, scale: float) -> Path:
    """The folder with the files of that scale."""
    files = folder / f"graph-{scale:g}"
    files.mkdir(exist_ok=True)
    if not ((files / PEOPLE).exists() and (files / KNOWS).exists()):
        print("- making the files", file=sys.stderr, flush=True)
        make_files(files, round(PEOPLE_AT_SCALE_1 * scale))
    return files


def stored_graphs(folder: Path, scale: float, chosen: Sequence[type[GraphSystem]]) -> Path:
    """The folder with the files of that scale and the store of each system."""
    files = graph_files(folder, scale)
    for contender in chosen:
        built(contender, files, PEOPLE, KNOWS)
    return files
