"""How a server is run: what flags and environment variables say, once they are read."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from omnigraph.api.governance import (
    DEFAULT_BYTES,
    DEFAULT_QUERY_MEMORY_BYTES,
    DEFAULT_ROWS,
    MOST_QUERY_DEPTH,
    QueryLimits,
)

UNAUTHENTICATED: Final = "OMNIGRAPH_UNAUTHENTICATED"
INSECURE_PUBLIC: Final = "OMNIGRAPH_INSECURE_PUBLIC"
REQUIRE_ALL_GRAPHS: Final = "OMNIGRAPH_REQUIRE_ALL_GRAPHS"
WATCH: Final = "OMNIGRAPH_WATCH"
_QUERY: Final = QueryLimits()
_UNSET: Final = ("", "0", "false")


class LimitGroup(StrEnum):
    """What a limit is about, as the help of `omnigraph serve` groups them."""

    REQUESTS = "Limits of a request"
    ACTORS = "Limits of an actor, over all workers"
    ACTORS_HERE = "Limits of an actor, in each worker"
    CONNECTIONS = "Connections, of each worker"
    WORK = "Work, of each worker"


def _limit(
    default: float,
    group: LimitGroup,
    meaning: str,
    *,
    least: float = 1,
    most: float | None = None,
    environment: str = "",
) -> Any:
    """A limit with its default, the line that explains its flag, and the variable that is asked when there is none."""
    metadata = {"group": group, "meaning": meaning, "least": least, "most": most, "environment": environment}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """What one request, one actor and one process may use. Each field is a flag of `omnigraph serve`."""

    body_bytes: int = _limit(1 << 20, LimitGroup.REQUESTS, "Bytes of a body.")
    load_body_bytes: int = _limit(32 << 20, LimitGroup.REQUESTS, "Bytes of a load in one JSON body.")
    load_bytes: int = _limit(DEFAULT_BYTES, LimitGroup.REQUESTS, "Bytes of a load in lines.")
    load_rows: int = _limit(DEFAULT_ROWS, LimitGroup.REQUESTS, "Rows of a load.")
    query_seconds: float = _limit(60.0, LimitGroup.REQUESTS, "Seconds of a read.", least=0.001)
    query_memory_bytes: int = _limit(DEFAULT_QUERY_MEMORY_BYTES, LimitGroup.REQUESTS, "Bytes of memory of a read.")
    query_bytes: int = _limit(_QUERY.bytes, LimitGroup.REQUESTS, "Bytes of the text of a query.")
    query_clauses: int = _limit(
        _QUERY.clauses, LimitGroup.REQUESTS, "Clauses, projections, sort keys and statements of a query."
    )
    query_literals: int = _limit(_QUERY.literals, LimitGroup.REQUESTS, "Literals of a query.")
    query_depth: int = _limit(
        _QUERY.depth, LimitGroup.REQUESTS, "Bindings, traversals and negations of a query.", most=MOST_QUERY_DEPTH
    )
    result_rows: int = _limit(1_000_000, LimitGroup.REQUESTS, "Rows of an answer that is not streamed.")
    wait_ms: int = _limit(60_000, LimitGroup.REQUESTS, "Milliseconds that a poll for changes may wait.", least=0)
    header_bytes: int = _limit(64 << 10, LimitGroup.CONNECTIONS, "Bytes of the headers of a request.")
    header_seconds: float = _limit(20.0, LimitGroup.CONNECTIONS, "Seconds in which headers must arrive.", least=0.001)
    body_seconds: float = _limit(
        60.0, LimitGroup.CONNECTIONS, "Seconds without a byte of a body that is awaited.", least=0.001
    )
    send_seconds: float = _limit(
        60.0, LimitGroup.CONNECTIONS, "Seconds without a byte taken of an answer.", least=0.001
    )
    keep_alive_seconds: float = _limit(
        75.0, LimitGroup.CONNECTIONS, "Seconds that a connection may be idle.", least=0.001
    )
    connections: int = _limit(16_384, LimitGroup.CONNECTIONS, "Open connections.")
    actor_requests: int = _limit(
        16,
        LimitGroup.ACTORS,
        "Writes in flight; 0 refuses every write.",
        least=0,
        environment="OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX",
    )
    actor_bytes: int = _limit(
        4 << 30, LimitGroup.ACTORS, "Bytes of writes in flight.", least=0, environment="OMNIGRAPH_PER_ACTOR_BYTES_MAX"
    )
    actor_reads: int = _limit(64, LimitGroup.ACTORS_HERE, "Reads under way, those that wait included.")
    actor_read_threads: int = _limit(
        6, LimitGroup.ACTORS_HERE, "Reads that run at a time, and at most three quarters of --read-threads."
    )
    actor_streams: int = _limit(32, LimitGroup.ACTORS_HERE, "Streams at a time.")
    actor_feeds: int = _limit(32, LimitGroup.ACTORS_HERE, "Polls for changes that wait, and streams of events.")
    streams_per_graph: int = _limit(8, LimitGroup.WORK, "Streams of a graph at a time.")
    streams: int = _limit(64, LimitGroup.WORK, "Streams at a time, those of blobs included.")
    feeds: int = _limit(1024, LimitGroup.WORK, "Polls for changes that wait, and streams of events.")
    read_threads: int = _limit(8, LimitGroup.WORK, "Reads that run at a time.")
    read_wait_seconds: float = _limit(30.0, LimitGroup.WORK, "Seconds that a read waits for a thread.", least=0.001)
    write_threads: int = _limit(16, LimitGroup.WORK, "Writes at a time.")
    drain_seconds: float = _limit(
        30.0, LimitGroup.WORK, "Seconds to finish what is under way when told to end.", least=0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """On which terms agents use the graphs, within what the rules let their actors. The endpoint that speaks their
    protocol knows its own default for the size of an answer."""

    read_only: bool = False
    allow_main: bool = False
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One server. `cluster` or `store` is where its graphs are; the other one is None."""

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
    """Why a server without tokens must not listen at its address; None if it may."""
    if is_loopback(settings.host) or settings.insecure_public:
        return None
    return (
        f"without tokens, everybody who reaches {settings.host} could read and change everything: set tokens, listen "
        "at 127.0.0.1, or add --insecure-public (OMNIGRAPH_INSECURE_PUBLIC=1) if something else keeps strangers out"
    )


def is_set(name: str, environment: Mapping[str, str] = os.environ) -> bool:
    """A boolean variable: on unless it is missing, empty, `0` or `false`."""
    return environment.get(name, "").lower() not in _UNSET
