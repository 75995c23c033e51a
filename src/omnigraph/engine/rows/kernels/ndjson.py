"""NDJSON bytes to JSON values with their positions, or straight to graph records.

The strict grammar forbids repeated members and numbers beyond a 64-bit float. A block is first proven free of them as
a whole; the exact reader runs only on lines for which the proof fails. The two plain forms of a record are read in one
step. Quarantine lines, which a person has corrected, become graph records without changing line numbers.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pyarrow as pa
from msgspec import UNSET, Raw, Struct, UnsetType, field
from msgspec.json import Decoder, Encoder

from omnigraph.api.governance import Limits
from omnigraph.errors import ResourceLimitError


class PlainNode(Struct, forbid_unknown_fields=True, gc=False):
    """`{"type": …, "data": {…}}` and nothing else."""

    type: str
    data: dict[str, Any] | UnsetType = UNSET


class PlainEdge(Struct, forbid_unknown_fields=True, gc=False):
    """`{"edge": …, "from": …, "to": …, "data": {…}}` and nothing else."""

    edge: str
    source: str | int = field(name="from")
    target: str | int = field(name="to")
    data: dict[str, Any] | UnsetType = UNSET


class _QuarantineLine(Struct):
    source: str
    row: int
    reason: str
    record: Raw
    data: Raw | UnsetType = UNSET
    edge: Raw | UnsetType = UNSET


_node = Decoder(PlainNode).decode
_edge = Decoder(PlainEdge).decode
_quarantined = Decoder(_QuarantineLine).decode
_text = Decoder(str).decode
_value = Decoder().decode
_write = Encoder().encode

# Small enough that the Python objects of one block stay in cache and are gone before the collector ages them.
_BLOCK_BYTES: Final = 256 << 10
_REPROVEN_LINES: Final = 16
_STREAM_BLOCK: Final = 50_000
_WHITESPACE: Final = re.compile(r"[ \t\r\n]+")
_REMEDY: Final = (
    "load it on Spark (`omnigraph load --engine spark`, or a pipeline with `omnigraph pipeline run`), "
    "or raise the limit"
)

# A decimal integer of fewer digits is always below the largest 64-bit float.
_SAFE_DIGITS: Final = 308
_DIGITS_TO_ZERO: Final = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER: Final = b"0" * (_SAFE_DIGITS + 1)
_SAMPLED: Final = 30
_LONG_SAMPLE: Final = b"0" * (len(_LONG_NUMBER) // _SAMPLED)

_SPELLED_QUOTE: Final = b"\\u0022"
_SIGN_OF_QUARANTINE: Final = b'"record"'
_LONGEST_LINE: Final = 64 << 20
"""A longer line is not a quarantine line, and is passed on as it comes: its reader knows what it may hold."""
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def _read_plain(lines: Sequence[bytes]) -> list[object]:
    """The records of lines that all have a plain form; raises msgspec.MsgspecError when one does not."""
    return [_edge(line) if line.startswith(b'{"edge"') else _node(line) for line in lines]


def _read_values(texts: Sequence[bytes]) -> list[object]:
    return [_value(text) for text in texts]


# Ways to read many lines at once, the cheapest first. The next one is for lines that the one before can't read.
_READERS: Final = (_read_plain, _read_values)


class MalformedError(Exception):
    """A text that is not the JSON we take; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Block:
    """Some values of the input with their positions, and the positions that hold none, with reasons.

    Records in a plain form may come as such, rows of one type as columns, everything else as JSON gives it. `repeated`
    counts the members that a later one of the same name replaced.
    """

    positions: pa.Array | Sequence[int]
    values: pa.RecordBatch | Sequence[object]
    malformed: Sequence[tuple[int, str]] = ()
    repeated: int = 0


@dataclass(frozen=True, slots=True)
class LineChunk:
    """Whole lines of an input: the number of the first, and how many there are."""

    first: int
    lines: int
    text: bytes

    def read(self, meter: Meter) -> Block:
        """One JSON value per line; blank lines are skipped."""
        texts = self.text.split(b"\n")
        if not texts[-1]:
            texts.pop()
        positions: Sequence[int] = range(self.first, self.first + len(texts))
        if not all(map(bytes.strip, texts)):
            filled = [(at, text) for at, text in zip(positions, texts, strict=True) if text.strip()]
            positions, texts = [at for at, _ in filled], [text for _, text in filled]
        meter.count_rows(len(texts))
        return _strict_block(positions, texts)


def line_chunks(data: bytes | Iterable[bytes], meter: Meter) -> Iterator[LineChunk]:
    """The input in numbered parts."""
    first = 1
    for text in _whole_lines(data, meter):
        lines = text.count(b"\n") + (not text.endswith(b"\n"))
        yield LineChunk(first, lines, text)
        first += lines


def strict_blocks(data: bytes | Iterable[bytes], limits: Limits) -> Iterator[Block]:
    """One JSON value per line; blank lines are skipped but counted."""
    meter = Meter(limits)
    for chunk in line_chunks(data, meter):
        yield chunk.read(meter)


def lenient_blocks(data: bytes | Iterable[bytes], limits: Limits) -> Iterator[Block]:
    """JSON values separated by any whitespace; repeated members are fine, the last one counts."""
    meter = Meter(limits)
    record = 1
    chunks = _whole_lines(data, meter)
    for chunk in chunks:
        texts = [text for text in chunk.split(b"\n") if text.strip()]
        try:
            values = _read_values(texts)
            if _may_overflow(chunk):
                raise MalformedError
            repeated = sum(map(_repeated_members, texts)) if not _has_distinct_members(chunk, values) else 0
        except (*_UNREADABLE, MalformedError):
            # Not one value per line, or a bad one: from here on only a scanner finds where values end.
            yield from _stream_blocks(b"".join([chunk, *chunks]), meter, record)
            return
        meter.count_rows(len(values))
        yield Block(range(record, record + len(values)), values, repeated=repeated)
        record += len(values)


def parse_exactly(text: bytes, *, unique_members: bool) -> object:
    """One JSON value with every rule applied; raises MalformedError."""
    try:
        value: object = _value(text)
        may_repeat = unique_members and not _has_distinct_members(text, value)
        if may_repeat or _may_overflow(text):
            json.loads(text, object_pairs_hook=_distinct_members if may_repeat else None, parse_int=_refuse_overflow)
    except _UNREADABLE as error:
        surrogate = b"\\u" in text and _has_lone_surrogate(text)
        raise MalformedError("a string holds a lone surrogate" if surrogate else _reason(error)) from None
    return value


def _strict_block(positions: Sequence[int], texts: list[bytes]) -> Block:
    whole = b"\n".join(texts)
    for read in _READERS if not _may_overflow(whole) else ():
        try:
            values = read(texts)
            if _has_distinct_members(whole, values):
                return Block(positions, values)
            break
        except _UNREADABLE:
            continue
    kept: list[int] = []
    exact: list[object] = []
    malformed: list[tuple[int, str]] = []
    # One bad line fails the proof of a block; smaller blocks are proven again, so that few lines are read exactly.
    if len(texts) > _REPROVEN_LINES:
        for start in range(0, len(texts), _REPROVEN_LINES):
            cut = slice(start, start + _REPROVEN_LINES)
            part = _strict_block(positions[cut], texts[cut])
            kept.extend(part.positions)
            exact.extend(part.values)
            malformed.extend(part.malformed)
        return Block(kept, exact, malformed)
    for at, text in zip(positions, texts, strict=True):
        try:
            exact.append(parse_exactly(text, unique_members=True))
            kept.append(at)
        except MalformedError as error:
            malformed.append((at, str(error)))
    return Block(kept, exact, malformed)


def _has_distinct_members(text: bytes, value: object) -> bool:
    """Whether parsing kept every member, at any depth; False may also mean that this proof does not apply.

    A repeated member is lost when a text is parsed and written back, and the quotes of its name with it. Nothing
    else changes the number of quotes, unless the text spells a quote as `\\u0022`.
    """
    return _SPELLED_QUOTE not in text and text.count(b'"') == _write(value).count(b'"')


def _may_overflow(text: bytes) -> bool:
    """Whether the text has a run of so many digits that it might be an integer beyond the 64-bit floats."""
    # A long run shows in every few bytes, so a sample clears almost every text.
    sample = text[::_SAMPLED].translate(_DIGITS_TO_ZERO)
    return _LONG_SAMPLE in sample and _LONG_NUMBER in text.translate(_DIGITS_TO_ZERO)


def _distinct_members(pairs: list[tuple[str, object]]) -> None:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise MalformedError(f"duplicate JSON member '{name}'")
        seen.add(name)


def _repeated_members(text: bytes) -> int:
    """How many members of a text are replaced by a later one of the same name, at any depth."""
    repeated = 0

    def count(pairs: list[tuple[str, object]]) -> None:
        nonlocal repeated
        repeated += len(pairs) - len({name for name, _ in pairs})

    json.loads(text, object_pairs_hook=count)
    return repeated


def _has_lone_surrogate(text: bytes) -> bool:
    """The parser that refuses them calls the text truncated or malformed; the standard library lets them pass."""
    try:
        json.dumps(json.loads(text), ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        return isinstance(error, UnicodeEncodeError)
    return False


def _refuse_overflow(token: str) -> None:
    if math.isinf(float(token)):
        raise MalformedError("the JSON holds a number that overflows a 64-bit float")


def _stream_blocks(data: bytes, meter: Meter, record: int) -> Iterator[Block]:
    # Bytes that are not UTF-8 become lone surrogates, which no value may hold: the record they stand in is refused.
    text = data.decode(errors="surrogateescape")
    scan = json.JSONDecoder().raw_decode
    at, end = _skip_whitespace(text, 0), len(text)
    while at < end:
        positions: list[int] = []
        values: list[object] = []
        malformed: list[tuple[int, str]] = []
        repeated = 0
        while at < end and len(positions) + len(malformed) < _STREAM_BLOCK:
            try:
                _, stop = scan(text, at)
            except (ValueError, RecursionError) as error:
                # Without the end of this value the beginning of the next one is unknown.
                malformed.append((record, f"{_reason(error)}; nothing after it can be read"))
                at = end
                break
            value_text = text[at:stop].encode(errors="surrogateescape")
            try:
                values.append(parse_exactly(value_text, unique_members=False))
                positions.append(record)
                repeated += 0 if _has_distinct_members(value_text, values[-1]) else _repeated_members(value_text)
            except MalformedError as error:
                malformed.append((record, str(error)))
            record += 1
            at = _skip_whitespace(text, stop)
        meter.count_rows(len(positions) + len(malformed))
        yield Block(positions, values, malformed, repeated)


def _skip_whitespace(text: str, at: int) -> int:
    match = _WHITESPACE.match(text, at)
    return at if match is None else match.end()


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"the input is not UTF-8: {error.reason}"
    if isinstance(error, RecursionError):
        return "the JSON is nested too deeply"
    if isinstance(error, json.JSONDecodeError):
        return f"JSON is malformed: {error.msg}"
    text = str(error).partition(" - at `")[0]
    if text == "Input data was truncated":
        return "the JSON value is truncated: it does not end on its line; write one value per line"
    return text


class Meter:
    """Counts what a decode has taken in and refuses to go on beyond the limits."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._rows = 0
        self._bytes = 0

    def count_rows(self, rows: int) -> None:
        self._rows += rows
        if self._rows > self._limits.rows:
            raise ResourceLimitError("load rows", self._limits.rows, self._rows, _REMEDY)

    def watch(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """The same pieces, counted as they are read."""
        for piece in pieces:
            self.count_bytes(len(piece))
            yield piece

    def count_bytes(self, size: int) -> None:
        self._bytes += size
        if self._bytes > self._limits.bytes:
            raise ResourceLimitError("load bytes", self._limits.bytes, self._bytes, _REMEDY)


def _whole_lines(data: bytes | Iterable[bytes], meter: Meter) -> Iterator[bytes]:
    """The input in pieces of whole lines; only the last piece may end without a line break."""
    if isinstance(data, bytes | bytearray | memoryview):
        meter.count_bytes(len(data))
        data, start = bytes(data), 0
        while start < len(data):
            end = len(data)
            if (limit := start + _BLOCK_BYTES) < end:
                end = data.rfind(b"\n", start, limit) + 1 or data.find(b"\n", limit) + 1 or end
            yield data[start:end]
            start = end
        return
    pending: list[bytes] = []
    size = 0
    for piece in meter.watch(data):
        pending.append(piece)
        size += len(piece)
        if size >= _BLOCK_BYTES and (end := piece.rfind(b"\n") + 1):
            yield b"".join([*pending[:-1], piece[:end]])
            pending, size = [piece[end:]], len(piece) - end
    if rest := b"".join(pending):
        yield rest


def record_of(line: bytes) -> bytes:
    """The graph record of a quarantine line, as an object or as the text of one; any other line as it is."""
    if _SIGN_OF_QUARANTINE not in line:
        return line
    try:
        quarantined = _quarantined(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return line
    if quarantined.data is not UNSET or quarantined.edge is not UNSET:
        return line
    record = bytes(quarantined.record)
    text = _text(record).encode() if record.startswith(b'"') else record
    # A text that holds nothing is still a record, and a bad one.
    return b" ".join(text.splitlines()) if text.strip() else b'""'


def records_of(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """An input of lines, in pieces of any size, with quarantine lines replaced by their records."""
    rest: list[bytes] = []
    held, is_long = 0, False
    for piece in pieces:
        end = piece.rfind(b"\n") + 1
        if end:
            # A line that is too long ends with the first line end here.
            first = piece.find(b"\n") + 1 if is_long else 0
            yield piece[:first] + _replace_lines(b"".join([*rest, piece[first:end]]))
            rest, held, is_long = [piece[end:]], len(piece) - end, False
        else:
            rest.append(piece)
            held += len(piece)
        if is_long or held > _LONGEST_LINE:
            yield b"".join(rest)
            rest, held, is_long = [], 0, True
    if last := b"".join(rest):
        yield _replace_lines(last)


def _replace_lines(lines: bytes) -> bytes:
    return b"\n".join(map(record_of, lines.split(b"\n"))) if _SIGN_OF_QUARANTINE in lines else lines
