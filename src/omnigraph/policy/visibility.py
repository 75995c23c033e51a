"""What rules show of a graph: `rows` and `hide`, checked against a schema and put together for an actor.

Rules add up. A row is seen if any of the matching rules shows it, and a rule that says nothing of a type shows all of
it. A property is hidden only if every matching rule hides it.
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
from omnigraph.language.query.syntax import TextSpan
from omnigraph.policy.rules import INVALID, Bundle, Rule, filter_problem

_MOST_REMEMBERED: Final = 1024


@dataclass(frozen=True, slots=True)
class _RuleRestrictions:
    """What one rule shows, by type key: the rows it narrows, and the properties it hides."""

    rows: dict[str, RowFilter]
    masked: dict[str, frozenset[str]]


class Restrictions:
    """The narrowing rules of a bundle. Remembers what it made of them; safe to share between threads."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._lock = Lock()
        self._shown: OrderedDict[str, dict[str, _RuleRestrictions]] = OrderedDict()
        self._visibilities: OrderedDict[tuple[str, tuple[str, ...], str], Visibility] = OrderedDict()

    def visibility(self, actor: str, rules: Sequence[Rule], catalog: Catalog) -> Visibility:
        """What the actor sees by the rules that allow what it does. Raises `CompileError` when they narrow
        and the bundle does not fit the schema: a rule that can't be understood must not show more than was meant."""
        if not rules:
            raise ValueError("without a rule that allows it there is nothing to see")
        if not all(rule.restricts for rule in rules):
            return UNRESTRICTED
        key = (actor, tuple(rule.id for rule in rules), catalog.digest)
        with self._lock:
            found = self._visibilities.get(key)
        if found is None:
            shown = self._checked(catalog)
            found = _combine([shown[rule.id] for rule in rules], actor, catalog)
            with self._lock:
                self._visibilities[key] = found
                if len(self._visibilities) > _MOST_REMEMBERED:
                    self._visibilities.popitem(last=False)
        return found

    def _checked(self, catalog: Catalog) -> dict[str, _RuleRestrictions]:
        with self._lock:
            found = self._shown.get(catalog.digest)
        if found is None:
            found = resolve_restrictions(self._bundle, catalog)
            with self._lock:
                self._shown[catalog.digest] = found
                if len(self._shown) > _MOST_REMEMBERED:
                    self._shown.popitem(last=False)
        return found


def check_restrictions(bundle: Bundle, catalog: Catalog) -> None:
    """Whether the `rows` and `hide` of a bundle fit a schema. Raises `CompileError` with everything that does not."""
    resolve_restrictions(bundle, catalog)


def resolve_restrictions(bundle: Bundle, catalog: Catalog) -> dict[str, _RuleRestrictions]:
    """What every rule shows, by its id."""
    findings = _Findings(bundle)
    shown = {rule.id: _resolve_rule(rule, catalog, findings) for rule in bundle.rules}
    findings.raise_any()
    return shown


class _Findings:
    """Collects what does not fit, at the places of the bundle."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._found: list[Diagnostic] = []

    def add(self, message: str, at: TextSpan, suggestion: str | None = None) -> None:
        source = self._bundle.source
        self._found.append(source.diagnostic(INVALID, message, at.start, at.end, suggestion=suggestion))

    def raise_any(self) -> None:
        if self._found:
            raise CompileError(self._found)


def _resolve_rule(rule: Rule, catalog: Catalog, findings: _Findings) -> _RuleRestrictions:
    rows: dict[str, RowFilter] = {}
    for written in rule.rows:
        named = f"policy rule '{rule.id}', rows of {written.type_name}"
        type_ = _type(written.type_name, written.at, named, catalog, findings)
        if type_ is None:
            continue
        if type_.type_key in rows:
            findings.add(f"{named}: the type is listed twice", written.at)
            continue
        try:
            rows[type_.type_key] = check_row_filter(written.filter, type_, catalog)
        except CompileError as error:
            for found in error.diagnostics:
                findings.add(filter_problem(named, found), written.at, found.suggestion)
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
    """The hidden properties, with the vectors that are made from them."""
    masked = set()
    for name in names:
        if name not in type_.properties:
            findings.add(f"{named}: {type_.kind} type '{type_.name}' has no property '{name}'", at)
        elif isinstance(type_, NodeType) and name in type_.key:
            findings.add(f"{named}: '{name}' belongs to the key, which everybody reads off the id", at)
        else:
            masked.add(name)
    return with_vectors(type_, masked)


def _combine(shown: Sequence[_RuleRestrictions], actor: str, catalog: Catalog) -> Visibility:
    restricted_keys = dict.fromkeys(key for rule in shown for key in (*rule.rows, *rule.masked))
    visibilities = []
    for key in restricted_keys:
        filters = [for_actor(rule.rows[key], actor) for rule in shown if key in rule.rows]
        masked = frozenset.intersection(*(rule.masked.get(key, frozenset()) for rule in shown))
        everything = len(filters) < len(shown)
        type_ = catalog.type_named(key)
        visibilities.append(
            TypeVisibility(type_, masked=masked) if everything else TypeVisibility(type_, any_of(filters), masked)
        )
    return visibility_of(visibilities, catalog)
