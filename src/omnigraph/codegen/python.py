"""Writes the Python module of a program: classes of types and rows, and one function for each query.

The text passes `ruff format` and `mypy --strict`. It imports what it needs under names with an underscore, so that a
type or a property may be called `Any`, `date` or `str`. Functions that read values come last; each of them takes null
for null, so that a masked property does not break a row.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from omnigraph.api.enums import CodeStyle
from omnigraph.codegen.model import (
    GENERATED,
    EntityClass,
    EntityShape,
    Field,
    ListShape,
    PathShape,
    Program,
    QueryFunction,
    RecordShape,
    ScalarShape,
    Shape,
    union_name,
)
from omnigraph.codegen.names import Scope, member_name, pascal_case, snake_case
from omnigraph.codegen.python_text import (
    INDENT,
    Brackets,
    Expression,
    annotation,
    call,
    comprehension,
    docstring,
    index,
    lines_of,
    literal,
    text_block,
    union,
)
from omnigraph.language.types import FLOATS, INTEGERS, Scalar

_BUILTINS: Final = {"bool", "dict", "float", "int", "list", "str"}
_IMPORTS: Final = {"_dataclasses", "_dt", "_omnigraph", "_pydantic", "_t"}
_RESERVED: Final = {*keyword.kwlist, *_BUILTINS, *_IMPORTS}
_SHARED: Final = {"_Reads", "_Writes", "_Offers", "_Node", "_Edge", "_float", "_date", "_datetime", "_list"}
_SYSTEM_FIELDS: Final = {
    "@id": "entity_id",
    "@src": "source_id",
    "@src_type": "source_type",
    "@dst": "target_id",
    "@dst_type": "target_type",
}
_OF_PYDANTIC: Final = {
    *("construct", "copy", "dict", "from_orm", "json", "parse_file", "parse_obj", "parse_raw", "schema"),
    *("schema_json", "update_forward_refs", "validate"),
}
"""Attributes of every pydantic class, beside those that begin with `model_`."""
_STORED_READ_OPTIONS: Final = ("branch", "snapshot")
_STORED_WRITE_OPTIONS: Final = ("branch", "if_commit", "idempotency_key")
_WRITE_OPTIONS: Final = ("if_commit", "idempotency_key")
_SCALARS: Final = {
    Scalar.STRING: "str",
    Scalar.BLOB: "str",
    Scalar.BOOL: "bool",
    Scalar.DATE: "_dt.date",
    Scalar.DATETIME: "_dt.datetime",
    **dict.fromkeys(INTEGERS, "int"),
    **dict.fromkeys(FLOATS, "float"),
}
_VALUE: Final = "value: _t.Any"


def write_python(program: Program, *, style: CodeStyle = CodeStyle.DATACLASS, stored: bool = False) -> str:
    """The text of the module. With `stored` its functions run queries that the graph offers by name; otherwise they
    have their texts."""
    return _Module(program, style, stored).text()


class _Module:
    """One module while it is written. `_blocks` are the parts of its text; a part that another one needs when the
    module is imported comes before it."""

    def __init__(self, program: Program, style: CodeStyle, stored: bool) -> None:
        self._program, self._style, self._stored = program, style, stored
        self._scope = Scope({*_RESERVED, *_SHARED})
        self._functions = [self._scope.add(snake_case(query.name)) for query in program.queries]
        self._classes: dict[tuple[str, bool], str] = {}
        for entity in program.entities:
            is_taken = entity.is_edge and (entity.name, False) in self._classes
            name = self._scope.add(f"{entity.name}Edge" if is_taken else entity.name)
            self._classes[entity.name, entity.is_edge] = name
        self._path = self._scope.add("Path")
        self._has_path = False
        self._names: dict[tuple[str, tuple[object, ...]], str] = {}
        """The names of enums, unions and records."""
        self._readers: dict[Shape, str] = {}
        self._entities = {(entity.name, entity.is_edge): entity for entity in program.entities}
        self._blocks: list[list[str]] = []
        self._reader_blocks: list[list[str]] = []
        self._uses: set[str] = set()

    def text(self) -> str:
        for entity in self._program.entities:
            self._add_class(*self._entity_class(entity))
        for query, name in zip(self._program.queries, self._functions, strict=True):
            self._add_query(query, name)
        blocks = [list(self._head()), *self._protocols(), *self._blocks, *self._reader_blocks, *self._shared_readers()]
        return "\n\n\n".join("\n".join(block) for block in blocks) + "\n"

    def _head(self) -> Iterator[str]:
        yield f"# {GENERATED}"
        yield from docstring("The types and the queries of a graph.")
        yield ""
        yield "from __future__ import annotations"
        yield ""
        if self._style is CodeStyle.DATACLASS:
            yield "import dataclasses as _dataclasses"
        if self._uses & {"_date", "_datetime", "dates"}:
            yield "import datetime as _dt"
        yield "import typing as _t"
        packages = {
            "omnigraph": any(query.is_mutation for query in self._program.queries),
            "pydantic": self._style is CodeStyle.PYDANTIC,
        }
        if any(packages.values()):
            yield ""
            yield from (f"import {name} as _{name}" for name, is_used in packages.items() if is_used)

    def _protocols(self) -> Iterator[list[str]]:
        """What the functions need of a graph."""
        kinds = {query.is_mutation for query in self._program.queries}
        values = "_t.Mapping[str, _t.Any] | None = None"
        if self._stored and kinds:
            names = dict.fromkeys((*_STORED_READ_OPTIONS, *_STORED_WRITE_OPTIONS))
            options = ["*", *(f"{name}: str | None = None" for name in names), "expect_mutation: bool | None = None"]
            head = Brackets("def invoke(", ("self", "name: str", f"params: {values}", *options), ") -> _t.Any: ...")
            yield list(_protocol("_Offers", "A graph with stored queries, embedded or remote.", head))
            return
        if False in kinds:
            rows = "_t.Iterable[dict[str, _t.Any]]"
            head = Brackets("def query(", ("self", "source: str", "/", "*", f"params: {values}"), f") -> {rows}: ...")
            yield list(_protocol("_Reads", "A graph, a branch or a snapshot, embedded or remote.", head))
        if True in kinds:
            options = [f"{name}: str | None = None" for name in _WRITE_OPTIONS]
            arguments = ("self", "source: str", "/", "*", f"params: {values}", *options)
            head = Brackets("def mutate(", arguments, ") -> _omnigraph.MutationReceipt: ...")
            yield list(_protocol("_Writes", "A graph or a branch, embedded or remote.", head))

    # Classes

    def _add_class(self, name: str, about: str, fields: Sequence[tuple[str, Field]], generic: str = "") -> None:
        types = [self._type(field.shape, f"{name}_{member}") for member, field in fields]
        base = f"_t.Generic[{generic}]" if generic else ""
        lines: list[str] = []
        if self._style is CodeStyle.PYDANTIC:
            bases = ("_pydantic.BaseModel", *([base] if base else []))
            lines += lines_of(Brackets(f"class {name}(", bases, "):"))
        else:
            head = "@_dataclasses.dataclass(frozen=True, slots=True, kw_only=True)"
            lines += [head, f"class {name}({base}):" if base else f"class {name}:"]
        lines += [*docstring(about, INDENT), ""]
        if self._style is CodeStyle.PYDANTIC:
            lines += [f"{INDENT}model_config = _pydantic.ConfigDict(frozen=True)", ""]
        for (member, field), type_ in zip(fields, types, strict=True):
            lines += annotation(member, type_, INDENT)
            if field.description:
                lines += docstring(field.description, INDENT)
        self._blocks.append(lines)

    def _members(self, fields: Iterable[Field]) -> list[tuple[str, Field]]:
        """Fields with their names in a class."""
        is_model = self._style is CodeStyle.PYDANTIC
        scope = Scope(_RESERVED | _OF_PYDANTIC if is_model else _RESERVED)
        members = []
        for field in fields:
            name = _SYSTEM_FIELDS.get(field.name) or member_name(field.name)
            if is_model:
                name = _public_name(name)
            members.append((scope.add(name), field))
        return members

    def _entity_class(self, entity: EntityClass) -> tuple[str, str, list[tuple[str, Field]]]:
        about = entity.description or f"{'An edge' if entity.is_edge else 'A node'} of the type {entity.name}."
        return self._classes[entity.name, entity.is_edge], about, self._members(entity.fields)

    def _construct(self, name: str, members: Sequence[tuple[str, Field]], source: str) -> Brackets:
        """The call that makes an object of a class of the members of `source`."""
        items: list[Expression] = []
        for member, field in members:
            read = self._read_value(field.shape, index(source, field.name))
            items.append(Brackets(f"{member}={read.opening}", read.items, read.closing, read.comma))
        return call(name, *items)

    # Types

    def _type(self, shape: Shape, hint: str) -> str:
        """The annotation of a value. What has no name of its own gets one from `hint`."""
        match shape:
            case ScalarShape(enum_values=None):
                name = _SCALARS[shape.scalar]
                self._uses |= {"dates"} if name.startswith("_dt") else set()
            case ScalarShape():
                name = self._enum(shape.enum_values or (), hint)
            case ListShape():
                name = f"list[{self._type(shape.item, hint)}]"
            case EntityShape():
                name = self._entity_type(shape)
            case RecordShape():
                name = self._record(shape, hint)
            case PathShape():
                self._add_path()
                name = f"{self._path}[{self._entity_type(shape.nodes)}, {self._entity_type(shape.edges)}]"
        return f"{name} | None" if shape.nullable and name != "None" else name

    def _enum(self, values: tuple[str, ...], hint: str) -> str:
        if ("enum", values) not in self._names:
            name = self._names["enum", values] = self._scope.add(pascal_case(hint))
            members = Brackets("_t.Literal[", tuple(map(literal, values)), "]")
            self._blocks.append(list(lines_of(members, before=f"{name}: _t.TypeAlias = ")))
        return self._names["enum", values]

    def _entity_type(self, shape: EntityShape) -> str:
        names = tuple(self._classes[name, shape.is_edge] for name in shape.type_names)
        if len(names) < 2:
            return names[0] if names else "None"
        if ("union", names) not in self._names:
            name = self._names["union", names] = self._scope.add(union_name(names, shape.is_edge))
            self._blocks.append(list(union(name, names)))
        return self._names["union", names]

    def _record(self, shape: RecordShape, hint: str) -> str:
        if ("record", shape.fields) not in self._names:
            name = self._names["record", shape.fields] = self._scope.add(pascal_case(hint))
            self._add_class(name, "A record.", self._members(shape.fields))
        return self._names["record", shape.fields]

    def _add_path(self) -> None:
        if not self._has_path:
            self._has_path = True
            self._blocks += [['_Node = _t.TypeVar("_Node")'], ['_Edge = _t.TypeVar("_Edge")']]
            self._add_path_class()

    def _add_path_class(self) -> None:
        lines = [f"{INDENT}length: int", f"{INDENT}nodes: list[_Node]", f"{INDENT}edges: list[_Edge]"]
        self._add_class(self._path, "A walk: one node more than edges.", (), "_Node, _Edge")
        self._blocks[-1] += lines

    # Reading values

    def _read_value(self, shape: Shape, value: Brackets) -> Brackets:
        """The expression that makes a value of what a result holds."""
        if isinstance(shape, ListShape):
            read = self._reader(shape.item)
            if read is None:
                return value
            self._uses.add("_list")
            return call("_list", read, value)
        read = self._reader(shape)
        return value if read is None else call(read, value)

    def _reader(self, shape: Shape) -> str | None:
        """The function that reads such values; None where they are what they should be."""
        match shape:
            case ScalarShape():
                name = _scalar_reader(shape)
                self._uses |= set() if name is None else {name}
                return name
            case ListShape():
                read = self._reader(shape.item)
                self._uses |= set() if read is None else {"_list"}
                return None if read is None else f"lambda items: _list({read}, items)"
            case EntityShape(type_names=()):
                return None
        bare = replace(shape, nullable=False)
        if bare not in self._readers:
            name = self._readers[bare] = self._scope.add(f"_read_{snake_case(self._type(bare, ''))}")
            made = self._reader_body(bare)
            guard = [f"{INDENT}if value is None:", f"{INDENT * 2}return None"]
            head = lines_of(Brackets(f"def {name}(", (_VALUE,), ") -> _t.Any:"))
            self._reader_blocks.append([*head, *guard, *made])
        return self._readers[bare]

    def _reader_body(self, shape: EntityShape | RecordShape | PathShape) -> list[str]:
        match shape:
            case EntityShape(type_names=(only,)):
                members = self._members(self._entities[only, shape.is_edge].fields)
                made = self._construct(self._classes[only, shape.is_edge], members, "value")
            case EntityShape():
                single = {name: self._reader(EntityShape((name,), shape.is_edge)) for name in shape.type_names}
                readers = Brackets("{", tuple(f"{literal(name)}: {read}" for name, read in single.items()), "}")
                table = list(lines_of(readers, INDENT, before="readers = "))
                return [*table, f'{INDENT}return readers[value["@type"]](value)']
            case RecordShape():
                made = self._construct(self._names["record", shape.fields], self._members(shape.fields), "value")
            case PathShape():
                fields: dict[str, Shape] = {"length": ScalarShape(Scalar.I64), "nodes": ListShape(shape.nodes)}
                fields["edges"] = ListShape(shape.edges)
                made = self._construct(
                    self._path, [(name, Field(name, part)) for name, part in fields.items()], "value"
                )
        return list(lines_of(made, INDENT, before="return "))

    def _shared_readers(self) -> Iterator[list[str]]:
        bodies = {
            "_float": "float(value)",
            "_date": "_dt.date.fromisoformat(value)",
            "_datetime": "_dt.datetime.fromisoformat(value)",
        }
        for name, made in bodies.items():
            if name in self._uses:
                yield [f"def {name}({_VALUE}) -> _t.Any:", f"{INDENT}return None if value is None else {made}"]
        if "_list" in self._uses:
            head = Brackets("def _list(", ("read: _t.Callable[[_t.Any], _t.Any]", _VALUE), ") -> _t.Any:")
            yield [*lines_of(head), f"{INDENT}return None if value is None else [read(item) for item in value]"]

    # Functions

    def _add_query(self, query: QueryFunction, name: str) -> None:
        protocol = "_Offers" if self._stored else "_Writes" if query.is_mutation else "_Reads"
        options: tuple[str, ...] = _WRITE_OPTIONS if query.is_mutation else ()
        if self._stored:
            options = _STORED_WRITE_OPTIONS if query.is_mutation else _STORED_READ_OPTIONS
        returns, members = "_omnigraph.MutationReceipt", self._members(query.columns)
        if not query.is_mutation:
            row = self._scope.add(f"{pascal_case(query.name)}Row")
            returns = f"list[{row}]"
            self._add_class(row, f"A row of the query `{query.name}`.", members)
        if not self._stored:
            self._blocks.append(list(text_block(f"_{name.upper()}", query.text)))
        scope = Scope(_RESERVED)
        parameters = {field.name: scope.add(field.name) for field in query.parameters}
        passed = {option: scope.add(option) for option in options}
        graph, params, rows, each = (scope.add(local) for local in ("graph", "params", "rows", "row"))
        arguments = [self._parameter(parameters[field.name], field) for field in query.parameters]
        arguments += [f"{option}: str | None = None" for option in passed.values()]
        head = (f"{graph}: {protocol}", *(["*"] if arguments else []), *arguments)
        lines = [*lines_of(Brackets(f"def {name}(", head, f") -> {returns}:"))]
        lines += docstring(query.description or f"Run the query `{query.name}`.", INDENT)
        if parameters:
            entries = tuple(f"{literal(key)}: {argument}" for key, argument in parameters.items())
            lines += lines_of(Brackets(f"{params}: dict[str, _t.Any] = {{", entries, "}"), INDENT)
        keywords = [f"params={params}"] if parameters else []
        run = self._run(query, name, graph, [*keywords, *(f"{option}={value}" for option, value in passed.items())])
        if query.is_mutation:
            result = call("_t.cast", returns, run) if self._stored else run
            lines += lines_of(result, INDENT, before="return ")
        else:
            lines += lines_of(run, INDENT, before=f"{rows} = ")
            lines += comprehension(self._construct(row, members, each), f"for {each} in {rows}", INDENT)
        self._blocks.append(lines)

    def _parameter(self, name: str, field: Field) -> str:
        return f"{name}: {self._type(field.shape, name)}{' = None' if field.shape.nullable else ''}"

    def _run(self, query: QueryFunction, name: str, graph: str, arguments: Sequence[str]) -> Brackets:
        """The call of the graph."""
        if self._stored:
            return call(f"{graph}.invoke", literal(query.name), *arguments, f"expect_mutation={query.is_mutation}")
        return call(f"{graph}.{'mutate' if query.is_mutation else 'query'}", f"_{name.upper()}", *arguments)


def _protocol(name: str, about: str, method: Brackets) -> Iterator[str]:
    yield f"class {name}(_t.Protocol):"
    yield from docstring(about, INDENT)
    yield ""
    yield from lines_of(method, INDENT)


def _public_name(name: str) -> str:
    """The name of a field of a pydantic model, which takes names with an underscore for private ones."""
    bare = name.lstrip("_")
    bare = bare if bare[:1].isalpha() else f"field{name}"
    return f"{bare}_" if bare.startswith("model_") else bare


def _scalar_reader(shape: ScalarShape) -> str | None:
    if shape.scalar in (Scalar.DATE, Scalar.DATETIME):
        return f"_{shape.scalar.value.lower()}"
    return "_float" if shape.computed and shape.scalar in FLOATS else None
