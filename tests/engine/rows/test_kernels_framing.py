"""Framing: which bytes are JSON values, where they stand, and what strict JSON forbids."""

from __future__ import annotations

import json
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.api.governance import Limits
from omnigraph.engine.rows.kernels import ndjson
from omnigraph.engine.rows.kernels.ndjson import Block, MalformedError, lenient_blocks, parse_exactly, strict_blocks
from omnigraph.errors import ResourceLimitError

UNBOUNDED = Limits()


def all_of(blocks: Iterator[Block]) -> tuple[list[tuple[int, object]], list[tuple[int, str]]]:
    values: list[tuple[int, object]] = []
    malformed: list[tuple[int, str]] = []
    for block in blocks:
        values.extend(zip(block.positions, block.values, strict=True))
        malformed.extend(block.malformed)
    return values, malformed


def strict(data: bytes) -> tuple[list[tuple[int, object]], list[tuple[int, str]]]:
    return all_of(strict_blocks(data, UNBOUNDED))


def lenient(data: bytes) -> tuple[list[tuple[int, object]], list[tuple[int, str]]]:
    return all_of(lenient_blocks(data, UNBOUNDED))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"{}", [(1, {})]),
        (b"{}\n", [(1, {})]),
        (b'{"a":1}\r\n{"b":2}\r\n', [(1, {"a": 1}), (2, {"b": 2})]),
        (b"\n \t\n{}\n\n{}", [(3, {}), (5, {})]),
        (b' {"a" : [1, null] } ', [(1, {"a": [1, None]})]),
    ],
)
def test_strict_lines_are_numbered_with_blank_lines_counted(data: bytes, expected: list[tuple[int, object]]) -> None:
    assert strict(data) == (expected, [])


@pytest.mark.parametrize(
    ("text", "mentions"),
    [
        (b'{"a":1} {"b":2}', "trailing characters"),
        (b'{"a":', "truncated"),
        (b'{"a":NaN}', "invalid character"),
        (b'{"a":Infinity}', "invalid character"),
        (b'{"a":-Infinity}', "invalid"),
        (b'{"a":"\\ud800"}', "surrogate"),
        (b'{"a":"\\udc00x"}', "surrogate"),
        (b'{"a":1e999}', "out of range"),
        (b'{"a":1' + b"0" * 400 + b"}", "overflows a 64-bit float"),
        (b'{"a":-1' + b"0" * 5000 + b"}", "out of range"),
        (b'{"a":"\xff"}', "UTF-8"),
        (b'{"a":"\x01"}', "invalid character"),
        (b'{"a":01}', "invalid number"),
        (b"\xef\xbb\xbf{}", "invalid character"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":1,"a":1}', "duplicate JSON member 'a'"),
        (b'{"data":{"x":{"deep":1,"deep":2}}}', "duplicate JSON member 'deep'"),
        (b'{"data":[{"b":"","b":""}]}', "duplicate JSON member 'b'"),
        (b'{"a":1,"\\u0061":2}', "duplicate JSON member 'a'"),
        # Two quotes that the written-back form gains hide the two that a lost name takes away.
        (b'{"a":"\\u0022\\u0022","b":1,"b":1}', "duplicate JSON member 'b'"),
        (b'{"a\\"":1,"a\\"":2}', "duplicate JSON member 'a\"'"),
    ],
)
def test_strict_refuses_with_the_line(text: bytes, mentions: str) -> None:
    values, malformed = strict(b"{}\n\n" + text + b"\n{}")
    assert [at for at, _ in values] == [1, 4]
    assert [at for at, _ in malformed] == [3]
    assert mentions in malformed[0][1]


@pytest.mark.parametrize("depth", [10, 100, *range(940, 1010, 3), 5000])
@pytest.mark.parametrize("shape", ['{"a":', "["])
def test_any_depth_is_read_or_refused(depth: int, shape: str) -> None:
    text = shape * depth + "1" + {"[": "]"}.get(shape, "}") * depth
    values, malformed = strict(text.encode())
    assert len(values) + len(malformed) == 1
    assert all("nested too deeply" in reason for _, reason in malformed)


def test_a_number_at_the_edge_of_the_floats_is_no_overflow() -> None:
    digits = str(int(1.7976931348623157e308))
    assert strict(f'{{"a":{digits}}}'.encode()) == ([(1, {"a": int(digits)})], [])


def test_long_digits_inside_a_string_are_text() -> None:
    digits = "9" * 1000
    assert strict(f'{{"a":"{digits}"}}'.encode()) == ([(1, {"a": digits})], [])


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"a":1}{"b":2}', [(1, {"a": 1}), (2, {"b": 2})]),
        (b'{"a":\n\n1}\n{"b":2} {"c":3}', [(1, {"a": 1}), (2, {"b": 2}), (3, {"c": 3})]),
        (b'\n\n{"a":1,"a":2}\n', [(1, {"a": 2})]),
        (b'{"a":1}\n\n{\n"a":1,"a":2}', [(1, {"a": 1}), (2, {"a": 2})]),
        (b" \n ", []),
    ],
)
def test_lenient_reads_a_stream_of_values(data: bytes, expected: list[tuple[int, object]]) -> None:
    assert lenient(data) == (expected, [])


@pytest.mark.parametrize(
    ("bad", "mentions"),
    [
        (b'{"a":NaN}', "invalid character"),
        (b'{"a":"\\ud800"}', "surrogate"),
        (b'{"a":"\xff"}', "UTF-8"),
        (b'{"a":1' + b"0" * 400 + b"}", "overflows"),
        (b'{"a":1e999}', "out of range"),
    ],
)
def test_lenient_refuses_one_value_and_reads_on(bad: bytes, mentions: str) -> None:
    values, malformed = lenient(b'{"x":1}\n' + bad + b"\n{}")
    assert [at for at, _ in values] == [1, 3]
    assert [at for at, _ in malformed] == [2]
    assert mentions in malformed[0][1]


def test_lenient_stops_where_a_value_has_no_end() -> None:
    values, malformed = lenient(b'{}\n{"a":\n{}')
    assert [at for at, _ in values] == [1]
    assert [at for at, _ in malformed] == [2]


def test_limits_name_the_resource_and_the_way_out() -> None:
    with pytest.raises(ResourceLimitError, match="Spark") as rows:
        list(strict_blocks(b"{}\n{}\n{}", Limits(rows=2)))
    assert (rows.value.resource, rows.value.limit, rows.value.actual) == ("load rows", 2, 3)
    with pytest.raises(ResourceLimitError, match="Spark") as size:
        list(lenient_blocks([b"{}\n", b"{}\n"], Limits(bytes=5)))
    assert (size.value.resource, size.value.limit, size.value.actual) == ("load bytes", 5, 6)
    assert all_of(strict_blocks(b"{}\n{}", Limits(rows=2, bytes=5)))[1] == []


# JSON texts that are not canonical: any spacing, escapes, repeated members, odd numbers.
_names = st.sampled_from(["a", "b", "\u00e9", 'q"', "back\\slash", ""])
_spellings = st.sampled_from(["", " ", "\t"])


def _quoted(text: str) -> st.SearchStrategy[str]:
    return st.sampled_from([json.dumps(text), json.dumps(text, ensure_ascii=False)])


_scalars = st.one_of(
    st.text(max_size=6).flatmap(_quoted),
    st.integers(-(10**25), 10**25).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(
        ["true", "false", "null", "NaN", "1e999", '"\\ud800"', "-0", "1e5", '"\\\\"', '"\\\\\\""', "[]", "{}"]
    ),
)
_json_texts = st.recursive(
    _scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[" + ",".join(items) + "]"),
        st.lists(st.tuples(_names.flatmap(_quoted), _spellings, inner), max_size=4).map(
            lambda members: "{" + ",".join(f"{gap}{name}{gap}:{gap}{value}" for name, gap, value in members) + "}"
        ),
    ),
    max_leaves=8,
)


class _RepeatedError(Exception):
    pass


def _reference(text: str) -> object:
    """Strict JSON by the standard library with every rule spelled out, sharing nothing with the kernels."""

    def distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
        if len(dict(pairs)) != len(pairs):
            raise _RepeatedError
        return dict(pairs)

    def refuse(token: str) -> object:
        raise ValueError(token)

    def number(token: str) -> float:
        value = float(token)
        if value in (float("inf"), float("-inf")):
            raise ValueError(token)
        return value

    value = json.loads(text, object_pairs_hook=distinct, parse_constant=refuse, parse_float=number)
    msgspec.json.encode(value).decode()  # a lone surrogate has no UTF-8 form
    return value


@settings(deadline=None)
@given(st.lists(_json_texts, max_size=5))
def test_blocks_agree_with_the_reference_reader(texts: list[str]) -> None:
    expected_values: list[tuple[int, object]] = []
    expected_bad: list[int] = []
    for at, text in enumerate(texts, 1):
        try:
            expected_values.append((at, _reference(text)))
        except (_RepeatedError, ValueError):
            expected_bad.append(at)
    values, malformed = strict("\n".join(texts).encode())
    # repr tells 1 from 1.0 and True, which equality does not.
    assert repr(values) == repr(expected_values)
    assert [at for at, _ in malformed] == expected_bad


@settings(deadline=None)
@given(_json_texts)
def test_a_line_alone_and_in_a_block_are_judged_alike(text: str) -> None:
    try:
        alone: object = ([(1, parse_exactly(text.encode(), unique_members=True))], [])
    except MalformedError as error:
        alone = ([], [(1, str(error))])
    assert repr(strict(text.encode())) == repr(alone)


@settings(deadline=None)
@given(st.lists(st.sampled_from([b"{}\n", b"\n", b'{"a":1}', b"\n{", b"}", b"  "]), max_size=12), st.integers(1, 9))
def test_the_cut_into_pieces_and_blocks_never_matters(pieces: list[bytes], block: int) -> None:
    whole = b"".join(pieces)
    expected = strict(whole), lenient(whole)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ndjson, "_BLOCK_BYTES", block)
        assert (strict(whole), lenient(whole)) == expected
        assert all_of(strict_blocks(iter(pieces), UNBOUNDED)) == expected[0]
        assert all_of(lenient_blocks(iter(pieces), UNBOUNDED)) == expected[1]
