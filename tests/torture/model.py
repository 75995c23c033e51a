"""What every operation must make of the graph: dictionaries, and the words of the specification.

A state is a schema and the rows of each type. Nodes are known by their key; edges by their `tag`, because the ids
that a mutation gives to edges are its own. Rows hold what is not null, by the identity of the property, so that a
rename changes no row. `applied` gives the state after an operation, or raises `ImpossibleError` when no commit may come
of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.torture.shapes import Document, Shape, TypeShape, role_of

Row = Mapping[str, Any]
Rows = Mapping[str, Row]
ENDS = ("from", "to")


class ImpossibleError(Exception):
    """The specification allows no such commit."""


@dataclass(frozen=True)
class State:
    shape: Shape = field(default_factory=Shape)
    rows: Mapping[str, Rows] = field(default_factory=dict)

    def type(self, name: str) -> TypeShape:
        found = self.shape.named(name)
        if found is None:
            raise ImpossibleError(f"the schema has no type {name}")
        return found

    def role(self, role: str) -> TypeShape | None:
        return next((t for t in self.shape.types if role_of(t.name) == role), None)

    def of(self, ident: str) -> Rows:
        return self.rows.get(ident, {})

    def with_rows(self, changed: Mapping[str, Rows]) -> State:
        return State(self.shape, {**self.rows, **changed})

    def named(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Rows by names of types and properties, as an export shows them; what is null is left out."""
        return {
            t.name: {
                key: {t.names().get(ident, ident): value for ident, value in row.items()}
                for key, row in self.of(t.ident).items()
            }
            for t in self.shape.types
        }

    def content(self) -> dict[str, Rows]:
        """All rows, by type; two states with equal content hold the same."""
        return {ident: rows for ident, rows in self.rows.items() if rows}

    def counts(self) -> dict[str, int]:
        return {f"{t.kind}:{t.name}": len(self.of(t.ident)) for t in self.shape.types}

    def broken_rules(self) -> list[str]:
        """Which rules of the schema this state breaks; none ever."""
        broken = []
        person, lives = self.role("Person"), self.role("Lives")
        for t in self.shape.types:
            for end, name in zip(t.ends or (), ENDS, strict=False):
                broken += [
                    f"{t.name} {k} has no {name}" for k, r in self.of(t.ident).items() if r[name] not in self.of(end)
                ]
        if person is not None:
            emails = [
                r[i]
                for r in self.of(person.ident).values()
                for i, n in person.names().items()
                if n == "email" and i in r
            ]
            broken += [f"two people have the email {e}" for e in {e for e in emails if emails.count(e) > 1}]
        if lives is not None:
            sources = [row["from"] for row in self.of(lives.ident).values()]
            broken += [f"{s} lives in two places" for s in {s for s in sources if sources.count(s) > 1}]
        return broken


def applied(operation: Mapping[str, Any], parents: list[State], bases: list[State]) -> State:
    """The state of a commit that this operation made on these parents; `bases` matter to a merge with two parents."""
    arguments = operation["args"]
    match operation["kind"]:
        case "init":
            return State(Shape().evolved(arguments["document"], operation["op"]))
        case "load":
            return loaded(parents[0], arguments["mode"], records(arguments))
        case "mutate":
            return MUTATIONS[arguments["template"]](parents[0], arguments["params"])
        case "merge":
            return _merged_on_some_base(parents, bases, arguments.get("take"))
        case "schema":
            return reshaped(parents[0], arguments["document"], operation["op"])
        case "optimize" | "indices" | "maintain":
            return parents[0]
    raise ImpossibleError(f"an operation of kind {operation['kind']} makes no commits")


# ---- loads ----------------------------------------------------------------------------------------------------------


def records(arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The lines of a load; those of a bulk load are described by four words."""
    if "bulk" not in arguments:
        return list(arguments["records"])
    name, first, count, value = arguments["bulk"]
    return [{"type": name, "data": {"name": f"b{i}", "n": value + i}} for i in range(first, first + count)]


def loaded(state: State, mode: str, lines: Iterable[Mapping[str, Any]]) -> State:
    changed: dict[str, dict[str, Row]] = {}
    for line in lines:
        type_ = state.type(line.get("type") or line["edge"])
        if type_.ident not in changed:
            changed[type_.ident] = {} if mode == "overwrite" else dict(state.of(type_.ident))
        key, row = row_of(type_, line)
        if mode == "append" and key in changed[type_.ident]:
            raise ImpossibleError(f"{type_.name} {key} was there before it was appended")
        changed[type_.ident][key] = row
    return state.with_rows(changed)


def row_of(type_: TypeShape, line: Mapping[str, Any]) -> tuple[str, Row]:
    """The key and the row that a line of a load or an export holds."""
    idents = {name: ident for ident, name in type_.names().items()}
    row: dict[str, Any] = {end: line[end] for end in ENDS if end in line}
    for name, value in line["data"].items():
        if name == "id" or value is None:
            continue
        if name not in idents:
            raise ImpossibleError(f"{type_.name} has no property {name}")
        row[idents[name]] = value
    return line["data"]["tag" if type_.kind == "edge" else "name"], row


# ---- mutations ------------------------------------------------------------------------------------------------------


def put_person(state: State, params: Mapping[str, Any]) -> State:
    return loaded(state, "merge", [{"type": "Person", "data": params}])


def update_person(state: State, params: Mapping[str, Any]) -> State:
    return _updated(state, params["n"], lambda row: row["name"] == params["name"])


def raise_people(state: State, params: Mapping[str, Any]) -> State:
    return _updated(state, params["n"], lambda row: row["n"] < params["below"])


def befriend(state: State, params: Mapping[str, Any]) -> State:
    """Two nodes and an edge between them in one commit."""
    people = [{"type": "Person", "data": {"name": params[end], "n": params["n"]}} for end in ENDS]
    knows = _role(state, "Knows").name
    edge = {"edge": knows, "from": params["from"], "to": params["to"], "data": {"tag": params["tag"]}}
    return loaded(state, "merge", [*people, edge])


def connect(state: State, params: Mapping[str, Any]) -> State:
    knows = _role(state, "Knows").name
    edge = {"edge": knows, "from": params["from"], "to": params["to"], "data": {"tag": params["tag"]}}
    return loaded(state, "merge", [edge])


def delete_person(state: State, params: Mapping[str, Any]) -> State:
    return _without_nodes(state, _role(state, "Person"), {params["name"]})


def delete_people(state: State, params: Mapping[str, Any]) -> State:
    person = _role(state, "Person")
    n = _ident(person, "n")
    return _without_nodes(state, person, {k for k, row in state.of(person.ident).items() if row[n] < params["below"]})


def delete_edges(state: State, params: Mapping[str, Any]) -> State:
    knows = _role(state, "Knows")
    kept = {k: row for k, row in state.of(knows.ident).items() if row["from"] != params["from"]}
    return state.with_rows({knows.ident: kept})


MUTATIONS = {
    f.__name__: f
    for f in (put_person, update_person, raise_people, befriend, connect, delete_person, delete_people, delete_edges)
}


def _updated(state: State, value: int, matches: Any) -> State:
    person = _role(state, "Person")
    n, names = _ident(person, "n"), person.names()
    rows = {
        key: {**row, n: value} if matches({names[i]: v for i, v in row.items()}) else row
        for key, row in state.of(person.ident).items()
    }
    return state.with_rows({person.ident: rows})


def _without_nodes(state: State, type_: TypeShape, gone: set[str]) -> State:
    """Edges of every type go with the nodes they touch."""
    changed: dict[str, Rows] = {type_.ident: {k: r for k, r in state.of(type_.ident).items() if k not in gone}}
    for edge in state.shape.types:
        ends = [name for end, name in zip(edge.ends or (), ENDS, strict=False) if end == type_.ident]
        if ends:
            changed[edge.ident] = {
                k: r for k, r in state.of(edge.ident).items() if not any(r[end] in gone for end in ends)
            }
    return state.with_rows(changed)


def _role(state: State, role: str) -> TypeShape:
    found = state.role(role)
    if found is None:
        raise ImpossibleError(f"the schema has no {role}")
    return found


def _ident(type_: TypeShape, name: str) -> str:
    return next(p.ident for p in type_.properties if p.name == name)


# ---- schema ---------------------------------------------------------------------------------------------------------


def reshaped(state: State, document: Document, operation: str) -> State:
    return seen_as(state, state.shape.evolved(document, operation))


def seen_as(state: State, shape: Shape) -> State:
    """The rows of a state as far as another schema has a place for them."""
    rows = {}
    for type_ in shape.types:
        known = type_.names().keys() | set(ENDS)
        rows[type_.ident] = {k: {i: v for i, v in r.items() if i in known} for k, r in state.of(type_.ident).items()}
    return State(shape, rows)


# ---- merges and differences -----------------------------------------------------------------------------------------


def _merged_on_some_base(parents: list[State], bases: list[State], take: str | None) -> State:
    """Of several equally good bases any will do; the reason of the last one stands for all."""
    problem = ImpossibleError("the branches have no commit in common")
    for base in bases:
        try:
            return merged(base, parents[1], parents[0], take)
        except ImpossibleError as reason:
            problem = reason
    raise problem


def merged(base: State, source: State, target: State, take: str | None) -> State:
    shape = _merged_shape(base.shape, source.shape, target.shape)
    given = source if shape.declarations() == target.shape.declarations() else target
    for dropped in given.shape.by_ident().keys() - shape.by_ident().keys():
        if given.of(dropped) != base.of(dropped):
            raise ImpossibleError(f"rows of {dropped} changed, and the other side dropped the type")
    views = [seen_as(state, shape) for state in (base, source, target)]
    rows = {}
    for ident in shape.by_ident():
        b, s, t = (view.of(ident) for view in views)
        rows[ident] = {
            key: row
            for key in b.keys() | s.keys() | t.keys()
            if (row := _decided(b.get(key), s.get(key), t.get(key), take, f"{ident} {key}")) is not None
        }
    return State(shape, rows)


def _merged_shape(base: Shape, source: Shape, target: Shape) -> Shape:
    spent = source.spent | target.spent
    for side, other in ((target, source), (source, target)):
        if other.declarations() in (base.declarations(), side.declarations()):
            return Shape(side.types, spent)
    raise ImpossibleError("both sides changed the schema")


def _decided(b: Row | None, s: Row | None, t: Row | None, take: str | None, what: str) -> Row | None:
    if s in (t, b):
        return t
    if t == b:
        return s
    if take is None:
        raise ImpossibleError(f"{what} changed on both sides")
    return t if take == "ours" else s


def changes(before: State, after: State) -> set[tuple[str, str, str]]:
    """The net difference: (type name, key, what happened)."""
    found = set()
    old, new = before.shape.by_ident(), after.shape.by_ident()
    for ident in old.keys() | new.keys():
        name = (new.get(ident) or old[ident]).name
        was, now = before.of(ident), after.of(ident)
        found |= {(name, key, "insert") for key in now.keys() - was.keys()}
        found |= {(name, key, "delete") for key in was.keys() - now.keys()}
        found |= {(name, key, "update") for key in now.keys() & was.keys() if now[key] != was[key]}
    return found
