"""Which graph a command line means, and the running command that opens it.

Resolution is pure: an explicit address, then a profile, then the operator's default; it never looks at a store or a
server. `Invocation` turns the result into a graph, echoes where a write goes, asks for consent and prints the report.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeAlias, TypeVar
from urllib.parse import quote

import click

from omnigraph.cli.config import OperatorConfig, active_profile_name, list_names, load_config, token_for
from omnigraph.cli.params import GlobalFlags, UsageError, at_most_one
from omnigraph.cli.printing.output import Style, print_json, print_lines, report_style
from omnigraph.cli.registry import COMMANDS, Capability, Command
from omnigraph.errors import BadRequestError, ConflictError, OmniGraphError

if TYPE_CHECKING:
    from msgspec import Struct

    from omnigraph.api.graph import GraphApi
    from omnigraph.client import RemoteGraph
    from omnigraph.graph import Graph

Report = TypeVar("Report", bound="Struct")
_SECONDS: Final = 600.0
_PROBE_SECONDS: Final = 10.0


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

    server: str
    uri: str
    graph: str | None
    is_local: ClassVar[bool] = False
    access: ClassVar[str] = "served"

    @property
    def names_graph(self) -> bool:
        """Whether a graph was chosen, or the URL that was given is that of a graph."""
        return self.graph is not None or re.search(r"/graphs/[^/]+$", self.uri) is not None


@dataclass(frozen=True, slots=True)
class ClusterScope:
    root: str
    graph: str | None


Scope: TypeAlias = StoreScope | ServerScope | ClusterScope
Target: TypeAlias = StoreScope | ServerScope
"""Where one graph is."""


class _Binding(NamedTuple):
    """A scope as a flag, a profile or a default names it. `kind` is server, cluster or store."""

    kind: str
    target: str
    graph: str | None
    origin: str


def _find_binding(flags: GlobalFlags, config: OperatorConfig) -> _Binding | None:
    """The scope that a flag or a profile names."""
    if flags.cluster is not None:
        return _Binding("cluster", flags.cluster, flags.graph, "--cluster")
    if flags.server is not None:
        return _Binding("server", flags.server, flags.graph, "--server")
    if (name := flags.profile or active_profile_name()) is None:
        return None
    profile = config.profile(name)
    return _Binding(*profile.binding, flags.graph or profile.default_graph, f"profile '{name}'")


def _scope(binding: _Binding, config: OperatorConfig) -> Scope:
    kind, target, graph, origin = binding
    if kind == "server":
        return server_scope(target, graph, config)
    if kind == "cluster":
        return ClusterScope(config.clusters.get(target, target), graph)
    if graph is not None:
        raise BadRequestError(f"--graph does not apply to a store scope: {origin} is one graph, '{target}'")
    return StoreScope(target)


def server_scope(server: str, graph: str | None, config: OperatorConfig) -> ServerScope:
    base = server if "://" in server else config.servers.get(server)
    if base is None:
        raise BadRequestError(f"unknown server '{server}'; defined servers: {list_names(config.servers)}")
    base = base.rstrip("/")
    return ServerScope(server, base if graph is None else f"{base}/graphs/{quote(graph, safe='')}", graph)


def _refuse_server_uri(uri: str, command: Command) -> None:
    if uri.startswith(("http://", "https://")):
        raise BadRequestError(f"`{command.label}` needs direct storage access; '{uri}' is a server, not a storage URI")


def _check_scope(scope: Scope, origin: str, command: Command) -> None:
    """Refuse a scope that the command's class can't work on."""
    label, capability = command.label, command.capability
    if capability is Capability.SERVED and not isinstance(scope, ServerScope):
        instead = "; `omnigraph cluster status` tells of a cluster" if isinstance(scope, ClusterScope) else ""
        raise BadRequestError(f"`{label}` requires a server, and {origin} binds none{instead}")
    if isinstance(scope, ServerScope) and capability is Capability.DIRECT:
        raise BadRequestError(
            f"`{label}` needs direct storage access, but {origin} resolves a server scope; "
            "give the graph's storage with --store <uri>"
        )
    if isinstance(scope, ClusterScope) and capability is Capability.ANY:
        raise BadRequestError(
            f"a cluster scope ({origin}) is not valid for graph data commands; "
            "give the graph's storage with --store <uri>, or its server with --server <name|url>"
        )


def storage_needed(what: str) -> BadRequestError:
    """The refusal of work that a server can't do."""
    return BadRequestError(f"{what} needs direct storage access; give the graph's storage with --store <uri>")


def refuse_inside_cluster(uri: str) -> None:
    """Refuse a location of the shape `<root>/graphs/<id>.omni` when the root holds a cluster."""
    from omnigraph.cluster.storage_root import enclosing_cluster

    if (cluster := enclosing_cluster(uri)) is not None:
        advice = "declare it there and run `omnigraph cluster apply`"
        raise ConflictError(f"'{uri}' is inside cluster '{cluster}'; {advice}")


def open_graph(target: StoreScope) -> Graph:
    """As Python programs do: the same settings, the same embedding provider."""
    import omnigraph

    return omnigraph.open(target.uri)


def open_served(scope: ServerScope, config: OperatorConfig, timeout: float = _SECONDS) -> RemoteGraph:
    """The graph at a URL. Nothing is sent yet."""
    import omnigraph

    return omnigraph.connect(scope.uri, token=token_for(scope.uri, config), timeout=timeout, retries=False)


def _require_graph(scope: ServerScope, config: OperatorConfig) -> None:
    """Refuse a server on which a graph would have to be chosen. A server that lists none may be a graph's own URL."""
    if scope.names_graph:
        return
    try:
        with open_served(scope, config, _PROBE_SECONDS) as server:
            ids = [graph.graph_id for graph in server.list_graphs()]
    except OmniGraphError:
        return
    if ids:
        graphs = f"has {len(ids)} graph(s): [{', '.join(ids)}]"
        raise BadRequestError(f"server scope '{scope.server}' {graphs}; pass --graph <id>")


@dataclass
class Invocation:
    """One running command: its flags, its configuration, the graph it addresses and the form of its output.

    The echo of a write and the consent to a destructive one live here, so that no command can forget a part of them.
    """

    command: Command
    flags: GlobalFlags
    uri: str | None = None
    """The graph, as an argument or with --uri."""
    json: bool = False
    query_name: str | None = None
    """An argument that was read as the name of a query, and not as a graph."""

    @cached_property
    def config(self) -> OperatorConfig:
        return load_config()

    @property
    def actor(self) -> str | None:
        """The actor of a direct write."""
        from omnigraph.language.source import LONE_SURROGATE

        actor = self.flags.actor or self.config.actor
        if actor is not None and LONE_SURROGATE.search(actor):
            raise UsageError("--as is not UTF-8 text")
        return actor

    def write_actor(self) -> str | None:
        """The actor of a write to the target; a server knows it by the token."""
        if isinstance(self.target, StoreScope):
            return self.actor
        if self.flags.actor is not None:
            uri = self.target.uri
            raise BadRequestError(f"--as is not allowed on a served write: {uri} knows who writes by the token")
        return None

    def scope(self, *, of_any_kind: bool = False) -> Scope:
        """The scope of the command line, checked against what the command can work on, unless it takes any kind."""
        flags, config = self.flags, self.config
        addresses = {"the URI": self.uri, "--store": flags.store, "--server": flags.server, "--cluster": flags.cluster}
        names = [name for name, value in addresses.items() if value is not None]
        if len(names) > 1:
            raise BadRequestError(f"{' and '.join(names)} are mutually exclusive; address the graph one way")
        if (uri := self.uri or flags.store) is not None:
            if self.command.capability is Capability.DIRECT:
                _refuse_server_uri(uri, self.command)
            if uri.startswith(("http://", "https://")):
                raise BadRequestError(f"'{uri}' is a server: it must be addressed with --server <url>")
            if flags.graph is not None:
                raise BadRequestError(f"'{uri}' is already a single graph; leave --graph out")
            return StoreScope(uri)
        defaults, binding = config.defaults, _find_binding(flags, config)
        if binding is None and defaults.server is not None:
            graph = flags.graph or defaults.default_graph
            binding = _Binding("server", defaults.server, graph, "defaults.server")
        elif binding is None and defaults.store is not None:
            binding = _Binding("store", defaults.store, flags.graph, "defaults.store")
        elif binding is None:
            raise BadRequestError(self._nothing_addressed())
        scope = _scope(binding, config)
        if not of_any_kind:
            _check_scope(scope, binding.origin, self.command)
        return scope

    def _nothing_addressed(self) -> str:
        label, capability, config = self.command.label, self.command.capability, self.config.path
        if capability is Capability.SERVED:
            instead = f"--server <name|url>, --profile <name>, or defaults.server in {config}"
            return f"`{label}` needs a server scope; give one of: {instead}"
        ways = ["--store <uri> (a path, file:// or s3://)"]
        if capability is Capability.ANY:
            ways.append("--server <name|url> --graph <id>")
        ways += ["--profile <name>, or OMNIGRAPH_PROFILE", f"defaults.store in {config}"]
        name = self.query_name
        meant = f"'{name}' was read as the name of a query; a graph of that name is --store {name}, or ./{name}"
        hint = "" if name is None else f" ({meant})"
        return f"no graph addressed{hint}; give one of:\n" + "\n".join(f"  - {way}" for way in ways)

    @cached_property
    def target(self) -> Target:
        """Where the graph is that the command line addresses. Of a cluster's graph, only the ledger is read."""
        scope = self.scope()
        if isinstance(scope, ServerScope):
            _require_graph(scope, self.config)
        if not isinstance(scope, ClusterScope):
            return scope
        from omnigraph.cluster.state_ledger import read_applied

        applied = read_applied(scope.root)
        return StoreScope(applied.graph_uri(applied.one_graph(scope.graph)))

    @property
    def storage(self) -> StoreScope:
        """The storage that a direct command addresses; the resolution lets it have no server."""
        if not isinstance(self.target, StoreScope):
            raise storage_needed(f"this use of `{self.command.path}`")
        return self.target

    def instead_of_graph(self, flag: str, file: object) -> None:
        """Refuse the address of a graph beside a file that takes its place. A profile of the environment is ignored."""
        addressed = [("URI", self.uri), *((f"--{name}", value) for name, value in self.flags.addresses())]
        for address in addressed:
            at_most_one(address, (flag, file))

    def new_storage(self) -> str:
        """Where to create a graph. No profile says that: it would name a graph that exists already."""
        if self.uri is not None and self.flags.store is not None:
            raise BadRequestError("the URI and --store are mutually exclusive; address the graph one way")
        if (uri := self.uri or self.flags.store) is None:
            raise UsageError("say where the graph goes: --store <uri> (a path, file:// or s3://)")
        _refuse_server_uri(uri, self.command)
        return uri

    def cluster(self) -> ClusterScope:
        """The cluster that a flag or a profile names, with the graph of it that was named."""
        binding = _find_binding(self.flags, self.config)
        if binding is not None and binding.kind == "cluster":
            return ClusterScope(self.config.clusters.get(binding.target, binding.target), binding.graph)
        or_server = "server" in self.command.flags
        needed, server = ("a cluster or a server", ", --server <name|url>") if or_server else ("a cluster", "")
        ways = f"--cluster <dir|uri>{server}, or a --profile that binds one"
        raise BadRequestError(f"`{self.command.label}` needs {needed}; give {ways}")

    def server_of_queries(self) -> ServerScope | None:
        """The server whose stored queries are meant, with a graph on it; None where a cluster is."""
        if self.flags.server is not None and self.flags.cluster is not None:
            raise BadRequestError("--server and --cluster are mutually exclusive; address the graph one way")
        binding = _find_binding(self.flags, self.config)
        if binding is None or binding.kind != "server":
            return None
        scope = server_scope(binding.target, binding.graph, self.config)
        _require_graph(scope, self.config)
        return scope

    def open(self) -> GraphApi:
        """The graph that is addressed, in storage or behind a server."""
        target = self.target
        return open_graph(target) if isinstance(target, StoreScope) else open_served(target, self.config)

    def open_to_write(self) -> GraphApi:
        """The graph that a write goes to, after saying so."""
        self.echo()
        return self.open()

    def open_storage(self) -> Graph:
        return open_graph(self.storage)

    def maintain_storage(self) -> Graph:
        """The storage that maintenance changes, after saying so."""
        storage = self.storage
        self.echo()
        return open_graph(storage)

    def echo(self) -> None:
        """Say where a write goes, before it goes there."""
        target = self.target
        if not self.flags.quiet:
            print(f"omnigraph {self.command.path} → {target.uri} ({target.access})", file=sys.stderr)

    def require_consent(self, what: str) -> None:
        """A destructive write to storage that others may share needs a yes."""
        target = self.target
        if target.is_local or self.flags.yes:
            return
        if self.json or not sys.stdin.isatty():
            raise ConflictError(f"refusing destructive `{what}` on {target.uri} without consent; pass --yes")
        print(f"`{what}` on {target.uri} can't be undone. Continue? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise ConflictError(f"aborted: destructive `{what}` on {target.uri}")

    def name_graph(self, report: Report) -> Report:
        """The report with the graph as it was addressed."""
        from msgspec.structs import replace

        return replace(report, uri=self.target.uri)

    def print(self, report: Any, lines: Iterable[str], style: Style = report_style) -> None:
        """The report of the command as JSON if that was asked for, else as lines for a person."""
        if self.json:
            print_json(report)
        else:
            print_lines(lines, style)


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
    with suppress(Exception), Invocation(COMMANDS[path], GlobalFlags(**flags), uri).open() as graph:
        return list(graph.list_branches())
    return []
