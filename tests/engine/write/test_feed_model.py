"""Random mutations of plain statements and feeds, and what a few lines of Python say that they do.

The model runs every statement of a feed row by row. A row gives each entity some values; two rows that give one entity
different values of a property make the mutation ambiguous, and so do two inserts of one key. Then it writes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from omnigraph import Graph
from omnigraph.errors import EvaluationError, EvaluationRule, KeyConflictError, OmniGraphError
from tests.engine.museum import edge, lines, node
from tests.engine.stored import rows
from tests.engine.write.test_write_laws import few, new_graph

SCHEMA = """
node P { k: String @key  u: I32?  t: String? }
node Q { n: I32? }
edge E: P -> P { w: I32? }
"""
NODES: dict[str, dict[str, Any]] = {
    "a": {"u": 0, "t": "old"},
    "b": {"u": 1, "t": None},
    "c": {"u": None, "t": "old"},
}
EDGES: dict[str, dict[str, Any]] = {
    "e1": {"src": "a", "dst": "b", "w": 1},
    "e2": {"src": "a", "dst": "c", "w": None},
    "e3": {"src": "b", "dst": "b", "w": 2},
}

Row = Mapping[str, Any]
Values = dict[str, Any]


@dataclass
class RefusedError(Exception):
    """The mutation writes nothing, for a reason that the engine has to give as well."""

    reason: str


@dataclass
class Graphs:
    """What is stored, and which entities the mutation has written. Fresh edges and notes have numbers as ids."""

    nodes: dict[str, Values] = field(default_factory=lambda: deepcopy(NODES))
    edges: dict[Any, Values] = field(default_factory=lambda: deepcopy(EDGES))
    notes: list[int | None] = field(default_factory=list)
    written: set[tuple[str, Any]] = field(default_factory=set)
    affected: Counter[str] = field(default_factory=Counter)


# Values and conditions: the text, and what it is for a row


@dataclass(frozen=True)
class Value:
    text: str
    of: Any

    def __repr__(self) -> str:
        return self.text


def constant(number: int | None) -> Value:
    return Value("null" if number is None else str(number), lambda row: number)


def plus(value: int | None, number: int) -> int | None:
    return None if value is None else value + number


CONSTANTS = [constant(number) for number in (None, 1, 2)]
OWN = [
    Value("u + 1", lambda row: plus(row["u"], 1)),
    Value("coalesce(u, 5)", lambda row: 5 if row["u"] is None else row["u"]),
]
CONDITIONS = [
    Value("true", lambda row: True),
    Value("u > 0", lambda row: row["u"] is not None and row["u"] > 0),
    Value("not (u > 0)", lambda row: row["u"] is not None and not row["u"] > 0),
    Value('u is null or t = "old"', lambda row: row["u"] is None or row["t"] == "old"),
    Value('k in ["a", "d"] and t is not null', lambda row: row["k"] in ("a", "d") and row["t"] is not None),
]
OF_ROWS = {
    "i": [Value("$i", lambda row: row["i"])],
    "a": [Value("$a.u", lambda row: row["a"]["u"]), Value("$a.u + 1", lambda row: plus(row["a"]["u"], 1))],
}
KEYS = {
    "i": [Value("to_string($i)", lambda row: str(row["i"]))],
    "a": [Value("$a.k", lambda row: row["a"]["k"]), Value('$a.k + "x"', lambda row: row["a"]["k"] + "x")],
    "": [Value('"d"', lambda row: "d")],
}


# Feeds: the text, what it binds, and its rows


def of_lists(stored: Graphs) -> Iterator[Row]:
    yield from ({"i": number} for number in (1, 2, 1))


def of_nodes(stored: Graphs) -> Iterator[Row]:
    yield from ({"a": {**row, "k": key}} for key, row in stored.nodes.items() if row["u"] is not None)


def of_edges(stored: Graphs) -> Iterator[Row]:
    for edge_id, row in stored.edges.items():
        ends = {name: {**stored.nodes[row[end]], "k": row[end]} for name, end in (("a", "src"), ("b", "dst"))}
        yield {**ends, "e": {**row, "id": edge_id}}


def of_optional_edges(stored: Graphs) -> Iterator[Row]:
    for key, row in stored.nodes.items():
        own = {"a": {**row, "k": key}}
        met = [each for each in of_edges(stored) if each["a"]["k"] == key and each["e"]["w"] is not None]
        yield from met or [{**own, "b": None, "e": None}]


def of_lists_and_nodes(stored: Graphs) -> Iterator[Row]:
    yield from ({"i": number, "a": {**row, "k": key}} for number in (1, 2) for key, row in stored.nodes.items())


FEEDS = [
    ("unwind [1, 2, 1] as $i", "i", of_lists),
    ("match { $a: P  $a.u is not null }", "a", of_nodes),
    ("match { $a: P  $a $e:e $b }", "abe", of_edges),
    ("match { $a: P  optional { $a $e:e $b  $e.w is not null } }", "abe", of_optional_edges),
    ("unwind [1, 2] as $i match { $a: P }", "ia", of_lists_and_nodes),
]

# Statements. A plain one runs at once; one of a feed says what it does with a row.


@dataclass(frozen=True)
class Statement:
    text: str
    kind: str
    variable: str = ""
    values: tuple[tuple[str, Value], ...] = ()
    where: Value = CONDITIONS[0]

    def __repr__(self) -> str:
        return self.text


def cells(values: Mapping[str, Value]) -> str:
    return "{ " + " ".join(f"{name}: {value.text}" for name, value in values.items()) + " }"


INSERTS = ("insert", "insert new", "upsert")


@st.composite
def plain_statements(draw: Any) -> Statement:
    kind = draw(st.sampled_from([*INSERTS, "update", "update edge", "note"]))
    if kind == "note":
        values = {"n": draw(st.sampled_from(CONSTANTS))}
        return Statement(f"insert Q {cells(values)}", kind, values=tuple(values.items()))
    if kind == "update edge":
        value = draw(st.sampled_from([*CONSTANTS, Value("w + 1", lambda row: plus(row["w"], 1))]))
        where = draw(
            st.sampled_from(
                [Value("w > 1", lambda row: (row["w"] or 0) > 1), Value('from = "a"', lambda row: row["src"] == "a")]
            )
        )
        return Statement(
            f"update E set {{ w: {value.text} }} where {where.text}", kind, values=(("w", value),), where=where
        )
    if kind == "update":
        values = {"u": draw(st.sampled_from([*CONSTANTS, *OWN]))}
        where = draw(st.sampled_from(CONDITIONS))
        return Statement(
            f"update P set {cells(values)} where {where.text}", kind, values=tuple(values.items()), where=where
        )
    key = draw(st.sampled_from("abd"))
    values = {"k": Value(f'"{key}"', lambda row: key)}
    if draw(st.booleans()):
        values["u"] = draw(st.sampled_from(CONSTANTS))
    return Statement(f"{kind} P {cells(values)}", kind, values=tuple(values.items()))


@st.composite
def row_statements(draw: Any, bound: str) -> Statement:
    numbers = [*CONSTANTS, *(value for name in bound for value in OF_ROWS.get(name, []))]
    number = st.sampled_from(numbers)
    kinds = [*INSERTS, "note", *(f"update {name}" for name in bound if name != "i")]
    kinds += ["edge"] if "a" in bound else []
    kind = draw(st.sampled_from(kinds))
    if kind.startswith("update "):
        variable = kind[-1]
        values = {"w" if variable == "e" else draw(st.sampled_from("u")): draw(number)}
        return Statement(f"update ${variable} set {cells(values)}", "change", variable, tuple(values.items()))
    if kind == "note":
        values = {"n": draw(number)}
        return Statement(f"insert Q {cells(values)}", kind, values=tuple(values.items()))
    if kind == "edge":
        end = draw(st.sampled_from([name for name in bound if name in "ab"]))
        values = {"w": draw(number)}
        text = f"insert E {{ from: $a, to: ${end}, w: {values['w'].text} }}"
        return Statement(text, kind, end, tuple(values.items()))
    keys = [value for name in ("", *bound) for value in KEYS.get(name, [])]
    values = {"k": draw(st.sampled_from(keys))}
    if draw(st.booleans()):
        values["u"] = draw(number)
    return Statement(f"{kind} P {cells(values)}", kind, values=tuple(values.items()))


@st.composite
def mutations(draw: Any) -> tuple[list[Statement], list[tuple[int, list[Statement]]]]:
    plain = draw(st.lists(plain_statements(), max_size=3))
    feeds = []
    for _ in range(draw(st.integers(0 if plain else 1, 2))):
        which = draw(st.integers(0, len(FEEDS) - 1))
        feeds.append((which, draw(st.lists(row_statements(FEEDS[which][1]), min_size=1, max_size=3))))
    return plain, feeds


# The model


def run_plain(state: Graphs, statement: Statement) -> None:
    if statement.kind == "update":
        matched = [key for key, row in state.nodes.items() if statement.where.of({**row, "k": key})]
        state.nodes |= {k: {**state.nodes[k], **evaluate(statement, {**state.nodes[k], "k": k})} for k in matched}
        note_written(state, "nodes", matched)
    elif statement.kind == "update edge":
        changed = [key for key, row in state.edges.items() if statement.where.of(row)]
        state.edges |= {key: {**state.edges[key], **evaluate(statement, state.edges[key])} for key in changed}
        note_written(state, "edges", changed)
    elif statement.kind == "note":
        state.notes.append(evaluate(statement, {})["n"])
        state.affected["nodes"] += 1
    else:
        values = evaluate(statement, {})
        key = values.pop("k")
        if statement.kind == "insert new" and key in state.nodes:
            raise RefusedError("taken")
        kept = state.nodes.get(key, {}) if statement.kind == "upsert" else {}
        state.nodes[key] = {"u": None, "t": None, **kept, **values}
        note_written(state, "nodes", [key])


def evaluate(statement: Statement, row: Row) -> Values:
    return {name: value.of(row) for name, value in statement.values}


def note_written(state: Graphs, kind: str, ids: list[Any]) -> None:
    state.affected[kind] += len(ids)
    state.written |= {(kind, entity_id) for entity_id in ids}


def run_feed(stored: Graphs, state: Graphs, feed: int, statements: list[Statement]) -> None:
    gives: dict[tuple[str, Any], Values] = {}
    present, is_taken = set(state.nodes), False
    for statement in statements:
        made = {evaluate(statement, row)["k"] for row in FEEDS[feed][2](stored)} if statement.kind in INSERTS else set()
        is_taken |= statement.kind == "insert new" and not made.isdisjoint(present)
        present |= made
    alike: dict[tuple[str, str], Values] = {}
    for row in FEEDS[feed][2](stored):
        for statement in statements:
            compare_inserts(statement, row, alike)
        own: dict[tuple[str, Any], Values] = {}
        for statement in statements:
            run_for_row(state, statement, row, own)
        for entity, values in own.items():
            known = gives.setdefault(entity, {})
            if any(name in known and known[name] != value for name, value in values.items()):
                raise RefusedError("ambiguous")
            known |= values
    if is_taken:
        raise RefusedError("taken")
    for (kind, entity_id), values in gives.items():
        target = state.nodes if kind == "nodes" else state.edges
        target[entity_id] = {**target.get(entity_id, {"u": None, "t": None}), **values}
        if (kind, entity_id) not in state.written:
            note_written(state, kind, [entity_id])


def compare_inserts(statement: Statement, row: Row, alike: dict[tuple[str, str], Values]) -> None:
    """Two inserts of one key agree, and two upserts in what they both assign, also when one row makes both."""
    if statement.kind in INSERTS:
        values = evaluate(statement, row)
        values = values if statement.kind == "upsert" else {"u": None, "t": None, **values}
        known = alike.setdefault((statement.kind.split()[0], values["k"]), {})
        if any(name in known and known[name] != value for name, value in values.items()):
            raise RefusedError("ambiguous")
        known |= values


def run_for_row(state: Graphs, statement: Statement, row: Row, own: dict[tuple[str, Any], Values]) -> None:
    """Adds to what a row gives: a later statement of the row replaces what an earlier one gave."""
    if statement.kind == "note":
        state.notes.append(evaluate(statement, row)["n"])
        state.affected["nodes"] += 1
    elif statement.kind == "change":
        if (entity := row[statement.variable]) is not None:
            is_edge = statement.variable == "e"
            entity_id = ("edges", entity["id"]) if is_edge else ("nodes", entity["k"])
            own.setdefault(entity_id, {}).update(evaluate(statement, row))
    elif statement.kind == "edge":
        if (end := row[statement.variable]) is not None:
            state.edges[len(state.edges), "new"] = {"src": row["a"]["k"], "dst": end["k"], **evaluate(statement, row)}
            state.affected["edges"] += 1
    else:
        values = evaluate(statement, row)
        key = values.pop("k")
        whole = {} if statement.kind == "upsert" else {"u": None, "t": None}
        own.setdefault(("nodes", key), {}).update({**whole, **values})


def expected(plain: list[Statement], feeds: list[tuple[int, list[Statement]]]) -> Graphs | RefusedError:
    stored, state = Graphs(), Graphs()
    try:
        for statement in plain:
            run_plain(state, statement)
        for feed, statements in feeds:
            run_feed(stored, state, feed, statements)
    except RefusedError as refused:
        return refused
    return state


def observed(graph: Graph) -> tuple[Any, ...]:
    people = {key: {"u": row["u"], "t": row["t"]} for key, row in rows(graph, "node:P").items()}
    notes = Counter(row["n"] for row in rows(graph, "node:Q").values())
    edges = {key: row for key, row in rows(graph, "edge:E").items() if key in EDGES}
    fresh = Counter(str(row) for key, row in rows(graph, "edge:E").items() if key not in EDGES)
    return people, notes, edges, fresh


def as_observed(state: Graphs) -> tuple[Any, ...]:
    edges = {key: row for key, row in state.edges.items() if key in EDGES}
    fresh = Counter(str(row) for key, row in state.edges.items() if key not in EDGES)
    return state.nodes, Counter(state.notes), edges, fresh


@few
@given(mutations())
def test_a_mutation_does_what_the_model_says(
    mutation: tuple[list[Statement], list[tuple[int, list[Statement]]]],
) -> None:
    plain, feeds = mutation
    parts = [*map(repr, plain)]
    for feed, statements in feeds:
        parts += [FEEDS[feed][0], *map(repr, statements)]
    text = "query it() {\n" + "\n".join(parts) + "\n}"
    state = expected(plain, feeds)
    with new_graph(SCHEMA) as graph:
        stored = [node("P", k=key, **row) for key, row in NODES.items()]
        ends = [edge("E", row["src"], row["dst"], id=key, w=row["w"]) for key, row in EDGES.items()]
        graph.load(lines(*stored, *ends), mode="append")
        outcome = outcome_of(graph, text)
        if isinstance(state, RefusedError):
            assert outcome == state.reason, text
            assert observed(graph) == as_observed(Graphs()), text
        else:
            assert outcome == (state.affected["nodes"], state.affected["edges"]), text
            assert observed(graph) == as_observed(state), text


def outcome_of(graph: Graph, text: str) -> object:
    try:
        receipt = graph.mutate(text)
    except KeyConflictError:
        return "taken"
    except EvaluationError as error:
        return "ambiguous" if error.rule is EvaluationRule.AMBIGUOUS_WRITE else error
    except OmniGraphError as error:
        return error
    return receipt.affected_nodes, receipt.affected_edges
