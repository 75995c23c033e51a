"""CSV bytes in any encoding to text columns by the names of the header, with bad records kept apart.

The in-process loader and Spark executors call it. Records follow RFC 4180, read in blocks of bounded memory. An absent
value is null, a quoted empty one is an empty text. A record is bad when its quotes are misplaced, when it has another
number of values than the header, or when its bytes are not in the encoding; it ends with its first line, so that it
does not swallow the rows below. Values are not typed here.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
from numpy.typing import NDArray

from omnigraph.errors import BadRequestError
from omnigraph.language.violations import Sentence

LONGEST_RECORD: Final = 64 << 20
_SMALLEST_WINDOW: Final = 4 << 10
_LF, _CR = 10, 13

STRAY_QUOTE: Final = "a quote stands within a value that does not begin with one"
TEXT_BEHIND_QUOTE: Final = "text follows the quote that ends a value; a quote within a quoted value is written twice"
UNCLOSED_QUOTE: Final = "a quote is not closed"


@dataclass(frozen=True, slots=True)
class Records:
    """Whole records within `text`, which begins at `offset` of the input, in order and without their line ends.

    `fields` counts the values of each; that of a record with a flaw is undefined. An empty line is a record of one
    value here; only the header tells whether it is a row.
    """

    text: bytes
    offset: int
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    fields: NDArray[np.int64]
    flaws: dict[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.starts)

    def record(self, number: int) -> bytes:
        return self.text[self.starts[number] : self.ends[number]]

    def without_empty_lines(self) -> Records:
        return self.only(self.ends > self.starts)

    def only(self, kept: NDArray[np.bool_]) -> Records:
        if kept.all():
            return self
        numbers = np.cumsum(kept) - 1
        flaws = {int(numbers[number]): reason for number, reason in self.flaws.items() if kept[number]}
        return Records(self.text, self.offset, self.starts[kept], self.ends[kept], self.fields[kept], flaws)


class LineCount:
    """The lines on which records begin, counted along the lots of one input. A line ends with LF, CRLF or CR."""

    def __init__(self) -> None:
        self._before = 0
        self._last: Records | None = None

    def of(self, records: Records) -> NDArray[np.int64]:
        if self._last is not None:
            passed = self._last.text[: records.offset - self._last.offset]
            is_cut_in_two = passed.endswith(b"\r") and records.text[:1] == b"\n"
            self._before += len(_line_ends(passed)) - is_cut_in_two
        self._last = records
        lines: NDArray[np.int64] = self._before + 1 + np.searchsorted(_line_ends(records.text), records.starts)
        return lines


def _line_ends(text: bytes) -> NDArray[np.int64]:
    codes = np.frombuffer(text, np.uint8)
    if _CR not in text:
        return np.flatnonzero(codes == _LF)
    alone = codes == _CR
    alone[:-1] &= codes[1:] != _LF
    return np.flatnonzero((codes == _LF) | alone)


@dataclass(frozen=True, slots=True)
class RecordSplitter:
    """`delimiter` and `quote` are single bytes below 128; without `quote` no byte is special but the delimiter."""

    delimiter: int
    quote: int | None

    def split(self, pieces: Iterable[bytes]) -> Iterator[Records]:
        """The records of an input that comes in pieces of any size and begins where a record begins."""
        offset, rest, records, before = 0, b"", 0, b""
        for piece in pieces:
            text = rest + piece if rest else piece
            taken = 0
            for lot, end in self._of(text, offset, before, last=False):
                taken, records = end, records + len(lot)
                yield lot
            before = text[taken - 1 : taken] if taken else before
            offset, rest = offset + taken, text[taken:]
            if len(rest) > LONGEST_RECORD:
                raise BadRequestError(
                    f"record {records + 1} is longer than {LONGEST_RECORD >> 20} MiB; a quote before it, or in it, "
                    "may not be closed"
                )
        for lot, _ in self._of(rest, offset, before, last=True):
            yield lot

    def _of(self, text: bytes, offset: int, before: bytes, *, last: bool) -> Iterator[tuple[Records, int]]:
        """The records of a text, which follows the byte `before`, and where each lot of them ends; an unfinished one at
        the end is left out. After a misplaced quote the proof begins anew, on small windows: mistakes come together."""
        start, size = 0, len(text)
        while start < len(text):
            window = text[start : start + size] if start or size < len(text) else text
            ends_here = start + len(window) == len(text)
            lot, end = self._window(window, offset + start, before, last=last and ends_here)
            if end:
                before = window[end - 1 : end]
                yield lot, start + end
                start += end
                size = max(_SMALLEST_WINDOW, size // 4) if lot.flaws else size * 4
            elif ends_here:
                return
            else:
                size *= 4

    def _window(self, text: bytes, offset: int, before: bytes, *, last: bool) -> tuple[Records, int]:
        """The records of a window up to its first misplaced quote, that record included; and where they end."""
        codes = np.frombuffer(text, np.uint8)
        at = _positions(codes, text, _LF, _CR, self.delimiter, self.quote)
        delimits, flaw = codes[at] == self.delimiter, None
        if self.quote is None or self.quote not in text:
            lines = at[~delimits]
        else:
            quotes = codes[at] == self.quote
            lines = at[~(delimits | quotes)]
            outside = np.cumsum(quotes, dtype=np.uint8) % 2 == 0
            flaw = self._misplaced_quote(codes, at[quotes])
            if flaw is None and last and not outside[-1]:
                flaw = len(text), UNCLOSED_QUOTE
            parts = outside & ~quotes
            at, delimits = at[parts], delimits[parts]
        # What is left ends a value each: those of a record lie between the ends of two records.
        ending = np.flatnonzero(~delimits)
        if flaw is not None:
            ending = ending[: np.searchsorted(at[ending], flaw[0])]
        ends = at[ending]
        starts = np.concatenate(([0], ends + 1))
        end = int(starts[-1])
        if flaw is not None:
            below = lines[np.searchsorted(lines, end) :]
            if len(below) or last:
                ends = np.append(ends, below[0] if len(below) else len(text))
                end = min(int(ends[-1]) + 1, len(text))
            else:
                flaw = None  # its record ends in text that is yet to come
        elif last:
            ends, end = np.append(ends, len(text)), len(text)
        fields = np.diff(np.append(ending, len(at))[: len(ends)], prepend=-1)
        starts = starts[: len(ends)]
        held = _records_among(codes, starts, ends, before)
        flaws = {int(held.sum()) - 1: flaw[1]} if flaw else {}
        return Records(text, offset, starts[held], ends[held], fields[held], flaws), end

    def _misplaced_quote(self, codes: NDArray[np.uint8], quotes: NDArray[np.int64]) -> tuple[int, str] | None:
        """The first misplaced quote. Up to it, quotes open and close by turns; a doubled one does both."""
        opening, closing = quotes[::2], quotes[1::2]
        beside = np.zeros(256, np.bool_)
        beside[[self.delimiter, _LF, _CR, codes[quotes[0]]]] = True
        stray = opening[~beside[codes[opening - 1]] & (opening > 0)]
        before_text = closing[~beside[codes[np.minimum(closing + 1, len(codes) - 1)]]]
        misplaced = ((stray, STRAY_QUOTE), (before_text, TEXT_BEHIND_QUOTE))
        return min(((int(at[0]), reason) for at, reason in misplaced if len(at)), default=None)


def _records_among(
    codes: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64], before: bytes
) -> NDArray[np.bool_]:
    """Which spans between line ends are records: not the one within a CRLF, nor the one behind the last line end."""
    kept = ends > starts
    empty = np.flatnonzero(~kept & (starts < len(codes)))
    at = starts[empty]
    previous = codes[at - 1]
    previous[at == 0] = before[0] if before else _LF
    kept[empty] = (codes[at] == _CR) | (previous != _CR)
    return kept


def _positions(codes: NDArray[np.uint8], text: bytes, *wanted: int | None) -> NDArray[np.int64]:
    """Where some bytes are. Looking for a byte that is not there costs next to nothing in `text`."""
    mask = np.zeros(len(codes), np.bool_)
    for code in wanted:
        if code is not None and code in text:
            mask |= codes == code
    return np.flatnonzero(mask)


_UTF_8: Final = frozenset({"utf-8", "utf-8-sig", "ascii"})
_NOT_OF_FILES: Final = frozenset({"idna", "punycode", "undefined"})
"""Encodings that Python has for other purposes, and that can't be read piece by piece."""
_BOM: Final = codecs.BOM_UTF8
_UNDECODABLE: Final = "omnigraph.undecodable"


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """How a CSV file is written. `null` is a text that means no value, besides none at all."""

    delimiter: str = ","
    quote: str | None = '"'
    header: bool = True
    encoding: str = "utf-8"
    null: str | None = None

    def check(self) -> None:
        """Raise a BadRequestError for what can't be read."""
        for name, character in (("delimiter", self.delimiter), ("quote", self.quote)):
            if character is not None and (len(character) != 1 or not character.isascii() or character in "\r\n"):
                raise BadRequestError(f"the CSV {name} must be one ASCII character, not {character!r}")
        if self.delimiter == self.quote:
            raise BadRequestError(f"the CSV delimiter and quote can't both be {self.quote!r}")
        try:
            _codec(self.encoding)
        except LookupError:
            raise BadRequestError(f"there is no encoding named '{self.encoding}'") from None

    @property
    def is_utf_8(self) -> bool:
        """Whether offsets in the file are offsets in the text that is split, so that a file may be read in parts."""
        return _codec(self.encoding).name in _UTF_8


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that has no columns: its row, counted from 1 below the header, why, and all of its text."""

    row: int
    reason: str
    text: str
    line: int = 0


@dataclass(frozen=True, slots=True)
class CsvBlock:
    """Some rows as columns of texts, the row that each is, and the bad records among them. `lines` are the lines of the
    file on which the rows begin, where the caller asked for them."""

    columns: pa.RecordBatch
    rows: NDArray[np.int64]
    bad: tuple[BadRecord, ...] = ()
    lines: NDArray[np.int64] | None = None


class CsvReader:
    """The rows of one file, or of a part of it that begins with a record. `before` rows of the file come earlier."""

    def __init__(
        self, pieces: Iterable[bytes], dialect: CsvDialect, header: Sequence[str] | None = None, *, before: int = 0
    ) -> None:
        self._dialect = dialect
        self._before = before
        splitter = RecordSplitter(ord(dialect.delimiter), None if dialect.quote is None else ord(dialect.quote))
        texts = _utf_8(pieces, dialect.encoding, at_start=header is None)
        self._records: Iterator[Records] = splitter.split(texts)
        self.header = self._read_header() if header is None else list(header)
        if len(self.header) != 1:  # with one column, an empty line is a row whose value is null
            self._records = map(Records.without_empty_lines, self._records)

    def _read_header(self) -> list[str]:
        """The names in the first record, or names by position; nothing for a file without records."""
        passed: list[Records] = []  # empty lines, which count as lines
        while (first := next(self._records, None)) is not None and not (written := first.without_empty_lines()):
            passed.append(first)
        if first is None:
            return []
        if not self._dialect.header:
            self._records = chain(passed, [first], self._records)
            return [f"_c{number}" for number in range(int(written.fields[0]))]
        if 0 in written.flaws:
            raise BadRequestError(f"the header is malformed: {written.flaws[0]}")
        if _undecodable(written.record(0)):
            raise BadRequestError(f"the header has bytes that are not {self._dialect.encoding}; name the encoding")
        width = int(written.fields[0])
        values = _texts(written.record(0), width, range(width), replace(self._dialect, null=None))
        names = [column[0].as_py() or f"_c{number}" for number, column in enumerate(values)]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise BadRequestError(f"the header names the column '{twice}' twice")
        at = written.offset + written.starts[0]
        below = (records.only(records.offset + records.starts > at) for records in (*passed, first))
        self._records = chain(below, self._records)
        return names

    def blocks(self, columns: Sequence[str] | None = None, *, lines: bool = False) -> Iterator[CsvBlock]:
        """The rows, with the columns asked for; all of the header's when none are named."""
        wanted = self.header if columns is None else list(columns)
        places = [self.header.index(name) for name in wanted]
        row = self._before + 1
        count = LineCount()
        for records in self._records:
            at = count.of(records) if lines else None
            if len(records):
                yield self._block(records, row, places, at)
                row += len(records)

    def first_lines(self) -> Iterator[NDArray[np.int64]]:
        """The line that each record begins on, without reading its values."""
        count = LineCount()
        yield from (count.of(records) for records in self._records)

    def _block(self, records: Records, first: int, places: list[int], lines: NDArray[np.int64] | None) -> CsvBlock:
        bad = self._bad(records)
        good = np.ones(len(records), np.bool_)
        good[list(bad)] = False
        # The good records alone, cut out in as few pieces as there are runs of them.
        runs = (list(run) for held, run in groupby(range(len(records)), lambda number: good[number]) if held)
        kept = (records.text[records.starts[run[0]] : records.ends[run[-1]]] for run in runs)
        text = b"\n".join(kept) if bad else records.text[records.starts[0] : records.ends[-1]]
        count = int(good.sum())
        values = [pa.nulls(0, pa.string())] * len(places)
        if count:
            values = _texts(text, len(self.header), places, self._dialect)
        if len(values[0]) != count:
            raise AssertionError(f"{count} proven records were read as {len(values[0])} rows")
        rejected = []
        for number, reason in sorted(bad.items()):
            shown = records.record(number).decode(errors="backslashreplace")
            rejected.append(BadRecord(first + number, reason, shown, 0 if lines is None else int(lines[number])))
        rows = np.flatnonzero(good) + first
        columns = pa.record_batch(values, names=[self.header[place] for place in places])
        return CsvBlock(columns, rows, tuple(rejected), None if lines is None else lines[good])

    def _bad(self, records: Records) -> dict[int, str]:
        """Records that can't be taken, with the reason."""
        bad = dict(records.flaws)
        width = len(self.header)
        for number in np.flatnonzero(records.fields != width).tolist():
            count = int(records.fields[number])
            values = "1 value" if count == 1 else f"{count} values"
            bad.setdefault(number, f"it has {values} where its file has {width} column{'s' if width > 1 else ''}")
        if _undecodable(records.text):
            for number in range(len(records)):
                if number not in bad and _undecodable(records.record(number)):
                    bad[number] = f"it has bytes that are not {self._dialect.encoding}"
        return {number: Sentence.MALFORMED_ROW.text(reason=reason) for number, reason in bad.items()}


def refuse_other_columns(names: Sequence[str], expected: Sequence[str], first_file: str) -> None:
    """Raise a BadRequestError when a file has other columns than the first one of its input, in whatever order."""
    lacking, more = set(expected) - set(names), set(names) - set(expected)
    if lacking or more:
        differs = [f"it has no '{name}'" for name in sorted(lacking)] + [f"it has '{name}'" for name in sorted(more)]
        raise BadRequestError(
            f"its columns are not those of {first_file}: {', '.join(differs)}; load it by itself, or make it a source "
            "of its own in a pipeline file"
        )


def csv_cuts(pieces: Iterable[bytes], dialect: CsvDialect, size: int) -> tuple[list[str], list[tuple[int, int]]]:
    """The header of a UTF-8 file, and where it may be cut into parts of about `size` bytes: the offset of a record and
    the number of rows before it. The first cut is the beginning of the file."""
    cuts, rows = [(0, 0)], 0
    head, pieces = _peek(pieces)
    shift = len(_BOM) if head.startswith(_BOM) else 0
    reader = CsvReader(pieces, dialect)
    for records in reader._records:
        at = records.offset + records.starts + shift
        first = int(np.searchsorted(at, cuts[-1][0] + size))
        while first < len(at):
            cuts.append((int(at[first]), rows + first))
            first = int(np.searchsorted(at, cuts[-1][0] + size))
        rows += len(records)
    return reader.header, cuts


def _codec(encoding: str) -> codecs.CodecInfo:
    codec = codecs.lookup(encoding)
    if codec.name in _NOT_OF_FILES:
        raise LookupError(encoding)
    "".encode(encoding)  # a LookupError if the codec is not one of texts
    return codec


def _utf_8(pieces: Iterable[bytes], encoding: str, *, at_start: bool) -> Iterator[bytes]:
    """The same text in UTF-8 without a byte order mark. What is not in the encoding becomes bytes that UTF-8 lacks."""
    codec = _codec(encoding)
    if codec.name not in _UTF_8:
        pieces = _transcode(pieces, codec)
    if at_start:
        head, pieces = _peek(pieces)
        if head.startswith(_BOM):
            next(pieces)
            pieces = chain([head.removeprefix(_BOM)], pieces)
    return iter(pieces)


def _peek(pieces: Iterable[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """The first piece, long enough to hold a byte order mark where there is one; and all pieces, it included."""
    rest = iter(pieces)
    head = b""
    while len(head) < len(_BOM) and (piece := next(rest, None)) is not None:
        head += piece
    return head, chain([head], rest)


def _transcode(pieces: Iterable[bytes], codec: codecs.CodecInfo) -> Iterator[bytes]:
    decoder = codec.incrementaldecoder(_UNDECODABLE)
    for piece, final in chain(((piece, False) for piece in pieces), [(b"", True)]):
        try:
            text = decoder.decode(piece, final)
        except UnicodeError as error:  # of the whole file, such as a byte order mark that is missing
            raise BadRequestError(f"the file is not in {codec.name}: {error}") from error
        yield text.encode("utf-8", "surrogateescape")


def _escape_error(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    wrong = error.object[error.start : error.end]
    return "".join(chr(0xDC00 + max(byte, 0x80)) for byte in wrong), error.end


codecs.register_error(_UNDECODABLE, _escape_error)


def _undecodable(text: bytes) -> bool:
    if text.isascii():
        return False
    try:
        text.decode()
    except UnicodeDecodeError:
        return True
    return False


def _texts(text: bytes, width: int, places: Iterable[int], dialect: CsvDialect) -> list[pa.Array]:
    """Columns of well-formed records. Arrow's reader is fast and forgiving; here there is nothing to forgive."""
    # Arrow takes a byte order mark off, wherever the text comes from, and an empty value at the end of a text that ends
    # without a line end for a quoted one.
    text = (_BOM if text.startswith(_BOM) else b"") + text + b"\n"
    names = [str(number) for number in range(width)]
    wanted = [str(number) for number in places]
    table = pacsv.read_csv(
        pa.BufferReader(text),
        read_options=pacsv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=names),
        parse_options=pacsv.ParseOptions(
            delimiter=dialect.delimiter,
            quote_char=dialect.quote or False,
            double_quote=dialect.quote is not None,
            newlines_in_values=True,
            ignore_empty_lines=width != 1,
        ),
        convert_options=pacsv.ConvertOptions(
            check_utf8=False,  # done before
            column_types=dict.fromkeys(wanted, pa.string()),
            include_columns=wanted,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    columns = [table.column(name).combine_chunks() for name in wanted]
    if dialect.null is not None:
        nothing = pa.scalar(None, pa.string())
        columns = [pc.if_else(pc.equal(column, dialect.null), nothing, column) for column in columns]
    return columns
