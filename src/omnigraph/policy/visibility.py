"""Row filters and column masks (`rows` and `hide`), checked against a schema and combined for an actor.

Rules add up: a row is visible if any matching rule shows it, and a rule without a filter for a type shows all of it. A
property is masked only if every matching rule masks it. `gate` is the only caller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias, TypeVar

from omnigraph.errors import BadRequestError, CompileError, Diagnostic
from omnigraph.language.catalog import Catalog, EdgeType, NodeType
from omnigraph.language.query import row_filter
from omnigraph.language.query.check.query import check_row_filter
from omnigraph.language.source import TextSpan
from omnigraph.policy.bundle import INVALID, Bundle, MaskedProperties, Rule, VisibleRows, filter_problem

_MOST_REMEMBERED: Final = 1024

Report: TypeAlias = Callable[..., None]
"""Takes a mistake with its position in the bundle, and a suggestion if there is one."""

Key = TypeVar("Key")
Result = TypeVar("Result")


class _RuleRestrictions(NamedTuple):
    """The row filters and the masked properties of one rule, by type key."""

    rows: dict[str, row_filter.RowFilter]
    masked: dict[str, frozenset[str]]


class Restrictions:
    """The restrictions of a bundle, with a cache. Safe to share between threads."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._resolved: dict[str, dict[str, _RuleRestrictions]] = {}
        self._visibilities: dict[tuple[str, tuple[str, ...], str], row_filter.Visibility] = {}

    def visibility(self, actor: str, rules: Sequence[Rule], catalog: Catalog) -> row_filter.Visibility:
        """The visibility of an actor by the rules that allow its request. Raises `CompileError` when these rules have
        restrictions that don't fit the schema: a broken rule must not show more than it was meant to."""
        if not rules:
            raise ValueError("an actor without a rule sees nothing")
        if not all(rule.restricts for rule in rules):
            return row_filter.UNRESTRICTED
        key = (actor, tuple(rule.id for rule in rules), catalog.digest)
        if (visibility := self._visibilities.get(key)) is None:
            if (resolved := self._resolved.get(catalog.digest)) is None:
                resolved = resolve_restrictions(self._bundle, catalog)
                _remember(self._resolved, catalog.digest, resolved)
            visibility = _combine([resolved[rule.id] for rule in rules], actor, catalog)
            _remember(self._visibilities, key, visibility)
        return visibility


def _remember(cache: dict[Key, Result], key: Key, result: Result) -> None:
    """Another thread may do the same, with the same result."""
    if len(cache) >= _MOST_REMEMBERED:
        cache.clear()
    cache[key] = result


def resolve_restrictions(bundle: Bundle, catalog: Catalog) -> dict[str, _RuleRestrictions]:
    """The restrictions of every rule, by its id, for a schema. Raises `CompileError` with every mistake."""
    diagnostics: list[Diagnostic] = []

    def report(message: str, at: TextSpan, suggestion: str | None = None) -> None:
        diagnostics.append(bundle.source.diagnostic(INVALID, message, at, suggestion=suggestion))

    resolved = {rule.id: _resolve_rule(rule, catalog, report) for rule in bundle.rules}
    if diagnostics:
        raise CompileError(diagnostics)
    return resolved


def _resolve_rule(rule: Rule, catalog: Catalog, report: Report) -> _RuleRestrictions:
    resolved = _RuleRestrictions({}, {})
    clauses: tuple[VisibleRows | MaskedProperties, ...] = (*rule.rows, *rule.hide)
    for clause in clauses:
        is_filter = isinstance(clause, VisibleRows)
        named = f"policy rule '{rule.id}', {'rows' if is_filter else 'hide'} of {clause.type_name}"
        type_ = _type(clause.type_name, clause.at, named, catalog, report)
        if type_ is None:
            continue
        if type_.type_key in (resolved.rows if is_filter else resolved.masked):
            report(f"{named}: the type is listed twice", clause.at)
        elif isinstance(clause, MaskedProperties):
            resolved.masked[type_.type_key] = _masked_properties(type_, clause, named, report)
        else:
            try:
                resolved.rows[type_.type_key] = check_row_filter(clause.filter, type_, catalog)
            except CompileError as error:
                for problem in error.diagnostics:
                    report(filter_problem(named, problem), clause.at, problem.suggestion)
    return resolved


def _type(name: str, at: TextSpan, named: str, catalog: Catalog, report: Report) -> NodeType | EdgeType | None:
    if name in catalog.nodes and name in catalog.edges:
        report(f"{named}: a node and an edge type have this name; write 'node:{name}' or 'edge:{name}'", at)
        return None
    try:
        return catalog.type_named(name)
    except BadRequestError as error:
        report(f"{named}: {error}", at)
        return None


def _masked_properties(
    type_: NodeType | EdgeType, clause: MaskedProperties, named: str, report: Report
) -> frozenset[str]:
    """The masked properties, with the vectors that are embedded from them."""
    masked = set()
    for name in clause.properties:
        if name not in type_.properties:
            report(f"{named}: {type_.kind} type '{type_.name}' has no property '{name}'", clause.at)
        elif name in type_.key:
            report(f"{named}: '{name}' is part of the key, which the id shows to everybody", clause.at)
        else:
            masked.add(name)
    return row_filter.with_vectors(type_, masked)


def _combine(restrictions: Sequence[_RuleRestrictions], actor: str, catalog: Catalog) -> row_filter.Visibility:
    restricted_keys = dict.fromkeys(key for rule in restrictions for key in (*rule.rows, *rule.masked))
    visibilities = []
    for key in restricted_keys:
        filters = [row_filter.for_actor(rule.rows[key], actor) for rule in restrictions if key in rule.rows]
        masked = frozenset.intersection(*(rule.masked.get(key, frozenset()) for rule in restrictions))
        everything = len(filters) < len(restrictions)
        type_ = catalog.type_named(key)
        visibilities.append(
            row_filter.TypeVisibility(type_, masked=masked)
            if everything
            else row_filter.TypeVisibility(type_, row_filter.any_of(filters), masked)
        )
    return row_filter.visibility_of(visibilities, catalog)
