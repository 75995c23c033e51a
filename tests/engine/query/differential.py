"""Random reads of every construct, answered by the engine and by the reference interpreter.

`python -m tests.engine.query.differential --cases 100000` compares many of them and prints those that differ; a case is
repeated by its number: `--first 4711 --cases 1`.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from omnigraph.api.queries import ReadPoint
from omnigraph.api.values import render_column
from omnigraph.engine.query import run
from omnigraph.engine.query.context import MODE_VARIABLE
from omnigraph.engine.query.operators import projection, pushdown
from omnigraph.engine.query.read import run_query
from omnigraph.engine.query.traversal import edge_visibility, search
from omnigraph.engine.snapshot import Snapshot
from omnigraph.errors import CompileError, EvaluationError, PolicyError
from omnigraph.graph import Graph
from omnigraph.language.query.compile import compile_queries
from omnigraph.language.query.params import bind_parameters
from omnigraph.storage.cache import SHARED_MEMORY
from omnigraph.storage.tables import rows
from omnigraph.storage.tables.memory.columns import COLUMNS
from tests.engine.query_graphs import mixed_graph
from tests.engine.visibilities import FILTERS, HIDDEN, TITLED_FILTERS, Chosen, visibility_on, visible
from tests.support.interpreter_functions import RuleError
from tests.support.random_reads import RandomRead, random_read
from tests.support.reference import ReferenceGraph

NOW = 1_800_000_000_000
MODES = ("indexed", "csr", "auto")
ROOMS = (0, 4_000, 1 << 20)
"""Bytes for columns in memory: none, so few that most are evicted within a query, and enough."""
REFUSED = [["refused"]]
DIGITS = 10
"""Sums and roots may differ in the last digits."""


_FOLLOWED = (
    ("Person", "knows"),
    ("Person", "lives"),
    ("City", "near"),
    ("Person", "rates"),
    ("Club", "backs"),
    ("Titled", "backs"),
)


@dataclass(frozen=True)
class Stored:
    """A graph and what it holds."""

    graph: Graph
    reference: ReferenceGraph


@dataclass(frozen=True)
class Difference:
    case: int
    read: RandomRead
    way: str
    expected: Any
    answer: Any

    def __str__(self) -> str:
        parameters = {name: value for name, value in self.read.parameters.items() if f"${name}" in self.read.text}
        return (
            f"case {self.case}, {self.way}:\n  {self.read.text}\n  with {parameters}\n"
            f"  reference: {self.expected}\n  engine:    {self.answer}"
        )


def traverse(graph: Graph) -> None:
    """Have topologies of this state in memory, so that those of the next one lie over them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MODE_VARIABLE, "csr")
        for start, step in _FOLLOWED:
            graph.query(f"query q() {{ match {{ $a: {start}  $a {step} $b }} return {{ count($b) as n }} }}")


@contextmanager
def stored_graphs(folder: Path, count: int) -> Iterator[list[Stored]]:
    """Half of them were read after every commit, the others for the first time when all was done."""
    made = [mixed_graph(folder / str(seed), seed, *([traverse] if seed % 4 < 2 else [])) for seed in range(count)]
    try:
        yield [Stored(graph, ReferenceGraph.of(graph.snapshot())) for graph in made]
    finally:
        for graph in made:
            graph.close()


def compare(stored: Stored, case: int, ways: int = 1) -> Difference | None:
    """Answer a case in some ways. Raises `CompileError` for a text that does not compile."""
    random, read = Random(case), random_read(case)
    plan = compile_queries(read.text, stored.graph.catalog).query("q").read_plan
    bound = bind_parameters(plan.parameters, read.parameters, now_millis=NOW)
    chosen, masked = _restriction(random) if random.random() < 0.4 else ({}, {})
    reference = visible(stored.reference, chosen, stored.graph.catalog, masked) if chosen else stored.reference
    try:
        expected = comparable(reference.rows(plan, bound), read)
    except RuleError:
        expected = REFUSED
    state = stored.graph.snapshot()
    if chosen:
        state = state.restricted_to(visibility_on(stored.graph.catalog, chosen, masked))
    for _ in range(ways):
        mode, is_small, terms = random.choice(MODES), random.random() < 0.5, random.randint(0, 2)
        room = random.choice(ROOMS)
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(COLUMNS, "limit", room)
                answer = _answer(state, read, mode, terms if is_small else None)
        except PolicyError:
            assert masked, "nothing else is refused"
            return None
        # A calculation that is refused may also be one that an answer does not need.
        if answer != expected and expected is not REFUSED:
            seen = f"rows {[text for text, _ in chosen.values()]}, without {masked}" if chosen else "all rows"
            way = f"{mode}{f', small {terms}' if is_small else ''}, {seen}, {room} bytes of columns"
            return Difference(case, read, way, expected, answer)
    return None


def _restriction(random: Random) -> tuple[Chosen, dict[str, list[str]]]:
    """Row filters of some types, and for some readers properties that they don't see."""
    filters = {**FILTERS, **TITLED_FILTERS}
    chosen = {key: random.choice(filters[key]) for key in random.sample(sorted(filters), random.randint(1, 3))}
    types = random.sample(sorted(HIDDEN), 2) if random.random() < 0.3 else ()
    return chosen, {key: random.sample(HIDDEN[key], 1) for key in types}


def _answer(state: Snapshot, read: RandomRead, mode: str, terms: int | None) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MODE_VARIABLE, mode)
        patch.setattr(time, "time_ns", lambda: NOW * 1_000_000)
        if not state.visibility.is_unrestricted:
            # Rows are looked at one by one, or all that are seen are found first.
            patch.setattr(edge_visibility, "_FIND", -math.inf if mode == "auto" else math.inf)
            SHARED_MEMORY.clear()
        if terms is not None:
            _make_small(patch.setattr, terms)
        try:
            result = run_query(state, ReadPoint("main"), (read.text, "q", read.parameters))
        except EvaluationError:
            return REFUSED
    columns = [render_column(result.table.column(i)) for i in range(len(result.columns))]
    return comparable([list(row) for row in zip(*columns, strict=True)], read)


def _make_small(replace: Callable[[Any, str, Any], None], terms: int) -> None:
    """Every batch so small that each query needs several, and few tests of several in a scan."""
    replace(run, "_PIECE", 2)
    replace(run, "_FIRST_PIECE", 1)
    replace(search, "VISITED_BYTES", 16)
    replace(rows, "_VALUES_PER_LOOKUP", 2)
    replace(rows, "_LOOKUP_SHARE", 1)
    replace(projection, "BATCH_ROWS", 3)
    replace(pushdown, "MOST_TERMS", terms)


def comparable(answer: Sequence[Sequence[Any]], read: RandomRead) -> list[Any]:
    """Rows with what has no order in the order of its text."""
    plain = [
        [_in_order(_plain(v)) if i in read.bags and v is not None else _plain(v) for i, v in enumerate(row)]
        for row in answer
    ]
    return plain if read.is_ordered else _in_order(plain)


def _in_order(values: list[Any]) -> list[Any]:
    return sorted(values, key=lambda value: json.dumps(value, sort_keys=True))


def _plain(value: Any) -> Any:
    match value:
        case float():
            return "NaN" if math.isnan(value) else float(f"{value:.{DIGITS}g}") + 0.0
        case list():
            return [_plain(item) for item in value]
        case dict():
            return {name: _plain(item) for name, item in value.items()}
    return value


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.engine.query.differential", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--graphs", type=int, default=12)
    parser.add_argument("--most", type=int, default=10, help="stop after so many differences")
    options = parser.parse_args(arguments)
    compared = differences = 0
    with tempfile.TemporaryDirectory() as folder, stored_graphs(Path(folder), options.graphs) as graphs:
        for case in range(options.first, options.first + options.cases):
            try:
                difference = compare(graphs[case % len(graphs)], case)
            except CompileError:
                continue
            except Exception as error:
                print(f"case {case}: {type(error).__name__}: {error}\n  {random_read(case).text}", flush=True)
                differences += 1
            else:
                compared += 1
                if difference is not None:
                    print(difference, flush=True)
                    differences += 1
            if differences >= options.most:
                break
    print(f"{compared} cases compared, {differences} differ")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
