"""The law of the feed: who applies it to a baseline has the graph, through any changes of data and schema.

A consumer knows a baseline and the feed, and nothing of the graph. Random histories change entities, add, drop, rename
and re-add types and properties, widen, fill and tighten them, extend, narrow and rename the values of enums, give edges
a key, and do the same on a branch that is merged.
"""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from omnigraph import Graph
from omnigraph.api.enums import TypeChange
from omnigraph.api.history import ChangeBlock, ChangeRecord, ChangeScope, EntityImage, SchemaChange
from omnigraph.api.schema import AddProperty, DropProperty, RenameProperty
from omnigraph.engine.export import export_lines
from omnigraph.errors import BadRequestError, MergeConflictsError
from tests.engine.town import content
from tests.engine.visibilities import Chosen, visibility_on

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

    def apply(self, change: ChangeRecord, exact: bool) -> None:
        known = self.entities.pop(change.id, None)
        assert (known is None) == (change.before is None) == (change.op == "insert")
        if change.after is not None:
            self.entities[change.id] = values_of(change.after)
            assert not exact or self.entities[change.id] != known, "an update that the record already said"


class Consumer:
    """Follows a feed from a baseline, or from the beginning. It keeps types by their ids. An `exact` feed has no change
    that the records say already; where masks come and go with names, it may have."""

    def __init__(
        self, graph: Graph, scope: ChangeScope | None = None, *, page: int = 1_000, exact: bool = True
    ) -> None:
        self._graph, self._scope, self._page, self._exact = graph, scope or ChangeScope(), page, exact
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
                self._copy(type_id, change.type_name).apply(change, self._exact)
            elif change.change is TypeChange.DROPPED:
                entities = self._copy(type_id, change.type_name).entities
                assert change.entities in (None, len(entities))
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


def visible(graph: Graph) -> dict[tuple[str, str], Values]:
    """The entities that a restricted actor sees."""
    records = map(json.loads, export_lines(graph._workspace.snapshot("main")))
    entities = {}
    for record in records:
        data, ends = record["data"], {end: record[end] for end in ("from", "to") if end in record}
        key = (record.get("type") or record["edge"], data.pop("id"))
        entities[key] = {**data, **ends}
    return entities


def without_nulls(entities: dict[tuple[str, str], Values]) -> dict[tuple[str, str], Values]:
    return {key: {name: value for name, value in each.items() if value is not None} for key, each in entities.items()}


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
KINDS = {"number": "I32?", "wide": "I64?", "real": "F64?", "text": "String?", "enum": "enum({})?", "filled": "I32 = 2"}
NEXT_KINDS = {"number": ("wide", "real", "filled"), "filled": ("number", "wide"), "enum": ("text",)}
NUMBERS = ("number", "wide", "real", "filled")
Change: TypeAlias = Callable[["Shape"], None]


@dataclass
class Shape:
    """A schema: node types with a key and up to two properties, and edges that join nodes of one of them. `hints` are
    its renames since the schema before."""

    types: dict[str, dict[str, str]]
    linked: str | None
    members: tuple[str, ...] = ("x", "y")
    has_key: bool = False
    hints: dict[str, str] = field(default_factory=dict)

    def copy(self) -> Shape:
        return Shape(
            {name: dict(properties) for name, properties in self.types.items()}, self.linked, self.members, self.has_key
        )

    def text(self) -> str:
        lines = []
        for name, properties in self.types.items():
            lines.append(f"node {name}{self._hint(name)} {{ k: String @key")
            for prop, kind in properties.items():
                renamed = self.hints.get("members", "") if kind == "enum" else ""
                type_ = KINDS[kind].format(", ".join(self.members)) + renamed
                lines.append(f"  {prop}: {type_}{self._hint(f'{name}.{prop}')}")
            lines.append("}")
        if self.linked is not None:
            key = "@key(@src, @dst)" if self.has_key else ""
            lines.append(f"edge Link: {self.linked} -> {self.linked} {{ w: I32?  {key} }}")
        return "\n".join(lines)

    def _hint(self, path: str) -> str:
        return f' @rename_from("{self.hints[path]}")' if path in self.hints else ""

    def possible_changes(self) -> Iterator[Change]:
        """What may happen to it next. A name is given away at most once between two schemas."""
        absent = [name for name in TYPES if name not in self.types]
        for name, properties in self.types.items():
            if name in self.hints or f"{name}." in self.hints:
                continue
            yield lambda shape, name=name: shape.drop_type(name)
            for other in absent:
                yield lambda shape, name=name, other=other: shape.rename_type(name, other)
            for prop in PROPERTIES:
                for kind in KINDS if prop not in properties else ():
                    yield lambda shape, name=name, prop=prop, kind=kind: shape.add_property(name, prop, kind)
            for prop in properties:
                yield lambda shape, name=name, prop=prop: shape.drop_property(name, prop)
                yield lambda shape, name=name, prop=prop: shape.rename_property(name, prop)
                for kind in NEXT_KINDS.get(properties[prop], ()):
                    yield lambda shape, name=name, prop=prop, kind=kind: shape.add_property(name, prop, kind)
        for name in absent:
            yield lambda shape, name=name: shape.types.update({name: {"p": "number"}})
        if self.linked is None:
            yield lambda shape: setattr(shape, "linked", next(iter(shape.types)))
        elif not self.has_key:
            yield lambda shape: setattr(shape, "has_key", True)
        if "members" not in self.hints:
            yield Shape.rename_member
            yield lambda shape: setattr(shape, "members", (*shape.members, f"m{len(shape.members)}"))
            yield lambda shape: setattr(shape, "members", shape.members[:2])

    def drop_type(self, name: str) -> None:
        if len(self.types) > 1:
            del self.types[name]
            self.linked = None if self.linked == name else self.linked

    def rename_type(self, name: str, other: str) -> None:
        self.types[other] = self.types.pop(name)
        self.linked = other if self.linked == name else self.linked
        self.hints[other] = name

    def add_property(self, name: str, prop: str, kind: str) -> None:
        self.types[name][prop] = kind
        self.hints[f"{name}."] = prop

    def rename_member(self) -> None:
        old, *rest = self.members
        self.members = (*rest, f"{old}x")
        self.hints["members"] = f' @rename_value("{old}", to="{old}x")'

    def drop_property(self, name: str, prop: str) -> None:
        del self.types[name][prop]
        self.hints[f"{name}."] = prop

    def rename_property(self, name: str, prop: str) -> None:
        other = "q" if prop == "p" else "p"
        if other not in self.types[name]:
            self.types[name][other] = self.types[name].pop(prop)
            self.hints[f"{name}.{other}"] = prop
            self.hints[f"{name}."] = prop


class Author:
    """Writes random commits to `main`, and to a branch beside it that is merged."""

    def __init__(self, graph: Graph, seed: int) -> None:
        self._graph, self._random = graph, Random(seed)
        self._main = Shape({"A": {"p": "number"}, "B": {"p": "enum", "q": "text"}}, "A")
        graph.schema.apply(self._main.text())
        for _ in range(2):
            self._write("main", self._main)

    def episode(self) -> None:
        """A commit, or a few on a branch that is then merged, at times with others on main meanwhile."""
        if self._random.random() < 0.6:
            self._main = self._commit("main", self._main)
            return
        self._graph.create_branch("side")
        before, side = self._graph.snapshot().entry.schema, self._main
        for _ in range(self._random.randint(1, 4)):
            side = self._commit("side", side)
        if self._random.random() < 0.5:
            self._main = self._commit("main", self._main)
        had = self._graph.snapshot().entry.schema
        with suppress(MergeConflictsError):
            self._graph.merge("side")
            if had == before:
                self._main = side
        self._graph.delete_branch("side")

    def _commit(self, branch: str, shape: Shape) -> Shape:
        if self._random.random() < 0.5:
            return self._change_schema(branch, shape)
        self._write(branch, shape)
        return shape

    def _change_schema(self, branch: str, shape: Shape) -> Shape:
        changed = shape.copy()
        for _ in range(self._random.randint(1, 3)):
            self._random.choice(list(changed.possible_changes()))(changed)
        try:
            self._graph.schema.apply(changed.text(), branch=branch)
        except BadRequestError:  # say, a type that was dropped and declared anew in one schema is the same type
            return shape
        changed.hints.clear()
        return changed

    def _write(self, branch: str, shape: Shape) -> None:
        records: dict[object, Values] = {}
        for name, properties in shape.types.items():
            for entity_id in IDS:
                choice = self._random.random()
                if choice < 0.15:
                    query = f"query q($k: String) {{ delete {name} where k = $k }}"
                    self._graph.mutate(query, params={"k": entity_id}, branch=branch)
                elif choice < 0.6:
                    values = {prop: self._value(kind, shape) for prop, kind in properties.items()}
                    records[name, entity_id] = {"type": name, "data": {"k": entity_id, **values}}
                    if shape.linked == name:
                        own_id = {} if shape.has_key else {"id": entity_id}
                        data = {**own_id, "w": self._value("number", shape)}
                        ends = {"from": entity_id, "to": entity_id}
                        records["Link", entity_id] = {"edge": "Link", **ends, "data": data}
        if records:
            self._graph.load("\n".join(map(json.dumps, records.values())), mode="merge", branch=branch)

    def _value(self, kind: str, shape: Shape) -> int | str | None:
        if self._random.random() < 0.3 and kind != "filled":
            return None
        return self._random.randint(1, 2) if kind in NUMBERS else self._random.choice(shape.members)


@contextmanager
def letters(seed: int) -> Iterator[tuple[Graph, Author]]:
    with (
        tempfile.TemporaryDirectory() as folder,
        Graph.init(Path(folder) / "letters", "node A { k: String @key }") as graph,
    ):
        yield graph, Author(graph, seed)


EPISODES = 8
seeds = st.integers(0, 1 << 32)
few = settings(
    max_examples=10, deadline=None, derandomize=True, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)


@few
@given(seed=seeds, page=st.sampled_from((1, 2, 1_000)), seldom=st.booleans())
def test_who_applies_the_feed_to_a_baseline_has_the_graph(seed: int, page: int, seldom: bool) -> None:
    with letters(seed) as (graph, author):
        live, replay = Consumer(graph, page=page), Consumer(graph, page=page)
        live.begin_with_baseline()
        for _ in range(EPISODES):
            author.episode()
            live.catch_up(pages=1 if seldom else 1_000)
        for consumer in (live, replay):
            consumer.catch_up()
            assert consumer.content() == exported(graph)


@few
@given(seed=seeds, page=st.sampled_from((1, 1_000)), names=st.sampled_from((("A",), ("B",), ("A", "B", "Link"))))
def test_who_names_types_has_those_that_ever_had_the_name(seed: int, page: int, names: tuple[str, ...]) -> None:
    with letters(seed) as (graph, author):
        scope = ChangeScope.of(types=names)
        live, replay = Consumer(graph, scope, page=page), Consumer(graph, scope, page=page)
        live.begin_with_baseline()
        for _ in range(EPISODES):
            author.episode()
            live.catch_up()
        entries = [graph.snapshot(version=version).entry for version in range(1, graph.snapshot().version + 1)]
        type_ids = {
            table.table_id for entry in entries for key, table in entry.tables.items() if key.partition(":")[2] in names
        }
        consumers = [live]
        if names == ("A",):  # a feed from the beginning takes names of the first schema, or of the newest
            consumers.append(replay)
        for consumer in consumers:
            consumer.catch_up()
            assert consumer.content() == exported(graph, type_ids)


@few
@given(seed=seeds, page=st.sampled_from((1, 1_000)))
def test_a_restricted_actor_has_what_it_sees(seed: int, page: int) -> None:
    """The record does not name a masked property: a name that it leaves out is null."""
    with letters(seed) as (graph, author):
        rows: Chosen = {"node:A": ('k != "2"', bool)}
        restricted = graph._restricted_to(visibility_on(graph.catalog, rows, {"node:B": ["p"]}))
        live, replay = (Consumer(restricted, page=page, exact=False) for _ in range(2))
        for _ in range(EPISODES):
            author.episode()
            live.catch_up()
        for consumer in (live, replay):
            consumer.catch_up()
            assert without_nulls(consumer.content()) == without_nulls(visible(restricted))
