"""Definitions, references and renames of names, and the outline of a document.

A rename changes every file of the workspace that uses the schema, or none: the result is compiled before it is offered,
and a rename that would break a file is refused. Renaming a type or a property of a schema also notes the old name in
`@rename_from`, so that a graph that has the schema keeps its data.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NoReturn

from msgspec import Struct
from msgspec.structs import replace

from omnigraph.editor.diagnostics import diagnose
from omnigraph.editor.documents import Document, Edit, Edits, Kind, Location, apply_edits
from omnigraph.editor.projects import Workspace
from omnigraph.editor.schema_symbols import (
    TYPE_KINDS,
    Occurrence,
    SchemaIndex,
    Symbol,
    SymbolKind,
    kind_of_declaration,
    occurrence_at,
    properties_of,
)
from omnigraph.editor.yaml_files import entries, read_root, text_of, written_at, yaml_links, yaml_occurrences
from omnigraph.errors import BadRequestError
from omnigraph.language.query.formatter import spell_parameter_type
from omnigraph.language.query.tokens import scan
from omnigraph.language.schema import syntax as schema_syntax
from omnigraph.language.source import TextSpan, quote


class RenameError(BadRequestError):
    """A name can't be changed, or not to this one."""


# ---- names ----------------------------------------------------------------------------------------------


def occurrences_in(workspace: Workspace, document: Document) -> tuple[Occurrence, ...]:
    if document.kind is Kind.SCHEMA:
        schema = workspace.schema(document.path)
        return () if schema is None else schema.occurrences
    if document.kind is Kind.QUERIES:
        return workspace.queries(document).occurrences
    if document.kind in (Kind.PIPELINE, Kind.POLICY):
        return yaml_occurrences(workspace, document)
    return ()


def schema_of(workspace: Workspace, document: Document) -> SchemaIndex | None:
    """The schema that a document is, or belongs to."""
    if document.kind is Kind.SCHEMA:
        return workspace.schema(document.path)
    schemas = workspace.choose_schema(document).schemas
    return workspace.schema(schemas[0]) if schemas else None


def _name_at(workspace: Workspace, document: Document, offset: int) -> Occurrence | None:
    """The name at the cursor; the `$` of a variable belongs to it."""
    occurrences = occurrences_in(workspace, document)
    if document.text[offset : offset + 1] == "$":
        offset += 1
    return occurrence_at(occurrences, offset)


# ---- definitions and references -------------------------------------------------------------------------


def definition(workspace: Workspace, document: Document, offset: int) -> tuple[Location, ...]:
    for link in yaml_links(workspace, document):
        if link.at.start <= offset <= link.at.end:
            return (link.target,)
    occurrence = _name_at(workspace, document, offset)
    if occurrence is None:
        return ()
    if occurrence.symbols[0].is_of_schema:
        schema = schema_of(workspace, document)
        declared_at = () if schema is None else _declarations(schema, occurrence)
        # Positions take no part in comparing, so that the key spells them out.
        return tuple({(each.path, each.at.start): each for each in declared_at}.values())
    same = [each for each in occurrences_in(workspace, document) if each.symbols == occurrence.symbols]
    declared = [each for each in same if each.declares] or same[:1]
    return tuple(Location(document.path, each.at) for each in declared[:1])


def _declarations(schema: SchemaIndex, occurrence: Occurrence) -> Iterator[Location]:
    for symbol in occurrence.symbols:
        if symbol.kind in TYPE_KINDS:
            declaration = schema.types.get(f"{symbol.kind}:{symbol.name}")
            if declaration is not None:
                yield Location(schema.path, declaration.name.at)
    if occurrence.symbols[0].kind is SymbolKind.PROPERTY:
        for owner in occurrence.owners:
            declared = schema.declaration_of(owner, occurrence.symbols[0].name)
            if declared is not None:
                yield Location(schema.path, declared[1].name.at)


def references(workspace: Workspace, document: Document, offset: int, *, declarations: bool) -> tuple[Location, ...]:
    """Every place of a name; with `declarations` those that declare it too."""
    occurrence = _name_at(workspace, document, offset)
    if occurrence is None:
        return ()
    symbols = set(occurrence.symbols)
    return tuple(
        Location(user.path, each.at)
        for user in _users(workspace, document, occurrence)
        for each in occurrences_in(workspace, user)
        if symbols.intersection(each.symbols) and (declarations or not each.declares)
    )


def _users(workspace: Workspace, document: Document, occurrence: Occurrence) -> Iterator[Document]:
    """The documents that may have a name: the schema and all that belong to it, or one query file."""
    schema = schema_of(workspace, document) if occurrence.symbols[0].is_of_schema else None
    if schema is None:
        yield document
        return
    declaring = workspace.document(schema.path)
    if declaring is not None:
        yield declaring
    yield from workspace.users_of(schema.path)


# ---- renames --------------------------------------------------------------------------------------------

_NAME: Final = {kind: re.compile(r"[a-z_][A-Za-z0-9_]*") for kind in SymbolKind} | dict.fromkeys(
    TYPE_KINDS, re.compile(r"[A-Z][A-Za-z0-9_]*")
)
_RENAMED: Final = {*TYPE_KINDS, SymbolKind.PROPERTY, SymbolKind.VARIABLE, SymbolKind.PARAMETER}


def renamable(workspace: Workspace, document: Document, offset: int) -> TextSpan | None:
    """The name at the cursor, if it is one that can be renamed."""
    occurrence = _name_at(workspace, document, offset)
    return None if occurrence is None or occurrence.symbols[0].kind not in _RENAMED else occurrence.at


def rename(workspace: Workspace, document: Document, offset: int, name: str) -> Edits:
    """The edits that give the name at the cursor another one. Raises `RenameError`."""
    occurrence = _name_at(workspace, document, offset)
    if occurrence is None or occurrence.symbols[0].kind not in _RENAMED:
        raise RenameError("only types, properties, edges, variables and parameters can be renamed")
    symbol = occurrence.symbols[0]
    if symbol.kind in (SymbolKind.VARIABLE, SymbolKind.PARAMETER):
        name = name.removeprefix("$")
    elif symbol.kind is SymbolKind.EDGE:
        name = name[:1].upper() + name[1:]  # a traversal spells it with a small letter
    if _NAME[symbol.kind].fullmatch(name) is None:
        letter = "an uppercase letter" if symbol.kind in TYPE_KINDS else "a lowercase letter or _"
        raise RenameError(
            f"'{name}' can't be the name of a {symbol.kind}: it needs letters, digits and _ after {letter}"
        )
    if len(occurrence.symbols) > 1:
        _refuse_several(occurrence.symbols)
    if not symbol.is_of_schema:
        _refuse_taken(occurrences_in(workspace, document), document.text, symbol, name)
    edits: dict[Document, list[Edit]] = {}
    for user in _users(workspace, document, occurrence):
        if changes := list(_renames(workspace, user, symbol, name)):
            edits[user] = changes
    _check_result(workspace, edits)
    return {user.path: changes for user, changes in edits.items()}


def _refuse_several(symbols: Iterable[Symbol]) -> NoReturn:
    owners = ", ".join(f"{symbol.owner.partition(':')[2]}.{symbol.name}" for symbol in symbols)
    raise RenameError(
        f"the name is that of several properties ({owners}); rename each in the schema, after queries that read them "
        "through one variable were rewritten"
    )


def _refuse_taken(occurrences: Iterable[Occurrence], text: str, symbol: Symbol, name: str) -> None:
    """Refuse the name of another variable of the query: the two would be one. A column may be called so."""
    query = symbol.owner.partition(":")[0]
    for occurrence in occurrences:
        other = occurrence.symbols[0]
        is_variable = text[occurrence.at.start - 1 : occurrence.at.start] == "$"
        if is_variable and other.name == name and other != symbol and other.owner.partition(":")[0] == query:
            raise RenameError(f"'${name}' is already a variable of this query")


def _renames(workspace: Workspace, user: Document, symbol: Symbol, name: str) -> Iterator[Edit]:
    if symbol.is_of_schema:
        _refuse_unreadable(workspace, user, symbol)
    for occurrence in occurrences_in(workspace, user):
        if symbol not in occurrence.symbols:
            continue
        if len(occurrence.symbols) > 1:
            _refuse_several(occurrence.symbols)
        first = user.text[occurrence.at.start : occurrence.at.start + 1]
        is_small = symbol.kind is SymbolKind.EDGE and first.islower()
        yield Edit(occurrence.at, name[:1].lower() + name[1:] if is_small else name)
    if user.kind is Kind.SCHEMA and symbol.is_of_schema:
        schema = workspace.schema(user.path)
        assert schema is not None, "its occurrences were just read"
        yield from _hints(schema, symbol, name)


def _refuse_unreadable(workspace: Workspace, user: Document, symbol: Symbol) -> None:
    """Refuse a rename where a part of a file that does not parse may use the name."""
    wanted = symbol.name.lower()
    if user.kind is Kind.SCHEMA:
        schema = workspace.schema(user.path)
        unread = "" if schema is None or schema.catalog is not None else wanted
    elif user.kind is Kind.QUERIES:
        queries = workspace.queries(user)
        spans = [query.at for query in queries.queries]
        tokens = scan(user.text)[0] if queries.diagnostics else ()
        unread = " ".join(t.lower() for t in tokens if not any(at.start <= t.start_pos < at.end for at in spans))
    else:
        unread = user.text.lower() if read_root(user.text) is None else ""
    if wanted in unread:
        raise RenameError(f"{user.path.name} has mistakes and mentions '{symbol.name}'; correct them first")


def _hints(schema: SchemaIndex, symbol: Symbol, name: str) -> Iterator[Edit]:
    """`@rename_from` for every declaration of a type or a property. An earlier hint stays: a graph has that name. One
    that names the new name goes."""
    for declaration in schema.declarations:
        is_type = symbol == Symbol(kind_of_declaration(declaration), declaration.name.text)
        if is_type and not isinstance(declaration, schema_syntax.Interface):
            annotations, end = declaration.annotations, declaration.name.at.end
            if isinstance(declaration, schema_syntax.Edge):
                end = max(part.at.end for part in (declaration.target, declaration.card, *annotations) if part)
            yield from _hint(schema.text, annotations, end, symbol.name, name)
        key = f"{kind_of_declaration(declaration)}:{declaration.name.text}"
        for prop in properties_of(declaration):
            if schema.property(key, prop.name.text) == symbol:
                yield from _hint(schema.text, prop.annotations, prop.at.end, symbol.name, name)


def _hint(
    text: str, annotations: tuple[schema_syntax.Annotation, ...], end: int, old: str, name: str
) -> Iterator[Edit]:
    hint = next((annotation for annotation in annotations if annotation.name == "rename_from"), None)
    if hint is None:
        yield Edit(TextSpan(end, end), f" @rename_from({quote(old)})")
    elif hint.value is not None and hint.value.text == name:
        start = len(text[: hint.at.start].rstrip(" \t"))
        yield Edit(TextSpan(start, hint.at.end), "")


def _check_result(workspace: Workspace, edits: dict[Document, list[Edit]]) -> None:
    """Refuse edits after which a file has more errors than before."""
    changed = {user.path: replace(user, text=apply_edits(user.text, each)) for user, each in edits.items()}
    result = replace(workspace, open={**workspace.open, **changed}, valid_schemas={})
    for user in edits:
        before = {(problem.code, problem.message) for problem in diagnose(workspace, user)}
        after = [problem for problem in diagnose(result, changed[user.path]) if problem.severity == "error"]
        new = [problem for problem in after if (problem.code, problem.message) not in before]
        if len(new) > 0 and len(after) > len([p for p in diagnose(workspace, user) if p.severity == "error"]):
            raise RenameError(f"the new name would break {user.path.name}: {new[0].message}")


# ---- outlines -------------------------------------------------------------------------------------------


class Outline(Struct, frozen=True):
    """A part of a document: its whole text and its name."""

    name: str
    kind: SymbolKind
    detail: str
    at: TextSpan
    name_at: TextSpan
    children: tuple[Outline, ...] = ()


def outline(workspace: Workspace, document: Document) -> tuple[Outline, ...]:
    if document.kind is Kind.SCHEMA:
        schema = workspace.schema(document.path)
        return () if schema is None else tuple(_schema_outline(schema))
    if document.kind is Kind.QUERIES:
        return tuple(_query_outline(workspace, document))
    return tuple(_yaml_outline(document)) if document.kind is not None else ()


def _schema_outline(schema: SchemaIndex) -> Iterator[Outline]:
    for declaration in schema.declarations:
        children = tuple(
            Outline(
                prop.name.text,
                SymbolKind.PROPERTY,
                schema.text[prop.type.at.start : prop.type.at.end],
                prop.at,
                prop.name.at,
            )
            for prop in properties_of(declaration)
        )
        detail = ""
        if isinstance(declaration, schema_syntax.Edge):
            detail = f"{declaration.source.text} -> {declaration.target.text}"
        kind = kind_of_declaration(declaration)
        yield Outline(declaration.name.text, kind, detail, declaration.at, declaration.name.at, children)


def _query_outline(workspace: Workspace, document: Document) -> Iterator[Outline]:
    for query in workspace.queries(document).queries:
        children = tuple(
            Outline(f"${each.name}", SymbolKind.PARAMETER, spell_parameter_type(each), each.at, each.at)
            for each in query.parameters
        )
        detail = "mutation" if query.is_mutation else "read"
        yield Outline(query.name.text, SymbolKind.QUERY, detail, query.at, query.name.at, children)


_SECTIONS: Final = {
    Kind.PIPELINE: ("sources", "nodes", "edges"),
    Kind.POLICY: ("groups",),
    Kind.CLUSTER: ("graphs", "policies", "pipelines"),
}


def _yaml_outline(document: Document) -> Iterator[Outline]:
    root = read_root(document.text)
    if root is None or document.kind is None:
        return
    for section in _SECTIONS.get(document.kind, ()):
        for key, value in entries(root.find(section)):
            name, at = text_of(key), written_at(key)
            if name:
                yield Outline(name, SymbolKind.PROPERTY, section, TextSpan(key.at.start, value.at.end), at)
    rules = root.find("rules") if document.kind is Kind.POLICY else root.find("cases")
    for rule in rules.items() if rules is not None and rules.is_list else ():
        id_ = rule.find("id")
        if id_ is not None and text_of(id_):
            yield Outline(text_of(id_), SymbolKind.PROPERTY, "rule", rule.at, written_at(id_))
