"""Value constraints: ranges, patterns and enums, judged row by row."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from omnigraph.engine.rows.kernels.decoder import decode, decode_collecting
from omnigraph.engine.rows.kernels.typed_rows import forbidden_values
from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import Catalog
from omnigraph.language.schema.compile import accept_schema
from tests.engine.museum import edge, lines, museum, node


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (
            node("Curator", badge="k", name="n", pay=500000.5),
            "@range violation on Curator.pay: value 500000.5 > max 500000",
        ),
        (node("Curator", badge="k", name="n", pay=-1), "@range violation on Curator.pay: value -1.0 < min 0"),
        (
            node("Curator", badge="K", name="n"),
            "@check violation on Curator.badge: value 'K' does not match pattern '^[a-z]'",
        ),
        (
            node("Curator", badge="k", name="n", level="Junior"),
            "invalid enum value 'Junior' for Curator.level (expected: junior, senior)",
        ),
        (
            edge("Cites", "a", "b", strength=1, mood="hot"),
            "invalid enum value 'hot' for Cites.mood (expected: cold, kind)",
        ),
    ],
)
def test_violations_are_reported_in_full(record: str, message: str) -> None:
    with pytest.raises(BadRequestError) as raised:
        decode(lines(record), museum())
    assert message in str(raised.value)
    assert str(raised.value).startswith("line 1: ")


def test_bounds_are_inclusive_and_null_is_exempt() -> None:
    data = lines(*(node("Curator", badge=f"k{i}", name="n", pay=pay) for i, pay in enumerate([0, 500000, None])))
    assert len(decode(data, museum()).by_type["node:Curator"]) == 3


def test_open_bounds() -> None:
    catalog = accept_schema("node A { k: I64 @key  low: I64?  high: F32?  @range(low, 5..)  @range(high, ..5) }")
    collected = decode_collecting(
        lines(node("A", k=1, low=4, high=9), node("A", k=2, low=5, high=5), node("A", k=3, low=10**15, high=-1e9)),
        catalog,
    )
    assert {(row.line, row.property) for row in collected.rejected} == {(1, "high"), (1, "low")}
    assert len(collected.by_type["node:A"]) == 2


def test_integers_are_compared_as_64_bit_floats() -> None:
    catalog = accept_schema(f"node A {{ k: I64 @key  n: I64  @range(n, 0..{2**53}) }}")
    assert len(decode(lines(node("A", k=1, n=2**53 + 1)), catalog).by_type["node:A"]) == 1


def test_nan_is_in_no_range() -> None:
    curator = museum().nodes["Curator"]
    found = list(forbidden_values(curator, pa.table({"pay": pa.array([1.0, math.nan, None])})))
    assert [(violation.row, violation.property) for violation in found] == [(1, "pay")]
    assert "NaN" in found[0].reason


def test_patterns_are_searched_not_anchored() -> None:
    catalog = accept_schema('node A { k: String @key  @check(k, "b+") }')
    assert len(decode(lines(node("A", k="abbc")), catalog).by_type["node:A"]) == 1
    with pytest.raises(BadRequestError, match="@check violation"):
        decode(lines(node("A", k="ac")), catalog)


@pytest.mark.parametrize("pattern", ["(?=a)", "(?<!a)b", "(", "a**"])
def test_patterns_beyond_the_dialect_in_a_schema_of_old_surface_on_the_first_write(pattern: str) -> None:
    accepted = accept_schema('node A { k: String @key  @check(k, "good") }').to_json()
    catalog = Catalog.from_json(accepted.replace(b'"good"', f'"{pattern}"'.encode()), "a schema of old")
    with pytest.raises(BadRequestError, match="has invalid regex"):
        decode(lines(node("A", k="a")), catalog)


def test_range_comes_before_check_and_check_before_enum() -> None:
    bad_enum = node("Curator", badge="k", name="n", level="boss")
    bad_check = node("Curator", badge="K1", name="n")
    bad_range = node("Curator", badge="k2", name="n", pay=-5)
    with pytest.raises(BadRequestError, match=r"line 3: .*@range"):
        decode(lines(bad_enum, bad_check, bad_range), museum())
    with pytest.raises(BadRequestError, match=r"line 2: .*@check"):
        decode(lines(bad_enum, bad_check), museum())
