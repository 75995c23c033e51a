"""One running command: its flags, its configuration, the graph it addresses, and its manners when it writes.

Every command that touches a graph starts from `Invocation.of(ctx)`. The write-target echo and the consent to a
destructive write live here, so that no command can forget a part of them.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import typer

from omnigraph.cli.capabilities import RULES, label_of
from omnigraph.cli.clusters import graph_of
from omnigraph.cli.flags import GlobalFlags, path_of
from omnigraph.cli.operator_config import OperatorConfig, load_config
from omnigraph.cli.scope import (
    ClusterScope,
    Request,
    ServerScope,
    StoreScope,
    Target,
    resolve,
    resolve_cluster,
    resolve_server,
    storage_needed,
    storage_uri,
)
from omnigraph.cli.served import open_served, require_graph
from omnigraph.cli.usage import UsageError, at_most_one
from omnigraph.errors import BadRequestError, ConflictError
from omnigraph.language.source import LONE_SURROGATE

if TYPE_CHECKING:
    from omnigraph.api.graph import GraphApi
    from omnigraph.graph import Graph


@dataclass
class Invocation:
    path: str
    flags: GlobalFlags = field(default_factory=GlobalFlags)
    query_name: str | None = None
    """An argument that was read as the name of a query, and not as a graph."""

    @classmethod
    def of(cls, ctx: typer.Context, query_name: str | None = None) -> Invocation:
        flags = ctx.find_object(GlobalFlags)
        return cls(path_of(ctx), flags or GlobalFlags(), query_name)

    @cached_property
    def config(self) -> OperatorConfig:
        return load_config()

    def actor_of(self, target: Target) -> str | None:
        """Who a write is recorded for; a server knows that by the token."""
        if isinstance(target, StoreScope):
            return self.actor
        if self.flags.actor is not None:
            raise BadRequestError(f"--as is not allowed on a served write: {target.uri} knows who writes by the token")
        return None

    @property
    def actor(self) -> str | None:
        """Who a direct write is recorded for."""
        actor = self.flags.actor or self.config.actor
        if actor is not None and LONE_SURROGATE.search(actor):
            raise UsageError("--as is not UTF-8 text")
        return actor

    def target(self, uri: str | None = None) -> Target:
        """Where the graph that this command line addresses is."""
        scope = resolve(self._request(uri), self.config)
        if isinstance(scope, ServerScope):
            require_graph(scope, self.config)
            return scope
        return scope if isinstance(scope, StoreScope) else graph_of(scope)

    def storage(self, uri: str | None = None) -> StoreScope:
        """The storage that a direct command addresses; the resolution lets it have no server."""
        target = self.target(uri)
        if not isinstance(target, StoreScope):
            raise storage_needed(f"this use of `{self.path}`")
        return target

    def instead_of_graph(self, flag: str, file: object, uri: str | None) -> None:
        """Refuse the address of a graph beside a file that takes its place. A profile of the environment is ignored."""
        addressed = [("URI", uri), *((f"--{name}", value) for name, value in self.flags.addressing())]
        for address in addressed:
            at_most_one(address, (flag, file))

    def new_storage(self, uri: str | None = None) -> str:
        """Where a graph is to be made, which no profile says: one that is there already would be meant."""
        if uri is not None and self.flags.store is not None:
            raise BadRequestError("the URI and --store are mutually exclusive; address the graph one way")
        if (place := uri or self.flags.store) is None:
            raise UsageError("say where the graph goes: --store <uri> (a path, file:// or s3://)")
        return storage_uri(place, label_of(self.path))

    def server(self) -> ServerScope:
        """The server that a served command addresses."""
        scope = resolve(self._request(None), self.config)
        assert isinstance(scope, ServerScope), "the resolution lets a served command have nothing else"
        return scope

    def cluster(self) -> ClusterScope:
        """The cluster this command line addresses, with the graph of it that was named."""
        return resolve_cluster(self._request(None), self.config, or_server="server" in RULES[self.path].flags)

    def server_of_queries(self) -> ServerScope | None:
        """The server whose stored queries are meant, with a graph on it; None where a cluster is."""
        scope = resolve_server(self._request(None), self.config)
        if scope is not None:
            require_graph(scope, self.config)
        return scope

    def open(self, uri: str | None = None) -> tuple[Target, GraphApi]:
        """The graph that is addressed, in storage or behind a server."""
        target = self.target(uri)
        return target, self.opened(target)

    def opened(self, target: Target) -> GraphApi:
        return open_graph(target) if isinstance(target, StoreScope) else open_served(target, self.config)

    def open_storage(self, uri: str | None = None) -> tuple[StoreScope, Graph]:
        target = self.storage(uri)
        return target, open_graph(target)

    def open_to_write(self, uri: str | None = None) -> tuple[Target, GraphApi]:
        """The graph that a write goes to, after saying so."""
        target = self.target(uri)
        self.echo(target)
        return target, self.opened(target)

    def maintain_storage(self, uri: str | None = None) -> tuple[StoreScope, Graph]:
        """The same for work on storage itself."""
        target = self.storage(uri)
        self.echo(target)
        return target, open_graph(target)

    def _request(self, uri: str | None) -> Request:
        return Request(label_of(self.path), RULES[self.path].capability, self.flags, uri, self.query_name)

    def echo(self, target: Target) -> None:
        """Say where a write goes, before it goes there."""
        if not self.flags.quiet:
            print(f"omnigraph {self.path} → {target.uri} ({target.access})", file=sys.stderr)

    def require_consent(self, target: Target, what: str, *, json: bool) -> None:
        """A destructive write to a place that others may share needs a yes."""
        if target.is_local or self.flags.yes:
            return
        if json or not sys.stdin.isatty():
            raise ConflictError(f"refusing destructive `{what}` on {target.uri} without consent; pass --yes")
        print(f"`{what}` on {target.uri} can't be undone. Continue? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise ConflictError(f"aborted: destructive `{what}` on {target.uri}")


def open_graph(target: StoreScope) -> Graph:
    """As Python programs do: the same settings, the same embedding provider."""
    import omnigraph

    return omnigraph.open(target.uri)
