"""Which graph a command line means, and the running command that opens it.

Resolution is pure: an explicit address, then a profile, then the operator's default; it never looks at a store or a
server. `Invocation` turns the result into a graph, echoes where a write goes and asks for consent.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import quote

import click

from omnigraph.cli.config import OperatorConfig, active_profile_name, list_names, load_config, token_for
from omnigraph.cli.params import GlobalFlags, UsageError, at_most_one
from omnigraph.cli.registry import COMMANDS, Capability, Command
from omnigraph.errors import BadRequestError, ConflictError, OmniGraphError
from omnigraph.process import PROCESS

if TYPE_CHECKING:
    from omnigraph.api.graph import GraphApi
    from omnigraph.client import RemoteGraph
    from omnigraph.cluster.serving import RunnablePipeline
    from omnigraph.embeddings.configuration import EmbeddingConfig
    from omnigraph.graph import Graph
    from omnigraph.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class StoreScope:
    """One graph's storage."""

    uri: str

    @property
    def is_local(self) -> bool:
        return "://" not in self.uri or self.uri.startswith("file://")

    @property
    def access(self) -> str:
        return "direct, local" if self.is_local else "direct, remote"


@dataclass(frozen=True, slots=True)
class ServerScope:
    """A server by the name or URL it was given as, and the graph on it when one is known."""

    given: str
    url: str
    graph: str | None

    @property
    def uri(self) -> str:
        return self.url

    @property
    def is_local(self) -> bool:
        return False

    @property
    def access(self) -> str:
        return "served"

    @property
    def names_graph(self) -> bool:
        """Whether the URL that was given is that of a graph."""
        return re.search(r"/graphs/[^/]+$", self.url) is not None


@dataclass(frozen=True, slots=True)
class ClusterScope:
    root: str
    graph: str | None


Scope: TypeAlias = StoreScope | ServerScope | ClusterScope
Target: TypeAlias = StoreScope | ServerScope
"""Where one graph is."""


@dataclass(frozen=True, slots=True)
class Request:
    """What one command line says about its graph: the command, its flags, the URI it was given, and the name of a query
    that might have been meant as one."""

    label: str
    capability: Capability
    flags: GlobalFlags
    uri: str | None = None
    query_name: str | None = None


def resolve(request: Request, config: OperatorConfig) -> Scope:
    """The scope of a command line, checked against what the command can work on."""
    flags, uri = request.flags, request.uri
    addresses = {"the URI": uri, "--store": flags.store, "--server": flags.server, "--cluster": flags.cluster}
    given = [name for name, value in addresses.items() if value is not None]
    if len(given) > 1:
        raise BadRequestError(f"{' and '.join(given)} are mutually exclusive; address the graph one way")
    if flags.cluster is not None:
        return _bind_scope(
            request, ClusterScope(config.clusters.get(flags.cluster, flags.cluster), flags.graph), "--cluster"
        )
    if (direct := uri or flags.store) is not None:
        return _explicit_store(request, direct)
    if flags.server is not None:
        return _bind_scope(request, server_scope(flags.server, flags.graph, config), "--server")
    return _configured_scope(request, config)


def resolve_cluster(request: Request, config: OperatorConfig, *, or_server: bool) -> ClusterScope:
    """The cluster that a command line means, which a flag or a profile names. `or_server` says whether a server would
    have done as well."""
    flags = request.flags
    if flags.cluster is not None:
        return ClusterScope(config.clusters.get(flags.cluster, flags.cluster), flags.graph)
    profile_name = flags.profile or active_profile_name()
    if profile_name is not None:
        profile = config.profile(profile_name)
        if profile.flaw is not None:
            raise BadRequestError(profile.flaw)
        kind, target = profile.bindings[0]
        if kind == "cluster":
            return ClusterScope(config.clusters.get(target, target), flags.graph or profile.default_graph)
    needed, server = ("a cluster or a server", ", --server <name|url>") if or_server else ("a cluster", "")
    ways = f"--cluster <dir|uri>{server}, or a --profile that binds one"
    raise BadRequestError(f"`{request.label}` needs {needed}; give {ways}")


def resolve_server(request: Request, config: OperatorConfig) -> ServerScope | None:
    """The server that a flag or a profile names, for a command that also takes a cluster; None where none is named."""
    flags = request.flags
    if flags.server is not None:
        if flags.cluster is not None:
            raise BadRequestError("--server and --cluster are mutually exclusive; address the graph one way")
        return server_scope(flags.server, flags.graph, config)
    profile_name = flags.profile or active_profile_name()
    if profile_name is None or flags.cluster is not None:
        return None
    profile = config.profile(profile_name)
    if profile.flaw is not None:
        raise BadRequestError(profile.flaw)
    kind, target = profile.bindings[0]
    return server_scope(target, flags.graph or profile.default_graph, config) if kind == "server" else None


def storage_needed(what: str) -> BadRequestError:
    """The refusal of work that a server can't do."""
    return BadRequestError(f"{what} needs direct storage access; give the graph's storage with --store <uri>")


def storage_uri(uri: str, label: str) -> str:
    """The URI of a direct command, which can't be a server."""
    if uri.startswith(("http://", "https://")):
        raise BadRequestError(f"`{label}` needs direct storage access; '{uri}' is a server, not a storage URI")
    return uri


def _explicit_store(request: Request, uri: str) -> StoreScope:
    if request.capability is Capability.DIRECT:
        storage_uri(uri, request.label)
    if uri.startswith(("http://", "https://")):
        raise BadRequestError(f"'{uri}' is a server: it must be addressed with --server <url>")
    if request.flags.graph is not None:
        raise BadRequestError(f"'{uri}' is already a single graph; leave --graph out")
    return StoreScope(uri)


def _configured_scope(request: Request, config: OperatorConfig) -> Scope:
    graph = request.flags.graph
    profile_name = request.flags.profile or active_profile_name()
    if profile_name is not None:
        profile = config.profile(profile_name)
        if profile.flaw is not None:
            raise BadRequestError(profile.flaw)
        kind, target = profile.bindings[0]
        return _binding(request, kind, target, graph or profile.default_graph, config, f"profile '{profile_name}'")
    defaults = config.defaults
    if defaults.server is not None:
        chosen = graph or defaults.default_graph
        return _binding(request, "server", defaults.server, chosen, config, "defaults.server")
    if defaults.store is not None:
        return _binding(request, "store", defaults.store, graph, config, "defaults.store")
    raise BadRequestError(_nothing_addressed(request, config))


def _binding(request: Request, kind: str, target: str, graph: str | None, config: OperatorConfig, origin: str) -> Scope:
    if kind == "server":
        return _bind_scope(request, server_scope(target, graph, config), origin)
    if kind == "cluster":
        return _bind_scope(request, ClusterScope(config.clusters.get(target, target), graph), origin)
    if graph is not None:
        raise BadRequestError(f"--graph does not apply to a store scope: {origin} is one graph, '{target}'")
    return _bind_scope(request, StoreScope(target), origin)


def _bind_scope(request: Request, scope: Scope, origin: str) -> Scope:
    """A scope that the command's class can work on."""
    if request.capability is Capability.SERVED and not isinstance(scope, ServerScope):
        instead = "; `omnigraph cluster status` tells of a cluster" if isinstance(scope, ClusterScope) else ""
        raise BadRequestError(f"`{request.label}` requires a server, and {origin} binds none{instead}")
    if isinstance(scope, ServerScope) and request.capability is Capability.DIRECT:
        raise BadRequestError(
            f"`{request.label}` needs direct storage access, but {origin} resolves a server scope; "
            "give the graph's storage with --store <uri>"
        )
    if isinstance(scope, ClusterScope) and request.capability is Capability.ANY:
        raise BadRequestError(
            f"a cluster scope ({origin}) is not valid for graph data commands; "
            "give the graph's storage with --store <uri>, or its server with --server <name|url>"
        )
    return scope


def server_scope(given: str, graph: str | None, config: OperatorConfig) -> ServerScope:
    """A server by its name or URL, and a graph on it."""
    if "://" in given:
        base = given
    elif given in config.servers:
        base = config.servers[given]
    else:
        raise BadRequestError(f"unknown server '{given}'; defined servers: {list_names(config.servers)}")
    base = base.rstrip("/")
    if graph is None:
        return ServerScope(given, base, None)
    return ServerScope(given, f"{base}/graphs/{quote(graph, safe='')}", graph)


def _nothing_addressed(request: Request, config: OperatorConfig) -> str:
    if request.capability is Capability.SERVED:
        instead = f"--server <name|url>, --profile <name>, or defaults.server in {config.path}"
        return f"`{request.label}` needs a server scope; give one of: {instead}"
    ways = ["--store <uri> (a path, file:// or s3://)"]
    if request.capability is Capability.ANY:
        ways.append("--server <name|url> --graph <id>")
    ways += [
        "--profile <name>, or OMNIGRAPH_PROFILE",
        f"defaults.store in {config.path}",
    ]
    name = request.query_name
    meant = f"'{name}' was read as the name of a query; a graph of that name is --store {name}, or ./{name}"
    hint = "" if name is None else f" ({meant})"
    return f"no graph addressed{hint}; give one of:\n" + "\n".join(f"  - {way}" for way in ways)


def graph_of(scope: ClusterScope) -> StoreScope:
    """The storage of a cluster's graph: the named one, or the only one. Looks at the ledger and at nothing else."""
    from omnigraph.cluster.state_ledger import read_applied

    applied = read_applied(scope.root)
    return StoreScope(applied.graph_uri(applied.one_graph(scope.graph)))


def refuse_inside_cluster(uri: str) -> None:
    """Refuse a location of the shape `<root>/graphs/<id>.omni` when the root holds a cluster."""
    from omnigraph.cluster.storage_root import enclosing_cluster

    cluster = enclosing_cluster(uri)
    if cluster is not None:
        raise ConflictError(
            f"'{uri}' is inside cluster '{cluster}'; declare it there and run `omnigraph cluster apply`"
        )


@dataclass(frozen=True, slots=True)
class OpenPipeline:
    """An applied pipeline and its graph, open. `embedding` is what the cluster says for the texts of the graph."""

    model: Pipeline
    graph: Graph
    applied: RunnablePipeline
    embedding: EmbeddingConfig | None

    def governed(self, actor: str | None, branch: str | None) -> Graph:
        """The graph as a run of this actor may change it, under the rules that the cluster has bound to it."""
        from omnigraph.api.enums import PolicyAction
        from omnigraph.api.governance import AccessRequest
        from omnigraph.policy.gate import load_gate

        policy = self.applied.policy
        if policy is None:
            return self.graph
        gate = load_gate(policy.source, "graph", f"policy '{policy.name}'", self.applied.graph.graph_id)
        gate = gate.bind_schema(self.graph.snapshot("main").catalog)
        asked = AccessRequest(PolicyAction.CHANGE, (branch or self.model.branch).strip())
        return self.graph._with_gate(gate)._restricted_to(gate.visibility(actor, asked))


@contextmanager
def applied_pipeline(cluster: str, name: str) -> Iterator[OpenPipeline]:
    """A pipeline as it was applied, whatever its file says now. Its commits are made under its name in the cluster."""
    import omnigraph
    from omnigraph.cluster.serving import find_pipeline
    from omnigraph.pipeline import read_pipeline

    found = find_pipeline(cluster, name)
    text = found.pipeline.source
    model = replace(read_pipeline(text, path=f"{name}.yaml", directory=found.directory), name=name)
    profile = found.graph.embedding
    with omnigraph.open(found.graph.uri, external_blobs=found.graph.own_blobs()) as graph:
        properties = [prop for node in graph.catalog.nodes.values() for prop in node.property_list]
        embeds = bool(model.embed) or any(prop.is_embedded_on_write for prop in properties)
        embedding = profile.resolve(os.environ) if profile is not None and embeds else None
        yield OpenPipeline(model, graph, found, embedding)


_SECONDS: Final = 600.0
_PROBE_SECONDS: Final = 10.0


def open_served(scope: ServerScope, config: OperatorConfig, timeout: float = _SECONDS) -> RemoteGraph:
    """The graph at a URL. Nothing is sent yet."""
    import omnigraph

    return omnigraph.connect(scope.url, token=token_for(scope.url, config), timeout=timeout, retries=False)


def require_graph(scope: ServerScope, config: OperatorConfig) -> None:
    """Refuse a server on which a graph would have to be chosen. One that does not tell may be a graph's own URL."""
    if scope.graph is not None or scope.names_graph:
        return
    try:
        with open_served(scope, config, _PROBE_SECONDS) as server:
            ids = [graph.graph_id for graph in server.list_graphs()]
    except OmniGraphError:
        return
    if ids:
        found = f"has {len(ids)} graph(s): [{', '.join(ids)}]"
        raise BadRequestError(f"server scope '{scope.given}' {found}; pass --graph <id>")


@dataclass
class Invocation:
    """One running command: its flags, its configuration and the graph it addresses.

    The echo of a write and the consent to a destructive one live here, so that no command can forget a part of them.
    """

    command: Command
    flags: GlobalFlags = field(default_factory=GlobalFlags)
    query_name: str | None = None
    """An argument that was read as the name of a query, and not as a graph."""

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
        from omnigraph.language.source import LONE_SURROGATE

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
            raise storage_needed(f"this use of `{self.command.path}`")
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
        return storage_uri(place, self.command.label)

    def server(self) -> ServerScope:
        """The server that a served command addresses."""
        scope = resolve(self._request(None), self.config)
        assert isinstance(scope, ServerScope), "the resolution lets a served command have nothing else"
        return scope

    def cluster(self) -> ClusterScope:
        """The cluster this command line addresses, with the graph of it that was named."""
        return resolve_cluster(self._request(None), self.config, or_server="server" in self.command.flags)

    def server_of_queries(self) -> ServerScope | None:
        """The server whose stored queries are meant, with a graph on it; None where a cluster is."""
        scope = resolve_server(self._request(None), self.config)
        if scope is not None:
            require_graph(scope, self.config)
        return scope

    def open(self, uri: str | None = None) -> tuple[Target, GraphApi]:
        """The graph that is addressed, in storage or behind a server."""
        target = self.target(uri)
        return target, self.open_target(target)

    def open_target(self, target: Target) -> GraphApi:
        return open_graph(target) if isinstance(target, StoreScope) else open_served(target, self.config)

    def open_storage(self, uri: str | None = None) -> tuple[StoreScope, Graph]:
        target = self.storage(uri)
        return target, open_graph(target)

    def open_to_write(self, uri: str | None = None) -> tuple[Target, GraphApi]:
        """The graph that a write goes to, after saying so."""
        target = self.target(uri)
        self.echo(target)
        return target, self.open_target(target)

    def maintain_storage(self, uri: str | None = None) -> tuple[StoreScope, Graph]:
        """The same for work on storage itself."""
        target = self.storage(uri)
        self.echo(target)
        return target, open_graph(target)

    def _request(self, uri: str | None) -> Request:
        return Request(self.command.label, self.command.capability, self.flags, uri, self.query_name)

    def echo(self, target: Target) -> None:
        """Say where a write goes, before it goes there."""
        if not self.flags.quiet:
            print(f"omnigraph {self.command.path} → {target.uri} ({target.access})", file=sys.stderr)

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

    PROCESS.import_arrow()
    return omnigraph.open(target.uri)


pass_invocation = click.make_pass_decorator(Invocation)
"""Pass the invocation to a command as its first argument."""


def complete_names(_ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The names that the operator configuration has for servers, clusters or profiles, for the shell."""
    with suppress(OmniGraphError):
        config = load_config()
        names = {"server": config.servers, "cluster": config.clusters, "profile": config.profiles}[param.name]
        return sorted(name for name in names if name.startswith(incomplete))
    return []


def branch_names(ctx: click.Context) -> list[str]:
    """The branches of the graph that an unfinished command line addresses. It never fails: a shell shows no errors."""
    flags = {name: value for name, value in ctx.find_root().params.items() if name not in ("debug", "version")}
    path = ctx.command_path.partition(" ")[2]
    uri = ctx.params.get("uri") or ctx.params.get("uri_option")
    with suppress(Exception), Invocation(COMMANDS[path], GlobalFlags(**flags)).open(uri)[1] as graph:
        return list(graph.list_branches())
    return []
