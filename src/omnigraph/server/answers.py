"""What goes back to a client: whole answers, streams, and errors in the form of the contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from omnigraph.api import wire
from omnigraph.api.error_output import ErrorOutput
from omnigraph.api.routes import Media, Route
from omnigraph.errors import (
    CommitOutcomeUnknownError,
    EmbeddingError,
    ErrorCode,
    OmniGraphError,
    PolicyEvaluationError,
    QueryCancelledError,
    ResourceLimitError,
    TooManyRequestsError,
    UnavailableError,
)

Headers: TypeAlias = Mapping[str, str]

_TOLD_THOUGH_INTERNAL: Final = (EmbeddingError, UnavailableError)
_UNKNOWN_OUTCOME: Final = (
    "the store did not confirm commit {commit}; look the commit up, or repeat the request with the same Idempotency-Key"
)


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole response."""

    body: bytes = b""
    status: int = 200
    media: str | None = Media.JSON
    headers: Headers = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StreamAnswer:
    """A response made of chunks, which a thread makes one at a time while the client takes them.

    A stream that breaks off ends its connection without the end mark of HTTP. Where the format has room for it, the
    error is its last line. `release` runs when the stream is over, however it ends.
    """

    chunks: Iterator[bytes]
    media: str
    status: int = 200
    headers: Headers = field(default_factory=dict)
    length: int | None = None
    last_line_tells_error: bool = False
    release: Callable[[], None] = lambda: None


AnyAnswer: TypeAlias = Answer | StreamAnswer


def json_answer(value: Any, headers: Headers | None = None) -> Answer:
    return Answer(wire.encode(value), headers=headers or {})


def with_headers(answer: AnyAnswer, headers: Headers) -> AnyAnswer:
    return replace(answer, headers={**headers, **answer.headers})


def in_words_of_limits(error: Exception, seconds: float) -> Exception:
    """What ended because its time was over, as the limit that it reached."""
    if isinstance(error, QueryCancelledError | TimeoutError):
        return too_long(seconds)
    return error


def too_long(seconds: float) -> OmniGraphError:
    return ResourceLimitError(
        "query seconds", round(seconds), round(seconds), "make the query smaller, or raise --query-seconds"
    )


def error_answer(error: Exception, request_id: str, route: Route | None = None) -> Answer:
    """The response to a failure. What went wrong inside is in the log under the request id, and nowhere else."""
    output = error_output(error, request_id, route)
    headers: dict[str, str] = {}
    if isinstance(error, TooManyRequestsError | UnavailableError):
        headers["Retry-After"] = str(error.retry_after)
    status = error.http_status if isinstance(error, OmniGraphError) else 500
    return Answer(wire.encode(output), status, headers=headers)


def error_output(error: Exception, request_id: str, route: Route | None = None) -> ErrorOutput:
    """The wire form of an error: whole below 500, and without anything of the inside above."""
    told = {"request_id": request_id}
    if isinstance(error, CommitOutcomeUnknownError):
        return ErrorOutput(
            error=_UNKNOWN_OUTCOME.format(commit=error.commit_id),
            code=ErrorCode.INTERNAL,
            type=error.error_type(),
            fields={**told, "kind": error.kind, "commit_id": error.commit_id},
        )
    if isinstance(error, OmniGraphError) and (error.http_status < 500 or isinstance(error, _TOLD_THOUGH_INTERNAL)):
        output = ErrorOutput.of(error)
        if error.http_status < 500:
            return output
        return ErrorOutput(error=output.error, code=output.code, type=output.type, fields={**output.fields, **told})
    kind = type(error) if isinstance(error, OmniGraphError) else OmniGraphError
    sentence = _sentence(error, route, request_id)
    return ErrorOutput(error=sentence, code=ErrorCode.INTERNAL, type=kind.error_type(), fields=told)


def _sentence(error: Exception, route: Route | None, request_id: str) -> str:
    what = "internal error"
    if isinstance(error, PolicyEvaluationError):
        what = "policy: policy evaluation failed"
    elif route is not None and route.tag == "changes":
        what = "internal error while reading changes"
    elif route is not None and route.tag == "blobs":
        what = "Blob delivery failed before response headers"
    return f"{what}; the server's log has the cause under request id {request_id}"
