"""Parameters of a query as a Python program gives them, as JSON has them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from enum import Enum
from typing import Any
from uuid import UUID

from omnigraph.errors import BadRequestError


def plain_parameters(params: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a Python program as JSON has them: dates and times as texts, arrays of NumPy as lists."""
    if not isinstance(params, Mapping):
        raise BadRequestError(f"params must be a mapping of names to values, not '{type(params).__name__}'")
    return {name: _plain(value) for name, value in params.items()}


def _plain(value: Any) -> Any:
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if hasattr(value, "tolist"):  # NumPy, without importing it
        return value.tolist()
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
