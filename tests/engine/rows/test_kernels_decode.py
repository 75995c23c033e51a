"""Decoding whole inputs: envelopes, stages, tolerance, collecting every bad row, limits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.api.enums import Grammar
from omnigraph.api.governance import Limits
from omnigraph.engine.rows.kernels import ndjson
from omnigraph.engine.rows.kernels.decoder import decode, decode_collecting
from omnigraph.engine.rows.kernels.records import Records, RecordTyper
from omnigraph.engine.rows.kernels.typed_rows import LostValues, RejectedRow
from omnigraph.errors import BadRequestError, ConstraintError, ResourceLimitError
from tests.engine.museum import edge, lines, museum, node

MUSEUM = museum()
QUARANTINED = b'{"source":"s","row":1,"reason":"r","record":{"type":"T","data":{}}}'


def plain(data: bytes, grammar: Grammar = Grammar.STRICT) -> dict[str, list[dict[str, Any]]]:
    return {key: typed.rows.to_pylist() for key, typed in decode(data, MUSEUM, grammar).by_type.items()}


def test_an_input_is_sorted_by_type_with_its_lines() -> None:
    data = lines(
        edge("guards", "k7", "x", id="g"),
        node("Memo", text="a", id="m1"),
        "",
        node("Curator", badge="k7", name="Ines"),
        node("Memo", text="b", id="m2"),
    )
    decoded = decode(data, MUSEUM).by_type
    assert list(decoded) == ["edge:Guards", "node:Curator", "node:Memo"]
    assert {key: typed.lines.to_pylist() for key, typed in decoded.items()} == {
        "edge:Guards": [1],
        "node:Curator": [4],
        "node:Memo": [2, 5],
    }
    assert decoded["node:Memo"].rows.to_pylist() == [{"id": "m1", "text": "a"}, {"id": "m2", "text": "b"}]


def test_an_empty_input_has_no_types() -> None:
    assert decode(b"\n\n", MUSEUM).by_type == {}


@pytest.mark.parametrize(
    ("record", "mentions", "rule"),
    [
        ("[]", "invalid strict JSON: expected a JSON object", "record"),
        ('{"type":', "invalid strict JSON: ", "record"),
        ('{"type":"Memo","type":"Memo"}', "duplicate JSON member 'type'", "record"),
        ("{}", "exactly one of 'type' or 'edge'", "record"),
        ('{"type":"Memo","edge":"Cites","data":{"text":"a"}}', "exactly one of 'type' or 'edge'", "record"),
        ('{"type":5}', "expected 'type' or 'edge'", "record"),
        ('{"type":"Memo","data":{"text":"a"},"note":1}', "unknown top-level graph batch field 'note'", "record"),
        ('{"type":"Memo","from":"a","data":{"text":"a"}}', "unknown top-level graph batch field 'from'", "record"),
        ('{"type":"Memo","_rowid":1,"data":{"text":"a"}}', "reserved physical state", "field"),
        ('{"type":"Memo","data":null}', "'data' must be an object", "record"),
        ('{"type":"Memo","data":[]}', "'data' must be an object", "record"),
        ('{"type":"memo","data":{}}', "unknown node type 'memo'; did you mean 'Memo'?", "record"),
        ('{"edge":"Nope","from":"a","to":"b"}', "unknown edge type 'Nope'", "record"),
        ('{"edge":"Guards","to":"b"}', "'from' must be a string", "record"),
        ('{"edge":"Guards","from":"a","to":5}', "'to' must be a string", "record"),
        ('{"edge":"Guards","from":"a","to":null}', "'to' must be a string", "record"),
        ('{"type":"Memo","data":{"text":"a","_tombstone":true}}', "reserved physical state", "field"),
        ('{"type":"Memo","data":{"text":"a","txet":"b"}}', "unknown input field 'txet'", "field"),
        ('{"edge":"Guards","from":"a","to":"b","data":{"src":"a"}}', "reserved structural state", "field"),
        ('{"type":"Memo","data":{"id":5,"text":"a"}}', "'id' must be a string", "type"),
        ('{"type":"Memo"}', "non-nullable property 'text' has null", "required"),
        ('{"type":"Memo","data":{"text":null}}', "non-nullable property 'text' has null", "required"),
        ('{"type":"Sample","data":{"code":1,"small":"x"}}', "property 'small': expects I32, got a string", "type"),
        ('{"type":"Sample","data":{"code":1,"id":"2"}}', "does not match its canonical @key id", "key"),
    ],
)
def test_strict_refuses(record: str, mentions: str, rule: str) -> None:
    with pytest.raises(ConstraintError) as raised:
        decode(lines("", record), MUSEUM)
    assert str(raised.value).startswith("line 2: ")
    assert mentions in str(raised.value)
    assert (raised.value.rule, raised.value.line) == (rule, 2)


def test_a_name_that_only_looks_reserved_is_an_ordinary_field() -> None:
    with pytest.raises(BadRequestError, match="unknown input field '_row_notes'"):
        decode(lines(node("Memo", text="a", _row_notes="x")), MUSEUM)


@pytest.mark.parametrize(
    ("record", "expected", "nulled", "dropped"),
    [
        (
            '{"type":"Memo","edge":"Cites","data":{"text":"a","id":"m"}}',
            {"node:Memo": [{"id": "m", "text": "a"}]},
            0,
            1,
        ),
        (
            '{"type":"Memo","extra":1,"_rowid":3,"data":{"id":"m","text":"a","nope":1,"_rowid":2}}',
            {"node:Memo": [{"id": "m", "text": "a"}]},
            0,
            4,
        ),
        (
            '{"type":null,"edge":"gUARDS","from":"a","to":"b","data":{"id":"g","src":"x","since":1.5}}',
            {"edge:Guards": [{"id": "g", "src": "a", "dst": "b", "since": None}]},
            1,
            2,
        ),
        ('{"type":"Memo","data":{"text":"a","text":"b","id":"m"}}', {"node:Memo": [{"id": "m", "text": "b"}]}, 0, 1),
        (
            '{"type":"Memo",\n"data":{"text":"a","text":"b","id":"m"}}',
            {"node:Memo": [{"id": "m", "text": "b"}]},
            0,
            1,
        ),
        ('{"type":"Memo","data":{"text":"a","id":"m"}}', {"node:Memo": [{"id": "m", "text": "a"}]}, 0, 0),
    ],
)
def test_lenient_tolerates_and_counts(record: str, expected: dict[str, Any], nulled: int, dropped: int) -> None:
    assert plain(record.encode(), Grammar.LENIENT) == expected
    assert decode(record.encode(), MUSEUM, Grammar.LENIENT).lost == LostValues(nulled, dropped)


def test_lenient_reads_data_of_another_shape_as_no_members() -> None:
    decoded = decode(b'{"edge":"Guards","from":"a","to":"b","data":"none"}', MUSEUM, Grammar.LENIENT)
    assert decoded.lost == LostValues(dropped=1)
    assert decoded.by_type["edge:Guards"].rows.column("since").to_pylist() == [None]


@pytest.mark.parametrize(
    ("record", "mentions"),
    [
        ("{}", "expected 'type' or 'edge'"),
        ("5", "'type' or 'edge'"),
        ('{"type":"Nope"}', "unknown node type"),
        ('{"edge":"Guards","from":1,"to":"b"}', "'from' must be"),
        ('{"type":"Memo","data":{"text":5}}', "non-nullable property 'text' has null"),
        ('{"type":"Exhibit","data":{"accession":1,"wing":"w","tags":"x"}}', "expects [String]"),
    ],
)
def test_lenient_still_refuses(record: str, mentions: str) -> None:
    with pytest.raises(BadRequestError) as raised:
        decode(
            b"\n\n{}".replace(b"{}", node("Memo", text="a").encode()) + b"\n\n" + record.encode(),
            MUSEUM,
            Grammar.LENIENT,
        )
    assert str(raised.value).startswith("record 2: ")
    assert mentions in str(raised.value)


_FAILURES_IN_STAGE_ORDER = [
    '{"type":"Nope"}',
    node("Curator", badge="k", name="n", nope=1),
    node("Curator", badge="k", name="n", hired="soon"),
    node("Curator", badge="k", id="j", name="n"),
    node("Memo", text=5),
    edge("Cites", "a", "b", strength=1, nope=1),
    edge("Guards", "a", "b", since="soon"),
    edge("Cites", "a", "b", strength=1, mood="hot"),
    node("Curator", badge="k", name="n", pay=-1),
]


@pytest.mark.parametrize("earlier", range(len(_FAILURES_IN_STAGE_ORDER) - 1))
def test_the_first_failure_is_the_earliest_stage_wherever_it_stands(earlier: int) -> None:
    last_first = list(reversed(_FAILURES_IN_STAGE_ORDER[earlier:]))
    with pytest.raises(BadRequestError) as raised:
        decode(lines(*last_first), MUSEUM)
    assert str(raised.value).startswith(f"line {len(last_first)}: "), str(raised.value)


def test_the_stage_order_holds_across_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ndjson, "_BLOCK_BYTES", 1)
    with pytest.raises(BadRequestError, match="line 9: unknown node type"):
        decode(lines(*reversed(_FAILURES_IN_STAGE_ORDER)), MUSEUM)


def test_collecting_names_every_bad_row_and_keeps_the_good_ones() -> None:
    data = lines(
        node("Memo", text="good", id="m"),
        "nonsense",
        node("Sample", code=-1, small="x"),
        node("Sample", code=1, small=1),
        edge("Cites", "a", "b"),
        node("Curator", badge="k", name="n", pay=-1),
        node("Curator", badge="k", name="n", pay=1),
    )
    collected = decode_collecting(data, MUSEUM)
    assert {key: typed.lines.to_pylist() for key, typed in collected.by_type.items()} == {
        "edge:Cites": [],
        "node:Curator": [7],
        "node:Memo": [1],
        "node:Sample": [4],
    }
    found = {(row.line, row.type_key, row.property) for row in collected.rejected}
    assert found == {
        (2, None, None),
        (3, "node:Sample", "code"),
        (3, "node:Sample", "small"),
        (5, "edge:Cites", "strength"),
        (6, "node:Curator", "pay"),
    }


def test_a_row_with_a_bad_value_is_not_blamed_for_its_id_too() -> None:
    unreadable, other = node("Sample", code="x", id="7"), node("Sample", code=42, small="x", id="43")
    collected = decode_collecting(lines(unreadable, other), MUSEUM)
    assert [(row.line, row.property) for row in collected.rejected] == [(1, "code"), (2, "small")]


def test_beyond_the_limits_nothing_is_decoded() -> None:
    with pytest.raises(ResourceLimitError) as raised:
        decode(lines(node("Memo", text="a"), node("Memo", text="b")), MUSEUM, limits=Limits(rows=1))
    assert (raised.value.limit, raised.value.actual) == (1, 2)


def test_a_record_over_several_lines_is_told_to_be_on_one() -> None:
    with pytest.raises(
        BadRequestError, match="line 1: invalid strict JSON: the JSON value is truncated: it does not end"
    ):
        decode(b'{\n  "type": "Memo"\n}\n', MUSEUM)


def test_a_line_without_an_end_is_passed_on_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ndjson, "_LONGEST_LINE", 100)
    taken: list[int] = []

    def pieces() -> Iterator[bytes]:
        for number in range(50):
            taken.append(number)
            yield b"x" * 10

    first = next(ndjson.records_of(pieces()))
    assert (len(first), len(taken)) == (110, 11)


@given(
    lines_=st.lists(st.sampled_from([b"", b"a", b"x" * 30, QUARANTINED, b'{"record"']), max_size=8),
    size=st.integers(1, 40),
    longest=st.integers(90, 120),
)
def test_pieces_of_any_size_give_the_same_records(lines_: list[bytes], size: int, longest: int) -> None:
    """Also where a line is longer than is looked at."""
    text = b"\n".join([*lines_, b"y" * 200, *lines_])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ndjson, "_LONGEST_LINE", longest)
        found = b"".join(ndjson.records_of(text[at : at + size] for at in range(0, len(text), size)))
    assert found == b"\n".join(ndjson.record_of(line) for line in text.split(b"\n"))


def test_records_of_a_mutation_take_the_same_way() -> None:
    rejected: list[RejectedRow] = []
    cites = MUSEUM.edges["Cites"]
    inserts = Records(cites, [1, 2], [{"strength": 3}, {"strength": None}], ["a", "b"], ["c", "d"])
    typed = RecordTyper(cites, rejected).read(inserts)
    assert typed.rows.select(["src", "dst", "strength"]).to_pylist() == [{"src": "a", "dst": "c", "strength": 3}]
    assert [(row.line, row.property) for row in rejected] == [(2, "strength")]


_texts = st.text(max_size=6)
_records = st.one_of(
    st.builds(lambda t, i: node("Memo", text=t, id=i), _texts, _texts),
    st.builds(
        lambda code, small, wide, scores: node("Sample", code=code, small=small, wide=wide, scores=scores),
        st.integers(0, 2**32 - 1),
        st.none() | st.integers(-(2**31), 2**31 - 1),
        st.none() | st.floats(allow_nan=False, allow_infinity=False),
        st.none() | st.lists(st.integers(0, 9), max_size=3),
    ),
    st.builds(lambda s, t, n: edge("Cites", s, t, strength=n, id="e"), _texts, _texts, st.integers(0, 9)),
)
_bad_records = st.sampled_from(
    [
        "{",
        "[]",
        '{"type":"Memo","data":{"text":"a","text":"b"}}',
        '{"type":"Nope"}',
        node("Memo"),
        node("Sample", code="x"),
    ]
)


@settings(deadline=None)
@given(st.lists(_records, max_size=8))
def test_valid_records_come_back_unchanged(records: list[str]) -> None:
    decoded = decode(lines(*records), MUSEUM).by_type
    found: dict[int, dict[str, Any]] = {}
    for typed in decoded.values():
        found.update(zip(typed.lines.to_pylist(), typed.rows.to_pylist(), strict=True))
    for line, record in enumerate(records, 1):
        for name, value in json.loads(record)["data"].items():
            assert found[line][name] == value


@settings(deadline=None)
@given(st.lists(_records | _bad_records, max_size=8), st.sampled_from([1, 40, 1 << 18]))
def test_a_bad_row_never_changes_what_the_others_become(records: list[str], block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ndjson, "_BLOCK_BYTES", block)
        collected = decode_collecting(lines(*records), MUSEUM)
    bad = {row.line for row in collected.rejected}
    kept = [line for line in range(1, len(records) + 1) if line not in bad]
    alone = decode(lines(*("" if line in bad else text for line, text in enumerate(records, 1))), MUSEUM)
    assert sorted(line for typed in collected.by_type.values() for line in typed.lines.to_pylist()) == kept
    for key, typed in alone.by_type.items():
        assert collected.by_type[key].rows.drop_columns(["id"]).equals(typed.rows.drop_columns(["id"]))


_data_texts = st.one_of(
    st.sampled_from(
        ["{}", "null", "[]", '"x"', '{"text":"a","id":"i"}', '{"text":"a","text":"b"}', '{"t\\u0065xt":"\\u0022"}']
    ),
    st.builds(lambda t: json.dumps({"text": t, "id": "i"}), _texts),
    st.builds(lambda n: json.dumps({"strength": n, "id": "i"}), st.integers(0, 3)),
)
_members = st.one_of(
    st.tuples(st.just("type"), st.sampled_from(['"Memo"', '"Cites"', '"Nope"', "5", "null"])),
    st.tuples(st.just("edge"), st.sampled_from(['"Cites"', '"CITES"', '"Nope"', "true"])),
    st.tuples(st.sampled_from(["from", "to"]), st.sampled_from(['"a"', '"\\""', "1"])),
    st.tuples(st.just("data"), _data_texts),
    st.tuples(st.sampled_from(["extra", "_rowid"]), st.just("1")),
)
_plain_members = st.one_of(
    _data_texts.map(lambda data: [("type", '"Memo"'), ("data", data)]),
    _data_texts.map(lambda data: [("edge", '"Cites"'), ("from", '"a"'), ("to", '"b"'), ("data", data)]),
)
_envelopes = (_plain_members | st.lists(_members, max_size=5)).map(
    lambda members: "{" + ",".join(f'"{name}":{value}' for name, value in members) + "}"
)


@settings(deadline=None)
@given(st.lists(_envelopes | _records, max_size=6))
def test_the_fast_way_to_read_lines_changes_no_answer(records: list[str]) -> None:
    data = lines(*records)
    fast = decode_collecting(data, MUSEUM)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ndjson, "_READERS", ())
        slow = decode_collecting(data, MUSEUM)
    assert fast.rejected == slow.rejected
    assert list(fast.by_type) == list(slow.by_type)
    for key, typed in fast.by_type.items():
        assert typed.lines == slow.by_type[key].lines
        assert typed.rows.drop_columns(["id"]).equals(slow.by_type[key].rows.drop_columns(["id"]))
