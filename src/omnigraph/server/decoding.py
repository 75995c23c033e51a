"""Requests as the structs of the contract: query strings and JSON bodies, each refused with its own status."""

from __future__ import annotations

import types
from collections.abc import Hashable
from functools import cache
from typing import Any, Final, cast, get_args, get_origin
from urllib.parse import parse_qsl

import msgspec

from omnigraph.api import wire
from omnigraph.api.routes import Media, Route
from omnigraph.errors import BadRequestError, RequestShapeError, UnsupportedMediaTypeError

_MOST_PARAMETERS: Final = 1_000
_BAD_PARAMS: Final = "$.params"


def decoded_parameters(route: Route, query_string: bytes) -> Any:
    """The parameters of a route, None when it takes none. What is wrong with them is a 400."""
    shape = route.parameters
    if shape is None:
        return None
    try:
        pairs = parse_qsl(
            query_string.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_PARAMETERS
        )
    except ValueError:
        form = f"the query string must be URL-encoded UTF-8, with at most {_MOST_PARAMETERS} parameters"
        raise BadRequestError(f"{route.bad_parameters}: {form}") from None
    given: dict[str, Any] = {}
    known, repeatable = _names(cast(Hashable, shape))
    for name, value in pairs:
        if name in repeatable:
            given.setdefault(name, []).append(value)
        elif name in given and name in known:
            raise BadRequestError(f"{route.bad_parameters}: '{name}' is given twice")
        else:
            given[name] = value
    try:
        return wire.convert(given, shape, strict=False)
    except BadRequestError as error:
        raise BadRequestError(f"{route.bad_parameters}: {str(error).partition(': ')[2]}") from None


def decoded_body(route: Route, body: bytes, content_type: str | None) -> Any:
    """The body of a route as its struct: 415 for another media type, 400 for no JSON, 422 for another shape."""
    shape = route.request
    if shape is None:
        return None
    if route.request_is_optional and (not body.strip() or body.strip() == b"null"):
        return shape()
    if not route.request_is_optional and not is_json(content_type):
        raise UnsupportedMediaTypeError("the body must be JSON: send it with 'Content-Type: application/json'")
    try:
        return wire.decode(body, shape)
    except BadRequestError as error:
        if isinstance(error, RequestShapeError) and _BAD_PARAMS in str(error):
            raise BadRequestError("params must be a JSON object") from None
        if route.bad_body is not None:
            raise BadRequestError(f"{route.bad_body}: {str(error).partition(': ')[2]}") from None
        raise


def refuse_encoded(content_encoding: str | None) -> None:
    """A body is read as it comes: unpacking one could make it any size."""
    if content_encoding is not None and content_encoding.lower() not in ("", "identity"):
        raise UnsupportedMediaTypeError(f"the body is sent as '{content_encoding}': send it without Content-Encoding")


def is_json(content_type: str | None) -> bool:
    essence = media_type(content_type)
    return essence == Media.JSON or (essence.startswith("application/") and essence.endswith("+json"))


def media_type(content_type: str | None) -> str:
    """The media type of a header, without its parameters."""
    return (content_type or "").partition(";")[0].strip().lower()


@cache
def _names(shape: Hashable) -> tuple[frozenset[str], frozenset[str]]:
    """The parameters that there are, and those of them that may be given more than once."""
    fields = msgspec.structs.fields(cast(type[msgspec.Struct], shape))
    return frozenset(f.encode_name for f in fields), frozenset(f.encode_name for f in fields if _is_tuple(f.type))


def _is_tuple(annotation: Any) -> bool:
    if isinstance(annotation, types.UnionType):
        return any(map(_is_tuple, get_args(annotation)))
    return get_origin(annotation) is tuple
