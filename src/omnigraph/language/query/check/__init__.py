"""Checks one query against a catalog: names, types, and the rules that tie its parts together.

`check_query` is the only entry, called by `compile`. All findings of a query are collected; the first one is the
one that the language's precedence demands, the rest follow in the order in which the parts are checked.
"""

from __future__ import annotations

from omnigraph.api.governance import QueryLimits
from omnigraph.errors import CompileError
from omnigraph.language.catalog import Catalog
from omnigraph.language.query import ir
from omnigraph.language.query import syntax as ast
from omnigraph.language.query.check.read import check_read
from omnigraph.language.query.check.scope import UNCODED, Scope
from omnigraph.language.query.check.size import check_size
from omnigraph.language.query.check.writes import check_writes
from omnigraph.language.query.resolved import ResolvedQuery
from omnigraph.language.source import DiagnosticSink, SourceText
from omnigraph.language.types import SCALAR_NAMES, PropertyType, Scalar, vector_dimension_problem


def check_query(query: ast.Query, catalog: Catalog, source: SourceText, limits: QueryLimits) -> ResolvedQuery:
    """The resolved query. Raises `CompileError` with every type error found, or for a query beyond the limits."""
    check_size(query, source, limits)
    findings = DiagnosticSink(source)
    scope = Scope(catalog, findings)
    for parameter in query.parameters:
        _declare(scope, parameter)
    parameters = tuple(ir.QueryParameter(name, type_) for name, type_ in scope.parameters.items())
    body = check_read(scope, query.body) if isinstance(query.body, ast.Read) else check_writes(scope, query.body)
    if findings.found:
        raise CompileError(findings.found)
    return ResolvedQuery(query.name.text, parameters, body)


def _declare(scope: Scope, parameter: ast.Parameter) -> None:
    if parameter.name == ir.NOW_PARAMETER:
        scope.report(UNCODED, f"parameter name '${ir.NOW_PARAMETER}' is reserved for now()", parameter.at)
    elif parameter.name in scope.parameters:
        scope.report(UNCODED, f"parameter '${parameter.name}' is declared twice", parameter.at)
    else:
        type_ = _parameter_type(scope, parameter)
        if type_ is None:
            scope.broken.add(parameter.name)
        else:
            scope.parameters[parameter.name] = type_


def declared_type(parameter: ast.Parameter) -> PropertyType | None:
    """The type that a parameter is declared with, None when there is no such type. No catalog has a part in it."""
    name = parameter.type_name.text
    if parameter.dimension is not None and name == Scalar.VECTOR and not vector_dimension_problem(parameter.dimension):
        return PropertyType.vector(parameter.dimension, nullable=parameter.nullable)
    if parameter.dimension is None and name in SCALAR_NAMES:
        return PropertyType(SCALAR_NAMES[name], nullable=parameter.nullable, list=parameter.is_list)
    return None


def _parameter_type(scope: Scope, parameter: ast.Parameter) -> PropertyType | None:
    if (type_ := declared_type(parameter)) is not None:
        return type_
    name = parameter.type_name.text
    if parameter.dimension is not None and name == Scalar.VECTOR:
        problem = vector_dimension_problem(parameter.dimension)
        scope.report(UNCODED, f"parameter '${parameter.name}': {problem}", parameter.type_name.at)
        return None
    message = f"parameter '${parameter.name}' has unknown type '{name}'"
    if name == Scalar.VECTOR:
        message += ": a vector needs its dimension, as in Vector(4)"
    elif parameter.dimension is not None:
        message = f"parameter '${parameter.name}' has unknown type '{name}({parameter.dimension})'"
    scope.report(UNCODED, message, parameter.type_name.at, near=name, among=SCALAR_NAMES)
    return None
