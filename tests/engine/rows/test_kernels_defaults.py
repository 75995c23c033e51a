"""The stored default of a property is what a record that gives the same value stores, for every type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.api.enums import Grammar
from omnigraph.engine.rows.columns import rows_schema
from omnigraph.engine.rows.kernels.coerce import absent_values, coerce, default_value
from omnigraph.engine.rows.kernels.records import Records, RecordTyper, type_batch
from omnigraph.engine.rows.kernels.typed_rows import RejectedRow
from omnigraph.errors import CompileError
from omnigraph.language.catalog import NodeType, Property
from omnigraph.language.schema.compile import compile_schema
from omnigraph.language.source import quote
from omnigraph.language.types import INTEGER_RANGES

_ENUM = ("todo", "1", "true", "null", "a-b")
_WRITTEN: Mapping[str, st.SearchStrategy[str]] = {
    "String": st.text(max_size=8).map(quote),
    "Bool": st.sampled_from(["true", "false"]),
    **{
        scalar.value: st.integers(low, high).map(str)
        for scalar, (low, high) in INTEGER_RANGES.items()
        if scalar.value[0] in "IU"
    },
    "F32": st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr),
    "F64": st.floats(allow_nan=False, allow_infinity=False).map(repr),
    "Date": st.dates().map(lambda day: quote(day.isoformat())),
    "DateTime": st.datetimes().map(lambda moment: quote(moment.isoformat(timespec="milliseconds"))),
}
_ENUMS = st.sampled_from(_ENUM).map(lambda value: (f"enum({', '.join(_ENUM)})", value))
_SCALARS = st.sampled_from(sorted(_WRITTEN)).flatmap(lambda name: st.tuples(st.just(name), _WRITTEN[name]))
_LISTS = st.sampled_from(sorted(_WRITTEN)).flatmap(
    lambda name: st.lists(_WRITTEN[name], max_size=3).map(lambda items: (f"[{name}]", f"[{', '.join(items)}]"))
)
_ANYTHING = st.tuples(
    st.sampled_from([*_WRITTEN, *(f"[{name}]" for name in _WRITTEN)]),
    st.one_of(
        st.from_regex(r"[A-Za-z0-9_.+-]{1,8}", fullmatch=True), st.text("0123456789-T:Z.+ ", max_size=12).map(quote)
    ),
)


def node(type_: str, default: str) -> NodeType:
    return compile_schema(f"node A {{ p: {type_} = {default}  q: I32? }}").nodes["A"]


def as_record_gives_it(prop: Property) -> pa.Array:
    column = coerce(prop.type, [default_value(prop)], Grammar.STRICT)
    assert not column.unfit
    assert not column.array.null_count
    return column.array


@settings(max_examples=150, deadline=None)
@given(st.one_of(_SCALARS, _LISTS, _ENUMS), st.booleans())
def test_every_way_of_leaving_a_value_out_stores_what_a_record_would(written: tuple[str, str], nullable: bool) -> None:
    type_ = node(f"{written[0]}{'?' if nullable else ''}", written[1])
    prop, rejected = type_.properties["p"], list[RejectedRow]()
    single = as_record_gives_it(prop)
    given_and_not: list[Mapping[str, Any]] = [{"p": default_value(prop)}, {"q": 1}, {}]
    mixed = RecordTyper(type_, rejected).read(Records(type_, [1, 2, 3], given_and_not))
    absent = RecordTyper(type_, rejected).read(Records(type_, [1, 2], given_and_not[1:]))
    catalog = compile_schema("")
    batch = type_batch(type_, pa.table({"q": pa.array([1, None, 3])}), [1, 2, 3], rejected, catalog=catalog)
    assert not rejected
    for typed in (mixed, absent, batch):
        assert typed.rows.schema == rows_schema(type_)
        for row in typed.rows.column("p"):
            assert row == single[0]
    assert absent_values(prop, 0).type == single.type


@settings(max_examples=150, deadline=None)
@given(_ANYTHING)
def test_whatever_a_schema_admits_every_row_can_hold(written: tuple[str, str]) -> None:
    try:
        prop = node(*written).properties["p"]
    except CompileError:
        return
    as_record_gives_it(prop)
