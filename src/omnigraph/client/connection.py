"""The address and settings of a server, requests and replies, and what a remote graph remembers.

Requests are made from the route table, replies are read as structs and errors. A client remembers the commits that it
made, and asks the server for a state that has them; a worker that has not seen one yet is asked again. The token is
never shown.
"""

from __future__ import annotations

import re
import secrets
import ssl
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Self, TypeAlias, TypeVar
from urllib.parse import quote, unquote, urlsplit

import httpx
import msgspec

from omnigraph.api import wire
from omnigraph.api.calls import Author, Call
from omnigraph.api.queries import ReadPoint
from omnigraph.api.service.http import received_error
from omnigraph.api.service.routes import COMMIT_HEADER, IDEMPOTENCY_HEADER, MIN_COMMIT_HEADER, Media, Route, route
from omnigraph.api.values import json_problem, plain_parameters
from omnigraph.errors import BadRequestError, OmniGraphError, UnexpectedAnswerError

_GRAPHS = "/graphs/"


@dataclass(frozen=True, slots=True)
class Address:
    """A server, and a graph on it. Without a graph, the base is where the graph's own routes begin."""

    base: str
    graph: str | None = None

    @classmethod
    def parse(cls, url: str, graph: str | None = None) -> Self:
        """The URL of a server, with the graph's id beside it or at its end: `https://host/graphs/kb`"""
        parts = urlsplit(url.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadRequestError(f"unsupported URL scheme '{parts.scheme}'; use http:// or https://")
        if parts.username is not None or parts.password is not None:
            raise BadRequestError("a server's URL must not carry a name or a password; give the token beside it")
        if parts.query or parts.fragment:
            raise BadRequestError("a server's URL ends with its path: leave out what follows ? or #")
        base = f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/")
        front, separator, named = base.rpartition(_GRAPHS)
        if separator and named and "/" not in named:
            if graph is not None and graph != unquote(named):
                raise BadRequestError(f"the URL names the graph '{unquote(named)}' already; leave out '{graph}'")
            return cls(front, unquote(named))
        return cls(base, graph)

    @property
    def uri(self) -> str:
        """The graph's own address."""
        return self.base if self.graph is None else f"{self.base}{_GRAPHS}{quote(self.graph, safe='')}"

    @property
    def is_encrypted(self) -> bool:
        return self.base.startswith("https:")

    def url(self, route: Route, **path: str) -> str:
        """Where an operation is. A segment of the path is encoded as a whole: the branch `a/b` is `a%2Fb`."""
        filled = route.path.format(**{name: quote(value, safe="") for name, value in path.items()})
        return f"{self.uri if route.of_graph else self.base}{filled}"


Shape = TypeVar("Shape")

_SHOWN_CHARACTERS: Final = 500
_LONGEST_KEY: Final = 256
_PAGES: Final = ("text/html", "application/xhtml+xml")
_TITLE: Final = re.compile(rb"<title[^>]*>(.*?)</title>", re.DOTALL | re.IGNORECASE)


class Upload:
    """A body that is sent in pieces: more than `once`, if they can be read again. `media` says how it is written, where
    the operation leaves a choice, and `parameters` what the media type does not say."""

    def __init__(
        self,
        pieces: Callable[[], Iterator[bytes]],
        media: Media | None = None,
        *,
        once: bool = False,
        **parameters: Any,
    ) -> None:
        self._pieces = pieces
        self._once = once
        self._opened = False
        self.media = media
        self.parameters = {name: value for name, value in parameters.items() if value is not None}

    @property
    def can_be_sent(self) -> bool:
        """Whether the next `pieces` are the whole of it."""
        return not (self._once and self._opened)

    def pieces(self) -> Iterator[bytes]:
        self._opened = True
        return self._pieces()


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
    """A whole answer. The headers of a response are found by their names in any case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def media(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def check(self) -> Reply:
        """This reply, unless it reports a failure: that is raised, as the class it was on the server."""
        if not 200 <= self.status < 300:
            raise self.failure()
        return self

    def decode(self, shape: type[Shape]) -> Shape:
        """The body as a struct of the contract. Members that this version does not know are ignored."""
        self.check()
        if self.media in _PAGES:
            raise self.page()
        try:
            return wire.decode_with_nulls(self.body, shape)
        except BadRequestError as error:
            raise UnexpectedAnswerError(self.status, f"{error}; is this an OmniGraph server?") from None

    def page(self) -> UnexpectedAnswerError:
        """The error for a page for people, which a proxy or another service sends."""
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
        """The error that the body reports; a body that is not an error of ours is shown as it is."""
        if 300 <= self.status < 400:
            where = (self.headers.get("location") or "").partition("?")[0]
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
    values = {}
    for each in msgspec.structs.fields(parameters):
        value = getattr(parameters, each.name)
        if value is not None:
            values[each.encode_name] = value.isoformat() if isinstance(value, datetime) else value
    pairs = httpx.QueryParams(values)
    return f"?{pairs}" if pairs else ""


MAIN: Final = "main"

Binder: TypeAlias = Callable[[Any, str | None, Mapping[str, Any] | None, Mapping[str, Any], Mapping[str, Any]], Any]
"""Makes a `Call` of a text or handle, name, params, keywords, and the options that were given beside them."""


def plain_binder(
    query: Any, name: str | None, params: Mapping[str, Any] | None, args: Mapping[str, Any], options: Mapping[str, Any]
) -> Call:
    """A query by its text, with the parameters as they are. The server checks them."""
    if not isinstance(query, str):
        raise BadRequestError(f"a query is a text here, not '{type(query).__name__}'")
    both = {**plain_parameters(params or {}), **plain_parameters(args)}
    return Call(query, name, both if params is not None or args else None)


class Remote:
    """A graph behind a server."""

    def __init__(self, address: Address, binder: Binder = plain_binder) -> None:
        self._address = address
        self._binder = binder
        self._made: dict[str, str] = {}

    @property
    def uri(self) -> str:
        """The address of the graph."""
        return self._address.uri

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.uri}>"

    # Requests

    def _run(self, steps: Steps[Shape], *, reads_input: bool = False) -> Shape:
        """Carry an operation out to its result."""
        raise NotImplementedError

    def _bind(
        self,
        source: Any,
        name: str | None,
        params: Mapping[str, Any] | None,
        arguments: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> Call:
        """A query with its parameters, as the caller of a public method gave them."""
        call = Call(*self._binder(source, name, params, arguments, options))
        if call.params is not None:
            require_json(call.params)
        return call

    def _request(self, operation_id: str, parameters: Any = None, body: Any = None, **path: str) -> Request:
        """A request for an operation that reads."""
        row = route(operation_id)
        try:
            content = None if body is None else wire.encode(body)
            url = self._address.url(row, **path) + ("" if parameters is None else query_string(parameters))
        except UnicodeEncodeError as error:
            half = error.object[error.start : error.end].encode(errors="backslashreplace").decode()
            raise BadRequestError(f"a text of the request holds half of a surrogate pair, '{half}'") from None
        return Request(row, url, content, {} if body is None else {"Content-Type": Media.JSON.value})

    def _reading(self, request: Request, point: ReadPoint) -> Request:
        """The same of a branch's head, no older than what this client wrote there."""
        made = self._made.get(branch_of(point.branch)) if point.is_head else None
        return request if made is None else request.with_headers({MIN_COMMIT_HEADER: made})

    def _writing(self, request: Request, author: Author, content: Upload | None = None) -> Request:
        """The same as a write with an idempotency key, a new one when none is given, so that it can be sent twice."""
        if author.actor is not None:
            raise BadRequestError(
                f"actor '{author.actor}' is not allowed on a served write: the server knows who writes by the token"
            )
        key = author.idempotency_key if author.idempotency_key is not None else secrets.token_hex(16)
        if not 0 < len(key) <= _LONGEST_KEY or not key.isascii() or not key.isprintable():
            raise BadRequestError(f"an idempotency key must be 1 to {_LONGEST_KEY} printable ASCII characters")
        headers = {IDEMPOTENCY_HEADER: key}
        if content is not None:
            headers["Content-Type"] = (content.media or request.route.request_media[0]).value
        body = request.content if content is None else content
        return replace(request.with_headers(headers), content=body, writes=True)

    # What this client has written

    def _remember(self, branch: str, reply: Reply) -> None:
        """Remember the commit that a write made."""
        commit = reply.headers.get(COMMIT_HEADER)
        if commit is not None and 200 <= reply.status < 300:
            self._made[branch] = commit

    def _forget(self, branch: str) -> None:
        """What was written to a branch that is gone, or begins anew, says nothing about it any more."""
        self._made.pop(branch, None)


def require_json(params: Mapping[str, Any]) -> None:
    """Refuse parameters that JSON does not have: they would arrive as something else."""
    for name, value in params.items():
        if (problem := json_problem(value)) is not None:
            raise BadRequestError(f"param '{name}': {problem}")


def branch_of(name: str | None) -> str:
    """A branch as the server knows it: main when none is said, without the white space around it."""
    return MAIN if name is None else name.strip()


DEFAULT_TIMEOUT: Final = 120.0
_CONNECTIONS: Final = 64


@dataclass(frozen=True, slots=True)
class Settings:
    """`timeout` bounds a call with all its attempts; of a stream, the time without a byte."""

    token: str | None = field(default=None, repr=False)
    timeout: float = DEFAULT_TIMEOUT
    retries: bool = True

    def __post_init__(self) -> None:
        if not self.timeout > 0:
            raise BadRequestError("timeout must be a positive number of seconds")
        if self.token is not None and not (self.token and self.token.isascii() and self.token.isprintable()):
            raise BadRequestError("the token must be printable ASCII characters")

    def client_options(self, *, encrypted: bool) -> dict[str, Any]:
        """For both kinds of clients. Redirects are never followed: a token is for the server that it was given for.

        Only an encrypted connection needs the certificates of this machine, which take long to load. The others get a
        context that trusts nobody.
        """
        headers = {"User-Agent": "omnigraph-python"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        try:
            verify = httpx.create_ssl_context() if encrypted else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        except OSError as error:
            raise BadRequestError(
                f"can't load the certificates that servers are known by ({error}); "
                "SSL_CERT_FILE and SSL_CERT_DIR name them"
            ) from None
        return {
            "headers": headers,
            "follow_redirects": False,
            "verify": verify,
            "limits": httpx.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS),
        }

    def reply(self, response: httpx.Response, body: bytes) -> Reply:
        """A reply as it came. A server that repeats the token in an error does not make us show it."""
        if response.status_code >= 300 and self.token is not None:
            body = body.replace(self.token.encode(), b"[token]")
        return Reply(response.status_code, response.headers, body)
