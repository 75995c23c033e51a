"""The law of schema evolution: any sequence of changes to a schema and to data leaves what a model of plain Python has.

The model knows rows as dictionaries and a migration as a function over rows. A branch changes data while main changes
its schema, or the other way round, and merges carry the rows over. Every version that ever was is compared again at the
end, because the past is read by the schema of the past.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from omnigraph import Graph
from omnigraph.errors import ConstraintError, MergeConflictsError

Row = dict[str, Any]
Carry = Callable[[Row], Row]

WIDER = {"I32": "I64", "U32": "U64", "F32": "F64"}
NUMBERS = {
    "I32": [-7, 0, 3],
    "I64": [-7, 2**40],
    "U32": [0, 5],
    "U64": [5, 2**50],
    "F32": [0.5, -2.0],
    "F64": [0.1, 3.0],
}
WORDS = ["red", "green", "blue", "grey"]
FRESH_WORDS = ["cyan", "pink", "gold"]


@dataclass(frozen=True)
class Prop:
    """A property as the schema text declares it."""

    kind: str
    nullable: bool = True
    default: Any = None
    values: tuple[str, ...] = ()
    list: bool = False
    unique: bool = False
    low: int | None = None
    renames: tuple[tuple[str, str], ...] = ()
    rename_from: str | None = None

    def text(self, name: str) -> str:
        kind = f"enum({', '.join(self.values)})" if self.kind == "enum" else self.kind
        kind = (f"[{kind}]" if self.list else kind) + ("?" if self.nullable else "")
        words = [f"{name}: {kind}"]
        if self.default is not None:
            shown = f'"{self.default}"' if isinstance(self.default, str) else str(self.default).lower()
            words.append(f"= {shown}")
        if self.unique:
            words.append("@unique")
        if self.rename_from is not None:
            words.append(f'@rename_from("{self.rename_from}")')
        words += [f'@rename_value("{old}", to="{new}")' for old, new in self.renames]
        if self.low is not None:
            words.append(f"@range({name}, {self.low}..)")
        return " ".join(words)

    @property
    def plain(self) -> Prop:
        """Without the hints of the change that made it."""
        return replace(self, renames=(), rename_from=None)

    def accepts(self, value: Any) -> bool:
        if value is None:
            return self.nullable
        if self.kind == "enum" and value not in self.values:
            return False
        return self.low is None or value >= self.low


Schema = dict[str, Prop]


def text_of(schema: Schema) -> str:
    properties = "\n".join(f"    {prop.text(name)}" for name, prop in schema.items())
    return f"node Thing {{\n    slug: String @key\n{properties}\n}}\n"


def holds(schema: Schema, rows: dict[str, Row]) -> bool:
    for name, prop in schema.items():
        values = [row[name] for row in rows.values()]
        if not all(map(prop.accepts, values)):
            return False
        present = [value for value in values if value is not None]
        if prop.unique and len(set(present)) < len(present):
            return False
    return True


@dataclass
class Branch:
    """The schema and the rows of a branch, and the ids that its merge base had."""

    schema: Schema
    rows: dict[str, Row]
    base: frozenset[str]
    migrations: int
    """How many migrations of main the base has seen."""
    own: list[Carry] = field(default_factory=list)
    """Migrations of the branch itself."""


@dataclass
class Model:
    schema: Schema
    rows: dict[str, Row] = field(default_factory=dict)
    migrations: list[Carry] = field(default_factory=list)
    past: dict[int, dict[str, Row]] = field(default_factory=dict)


def values_of(prop: Prop) -> st.SearchStrategy[Any]:
    if prop.kind == "enum":
        one: st.SearchStrategy[Any] = st.sampled_from(prop.values)
    elif prop.kind == "String":
        one = st.sampled_from(WORDS)
    elif prop.kind == "Bool":
        one = st.booleans()
    else:
        one = st.sampled_from(NUMBERS[prop.kind])
    if prop.low is not None:
        one = one.filter(lambda value: value >= (prop.low or 0))
    value = st.lists(one, max_size=2) if prop.list else one
    return st.none() | value if prop.nullable else value


def fresh_property() -> st.SearchStrategy[Prop]:
    kinds = st.sampled_from([*NUMBERS, "String", "Bool", "enum"])

    def with_default(kind: str) -> st.SearchStrategy[Prop]:
        prop = Prop(kind, values=tuple(WORDS[:3]) if kind == "enum" else (), list=False)
        lists = st.booleans() if kind in ("I32", "F32") else st.just(False)
        required = values_of(replace(prop, nullable=False)).map(lambda v: replace(prop, nullable=False, default=v))
        return st.one_of(required, lists.map(lambda is_list: replace(prop, list=is_list)))

    return kinds.flatmap(with_default)


def changes_of(schema: Schema, fresh: Iterator[str]) -> st.SearchStrategy[tuple[Schema, Carry]]:
    """A schema that follows this one, and what becomes of a row."""
    options: list[st.SearchStrategy[tuple[Schema, Carry]]] = []

    def edit(name: str, prop: Prop, carry: Carry = dict) -> st.SearchStrategy[tuple[Schema, Carry]]:
        return st.just(({**schema, name: prop}, carry))

    def add(prop: Prop) -> tuple[Schema, Carry]:
        name = next(fresh)
        return {**schema, name: prop}, lambda row: {**row, name: prop.default}

    options.append(fresh_property().map(add))
    for name, prop in schema.items():
        rest = {other: each for other, each in schema.items() if other != name}
        options.append(st.just((rest, lambda row, n=name: {k: v for k, v in row.items() if k != n})))
        renamed = f"{name}x"
        if renamed not in schema:
            moved = {
                renamed if k == name else k: replace(v, rename_from=name) if k == name else v for k, v in schema.items()
            }
            options.append(
                st.just((moved, lambda row, n=name, m=renamed: {m if k == n else k: v for k, v in row.items()}))
            )
        if not prop.nullable:
            options.append(edit(name, replace(prop, nullable=True)))
        elif prop.list:
            options.append(edit(name, replace(prop, nullable=False)))
        else:
            if prop.default is None:
                options.append(edit(name, replace(prop, nullable=False)))
            else:  # which is what nulls become
                options.append(st.just(_fill(schema, name, prop, prop.default)))
            filled = values_of(replace(prop, nullable=False))
            options.append(filled.map(lambda value, n=name, p=prop: _fill(schema, n, p, value)))
        if prop.kind in WIDER and prop.default is None:
            options.append(edit(name, replace(prop, kind=WIDER[prop.kind])))
        if prop.kind == "String" and not prop.list:
            options.append(edit(name, replace(prop, kind="enum", values=tuple(WORDS[:3]), default=None)))
        if prop.kind == "enum":
            options.append(edit(name, replace(prop, kind="String", values=())))
            options += [edit(name, each, carry) for each, carry in _enum_changes(name, prop)]
        if prop.kind in ("I32", "I64") and not prop.list and prop.default is None:
            options.append(edit(name, replace(prop, low=None if prop.low is not None else 0)))
        if not prop.list and prop.default is None:
            options.append(edit(name, replace(prop, unique=not prop.unique)))
    return st.one_of(options)


def _fill(schema: Schema, name: str, prop: Prop, value: Any) -> tuple[Schema, Carry]:
    filled = replace(prop, nullable=False, default=value)
    return {**schema, name: filled}, lambda row: {**row, name: value if row[name] is None else row[name]}


def _enum_changes(name: str, prop: Prop) -> Iterator[tuple[Prop, Carry]]:
    unused = [word for word in FRESH_WORDS if word not in prop.values]
    first, *others = prop.values
    if unused:
        yield replace(prop, values=(*prop.values, unused[0])), dict
        new = unused[0]
        values = (new, *others)
        default = new if prop.default == first else prop.default
        renamed = replace(prop, values=values, renames=((first, new),), default=default)
        yield renamed, lambda row: {**row, name: new if row[name] == first else row[name]}
    if others and prop.default != first:
        yield replace(prop, values=tuple(others)), dict
        merged = replace(prop, values=tuple(others), renames=((first, others[0]),))
        yield merged, lambda row: {**row, name: others[0] if row[name] == first else row[name]}


def stored(graph: Graph, **point: Any) -> dict[str, Row]:
    rows = graph.query("query all() { match { $t: Thing } return { $t } }", **point).to_arrow().to_pylist()
    return {row["t"]["slug"]: {k: v for k, v in row["t"].items() if k[0] != "@" and k != "slug"} for row in rows}


def shown(rows: dict[str, Row]) -> dict[str, Row]:
    """As a query returns entities: nulls are left out."""
    return {slug: {name: value for name, value in row.items() if value is not None} for slug, row in rows.items()}


def same(stored_rows: dict[str, Row], model_rows: dict[str, Row]) -> bool:
    return shown(stored_rows) == shown(model_rows)


@settings(max_examples=20)
@given(st.data())
def test_changes_of_schema_and_data_leave_what_the_model_has(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        run(Path(folder) / "graph", data)


STEPS = ["schema", "schema", "rows", "deletion", "branch", "branch rows", "branch schema", "merge", "optimize"]


def run(path: Path, data: st.DataObject) -> None:
    fresh = (f"p{number}" for number in count())
    model = Model({next(fresh): data.draw(fresh_property()) for _ in range(3)})
    slugs = (f"s{number}" for number in count())
    branches: dict[str, Branch] = {}
    with Graph.init(path, text_of(model.schema)) as graph:
        for number in range(data.draw(st.integers(4, 10))):
            step = data.draw(st.sampled_from(STEPS))
            # Two sides that change the schema differently are a conflict, which another test is about.
            is_quiet = not any(branch.own for branch in branches.values())
            name = data.draw(st.sampled_from(sorted(branches))) if branches else "main"
            if step == "schema" and is_quiet:
                if (done := change_schema(graph, "main", model.schema, model.rows, data, fresh)) is not None:
                    model.schema, model.rows = done[:2]
                    model.migrations.append(done[2])
            elif step == "rows":
                write(graph, "main", model.schema, model.rows, data, slugs)
            elif step == "deletion" and model.rows:
                gone = data.draw(st.sampled_from(sorted(model.rows)))
                graph.mutate(f'query q() {{ delete Thing where slug = "{gone}" }}')
                del model.rows[gone]
            elif step == "branch" and len(branches) < 2 and is_quiet:
                graph.create_branch(f"b{number}")
                rows, base = deepcopy(model.rows), frozenset(model.rows)
                branches[f"b{number}"] = Branch(model.schema, rows, base, len(model.migrations))
            elif step == "branch rows" and branches:
                write(graph, name, branches[name].schema, branches[name].rows, data, slugs)
                assert same(stored(graph, branch=name), branches[name].rows)
            elif step == "branch schema" and branches and branches[name].migrations == len(model.migrations):
                branch = branches[name]
                done = change_schema(graph, name, branch.schema, branch.rows, data, fresh) if is_quiet else None
                if done is not None:
                    branch.schema, branch.rows = done[:2]
                    branch.own.append(done[2])
                assert same(stored(graph, branch=name), branch.rows)
            elif step == "merge" and branches:
                merge(graph, model, name, branches.pop(name))
            elif step == "optimize":
                graph.maintenance.optimize()
            assert same(stored(graph), model.rows)
            model.past[graph.snapshot().version] = deepcopy(model.rows)
        for version, rows in model.past.items():
            assert same(stored(graph, version=version), rows)
        assert graph.maintenance.verify().clean


def change_schema(
    graph: Graph, branch: str, schema: Schema, rows: dict[str, Row], data: st.DataObject, fresh: Iterator[str]
) -> tuple[Schema, dict[str, Row], Carry] | None:
    """A change of the schema with its rows; None where stored rows stand against it. A plan predicts either."""
    desired, carry = data.draw(changes_of(schema, fresh))
    carried = {slug: carry(row) for slug, row in rows.items()}
    before = graph.snapshot(branch).commit_id
    plan = graph.schema.plan(text_of(desired), branch=branch)
    assert plan.supported, plan
    assert (plan.failing_checks > 0) == (not holds(desired, carried)), plan
    if plan.failing_checks:
        with pytest.raises(ConstraintError):
            graph.schema.apply(text_of(desired), branch=branch)
        assert graph.snapshot(branch).commit_id == before
        return None
    files = data_files(graph)
    applied = graph.schema.apply(text_of(desired), branch=branch)
    written = sum(step.effect.files for step in plan.steps if step.effect is not None)
    assert len(data_files(graph) - files) == written
    assert applied.steps == tuple(structs.replace(step, effect=None) for step in plan.steps)
    return {name: prop.plain for name, prop in desired.items()}, carried, carry


def data_files(graph: Graph) -> set[str]:
    return {str(file) for file in Path(graph.uri).rglob("data/*.lance")}


def write(
    graph: Graph, branch: str, schema: Schema, rows: dict[str, Row], data: st.DataObject, slugs: Iterator[str]
) -> None:
    """New rows, other values, and deletions. A branch touches rows that nobody else touches: its own new ones."""
    wanted = {next(slugs): {name: data.draw(values_of(prop)) for name, prop in schema.items()} for _ in range(2)}
    if branch == "main" and rows:
        again = data.draw(st.sampled_from(sorted(rows)))
        wanted[again] = {name: data.draw(values_of(prop)) for name, prop in schema.items()}
    after = {**rows, **wanted}
    if not holds(schema, after):
        return
    records = [{"slug": slug, **row} for slug, row in wanted.items()]
    graph.load(records, type="Thing", mode="merge", branch=branch)
    rows.update(deepcopy(wanted))


def merge(graph: Graph, model: Model, name: str, branch: Branch) -> None:
    """Rows that the branch brought, carried over what main did since it began, beside main's, carried over what the
    branch did."""
    brought = {slug: row for slug, row in branch.rows.items() if slug not in branch.base}
    rows = model.rows
    for carry in model.migrations[branch.migrations :]:
        brought = {slug: carry(row) for slug, row in brought.items()}
    for carry in branch.own:
        rows = {slug: carry(row) for slug, row in rows.items()}
    schema = branch.schema if branch.own else model.schema
    before = graph.snapshot().commit_id
    if holds(schema, {**rows, **brought}):
        graph.merge(name)
        model.schema, model.rows = schema, {**rows, **brought}
        model.migrations += branch.own
        return
    with pytest.raises(MergeConflictsError):
        graph.merge(name)
    assert graph.snapshot().commit_id == before
