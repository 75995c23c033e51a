"""Graphs behind servers, as commands open them: with the operator's token, and without a second attempt.

A command tells what happened once; whoever runs it decides about running it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from omnigraph.cli.credentials import token_for
from omnigraph.cli.operator_config import OperatorConfig
from omnigraph.cli.scope import ServerScope
from omnigraph.errors import BadRequestError, OmniGraphError

if TYPE_CHECKING:
    from omnigraph.client import RemoteGraph

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
