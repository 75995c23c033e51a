"""Parameters of a query as a Python program gives them, as JSON has them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from enum import Enum
from typing import Any, Final
from uuid import UUID

from omnigraph.errors import BadRequestError

# No type of a parameter nests at all; a value that does is refused where it is bound, and has to get there.
DEEPEST_VALUE: Final = 32


def plain_parameters(params: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a Python program as JSON has them: dates and times as texts, arrays of NumPy as lists."""
    if not isinstance(params, Mapping):
        raise BadRequestError(f"params must be a mapping of names to values, not '{type(params).__name__}'")
    return {name: plain_value(value, name) for name, value in params.items()}


def plain_value(value: Any, name: str | None = None, depth: int = 0) -> Any:
    """One value, of a parameter if it has a name; what has no form in JSON as it is."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Enum):
        return plain_value(value.value, name, depth)
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if hasattr(value, "tolist"):  # NumPy, without importing it
        return value.tolist()
    if not isinstance(value, list | tuple | Mapping):
        return value
    if depth == DEEPEST_VALUE:
        of = "" if name is None else f"param '{name}': "
        raise BadRequestError(f"{of}the value is nested deeper than {DEEPEST_VALUE} levels")
    if isinstance(value, Mapping):
        return {key: plain_value(item, name, depth + 1) for key, item in value.items()}
    return [plain_value(item, name, depth + 1) for item in value]
