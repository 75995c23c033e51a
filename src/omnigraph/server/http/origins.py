"""The names and origins by which a server may be called: the check of `Host`, and cross-origin rules for browsers.

A page whose name resolves to this machine has the same origin as the server in its browser, which then lets it do
everything (DNS rebinding). So a server without tokens accepts only its own names. `app` and `omnigraph mcp` use it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from omnigraph.api import wire
from omnigraph.api.service.http import ErrorOutput
from omnigraph.api.service.routes import (
    COMMIT_HEADER,
    IDEMPOTENCY_HEADER,
    IF_COMMIT_HEADER,
    MIN_COMMIT_HEADER,
    QUERY_HEADER,
    REQUEST_ID_HEADER,
    SNAPSHOT_HEADER,
    Media,
)
from omnigraph.errors import (
    BadRequestError,
    HostNotAllowedError,
    OmniGraphError,
    PolicyError,
    UnsupportedMediaTypeError,
)
from omnigraph.server.http.request import is_json
from omnigraph.server.mcp_mount import BROWSER_HEADERS
from omnigraph.server.settings import is_loopback

_HOST: Final = re.compile(r"(?:\[(?P<v6>[^\[\]]+)\]|(?P<name>[^:\[\]\s]+))(?::\d*)?")
_EVERY: Final = "*"
_REMEMBERED_HOSTS: Final = 64
"""Parsing an address costs more than the rest of the check; clients send few different names."""
_EXPOSED_HEADERS: Final = (
    *(COMMIT_HEADER, SNAPSHOT_HEADER, REQUEST_ID_HEADER, "ETag", "Retry-After", "Deprecation", "Link"),
    *("Content-Range", "Accept-Ranges", QUERY_HEADER),
)
_ASKED: Final = (
    *("Authorization", "Content-Type", IDEMPOTENCY_HEADER, IF_COMMIT_HEADER, MIN_COMMIT_HEADER, REQUEST_ID_HEADER),
    *("If-Match", "If-None-Match", "If-Range", "Range", "Last-Event-ID"),
    *BROWSER_HEADERS,
)


class Hosts:
    """The names of a server without tokens: its address, loopback names, and those that its operator allows. Ports
    don't count: they may be mapped, and no name is pointed at a port."""

    def __init__(self, bind: str = "127.0.0.1", allowed: Iterable[str] = ()) -> None:
        self._names = {name for each in (bind, *allowed) if (name := host_name(_in_brackets(each))) is not None}
        self._is_everywhere = host_name(_in_brackets(bind)) in ("0.0.0.0", "::")

    def refuse_others(self, hosts: Sequence[str], scope: Scope) -> None:
        """The address that the connection came to counts where the server listens at all addresses."""
        if not hosts and scope.get("http_version") == "1.0":
            return  # no browser is that old
        if len(hosts) != 1:
            raise BadRequestError("a request has one Host header")
        name = host_name(hosts[0])
        if name is not None and (name in self._names or is_loopback(name)):
            return
        local = scope.get("server") if self._is_everywhere else None
        if name is None or local is None or name != host_name(_in_brackets(local[0])):
            raise HostNotAllowedError(hosts[0][:255])


def with_hosts(application: ASGIApp, hosts: Hosts) -> ASGIApp:
    """An application that is not ours, called by its own names only, and not by pages of elsewhere."""

    async def check(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = [(name.decode("latin-1"), value.decode("latin-1").strip()) for name, value in scope["headers"]]
            own = [value for name, value in headers if name == "host"]
            try:
                hosts.refuse_others(own, scope)
                refuse_foreign_origins(dict(headers), frozenset())
            except OmniGraphError as error:
                body = wire.encode(ErrorOutput.of(error))
                await Response(body, error.http_status, media_type=Media.JSON)(scope, receive, send)
                return
        await application(scope, receive, send)

    return check


@lru_cache(_REMEMBERED_HOSTS)
def host_name(host: str) -> str | None:
    """The name in a `Host` header in lower case, without its port; None if it is malformed."""
    match = _HOST.fullmatch(host)
    if match is None:
        return None
    name: str = match["v6"] or match["name"]
    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return None if match["v6"] else name.lower().removesuffix(".")
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _in_brackets(host: str) -> str:
    """An IPv6 address as it is written in a URL."""
    return f"[{host}]" if host.count(":") > 1 and not host.startswith("[") else host


def with_origins(application: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """The application for pages of other origins too. Without any, browsers keep them out."""
    if not origins:
        return application
    return CORSMiddleware(
        application,
        allow_origins=list(origins),
        allow_methods=["GET", "HEAD", "POST", "DELETE"],
        allow_headers=list(_ASKED),
        expose_headers=list(_EXPOSED_HEADERS),
    )


def refuse_foreign_origins(headers: Mapping[str, str], origins: Set[str]) -> None:
    """Refuse pages of other origins, by whatever name they reach this address: tools can do everything that the actor
    may do. Programs other than browsers send no origin."""
    origin = headers.get("origin")
    if origin is not None and not origins & {origin, _EVERY} and not _is_of_this_machine(origin):
        raise PolicyError(f"pages of '{origin}' may not use these tools; let them with --allow-origin {origin}")


def refuse_unasked(headers: Mapping[str, str], origins: Set[str]) -> None:
    """Of a request that needs no body: browsers ask before a page sends JSON elsewhere, and not before it sends nothing
    or a form. The page would not see the response, but the request would take effect."""
    origin = headers.get("origin")
    if origin is not None and not origins & {origin, _EVERY} and not is_json(headers.get("content-type")):
        raise UnsupportedMediaTypeError("a page must ask in JSON: send 'Content-Type: application/json'")


def _is_of_this_machine(origin: str) -> bool:
    try:
        return is_loopback(urlsplit(origin).hostname or "")
    except ValueError:
        return False  # no browser sends such a thing
