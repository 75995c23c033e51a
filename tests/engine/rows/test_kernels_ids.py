"""Ids: canonical text of keys, composite ids, explicit ids, respelled ids of old exports, ULIDs."""

from __future__ import annotations

import os
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.api.enums import Grammar
from omnigraph.engine.rows.columns import rows_schema
from omnigraph.engine.rows.kernels.coerce import from_stored
from omnigraph.engine.rows.kernels.decoder import decode
from omnigraph.engine.rows.kernels.ids import canonical_texts, is_spelling_of, key_ids, new_ulids, seeded_ulids
from omnigraph.errors import BadRequestError
from omnigraph.language.schema.compile import accept_schema
from omnigraph.language.types import INTEGER_RANGES, Scalar
from omnigraph.language.values import canonical_text, composite_id
from tests.engine.museum import edge, lines, museum, node

_KEY_VALUES: dict[Scalar, st.SearchStrategy[Any]] = {
    Scalar.STRING: st.text(max_size=8),
    Scalar.BOOL: st.booleans(),
    Scalar.F32: st.floats(allow_nan=False, allow_infinity=False, width=32)
    | st.integers(-(2**40), 2**40).map(lambda n: float(np.float32(n))),
    Scalar.F64: st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**60), 2**60).map(float),
    Scalar.DATE: st.integers(-(2**31), 2**31 - 1),
    Scalar.DATETIME: st.integers(-(2**60), 2**60),
    **{scalar: st.integers(low, high) for scalar, (low, high) in INTEGER_RANGES.items()},
}


@settings(deadline=None)
@given(st.data(), st.sampled_from(sorted(_KEY_VALUES)))
def test_a_column_of_keys_is_the_canonical_text_of_each(data: st.DataObject, scalar: Scalar) -> None:
    values = data.draw(st.lists(st.none() | _KEY_VALUES[scalar], max_size=6))
    texts = canonical_texts(scalar, from_stored(scalar, values)).to_pylist()
    assert texts == [None if value is None else canonical_text(scalar, value) for value in values]


_text_parts = st.text(st.sampled_from('ab",\\[]\n\x00\x1f\x7fé😀'), max_size=5)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2**32 - 1), _text_parts), max_size=5))
def test_composite_ids_are_compact_json_in_key_order(rows: list[tuple[int, str]]) -> None:
    exhibit = museum().nodes["Exhibit"]
    table = pa.table(
        {
            "accession": pa.array([number for number, _ in rows], pa.uint32()),
            "wing": pa.array([text for _, text in rows], pa.string()),
        }
    )
    assert key_ids(exhibit, table).to_pylist() == [composite_id([str(number), text]) for number, text in rows]


def ids_of(data: bytes, type_key: str, grammar: Grammar = Grammar.STRICT) -> list[str]:
    ids: list[str] = decode(data, museum(), grammar).by_type[type_key].rows.column("id").to_pylist()
    return ids


def test_keys_make_the_id() -> None:
    assert ids_of(lines(node("Curator", badge="k7", name="Ines")), "node:Curator") == ["k7"]
    assert ids_of(lines(node("Exhibit", wing="east", accession=12)), "node:Exhibit") == ['["12","east"]']


def test_the_stored_value_makes_the_id_not_the_written_one() -> None:
    catalog = accept_schema("node Reading { value: F32 @key }\nnode Day { on: Date @key }")
    data = lines(node("Reading", value=16777217), node("Reading", value=-0.0), node("Day", on="2031-05-04"))
    decoded = decode(data, catalog).by_type
    assert decoded["node:Reading"].rows.column("id").to_pylist() == ["16777216", "0"]
    assert decoded["node:Day"].rows.column("id").to_pylist() == ["22403"]


def test_without_a_key_the_explicit_id_counts_and_the_rest_get_ulids() -> None:
    given_id, minted = ids_of(lines(node("Memo", text="a", id=""), node("Memo", text="b")), "node:Memo")
    assert given_id == ""
    assert re.fullmatch("[0-7][0-9A-HJKMNP-TV-Z]{25}", minted)


def test_ulids_are_distinct_and_begin_with_the_clock() -> None:
    minted = new_ulids(5_000).to_pylist()
    assert len(set(minted)) == 5_000
    assert len({ulid[:10] for ulid in minted}) == 1
    assert all(re.fullmatch("[0-7][0-9A-HJKMNP-TV-Z]{25}", ulid) for ulid in minted)
    assert minted == sorted(minted)
    assert new_ulids(0).to_pylist() == []


def test_ulids_go_on_counting_where_their_lower_digits_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "urandom", lambda count: bytes([0, 0, 0, 0, 1, *[0xFF] * (count - 6), 0xFC]))
    minted = [ulid[10:] for ulid in new_ulids(4).to_pylist()]
    assert minted == ["00000000ZZZZZZZY", "00000000ZZZZZZZZ", "0000000100000000", "0000000100000001"]


def test_seeded_ulids_are_the_same_for_the_same_seed_and_no_other() -> None:
    minted = [pa.concat_arrays([mint(3), mint(0), mint(2_000)]).to_pylist() for mint in _mints("a", "a", "b")]
    assert minted[0] == minted[1]
    assert len({*minted[0], *minted[2]}) == 4_006
    assert len({ulid[:10] for ulid in minted[0]}) == 1
    assert minted[0] == sorted(minted[0])
    assert all(re.fullmatch("[0-7][0-9A-HJKMNP-TV-Z]{25}", ulid) for ulid in minted[0])


def test_a_seed_never_runs_out_of_ulids() -> None:
    (mint,) = _mints("a")
    assert len(pc.unique(pa.concat_arrays([mint(1 << 20), mint(10)]))) == (1 << 20) + 10


def _mints(*seeds: str) -> list[Any]:
    return [seeded_ulids(seed, 1_700_000_000_000) for seed in seeds]


@pytest.mark.parametrize("grammar", Grammar)
@pytest.mark.parametrize("bad", [5, None, True, ["a"]])
def test_a_node_id_that_is_no_string_is_refused(bad: object, grammar: Grammar) -> None:
    with pytest.raises(BadRequestError, match="'id' must be a string"):
        decode(lines(node("Memo", text="a", id=bad)), museum(), grammar)


def test_an_edge_id_that_is_no_string_is_refused_strictly_and_replaced_leniently() -> None:
    data = lines(edge("Cites", "a", "b", strength=1, id=5))
    with pytest.raises(BadRequestError, match="'id' must be a string"):
        decode(data, museum())
    assert len(ids_of(data, "edge:Cites", Grammar.LENIENT)[0]) == 26


def test_strict_takes_only_the_canonical_id_of_a_key() -> None:
    assert ids_of(lines(node("Sample", code=42, id="42")), "node:Sample") == ["42"]
    with pytest.raises(BadRequestError, match="does not match its canonical @key id '42'"):
        decode(lines(node("Sample", code=42, id="00042")), museum())


def test_lenient_stores_the_canonical_id_and_rewrites_endpoints() -> None:
    catalog = accept_schema(
        "node Part { code: U32 @key }\nnode Note { text: String }\nedge Fits: Part -> Part\nedge About: Note -> Part"
    )
    data = lines(
        edge("Fits", "00042", "7"),
        edge("About", "00042", "00042", id="e"),
        node("Part", code=42, id="00042"),
        node("Part", code=7),
        node("Note", text="x", id="00042"),
    )
    decoded = decode(data, catalog, Grammar.LENIENT).by_type
    assert decoded["node:Part"].rows.column("id").to_pylist() == ["42", "7"]
    assert decoded["edge:Fits"].rows.select(["src", "dst"]).to_pylist() == [{"src": "42", "dst": "7"}]
    # The source is a Note: an id of that type is not respelled because a Part happens to share it.
    assert decoded["edge:About"].rows.select(["src", "dst"]).to_pylist() == [{"src": "00042", "dst": "42"}]


def test_lenient_takes_the_spelling_of_one_composite_member() -> None:
    data = lines(node("Exhibit", accession=12, wing="east", id="012"))
    assert ids_of(data, "node:Exhibit", Grammar.LENIENT) == ['["12","east"]']


def test_lenient_refuses_one_spelling_for_two_ids() -> None:
    data = lines(
        node("Exhibit", accession=12, wing="east", id="012"), node("Exhibit", accession=12, wing="west", id="012")
    )
    with pytest.raises(BadRequestError, match="ambiguous edge endpoint remap"):
        decode(data, museum(), Grammar.LENIENT)


def test_lenient_refuses_an_unrelated_id() -> None:
    with pytest.raises(BadRequestError, match="does not match @key"):
        decode(lines(node("Sample", code=42, id="43")), museum(), Grammar.LENIENT)


@pytest.mark.parametrize(
    ("scalar", "canonical", "spelled", "same"),
    [
        (Scalar.U32, "42", "00042", True),
        (Scalar.I64, "-42", "-042", True),
        (Scalar.U32, "42", "42.0", False),
        (Scalar.U32, "42", "0x2A", False),
        (Scalar.U32, "42", "4294967338", False),
        (Scalar.DATE, "22403", "2031-05-04", True),
        (Scalar.DATE, "22403", "2031-05-05", False),
        (Scalar.DATETIME, "1935655200000", "2031-05-04T12:00:00+02:00", True),
        (Scalar.F32, "0.1", "1e-1", True),
        (Scalar.F64, "1", "1.0", True),
        (Scalar.F64, "1", "nan", False),
        (Scalar.STRING, "east", "East", False),
        (Scalar.BOOL, "true", "True", False),
    ],
)
def test_typed_equivalent_spellings(scalar: Scalar, canonical: str, spelled: str, same: bool) -> None:
    assert is_spelling_of(scalar, canonical, spelled) is same


@pytest.mark.parametrize("grammar", Grammar)
def test_a_missing_key_member_is_named(grammar: Grammar) -> None:
    with pytest.raises(BadRequestError, match=r"'wing' has null value.*@key"):
        decode(lines(node("Exhibit", accession=1)), museum(), grammar)


def test_rows_come_in_the_order_of_the_table() -> None:
    catalog = museum()
    decoded = decode(lines(edge("Guards", "k", "x")), catalog).by_type["edge:Guards"]
    assert decoded.rows.schema == rows_schema(catalog.edges["Guards"])
    assert decoded.rows.column_names[:3] == ["id", "src", "dst"]
