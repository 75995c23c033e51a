"""The effects of a migration's steps: what they write again, what they check, and who can read the graph afterwards.

`schema plan` and `schema apply` add them to the steps of the language's planner. Every effect is read off the
`TableChange` that is staged, or the checks that are run; nothing is guessed from the kind of a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from omnigraph.api import schema as steps
from omnigraph.api.schema import SchemaPlan, SchemaStep, StepEffect
from omnigraph.engine.schema.data_checks import Check
from omnigraph.engine.schema.table_changes import TableChange
from omnigraph.errors import ConstraintRule
from omnigraph.language.catalog import Catalog, property_format
from omnigraph.language.schema.migration import Evolution

_RULES_OF_TYPES = (ConstraintRule.REQUIRED, ConstraintRule.ENUM)


def with_effects(
    evolution: Evolution,
    readable_format: int,
    changes: Mapping[str, TableChange],
    checks: Mapping[str, list[Check]],
) -> SchemaPlan:
    """The plan with the effect of each step. `readable_format` is that of the accepted catalog."""
    described = [
        step
        if isinstance(step, steps.UnsupportedChange)
        else replace(step, effect=_effect(step, evolution.catalog, readable_format, changes, checks))
        for step in evolution.plan.steps
    ]
    return replace(evolution.plan, steps=tuple(described))


def _effect(
    step: SchemaStep,
    desired: Catalog,
    readable_format: int,
    changes: Mapping[str, TableChange],
    checks: Mapping[str, list[Check]],
) -> StepEffect:
    name = getattr(step, "type_name", None) or getattr(step, "name", None) or getattr(step, "to_name", "")
    type_key = f"{getattr(step, 'type_kind', '')}:{name}"
    change, effect = changes.get(type_key), StepEffect()
    if change is not None and isinstance(step, steps.AddProperty | steps.ChangePropertyType | steps.RenameEnumValue):
        effect = change.effect_on(change.new.properties[step.property_name])
    elif change is not None and isinstance(step, steps.AddConstraint) and step.constraint.key is not None:
        effect = change.effect_of_key
    done = [check for check in checks.get(type_key, ()) if _is_for(check, step)]
    offences = tuple(str(offence) for check in done for offence in check.offences)
    needed = _format_of(step, desired)
    return replace(
        effect,
        checks=tuple(check.sentence for check in done),
        offences=offences,
        needs_format=needed if needed > readable_format else None,
    )


def _is_for(check: Check, step: SchemaStep) -> bool:
    """Whether a step is why a check is made."""
    rule, subject = check.rule, check.subject
    match step:
        case steps.ChangePropertyType() | steps.NarrowEnum():
            return rule in _RULES_OF_TYPES and subject == step.property_name
        case steps.RenameEnumValue():
            return rule not in _RULES_OF_TYPES and step.property_name in subject.split(", ")
        case steps.AddConstraint():
            return (rule, subject) in _subjects(step.constraint)
        case steps.ChangeCardinality():
            return rule is ConstraintRule.CARDINALITY
    return False


def _subjects(constraint: steps.Constraint) -> Iterable[tuple[ConstraintRule, str]]:
    if constraint.unique is not None:
        yield ConstraintRule.UNIQUE, ", ".join(constraint.unique)
    if constraint.key is not None:
        yield ConstraintRule.KEY, ", ".join(constraint.key)
    if constraint.range is not None:
        yield ConstraintRule.RANGE, constraint.range.property
    if constraint.check is not None:
        yield ConstraintRule.CHECK, constraint.check.property


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
        case steps.AddConstraint() if step.constraint.key is not None:
            return types[f"{step.type_kind}:{step.type_name}"].format
    return 1
