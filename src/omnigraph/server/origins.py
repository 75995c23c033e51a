"""Pages of other origins: what browsers let them do here, and what they may not do though a browser lets them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from omnigraph.api.routes import (
    COMMIT_HEADER,
    IDEMPOTENCY_HEADER,
    IF_COMMIT_HEADER,
    MIN_COMMIT_HEADER,
    QUERY_HEADER,
    REQUEST_ID_HEADER,
    SNAPSHOT_HEADER,
)
from omnigraph.errors import PolicyError, UnsupportedMediaTypeError
from omnigraph.server.agents import ASKED_BY_BROWSERS
from omnigraph.server.decoding import is_json

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_EVERY: Final = "*"
_TOLD: Final = (
    *(COMMIT_HEADER, SNAPSHOT_HEADER, REQUEST_ID_HEADER, "ETag", "Retry-After", "Deprecation", "Link"),
    *("Content-Range", "Accept-Ranges", QUERY_HEADER),
)
_ASKED: Final = (
    *("Authorization", "Content-Type", IDEMPOTENCY_HEADER, IF_COMMIT_HEADER, MIN_COMMIT_HEADER, REQUEST_ID_HEADER),
    *("If-Match", "If-None-Match", "If-Range", "Range", "Last-Event-ID"),
    *ASKED_BY_BROWSERS,
)


def with_origins(application: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """The application for pages of other origins too. Without any, browsers keep them out."""
    if not origins:
        return application
    return CORSMiddleware(
        application,
        allow_origins=list(origins),
        allow_methods=["GET", "HEAD", "POST", "DELETE"],
        allow_headers=list(_ASKED),
        expose_headers=list(_TOLD),
    )


def refuse_strangers(headers: Mapping[str, str], origins: Collection[str]) -> None:
    """A page that a browser loaded elsewhere may not call, by whatever name it reaches this address: tools do what
    they are told. Programs that are no browsers send no origin."""
    origin = headers.get("origin")
    if origin is not None and not _is_let_in(origin, origins) and not _is_loopback(origin):
        raise PolicyError(f"pages of '{origin}' may not use these tools; let them with --allow-origin {origin}")


def refuse_unasked(headers: Mapping[str, str], origins: Collection[str]) -> None:
    """Of a request that needs no body: browsers ask before a page sends JSON elsewhere, and not before it sends nothing
    or a form. The page would not see the answer, but what it asked for would be done."""
    origin = headers.get("origin")
    if origin is not None and not _is_let_in(origin, origins) and not is_json(headers.get("content-type")):
        raise UnsupportedMediaTypeError("a page must ask in JSON: send 'Content-Type: application/json'")


def _is_let_in(origin: str, origins: Collection[str]) -> bool:
    return origin in origins or _EVERY in origins


def _is_loopback(origin: str) -> bool:
    try:
        return urlsplit(origin).hostname in _LOOPBACK
    except ValueError:
        return False  # no browser sends such a thing
