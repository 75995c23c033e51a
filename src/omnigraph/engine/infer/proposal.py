"""`infer_schema`: the text of a schema that fits files and frames, with comments about what was decided and why.

The text is written by the formatter and compiled before it is returned, so what cannot be declared is an error here and
not at the next command.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, Final

from omnigraph.api.schema import ProposedType, SchemaProposal
from omnigraph.api.values import count_noun
from omnigraph.engine.infer.column_types import Decision
from omnigraph.engine.infer.inputs import Source, Tables, legal_property_name, legal_type_name, read_sources
from omnigraph.engine.infer.relations import End, Relations, relate
from omnigraph.engine.infer.tables import IDENTITY, TableFacts
from omnigraph.engine.rows.kernels.csv_rows import CsvDialect
from omnigraph.errors import BadRequestError
from omnigraph.language.schema.check import END_TYPE_NAMES, RESERVED_PROPERTY_NAMES
from omnigraph.language.schema.compile import accept_schema
from omnigraph.language.schema.formatter import format_schema

_TYPE_NAME: Final = re.compile(r"[A-Z][A-Za-z0-9_]*")
_NOT_OF_EDGES: Final = frozenset({"from", "to"})
_LONGEST_NAME: Final = 48


def infer_schema(
    *files: str | PathLike[str],
    edges: Mapping[str, tuple[str, str, Any]] | None = None,
    sample: int | None = None,
    format: str | None = None,
    csv: CsvDialect | None = None,
    **types: Any,
) -> SchemaProposal:
    """A schema for csv, parquet, arrow and ndjson files, and for frames: `infer_schema("books.csv", Reader=frame)`.

    A file is one node type with its name in PascalCase; a keyword names the type of a file, of a frame or of a list of
    dictionaries. A file of graph records has all of its types. Rows with the columns `from` and `to`, or `src` and
    `dst`, become an edge type when these hold keys of other types; `edges` says it: `edges={"Knows": ("Person",
    "Person", "knows.csv")}`. All rows are read, in little memory; with `sample`, the first ones of each source.
    `format` and `csv` describe files whose names do not.

    The result has the text of the schema, with comments that say why, and the property that each column became. Raises
    `BadRequestError` for a source that a load could not read.
    """
    sources = [Source(file, csv=csv) for file in files]
    sources += [Source(data, name, csv=csv) for name, data in types.items()]
    sources += [Source(data, name, (start, end), csv) for name, (start, end, data) in (edges or {}).items()]
    return propose_schema(sources, sample=sample, format=format)


def propose_schema(sources: Sequence[Source], *, sample: int | None, format: str | None) -> SchemaProposal:
    """As `infer_schema`, of sources of any kind."""
    if not sources:
        raise BadRequestError("name a file or a frame to infer a schema from")
    if sample is not None and sample < 1:
        raise BadRequestError(f"a sample has at least one row, not {sample}")
    for source in sources:
        if source.type_name is not None and not _TYPE_NAME.fullmatch(source.type_name):
            raise BadRequestError(f"'{source.type_name}' is not a name of a type: it begins with an uppercase letter")
    tables = read_sources(sources, sample=sample, format=format)
    return _Proposal(tables).make()


class _Proposal:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        is_complete = all(complete for _, _, complete in tables.files)
        self._decisions = {
            key: {name: facts.decide(enums=is_complete) for name, facts in table.columns.items()}
            for key, table in tables.by_name.items()
        }
        self._relations: Relations = relate(tables, self._decisions)
        self._names: dict[tuple[bool, str], str] = {}
        self._types: list[ProposedType] = []
        self._interfaces: dict[tuple[str, ...], str] = {}
        """The interfaces at ends of edges, by the node types that implement them."""

    def make(self) -> SchemaProposal:
        nodes = [table for (is_edge, _), table in self._tables.by_name.items() if self._is_node(is_edge, table)]
        edges = [table for (is_edge, _), table in self._tables.by_name.items() if not self._is_node(is_edge, table)]
        for kind, tables in ((False, nodes), (True, edges)):
            for table in tables:
                self._names[kind, table.name] = self._type_name(kind, table.name)
        ends = [end for table in edges for end in self._relations.ends[table.name]]
        for members in dict.fromkeys(end.members for end in ends if end.members):
            self._interfaces[members] = self._interface_name(members)
        bodies = ["\n".join(self._node(table)) for table in nodes] + ["\n".join(self._edge(table)) for table in edges]
        about = "// At the end of an edge: each edge says which of the types that implement it."
        interfaces = [f"{about}\ninterface {name} {{}}" for name in self._interfaces.values()]
        text = format_schema("\n\n".join(["\n".join(self._head()), *interfaces, *bodies]) + "\n")
        accept_schema(text)
        return SchemaProposal(text, tuple(self._types))

    def _is_node(self, is_edge: bool, table: TableFacts) -> bool:
        return not is_edge and table.name in self._relations.keys

    def _type_name(self, is_edge: bool, name: str) -> str:
        legal = name if _TYPE_NAME.fullmatch(name) else legal_type_name(name)
        taken = {each.lower() if is_edge else each for (kind, _), each in self._names.items() if kind is is_edge}
        while (legal.lower() if is_edge else legal) in taken:
            legal += "_"
        return legal

    def _interface_name(self, members: tuple[str, ...]) -> str:
        names = [self._names[False, each] for each in members]
        name = f"Any{names[0]}" if len(names) == 1 else "Or".join(names)
        if len(name) > _LONGEST_NAME:
            name = f"{names[0]}OrOther"
        while name in {*self._names.values(), *self._interfaces.values()}:
            name += "_"
        return name

    def _head(self) -> Iterator[str]:
        yield "// Proposed by `omnigraph schema infer`. Check names, keys and types: keys of nodes can't change later."
        if any(column != name for type_ in self._types for column, name in type_.columns.items()):
            yield "// Columns with other names than their properties: rename them before a load, or use a pipeline."
        for name, rows, is_complete in self._tables.files:
            if not is_complete:
                yield f"// Read of {_show(name)}: the first {count_noun(rows, 'row')}; later ones may not fit."

    def _node(self, table: TableFacts) -> Iterator[str]:
        key = self._relations.keys[table.name]
        names = self._property_names(table, ())
        name = self._names[False, table.name]
        yield from self._about(table, name)
        if (reason := self._relations.not_edges.get(table.name)) is not None:
            yield f"// The rows look like edges, but {reason}."
        interfaces = [interface for members, interface in self._interfaces.items() if table.name in members]
        implements = f" implements {', '.join(interfaces)}" if interfaces else ""
        yield f"node {name}{implements} {{"
        if key.column is None:
            yield f"// {key.reason}"
        yield from self._properties(table, self._decisions[False, table.name], names, key.column, key.reason)
        yield "}"
        self._add(table, "node", name, names, key.column)

    def _edge(self, table: TableFacts) -> Iterator[str]:
        decisions = self._decisions[table.is_edge, table.name]
        columns = () if table.is_record else table.end_columns or ()
        names = self._property_names(table, columns)
        name, ends = self._names[True, table.name], self._relations.ends[table.name]
        yield from self._about(table, name)
        missing = [end for end in ends if end.type_name is None]
        for side, end in zip(("from", "to"), ends, strict=True):
            yield from self._about_end(name, side, end)
        if missing:
            return
        first, second = (
            self._interfaces[end.members] if end.members else self._names[False, end.type_name or ""] for end in ends
        )
        properties = list(self._properties(table, decisions, names, None, ""))
        yield f"edge {name}: {first} -> {second}" + (" {" if properties else "")
        if properties:
            yield from (*properties, "}")
        self._add(table, "edge", name, names, None)

    def _about(self, table: TableFacts, name: str) -> Iterator[str]:
        if name != table.name:
            yield f"// type {_show(table.name)}"
        yield f"// {', '.join(map(_show, table.files))}: {count_noun(table.rows, 'row')}"

    def _about_end(self, name: str, side: str, end: End) -> Iterator[str]:
        if end.type_name is None:
            stray = _show(end.stray or "")
            yield f"// The edge type {name} is left out: `{side}` holds ids that no type has, such as {stray}."
        elif end.others:
            yield f"// The values of `{side}` are also ids of {', '.join(end.others)}."

    def _properties(
        self,
        table: TableFacts,
        decisions: Mapping[str, Decision],
        names: Mapping[str, str],
        key: str | None,
        reason: str,
    ) -> Iterator[str]:
        for column, facts in table.columns.items():
            decision = decisions[column]
            if column not in names:
                if decision.problem is not None:
                    yield f"// column {_show(column)} is left out: it {decision.problem}"
                elif column == IDENTITY:
                    yield f"// column {_show(column)} holds the ids"
                continue
            assert decision.type is not None
            if names[column] != column:
                yield f"// column {_show(column)}"
            yield from (f"// {note}" for note in decision.notes)
            if column == key:
                yield f"// {reason}"
            type_ = decision.type.as_nullable(facts.values < table.rows or not table.rows)
            yield f"{names[column]}: {type_}{' @key' if column == key else ''}"

    def _property_names(self, table: TableFacts, ends: tuple[str, ...]) -> dict[str, str]:
        """The properties of the columns that become some."""
        is_edge = (True, table.name) in self._names
        decisions = self._decisions[table.is_edge, table.name]
        names: dict[str, str] = {}
        taken = set(RESERVED_PROPERTY_NAMES) | (_NOT_OF_EDGES if is_edge else set())
        taken |= END_TYPE_NAMES if table.typed_ends else set()
        legal = [column for column in table.columns if legal_property_name(column) == column]
        for column in [*legal, *(column for column in table.columns if column not in legal)]:
            if column in ends or column == IDENTITY or decisions[column].type is None:
                continue
            name = legal_property_name(column)
            while name in taken:
                name += "_"
            taken.add(name)
            names[column] = name
        return names

    def _add(self, table: TableFacts, kind: Any, name: str, names: Mapping[str, str], key: str | None) -> None:
        self._types.append(
            ProposedType(name, kind, tuple(table.files), table.rows, None if key is None else names[key], dict(names))
        )


def _show(text: str) -> str:
    """A text in a comment, in quotes where it is not a plain word or path."""
    return text if re.fullmatch(r"[\w./-]+", text) else json.dumps(text)
