"""`omnigraph serve`: an HTTP server over the graphs of a cluster, or over one graph. `omnigraph-server` is the same."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from omnigraph.cli.limit_flags import KEY, limits_of
from omnigraph.cli.params import Uri, UsageError, at_most_one
from omnigraph.cli.target import Invocation
from omnigraph.errors import BadRequestError
from omnigraph.mcp.graph import DEFAULT_MAX_TOKENS, LEAST_MAX_TOKENS

DEFAULT_BIND = "127.0.0.1:8080"
_NEEDED = {"uvicorn", "h11", "starlette", "prometheus_client"}


def serve(
    ctx: typer.Context,
    uri: Uri = None,
    bind: Annotated[
        str, typer.Option("--bind", help="Where to listen; port 0 takes a free one.", metavar="ADDR:PORT")
    ] = DEFAULT_BIND,
    unauthenticated: Annotated[
        bool,
        typer.Option("--unauthenticated", help="Let everybody do everything; else OMNIGRAPH_UNAUTHENTICATED."),
    ] = False,
    insecure_public: Annotated[
        bool,
        typer.Option(
            "--insecure-public",
            help="Listen at a public address without tokens; else OMNIGRAPH_INSECURE_PUBLIC.",
        ),
    ] = False,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allowed-host",
            help="A further name by which a server without tokens may be called; may be repeated.",
            metavar="NAME",
        ),
    ] = None,
    require_all_graphs: Annotated[
        bool,
        typer.Option(
            "--require-all-graphs", help="Do not start without every graph; else OMNIGRAPH_REQUIRE_ALL_GRAPHS."
        ),
    ] = False,
    workers: Annotated[int, typer.Option("--workers", help="Processes that serve.", metavar="N", min=1, max=1024)] = 1,
    maintain: Annotated[
        bool, typer.Option("--maintain", help="Compact and clean up in the background, in one of the workers.")
    ] = False,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Serve what is applied to the cluster later, too; else OMNIGRAPH_WATCH."),
    ] = False,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option("--allow-origin", help="Let pages of this origin call; may be repeated.", metavar="ORIGIN"),
    ] = None,
    mcp_read_only: Annotated[bool, typer.Option("--mcp-read-only", help="Offer agents no tool that writes.")] = False,
    mcp_allow_main: Annotated[
        bool, typer.Option("--mcp-allow-main", help="Let agents' mutations go to main, where the rules do.")
    ] = False,
    mcp_max_tokens: Annotated[
        int,
        typer.Option(
            "--mcp-max-tokens",
            help="The size of an answer to agents, at 4 bytes a token.",
            metavar="N",
            min=LEAST_MAX_TOKENS,
        ),
    ] = DEFAULT_MAX_TOKENS,
) -> None:
    """Serve the graphs of a cluster (--cluster), or one graph (--store), over HTTP."""
    invocation = Invocation.of(ctx)
    flags = invocation.flags
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
    limits = limits_of(ctx.meta.get(KEY, {}), os.environ)
    from omnigraph.server.settings import (
        INSECURE_PUBLIC,
        REQUIRE_ALL_GRAPHS,
        UNAUTHENTICATED,
        WATCH,
        AgentSettings,
        Settings,
        is_set,
        refusal_of_public,
    )

    settings = Settings(
        cluster=None if flags.cluster is None else invocation.cluster().root,
        store=store,
        host=host,
        port=port,
        unauthenticated=unauthenticated or is_set(UNAUTHENTICATED),
        insecure_public=insecure_public or is_set(INSECURE_PUBLIC),
        allowed_hosts=tuple(host_flag(name) for name in allowed_host or ()),
        require_all_graphs=require_all_graphs or is_set(REQUIRE_ALL_GRAPHS),
        workers=workers,
        maintain=maintain,
        watch=watch or is_set(WATCH),
        allow_origins=tuple(allow_origin or ()),
        agents=AgentSettings(read_only=mcp_read_only, allow_main=mcp_allow_main, max_tokens=mcp_max_tokens),
        limits=limits,
    )
    if settings.unauthenticated and not _names_tokens() and (refusal := refusal_of_public(settings)) is not None:
        raise UsageError(refusal)
    raise typer.Exit(_run(settings))


def host_flag(name: str) -> str:
    """A value of --allowed-host."""
    if not name or any(character in name for character in "/*@ ,"):
        raise UsageError(f"--allowed-host takes a name or an address, such as graphs.example.org (got '{name}')")
    return name


def _names_tokens() -> bool:
    """Whether the environment says where tokens are. If there are none, the server still does not start."""
    from omnigraph.server.tokens import SOURCES

    return any(os.environ.get(name, "").strip() for name in SOURCES)


def _run(settings: Any) -> int:
    try:
        from omnigraph.server.runtime.supervisor import serve as run
        from omnigraph.server.runtime.worker import Program
    except ModuleNotFoundError as error:
        if error.name in _NEEDED:
            raise BadRequestError(f"serving needs {error.name}; pip install 'omnigraph[server]'") from None
        raise
    from omnigraph.cli.server import open_graph

    return run(settings, Program(open_graph))


def address(bind: str, flag: str = "--bind") -> tuple[str, int]:
    """The two parts of ADDR:PORT; an IPv6 address stands in brackets."""
    host, colon, port = bind.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    if not (colon and host and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise UsageError(f"{flag} takes ADDR:PORT, such as {DEFAULT_BIND} or [::1]:8080; '{bind}' is something else")
    return host, int(port)
