"""How a server is spoken to: for how long, how often, and as whom. The token is never shown."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from omnigraph.client.messages import Reply, Request
from omnigraph.errors import BadRequestError

DEFAULT_TIMEOUT: Final = 120.0
_CONNECT_SECONDS: Final = 10.0
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
        return {
            "headers": headers,
            "follow_redirects": False,
            "verify": _certificates() if encrypted else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            "limits": httpx.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS),
        }

    def timeouts(self, request: Request, seconds_left: float) -> httpx.Timeout:
        """How long one step of an attempt may take."""
        longest = max(0.001, min(self.timeout + request.wait_seconds, seconds_left))
        return httpx.Timeout(longest, connect=min(_CONNECT_SECONDS, longest))

    def reply(self, status: int, headers: httpx.Headers, body: bytes = b"") -> Reply:
        """A reply as it came. A server that repeats the token in an error does not make us show it."""
        if status >= 300 and self.token is not None:
            body = body.replace(self.token.encode(), b"[token]")
        return Reply(status, {name.lower(): value for name, value in headers.items()}, body)


def _certificates() -> ssl.SSLContext:
    try:
        return httpx.create_ssl_context()
    except OSError as error:
        raise BadRequestError(
            f"can't load the certificates that servers are known by ({error}); SSL_CERT_FILE and SSL_CERT_DIR name them"
        ) from None
