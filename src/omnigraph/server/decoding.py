"""Requests as the structs of the contract: query strings and JSON bodies, each refused with its own status."""

from __future__ import annotations

import re
import types
from collections.abc import Hashable
from functools import cache
from typing import Annotated, Any, Final, Union, cast, get_args, get_origin
from urllib.parse import parse_qsl

import msgspec

from omnigraph.api import wire
from omnigraph.api.routes import Media, Route
from omnigraph.errors import BadRequestError, RequestShapeError, UnsupportedMediaTypeError

_MOST_PARAMETERS: Final = 1_000
_BAD_PARAMS: Final = "$.params"
_INTEGER: Final = re.compile(r"-?\d{1,40}", re.ASCII)
_TRUTH: Final = {"true": True, "1": True, "false": False, "0": False}


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
    kinds = _kinds(cast(Hashable, shape))
    for name, text in pairs:
        kind = kinds.get(name)
        if kind is tuple:
            given.setdefault(name, []).append(text)
        elif name in given and kind is not None:
            raise BadRequestError(f"{route.bad_parameters}: '{name}' is given twice")
        else:
            given[name] = _read_as(kind, text)
    try:
        return wire.convert(given, shape)
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


def _read_as(kind: Any, text: str) -> Any:
    """A number or a truth value where one is wanted. What is neither stays a text, and is refused as that."""
    if kind is int and _INTEGER.fullmatch(text):
        return int(text)
    if kind is bool:
        return _TRUTH.get(text.lower(), text)
    return text


@cache
def _kinds(shape: Hashable) -> dict[str, Any]:
    """The parameters that there are, each with the type of its values; a tuple may be given more than once."""
    fields = msgspec.structs.fields(cast(type[msgspec.Struct], shape))
    return {field.encode_name: _kind(field.type) for field in fields}


def _kind(annotation: Any) -> Any:
    """The type itself, without whether it is optional and what its values are bound to."""
    if get_origin(annotation) in (Union, types.UnionType):
        return next(_kind(choice) for choice in get_args(annotation) if choice is not types.NoneType)
    if get_origin(annotation) is Annotated:
        return _kind(get_args(annotation)[0])
    return get_origin(annotation) or annotation
