"""What passes from one stage to the next: which columns are read, and which conditions can be tested earlier."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from omnigraph.language.query import ir, resolved
from omnigraph.language.query.lower.mentions import Blocks
from omnigraph.language.query.lower.output import has_aggregate
from omnigraph.language.query.lower.predicates import split_filters
from omnigraph.language.query.value_types import EntityType, PathType


def columns_read(stage: resolved.Stage, blocks: Blocks) -> list[str]:
    """The columns of the stage before that a stage reads, in their order."""
    values = [projection.value for projection in stage.projections]
    values += [key.value for key in stage.sort if not isinstance(key.value, resolved.OutputName)]
    if stage.ranking is not None:
        values.append(ir.Score(stage.ranking))
    names = _names_in(stage, values, blocks)
    if stage.sort:
        # Rows that all keys leave equal are ordered by these.
        names |= {name for name, type_ in stage.imported.items() if isinstance(type_, EntityType | PathType)}
    return [name for name in stage.imported if name in names]


def columns_read_by_feed(feed: resolved.Feed, values: Iterable[ir.Value], blocks: Blocks) -> list[str]:
    """The columns of its chain that a feed reads, and the values of its statements."""
    names = _names_in(feed, values, blocks)
    return [name for name in feed.imported if name in names]


def _names_in(stage: resolved.Stage | resolved.Feed, values: Iterable[ir.Value], blocks: Blocks) -> set[str]:
    items = [unwind.items for unwind in stage.unwinds]
    return blocks.in_clauses(stage.clauses).union(*map(blocks.mentioned_by, (*items, *values)))


# ---- conditions -----------------------------------------------------------------------------------------

_PASSED_ON: Final = (
    ir.PropertyValue
    | ir.UnionProperty
    | ir.MetaValue
    | ir.EntityValue
    | ir.VariableValue
    | ir.ParameterValue
    | ir.Constant
    | ir.Now
)
_NEVER_FAILS: Final = _PASSED_ON | ir.Compare | ir.And | ir.Or | ir.Not | ir.IsNull | ir.In | ir.TextMatch
"""What can be evaluated for rows that turn out not to be needed: nothing here ends in an error."""


def move_conditions_down(stages: Sequence[resolved.Stage], blocks: Blocks) -> list[resolved.Stage]:
    """The stages with each condition in the earliest one where it means the same. A condition on columns that a stage
    only passes on may be tested in that stage, unless its rows are counted, grouped or ranked there."""
    moved = list(stages)
    for i in range(len(moved) - 1, 0, -1):
        below, stage = moved[i - 1], moved[i]
        if not _passes_conditions(below):
            continue
        passed_on = _passed_on(below, blocks)
        kept: list[resolved.Clause] = []
        earlier: list[resolved.Clause] = []
        for clause in split_filters(stage.clauses):
            if isinstance(clause, resolved.Filter) and _can_move(clause.predicate, passed_on):
                earlier.append(resolved.Filter(_over_earlier(clause.predicate, passed_on)))
            else:
                kept.append(clause)
        if earlier:
            moved[i - 1] = replace(below, clauses=(*below.clauses, *earlier))
            moved[i] = replace(stage, clauses=tuple(kept))
    return moved


def _passes_conditions(stage: resolved.Stage) -> bool:
    if stage.distinct or stage.limit is not None or stage.offset != 0 or stage.ranking is not None:
        return False
    return not any(has_aggregate(projection.value) for projection in stage.projections)


def _passed_on(stage: resolved.Stage, blocks: Blocks) -> dict[str, ir.Value]:
    """The columns that hold what the stage has anyway, by their variables."""
    return {
        projection.variable: projection.value
        for projection in stage.projections
        if projection.variable is not None
        and isinstance(projection.value, _PASSED_ON)
        and not blocks.within(projection.value)
    }


def _can_move(predicate: ir.Value, passed_on: dict[str, ir.Value]) -> bool:
    names = ir.predicate_variables(predicate)
    if not names or not names <= passed_on.keys():
        return False
    return all(isinstance(part, _NEVER_FAILS) for part in ir.walk(predicate))


def _over_earlier(predicate: ir.Value, columns: dict[str, ir.Value]) -> ir.Value:
    """The predicate over what the columns are made of."""

    def earlier(part: ir.Value) -> ir.Value:
        match part:
            case ir.VariableValue():
                return columns[part.variable]
            case ir.PropertyValue() | ir.UnionProperty() | ir.MetaValue() | ir.EntityValue():
                column = columns[part.variable]
                assert isinstance(column, ir.EntityValue), "only entities have properties"
                return replace(part, variable=column.variable)
        return part

    return ir.rebuild(predicate, earlier)
