"""Why an actor sees a row, or does not: what each rule that allows the request shows of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from omnigraph.api.governance import AccessRequest
from omnigraph.language.catalog import Catalog, TableType
from omnigraph.language.query.row_filter import Lens
from omnigraph.policy.gate import PolicyGate
from omnigraph.policy.rules import Rule

Shows: TypeAlias = Callable[[Lens], bool]
"""Whether a row is seen through a lens. Who has the row answers this; rules are only looked at."""


@dataclass(frozen=True, slots=True)
class RowSight:
    """One row for one actor. `shown_by` and `not_shown_by` are the rules that allow the request."""

    type: TableType
    visible: bool
    shown_by: tuple[Rule, ...]
    not_shown_by: tuple[Rule, ...]
    hidden: tuple[str, ...]

    def lines(self) -> tuple[str, ...]:
        """`key: value`, as they follow the lines of an explanation."""
        told = [f"row: {'visible' if self.visible else 'not visible'}"]
        told += [f"reason: rule '{rule.id}' shows it" for rule in self.shown_by]
        told += [f"reason: rule '{rule.id}' does not show it{self._wanted(rule)}" for rule in self.not_shown_by]
        if self.visible and self.hidden:
            told.append(f"hidden: {', '.join(self.hidden)}")
        return tuple(told)

    def _wanted(self, rule: Rule) -> str:
        names = (self.type.name, self.type.type_key)
        wanted = next((shown.filter for shown in rule.rows if shown.type_name in names), None)
        return ", or not both of its ends" if wanted is None else f": it shows those with {' '.join(wanted.split())}"


def row_sight(
    gate: PolicyGate, actor: str, request: AccessRequest, catalog: Catalog, type_: TableType, shows: Shows
) -> RowSight:
    """Raises as `PolicyGate.lens` does: who may not do it sees no row."""
    lens = gate.lens(actor, request, catalog)
    by_rule = {rule: gate.lens_of_rule(actor, rule, catalog) for rule in gate.matching(actor, request)}
    shown = {rule.id: shows(seen) for rule, seen in by_rule.items()}
    return RowSight(
        type_,
        shows(lens),
        tuple(rule for rule in by_rule if shown[rule.id]),
        tuple(rule for rule in by_rule if not shown[rule.id]),
        tuple(sorted(lens.of(type_).hidden)),
    )
