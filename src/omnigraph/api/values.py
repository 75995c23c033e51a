"""Values at the edges: parameters as Python programs give them, results as JSON, and cells and tables as text.

Pure functions, used by results, the HTTP server, the command line and the remote client. The Arrow type of a column is
enough to render it: a vector is a list of a fixed size. Tables for a prompt or a notebook are bounded in both
directions.
"""

from __future__ import annotations

import html
import json
import math
import re
import shutil
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import UUID

from omnigraph.api.enums import Integers
from omnigraph.dates import format_date, format_datetime
from omnigraph.errors import BadRequestError

if TYPE_CHECKING:
    import pyarrow as pa


# No type of a parameter nests at all; a value that does is refused where it is bound, and has to get there.
DEEPEST_VALUE: Final = 32
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLI: Final = timedelta(milliseconds=1)
_PANDAS_NULLS: Final = frozenset({"NAType", "NaTType"})
_MOST_BITS: Final = 1024
"""No number of a property has more."""
_PLAIN: Final = frozenset({str, float, bool, type(None)})
"""What JSON has as it is; integers may be too long."""
_FINER_THAN_PYTHON: Final = ("ns]", "ps]", "fs]", "as]")


def plain_parameters(params: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a Python program as JSON has them: dates and times as texts, arrays of NumPy as lists."""
    if not isinstance(params, Mapping):
        raise BadRequestError(f"params must be a mapping of names to values, not '{type(params).__name__}'")
    plain = {}
    for name, value in params.items():
        try:
            plain[name] = plain_value(value)
        except BadRequestError as error:
            raise BadRequestError(f"param '{name}': {error}") from None
    return plain


def plain_value(value: Any, depth: int = 0) -> Any:
    """One value; what has no form in JSON as it is."""
    if type(value) in _PLAIN:
        return value
    if type(value) is int:
        if value.bit_length() > _MOST_BITS:
            raise BadRequestError("the number exceeds every type of number")
        return value
    if is_pandas_null(value):
        return None
    if isinstance(value, Enum):
        return plain_value(value.value, depth)
    if isinstance(value, datetime):
        return format_datetime(epoch_millis(value))
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Decimal):
        return plain_number(value)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if depth == DEEPEST_VALUE:
        raise BadRequestError(f"the value is nested deeper than {DEEPEST_VALUE} levels")
    if isinstance(value, Mapping):
        return {key: plain_value(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return list(value) if _PLAIN.issuperset(map(type, value)) else [plain_value(each, depth + 1) for each in value]
    plain = _python_value(value)
    return value if plain is value else plain_value(plain, depth + 1)


def _python_value(value: Any) -> Any:
    """What an array or a scalar of NumPy, Arrow, pandas or Polars holds, without importing them."""
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        return numpy_value(value)
    for method in ("tolist", "to_list", "as_py"):
        if hasattr(value, method) and not isinstance(value, type):
            return getattr(value, method)()
    return value


def numpy_value(value: Any) -> Any:
    """An array or a scalar of NumPy as Python has it. Python knows no moment finer than a microsecond, and NumPy makes
    an integer of such a one."""
    name = getattr(value.dtype, "name", "")
    if name.startswith("datetime64"):
        if name.endswith(_FINER_THAN_PYTHON):
            value = value.astype("datetime64[us]")
        if _holds_integers(moments := value.tolist()):
            raise BadRequestError("the moment is outside the years 1 to 9999")
        return moments
    return value.tolist()


def _holds_integers(value: object) -> bool:
    """NumPy has nothing better for a moment that Python can't hold."""
    return any(map(_holds_integers, value)) if isinstance(value, list) else isinstance(value, int)


def is_pandas_null(value: object) -> bool:
    """What pandas has for None."""
    return type(value).__name__ in _PANDAS_NULLS and type(value).__module__.startswith("pandas.")


def epoch_millis(value: datetime) -> int:
    """Milliseconds since 1970. A time without a zone is UTC, as it is in Arrow."""
    return int(((value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH) // _MILLI)


def plain_number(value: Decimal) -> int | float:
    """A decimal as the number that JSON would have: whole ones exactly, others as the nearest float."""
    if value.is_finite() and value == value.to_integral_value():
        return int(value)
    return math.nan if value.is_nan() else float(value)


def plain_id(value: Any) -> str:
    """The id of an entity. An integer names the node whose key has that value."""
    if isinstance(value, str):
        return value
    if isinstance(value, UUID) or (isinstance(value, int) and not isinstance(value, bool)):
        return str(value)
    raise BadRequestError(f"an id is a text, not '{type(value).__name__}'")


# What can be sent


def json_problem(value: object) -> str | None:
    """Why JSON can't hold a plain value; None where it can."""
    if value is None or isinstance(value, bool | int | str):
        return None
    if isinstance(value, float):
        return None if math.isfinite(value) else not_finite(value)
    if isinstance(value, Mapping):
        if any(not isinstance(name, str) for name in value):
            return "the names of members must be texts"
        return json_problem(list(value.values()))
    if isinstance(value, list | tuple):
        return next((problem for item in value if (problem := json_problem(item)) is not None), None)
    return f"'{type(value).__name__}' is not a value that can be stored"


def not_finite(number: float) -> str:
    """What to say of a number that no column stores."""
    return f"{'NaN' if math.isnan(number) else number} is not finite, which no column stores; leave the value out"


_JS_SAFE: Final = 2**53 - 1


OTHER_PROPERTIES: Final = {b"omnigraph": b"other properties"}
"""Marks the text column of an object whose members belong to the object itself: the properties that not every type of
its variable has."""


def render_column(column: pa.Array | pa.ChunkedArray, integers: Integers = Integers.NATIVE) -> list[Any]:
    """One JSON value per row: an object for a struct, an array for a list."""
    import pyarrow as pa

    type_ = column.type
    if pa.types.is_nested(type_) and isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in render_column(chunk, integers)]
    if pa.types.is_struct(type_):
        return _render_structs(column, integers)
    if pa.types.is_fixed_size_list(type_):
        return [
            None if row is None else [x if x is not None and math.isfinite(x) else None for x in row]
            for row in column.to_pylist()
        ]
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        items, ends, start = render_column(column.flatten(), integers), 0, 0
        rows: list[Any] = []
        for length in column.value_lengths().to_pylist():
            start, ends = ends, ends + (length or 0)
            rows.append(None if length is None else items[start:ends])
        return rows
    item, number = _renderer(type_, integers)
    values = _plain(column, number)
    return values if item is _same else [None if x is None else item(x) for x in values]


def is_rendered_as_is(type_: pa.DataType, integers: Integers) -> bool:
    """Whether the values of a type are those that Arrow makes of them."""
    import pyarrow as pa

    return not pa.types.is_nested(type_) and _renderer(type_, integers) == (_same, None)


def _render_structs(column: pa.StructArray, integers: Integers) -> list[Any]:
    fields = list(column.type)
    names = [field.name for field in fields if field.metadata != OTHER_PROPERTIES]
    values = [render_column(column.field(i), integers) for i, field in enumerate(fields) if field.name in names]
    rows: list[Any] = [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]
    rows = rows if names else [{} for _ in range(len(column))]
    for i, field in enumerate(fields):
        if field.metadata == OTHER_PROPERTIES:
            for row, text in zip(rows, column.field(i).to_pylist(), strict=True):
                row.update(_safe_integers(json.loads(text or "{}"), integers))
    if column.null_count:
        return [row if valid else None for row, valid in zip(rows, column.is_valid().to_pylist(), strict=True)]
    return rows


def _safe_integers(properties: dict[str, Any], integers: Integers) -> dict[str, Any]:
    """Properties that come as JSON, with integers that JavaScript would round as texts."""
    if integers is Integers.NATIVE:
        return properties

    def safe(value: Any) -> Any:
        if isinstance(value, list):
            return [safe(item) for item in value]
        return str(value) if type(value) is int and abs(value) > _JS_SAFE else value

    return {name: safe(value) for name, value in properties.items()}


def _plain(column: pa.Array | pa.ChunkedArray, number: pa.DataType | None) -> list[Any]:
    """Days and milliseconds as numbers: Python's own dates end at the year 9999."""
    rows: list[Any] = (column if number is None else column.cast(number)).to_pylist()
    return rows


def _renderer(type_: pa.DataType, integers: Integers) -> tuple[Callable[[Any], Any], pa.DataType | None]:
    """How one value is rendered, and the numbers it is read as where Python's own type would not do."""
    import pyarrow as pa

    if pa.types.is_date32(type_):
        return format_date, pa.int32()
    if pa.types.is_timestamp(type_):
        return format_datetime, pa.int64()
    if pa.types.is_floating(type_):
        return _float, None
    if integers is Integers.JS_SAFE and (pa.types.is_int64(type_) or pa.types.is_uint64(type_)):
        return lambda number: number if abs(number) <= _JS_SAFE else str(number), None
    return _same, None


def _same(value: Any) -> Any:
    return value


def _float(number: float) -> float | str:
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


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


def count_noun(count: int, one: str, more: str | None = None) -> str:
    """`1 row`, `2 rows`; `more` is a plural that is not made with an s."""
    return f"1 {one}" if count == 1 else f"{count} {more or one + 's'}"


def compact_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def one_line(text: str) -> str:
    """The text without what would move a cursor: a line break is shown as it is written in a string, and so is every
    other control character. Data must not write to a terminal anything but itself."""
    if text.isprintable():
        return text
    return _CONTROL.sub(lambda match: _ESCAPES.get(match[0]) or f"\\x{ord(match[0]):02x}", text)


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


def pad(text: str, width: int) -> str:
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


Columns: TypeAlias = Sequence[tuple[str, str]]
"""The name and the type of each column."""

_WIDEST_CELL: Final = 40
_USUAL_WIDTH: Final = 100
_GAP: Final = " │ "
_MORE: Final = "…"


def text_table(name: str, columns: Columns, count: int, values: Sequence[Sequence[Any]]) -> str:
    """The first rows below the names and types of the columns. `values` are by column."""
    cells = [
        [one_line(head), type_, *(one_line(cell_text(value)) for value in column)]
        for (head, type_), column in zip(columns, values, strict=True)
    ]
    numeric = [bool(column) and {type(value) for value in column} <= {int, float, type(None)} for column in values]
    kept = _columns_that_fit([min(_WIDEST_CELL, max(map(text_width, column))) for column in cells])
    lines = [_headline(name, columns, count)]
    for row in range(len(cells[0]) if cells else 0):
        shown = [_MORE if at is None else _align(cells[at][row], width, numeric[at]) for at, width in kept]
        lines.append(_GAP.join(shown).rstrip())
        if row == 1:
            lines.append("─┼─".join("─" * width for _, width in kept))
    if (hidden := count - (len(values[0]) if values else 0)) > 0:
        lines.append(f"{_MORE} {hidden:,} more row{'' if hidden == 1 else 's'}")
    return "\n".join(lines)


def html_table(name: str, columns: Columns, count: int, values: Sequence[Sequence[Any]]) -> str:
    """The same for a notebook, with every column."""
    heads = "".join(f"<th>{html.escape(head)}<br><small>{html.escape(type_)}</small></th>" for head, type_ in columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_short(cell_text(value)))}</td>" for value in row) + "</tr>"
        for row in zip(*values, strict=True)
    )
    hidden = count - (len(values[0]) if values else 0)
    more = f"<p>{_MORE} {hidden:,} more</p>" if hidden > 0 else ""
    title = html.escape(_headline(name, columns, count))
    return f"<p>{title}</p><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>{more}"


def _headline(name: str, columns: Columns, count: int) -> str:
    rows, wide = f"{count:,} row{'' if count == 1 else 's'}", len(columns)
    return f"{name}: {rows} × {wide} column{'' if wide == 1 else 's'}"


def _columns_that_fit(widths: Sequence[int]) -> list[tuple[int | None, int]]:
    """The columns that a line has room for, with their widths; what is left out shows as one mark before the last."""
    room = shutil.get_terminal_size((_USUAL_WIDTH, 24)).columns

    def line_width(chosen: Sequence[tuple[int | None, int]]) -> int:
        return sum(width for _, width in chosen) + len(_GAP) * (len(chosen) - 1)

    everything: list[tuple[int | None, int]] = list(enumerate(widths))
    if line_width(everything) <= room or len(widths) < 3:
        return everything
    tail: list[tuple[int | None, int]] = [(None, 1), (len(widths) - 1, widths[-1])]
    kept: list[tuple[int | None, int]] = [(0, widths[0])]
    while len(kept) < len(widths) - 2 and line_width([*kept, (len(kept), widths[len(kept)]), *tail]) <= room:
        kept.append((len(kept), widths[len(kept)]))
    return [*kept, *tail]


def _align(text: str, width: int, to_the_right: bool) -> str:
    if text_width(text) > width:
        text = cut_to_width(text, width - 1) + _MORE
    return " " * (width - text_width(text)) + text if to_the_right else pad(text, width)


def _short(text: str) -> str:
    return text if len(text) <= 4 * _WIDEST_CELL else text[: 4 * _WIDEST_CELL] + _MORE
