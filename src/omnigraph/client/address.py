"""Where a graph is: the address of its server, its id, and the URL of every operation on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self
from urllib.parse import quote, unquote, urlsplit

from omnigraph.api.service.routes import Route
from omnigraph.errors import BadRequestError

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
            raise BadRequestError(f"'{parts.scheme}' is no scheme of a server: give http://host or https://host")
        if parts.username is not None or parts.password is not None:
            raise BadRequestError("a server's URL must not carry a name or a password; give the token beside it")
        if parts.query or parts.fragment:
            raise BadRequestError("a server's URL ends with its path: leave out what follows ? or #")
        base = f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/")
        front, found, named = base.rpartition(_GRAPHS)
        if found and named and "/" not in named:
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
