"""Rules about single scalar values: dates as text, canonical texts that ids are made of, regular expressions.

Parameter coercion, the load and mutation kernels, the catalog and the renderers of results call it. It never sees a
column; the vectorised kernels of the engine are tested against it. Arrow is imported only to check the pattern of a
`@check` rule, because rows are matched by Arrow's dialect (RE2).
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Sequence
from decimal import Decimal
from types import NoneType

from omnigraph.dates import MILLIS_PER_DAY, days_from_civil
from omnigraph.errors import BadRequestError
from omnigraph.language.types import INTEGER_RANGES, Scalar

_DATE = re.compile(r"(?:([+-]\d{4,9}|\d{4})-(\d{1,2})-(\d{1,2})|(\d{4})(\d{2})(\d{2}))", re.ASCII)
_TIME = re.compile(
    r"(?:(\d{2}):(\d{2}):(\d{2})(?:\.(\d+))?|(\d{2})(\d{2})(\d{2}))"
    r"(?:[ ]?(?:([Zz])|([+-])(\d{2})(?::?(\d{2}))?))?",
    re.ASCII,
)
_DAYS_IN_MONTH = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_LONGEST_BARE_DATE = 10
_SHAPES = {NoneType: "null", bool: "a boolean", str: "a string", bytes: "bytes", list: "an array", tuple: "an array"}
_SMALLEST_INTEGER, _LARGEST_INTEGER = INTEGER_RANGES[Scalar.I64][0], INTEGER_RANGES[Scalar.U64][1]


def parse_date(text: str) -> int:
    """Days since 1970-01-01. A text longer than a plain date is read as a timestamp whose UTC day counts."""
    if len(text) > _LONGEST_BARE_DATE:
        millis = _parse_timestamp(text)
        days = None if millis is None else millis // MILLIS_PER_DAY
    else:
        match = _DATE.fullmatch(text)
        days = None if match is None else _days_of(match)
    if days is None or not -(2**31) <= days < 2**31:
        raise BadRequestError(f"invalid Date literal '{text}': expected YYYY-MM-DD, YYYYMMDD or a full timestamp")
    return days


def parse_datetime(text: str) -> int:
    """Milliseconds since the epoch, UTC. No zone means UTC; digits below a millisecond are cut."""
    millis = _parse_timestamp(text)
    if millis is None or not -(2**63) <= millis < 2**63:
        raise BadRequestError(
            f"invalid DateTime literal '{text}': expected YYYY-MM-DD, or YYYY-MM-DDTHH:MM:SS with an optional zone"
        )
    return millis


def _parse_timestamp(text: str) -> int | None:
    match = _DATE.match(text)
    if match is None or (days := _days_of(match)) is None:
        return None
    rest = text[match.end() :]
    if not rest:
        return days * MILLIS_PER_DAY
    if rest[0] not in "Tt ":
        return None
    time = _TIME.fullmatch(rest, 1)
    millis = None if time is None else _millis_of(time)
    return None if millis is None else days * MILLIS_PER_DAY + millis


def _days_of(match: re.Match[str]) -> int | None:
    year, month, day = (int(part) for part in (match.group(1, 2, 3) if match.group(1) else match.group(4, 5, 6)))
    if not 1 <= month <= 12:
        return None
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= day <= _DAYS_IN_MONTH[month - 1] + leap:
        return None
    return days_from_civil(year, month, day)


def _millis_of(match: re.Match[str]) -> int | None:
    parts = match.group(1, 2, 3) if match.group(1) else match.group(5, 6, 7)
    hour, minute, second = (int(part) for part in parts)
    if hour > 23 or minute > 59 or second > 59:
        return None
    fraction = int((match.group(4) or "")[:3].ljust(3, "0"))
    offset_hours, offset_minutes = int(match.group(10) or 0), int(match.group(11) or 0)
    if offset_hours > 23 or offset_minutes > 59:
        return None
    offset = (offset_hours * 60 + offset_minutes) * (-1 if match.group(9) == "-" else 1)
    return ((hour * 60 + minute - offset) * 60 + second) * 1000 + fraction


def round_to_f32(value: float) -> float:
    """The nearest 32-bit float, as the column will hold it."""
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        raise BadRequestError(f"{value} exceeds Float32 range") from None
    return rounded


def canonical_text(scalar: Scalar, value: str | bool | int | float) -> str:
    """The text that identifies a stored key value: what the `id` of a node with a one-column key is.

    Date and DateTime values come as their stored integers (epoch days, epoch milliseconds).
    """
    if scalar is Scalar.STRING and isinstance(value, str):
        return value
    if scalar is Scalar.BOOL and isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bool | str):
        raise BadRequestError(f"{value!r} can't be the value of a {scalar.value} key")
    if scalar in (Scalar.F32, Scalar.F64):
        return _canonical_float(round_to_f32(float(value)) if scalar is Scalar.F32 else float(value), scalar)
    if scalar in (Scalar.DATE, Scalar.DATETIME) and isinstance(value, int):
        return str(value)
    if scalar in INTEGER_RANGES and isinstance(value, int):
        low, high = INTEGER_RANGES[scalar]
        if not low <= value <= high:
            raise BadRequestError(f"{value} is outside the range of {scalar.value}")
        return str(value)
    raise BadRequestError(f"{value!r} can't be the value of a {scalar.value} key")


def _canonical_float(value: float, scalar: Scalar) -> str:
    if not math.isfinite(value):
        raise BadRequestError("a key value must be a finite number")
    if value == 0:
        return "0"
    shortest = _shortest_f32(value) if scalar is Scalar.F32 else Decimal(repr(value))
    text = format(shortest, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def shortest_float(scalar: Scalar, value: float) -> float:
    """A stored float as the number with the fewest digits that is stored as the same one."""
    if scalar is not Scalar.F32 or value == 0 or not math.isfinite(value):
        return value
    return float(_shortest_f32(value))


def _shortest_f32(value: float) -> Decimal:
    """The shortest decimal that reads back as the same 32-bit float, and the nearest among those."""
    exact = Decimal(value)
    for digits in range(1, 9):
        nearest = Decimal(f"{value:.{digits - 1}e}")
        # Below a power of two floats lie twice as dense as above: a neighbour may fit where the nearest does not.
        step = Decimal((0, (1,), nearest.adjusted() - digits + 1))
        fitting = [d for d in (nearest, nearest - step, nearest + step) if _reads_back(d, value)]
        if fitting:
            return min(fitting, key=lambda d: abs(d - exact))
    return Decimal(f"{value:.8e}")  # nine significant digits always identify a 32-bit float


def _reads_back(decimal: Decimal, value: float) -> bool:
    try:
        return round_to_f32(float(decimal)) == value
    except BadRequestError:
        return False


def composite_id(parts: Sequence[object]) -> str:
    """The `id` of an entity with a composite key: canonical texts in stable-property-id order, as compact JSON. An end
    of an edge that has a tag is a list of the type and the id."""
    return json.dumps(list(parts), ensure_ascii=False, separators=(",", ":"))


def fnv1a64(text: str) -> int:
    """FNV-1a over UTF-8: names table folders after their type, case-safe and of fixed length."""
    digest = 0xCBF29CE484222325
    for byte in text.encode("utf-8"):
        digest = ((digest ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return digest


def shape_of(value: object) -> str:
    """How a message names the JSON type of a value."""
    if isinstance(value, int) and not isinstance(value, bool):
        return "an integer" if _SMALLEST_INTEGER <= value <= _LARGEST_INTEGER else "a number beyond 64 bits"
    if isinstance(value, float):
        return "a number with a fraction" if math.isfinite(value) else "a number that is not finite"
    return next((name for kind, name in _SHAPES.items() if isinstance(value, kind)), "an object")


def pattern_problem(pattern: str) -> str | None:
    """Why a `@check` pattern can't be used, or None."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except (pa.ArrowInvalid, UnicodeEncodeError) as error:
        return str(error).removeprefix("Invalid regular expression: ")
    return None


def matches_pattern(text: str, pattern: str) -> bool:
    """Whether a text fits a `@check` pattern, by the dialect that rows are checked with."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return bool(pc.match_substring_regex(pa.array([text]), pattern)[0].as_py())
