"""Checks one query against a catalog: its size, its names, its types, and the rules that tie its parts together.

`check_query` is called by `compile`, `check_row_filter` by `policy`. The size (clauses, literals, nesting) is checked
first, because every later step takes time and stack in proportion to it. All findings of a query are collected; the
first is the one that the precedence rules of the language demand, the rest follow in the order of the checks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, get_args

from omnigraph.api.governance import MOST_QUERY_DEPTH, QueryLimits
from omnigraph.errors import BadRequestError, CompileError
from omnigraph.language.catalog import Catalog, EdgeType, NodeType
from omnigraph.language.query import ir, resolved
from omnigraph.language.query import syntax as ast
from omnigraph.language.query.check import expressions
from omnigraph.language.query.check.blocks import check_aggregate, check_aggregate_block, check_exists, check_not_block
from omnigraph.language.query.check.calls import (
    check_arithmetic,
    check_call,
    check_case,
    check_list_form,
    check_negative,
    check_reduce,
)
from omnigraph.language.query.check.comparisons import (
    check_and,
    check_compare,
    check_condition,
    check_in,
    check_is_null,
    check_not,
    check_or,
)
from omnigraph.language.query.check.match import check_clauses
from omnigraph.language.query.check.rankings import check_ranking, check_text_call
from omnigraph.language.query.check.read import check_read
from omnigraph.language.query.check.scope import ROW_FILTER, Checks, Scope
from omnigraph.language.query.check.writes import check_writes
from omnigraph.language.query.parser import parse_row_filter
from omnigraph.language.source import TOO_LARGE, DiagnosticSink, Name, SourceText, SyntaxNode, TextSpan
from omnigraph.language.types import SCALAR_NAMES, PropertyType, Scalar, vector_dimension_problem
from omnigraph.language.values import parse_date, parse_datetime

CHECKS: Final = Checks(
    {
        ast.Variable: expressions.check_variable,
        ast.PropertyAccess: expressions.check_property,
        ast.MetaAccess: expressions.check_meta,
        ast.StringLiteral: expressions.check_string,
        ast.IntegerLiteral: expressions.check_integer,
        ast.FloatLiteral: expressions.check_float,
        ast.BooleanLiteral: expressions.check_boolean,
        ast.NullLiteral: expressions.check_null,
        ast.DateLiteral: expressions.check_date,
        ast.DateTimeLiteral: expressions.check_datetime,
        ast.ListLiteral: expressions.check_list,
        ast.Now: expressions.check_now,
        ast.Alias: expressions.check_alias,
        ast.Parentheses: expressions.check_parentheses,
        ast.Compare: check_compare,
        ast.In: check_in,
        ast.IsNull: check_is_null,
        ast.And: check_and,
        ast.Or: check_or,
        ast.Not: check_not,
        ast.Arithmetic: check_arithmetic,
        ast.Negative: check_negative,
        ast.Case: check_case,
        ast.Call: check_call,
        ast.ListForm: check_list_form,
        ast.Reduce: check_reduce,
        ast.TextCall: check_text_call,
        ast.NearestCall: check_ranking,
        ast.Bm25Call: check_ranking,
        ast.RrfCall: check_ranking,
        ast.AggregateCall: check_aggregate,
        ast.Negation: check_not_block,
        ast.ExistsBlock: check_exists,
        ast.AggregateBlock: check_aggregate_block,
    },
    check_clauses,
)

# What makes a plan deeper, and what makes a query longer.
_PATTERNS = (
    ast.Binding,
    ast.Traversal,
    ast.Negation,
    ast.Optional,
    ast.ExistsBlock,
    ast.AggregateBlock,
    ast.Unwind,
    ast.Stage,
    ast.ForEachRow,
)
_PARTS = (ast.Pin, ast.Projection, ast.SortKey, ast.Parameter, ast.Unwind, ast.Stage)
_CLAUSES = (*get_args(ast.Clause), *get_args(ast.RowWrite), *_PARTS)
_LITERALS = get_args(ast.Literal)


def check_size(query: ast.Query, source: SourceText, limits: QueryLimits) -> None:
    """Raises `CompileError` with one finding for each limit that the query exceeds, at the first part beyond it."""
    depth = min(limits.depth, MOST_QUERY_DEPTH)
    start, end = query.at.start, query.at.end
    # Every part takes at least one character, and every pattern has a variable or a brace of its own.
    most_patterns = source.text.count("$", start, end) + source.text.count("{", start, end)
    if end - start <= min(limits.clauses, limits.literals) and most_patterns <= depth:
        return
    deeper = f", or raise {limits.setting('depth')} to at most {MOST_QUERY_DEPTH}" if depth < MOST_QUERY_DEPTH else ""
    parts = list(_parts(query))
    findings = []
    for name, what, kinds, limit, remedy in (
        (
            "query_clauses",
            "clauses, projections, sort keys, parameters and statements",
            _CLAUSES,
            limits.clauses,
            "split the query, list values in one `in […]`, load many rows with `load`, or raise "
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
            "bindings, traversals, blocks and stages",
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
    """The kind and the place of every node of the tree, in source order. The first stage is what a query is anyway."""
    is_first = True
    for node in _nodes(query):
        if isinstance(node, ast.Stage) and is_first:
            is_first = False
        else:
            yield type(node), node.at


def _nodes(tree: SyntaxNode) -> Iterator[SyntaxNode]:
    """Every node of a tree in source order. A loop: trees may be deep."""
    waiting: list[object] = [tree]
    while waiting:
        part = waiting.pop()
        if isinstance(part, tuple):
            waiting += reversed(part)
        elif isinstance(part, SyntaxNode) and not isinstance(part, Name):
            yield part
            waiting += [getattr(part, name) for name in reversed(part.__struct_fields__)]


def check_query(
    query: ast.Query, catalog: Catalog, source: SourceText, limits: QueryLimits, checks: Checks = CHECKS
) -> resolved.Query:
    """The resolved query. Raises `CompileError` with every type error found, or for a query beyond the limits. An
    editor passes checks that also note what each part of the query is."""
    check_size(query, source, limits)
    findings = DiagnosticSink(source)
    scope = Scope(catalog, findings, checks)
    for parameter in query.parameters:
        _declare(scope, parameter)
    parameters = tuple(ir.QueryParameter(name, type_) for name, type_ in scope.parameters.items())
    body = check_read(scope, query.body) if isinstance(query.body, ast.Read) else check_writes(scope, query.body)
    if findings.diagnostics:
        raise CompileError(findings.diagnostics)
    return resolved.Query(query.name.text, parameters, body, scope.blocks)


def _declare(scope: Scope, parameter: ast.Parameter) -> None:
    name, written, at = parameter.name, parameter.type_name.text, parameter.type_name.at
    if name == ir.NOW_PARAMETER:
        scope.report("T47", f"parameter name '${name}' is reserved for now()", parameter.at, help="call now() instead")
        scope.broken.add(name)
        return
    if not scope.may_declare(ast.Variable(name, at=parameter.at)):
        scope.broken.add(name)
        return
    if name in scope.parameters:
        scope.report("T50", f"parameter '${name}' is declared twice", parameter.at, help="choose another name")
        return
    if (type_ := declared_type(parameter)) is not None:
        scope.parameters[name] = type_
        return
    scope.broken.add(name)
    if parameter.dimension is not None and written == Scalar.VECTOR:
        problem = vector_dimension_problem(parameter.dimension)
        scope.report("T48", f"parameter '${name}': {problem}", at, help="write the dimension, as in Vector(4)")
        return
    spelling = written if parameter.dimension is None else f"{written}({parameter.dimension})"
    remedy = ": a vector needs its dimension, as in Vector(4)" if written == Scalar.VECTOR else ""
    message = f"parameter '${name}' has unknown type '{spelling}'{remedy}"
    scope.report("T48", message, at, near=written, among=SCALAR_NAMES, help=f"types are {', '.join(SCALAR_NAMES)}")


def declared_type(parameter: ast.Parameter) -> PropertyType | None:
    """The declared type of a parameter, or None when there is no such type. Needs no catalog."""
    name = parameter.type_name.text
    if parameter.dimension is not None and name == Scalar.VECTOR and not vector_dimension_problem(parameter.dimension):
        return PropertyType.vector(parameter.dimension, nullable=parameter.nullable)
    if parameter.dimension is None and name in SCALAR_NAMES:
        return PropertyType(SCALAR_NAMES[name], nullable=parameter.nullable, list=parameter.is_list)
    return None


# ---- row filters ----------------------------------------------------------------------------------------

ACTOR: Final = "actor"
"""The one parameter of a row filter: the actor whose visibility it decides."""


def check_row_filter(text: str, type_: NodeType | EdgeType, catalog: Catalog) -> ir.Value:
    """The condition that a text means for the rows of a type, which are `ir.ROW` in it. Raises `CompileError` with
    every finding. It excludes search, aggregates and blocks, because the visibility of a row depends on the row and the
    actor alone."""
    findings = DiagnosticSink(SourceText(text))
    scope = Scope(catalog, findings, CHECKS)
    scope.parameters[ACTOR] = ir.STRING
    scope.row = type_
    written = parse_row_filter(text)
    condition = check_condition(scope, written, ROW_FILTER)
    _check_moments(scope, written)
    if condition is not None and not _asks(condition):
        message = "a row filter asks for a property of the type, or for $actor"
        scope.report("T100", message, written.at, help="write true or false for all rows or none")
    if findings.diagnostics or condition is None:
        raise CompileError(findings.diagnostics)
    return condition


def _asks(condition: ir.Value) -> bool:
    """Whether a filter depends on the row or the actor, or is made of `true` and `false` alone."""
    parts = list(ir.walk(condition))
    truths = (ir.And, ir.Or, ir.Not, ir.Constant)
    if all(isinstance(part, truths) for part in parts):
        return not any(isinstance(part, ir.Constant) and part.value is None for part in parts)
    return any(isinstance(part, ir.PropertyValue | ir.MetaValue | ir.ParameterValue) for part in parts)


def _check_moments(scope: Scope, written: ast.Expression) -> None:
    """A query reads its dates when it runs; a policy that can't be evaluated must be found out before."""
    for part in _nodes(written):
        if isinstance(part, ast.DateLiteral | ast.DateTimeLiteral):
            parse = parse_date if isinstance(part, ast.DateLiteral) else parse_datetime
            try:
                parse(part.text)
            except BadRequestError as error:
                scope.report("T3", str(error), part.at, help="write YYYY-MM-DD, or YYYY-MM-DDTHH:MM:SSZ")
