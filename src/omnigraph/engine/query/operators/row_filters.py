"""The row filters of the reader's visibility: as filter texts, and tested on rows.

Scans, traversals and reads of single entities call it. A filter is a value like any other, with two differences: it is
about rows that the reader may not see, and its author is not the reader. So a filter that can't be evaluated fails the
whole read, and the error says nothing of the rule or the row.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.engine.query.bindings import Bindings, Mask
from omnigraph.engine.query.context import ReadContext
from omnigraph.engine.query.operators.pushdown import filter_text, split_pushdown
from omnigraph.engine.query.values.predicates import predicate_mask
from omnigraph.engine.query.values.stored import load_together
from omnigraph.errors import EvaluationError, PolicyEvaluationError
from omnigraph.language.catalog import TableType
from omnigraph.language.query.row_filter import EVERY_ROW, RowFilter, all_of


@contextmanager
def hide_evaluation_errors() -> Iterator[None]:
    """Row filters are evaluated inside: an error becomes one that reveals nothing."""
    try:
        yield
    except EvaluationError as error:
        raise PolicyEvaluationError(["a row filter of a rule can't be calculated for every row"]) from error


def visible_text(type_: TableType, context: ReadContext) -> str | None:
    """The filter text of the visible rows of a type; None when there is none."""
    with hide_evaluation_errors():
        return filter_text(context.visibility.of(type_).rows_of(unbound_variable(type_)), context)


def split_row_filter(test: RowFilter, context: ReadContext) -> tuple[str | None, RowFilter | None]:
    """The part of a filter that can be pushed, and what is left to test."""
    with hide_evaluation_errors():
        text, rest = split_pushdown([test], context)
    left = all_of(rest)
    return text, None if left == EVERY_ROW else left


def holds(test: RowFilter, rows: Bindings, context: ReadContext) -> Mask:
    """Which rows satisfy a filter."""
    with hide_evaluation_errors():
        load_together([test], rows, context)
        return predicate_mask(test, rows, context)


def unbound_variable(type_: TableType) -> str:
    """The variable of rows that a filter is tested on and that the plan does not bind."""
    return f"#visibility:{type_.type_key}"
