"""Loose Arrow columns, as Spark, Parquet and CSV readers give them, to typed rows."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.engine.rows.columns import arrow_type, rows_schema
from omnigraph.engine.rows.kernels.coerce import coerce
from omnigraph.engine.rows.kernels.records import type_batch
from omnigraph.engine.rows.kernels.source_values import coerce_arrow
from omnigraph.engine.rows.kernels.typed_rows import RejectedRow, TypedRows
from omnigraph.errors import BadRequestError
from omnigraph.language.types import PropertyType, Scalar
from tests.engine.museum import museum

MUSEUM = museum()
US = 1_000_000
DAY_US = 86_400 * US


def nullable(scalar: Scalar, *, many: bool = False) -> PropertyType:
    return PropertyType(scalar, nullable=True, list=many)


def typed(type_key: str, columns: dict[str, pa.Array]) -> tuple[TypedRows, list[RejectedRow]]:
    kind, name = type_key.split(":")
    type_ = MUSEUM.nodes[name] if kind == "node" else MUSEUM.edges[name]
    rejected: list[RejectedRow] = []
    batch = pa.record_batch(columns)
    return type_batch(type_, batch, pa.array(range(10, 10 + batch.num_rows)), rejected, catalog=MUSEUM), rejected


@pytest.mark.parametrize(
    ("type_", "array", "expected"),
    [
        (nullable(Scalar.I32), pa.array([1, None], pa.int64()), [1, None]),
        (nullable(Scalar.U64), pa.array([7], pa.int8()), [7]),
        (nullable(Scalar.I64), pa.array([3.0, None]), [3, None]),
        (nullable(Scalar.I64), pa.array([Decimal("12"), None], pa.decimal128(20, 0)), [12, None]),
        (nullable(Scalar.I32), pa.array(["-12", "+7", None]), [-12, 7, None]),
        (nullable(Scalar.F64), pa.array(["1.5", "-2e3", ".5"]), [1.5, -2000.0, 0.5]),
        (nullable(Scalar.F64), pa.array([2**53 + 1], pa.int64()), [2.0**53]),
        (nullable(Scalar.F32), pa.array([0.1], pa.float64()), [0.10000000149011612]),
        (nullable(Scalar.F64), pa.array([Decimal("1.25")], pa.decimal128(5, 2)), [1.25]),
        (nullable(Scalar.BOOL), pa.array(["true", "FALSE", None]), [True, False, None]),
        (nullable(Scalar.STRING), pa.array(["a", "a"]).dictionary_encode(), ["a", "a"]),
        (nullable(Scalar.STRING), pa.array(["a"], pa.large_string()), ["a"]),
        (nullable(Scalar.STRING), pa.nulls(2), [None, None]),
        (nullable(Scalar.I32, many=True), pa.array([[1, 2], [], None], pa.list_(pa.int64())), [[1, 2], [], None]),
        (nullable(Scalar.STRING, many=True), pa.array([["x"]], pa.large_list(pa.string())), [["x"]]),
        (PropertyType.vector(2, nullable=True), pa.array([[1.0, 2.0]], pa.list_(pa.float64())), [[1.0, 2.0]]),
        (PropertyType.vector(2, nullable=True), pa.array([[1, 2], None], pa.list_(pa.int32(), 2)), [[1.0, 2.0], None]),
        (nullable(Scalar.BLOB), pa.array([b"raw", None]), [{"data": b"raw", "uri": None}, None]),
        (nullable(Scalar.BLOB), pa.array(["base64:QQ=="]), [{"data": b"A", "uri": None}]),
    ],
)
def test_what_loses_nothing_is_taken(type_: PropertyType, array: pa.Array, expected: list[Any]) -> None:
    column = coerce_arrow(type_, array)
    assert column.unfit == {}
    assert column.array.type == arrow_type(type_)
    assert column.array.to_pylist() == expected


@pytest.mark.parametrize(
    ("array", "millis"),
    [
        (pa.array([1500, -1, None], pa.timestamp("us")), [1, -1, None]),
        (pa.array([1_999_999], pa.timestamp("ns", tz="Europe/Berlin")), [1]),
        (pa.array([-2], pa.timestamp("s")), [-2000]),
        (pa.array([1], pa.date32()), [86_400_000]),
        (pa.array(["1970-01-01T00:00:01Z", "1970-01-01 00:00:02"]), [1000, 2000]),
        (pa.array([5], pa.int32()), [5]),
    ],
)
def test_instants_of_any_unit_become_milliseconds(array: pa.Array, millis: list[int | None]) -> None:
    column = coerce_arrow(nullable(Scalar.DATETIME), array)
    assert column.unfit == {}
    assert column.array.cast(pa.int64()).to_pylist() == millis


@pytest.mark.parametrize(
    ("array", "days"),
    [
        (pa.array([DAY_US - 1, -1, None], pa.timestamp("us")), [0, -1, None]),
        (pa.array([86_400_000], pa.date64()), [1]),
        (pa.array([3], pa.date32()), [3]),
        (pa.array(["1970-01-02", "19700103"]), [1, 2]),
    ],
)
def test_dates_of_any_kind_become_days(array: pa.Array, days: list[int | None]) -> None:
    column = coerce_arrow(nullable(Scalar.DATE), array)
    assert column.unfit == {}
    assert column.array.cast(pa.int32()).to_pylist() == days


@pytest.mark.parametrize(
    ("type_", "array", "mentions"),
    [
        (nullable(Scalar.I32), pa.array([1, 2**31], pa.int64()), "range of I32"),
        (nullable(Scalar.U32), pa.array([1, -1], pa.int32()), "range of U32"),
        (nullable(Scalar.I64), pa.array([1.0, 1.5]), "expects I64"),
        (nullable(Scalar.I64), pa.array(["1", "x"]), "expects I64, got a string"),
        (nullable(Scalar.I64), pa.array(["1", ""]), "expects I64, got a string"),
        (nullable(Scalar.F64), pa.array([1.0, float("nan")]), "not finite"),
        (nullable(Scalar.F64), pa.array(["1", "nan"]), "expects F64"),
        (nullable(Scalar.F32), pa.array([1.0, 1e39]), "exceeds Float32 range"),
        (nullable(Scalar.BOOL), pa.array(["true", "yes"]), "expects Bool"),
        (nullable(Scalar.STRING), pa.array([b"a", b"b"]), "expects String, got bytes"),
        (nullable(Scalar.DATE), pa.array(["1970-01-01", "soon"]), "invalid Date literal"),
        (nullable(Scalar.I32, many=True), pa.array([[1], [None]], pa.list_(pa.int32())), "null or invalid item"),
        (PropertyType.vector(2, nullable=True), pa.array([[1.0, 2.0], [1.0]]), "expects 2 dimensions, got 1"),
        (PropertyType.vector(2, nullable=True), pa.array([[1.0, 2.0], [1.0, None]]), "elements must be numeric"),
        (nullable(Scalar.I32), pa.array([{"a": 1}, {"a": 1}]), "expects I32, got an object"),
    ],
)
def test_what_does_not_fit_is_refused_row_by_row(type_: PropertyType, array: pa.Array, mentions: str) -> None:
    column = coerce_arrow(type_, array)
    assert 1 in column.unfit
    assert mentions in column.unfit[1]


def test_a_batch_becomes_rows_with_derived_ids() -> None:
    rows, rejected = typed(
        "node:Exhibit",
        {
            "accession": pa.array([12, 13], pa.int64()),
            "wing": pa.array(["east", None]),
            "vec": pa.array([[1, 2, 3]] * 2),
        },
    )
    assert rows.rows.schema == rows_schema(MUSEUM.nodes["Exhibit"])
    assert rows.rows.column("id").to_pylist() == ['["12","east"]']
    assert rows.lines.to_pylist() == [10]
    assert [(row.line, row.type_key, row.property) for row in rejected] == [(11, "node:Exhibit", "wing")]


def test_value_constraints_are_part_of_a_batch() -> None:
    rows, rejected = typed(
        "node:Curator",
        {"badge": pa.array(["a", "b"]), "name": pa.array(["x", "y"]), "pay": pa.array([-1.0, 5.0])},
    )
    assert rows.rows.column("id").to_pylist() == ["b"]
    assert "@range violation" in rejected[0].reason


def test_edges_need_both_ends_and_integers_name_keys() -> None:
    rows, rejected = typed(
        "edge:Cites",
        {"from": pa.array([1, None]), "to": pa.array(["a", "b"]), "strength": pa.array([1, 1])},
    )
    assert rows.rows.select(["src", "dst"]).to_pylist() == [{"src": "1", "dst": "a"}]
    assert [(row.line, row.property) for row in rejected] == [(11, "from")]
    with pytest.raises(BadRequestError, match="no 'to' column"):
        typed("edge:Cites", {"from": pa.array(["a"]), "strength": pa.array([1])})


def test_explicit_ids_are_kept_and_gaps_are_filled() -> None:
    rows, _ = typed("node:Memo", {"id": pa.array(["m", None]), "text": pa.array(["a", "b"])})
    kept, minted = rows.rows.column("id").to_pylist()
    assert kept == "m"
    assert len(minted) == 26


def test_an_unknown_column_is_refused_as_a_whole() -> None:
    with pytest.raises(BadRequestError, match="unknown input field 'txet'; did you mean 'text'"):
        typed("node:Memo", {"txet": pa.array(["a"])})


_SAMPLES: dict[Scalar, st.SearchStrategy[Any]] = {
    Scalar.STRING: st.text(max_size=4),
    Scalar.BOOL: st.booleans(),
    Scalar.I32: st.integers(-(2**33), 2**33),
    Scalar.U64: st.integers(-5, 2**63 - 1),
    Scalar.F32: st.floats(),
    Scalar.F64: st.floats(),
    Scalar.DATE: st.dates().map(str),
    Scalar.DATETIME: st.datetimes().map(lambda d: d.isoformat()),
}


@settings(deadline=None)
@given(st.data(), st.sampled_from(sorted(_SAMPLES)), st.booleans())
def test_arrow_and_json_agree(data: st.DataObject, scalar: Scalar, many: bool) -> None:
    item = st.none() | _SAMPLES[scalar]
    values = data.draw(st.lists(st.none() | st.lists(item, max_size=3) if many else item, max_size=5))
    type_ = nullable(scalar, many=many)
    from_json, from_arrow = coerce(type_, values), coerce_arrow(type_, pa.array(values))
    assert dict(from_arrow.unfit) == dict(from_json.unfit)
    assert from_arrow.array.equals(from_json.array)


_number_texts = st.one_of(
    st.integers(-(2**65), 2**65).map(str),
    st.floats().map(str),
    st.from_regex(r"[+-]?[0-9]{0,3}\.?[0-9]{0,3}([eE][+-]?[0-9]{1,3})?", fullmatch=True),
    st.sampled_from(["", " 1", "0x1F", "inf", "007", "-0", "1_000", "١"]),
)


@settings(deadline=None)
@given(
    st.lists(st.none() | _number_texts, max_size=4), st.sampled_from([Scalar.I32, Scalar.U64, Scalar.F32, Scalar.F64])
)
def test_texts_of_numbers_are_read_alike_alone_and_together(texts: list[str | None], scalar: Scalar) -> None:
    together = coerce_arrow(nullable(scalar), pa.array(texts, pa.string()))
    # A text that is no number beside each one forces the way of single values.
    alone = [coerce_arrow(nullable(scalar), pa.array([text, "no number"])) for text in texts]
    assert together.array.equals(
        pa.chunked_array([one.array[:1] for one in alone], arrow_type(nullable(scalar))).combine_chunks()
    )
    assert dict(together.unfit) == {row: one.unfit[0] for row, one in enumerate(alone) if 0 in one.unfit}
