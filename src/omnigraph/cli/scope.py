"""Which graph a command line means: explicit address, profile, or the operator's default, in this order.

Resolution is pure: it looks at flags and configuration, never at a store or a server. `Invocation.open` turns the
result into a graph.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import quote

from omnigraph.cli.capabilities import Capability
from omnigraph.cli.flags import GlobalFlags
from omnigraph.cli.operator_config import OperatorConfig, active_profile_name, listed
from omnigraph.errors import BadRequestError


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
        return _bound(
            request, ClusterScope(config.clusters.get(flags.cluster, flags.cluster), flags.graph), "--cluster"
        )
    if (direct := uri or flags.store) is not None:
        return _explicit_store(request, direct)
    if flags.server is not None:
        return _bound(request, server_scope(flags.server, flags.graph, config), "--server")
    return _configured(request, config)


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


def _configured(request: Request, config: OperatorConfig) -> Scope:
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
        return _bound(request, server_scope(target, graph, config), origin)
    if kind == "cluster":
        return _bound(request, ClusterScope(config.clusters.get(target, target), graph), origin)
    if graph is not None:
        raise BadRequestError(f"--graph does not apply to a store scope: {origin} is one graph, '{target}'")
    return _bound(request, StoreScope(target), origin)


def _bound(request: Request, scope: Scope, origin: str) -> Scope:
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
        raise BadRequestError(f"unknown server '{given}'; defined servers: {listed(config.servers)}")
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
