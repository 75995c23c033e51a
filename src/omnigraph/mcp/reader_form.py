"""Entities as a reader wants them. They come in export form, which loses nothing: days and milliseconds since 1970,
vectors in full, blobs with all their bytes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from omnigraph.language.catalog import Property, TableType
from omnigraph.language.types import Scalar

_FIRST_DAY: Final = date(1970, 1, 1)
_FIRST_MOMENT: Final = datetime(1970, 1, 1, tzinfo=UTC)


def readable(
    type_: TableType, entity: Mapping[str, Any], wanted: Collection[str] = (), *, nulls: bool = True
) -> dict[str, Any]:
    """The members of an entity with dates as texts; a vector or blob that is not asked for is only mentioned."""
    told = {name: _value(type_.properties.get(name), value, name in wanted) for name, value in entity.items()}
    return told if nulls else {name: value for name, value in told.items() if value is not None}


def _value(prop: Property | None, value: Any, whole: bool) -> Any:
    if prop is None or value is None:
        return value
    kind = prop.type
    if kind.is_vector:
        return value if whole else f"({kind.display})"
    if kind.is_blob:
        return value if whole or not value.startswith("base64:") else "(Blob)"
    if kind.scalar in (Scalar.DATE, Scalar.DATETIME):
        return [_moment(kind.scalar, each) for each in value] if kind.list else _moment(kind.scalar, value)
    return value


def _moment(scalar: Scalar, count: int) -> Any:
    """A day or a moment as ISO text. What Python's calendar does not reach stays a number."""
    try:
        if scalar is Scalar.DATE:
            return (_FIRST_DAY + timedelta(days=count)).isoformat()
        moment = _FIRST_MOMENT + timedelta(milliseconds=count)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return count
