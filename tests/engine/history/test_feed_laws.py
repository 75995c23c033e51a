"""The law of the feed: who applies it to a baseline has the graph, through any changes of data and schema.

A consumer in thirty lines knows a baseline and the feed, and nothing of the graph. Random histories change entities,
add, drop, rename and re-add types and properties, extend enums, and do the same on a branch that is merged.
"""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from omnigraph import Graph
from omnigraph.api.enums import TypeChange
from omnigraph.api.history import ChangeBlock, ChangeRecord, ChangeScope, EntityImage, SchemaChange
from omnigraph.api.schema import AddProperty, DropProperty, RenameProperty
from omnigraph.errors import BadRequestError, ConflictError, MergeConflictsError
from tests.engine.town import content

Values: TypeAlias = dict[str, Any]


@dataclass
class Copy:
    """What a consumer has of one type."""

    name: str
    entities: dict[str, Values] = field(default_factory=dict)

    def apply_schema(self, change: SchemaChange) -> None:
        self.name = change.type_name
        dropped = {step.property_name for step in change.steps if isinstance(step, DropProperty)}
        renamed = {step.from_name: step.to_name for step in change.steps if isinstance(step, RenameProperty)}
        added = dict.fromkeys(step.property_name for step in change.steps if isinstance(step, AddProperty))
        for entity_id, values in self.entities.items():
            kept = {renamed.get(name, name): value for name, value in values.items() if name not in dropped}
            self.entities[entity_id] = {**kept, **added}

    def apply(self, change: ChangeRecord) -> None:
        known = self.entities.pop(change.id, None)
        assert (known is None) == (change.before is None) == (change.op == "insert")
        if change.after is not None:
            self.entities[change.id] = values_of(change.after)
            assert self.entities[change.id] != known, "an update that the record already said"


class Consumer:
    """Follows a feed from a baseline, or from the beginning. It keeps types by their ids."""

    def __init__(self, graph: Graph, scope: ChangeScope | None = None, *, page: int = 1_000) -> None:
        self._graph, self._scope, self._page = graph, scope or ChangeScope(), page
        self.types: dict[str, Copy] = {}
        self._position: dict[str, Any] = {"start": "beginning"}

    def begin_with_baseline(self) -> None:
        lines = io.BytesIO()
        baseline = self._graph.changes.baseline(lines, scope=self._scope)
        state = self._graph.snapshot(snapshot=baseline.snapshot_commit_id)
        for type_key, table in state.entry.tables.items():
            kind, _, name = type_key.partition(":")
            if self._scope.selects_type(kind, name):
                self.types[table.table_id] = Copy(name)
        by_name = {copy.name: copy for copy in self.types.values()}
        for line in map(json.loads, lines.getvalue().splitlines()):
            data = line["data"]
            ends = {"from": line["from"], "to": line["to"]} if "edge" in line else {}
            entity_id = data.pop("id")
            by_name[line.get("type") or line["edge"]].entities[entity_id] = {**data, **ends}
        self._position = {"cursor": baseline.resume_cursor}

    def catch_up(self, *, pages: int = 1_000) -> None:
        """Polls until the head is reached, or for so many pages."""
        for _ in range(pages):
            poll = self._graph.changes.poll(**self._position, scope=self._scope, max_changes=self._page)
            for block in poll.blocks:
                self._apply(block)
            token = poll.next_page_token
            self._position = {"cursor": poll.cursor} if token is None else {"page_token": token}
            if poll.caught_up:
                return

    def _apply(self, block: ChangeBlock) -> None:
        for change in block:
            type_id = change.type.id
            if isinstance(change, ChangeRecord):
                self._copy(type_id, change.type_name).apply(change)
            elif change.change is TypeChange.DROPPED:
                assert len(self._copy(type_id, change.type_name).entities) == change.entities
                del self.types[type_id]
            elif change.change is TypeChange.ADDED:
                assert type_id not in self.types
                self.types[type_id] = Copy(change.type_name)
            else:
                assert change.name_before is not None
                self._copy(type_id, change.name_before).apply_schema(change)

    def _copy(self, type_id: str, name: str) -> Copy:
        """A type is new to a consumer that began without a baseline and has seen no entity of it."""
        copy = self.types.setdefault(type_id, Copy(name))
        assert copy.name == name
        return copy

    def content(self) -> dict[tuple[str, str], Values]:
        copies = list(self.types.values())
        assert len({copy.name for copy in copies}) == len(copies)
        return {(copy.name, entity_id): values for copy in copies for entity_id, values in copy.entities.items()}


def values_of(image: EntityImage) -> Values:
    ends = image.endpoints
    return {**image.properties, **({} if ends is None else {"from": ends.source, "to": ends.target})}


def exported(graph: Graph, type_ids: set[str] | None = None) -> dict[tuple[str, str], Values]:
    """The entities of the graph, or those of some types."""
    tables = graph.snapshot().entry.tables.items()
    names = {key.partition(":")[2] for key, table in tables if type_ids is None or table.table_id in type_ids}
    return {
        key: {name: value for name, value in values.items() if name not in ("type", "edge")}
        for key, values in content(graph).items()
        if key[0] in names
    }


# -- Random histories

TYPES, PROPERTIES, IDS = ("A", "B", "C"), ("p", "q"), ("1", "2", "3")
KINDS = {"int": "I32?", "text": "String?", "enum": "enum({})?"}
MEMBERS = ("x", "y", "z")


@dataclass
class Shape:
    """A schema that random steps change. Every node type has a key, and up to two properties; edges join A-types."""

    types: dict[str, dict[str, str]]
    members: int = 2
    linked: str | None = "A"
    hints: dict[str, str] = field(default_factory=dict)

    def text(self) -> str:
        lines = []
        for name, properties in self.types.items():
            lines.append(f"node {name}{self._hint(name)} {{ k: String @key")
            for prop, kind in properties.items():
                type_ = KINDS[kind].format(", ".join(MEMBERS[: self.members]))
                lines.append(f"  {prop}: {type_}{self._hint(f'{name}.{prop}')}")
            lines.append("}")
        if self.linked is not None:
            lines.append(f"edge Link: {self.linked} -> {self.linked} {{ w: I32? }}")
        return "\n".join(lines)

    def _hint(self, path: str) -> str:
        return f' @rename_from("{self.hints[path]}")' if path in self.hints else ""


Step: TypeAlias = tuple[str, str, str, str]
data_steps = st.tuples(
    st.sampled_from(("put", "put", "delete", "link")),
    st.sampled_from(TYPES),
    st.sampled_from(IDS),
    st.sampled_from("1xy"),
)
schema_steps = st.tuples(
    st.sampled_from(("add type", "drop type", "rename type", "add", "drop", "rename", "extend", "unlink")),
    st.sampled_from(TYPES),
    st.sampled_from((*TYPES, *PROPERTIES)),
    st.sampled_from(tuple(KINDS)),
)
commits = st.one_of(
    st.tuples(st.just("data"), st.lists(data_steps, min_size=1, max_size=4)),
    st.tuples(st.just("schema"), st.lists(schema_steps, min_size=1, max_size=3)),
)
histories = st.lists(st.tuples(st.sampled_from(("main", "main", "side", "merge")), commits), min_size=4, max_size=9)


class Author:
    """Writes random commits. What a rule forbids is left out."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._shapes = {"main": Shape({"A": {"p": "int"}, "B": {"p": "enum", "q": "text"}})}

    def commit(self, where: str, commit: tuple[str, list[Step]]) -> None:
        if where == "merge":
            self._merge()
            return
        if where == "side" and "side" not in self._shapes:
            self._graph.create_branch("side")
            self._shapes["side"] = self._copy(self._shapes["main"])
        kind, steps = commit
        with suppress(BadRequestError):
            self._change_schema(where, steps) if kind == "schema" else self._write(where, steps)

    def _merge(self) -> None:
        if "side" not in self._shapes:
            return
        side = self._shapes.pop("side")
        try:
            before = self._graph.snapshot().entry.schema
            self._graph.merge("side")
            if self._graph.snapshot().entry.schema != before:
                self._shapes["main"] = side
        except (MergeConflictsError, ConflictError):
            pass
        self._graph.delete_branch("side")

    @staticmethod
    def _copy(shape: Shape) -> Shape:
        return Shape({name: dict(properties) for name, properties in shape.types.items()}, shape.members, shape.linked)

    def _write(self, branch: str, steps: list[Step]) -> None:
        shape, records = self._shapes[branch], {}
        for what, name, entity_id, value in steps:
            if name not in shape.types:
                continue
            if what == "delete":
                query = f"query q($k: String) {{ delete {name} where k = $k }}"
                self._graph.mutate(query, params={"k": entity_id}, branch=branch)
            elif what == "link" and shape.linked == name and (name, entity_id) in records:
                ends = {"from": entity_id, "to": entity_id}
                records["edge", entity_id] = {"edge": "Link", **ends, "data": {"id": entity_id, "w": len(value)}}
            else:
                values = {
                    p: 1 if kind == "int" else value
                    for p, kind in shape.types[name].items()
                    if value != "1" or kind == "int"
                }
                records[name, entity_id] = {"type": name, "data": {"k": entity_id, **values}}
        if records:
            self._graph.load("\n".join(map(json.dumps, records.values())), mode="merge", branch=branch)

    def _change_schema(self, branch: str, steps: list[Step]) -> None:
        shape = self._copy(self._shapes[branch])
        touched: set[str] = set()
        for what, name, other, kind in steps:
            if other in TYPES:
                self._change_types(shape, what, name, other, touched)
            elif name in shape.types and f"{name}.{other}" not in touched:
                _change_properties(shape, what, name, other, kind, touched)
            if what == "extend":
                shape.members = len(MEMBERS)
            elif what == "unlink":
                shape.linked = None
        self._graph.schema.apply(shape.text(), branch=branch)
        shape.hints.clear()
        self._shapes[branch] = shape

    @staticmethod
    def _change_types(shape: Shape, what: str, name: str, other: str, touched: set[str]) -> None:
        if what == "add type":
            shape.types.setdefault(name, {"p": "int"})
        elif what == "drop type" and len(shape.types) > 1 and name not in touched:
            shape.types.pop(name, None)
            shape.linked = None if shape.linked == name else shape.linked
        elif what == "rename type" and name in shape.types and other not in shape.types and not touched & {name, other}:
            shape.types[other] = shape.types.pop(name)
            shape.linked = other if shape.linked == name else shape.linked
            shape.hints[other] = name
            touched |= {name, other}


def _change_properties(shape: Shape, what: str, name: str, prop: str, kind: str, touched: set[str]) -> None:
    properties, other = shape.types[name], "q" if prop == "p" else "p"
    if what == "add":
        properties.setdefault(prop, kind)
    elif what == "drop":
        properties.pop(prop, None)
    elif what == "rename" and prop in properties and other not in properties and name not in shape.hints:
        properties[other] = properties.pop(prop)
        shape.hints[f"{name}.{other}"] = prop
    touched |= {f"{name}.{prop}", f"{name}.{other}", name}


@contextmanager
def letters() -> Iterator[tuple[Graph, Author]]:
    with tempfile.TemporaryDirectory() as folder:
        schema = Shape({"A": {"p": "int"}, "B": {"p": "enum", "q": "text"}}).text()
        with Graph.init(Path(folder) / "letters", schema) as graph:
            author = Author(graph)
            author.commit("main", ("data", [("put", "A", "1", "1"), ("link", "A", "1", "1"), ("put", "B", "1", "x")]))
            yield graph, author


few = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@few
@given(history=histories, page=st.sampled_from((1, 2, 1_000)), seldom=st.booleans())
def test_who_applies_the_feed_to_a_baseline_has_the_graph(history: list[Any], page: int, seldom: bool) -> None:
    with letters() as (graph, author):
        live, replay = Consumer(graph, page=page), Consumer(graph, page=page)
        live.begin_with_baseline()
        for where, commit in history:
            author.commit(where, commit)
            live.catch_up(pages=1 if seldom else 1_000)
        for consumer in (live, replay):
            consumer.catch_up()
            assert consumer.content() == exported(graph)


@few
@given(history=histories, page=st.sampled_from((1, 1_000)), names=st.sampled_from((("A",), ("B",), ("A", "B"))))
def test_who_names_types_has_those_that_ever_had_the_name(
    history: list[Any], page: int, names: tuple[str, ...]
) -> None:
    with letters() as (graph, author):
        scope = ChangeScope.of(types=names)
        live, replay = Consumer(graph, scope, page=page), Consumer(graph, scope, page=page)
        live.begin_with_baseline()
        for where, commit in history:
            author.commit(where, commit)
            live.catch_up()
        entries = [graph.snapshot(version=version).entry for version in range(1, graph.snapshot().version + 1)]
        type_ids = {
            entry.tables[key].table_id
            for entry in entries
            for key in map("node:{}".format, names)
            if key in entry.tables
        }
        for consumer in (live, replay):
            consumer.catch_up()
            assert consumer.content() == exported(graph, type_ids)
