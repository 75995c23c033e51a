"""A JSON object that an operator gives on the command line or in a file."""

from __future__ import annotations

import json
from typing import Any

from omnigraph.errors import BadRequestError


def json_object(text: str, where: str, what: str) -> dict[str, Any]:
    """The object in a text; an empty one for null. Errors say `where` it came from and `what` it should be."""
    try:
        given = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadRequestError(f"{where} is not JSON: {error}") from None
    except RecursionError:
        raise BadRequestError(f"{where}: the JSON is nested too deeply") from None
    except ValueError:
        raise BadRequestError(f"{where}: the JSON holds a number of thousands of digits") from None
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise BadRequestError(f"{where}: {what}")
    return given
