"""A request and its reply, as both transports know them: made from the route table, read as structs."""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import urlencode

import msgspec

from omnigraph.api import wire
from omnigraph.api.load import encoded, file_pieces, require_records
from omnigraph.api.service.http import received_error
from omnigraph.api.service.routes import IDEMPOTENCY_HEADER, Media, Route
from omnigraph.errors import BadRequestError, OmniGraphError, UnexpectedAnswerError

Shape = TypeVar("Shape")

_PIECE_BYTES: Final = 256 << 10
_KEPT: Final = (str, bytes, bytearray, memoryview, os.PathLike, list, tuple)
_SHOWN_CHARACTERS: Final = 500
_PAGES: Final = ("text/html", "application/xhtml+xml")
_TITLE: Final = re.compile(rb"<title[^>]*>(.*?)</title>", re.DOTALL | re.IGNORECASE)


class Upload:
    """A body that is sent in pieces. Texts, bytes and files can be sent again, an iterator only once."""

    media: Media | None = None
    """How it is written, where the operation leaves a choice."""

    def __init__(self, data: str | bytes | os.PathLike[str] | Iterable[str | bytes]) -> None:
        require_records(data)
        self._data = data
        self._opened = False

    @property
    def can_be_sent(self) -> bool:
        """Whether the next `pieces` are the whole of it."""
        return not self._opened or isinstance(self._data, _KEPT)

    def pieces(self) -> Iterator[bytes]:
        self._opened = True
        data = self._data
        if isinstance(data, str | bytes | bytearray | memoryview):
            whole = encoded(data)
            yield from (whole[at : at + _PIECE_BYTES] for at in range(0, len(whole), _PIECE_BYTES))
        elif isinstance(data, os.PathLike):
            yield from file_pieces(data, _PIECE_BYTES)
        else:
            yield from map(encoded, data)


@dataclass(frozen=True, slots=True)
class Request:
    """One exchange with a server. Doing it twice is doing it once: it reads, or carries an idempotency key."""

    route: Route
    url: str
    content: bytes | Upload | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    writes: bool = False
    method: str = ""
    wait_seconds: float = 0.0
    """How long the server may hold its answer back because it was asked to."""

    @property
    def verb(self) -> str:
        return self.method or self.route.method

    @property
    def key(self) -> str | None:
        return self.headers.get(IDEMPOTENCY_HEADER)

    @property
    def can_be_sent(self) -> bool:
        return not isinstance(self.content, Upload) or self.content.can_be_sent

    def with_headers(self, headers: Mapping[str, str]) -> Request:
        return replace(self, headers={**self.headers, **headers})


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer. Names of headers are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""

    def header(self, name: str) -> str | None:
        return self.headers.get(name.lower())

    @property
    def media(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def checked(self) -> Reply:
        """This reply, unless it tells a failure: that is raised, as the class it was on the server."""
        if not 200 <= self.status < 300:
            raise self.failure()
        return self

    def decoded(self, shape: type[Shape]) -> Shape:
        """The body as a struct of the contract. Members that this version does not know are ignored."""
        self.checked()
        if self.media in _PAGES:
            raise self.page()
        try:
            return wire.decode_with_nulls(self.body, shape)
        except BadRequestError as error:
            raise UnexpectedAnswerError(self.status, f"{error}; is this an OmniGraph server?") from None

    def page(self) -> UnexpectedAnswerError:
        """What to say of a page for people, which a proxy or another service sends."""
        title = _TITLE.search(self.body[: _SHOWN_CHARACTERS * 8])
        named = "" if title is None else f" titled '{' '.join(title[1].decode(errors='replace').split())}'"
        text = f"a page for browsers{named}, not an answer; is this an OmniGraph server, or a proxy before it?"
        return UnexpectedAnswerError(self.status, text[:_SHOWN_CHARACTERS])

    def require(self, *medias: Media) -> None:
        """Refuse an answer that comes in pieces of another kind than was asked for."""
        if self.media in _PAGES:
            raise self.page()
        if self.media not in medias:
            wanted = " or ".join(medias)
            raise UnexpectedAnswerError(self.status, f"'{self.media}' where this client reads {wanted}")

    def failure(self) -> OmniGraphError:
        """What went wrong, told by the body; a body that is not an error of ours is shown as it is."""
        if 300 <= self.status < 400:
            where = (self.header("location") or "").partition("?")[0]
            return UnexpectedAnswerError(self.status, f"a redirect to '{where}', which is not followed")
        if self.media in _PAGES:
            return self.page()
        try:
            return received_error(self.body)
        except BadRequestError:
            text = self.body.decode(errors="replace").strip()
            if not text and self.status == 404:
                text = "nothing is at this address; name the graph, as in https://host/graphs/<id>"
            return UnexpectedAnswerError(self.status, text[:_SHOWN_CHARACTERS])


Steps: TypeAlias = Generator[Request, Reply, Shape]
"""A call: it yields requests, is sent their replies, and returns its result."""


def query_string(parameters: Any) -> str:
    """A struct of the contract as a query string, without what is not given."""
    pairs = []
    for each in msgspec.structs.fields(parameters):
        value = getattr(parameters, each.name)
        if value is None:
            continue
        pairs += [(each.encode_name, _text(item)) for item in (value if isinstance(value, tuple) else (value,))]
    return f"?{urlencode(pairs)}" if pairs else ""


def _text(value: object) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, datetime) else str(value)


def json_body(body: Any) -> tuple[bytes, dict[str, str]]:
    """A struct of the contract as the body of a request, and the header that says so."""
    return wire.encode(body), {"Content-Type": Media.JSON.value}


def header_text(value: str, what: str, longest: int = 256) -> str:
    """A value that may stand in a header."""
    if not 0 < len(value) <= longest or not value.isascii() or not value.isprintable():
        raise BadRequestError(f"{what} must be 1 to {longest} printable ASCII characters")
    return value
