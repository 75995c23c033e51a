"""Row filters and column masks (`rows` and `hide`), checked against a schema and combined for an actor.

Rules add up: a row is visible if any matching rule shows it, and a rule without a filter for a type shows all of it. A
property is masked only if every matching rule masks it. `gate` is the only caller.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Final

from omnigraph.errors import BadRequestError, CompileError, Diagnostic
from omnigraph.language.catalog import Catalog, EdgeType, NodeType
from omnigraph.language.query.check.filters import check_row_filter, for_actor
from omnigraph.language.query.row_filter import (
    UNRESTRICTED,
    RowFilter,
    TypeVisibility,
    Visibility,
    any_of,
    visibility_of,
    with_vectors,
)
from omnigraph.language.source import TextSpan
from omnigraph.policy.rules import INVALID, Bundle, Rule, filter_problem

_MOST_REMEMBERED: Final = 1024


@dataclass(frozen=True, slots=True)
class _RuleRestrictions:
    """The row filters and the masked properties of one rule, by type key."""

    rows: dict[str, RowFilter]
    masked: dict[str, frozenset[str]]


class Restrictions:
    """The restrictions of a bundle, with a cache. Safe to share between threads."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._lock = Lock()
        self._resolved: OrderedDict[str, dict[str, _RuleRestrictions]] = OrderedDict()
        self._visibilities: OrderedDict[tuple[str, tuple[str, ...], str], Visibility] = OrderedDict()

    def visibility(self, actor: str, rules: Sequence[Rule], catalog: Catalog) -> Visibility:
        """The visibility of an actor by the rules that allow its request. Raises `CompileError` when these rules have
        restrictions that don't fit the schema: a broken rule must not show more than it was meant to."""
        if not rules:
            raise ValueError("an actor without a rule sees nothing")
        if not all(rule.restricts for rule in rules):
            return UNRESTRICTED
        key = (actor, tuple(rule.id for rule in rules), catalog.digest)
        with self._lock:
            visibility = self._visibilities.get(key)
        if visibility is None:
            restrictions = self._resolve(catalog)
            visibility = _combine([restrictions[rule.id] for rule in rules], actor, catalog)
            with self._lock:
                self._visibilities[key] = visibility
                if len(self._visibilities) > _MOST_REMEMBERED:
                    self._visibilities.popitem(last=False)
        return visibility

    def _resolve(self, catalog: Catalog) -> dict[str, _RuleRestrictions]:
        with self._lock:
            resolved = self._resolved.get(catalog.digest)
        if resolved is None:
            resolved = resolve_restrictions(self._bundle, catalog)
            with self._lock:
                self._resolved[catalog.digest] = resolved
                if len(self._resolved) > _MOST_REMEMBERED:
                    self._resolved.popitem(last=False)
        return resolved


def check_restrictions(bundle: Bundle, catalog: Catalog) -> None:
    """Check the restrictions of a bundle against a schema. Raises `CompileError` with every mistake."""
    resolve_restrictions(bundle, catalog)


def resolve_restrictions(bundle: Bundle, catalog: Catalog) -> dict[str, _RuleRestrictions]:
    """The restrictions of every rule, by its id."""
    findings = _Findings(bundle)
    resolved = {rule.id: _resolve_rule(rule, catalog, findings) for rule in bundle.rules}
    findings.raise_any()
    return resolved


class _Findings:
    """Collects mistakes with their positions in the bundle."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._diagnostics: list[Diagnostic] = []

    def add(self, message: str, at: TextSpan, suggestion: str | None = None) -> None:
        source = self._bundle.source
        self._diagnostics.append(source.diagnostic(INVALID, message, at, suggestion=suggestion))

    def raise_any(self) -> None:
        if self._diagnostics:
            raise CompileError(self._diagnostics)


def _resolve_rule(rule: Rule, catalog: Catalog, findings: _Findings) -> _RuleRestrictions:
    rows: dict[str, RowFilter] = {}
    for clause in rule.rows:
        named = f"policy rule '{rule.id}', rows of {clause.type_name}"
        type_ = _type(clause.type_name, clause.at, named, catalog, findings)
        if type_ is None:
            continue
        if type_.type_key in rows:
            findings.add(f"{named}: the type is listed twice", clause.at)
            continue
        try:
            rows[type_.type_key] = check_row_filter(clause.filter, type_, catalog)
        except CompileError as error:
            for problem in error.diagnostics:
                findings.add(filter_problem(named, problem), clause.at, problem.suggestion)
    masked: dict[str, frozenset[str]] = {}
    for hide in rule.hide:
        named = f"policy rule '{rule.id}', hide of {hide.type_name}"
        type_ = _type(hide.type_name, hide.at, named, catalog, findings)
        if type_ is None:
            continue
        if type_.type_key in masked:
            findings.add(f"{named}: the type is listed twice", hide.at)
            continue
        masked[type_.type_key] = _masked_properties(type_, hide.properties, named, hide.at, findings)
    return _RuleRestrictions(rows, masked)


def _type(name: str, at: TextSpan, named: str, catalog: Catalog, findings: _Findings) -> NodeType | EdgeType | None:
    if name in catalog.nodes and name in catalog.edges:
        findings.add(f"{named}: a node and an edge type have this name; write 'node:{name}' or 'edge:{name}'", at)
        return None
    try:
        return catalog.type_named(name)
    except BadRequestError as error:
        findings.add(f"{named}: {error}", at)
        return None


def _masked_properties(
    type_: NodeType | EdgeType, names: Iterable[str], named: str, at: TextSpan, findings: _Findings
) -> frozenset[str]:
    """The masked properties, with the vectors that are embedded from them."""
    masked = set()
    for name in names:
        if name not in type_.properties:
            findings.add(f"{named}: {type_.kind} type '{type_.name}' has no property '{name}'", at)
        elif isinstance(type_, NodeType) and name in type_.key:
            findings.add(f"{named}: '{name}' is part of the key, which the id shows to everybody", at)
        else:
            masked.add(name)
    return with_vectors(type_, masked)


def _combine(restrictions: Sequence[_RuleRestrictions], actor: str, catalog: Catalog) -> Visibility:
    restricted_keys = dict.fromkeys(key for rule in restrictions for key in (*rule.rows, *rule.masked))
    visibilities = []
    for key in restricted_keys:
        filters = [for_actor(rule.rows[key], actor) for rule in restrictions if key in rule.rows]
        masked = frozenset.intersection(*(rule.masked.get(key, frozenset()) for rule in restrictions))
        everything = len(filters) < len(restrictions)
        type_ = catalog.type_named(key)
        visibilities.append(
            TypeVisibility(type_, masked=masked) if everything else TypeVisibility(type_, any_of(filters), masked)
        )
    return visibility_of(visibilities, catalog)
