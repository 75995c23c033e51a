"""Fixes that an editor offers: what the compilers suggest, a missing parameter, and the canonical layout."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from omnigraph.editor.documents import Document, Edit, Kind, Problem, minimal_edits
from omnigraph.editor.projects import Workspace
from omnigraph.editor.query_symbols import QueryIndex
from omnigraph.errors import CompileError
from omnigraph.language.query import syntax as ast
from omnigraph.language.query.formatter import format_queries
from omnigraph.language.query.value_types import ValueType
from omnigraph.language.schema.formatter import format_schema
from omnigraph.language.source import Name, SyntaxNode, TextSpan
from omnigraph.language.types import PropertyType

_MEANT: Final = re.compile(r"did you mean '([^']+)'\?")
_QUOTED: Final = re.compile(r"'([^']+)'")
_WRITE: Final = re.compile(r"write (\{\d+,\d*\}|\$[a-z_]\w*)")
_UNDECLARED: Final = frozenset({"T6", "T14", "T110"})


class Fix(Struct, frozen=True):
    """Edits of a document that remedy a problem; without a problem, an action on the whole document."""

    title: str
    edits: tuple[Edit, ...]
    problem: Problem | None = None
    is_preferred: bool = False


def fixes(
    workspace: Workspace, document: Document, problems: Iterable[Problem], start: int, end: int
) -> tuple[Fix, ...]:
    """The fixes for the problems that touch a part of a document."""
    offered: list[Fix] = []
    for problem in problems:
        if problem.at.start <= end and start <= problem.at.end:
            offered += _replacements(document, problem)
            if document.kind is Kind.QUERIES and problem.code in _UNDECLARED:
                offered += _declarations(workspace, document, problem)
    if formatted := format_document(document):
        offered.append(Fix("Format the file", formatted))
    return tuple(offered)


def _replacements(document: Document, problem: Problem) -> Iterator[Fix]:
    suggestion = problem.suggestion or ""
    at = problem.at
    written = document.text[at.start : at.end]
    if (meant := _MEANT.search(suggestion)) is not None:
        name = meant[1]
        place = _missed_name(written, at, problem.message)
        if place is not None:
            yield Fix(f"Replace by '{name}'", (Edit(place, name),), problem, is_preferred=True)
    elif (literal := _WRITE.fullmatch(suggestion)) is not None and written[:1] == literal[1][:1]:
        yield Fix(f"Write {literal[1]}", (Edit(at, literal[1]),), problem, is_preferred=True)


def _missed_name(written: str, at: TextSpan, message: str) -> TextSpan | None:
    """Where the name is that a suggestion replaces: the whole position of the problem, or the only place in it of a
    word that the message quotes."""
    if re.fullmatch(r"[@$]?[\w.-]+", written):
        return at
    for name in _QUOTED.findall(message):
        places = list(re.finditer(rf"(?<!\w){re.escape(name)}(?!\w)", written))
        if len(places) == 1:
            return TextSpan(at.start + places[0].start(), at.start + places[0].end())
    return None


# ---- parameters -----------------------------------------------------------------------------------------


def _declarations(workspace: Workspace, document: Document, problem: Problem) -> Iterator[Fix]:
    """Declare the variable of a problem as a parameter, with the type that its place asks for."""
    written = document.text[problem.at.start : problem.at.end]
    index = workspace.queries(document)
    query = index.query_at(problem.at.start)
    if query is None or re.fullmatch(r"\$[a-z_]\w*", written) is None:
        return
    if problem.code == "T6" and not _is_value(query, problem.at):
        return
    type_ = "I64" if problem.code == "T110" else _expected_type(index, query, problem.at) or "String"
    opening = document.text.index("(", query.name.at.end)
    end = query.parameters[-1].at.end if query.parameters else opening + 1
    separator = ", " if query.parameters else ""
    edit = Edit(TextSpan(end, end), f"{separator}{written}: {type_}")
    yield Fix(f"Declare the parameter {written}: {type_}", (edit,), problem)


def _nodes(tree: SyntaxNode) -> Iterator[SyntaxNode]:
    waiting: list[object] = [tree]
    while waiting:
        part = waiting.pop()
        if isinstance(part, tuple):
            waiting += part
        elif isinstance(part, SyntaxNode) and not isinstance(part, Name):
            yield part
            waiting += [getattr(part, name) for name in part.__struct_fields__]


def _spans(at: TextSpan, other: TextSpan) -> bool:
    return (at.start, at.end) == (other.start, other.end)


def _is_value(query: ast.Query, at: TextSpan) -> bool:
    """Whether a variable is a value, and not what has a property or an end of a traversal."""
    inner = [part.variable for part in _nodes(query) if isinstance(part, ast.PropertyAccess | ast.MetaAccess)]
    return not any(variable is not None and _spans(variable.at, at) for variable in inner)


def _expected_type(index: QueryIndex, query: ast.Query, at: TextSpan) -> str | None:
    """The type of what a variable is compared with or assigned to."""
    for part in _nodes(query):
        if isinstance(part, ast.Pin | ast.Assignment) and _spans(part.value.at, at):
            return _property_type(index, part.property)
        if isinstance(part, ast.Compare):
            for one, other in ((part.left, part.right), (part.right, part.left)):
                if _spans(one.at, at):
                    name = Name(other.name, at=other.at) if isinstance(other, ast.Alias) else None
                    return _spell(index.notes.at(other.at)) or (_property_type(index, name) if name else None)
    return None


def _property_type(index: QueryIndex, name: Name) -> str | None:
    occurrence = next((each for each in index.occurrences if _spans(each.at, name.at)), None)
    types = [*index.catalog.types()] if index.catalog is not None else []
    for owner in occurrence.owners if occurrence is not None else ():
        for type_ in types:
            if type_.type_key == owner and (prop := type_.properties.get(name.text)) is not None:
                return _spell(prop.type)
    return None


def _spell(type_: ValueType | None) -> str | None:
    """A type as a parameter declares it; an enum is a text there."""
    if not isinstance(type_, PropertyType):
        return None
    return str(PropertyType(type_.scalar, list=type_.list, dimension=type_.dimension))


# ---- layout ---------------------------------------------------------------------------------------------


def format_document(document: Document) -> tuple[Edit, ...]:
    """The edits to the canonical layout; none for a text that has it, does not parse or has none."""
    if document.kind is Kind.SCHEMA:
        layout = format_schema
    elif document.kind is Kind.QUERIES:
        layout = format_queries
    else:
        return ()
    try:
        return minimal_edits(document.text, layout(document.text, str(document.path)))
    except CompileError:
        return ()
