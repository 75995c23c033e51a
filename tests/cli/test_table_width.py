"""Tables that fit a terminal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from omnigraph.api.queries import ReadOutput, ReadTargetOutput
from omnigraph.cli.printing.rows import fitting_width


def output(*widths: int) -> ReadOutput:
    names = [str(i) for i in range(len(widths))]
    row = dict(zip(names, ("x" * width for width in widths), strict=True))
    target = ReadTargetOutput("main", None)
    return ReadOutput(query_name="q", target=target, row_count=1, columns=tuple(names), rows=[row])


def test_what_fits_is_left_alone() -> None:
    assert fitting_width(output(10, 20), 80, 80) == 80
    assert fitting_width(output(), 80, 80) == 80


def test_only_the_wide_columns_give_way() -> None:
    assert fitting_width(output(5, 200, 60), 60, 80) == (60 - 6 - 5) // 2


@given(st.lists(st.integers(1, 300), min_size=1, max_size=8), st.integers(20, 200), st.integers(1, 100))
def test_rows_fit_whenever_columns_can_be_read(widths: list[int], terminal: int, widest: int) -> None:
    cap = fitting_width(output(*widths), terminal, widest)
    assert cap <= widest
    rows = sum(min(width, cap) for width in widths) + 3 * (len(widths) - 1)
    assert rows <= terminal or cap == 1 or sum(min(w, widest) for w in widths) + 3 * (len(widths) - 1) <= terminal
