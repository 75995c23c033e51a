"""Writes the TypeScript module of a program: interfaces of types and rows, and one function for each query.

The functions call a server with the client of `client.ts`, which is a part of every module. Interfaces show values as
HTTP sends them; only calculated floats are converted, because JSON has no form for `NaN`. The text passes
`tsc --strict` and needs no package.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

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
from omnigraph.codegen.names import Scope, camel_case, pascal_case
from omnigraph.language.types import FLOATS, Scalar


def _split(names: str) -> frozenset[str]:
    return frozenset(names.split())


_CLIENT: Final = Path(__file__).with_name("client.ts")
_DECLARED: Final = re.compile(r"^(?:export )?(?:class|function|interface|type) (\w+)", re.MULTILINE)
_WORDS: Final = _split(
    "arguments async await break case catch class const continue debugger default delete do else enum eval export "
    "extends false finally for function if implements import in instanceof interface let new null package private "
    "protected public return static super switch this throw true try typeof var void while with yield"
)
_TYPE_WORDS: Final = _split("any bigint boolean never number object string symbol undefined unknown")
_GLOBALS: Final = _split(
    "AbortSignal Array Error JSON Number Object Partial Promise RangeError RegExp Response String encodeURIComponent "
    "fetch globalThis"
)
_READERS: Final = {
    "float": """\
/** A calculated number, which may come as "NaN", "Infinity" or "-Infinity". */
function float(value: number | string): number {
  return Number(value);
}""",
    "each": """\
function each<T, R>(value: T[] | null, read: (item: T) => R): any {
  return value === null ? null : value.map(read);
}""",
    "present": """\
function present<T, R>(value: T | null, read: (value: T) => R): any {
  return value === null ? null : read(value);
}""",
}
"""The functions that convert values. A module has those that it uses."""
_SCALARS: Final = {
    Scalar.BOOL: "boolean",
    Scalar.DATE: "DateText",
    Scalar.DATETIME: "DateTimeText",
    Scalar.I64: "Integer64",
    Scalar.U64: "Integer64",
    **dict.fromkeys((Scalar.I32, Scalar.U32, *FLOATS), "number"),
}
_IDENTIFIER: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_LONGEST_LINE: Final = 100


def write_typescript(program: Program, *, stored: bool = False) -> str:
    """The text of the module. With `stored` its functions run queries that the server offers by name; otherwise they
    send their texts."""
    return _Module(program, stored).text()


class _Module:
    """One module while it is written: the names that are in use, and the parts of its text."""

    def __init__(self, program: Program, stored: bool) -> None:
        self._program, self._stored = program, stored
        self._client = _CLIENT.read_text("utf-8").rstrip("\n")
        taken = {*_WORDS, *_GLOBALS, *_READERS, *_DECLARED.findall(self._client)}
        self._values, self._types = Scope({*taken, "client", "options", "params", "rows"}), Scope(taken | _TYPE_WORDS)
        self._functions = [self._values.add(camel_case(query.name)) for query in program.queries]
        self._classes: dict[tuple[str, bool], str] = {}
        for entity in program.entities:
            is_taken = entity.is_edge and (entity.name, False) in self._classes
            name = self._types.add(f"{entity.name}Edge" if is_taken else entity.name)
            self._classes[entity.name, entity.is_edge] = name
        self._names: dict[tuple[str, tuple[object, ...]], str] = {}
        self._parts: list[str] = []

    def text(self) -> str:
        for entity in self._program.entities:
            self._add_entity(entity)
        for query, name in zip(self._program.queries, self._functions, strict=True):
            self._add_query(query, name)
        written = "\n".join(self._parts)
        readers = [text for name, text in _READERS.items() if re.search(rf"\b{name}\(|, {name}\)", written)]
        return "\n\n".join([f"// {GENERATED}\n/* eslint-disable */", self._client, *self._parts, *readers]) + "\n"

    # Types

    def _add_entity(self, entity: EntityClass) -> None:
        first, *rest = entity.fields
        type_name = f'  "@type": {json.dumps(entity.name)};'
        name = self._classes[entity.name, entity.is_edge]
        members = [*self._members([first], name), type_name, *self._members(rest, name)]
        self._add_interface(name, members, entity.description)

    def _add_interface(self, name: str, members: Sequence[str], about: str | None = None) -> None:
        self._parts.append("\n".join([*_comment(about), f"export interface {name} {{", *members, "}"]))

    def _members(self, fields: Iterable[Field], owner: str) -> list[str]:
        lines: list[str] = []
        for field in fields:
            lines += _comment(field.description, "  ")
            lines.append(f"  {_key(field.name)}: {self._type(field.shape, f'{owner}_{field.name}')};")
        return lines

    def _type(self, shape: Shape, hint: str) -> str:
        """The type of a value. What has no name of its own gets one from `hint`."""
        match shape:
            case ScalarShape(enum_values=None):
                name = "number" if shape.is_count else _SCALARS.get(shape.scalar, "string")
            case ScalarShape():
                name = self._alias("enum", shape.enum_values or (), hint)
            case ListShape():
                item = self._type(shape.item, hint)
                name = f"({item})[]" if " | " in item else f"{item}[]"
            case EntityShape():
                name = self._entity_type(shape)
            case RecordShape():
                name = self._record(shape, hint)
            case PathShape():
                name = f"Path<{self._entity_type(shape.nodes)}, {self._entity_type(shape.edges)}>"
        return f"{name} | null" if shape.nullable and name != "null" else name

    def _entity_type(self, shape: EntityShape) -> str:
        names = tuple(self._classes[name, shape.is_edge] for name in shape.type_names)
        if len(names) < 2:
            return names[0] if names else "null"
        return self._alias("union", names, union_name(names, shape.is_edge))

    def _alias(self, kind: str, members: tuple[str, ...], hint: str) -> str:
        """The alias for one of several values or types."""
        if (kind, members) not in self._names:
            name = self._types.add(pascal_case(hint) if kind == "enum" else hint)
            self._names[kind, members] = name
            written = [json.dumps(each) if kind == "enum" else each for each in members]
            line = f"export type {name} = {' | '.join(written)};"
            lines = "".join(f"\n  | {each}" for each in written)
            self._parts.append(line if len(line) <= _LONGEST_LINE else f"export type {name} ={lines};")
        return self._names[kind, members]

    def _record(self, shape: RecordShape, hint: str) -> str:
        if ("record", shape.fields) not in self._names:
            name = self._names["record", shape.fields] = self._types.add(pascal_case(hint))
            self._add_interface(name, self._members(shape.fields, name))
        return self._names["record", shape.fields]

    # Functions

    def _add_query(self, query: QueryFunction, name: str) -> None:
        base = pascal_case(query.name)
        parameters, params = "", "{}"
        if query.parameters:
            type_name = self._types.add(f"{base}Parameters")
            self._add_parameters(type_name, query.parameters)
            default = " = {}" if all(field.shape.nullable for field in query.parameters) else ""
            parameters, params = f"params: {type_name}{default}", "params"
        text = json.dumps(query.name) if self._stored else self._values.add(query.name.upper())
        if query.is_mutation:
            returns, options = "MutationReceipt", "WriteOptions"
        else:
            row = self._types.add(f"{base}Row")
            self._add_interface(row, self._members(query.columns, row))
            returns, options = f"{row}[]", "ReadOptions"
        if not self._stored:
            self._parts.append(f"const {text} = {_template(query.text)};")
        method = ("mutate" if query.is_mutation else "query") + ("Stored" if self._stored else "")
        body = [f"  return client.{method}({text}, {params}, options);"]
        if conversions := [] if query.is_mutation else list(_conversions(query.columns, "row")):
            rows = f"  const rows = await client.{method}({text}, {params}, options);"
            body = [rows, f"  return rows.map((row) => ({{ ...row, {', '.join(conversions)} }}));"]
        arguments = ["client: GraphClient", *([parameters] if parameters else []), f"options: {options} = {{}}"]
        head = f"export async function {name}({', '.join(arguments)}): Promise<{returns}> {{"
        if len(head) > _LONGEST_LINE:
            listed = "".join(f"\n  {argument}," for argument in arguments)
            head = f"export async function {name}({listed}\n): Promise<{returns}> {{"
        about = query.description or f"Run the query `{query.name}`."
        self._parts.append("\n".join([*_comment(about), head, *body, "}"]))

    def _add_parameters(self, name: str, fields: Iterable[Field]) -> None:
        members = []
        for field in fields:
            mark = "?" if field.shape.nullable else ""
            members.append(f"  {_key(field.name)}{mark}: {self._type(field.shape, f'{name}_{field.name}')};")
        self._add_interface(name, members)


def _conversions(fields: Iterable[Field], source: str) -> Iterator[str]:
    """The members of an object that have to be converted, with the expressions that do so."""
    for field in fields:
        key = json.dumps(field.name)
        value = f"{source}.{field.name}" if _key(field.name) == field.name else f"{source}[{key}]"
        converted = _convert(field.shape, value)
        if converted is not None:
            yield f"{_key(field.name)}: {converted}"


def _convert(shape: Shape, value: str, depth: int = 0) -> str | None:
    """The expression that converts a value; None where it is what it should be."""
    item = f"value{depth or ''}"
    match shape:
        case ScalarShape(computed=True) if shape.scalar in FLOATS:
            return f"present({value}, float)" if shape.nullable else f"float({value})"
        case ListShape():
            converted = _convert(shape.item, item, depth + 1)
            return None if converted is None else f"each({value}, ({item}: any) => {converted})"
        case RecordShape():
            members = list(_conversions(shape.fields, item))
            made = f"({item}: any) => ({{ ...{item}, {', '.join(members)} }})"
            return f"present({value}, {made})" if members else None
    return None


def _key(name: str) -> str:
    return name if _IDENTIFIER.fullmatch(name) else json.dumps(name)


def _comment(text: str | None, indent: str = "") -> Iterator[str]:
    if text:
        line = " ".join("".join(each if each.isprintable() else " " for each in text).split()).replace("*/", "*\\/")
        yield f"{indent}/** {line} */"


def _template(text: str) -> str:
    """The text as a template literal, which may have several lines."""
    escaped = text.replace("\\", "\\\\").replace("`", "\\`").replace("${", "\\${")
    return "`" + escaped.replace("\r", "\\r").replace("\0", "\\0") + "`"
