"""`omnigraph serve`: an HTTP server for the graphs of a cluster, or for one graph. `omnigraph-server` is the same."""

from __future__ import annotations

import dataclasses
import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click
from click.exceptions import Exit

from omnigraph.cli.params import Decorator, GroupedOption, UsageError, at_most_one, combine, repeatable_option
from omnigraph.cli.target import Invocation
from omnigraph.errors import BadRequestError
from omnigraph.mcp.graph import DEFAULT_MAX_TOKENS, LEAST_MAX_TOKENS
from omnigraph.server.settings import (
    INSECURE_PUBLIC,
    REQUIRE_ALL_GRAPHS,
    UNAUTHENTICATED,
    WATCH,
    AgentSettings,
    ServerLimits,
    Settings,
    is_set,
    refusal_of_public,
)

if TYPE_CHECKING:
    from omnigraph.api.governance import Limits
    from omnigraph.engine.query.search.embedder import Embedder
    from omnigraph.engine.write.external_blobs import ExternalBlobPolicy
    from omnigraph.graph import Graph

DEFAULT_BIND = "127.0.0.1:8080"
_EXTRAS: Final = {
    **dict.fromkeys(("mcp", "mcp_types", "anyio", "pydantic"), "mcp"),
    **dict.fromkeys(("pygls", "lsprotocol", "cattrs"), "editor"),
    **dict.fromkeys(("starlette", "uvicorn", "h11", "prometheus_client", "cedarpy"), "server"),
}


def _limit_option(field: dataclasses.Field[Any]) -> Decorator:
    is_whole = field.type == "int"
    environment = f"; else {field.metadata['environment']}" if field.metadata["environment"] else ""
    default = field.default if is_whole else f"{field.default:g}"
    return click.option(
        f"--{field.name.replace('_', '-')}",
        cls=GroupedOption,
        heading=field.metadata["group"],
        type=(click.IntRange if is_whole else click.FloatRange)(field.metadata["least"], field.metadata["most"]),
        help=f"{field.metadata['meaning']}  [default: {default}{environment}]",
        metavar="N",
    )


def limits_of(flags: Mapping[str, Any], environment: Mapping[str, str]) -> ServerLimits:
    """The limits of the flags, else of the environment, else the defaults.

    A variable that is not a number is reported, and the default is used.
    """
    chosen = {name: value for name, value in flags.items() if value is not None}
    for name, value in chosen.items():
        if not math.isfinite(value):
            raise UsageError(f"--{name.replace('_', '-')} takes a finite number")
    for field in dataclasses.fields(ServerLimits):
        variable = field.metadata["environment"]
        if field.name in chosen or not variable or not (text := environment.get(variable, "").strip()):
            continue
        if text.isascii() and text.isdigit():
            chosen[field.name] = int(text)
        else:
            print(f"warning: {variable} is not a number; {field.default} is used", file=sys.stderr)
    return ServerLimits(**chosen)


limit_options = combine(
    "limits",
    lambda **flags: limits_of(flags, os.environ),
    **{field.name: _limit_option(field) for field in dataclasses.fields(ServerLimits)},
)
"""A flag per field of `ServerLimits`."""


@click.option("--bind", default=DEFAULT_BIND, help="Where to listen; port 0 takes a free one.", metavar="ADDR:PORT")
@click.option("--unauthenticated", is_flag=True, help="Let everybody do everything; else OMNIGRAPH_UNAUTHENTICATED.")
@click.option(
    "--insecure-public", is_flag=True, help="Listen at a public address without tokens; else OMNIGRAPH_INSECURE_PUBLIC."
)
@repeatable_option(
    "--allowed-host", help="A further name by which a server without tokens may be called", metavar="NAME"
)
@click.option(
    "--require-all-graphs", is_flag=True, help="Do not start without every graph; else OMNIGRAPH_REQUIRE_ALL_GRAPHS."
)
@click.option("--workers", type=click.IntRange(min=1, max=1024), default=1, help="Processes that serve.", metavar="N")
@click.option("--maintain", is_flag=True, help="Compact and clean up in the background, in one of the workers.")
@click.option("--watch", is_flag=True, help="Serve what is applied to the cluster later, too; else OMNIGRAPH_WATCH.")
@repeatable_option("--allow-origin", help="Let pages of this origin call", metavar="ORIGIN")
@click.option("--mcp-read-only", is_flag=True, help="Offer agents no tool that writes.")
@click.option("--mcp-allow-main", is_flag=True, help="Let agents' mutations go to main, where the rules do.")
@click.option(
    "--mcp-max-tokens",
    type=click.IntRange(min=LEAST_MAX_TOKENS),
    default=DEFAULT_MAX_TOKENS,
    help="The size of an answer to agents, at 4 bytes a token.",
    metavar="N",
)
@limit_options
def serve(
    invocation: Invocation,
    bind: str,
    unauthenticated: bool,
    insecure_public: bool,
    allowed_host: tuple[str, ...],
    require_all_graphs: bool,
    workers: int,
    maintain: bool,
    watch: bool,
    allow_origin: tuple[str, ...],
    mcp_read_only: bool,
    mcp_allow_main: bool,
    mcp_max_tokens: int,
    limits: ServerLimits,
) -> None:
    flags, uri = invocation.flags, invocation.uri
    host, port = address(bind)
    at_most_one(("--cluster", flags.cluster), ("--store", flags.store), ("a URI", uri))
    store = flags.store or uri
    if flags.cluster is None and store is None:
        raise BadRequestError(
            "a server boots from a cluster: give --cluster <directory or URI>, or --store <graph> to serve a single one"
        )
    if watch and flags.cluster is None:
        raise UsageError("--watch follows a cluster; --store serves one graph, whose commits are seen anyway")
    if mcp_read_only and mcp_allow_main:
        raise UsageError("--mcp-read-only and --mcp-allow-main contradict each other")
    settings = Settings(
        cluster=None if flags.cluster is None else invocation.cluster().root,
        store=store,
        host=host,
        port=port,
        unauthenticated=unauthenticated or is_set(UNAUTHENTICATED),
        insecure_public=insecure_public or is_set(INSECURE_PUBLIC),
        allowed_hosts=tuple(host_flag(name) for name in allowed_host),
        require_all_graphs=require_all_graphs or is_set(REQUIRE_ALL_GRAPHS),
        workers=workers,
        maintain=maintain,
        watch=watch or is_set(WATCH),
        allow_origins=allow_origin,
        agents=AgentSettings(read_only=mcp_read_only, allow_main=mcp_allow_main, max_tokens=mcp_max_tokens),
        limits=limits,
    )
    if settings.unauthenticated and not _names_tokens() and (refusal := refusal_of_public(settings)) is not None:
        raise UsageError(refusal)
    with name_missing_extra("serving"):
        from omnigraph.server.runtime.supervisor import serve as run
        from omnigraph.server.runtime.worker import Program
    raise Exit(run(settings, Program(open_graph)))


def _names_tokens() -> bool:
    """Whether the environment says where tokens are. If there are none, the server still does not start."""
    from omnigraph.server.tokens import SOURCES

    return any(os.environ.get(name, "").strip() for name in SOURCES)


@contextmanager
def name_missing_extra(what: str) -> Iterator[None]:
    """Say which extra has the package that is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in _EXTRAS:
            raise
        raise BadRequestError(f"{what} needs {error.name}; pip install 'omnigraph[{_EXTRAS[error.name]}]'") from None


def host_flag(name: str) -> str:
    if not name or any(character in name for character in "/*@ ,"):
        raise UsageError(f"--allowed-host takes a name or an address, such as graphs.example.org (got '{name}')")
    return name


def open_graph(uri: str, embedder: Embedder | None, external_blobs: ExternalBlobPolicy | None, limits: Limits) -> Graph:
    """Open a graph as Python programs do, with the settings that a cluster has for it."""
    import omnigraph

    return omnigraph.open(uri, embedder=embedder, external_blobs=external_blobs, limits=limits)


def address(bind: str, flag: str = "--bind") -> tuple[str, int]:
    """The two parts of ADDR:PORT; an IPv6 address is in brackets."""
    host, colon, port = bind.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    if not (colon and host and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise UsageError(f"{flag} must be ADDR:PORT, such as {DEFAULT_BIND} or [::1]:8080; got '{bind}'")
    return host, int(port)
