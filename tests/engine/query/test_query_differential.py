"""The read runtime against the reference evaluator: random queries on random graphs, in every traversal mode."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.api.values import render_column
from omnigraph.engine.query import run
from omnigraph.engine.query.context import MODE_VARIABLE
from omnigraph.engine.query.operators import projection, pushdown
from omnigraph.engine.query.result import QueryResult
from omnigraph.engine.query.traversal import search
from omnigraph.engine.query.traversal.adjacency import Adjacency, LayeredAdjacency
from omnigraph.engine.query.traversal.topology import PROCESS_TOPOLOGIES, Shape, TopologyKey
from omnigraph.graph import Graph
from omnigraph.language.query.compile import compile_queries
from omnigraph.language.query.params import bind_parameters
from omnigraph.language.types import Scalar
from omnigraph.storage.tables import rows
from tests.engine.query_graphs import BIG, EXACT, WHOLE, WORDS, social_graph
from tests.support.reference import ReferenceGraph

GRAPHS = 8
MODES = ("indexed", "csr", "auto")

PERSON = ("slug", "age", "score", "nick", "active", "born", "seen", "big", "ratio", "count", "mood")
CITY = ("slug", "people", "name")
EDGES = {"Knows": ("since", "note"), "Near": ("km",), "Lives": ()}
PARAMETERS = {
    "word": ("String", st.sampled_from(WORDS)),
    "whole": ("I64", st.sampled_from(BIG)),
    "fraction": ("F64", st.sampled_from((*EXACT, 2.7, 1e300, 0.1))),
    "none": ("I32?", st.just(None)),
    "day": ("Date", st.sampled_from(("1969-12-31", "2024-05-01"))),
    "moment": ("DateTime", st.sampled_from(("1970-01-01", "2024-05-01T10:00:00.123Z"))),
    "flag": ("Bool", st.booleans()),
}
NUMBERS = ("age", "score", "big", "ratio", "count", "people", "since", "km")
TEXTS = ("slug", "nick", "mood", "name", "note")
COMPARISONS = st.sampled_from(("=", "!=", "<", "<=", ">", ">="))


class Draft:
    """A query under construction: what is bound so far, and the clauses that bound it."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.types: dict[str, str] = {}
        self.edges: dict[str, str] = {}
        self.serial = 0

    def fresh(self, prefix: str) -> str:
        self.serial += 1
        return f"{prefix}{self.serial}"

    def pick(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def chance(self) -> bool:
        return bool(self.draw(st.booleans()))

    def of_type(self, name: str) -> list[str]:
        return [v for v, t in self.types.items() if t == name]

    def properties(self) -> list[str]:
        found = [f"${v}.{p}" for v, t in self.types.items() for p in (PERSON if t == "Person" else CITY)]
        return found + [f"${v}.{p}" for v, t in self.edges.items() for p in EDGES[t]]

    def traversal(self) -> str:
        """A step from something bound to something new, something bound, or nothing in particular."""
        source = self.pick(*self.types)
        kind = self.types[source]
        edge = self.pick("knows", "lives") if kind == "Person" else self.pick("near", "lives")
        end_type = {"knows": "Person", "near": "City"}.get(edge) or ("City" if kind == "Person" else "Person")
        bound = self.of_type(end_type)
        how = self.pick("new", "new", "old", "any")
        if how == "old" and bound:
            end = self.pick(*bound)
        elif how == "any":
            end = "_"
        else:
            end = self.fresh("n")
        symmetric = edge != "lives"
        spelled = f"<{edge}>" if symmetric and self.chance() else edge
        first, second = (source, end) if not symmetric or self.chance() else (end, source)
        if first == "_":
            first, second = second, first
        if self.pick(1, 2, 3) == 1 and end != "_" and first != second:
            name = self.fresh("e")
            self.edges[name] = edge.capitalize()
            clause = f"${first} ${name}:{spelled} ${second}"
        else:
            hops = self.pick("", "", "{1,2}", "{2,2}", "{1,4}", "{2,3}", "{3,3}", "{0,2}", "{2,}") if symmetric else ""
            clause = f"${first} {spelled}{hops} ${second}"
        if end != "_":
            self.types[end] = end_type
        return clause

    def filter(self) -> str:
        """A comparison, or several put together under three-valued logic."""
        match self.pick(*range(8)):
            case 0:
                return f"not ({self.comparison()})"
            case 1:
                return f"{self.comparison()} or {self.comparison()}"
            case 2:
                return f"not ({self.comparison()} and {self.test()}) or {self.test()}"
            case 3:
                return f"{self.test()} and {self.test()} or not ({self.test()} or {self.comparison()})"
            case 4:
                return self.test()
        return self.comparison()

    def test(self) -> str:
        """What is not a comparison of one property."""
        variable = self.pick(*self.types)
        name = self.pick(*(PERSON if self.types[variable] == "Person" else CITY))
        word, kinds = self.pick('"ann"', '"ulm"', "$word", "null"), ('"Person"', '"City"')
        options = [
            f"${variable}.{name} is {self.pick('null', 'not null')}",
            f"${variable}.slug in [{word}, $word]",
            f"${variable}.@id {self.pick('=', '!=', '<')} $word",
            f"lower(${variable}.@id) = lower($word)",
            f"${variable}.@type = {self.pick(*kinds)}",
        ]
        if self.types[variable] == "Person":
            options += [
                f"${variable}.age in [2, 5, {self.pick('null', '-3')}]",
                f"${variable}.active",
                f"$word in ${variable}.tags",
                f"${variable}.age + 1 > {self.pick('2', '$fraction')}",
                f"coalesce(${variable}.nick, $word) = $word",
            ]
            others = [v for v in self.of_type("Person") if v != variable]
            options += [f"${variable} {self.pick('=', '!=')} ${other}" for other in others[:1]]
        return str(self.pick(*options))

    def comparison(self) -> str:
        left = self.pick(*self.properties())
        name = left.split(".")[1]
        operator = self.draw(COMPARISONS)
        if name in NUMBERS:
            others = [p for p in self.properties() if p.split(".")[1] in NUMBERS]
            literals = ("2", "0.25", "9007199254740993", "2.7", "$whole", "$fraction", "$none")
            right = self.pick(*literals, self.pick(*others))
            return f"{left} {operator} {right}" if self.chance() else f"{right} {operator} {left}"
        if name in TEXTS:
            right = self.pick('"a"', '"ab"', "$word", '"it\'s"')
            return f"{left} {self.pick(operator, 'contains', 'starts_with')} {right}"
        right = {"active": "$flag", "born": "$day", "seen": self.pick("$moment", "now()")}[name]
        return f"{left} {operator} {right}"

    def membership(self) -> str:
        owner = self.pick(*self.of_type("Person"))
        return self.pick(
            f"${owner}.tags contains $word",
            f"${owner}.luck contains $fraction",
            f"${owner}.luck contains 2",
            f'["a", "ann"] contains ${owner}.nick',
            f"[2, 5] contains ${owner}.age",
            f"[0, 9007199254740993] contains ${owner}.score",
            f"[0.0, 2.5, 9007199254740992.0] contains ${owner}.big",
            f"[0.5, 2.0] contains ${owner}.ratio",
            f"[3, 9223372036854775807] contains ${owner}.count",
            f'[date("1970-01-01"), date("2024-05-01")] contains ${owner}.born',
            f'["calm", "odd"] contains ${owner}.mood',
            f'"a drab ann" contains ${owner}.nick',
        )

    def negation(self, depth: int) -> str:
        outer_types, outer_edges = dict(self.types), dict(self.edges)
        clauses = [self.traversal()] if self.chance() else [self.filter()]
        if self.chance():
            clauses.append(self.filter())
        if depth and self.pick(1, 2, 3) == 1:
            clauses.append(self.negation(depth - 1))
        self.types, self.edges = outer_types, outer_edges
        return "not { " + "  ".join(clauses) + " }"


@st.composite
def queries(draw: Any) -> tuple[str, dict[str, Any], bool]:
    """A query, its parameters, and whether it fixes the order of its rows."""
    draft = Draft(draw)
    pin = draft.pick("", "", ' { slug: "ann" }', " { mood: $word }", " { tags: $word }", " { age: 2 }")
    clauses = [f"$a: Person{pin}"]
    draft.types["a"] = "Person"
    for _ in range(draw(st.integers(0, 3))):
        clauses.append(draft.traversal())
    if draft.pick(1, 2, 3, 4) == 1:
        clauses.append("$z: City")
        draft.types["z"] = "City"
    for _ in range(draw(st.integers(0, 2))):
        clauses.append(draft.filter())
    if draft.pick(1, 2, 3, 4) == 1:
        clauses.append(draft.membership())
    if draft.chance():
        clauses.append(draft.negation(1))
    returned, ordered = _aggregates(draft) if draft.pick(1, 2, 3) == 1 else _projections(draft)
    declared = ", ".join(f"${name}: {type_}" for name, (type_, _) in PARAMETERS.items())
    values = {name: draw(strategy) for name, (_, strategy) in PARAMETERS.items()}
    text = f"query q({declared}) {{ match {{ {'  '.join(clauses)} }} {returned} }}"
    return text, values, ordered


def _projections(draft: Draft) -> tuple[str, bool]:
    columns = [f"{draft.pick(*draft.properties(), *(f'${v}' for v in draft.types))} as c{i}" for i in range(3)]
    if not draft.chance():
        return f"return {{ {', '.join(columns)} }}", False
    keys = [f"{draft.pick(*draft.properties())}{draft.pick('', ' desc')}" for _ in range(draft.pick(1, 2))]
    limit = draft.pick("", " limit 3", " limit 0", " limit 50")
    return f"return {{ {', '.join(columns)} }} order {{ {', '.join(keys)} }}{limit}", True


def _aggregates(draft: Draft) -> tuple[str, bool]:
    numbers = [p for p in draft.properties() if p.split(".")[1] in ("age", "score", "since", "km")]
    comparable = [p for p in draft.properties() if p.split(".")[1] in (*NUMBERS, *TEXTS)]
    variables = [f"${v}" for v in draft.types]
    functions = [f"count({draft.pick(*variables)}) as n", f"count({draft.pick(*draft.properties())}) as m"]
    # A sum of the others may not fit, an average of them always does.
    integers = [p for p in draft.properties() if p.split(".")[1] in ("big", "count", "people")]
    functions += [f"{draft.pick('sum', 'avg')}({draft.pick(*numbers)}) as s"]
    functions += [f"avg({draft.pick(*integers)}) as a"] if integers else []
    functions += [f"{draft.pick('min', 'max')}({draft.pick(*comparable)}) as x"]
    keys = [f"{draft.pick(*draft.properties(), *variables)} as k{i}" for i in range(draft.pick(0, 1, 2))]
    order = [f"k{i}{draft.pick('', ' desc')}" for i in range(len(keys))]
    returned = f"return {{ {', '.join((*keys, *functions))} }}"
    if not order or not draft.chance():
        return returned, not keys
    return f"{returned} order {{ {', '.join(('n', *order))} }}{draft.pick('', ' limit 2')}", True


def _traverse(graph: Graph) -> None:
    """Have topologies of this state in memory, so that those of the next one lie over them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MODE_VARIABLE, "csr")
        for start, step in (("Person", "knows"), ("Person", "lives"), ("City", "near")):
            graph.query(f"query q() {{ match {{ $a: {start}  $a {step} $b }} return {{ count($b) as n }} }}")


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[Graph, ReferenceGraph]]]:
    folder: Path = tmp_path_factory.mktemp("graphs")
    # Half of them were read after every commit, the others for the first time when all was done.
    made = [social_graph(folder / str(seed), seed, *([_traverse] if seed % 2 else [])) for seed in range(GRAPHS)]
    yield [(graph, ReferenceGraph.of(graph.snapshot())) for graph in made]
    for graph in made:
        graph.close()


def _comparable(rows: list[list[Any]], ordered: bool) -> list[Any]:
    return rows if ordered else sorted(rows, key=json.dumps)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, GRAPHS - 1), queries())
def test_every_mode_agrees_with_the_reference(
    graphs: list[tuple[Graph, ReferenceGraph]], which: int, drawn: tuple[str, dict[str, Any], bool]
) -> None:
    graph, reference = graphs[which]
    text, values, ordered = drawn
    plan = compile_queries(text, graph.catalog).query("q").read_plan
    bound = bind_parameters(plan.parameters, values, now_millis=1_800_000_000_000)
    expected = reference.rows(plan, bound)
    found = {(mode, small): _run(graph, text, values, mode, small) for mode in MODES for small in (False, True)}
    first = found["indexed", False]
    assert _comparable(first, ordered) == _comparable(expected, ordered), text
    assert all(other == first for other in found.values()), text


def _run(graph: Graph, text: str, values: dict[str, Any], mode: str, small: bool) -> list[list[Any]]:
    """The rows in one traversal mode. `small`: every batch size is so small that each query needs several batches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MODE_VARIABLE, mode)
        if small:
            patch.setattr(run, "_PIECE", 2)
            patch.setattr(run, "_FIRST_PIECE", 1)
            patch.setattr(search, "VISITED_BYTES", 16)
            patch.setattr(rows, "_VALUES_PER_LOOKUP", 2)
            patch.setattr(rows, "_LOOKUP_SHARE", 1)
            patch.setattr(projection, "BATCH_ROWS", 3)
            # Nothing, or one test of several, goes into a scan.
            patch.setattr(pushdown, "MOST_TERMS", MODES.index(mode))
        result = graph.query(text, "q", values)
    columns = [_rendered(result, i) for i in range(len(result.columns))]
    return [list(row) for row in zip(*columns, strict=True)]


def _rendered(result: QueryResult, index: int) -> list[Any]:
    return render_column(result.table.column(index))


def test_both_kinds_of_topology_take_part(graphs: list[tuple[Graph, ReferenceGraph]]) -> None:
    """The comparison above is worth something only if some topologies are built and others lie over older ones."""
    text = "query q() { match { $a: Person  $a knows $b } return { count($b) as n } }"
    kinds = set()
    for graph, _ in graphs:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(MODE_VARIABLE, "csr")
            graph.query(text)
        state = graph.snapshot().entry.tables
        people = state["node:Person"]
        key = TopologyKey(
            graph._workspace.root.identity.graph_id, Shape.NEIGHBOURS, state["edge:Knows"], people, people
        )
        topology, _ = PROCESS_TOPOLOGIES.get(graph._workspace.root, key)
        kinds.add(type(topology.out))
    assert kinds == {Adjacency, LayeredAdjacency}


def test_the_reference_reads_every_kind_of_value(graphs: list[tuple[Graph, ReferenceGraph]]) -> None:
    """The comparison above is worth something only if the graphs hold values of every type and nulls of each."""
    kinds = {p.type.scalar for p in graphs[0][0].catalog.nodes["Person"].property_list}
    assert kinds >= {Scalar.STRING, Scalar.I32, Scalar.F64, Scalar.DATE, Scalar.DATETIME, Scalar.U64, Scalar.F32}
    people = [p for _, reference in graphs for p in reference.entities["node:Person"]]
    for name in (*PERSON[1:], "tags", "luck"):
        assert any(p[name] is None for p in people), name
        assert any(p[name] is not None for p in people), name
    assert max(p["age"] or 0 for p in people) in WHOLE
