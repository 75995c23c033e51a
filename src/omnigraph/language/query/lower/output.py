"""What a stage returns, as values over the rows that its match, its groups or its distinct rows leave.

Projections and sort keys are written over the variables of the match. Above an `Aggregate` only its columns are left,
above a `Distinct` only the variables that hold the columns, and both are rewritten to read those.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from omnigraph.language.query import ir, resolved
from omnigraph.language.query.lower.match import Match
from omnigraph.language.query.value_types import EntityType, PathType, ValueType, as_column


def has_aggregate(value: ir.Value) -> bool:
    return any(isinstance(part, ir.AggregateValue) for part in ir.walk(value))


def column_variables(projections: Iterable[resolved.Projection]) -> list[str]:
    """The variables that hold columns: of the same names where the names are variables, else hidden."""
    return [projection.variable or f"#column{i}" for i, projection in enumerate(projections, 1)]


class StageOutput:
    """The projections and sort keys of a stage, while operators are put on the rows of its match.

    `values` are the projections, `keys` what the rows are sorted by; both read the rows as they are at this moment.
    """

    def __init__(self, stage: resolved.Stage, match: Match) -> None:
        self._stage = stage
        self.match = match
        self.values = [projection.value for projection in stage.projections]
        self.is_grouped = any(map(has_aggregate, self.values))
        # Whether the values are the columns of an `Aggregate`, in their order.
        self.are_columns_of_groups = False
        self.keys = [
            ir.SortKey(self._key(key.value), key.descending, key.nulls_first) for key in self._sort_keys(stage)
        ]

    @staticmethod
    def _sort_keys(stage: resolved.Stage) -> Sequence[resolved.Sort]:
        """The keys beside a ranking: none beside a rank call. The name of a score is a value, whose ties the keys after
        it break."""
        sort = stage.sort
        names_score = bool(sort) and isinstance(sort[0].value, resolved.OutputName)
        return sort if stage.ranking is None or (names_score and len(sort) > 1) else ()

    def _key(self, value: ir.Value | resolved.OutputName) -> ir.Value:
        """A sort key over the variables of the match."""
        if isinstance(value, resolved.OutputName):
            return self.values[value.index]

        def read_column(part: ir.Value) -> ir.Value:
            return self.values[part.index] if isinstance(part, ir.OutputValue) else part

        return ir.rebuild(value, read_column)

    # ---- rows -------------------------------------------------------------------------------------------

    def group(self) -> None:
        """Put an `Aggregate` on the rows. Its columns are the projections as they stand, unless some of them calculate
        with aggregates."""
        values, names = self.values, [projection.name for projection in self._stage.projections]
        self.are_columns_of_groups = not any(
            has_aggregate(value) and not isinstance(value, ir.AggregateValue) for value in values
        )
        if not self.are_columns_of_groups:
            parts = self._group_parts()
            values, names = list(parts.values()), list(parts)
        self.match.compute(values)
        columns = (ir.AggregateColumn(name, value) for name, value in zip(names, values, strict=True))
        self.match.put_on_top(ir.Aggregate(self.match.plan, tuple(columns)), ())
        outputs: list[ir.Value] = [ir.OutputValue(i, value.type) for i, value in enumerate(values)]
        self._read_from(values, outputs, as_they_stand=self.are_columns_of_groups)

    def _group_parts(self) -> dict[str, ir.Value]:
        """Grouping keys, which are the projections without aggregates, and every aggregate of the others."""
        parts: dict[str, ir.Value] = {}
        for value in self.values:
            aggregates = [part for part in ir.walk(value) if isinstance(part, ir.AggregateValue)]
            parts |= {ir.value_text(part): part for part in aggregates or (value,)}
        return parts

    def make_distinct(self) -> None:
        """Put a `Distinct` on the rows, over variables that hold the columns."""
        values, variables = self.values, tuple(column_variables(self._stage.projections))
        types = [as_column(value.type) for value in values]
        self._bind(variables, types)
        self.match.put_on_top(ir.Distinct(self.match.plan, tuple(zip(variables, types, strict=True))))
        self.are_columns_of_groups = False
        self._read_from(values, list(map(ir.as_variable, variables, types)), as_they_stand=True)

    def sort(self) -> None:
        """Put a `Sort` on the rows. Ties are broken by every named entity and path of the match, in the order of the
        names of their id columns; of groups and distinct rows the one that appeared first is first."""
        if not self.keys:
            return
        self.match.compute(key.value for key in self.keys)
        ties: list[ir.TieBreak] = []
        if not (self.is_grouped or self._stage.distinct):
            for name, type_ in sorted(self._stage.variables.items(), key=lambda item: f"{item[0]}.id"):
                if isinstance(type_, EntityType | PathType) and not name.startswith("#"):
                    ties.append(ir.TieBreak(name, type_))
        self.match.put_on_top(ir.Sort(self.match.plan, tuple(self.keys), tuple(ties)))

    def limit(self) -> None:
        limit, offset = self._stage.limit, self._stage.offset
        if limit is not None or offset != 0:
            self.match.put_on_top(ir.Limit(self.match.plan, limit, offset))

    def bind_named(self, types: Mapping[str, ValueType]) -> ir.ReadOperator:
        """The rows with nothing bound but these variables, which are names of columns."""
        values = dict(zip(column_variables(self._stage.projections), self.values, strict=True))
        self.values = [values[name] for name in types]
        return self.bind_in_order(types)

    def bind_in_order(self, types: Mapping[str, ValueType]) -> ir.ReadOperator:
        """The rows with nothing bound but these variables, one for each column."""
        self._bind(tuple(types), tuple(types.values()))
        return self.match.plan

    def _bind(self, variables: Sequence[str], types: Sequence[ValueType]) -> None:
        """Put a `Bind` on the rows: nothing but these variables, which hold the values of the same places."""
        self.match.compute(self.values)
        if self.match.bound == set(variables) and self.values == list(map(ir.as_variable, variables, types)):
            return
        columns = (ir.BoundColumn(*column) for column in zip(variables, self.values, types, strict=True))
        self.match.put_on_top(ir.Bind(self.match.plan, tuple(columns)), variables)

    def _read_from(self, columns: Sequence[ir.Value], outputs: list[ir.Value], *, as_they_stand: bool) -> None:
        """Rewrite what is still to be computed: each of `columns` is now what `outputs` says, and `as_they_stand` they
        are the values. Equal values have equal texts within one stage."""
        if not as_they_stand or self.keys:
            table: dict[str, ir.Value] = {}
            for column, value in zip(columns, outputs, strict=True):
                table.setdefault(ir.value_text(column), value)
            self.keys = [ir.SortKey(_rewrite(k.value, table), k.descending, k.nulls_first) for k in self.keys]
        self.values = outputs if as_they_stand else [_rewrite(value, table) for value in self.values]


def _rewrite(value: ir.Value, table: Mapping[str, ir.Value]) -> ir.Value:
    """The value with every part that the table names replaced. Aggregates go first: what they are made of may be a
    column as well."""
    whole = table.get(ir.value_text(value))
    if whole is not None:
        return whole

    def replace_aggregate(part: ir.Value) -> ir.Value:
        return table[ir.value_text(part)] if isinstance(part, ir.AggregateValue) else part

    def replace_any(part: ir.Value) -> ir.Value:
        return table.get(ir.value_text(part), part)

    return ir.rebuild(ir.rebuild(value, replace_aggregate), replace_any)
