"""The entry point of `omnigraph-server`, which is `omnigraph serve`; and what its workers are put together from."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from omnigraph.api.governance import Limits
    from omnigraph.engine.query.search.embedder import Embedder
    from omnigraph.engine.write.external_blobs import ExternalBlobPolicy
    from omnigraph.graph import Graph
    from omnigraph.mcp.connections import MountedEndpoint
    from omnigraph.server.reload import States
    from omnigraph.server.runtime.context import Surroundings
    from omnigraph.server.settings import AgentSettings
    from omnigraph.server.tokens import Tokens


def main() -> None:
    from omnigraph.cli.entry import main as run

    run(["serve", *sys.argv[1:]])


def open_graph(uri: str, embedder: Embedder | None, external_blobs: ExternalBlobPolicy | None, limits: Limits) -> Graph:
    """As Python programs do, with what a cluster says of the graph."""
    import omnigraph

    return omnigraph.open(uri, embedder=embedder, external_blobs=external_blobs, limits=limits)


def application(states: States, tokens: Tokens, around: Surroundings) -> ASGIApp:
    """The server's application with an endpoint for agents, which the server itself knows nothing of."""
    from omnigraph.server.app import application as assembled

    return assembled(states, tokens, around, agents=lambda: agents_of(around.settings.agents))


def agents_of(chosen: AgentSettings) -> MountedEndpoint:
    """What speaks the protocol of agents, on the terms that the server was started with."""
    from omnigraph.errors import NotFoundError

    try:
        from omnigraph.mcp.connections import MountedEndpoint
        from omnigraph.mcp.graph import DEFAULT_MAX_TOKENS, Terms
    except ModuleNotFoundError as error:
        raise NotFoundError(f"this server has no {error.name}, which agents need: install omnigraph[mcp]") from None
    return MountedEndpoint(
        Terms(
            max_tokens=chosen.max_tokens or DEFAULT_MAX_TOKENS,
            read_only=chosen.read_only,
            allow_main=chosen.allow_main,
            main_flag="--mcp-allow-main",
        )
    )


if __name__ == "__main__":
    main()
