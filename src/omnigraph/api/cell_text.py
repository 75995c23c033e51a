"""The text of one cell: as JSON writes it, on one line, within a width of a terminal.

Pure functions over plain values; results at a prompt, tables of the command line and CSV are made of them.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any, Final

_QUOTED_IN_CSV: Final = frozenset(',"\r\n')
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_JOINER: Final = "\u200d"
_AS_PICTURE: Final = "\ufe0f"
_SOFT_HYPHEN: Final = "\u00ad"
_SKIN_TONES: Final = frozenset(map(chr, range(0x1F3FB, 0x1F400)))


def cell_text(value: Any) -> str:
    if value is None:
        return "null"
    return value if isinstance(value, str) else compact_json(value)


def csv_line(cells: Iterable[Any]) -> str:
    """One record of CSV without its line end: nothing for null, `""` for an empty text, as `load` reads them."""
    return ",".join(map(_csv_cell, cells))


def _csv_cell(value: Any) -> str:
    if value is None:
        return ""
    text = cell_text(value)
    if text and _QUOTED_IN_CSV.isdisjoint(text):
        return text
    return '"' + text.replace('"', '""') + '"'


def counted(count: int, one: str, more: str | None = None) -> str:
    """`1 row`, `2 rows`; `more` is a plural that is not made with an s."""
    return f"1 {one}" if count == 1 else f"{count} {more or one + 's'}"


def compact_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def one_line(text: str) -> str:
    """The text without what would move a cursor: a line break is shown as it is written in a string, and so is every
    other control character. Data must not write to a terminal anything but itself."""
    if text.isprintable():
        return text
    return _CONTROL.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return _ESCAPES.get(found[0]) or f"\\x{ord(found[0]):02x}"


def cut_to_width(text: str, width: int) -> str:
    """The longest beginning that fits; what belongs together stays together."""
    taken = 0
    kept = 0
    for piece, wide in _pieces(text):
        taken += wide
        if taken > width:
            return text[:kept]
        kept += len(piece)
    return text


def first_piece(text: str) -> str:
    """The first character with the marks that belong to it."""
    return next(_pieces(text), ("", 0))[0]


def padded(text: str, width: int) -> str:
    return text + " " * (width - text_width(text))


def text_width(text: str) -> int:
    """Columns of a terminal: wide characters take two, marks and joined ones none."""
    return len(text) if text.isascii() else sum(wide for _, wide in _pieces(text))


def _pieces(text: str) -> Iterator[tuple[str, int]]:
    """What a terminal draws as one: a character, the marks on it, and emoji that are joined to it; with its width."""
    piece, wide = "", 0
    joined = False
    for character in text:
        own = _character_width(character)
        belongs = own == 0 or (joined and own == 2) or (wide == 2 and character in _SKIN_TONES)
        if piece and belongs:
            piece += character
            # A sign that is drawn as text by default becomes a picture, and as wide as one.
            if character == _AS_PICTURE and wide == 1 and not piece[0].isspace():
                wide = 2
        else:
            if piece:
                yield piece, wide
            piece, wide = character, own
        joined = character == _JOINER
    if piece:
        yield piece, wide


def _character_width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf") and character != _SOFT_HYPHEN:
        return 0
    if "\u1160" <= character <= "\u11ff":  # vowels and ends of Korean syllables are drawn into their beginnings
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
