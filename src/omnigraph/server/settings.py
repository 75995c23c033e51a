"""The settings of a server, once flags and environment variables are read.

`omnigraph serve` makes them; the supervisor, the loader and the request handlers read them. The help texts of the
limits are here, because each limit is a flag.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from omnigraph.api.governance import (
    DEFAULT_BYTES,
    DEFAULT_QUERY_MEMORY_BYTES,
    DEFAULT_ROWS,
    DEFAULT_TRAVERSAL_WORK,
    MOST_QUERY_DEPTH,
    QueryLimits,
)

UNAUTHENTICATED: Final = "OMNIGRAPH_UNAUTHENTICATED"
INSECURE_PUBLIC: Final = "OMNIGRAPH_INSECURE_PUBLIC"
REQUIRE_ALL_GRAPHS: Final = "OMNIGRAPH_REQUIRE_ALL_GRAPHS"
WATCH: Final = "OMNIGRAPH_WATCH"
_QUERY: Final = QueryLimits()
_UNSET: Final = ("", "0", "false")


def _limit(
    heading: str, default: float, meaning: str, *, least: float = 1, most: float | None = None, environment: str = ""
) -> Any:
    """A limit with its default, the heading and the help of its flag, and the variable that is read if the flag is not
    given."""
    metadata = {"group": heading, "meaning": meaning, "least": least, "most": most, "environment": environment}
    return field(default=default, metadata=metadata)


_of_request: Final = partial(_limit, "Limits of a request")
_of_actor: Final = partial(_limit, "Limits of an actor, in each worker")
_of_connection: Final = partial(_limit, "Connections, of each worker")
_of_work: Final = partial(_limit, "Work, of each worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """How much one request, one actor and one worker may use. Each field is a flag of `omnigraph serve`."""

    body_bytes: int = _of_request(1 << 20, "Refuse request bodies over N bytes.")
    load_body_bytes: int = _of_request(32 << 20, "Refuse JSON bodies of a load over N bytes.")
    load_bytes: int = _of_request(DEFAULT_BYTES, "Refuse streamed loads over N bytes.")
    load_rows: int = _of_request(DEFAULT_ROWS, "Refuse loads of more than N rows.")
    query_seconds: float = _of_request(60.0, "Cancel a read after N seconds.", least=0.001)
    query_memory_bytes: int = _of_request(
        DEFAULT_QUERY_MEMORY_BYTES, "Cancel a read that needs more than N bytes of memory."
    )
    traversal_work: int = _of_request(
        DEFAULT_TRAVERSAL_WORK, "Cancel a read whose traversals look at more than N edges and steps of paths."
    )
    query_bytes: int = _of_request(_QUERY.bytes, "Refuse query texts over N bytes.")
    query_clauses: int = _of_request(
        _QUERY.clauses, "Refuse queries with more than N clauses, projections, sort keys and statements."
    )
    query_literals: int = _of_request(_QUERY.literals, "Refuse queries with more than N literals.")
    query_depth: int = _of_request(
        _QUERY.depth, "Refuse queries with more than N bindings, traversals and negations.", most=MOST_QUERY_DEPTH
    )
    result_rows: int = _of_request(1_000_000, "Refuse results of more than N rows that are not streamed.")
    wait_ms: int = _of_request(60_000, "Let a poll for changes wait at most N milliseconds.", least=0)
    header_bytes: int = _of_connection(64 << 10, "Refuse request headers over about N bytes.")
    header_seconds: float = _of_connection(0.0, "Deprecated, without effect: a proxy limits slow headers.", least=0)
    body_seconds: float = _of_connection(
        60.0, "Refuse the request if the client sends nothing of its body for N seconds.", least=0.001
    )
    send_seconds: float = _of_connection(
        60.0, "Close the connection if the client reads nothing for N seconds.", least=0.001
    )
    keep_alive_seconds: float = _of_connection(
        75.0, "Close a connection without requests after N seconds.", least=0.001
    )
    connections: int = _of_connection(16_384, "Answer 503 while N connections are open.")
    actor_requests: int = _of_actor(
        16,
        "Allow an actor N writes at a time; 0 refuses every write.",
        least=0,
        environment="OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX",
    )
    actor_bytes: int = _of_actor(
        4 << 30, "Allow an actor N bytes of writes at a time.", least=0, environment="OMNIGRAPH_PER_ACTOR_BYTES_MAX"
    )
    actor_reads: int = _of_actor(64, "Allow an actor N reads at a time, waiting ones included.")
    actor_read_threads: int = _of_actor(
        6, "Run N reads of an actor at a time, at most three quarters of --read-threads."
    )
    actor_streams: int = _of_actor(32, "Allow an actor N streams at a time.")
    actor_feeds: int = _of_actor(32, "Allow an actor N waiting polls and event streams at a time.")
    streams_per_graph: int = _of_work(8, "Allow N streams of a graph at a time.")
    streams: int = _of_work(64, "Allow N streams at a time, those of blobs included.")
    feeds: int = _of_work(1024, "Allow N waiting polls and event streams at a time.")
    read_threads: int = _of_work(8, "Run N reads at a time.")
    read_wait_seconds: float = _of_work(30.0, "Refuse a read that has waited N seconds for a thread.", least=0.001)
    write_threads: int = _of_work(16, "Run N writes at a time.")
    drain_seconds: float = _of_work(30.0, "Finish requests within N seconds after SIGTERM or SIGINT.", least=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """The terms on which agents use the graphs, within the rules for their actors. The MCP endpoint has its own default
    for the size of a response."""

    read_only: bool = False
    allow_main: bool = False
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One server. Either `cluster` or `store` says where its graphs are; the other is None."""

    cluster: str | None = None
    store: str | None = None
    host: str = "127.0.0.1"
    port: int = 8080
    unauthenticated: bool = False
    insecure_public: bool = False
    allowed_hosts: tuple[str, ...] = ()
    require_all_graphs: bool = False
    workers: int = 1
    maintain: bool = False
    watch: bool = False
    allow_origins: tuple[str, ...] = ()
    agents: AgentSettings = AgentSettings()
    limits: ServerLimits = field(default_factory=ServerLimits)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address or a name."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.lower().rstrip(".") == "localhost"
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def refusal_of_public(settings: Settings) -> str | None:
    """The reason why a server without tokens must not listen at its address; None if it may."""
    if is_loopback(settings.host) or settings.insecure_public:
        return None
    return (
        f"without tokens, every caller who reaches {settings.host} could read and change everything: set tokens, "
        "listen at 127.0.0.1, or add --insecure-public (OMNIGRAPH_INSECURE_PUBLIC=1) if something else keeps strangers "
        "out"
    )


def is_set(name: str, environment: Mapping[str, str] = os.environ) -> bool:
    """A boolean variable: on unless it is missing, empty, `0` or `false`."""
    return environment.get(name, "").lower() not in _UNSET
