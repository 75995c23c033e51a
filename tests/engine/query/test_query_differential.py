"""The read runtime against the reference interpreter: random queries of every construct on random graphs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import pytest

from omnigraph.engine.query.context import MODE_VARIABLE
from omnigraph.engine.query.traversal.adjacency import Adjacency, LayeredAdjacency
from omnigraph.engine.query.traversal.topology import PROCESS_TOPOLOGIES, Shape, TopologyKey
from omnigraph.errors import CompileError
from omnigraph.language.query.compile import compile_queries
from omnigraph.language.schema.compile import compile_schema
from omnigraph.language.types import Scalar
from tests.engine.query.differential import Stored, compare, stored_graphs
from tests.engine.query_graphs import MIXED, WHOLE
from tests.support.random_reads import random_read
from tests.support.random_values import PROPERTIES

GRAPHS = 8
CASES = 736
PARTS = 16


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Stored]]:
    with stored_graphs(tmp_path_factory.mktemp("graphs"), GRAPHS) as stored:
        yield stored


@pytest.mark.xdist_group("differential")
@pytest.mark.parametrize("part", range(PARTS))
def test_every_way_agrees_with_the_reference(graphs: list[Stored], part: int) -> None:
    compared = 0
    for case in range(part, CASES, PARTS):
        try:
            difference = compare(graphs[case % GRAPHS], case, ways=2)
        except CompileError:
            continue
        assert difference is None, difference
        compared += 1
    assert compared > CASES / PARTS / 2


CONSTRUCTS = (
    " and ", " or ", "not ", " is null", " is not null", " in ", "not {", "exists {", "count {", "sum(", "optional {",
    "unwind ", " then ", " union ", " union all", "distinct ", "collect(", "percentile_cont", "stdev", "limit $",
    " offset ", "nulls last", "case ", "coalesce(", "reduce(", "map(", "record(", "field(", "path $", ": shortest",
    "all_shortest", "trails", " each ", "{0,", "{2,}", ": *", " | ", "<knows>", "<*>", "Titled", ".@id", ".@type",
    ".@src", "? ", "keys(", "length(", "search(", "fuzzy(", "nearest(", "date(", "add_months(", "matches(",
)  # fmt: skip
ALTERNATIVES = (r"(any|all|none|single)\(", r"(nodes|edges|start|end)\(\$", r"path\(\$", r"\$\w+ \$\w+:", r"\{\d,\d\}")


def test_the_reads_have_every_construct() -> None:
    """The comparison above is worth something only if the language is in it."""
    patterns = [*map(re.escape, CONSTRUCTS), *ALTERNATIVES]
    seen: Counter[str] = Counter()
    catalog = compile_schema(MIXED)
    for case in range(CASES):
        text = random_read(case).text
        try:
            _ = compile_queries(text, catalog).query("q").read_plan
        except CompileError:
            continue
        seen.update(pattern for pattern in patterns if re.search(pattern, text))
    assert [pattern for pattern in patterns if seen[pattern] < 3] == []


@pytest.mark.parametrize(("edge", "end"), [("Knows", "Person"), ("Rates", "Club")])
def test_both_kinds_of_topology_take_part(graphs: list[Stored], edge: str, end: str) -> None:
    """The comparison above is worth something only if some topologies are built and others lie over older ones."""
    text = f"query q() {{ match {{ $a: Person  $a {edge.lower()} $b }} return {{ count($b) as n }} }}"
    kinds = set()
    for stored in graphs:
        graph = stored.graph
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(MODE_VARIABLE, "csr")
            graph.query(text)
        state, root = graph.snapshot().entry.tables, graph._workspace.root
        tables = state[f"edge:{edge}"], state["node:Person"], state[f"node:{end}"]
        key = TopologyKey.of(
            root.identity.graph_id, Shape.NEIGHBOURS, graph.catalog.edges[edge], ("Person", end), tables
        )
        topology, _ = PROCESS_TOPOLOGIES.get(root, key)
        kinds.add(type(topology.out))
    assert kinds == {Adjacency, LayeredAdjacency}


def test_the_reference_reads_every_kind_of_value(graphs: list[Stored]) -> None:
    """The comparison above is worth something only if the graphs hold values of every type and nulls of each."""
    kinds = {p.type.scalar for p in graphs[0].graph.catalog.nodes["Person"].property_list}
    assert kinds >= {Scalar.STRING, Scalar.I32, Scalar.F64, Scalar.DATE, Scalar.DATETIME, Scalar.U64, Scalar.F32}
    people = [person for stored in graphs for person in stored.reference.entities["node:Person"]]
    for name in list(PROPERTIES["Person"])[1:]:
        assert any(p[name] is None for p in people), name
        assert any(p[name] is not None for p in people), name
    assert max(p["age"] or 0 for p in people) in WHOLE
