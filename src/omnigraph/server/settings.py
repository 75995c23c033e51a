"""How a server is run: what flags and environment variables say, once they are read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from omnigraph.api.limits import DEFAULT_BYTES, DEFAULT_QUERY_MEMORY_BYTES, DEFAULT_ROWS

DEFAULT_BIND: Final = "127.0.0.1:8080"
_UNSET: Final = ("", "0", "false")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """What one request, one actor and one process may use. Each field is a flag of `omnigraph serve`."""

    body_bytes: int = 1 << 20
    load_body_bytes: int = 32 << 20
    load_bytes: int = DEFAULT_BYTES
    load_rows: int = DEFAULT_ROWS
    query_seconds: float = 60.0
    query_memory_bytes: int = DEFAULT_QUERY_MEMORY_BYTES
    result_rows: int = 1_000_000
    streams_per_graph: int = 8
    header_bytes: int = 64 << 10
    header_seconds: float = 20.0
    body_seconds: float = 60.0
    send_seconds: float = 60.0
    keep_alive_seconds: float = 75.0
    connections: int = 16_384
    wait_ms: int = 60_000
    actor_requests: int = 16
    actor_bytes: int = 4 << 30
    read_threads: int = 8
    write_threads: int = 16
    drain_seconds: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One server. `cluster` or `store` is where its graphs are; the other one is None."""

    cluster: str | None = None
    store: str | None = None
    host: str = "127.0.0.1"
    port: int = 8080
    unauthenticated: bool = False
    require_all_graphs: bool = False
    workers: int = 1
    maintain: bool = False
    allow_origins: tuple[str, ...] = ()
    limits: ServerLimits = field(default_factory=ServerLimits)


def is_set(name: str, environment: Mapping[str, str] = os.environ) -> bool:
    """A boolean variable: on unless it is missing, empty, `0` or `false`."""
    return environment.get(name, "").lower() not in _UNSET
