"""Checks the rules of a type against its effective properties: own ones and those that interfaces inject.

Called by the checks once the properties of a type are known. Inline and body spelling meet here, because a
type has one key however it is written.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from omnigraph.language.catalog import ENDPOINTS, CheckRule, InlineRule, Property, RangeRule, TypeKind
from omnigraph.language.schema import syntax as ast
from omnigraph.language.schema.resolved import DeclaredProperty, Report
from omnigraph.language.source import Name, did_you_mean, quote
from omnigraph.language.types import INTEGER_RANGES, NUMERIC, PropertyType, Scalar
from omnigraph.language.values import matches_pattern, pattern_problem, round_to_f32

_LONGEST_BOUND = 40
_FINE = 2**53
_DIALECT = "patterns are written in RE2 syntax, without look-around and back-references"


class TypeRules:
    """Every constraint of one type, inline and body spelling united, in source order.

    `unreadable` are properties whose type was refused: known names about which nothing more can be said.
    """

    def __init__(
        self,
        kind: TypeKind,
        owner: str,
        properties: Mapping[str, DeclaredProperty],
        unreadable: frozenset[str],
        rules: Iterable[ast.Rule],
        report: Report,
    ) -> None:
        self.kind = kind
        self.owner = owner
        self.properties = properties
        self.unreadable = unreadable
        self.report = report
        self.key: tuple[str, ...] = ()
        # By the set of their columns, whose order carries no meaning.
        self.uniques: dict[frozenset[str], tuple[str, ...]] = {}
        self.indexes: dict[frozenset[str], tuple[str, ...]] = {}
        self.ranges: dict[RangeRule, None] = {}
        self.checks: dict[CheckRule, None] = {}
        self._allowed: dict[str, RangeRule] = {}
        for prop in properties.values():
            for rule in prop.meaning.inline:
                self._take_columns(rule, (prop.name,))
        for written in rules:
            self._read(written)
        self._check_defaults()

    def _read(self, rule: ast.Rule) -> None:
        if isinstance(rule, ast.ColumnsRule):
            kind = InlineRule(rule.rule)
            ineligible = [column for column in rule.columns if not self._is_eligible(kind, column)]
            if ineligible or (kind is InlineRule.KEY and not self._is_whole_key(rule)):
                return
            self._take_columns(kind, rule.columns)
        elif self.kind == "edge":
            name = "range" if isinstance(rule, ast.RangeRule) else "check"
            self.report(f"@{name} is not supported on edges ('{self.owner}')", rule.at)
        elif isinstance(rule, ast.RangeRule):
            self._read_range(rule)
        else:
            self._read_check(rule)

    def _check_defaults(self) -> None:
        for name, prop in self.properties.items():
            if prop.meaning.default is None:
                continue
            subject = f"{self.owner}.{name}"
            if name in self.key:
                self.report(f"'{subject}' can't have a default: it is part of the key", prop.default_at)
            elif (rule := _broken_rule(prop.meaning, self.ranges, self.checks)) is not None:
                self.report(f"the default of '{subject}' breaks its {rule}", prop.default_at)

    def _is_whole_key(self, rule: ast.ColumnsRule) -> bool:
        """Whether the members of a key are all there, and each once."""
        names = [column.text for column in rule.columns]
        repeated = [column for i, column in enumerate(rule.columns) if names[i] in names[:i]]
        if repeated:
            self.report(f"@key of '{self.owner}' names '{repeated[0].text}' twice", repeated[0].at)
            return False
        if self.kind == "edge" and not set(ENDPOINTS) <= set(names):
            message = f"@key of edge '{self.owner}' must include both ends"
            self.report(message, rule.at, "write @key(@src, @dst), and behind them what tells parallel edges apart")
            return False
        return True

    def _is_end(self, column: Name) -> bool:
        return self.kind == "edge" and column.text in ENDPOINTS

    def _stored_name(self, rule: InlineRule, column: Name) -> str:
        """The name of a column in the catalog. An end keeps the form that older readers know, where it is clear."""
        bare = column.text.removeprefix("@")
        return column.text if rule is InlineRule.KEY or bare in self.properties else bare

    def _take_columns(self, rule: InlineRule, columns: tuple[Name, ...]) -> None:
        names = tuple(dict.fromkeys(self._stored_name(rule, column) for column in columns))
        if rule is InlineRule.UNIQUE:
            self.uniques.setdefault(frozenset(names), names)
        elif rule is InlineRule.INDEX:
            self.indexes.setdefault(frozenset(names), names)
        elif self.key:
            message = f"'{self.owner}' has multiple @key constraints; write one @key(a, b) for a composite key"
            self.report(message, columns[0].at)
        else:
            self.key = names

    def _is_eligible(self, rule: InlineRule, column: Name) -> bool:
        if column.text in self.unreadable or self._is_end(column):
            return True
        type_ = self._type_of(rule.value, column)
        if type_ is not None and (problem := _body_problem(rule, type_)) is not None:
            self.report(f"@{rule.value} on '{self.owner}.{column.text}' {problem}", column.at)
            return False
        return type_ is not None

    def _type_of(self, rule: str, column: Name) -> PropertyType | None:
        """The type of a column that a rule names. None if there is nothing to check or it was reported."""
        if column.text in self.unreadable:
            return None
        if (prop := self.properties.get(column.text)) is not None:
            return prop.meaning.type
        columns = [*self.properties, *(ENDPOINTS if self.kind == "edge" else ())]
        endpoint = {"from": "@src", "to": "@dst"}.get(column.text) if self.kind == "edge" else None
        suggestion = f"did you mean '{endpoint}'?" if endpoint else did_you_mean(column.text, columns)
        self.report(f"@{rule} on '{self.owner}' references unknown property '{column.text}'", column.at, suggestion)
        return None

    def _read_range(self, rule: ast.RangeRule) -> None:
        type_ = self._type_of("range", rule.column)
        if type_ is None:
            return
        subject = f"@range on '{self.owner}.{rule.column.text}'"
        if type_.scalar not in NUMERIC:
            self.report(f"{subject} requires a numeric type, not {type_}", rule.column.at)
            return
        if any(bound is not None and len(bound) > _LONGEST_BOUND for bound in (rule.low, rule.high)):
            self.report(f"{subject} has a bound that is too long to be a number", rule.at)
            return
        read = RangeRule(rule.column.text, _parse_bound(rule.low), _parse_bound(rule.high))
        if _is_empty(type_, read):
            self.report(f"{subject} allows no value: no {type_.scalar} lies within {_format_range(read)}", rule.at)
            return
        allowed = self._allowed.get(read.property, read)
        together = _both(allowed, read)
        if _is_empty(type_, together):
            both = f"{_format_range(allowed)} and {_format_range(read)}"
            message = f"{subject} allows no value: nothing lies both within {both}"
            self.report(message, rule.at, "write one rule for the property")
            return
        self._allowed[read.property] = together
        self.ranges[read] = None

    def _read_check(self, rule: ast.CheckRule) -> None:
        type_ = self._type_of("check", rule.column)
        if type_ is None:
            return
        subject = f"@check on '{self.owner}.{rule.column.text}'"
        if type_.scalar is not Scalar.STRING:
            self.report(f"{subject} requires String type, not {type_}", rule.column.at)
        elif (problem := pattern_problem(rule.pattern)) is not None:
            self.report(f"{subject} has invalid regex '{rule.pattern}': {problem}", rule.at, _DIALECT)
        else:
            self.checks[CheckRule(rule.column.text, rule.pattern)] = None


def _body_problem(rule: InlineRule, type_: PropertyType) -> str | None:
    """Why a column can't stand in a body rule. `@unique` admits lists and vectors: writing a value refuses them."""
    if type_.is_blob:
        return "is not supported on blob property"
    if rule is not InlineRule.KEY:
        return None
    if type_.nullable:
        return "cannot be nullable: every node has its key"
    if type_.list:
        return "is not supported on list property"
    return "is not supported on vector property" if type_.is_vector else None


def _is_empty(type_: PropertyType, rule: RangeRule) -> bool:
    """Whether a type has no value within the bounds. They are compared as 64-bit floats, as written values are."""
    smallest, largest = INTEGER_RANGES.get(type_.scalar, (-math.inf, math.inf))
    low = smallest if rule.low is None else rule.low
    high = largest if rule.high is None else rule.high
    if float(low) > min(float(high), float(largest)) or float(high) < float(smallest):
        return True
    # Where floats are finer than integers, an integer may be missing between the two.
    is_fine = max(abs(low), abs(high)) < _FINE
    return type_.scalar in INTEGER_RANGES and is_fine and math.ceil(low) > math.floor(high)


def _both(one: RangeRule, other: RangeRule) -> RangeRule:
    """The numbers that two rules about one property allow together."""
    lows = [low for low in (one.low, other.low) if low is not None]
    highs = [high for high in (one.high, other.high) if high is not None]
    return RangeRule(one.property, max(lows, default=None), min(highs, default=None))


def _format_range(rule: RangeRule) -> str:
    return f"{'' if rule.low is None else rule.low}..{'' if rule.high is None else rule.high}"


def _parse_bound(text: str | None) -> int | float | None:
    if text is None:
        return None
    if "." in text:
        return float(text)
    whole = int(text)
    # Bounds are compared as 64-bit floats; only what fits a 64-bit integer is kept exact.
    return whole if -(2**63) <= whole < 2**63 else float(whole)


def _broken_rule(prop: Property, ranges: Iterable[RangeRule], checks: Iterable[CheckRule]) -> str | None:
    """The rule of its type that the default of a property breaks. Values of lists are under no such rule."""
    default = prop.default
    if isinstance(default, str):
        patterns = (check.pattern for check in checks if check.property == prop.name)
        broken = next((pattern for pattern in patterns if not matches_pattern(default, pattern)), None)
        return None if broken is None else f"@check({prop.name}, {quote(broken)})"
    if isinstance(default, int | float):
        number = _stored_number(default, prop.type.scalar)
        if not all(_is_within(rule, number) for rule in ranges if rule.property == prop.name):
            return "@range"
    return None


def _is_within(rule: RangeRule, number: float) -> bool:
    is_above = rule.low is None or float(rule.low) <= number
    return is_above and (rule.high is None or number <= float(rule.high))


def _stored_number(number: int | float, scalar: Scalar) -> float:
    """A number as 64-bit floats compare it, once its column holds it."""
    return round_to_f32(number) if scalar is Scalar.F32 else float(number)
