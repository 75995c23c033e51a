"""The effects of a migration's steps: what they write again, what they check, and who can read the graph afterwards.

`schema plan` and `schema apply` add them to the steps of the language's planner. Every effect is read off the
`TableChange` that is staged, or the checks that are run; nothing is guessed from the kind of a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from omnigraph.api import schema as steps
from omnigraph.api.schema import SchemaPlan, SchemaStep, StepEffect
from omnigraph.engine.schema.data_checks import Check
from omnigraph.engine.schema.table_changes import TableChange
from omnigraph.errors import ConstraintRule
from omnigraph.language.catalog import Catalog, property_format
from omnigraph.language.schema.migration import Evolution


def with_effects(
    evolution: Evolution,
    readable_format: int,
    changes: Mapping[str, TableChange],
    checks: Mapping[str, list[Check]],
) -> SchemaPlan:
    """The plan with the effect of each step. `readable_format` is that of the accepted catalog."""
    planned = evolution.plan.steps
    owned: dict[int, list[Check]] = {}
    for type_key, done in checks.items():
        own = [number for number, step in enumerate(planned) if _type_key(step) == type_key]
        for check in done:
            # Edges may end at nodes of a type that their interface loses: then a step of that type is why.
            others = [number for number, step in enumerate(planned) if _type_key(step) == check.subject]
            about = others or own or range(len(planned))
            owned.setdefault(_step_of(check, about, planned), []).append(check)
    described = [
        step
        if isinstance(step, steps.UnsupportedChange)
        else replace(
            step,
            effect=replace(
                _work(step, changes.get(_type_key(step))),
                checks=tuple(check.sentence for check in owned.get(number, ())),
                offences=tuple(str(offence) for check in owned.get(number, ()) for offence in check.offences),
                needs_format=_format_beyond(readable_format, step, evolution.catalog),
            ),
        )
        for number, step in enumerate(planned)
    ]
    return replace(evolution.plan, steps=tuple(described))


def _type_key(step: SchemaStep) -> str:
    """The type that a step is about, by its name afterwards."""
    if isinstance(step, steps.UnsupportedChange):
        return step.entity
    name = getattr(step, "type_name", None) or getattr(step, "name", None) or getattr(step, "to_name", "")
    return f"{step.type_kind}:{name}"


def _work(step: SchemaStep, change: TableChange | None) -> StepEffect:
    """What a step writes again."""
    if change is not None and isinstance(step, steps.AddProperty | steps.ChangePropertyType | steps.RenameEnumValue):
        return change.effect_on(change.new.properties[step.property_name])
    if change is not None and isinstance(step, steps.AddConstraint) and step.constraint.key is not None:
        return change.effect_of_key
    return StepEffect()


def _step_of(check: Check, own: Sequence[int], planned: Sequence[SchemaStep]) -> int:
    """Which of the steps of a type is why a check is made: the one that adds the rule, else one that changes the values
    it is about."""
    members = check.subject.split(", ")

    def fit(number: int) -> int:
        match planned[number]:
            case steps.AddConstraint() as step:
                return 3 if (check.rule, check.subject) in _subjects(step.constraint) else 0
            case steps.WidenEndpoint() as step:
                return 3 if check.subject == {"source": "src", "target": "dst"}[step.end] else 0
            case steps.DropType() | steps.ChangeInterfaces():
                return 2 if check.rule is ConstraintRule.ENDPOINT else 0
            case steps.ChangeCardinality():
                return 3 if check.rule is ConstraintRule.CARDINALITY else 0
            case steps.NarrowEnum() as step:
                return 2 if check.rule is ConstraintRule.ENUM and step.property_name in members else 0
            case steps.ChangePropertyType() | steps.RenameEnumValue() as step:
                return 1 if step.property_name in members else 0
        return 0

    return max(own, key=fit)


def _subjects(constraint: steps.Constraint) -> Iterable[tuple[ConstraintRule, str]]:
    if constraint.unique is not None:
        yield ConstraintRule.UNIQUE, ", ".join(constraint.unique)
    if constraint.key is not None:
        yield ConstraintRule.KEY, ", ".join(constraint.key)
    if constraint.range is not None:
        yield ConstraintRule.RANGE, constraint.range.property
    if constraint.check is not None:
        yield ConstraintRule.CHECK, constraint.check.property


def _format_beyond(readable: int, step: SchemaStep, desired: Catalog) -> int | None:
    """The catalog format that a step asks for, if older releases do not read it."""
    needed = _format_of(step, desired)
    return needed if needed > readable else None


def _format_of(step: SchemaStep, desired: Catalog) -> int:
    """The catalog format that this step alone asks for."""
    types = {type_.type_key: type_ for type_ in desired.types()}
    match step:
        case steps.AddType():
            return types[f"{step.type_kind}:{step.name}"].format
        case steps.AddProperty() | steps.ChangeDefault():
            owner = types[f"{step.type_kind}:{step.type_name}"]
            return property_format(owner.kind, owner.properties[step.property_name])
        case steps.RenameProperty():
            owner = types[f"{step.type_kind}:{step.type_name}"]
            return property_format(owner.kind, owner.properties[step.to_name])
        case steps.WidenEndpoint():
            return types[f"edge:{step.name}"].format
        case steps.AddConstraint() if step.constraint.key is not None:
            return types[f"{step.type_kind}:{step.type_name}"].format
    return 1
