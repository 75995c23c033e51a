"""The entry point of `omnigraph-server`, which is `omnigraph serve`; and how its workers open graphs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnigraph.api.governance import Limits
    from omnigraph.engine.query.search.embedder import Embedder
    from omnigraph.engine.write.external_blobs import ExternalBlobPolicy
    from omnigraph.graph import Graph


def main() -> None:
    from omnigraph.cli.main import main as run

    run(["serve", *sys.argv[1:]])


def open_graph(uri: str, embedder: Embedder | None, external_blobs: ExternalBlobPolicy | None, limits: Limits) -> Graph:
    """As Python programs do, with what a cluster says of the graph."""
    import omnigraph

    return omnigraph.open(uri, embedder=embedder, external_blobs=external_blobs, limits=limits)


if __name__ == "__main__":
    main()
