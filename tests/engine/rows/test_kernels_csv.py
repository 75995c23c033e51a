"""CSV by RFC 4180: what was written comes back, whatever the pieces, and what breaks a rule is told by row."""

from __future__ import annotations

import csv
import io
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from omnigraph.api.values import csv_line
from omnigraph.engine.rows.kernels.csv_rows import (
    LONGEST_RECORD,
    STRAY_QUOTE,
    TEXT_BEHIND_QUOTE,
    UNCLOSED_QUOTE,
    CsvBlock,
    CsvDialect,
    CsvReader,
    Records,
    RecordSplitter,
    csv_cuts,
)
from omnigraph.errors import BadRequestError


def in_pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def read(data: bytes, size: int = 1 << 20, **dialect: Any) -> tuple[list[str], list[dict[str, Any]], list[Any]]:
    reader = CsvReader(in_pieces(data, size), CsvDialect(**dialect))
    rows: list[dict[str, Any]] = []
    bad = []
    for block in reader.blocks():
        rows += [{"#": n, **row} for n, row in zip(block.rows.tolist(), block.columns.to_pylist(), strict=True)]
        bad += [(b.row, b.reason.partition("malformed: ")[2], b.text) for b in block.bad]
    return reader.header, rows, bad


_TEXTS = st.text(st.sampled_from("ab,;\"'\\\r\n\t é\ufeff\u2028€𝄞\0"), max_size=8)


@settings(max_examples=120, deadline=None)
@given(
    rows=st.lists(st.lists(_TEXTS, min_size=3, max_size=3), max_size=12),
    order=st.permutations(["name", "a,b", 'say "x"']),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    ends=st.sampled_from(["\r\n", "\n"]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32-le"]),
    delimiter=st.sampled_from([",", ";", "\t"]),
    size=st.integers(1, 40),
)
def test_what_python_writes_comes_back_by_the_names_of_its_header(
    rows: list[list[str]], order: list[str], quoting: Any, ends: str, encoding: str, delimiter: str, size: int
) -> None:
    file = io.StringIO(newline="")
    # Python leaves a carriage return bare where lines end otherwise, which makes it a line end by itself.
    if ends == "\n":
        rows = [[value.replace("\r", "") for value in row] for row in rows]
    names = sorted(order)
    writer = csv.DictWriter(file, order, delimiter=delimiter, quoting=quoting, lineterminator=ends)
    writer.writeheader()
    writer.writerows([dict(zip(names, row, strict=True)) for row in rows])
    header, found, bad = read(file.getvalue().encode(encoding), size, delimiter=delimiter, encoding=encoding)
    assert (header, bad) == (order, [])
    empty = "" if quoting == csv.QUOTE_ALL else None
    written = [dict(zip(names, (value or empty for value in row), strict=True)) for row in rows]
    assert found == [{"#": number, **row} for number, row in enumerate(written, 1)]


def by_the_letter(text: bytes) -> list[tuple[bytes, int, str | None]]:
    """Records, how many values each has, and what is wrong with it: RFC 4180 read one character after the other."""
    records, start = [], 0
    while start < len(text):
        at, fields, flaw, state = start, 1, None, "start"
        while at < len(text) and flaw is None and (state == "quoted" or text[at] not in b"\r\n"):
            c = text[at : at + 1]
            if state == "quoted":
                state = "behind" if c == b'"' else state
            elif c == b",":
                fields, state = fields + 1, "start"
            elif c == b'"' and state in ("start", "behind"):
                state = "quoted"
            elif c == b'"':
                flaw = STRAY_QUOTE
            elif state == "behind":
                flaw = TEXT_BEHIND_QUOTE
            else:
                state = "plain"
            at += 1
        flaw = UNCLOSED_QUOTE if state == "quoted" else flaw
        if flaw is not None:
            at = min((n for n in range(start, len(text)) if text[n] in b"\r\n"), default=len(text))
        if at > start or (at < len(text) and text[start - 1 : start + 1] != b"\r\n"):
            records.append((text[start:at], 0 if flaw else fields, flaw))
        start = at + 1
    return records


@settings(max_examples=250, deadline=None)
@given(
    st.lists(st.sampled_from([b"a", b",", b'"', b"\n", b"\r", b"\r\n", b'"a"', b'""']), max_size=40), st.integers(1, 9)
)
@example([b'"a', b"\n", b'b"c', b"\n", b"d"], 3)
def test_records_of_any_text_are_those_of_the_grammar(parts: list[bytes], size: int) -> None:
    text = b"".join(parts)
    splitter = RecordSplitter(ord(","), ord('"'))
    found = []
    for records in splitter.split(in_pieces(text, size)):
        for number in range(len(records)):
            flaw = records.flaws.get(number)
            found.append((records.record(number), 0 if flaw else int(records.fields[number]), flaw))
            at = records.offset + int(records.starts[number])
            assert text[at:].startswith(records.record(number))
    assert found == by_the_letter(text)


@pytest.mark.parametrize("size", [1, 5, 1 << 20])
def test_bad_records_are_told_by_row_and_whole(size: int) -> None:
    lines = [
        b"name,note",
        b"ann,fine",
        b"short",
        b"",
        b"long,1,2",
        b'"two\r\nlines","say ""hi"""',
        b'5" disk,x',
        b'"closed"late,x',
        b"caf\xe9,latin",
        "café,utf-8".encode(),
        b'eve,"open',
        b"fay,not swallowed",
    ]
    header, rows, bad = read(b"\n".join(lines), size)
    assert header == ["name", "note"]
    assert rows == [
        {"#": 1, "name": "ann", "note": "fine"},
        {"#": 4, "name": "two\r\nlines", "note": 'say "hi"'},
        {"#": 8, "name": "café", "note": "utf-8"},
        {"#": 10, "name": "fay", "note": "not swallowed"},
    ]
    assert bad == [
        (2, "it has 1 value where its file has 2 columns", "short"),
        (3, "it has 3 values where its file has 2 columns", "long,1,2"),
        (5, STRAY_QUOTE, '5" disk,x'),
        (6, TEXT_BEHIND_QUOTE, '"closed"late,x'),
        (7, "it has bytes that are not utf-8", "caf\\xe9,latin"),
        (9, UNCLOSED_QUOTE, 'eve,"open'),
    ]


def test_no_value_is_null_and_a_quoted_empty_one_is_a_text() -> None:
    data = b'a,b\n1,\n2,""\n3,NULL\n4,"NULL"\n'
    assert [row["b"] for row in read(data)[1]] == [None, "", "NULL", "NULL"]
    assert [row["b"] for row in read(data, null="NULL")[1]] == [None, "", None, None]
    assert [row["b"] for row in read(data, null="")[1]] == [None, None, "NULL", "NULL"]


def test_other_dialects_and_files_without_rows() -> None:
    assert read("né;ü\n'a;b';c\n".encode("latin-1"), delimiter=";", quote="'", encoding="latin-1")[1] == [
        {"#": 1, "né": "a;b", "ü": "c"}
    ]
    assert read(b'1,"\n"\n', header=False, quote=None)[2][0][0] == 2
    assert read(b"1,2\n3,4", header=False)[1] == [{"#": 1, "_c0": "1", "_c1": "2"}, {"#": 2, "_c0": "3", "_c1": "4"}]
    assert read("a\n\ufeffx\n".encode("utf-8-sig"))[1] == [{"#": 1, "a": "\ufeffx"}]
    assert read("a\n1\n".encode("utf-16-le") + b"\0\xd8", encoding="utf-16-le")[2][0][:2] == (
        2,
        "it has bytes that are not utf-16-le",
    )
    assert [row["a"] for row in read(b"\n\na\n1\n\n2\n\n")[1]] == ["1", None, "2", None]
    assert [row["b"] for row in read(b"a,b\n1,2\n\n\r\n3,\n")[1]] == ["2", None]
    for nothing in (b"", b"\n\r\n", b"\xef\xbb\xbf"):
        assert read(nothing) == ([], [], [])
    assert read(b"a,,b\n1,2,3\n")[0] == ["a", "_c1", "b"]
    for wrong, told in ((b"a,b,a\n", "'a' twice"), (b'a,"b\n', "malformed"), (b"a,\xff\n", "not utf-8")):
        with pytest.raises(BadRequestError, match=told):
            read(wrong)
    for dialect in ({"delimiter": "||"}, {"quote": "«"}, {"encoding": "klingon"}, {"encoding": "zlib"}, {"quote": ","}):
        with pytest.raises(BadRequestError, match=r"CSV|encoding"):
            CsvDialect(**dialect).check()
    for encoding in ("idna", "punycode", "undefined"):
        with pytest.raises(BadRequestError, match="no encoding named"):
            CsvDialect(encoding=encoding).check()
    for encoding in ("utf-16", "utf-32"):
        with pytest.raises(BadRequestError, match=f"the file is not in {encoding}: .*BOM"):
            read(b"name,age\nann,1\n", encoding=encoding)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 3).flatmap(lambda width: st.lists(st.lists(st.none() | _TEXTS, min_size=width, max_size=width))),
    st.sampled_from(["\n", "\r\n"]),
    st.integers(1, 40),
    st.integers(1, 60),
)
@example([[None], [""], [None]], "\r\n", 1, 1)
@example([["\ufeff"], [None]], "\n", 40, 60)
def test_what_we_write_comes_back_nulls_and_empty_texts_included(
    rows: list[list[str | None]], ends: str, piece: int, part: int
) -> None:
    width = len(rows[0]) if rows else 1
    names = [f"c{number}" for number in range(width)]
    data = "".join(csv_line(cells) + ends for cells in [names, *rows]).encode()
    header, found, bad = read(data, piece)
    assert (header, bad) == (names, [])
    assert found == [{"#": number, **dict(zip(names, row, strict=True))} for number, row in enumerate(rows, 1)]
    _, cuts = csv_cuts(in_pieces(data, piece), CsvDialect(), part)
    in_parts: list[Any] = []
    for (start, before), stop in zip(cuts, [*(at for at, _ in cuts[1:]), len(data)], strict=True):
        reader = CsvReader([data[start:stop]], CsvDialect(), header if start else None, before=before)
        for block in reader.blocks():
            in_parts += [{"#": n, **r} for n, r in zip(block.rows.tolist(), block.columns.to_pylist(), strict=True)]
    assert in_parts == found


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(_TEXTS, min_size=2, max_size=2), max_size=30), st.integers(1, 60), st.booleans())
def test_a_file_read_in_parts_is_the_file(rows: list[list[str]], size: int, marked: bool) -> None:
    file = io.StringIO(newline="")
    csv.writer(file).writerows([["a", "b"], *rows])
    data = file.getvalue().encode("utf-8-sig" if marked else "utf-8")
    dialect = CsvDialect()
    header, cuts = csv_cuts(in_pieces(data, 7), dialect, size)
    assert all(later - at >= size for (at, _), (later, _) in pairwise(cuts))
    found: list[Any] = []
    for (start, before), stop in zip(cuts, [*(at for at, _ in cuts[1:]), len(data)], strict=True):
        reader = CsvReader(in_pieces(data[start:stop], 11), dialect, header if start else None, before=before)
        for block in reader.blocks(["b", "a"]):
            found += zip(
                block.rows.tolist(), *(column.to_pylist() for column in reversed(block.columns.columns)), strict=True
            )
    assert found == [(number, a or None, b or None) for number, (a, b) in enumerate(rows, 1)]


class Counting(RecordSplitter):
    """Counts the bytes that it looks at."""

    def _window(self, text: bytes, offset: int, before: bytes, *, last: bool) -> tuple[Records, int]:
        looked.append(len(text))
        return super()._window(text, offset, before, last=last)


looked: list[int] = []


def test_mistakes_without_end_take_work_in_proportion_and_memory_has_a_bound() -> None:
    lines = 800
    found = Counting(ord(","), ord('"')).split([b'5" disk,1\n' * lines] * 2)
    assert sum(len(records.flaws) for records in found) == 2 * lines
    assert sum(looked) < 2 * lines * (8 << 10)

    endless = iter([b'a,b\n1,"', *[b"x" * (8 << 20)] * (LONGEST_RECORD >> 22)])
    with pytest.raises(BadRequestError, match="record 2 is longer than 64 MiB"):
        list(CsvReader(endless, CsvDialect()).blocks())
    assert next(endless, None) is not None


def lines_of(block: CsvBlock) -> list[int]:
    assert block.lines is not None
    lines: list[int] = block.lines.tolist()
    return lines


@given(
    st.lists(st.sampled_from(["a", '"x"', '"q\nq"', '"c\r\nc"', "", '"two\rlines"']), min_size=1, max_size=8),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.integers(0, 3),
    st.integers(1, 5),
)
def test_a_row_knows_the_line_it_begins_on(values: list[str], end: str, empty: int, size: int) -> None:
    data = (end * empty + "".join(f"{value},1{end * (1 + empty)}" for value in ["name", *values])).encode()
    reader = CsvReader(in_pieces(data, size), CsvDialect())
    found = [line for block in reader.blocks(lines=True) for line in lines_of(block)]
    expected, line = [], 1 + empty
    for value in ["name", *values]:
        expected.append(line)
        line += 1 + empty + len(value.splitlines()[1:])
    assert found == expected[1:]
