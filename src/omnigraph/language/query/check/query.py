"""Checks one query against a catalog: its size, its names, its types, and the rules that tie its parts together.

`check_query` is the only entry, called by `compile`. The size (clauses, literals, nesting) is checked first, because
every later step takes time and stack in proportion to it. All findings of a query are collected; the first is the one
that the precedence rules of the language demand, the rest follow in the order of the checks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from msgspec import Struct

from omnigraph.api.governance import MOST_QUERY_DEPTH, QueryLimits
from omnigraph.errors import CompileError
from omnigraph.language.catalog import Catalog
from omnigraph.language.query import ir, resolved
from omnigraph.language.query import syntax as ast
from omnigraph.language.query.check.read import check_read
from omnigraph.language.query.check.scope import UNCODED, Scope
from omnigraph.language.query.check.writes import check_writes
from omnigraph.language.source import TOO_LARGE, DiagnosticSink, Name, SourceText, TextSpan
from omnigraph.language.types import SCALAR_NAMES, PropertyType, Scalar, vector_dimension_problem

_PATTERNS = (ast.Binding, ast.Traversal, ast.Negation)
_PARTS = (ast.Pin, ast.Projection, ast.SortKey, ast.Parameter)
_CLAUSES = (*get_args(ast.Clause), *get_args(ast.Statement), *_PARTS)
_LITERALS = tuple(kind for kind in get_args(ast.Literal) if kind is not ast.ListLiteral)


def check_size(query: ast.Query, source: SourceText, limits: QueryLimits) -> None:
    """Raises `CompileError` with one finding for each limit that the query exceeds, at the first part beyond it."""
    depth = min(limits.depth, MOST_QUERY_DEPTH)
    if query.at.end - query.at.start <= min(limits.clauses, limits.literals, depth):
        return  # every part takes at least one character
    deeper = f", or raise {limits.setting('depth')} to at most {MOST_QUERY_DEPTH}" if depth < MOST_QUERY_DEPTH else ""
    parts = list(_parts(query))
    findings = []
    for name, what, kinds, limit, remedy in (
        (
            "query_clauses",
            "clauses, projections, sort keys, parameters and statements",
            _CLAUSES,
            limits.clauses,
            "split the query, list values in one `[…] contains`, load many rows with `load`, or raise "
            + limits.setting("clauses"),
        ),
        (
            "query_literals",
            "literals",
            _LITERALS,
            limits.literals,
            f"split the query, load many rows with `load`, or raise {limits.setting('literals')}",
        ),
        (
            "query_depth",
            "bindings, traversals and negations",
            _PATTERNS,
            depth,
            f"split the query into several{deeper}; a chain over one edge is written with hops: {{1,3}}",
        ),
    ):
        counted = [at for kind, at in parts if kind in kinds]
        if len(counted) > limit:
            message = f"{name}: {len(counted)} {what} in one query, the limit is {limit}"
            findings.append(source.diagnostic(TOO_LARGE, message, counted[limit], suggestion=remedy))
    if findings:
        raise CompileError(findings)


def _parts(query: ast.Query) -> Iterator[tuple[type, TextSpan]]:
    """What every node of the tree is and where it is, in source order."""
    waiting: list[object] = [query]
    while waiting:
        part = waiting.pop()
        if isinstance(part, tuple):
            waiting += reversed(part)
        elif isinstance(part, Struct) and not isinstance(part, TextSpan | Name):
            yield type(part), part.at  # type: ignore[attr-defined]
            waiting += [getattr(part, name) for name in reversed(part.__struct_fields__)]


def check_query(query: ast.Query, catalog: Catalog, source: SourceText, limits: QueryLimits) -> resolved.Query:
    """The resolved query. Raises `CompileError` with every type error found, or for a query beyond the limits."""
    check_size(query, source, limits)
    findings = DiagnosticSink(source)
    scope = Scope(catalog, findings)
    for parameter in query.parameters:
        _declare(scope, parameter)
    parameters = tuple(ir.QueryParameter(name, type_) for name, type_ in scope.parameters.items())
    body = check_read(scope, query.body) if isinstance(query.body, ast.Read) else check_writes(scope, query.body)
    if findings.diagnostics:
        raise CompileError(findings.diagnostics)
    return resolved.Query(query.name.text, parameters, body)


def _declare(scope: Scope, parameter: ast.Parameter) -> None:
    name, written, at = parameter.name, parameter.type_name.text, parameter.type_name.at
    if name == ir.NOW_PARAMETER:
        scope.report(UNCODED, f"parameter name '${name}' is reserved for now()", parameter.at)
        return
    if name in scope.parameters:
        scope.report(UNCODED, f"parameter '${name}' is declared twice", parameter.at)
        return
    if (type_ := declared_type(parameter)) is not None:
        scope.parameters[name] = type_
        return
    scope.broken.add(name)
    if parameter.dimension is not None and written == Scalar.VECTOR:
        scope.report(UNCODED, f"parameter '${name}': {vector_dimension_problem(parameter.dimension)}", at)
        return
    spelling = written if parameter.dimension is None else f"{written}({parameter.dimension})"
    remedy = ": a vector needs its dimension, as in Vector(4)" if written == Scalar.VECTOR else ""
    message = f"parameter '${name}' has unknown type '{spelling}'{remedy}"
    scope.report(UNCODED, message, at, near=written, among=SCALAR_NAMES)


def declared_type(parameter: ast.Parameter) -> PropertyType | None:
    """The declared type of a parameter, or None when there is no such type. Needs no catalog."""
    name = parameter.type_name.text
    if parameter.dimension is not None and name == Scalar.VECTOR and not vector_dimension_problem(parameter.dimension):
        return PropertyType.vector(parameter.dimension, nullable=parameter.nullable)
    if parameter.dimension is None and name in SCALAR_NAMES:
        return PropertyType(SCALAR_NAMES[name], nullable=parameter.nullable, list=parameter.is_list)
    return None
