"""Responses: whole bodies, streams, errors in the form of the API, entity tags, and the choice of a media type.

Handlers make them and `http.request.Exchange` sends them. An internal failure is never described to a client: the log
has its cause under the request id.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from omnigraph import errors
from omnigraph.api import wire
from omnigraph.api.service.http import ErrorOutput
from omnigraph.api.service.routes import Media, Route

Headers: TypeAlias = Mapping[str, str]

_REPORTED_ALTHOUGH_INTERNAL: Final = (errors.EmbeddingError, errors.UnavailableError)
_INTERNAL_BY_TAG: Final = {
    "changes": "internal error while reading changes",
    "blobs": "Blob delivery failed before response headers",
}
_UNKNOWN_OUTCOME: Final = (
    "the store did not confirm commit {commit}; look the commit up, or repeat the request with the same Idempotency-Key"
)


@dataclass(frozen=True, slots=True)
class Response:
    """A whole response."""

    body: bytes = b""
    status: int = 200
    media: str | None = Media.JSON
    headers: Headers = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StreamResponse:
    """A response made of chunks, which a thread makes one at a time while the client takes them.

    A stream that breaks off ends its connection without the end mark of HTTP. The error is the last line of NDJSON.
    `release` runs when the stream is over, however it ends.
    """

    chunks: Iterator[bytes]
    media: str
    status: int = 200
    headers: Headers = field(default_factory=dict)
    release: Callable[[], None] = lambda: None


AnyResponse: TypeAlias = Response | StreamResponse


def json_response(value: Any, headers: Headers | None = None) -> Response:
    return Response(wire.encode(value), headers=headers or {})


def with_headers(response: AnyResponse, headers: Headers) -> AnyResponse:
    return replace(response, headers={**headers, **response.headers})


def name_limit(error: Exception, seconds: float) -> Exception:
    """A cancelled query as the error of the time limit that it reached."""
    if isinstance(error, errors.QueryCancelledError | TimeoutError):
        return too_long(seconds)
    return error


def too_long(seconds: float) -> errors.OmniGraphError:
    limit, advice = round(seconds), "make the query smaller, or raise --query-seconds"
    return errors.ResourceLimitError("query seconds", limit, limit, advice)


def error_response(error: Exception, request_id: str, route: Route | None = None) -> Response:
    """The response to a failure. The log alone has the cause of an internal one, under the request id."""
    output = error_output(error, request_id, route)
    headers: dict[str, str] = {}
    if isinstance(error, errors.TooManyRequestsError | errors.UnavailableError):
        headers["Retry-After"] = str(error.retry_after)
    status = error.http_status if isinstance(error, errors.OmniGraphError) else 500
    return Response(wire.encode(output), status, headers=headers)


def error_output(error: Exception, request_id: str, route: Route | None = None) -> ErrorOutput:
    """The wire form of an error: whole below 500, and without anything of the inside above."""
    identity = {"request_id": request_id}
    if isinstance(error, errors.CommitOutcomeUnknownError):
        return ErrorOutput(
            error=_UNKNOWN_OUTCOME.format(commit=error.commit_id),
            code=errors.ErrorCode.INTERNAL,
            type=error.error_type(),
            fields={**identity, "kind": error.kind, "commit_id": error.commit_id},
        )
    if isinstance(error, errors.OmniGraphError) and (
        error.http_status < 500 or isinstance(error, _REPORTED_ALTHOUGH_INTERNAL)
    ):
        output = ErrorOutput.of(error)
        if error.http_status < 500:
            return output
        return ErrorOutput(error=output.error, code=output.code, type=output.type, fields={**output.fields, **identity})
    kind = type(error) if isinstance(error, errors.OmniGraphError) else errors.OmniGraphError
    what = _INTERNAL_BY_TAG.get("" if route is None else route.tag, "internal error")
    if isinstance(error, errors.PolicyEvaluationError):
        what = "policy: policy evaluation failed"
    sentence = f"{what}; the server's log has the cause under request id {request_id}"
    return ErrorOutput(error=sentence, code=errors.ErrorCode.INTERNAL, type=kind.error_type(), fields=identity)


_ITEM: Final = re.compile(r'[ \t]*+(?:(W/)?("[\x21\x23-\x7e\x80-\xff]*+"))?[ \t]*+(?:,|\Z)')
"""One item of a list, which may be empty. Nothing is looked at twice, however long the list is."""


def tag_of(*parts: str | bytes) -> str:
    """A strong tag: equal parts give equal tags."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big") + data)
    return f'"{digest.hexdigest()[:32]}"'


def matches_strongly(header: str, tag: str) -> bool:
    """`If-Match`: the list holds this very tag. A malformed list matches nothing."""
    return header.strip() == "*" or (False, tag) in _parse_tags(header)


def matches_weakly(header: str, tag: str) -> bool:
    """`If-None-Match`: the list holds this tag, marked as weak or not. A malformed list matches nothing."""
    return header.strip() == "*" or any(each == tag for _, each in _parse_tags(header))


def _parse_tags(header: str) -> list[tuple[bool, str]]:
    """The tags of a list, each with whether it is weak. A malformed list has none."""
    text, tags, at = header.strip(), [], 0
    while at < len(text):
        match = _ITEM.match(text, at)
        if match is None:
            return []
        if match[2] is not None:
            tags.append((match[1] is not None, match[2]))
        at = match.end()
    return tags


def chosen_media(accept: str | None, offered: Sequence[Media]) -> Media:
    """The offered format with the highest weight; the first one when the client names none of them."""
    weights: dict[str, float] = {}
    for item in (accept or "*/*").split(","):
        name, *parameters = (part.strip().lower() for part in item.split(";"))
        weight = next((p.removeprefix("q=") for p in parameters if p.startswith("q=")), "1")
        try:
            weights[name] = float(weight)
        except ValueError:
            weights[name] = 0.0

    def weight_of(media: Media) -> float:
        names = (media.value, f"{media.partition('/')[0]}/*", "*/*")
        return next((weights[name] for name in names if name in weights), 0.0)

    return max(offered, key=lambda media: max(0.0, weight_of(media)))
