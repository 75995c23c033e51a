"""The entry point of `omnigraph-server`, which is `omnigraph serve`; and what its workers are put together from."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from omnigraph.api.limits import Limits
    from omnigraph.engine.query.search.embedder import Embedder
    from omnigraph.engine.write.external_blobs import ExternalBlobPolicy
    from omnigraph.graph import Graph
    from omnigraph.mcp.connections import MountedEndpoint


def main() -> None:
    from omnigraph.cli.entry import main as run

    run(["serve", *sys.argv[1:]])


def open_graph(uri: str, embedder: Embedder | None, external_blobs: ExternalBlobPolicy | None, limits: Limits) -> Graph:
    """As Python programs do, with what a cluster says of the graph."""
    import omnigraph

    return omnigraph.open(uri, embedder=embedder, external_blobs=external_blobs, limits=limits)


def application(*given: Any) -> ASGIApp:
    """The server's application with an endpoint for agents, which the server itself knows nothing of."""
    from omnigraph.server.assembly import application as assembled

    return assembled(*given, agents=_agents)


def _agents() -> MountedEndpoint:
    from omnigraph.errors import NotFoundError

    try:
        from omnigraph.mcp.connections import MountedEndpoint
        from omnigraph.mcp.terms import Terms
    except ModuleNotFoundError as error:
        raise NotFoundError(f"this server has no {error.name}, which agents need: install omnigraph[mcp]") from None
    return MountedEndpoint(Terms())


if __name__ == "__main__":
    main()
