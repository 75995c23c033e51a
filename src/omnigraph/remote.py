"""`omnigraph.connect` and `omnigraph.connect_async`: a graph behind a server, used like one in this process.

The client takes texts of queries. These functions add the handles of `omnigraph.queries`, which check parameters before
a request is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omnigraph.client import AsyncRemoteGraph, RemoteGraph
from omnigraph.client.connection import DEFAULT_TIMEOUT, Address, Settings, plain_binder


def connect(
    url: str,
    *,
    graph: str | None = None,
    token: str | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    retries: bool = True,
) -> RemoteGraph:
    """A graph of a server, by the server's URL and the graph's id, or by a URL that ends in `/graphs/<id>`.

    * `token` proves who asks. It is sent to this server and nowhere else: redirects are not followed.
    * `timeout` bounds, in seconds, a call with all its attempts; of a stream, the time without a byte.
    * `retries=False` makes every failure that of its first attempt.

    Nothing is sent before the first call. `list_graphs()` of what comes back tells which graphs there are.
    """
    return RemoteGraph(Address.parse(url, graph), Settings(token, timeout, retries), _binder)


def connect_async(
    url: str,
    *,
    graph: str | None = None,
    token: str | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    retries: bool = True,
) -> AsyncRemoteGraph:
    """The same for asyncio: `async with omnigraph.connect_async(url, graph="kb") as g: await g.query(…)`"""
    return AsyncRemoteGraph(Address.parse(url, graph), Settings(token, timeout, retries), _binder)


def _binder(
    query: Any, name: str | None, params: Mapping[str, Any] | None, args: Mapping[str, Any], options: Mapping[str, Any]
) -> Any:
    """As in `Graph.query`. The language is loaded only for what needs it: handles, and keywords beside a text."""
    if isinstance(query, str) and not args:
        return plain_binder(query, name, params, args, options)
    from omnigraph.sources import bind_call

    return bind_call(query, name, params, args, options)
