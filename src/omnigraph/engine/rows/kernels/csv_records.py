"""CSV text into records, by the letter of RFC 4180: a quoted value may hold anything, an unquoted one no quote.

Works on the bytes of UTF-8, block by block, with a bounded memory. A block is proven well-formed as a whole, by where
its quotes stand; only the record that breaks the proof is read by itself. A record with a misplaced or unclosed
quote has no certain end: it ends with its first line, so that it does not swallow the rows below, and what follows is
read anew from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from omnigraph.errors import BadRequestError

LONGEST_RECORD: Final = 64 << 20
_SMALLEST_WINDOW: Final = 4 << 10
_LF, _CR = 10, 13

STRAY_QUOTE: Final = "a quote stands within a value that does not begin with one"
TEXT_BEHIND_QUOTE: Final = "text follows the quote that ends a value; a quote within a quoted value is written twice"
UNCLOSED_QUOTE: Final = "a quote is not closed"


@dataclass(frozen=True, slots=True)
class Records:
    """Whole records within `text`, which stands at `offset` of the input, in order and without their line ends.

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

    def after(self, number: int) -> Records:
        """The records behind one of them."""
        return self._only(np.arange(len(self)) > number)

    def without_empty_lines(self) -> Records:
        return self._only(self.ends > self.starts)

    def _only(self, kept: NDArray[np.bool_]) -> Records:
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
            self._before += len(_line_ends(self._last.text[: records.offset - self._last.offset]))
            if self._last.text[: records.offset - self._last.offset].endswith(b"\r") and records.text[:1] == b"\n":
                self._before -= 1  # one line end, cut in two
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
            for found, end in self._of(text, offset, before, last=False):
                taken, records = end, records + len(found)
                yield found
            before = text[taken - 1 : taken] if taken else before
            offset, rest = offset + taken, text[taken:]
            if len(rest) > LONGEST_RECORD:
                raise BadRequestError(
                    f"record {records + 1} is longer than {LONGEST_RECORD >> 20} MiB; a quote before it, or in it, "
                    "may not be closed"
                )
        for found, _ in self._of(rest, offset, before, last=True):
            yield found

    def _of(self, text: bytes, offset: int, before: bytes, *, last: bool) -> Iterator[tuple[Records, int]]:
        """The records of a text and where each lot of them ends; an unfinished one at the end is left out.

        `before` is the byte that precedes the text. After a misplaced quote the proof begins anew, on windows that
        start small: mistakes rarely come alone.
        """
        start, size = 0, len(text)
        while start < len(text):
            window = text[start : start + size] if start or size < len(text) else text
            ends_here = start + len(window) == len(text)
            found, end = self._window(window, offset + start, before, last=last and ends_here)
            if end:
                before = window[end - 1 : end]
                yield found, start + end
                start += end
                size = max(_SMALLEST_WINDOW, size // 4) if found.flaws else size * 4
            elif ends_here:
                return
            else:
                size *= 4

    def _window(self, text: bytes, offset: int, before: bytes, *, last: bool) -> tuple[Records, int]:
        """The records of a window up to its first misplaced quote, that record included; and where they end."""
        codes = np.frombuffer(text, np.uint8)
        at = _places(codes, text, _LF, _CR, self.delimiter, self.quote)
        delimits, flaw = codes[at] == self.delimiter, None
        if self.quote is None or self.quote not in text:
            lines = at[~delimits]
        else:
            quotes = codes[at] == self.quote
            lines = at[~(delimits | quotes)]
            outside = np.cumsum(quotes, dtype=np.uint8) % 2 == 0
            flaw = self._misplaced(codes, at[quotes])
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

    def _misplaced(self, codes: NDArray[np.uint8], quotes: NDArray[np.int64]) -> tuple[int, str] | None:
        """The first quote that may not stand where it does.

        As long as none is misplaced, quotes open and close by turns. A doubled quote closes and opens again at once.
        """
        opening, closing = quotes[::2], quotes[1::2]
        beside = np.zeros(256, np.bool_)
        beside[[self.delimiter, _LF, _CR, codes[quotes[0]]]] = True
        wrong = [
            (int(at[0]), reason)
            for at, reason in (
                (opening[~beside[codes[opening - 1]] & (opening > 0)], STRAY_QUOTE),
                (closing[~beside[codes[np.minimum(closing + 1, len(codes) - 1)]]], TEXT_BEHIND_QUOTE),
            )
            if len(at)
        ]
        return min(wrong, default=None)


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


def _places(codes: NDArray[np.uint8], text: bytes, *wanted: int | None) -> NDArray[np.int64]:
    """Where some bytes stand. Looking for a byte that is not there costs next to nothing in `text`."""
    found = np.zeros(len(codes), np.bool_)
    for code in wanted:
        if code is not None and code in text:
            found |= codes == code
    return np.flatnonzero(found)
