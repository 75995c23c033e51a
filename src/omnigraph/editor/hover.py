"""What an editor shows about the word under the cursor: its type, its declaration and its documentation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from omnigraph.editor import words
from omnigraph.editor.documents import Document, Kind
from omnigraph.editor.navigation import occurrences_in
from omnigraph.editor.projects import Workspace
from omnigraph.editor.schema_symbols import TYPE_KINDS, Occurrence, SymbolKind, occurrence_at
from omnigraph.editor.yaml_files import key_at, yaml_place
from omnigraph.language.catalog import AnyType, Catalog, EdgeType, InterfaceType, NodeType, Property
from omnigraph.language.query.functions import signatures_of
from omnigraph.language.query.value_types import EntityType
from omnigraph.language.source import TextSpan

_WORD: Final = re.compile(r"@?[A-Za-z_]\w*", re.ASCII)


class Hover(Struct, frozen=True):
    """Markdown about a part of a text."""

    at: TextSpan
    text: str


def hover(workspace: Workspace, document: Document, offset: int) -> Hover | None:
    occurrences = occurrences_in(workspace, document)
    if document.text[offset : offset + 1] == "$":
        offset += 1
    occurrence = occurrence_at(occurrences, offset)
    if occurrence is not None and (text := _describe(workspace, document, occurrence)):
        return Hover(occurrence.at, text)
    if document.kind in (Kind.SCHEMA, Kind.QUERIES):
        return _word_hover(document, offset)
    return _key_hover(document, offset)


def _code(*lines: str) -> str:
    return "\n".join(["```omnigraph", *lines, "```"])


def _join(*paragraphs: str | None) -> str:
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph)


def _describe(workspace: Workspace, document: Document, occurrence: Occurrence) -> str:
    symbol = occurrence.symbols[0]
    if symbol.kind in (SymbolKind.VARIABLE, SymbolKind.PARAMETER):
        return _describe_variable(workspace, document, occurrence)
    if symbol.kind is SymbolKind.QUERY:
        query = next(q for q in workspace.queries(document).queries if q.name.at.start == occurrence.at.start)
        return _join(_code(f"query {symbol.name}"), query.description, query.instruction)
    if symbol.kind is SymbolKind.FUNCTION:
        return _describe_function(symbol.name)
    path = document.path
    if document.kind is not Kind.SCHEMA:
        schemas = workspace.choose_schema(document).schemas
        if not schemas:
            return ""
        path = schemas[0]
    schema = workspace.valid_schema(path)
    if schema is None or schema.catalog is None:
        return ""
    if symbol.kind in TYPE_KINDS:
        type_ = _type_of_key(schema.catalog, f"{symbol.kind}:{symbol.name}")
        return "" if type_ is None else describe_type(type_, schema.catalog)
    return _describe_properties(schema.catalog, occurrence)


def _type_of_key(catalog: Catalog, key: str) -> AnyType | None:
    return next((type_ for type_ in catalog.types() if type_.type_key == key), None)


# ---- schemas --------------------------------------------------------------------------------------------


def describe_type(type_: AnyType, catalog: Catalog) -> str:
    """A type with its documentation, its rules, its properties, and the edges at a node."""
    head = f"{type_.kind} {type_.name}"
    lines: list[str] = []
    if isinstance(type_, EdgeType):
        card = "" if str(type_.cardinality) == "0.." else f" @card({type_.cardinality})"
        head += f": {type_.from_type} -> {type_.to_type}{card}"
    elif isinstance(type_, NodeType) and type_.implements:
        head += f" implements {', '.join(type_.implements)}"
    properties = [f"    {prop.name}: {prop.type}" for prop in type_.property_list]
    code = _code(f"{head} {{", *properties, "}") if properties else _code(head)
    if isinstance(type_, InterfaceType):
        names = [node.name for node in catalog.nodes.values() if type_.name in node.implements]
        about = f"Implemented by {', '.join(names)}." if names else "Implemented by no node type."
        edges = [edge for edge in catalog.edges.values() if _is_end(type_, edge)]
        return _join(code, about, "\n".join(map(_edge_line, edges)))
    lines += [f"* {rule}" for rule in _rules_of_type(type_)]
    if isinstance(type_, NodeType):
        lines += map(_edge_line, catalog.incident_edges(type_.name))
    return _join(code, type_.description, type_.instruction, "\n".join(lines))


def _edge_line(edge: EdgeType) -> str:
    return f"* `{edge.name}: {edge.from_type} -> {edge.to_type}`"


def _is_end(interface: InterfaceType, edge: EdgeType) -> bool:
    named = ((edge.from_type, edge.from_interface), (edge.to_type, edge.to_interface))
    return any(name == interface.name and members is not None for name, members in named)


def _rules_of_type(type_: NodeType | EdgeType) -> Iterator[str]:
    if type_.key:
        yield f"`@key({', '.join(type_.key)})`"
    for rule, tuples in (("unique", type_.uniques), ("index", type_.indexes)):
        for names in tuples:
            if len(names) > 1:
                yield f"`@{rule}({', '.join(names)})`"


def _describe_properties(catalog: Catalog, occurrence: Occurrence) -> str:
    name = occurrence.symbols[0].name
    parts = []
    for owner in dict.fromkeys(occurrence.owners):
        type_ = _type_of_key(catalog, owner)
        if type_ is not None and (prop := type_.properties.get(name)) is not None:
            parts.append(describe_property(type_, prop))
    return "\n\n".join(parts)


def describe_property(owner: AnyType, prop: Property) -> str:
    rules = "\n".join(f"* {rule}" for rule in _rules_of_property(owner, prop))
    return _join(_code(f"{owner.name}.{prop.name}: {prop.type}"), prop.description, rules)


def _rules_of_property(owner: AnyType, prop: Property) -> Iterator[str]:
    if isinstance(owner, InterfaceType):
        return
    name = prop.name
    if name in owner.key:
        yield f"`@key({', '.join(owner.key)})`" if len(owner.key) > 1 else "`@key`"
    for rule, tuples in (("unique", owner.uniques), ("index", owner.indexes)):
        for names in tuples:
            if name in names:
                yield f"`@{rule}`" if len(names) == 1 else f"`@{rule}({', '.join(names)})`"
    if isinstance(owner, NodeType):
        for bounds in owner.ranges:
            if bounds.property == name:
                low, high = ("" if bound is None else bound for bound in (bounds.low, bounds.high))
                yield f"`@range({name}, {low}..{high})`"
        for check in owner.checks:
            if check.property == name:
                yield f'`@check({name}, "{check.pattern}")`'
    if prop.embed is not None:
        when = "by every write" if prop.embed.on_write else "outside"
        yield f"made from `{prop.embed.property}`, {when}"
    if prop.type.is_vector:
        yield f"distance: {prop.distance}"
    if prop.interfaces:
        yield f"of {', '.join(prop.interfaces)}"


# ---- queries --------------------------------------------------------------------------------------------


def _describe_variable(workspace: Workspace, document: Document, occurrence: Occurrence) -> str:
    queries = workspace.queries(document)
    symbol = occurrence.symbols[0]
    type_ = queries.type_of(occurrence)
    shown = str(type_ or _declared_parameter(document, occurrence, queries.occurrences) or "unknown")
    sign = "" if document.text[occurrence.at.start - 1 : occurrence.at.start] != "$" else "$"
    what = "parameter " if symbol.kind is SymbolKind.PARAMETER else ""
    text = _code(f"{what}{sign}{symbol.name}: {shown}")
    members = type_.members if isinstance(type_, EntityType) else ()
    ends = [_edge_line(member) for member in members if isinstance(member, EdgeType)]
    return _join(text, "\n".join(ends), *(member.description for member in members))


def _declared_parameter(document: Document, occurrence: Occurrence, all_: Iterable[Occurrence]) -> str | None:
    """The type that is written behind the declaration of a parameter."""
    if occurrence.symbols[0].kind is not SymbolKind.PARAMETER:
        return None
    declared = next((each for each in all_ if each.symbols == occurrence.symbols and each.declares), occurrence)
    written = re.compile(r"\s*:\s*(\[?\s*\w+(?:\(\d+\))?\s*\]?\??)").match(document.text, declared.at.end)
    return None if written is None else written[1]


def _describe_function(name: str) -> str:
    signatures = signatures_of(name)
    return _join(_code(*signatures), words.FUNCTIONS.get(name)) if signatures else ""


# ---- words ----------------------------------------------------------------------------------------------


def _word_hover(document: Document, offset: int) -> Hover | None:
    """A word of the language: an annotation, a function of its own grammar, a keyword."""
    start = document.text.rfind("\n", 0, offset) + 1
    for match in _WORD.finditer(document.text, start):
        if match.start() > offset:
            return None
        if match.end() >= offset:
            is_call = document.text[match.end() :].lstrip()[:1] == "("
            text = _describe_word(document, match.group(), is_call=is_call)
            return Hover(TextSpan(*match.span()), text) if text else None
    return None


def _describe_word(document: Document, word: str, *, is_call: bool) -> str:
    if document.kind is Kind.SCHEMA:
        annotations = [each for each in words.ANNOTATIONS if f"@{each.name}" == word]
        return _join(*dict.fromkeys(each.text for each in annotations))
    bare = word.removeprefix("@")
    if word.startswith("@"):
        fields = {field.value: text for field, text in words.META_FIELDS.items()}
        return words.QUERY_META.get(bare) or fields.get(word, "")
    called = {**{name.value: each for name, each in words.AGGREGATES.items()}, **words.SEARCHES}
    if is_call and word in called:
        return _join(_code(called[word][0]), called[word][1])
    if is_call and (text := _describe_function(word)):
        return text
    keywords = {**words.BODY_KEYWORDS, **words.CLAUSE_KEYWORDS, **words.PATH_MODES, **words.OPERATORS}
    return keywords.get(word, "")


def _key_hover(document: Document, offset: int) -> Hover | None:
    """A key of a YAML file."""
    line = document.text.rfind("\n", 0, offset) + 1
    for match in re.finditer(r"[\w-]+(?=[\"']?\s*:)", document.text[line:].partition("\n")[0]):
        start, end = line + match.start(), line + match.end()
        if start <= offset <= end:
            place = yaml_place(document.text, start)
            key = None
            if place is not None and place.is_key and document.kind is not None:
                key = key_at(document.kind, (*place.path, match.group()))
            return Hover(TextSpan(start, end), key.text) if key is not None and key.text else None
    return None
