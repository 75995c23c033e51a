"""`omnigraph.init` and `omnigraph.open`: a graph handle with everything its user configures.

The engine takes its embedding client, its limits and its storage options as arguments; they are chosen here. Python
programs, the command line and the server open graphs with these functions and no others.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph.api.governance import Limits
from omnigraph.api.maintenance import DEFAULT_POLICY, MaintenancePolicy
from omnigraph.embeddings.environment import EnvironmentEmbedder
from omnigraph.engine.write.external_blobs import ExternalBlobPolicy
from omnigraph.errors import BadRequestError
from omnigraph.graph import Graph

if TYPE_CHECKING:
    from omnigraph.engine.query.search.embedder import Embedder
    from omnigraph.sources import Queries


def init(
    uri: str | Path,
    schema: str | PathLike[str],
    *,
    storage_options: Mapping[str, object] | None = None,
    embedder: Embedder | None = None,
    limits: Limits | None = None,
    external_blobs: ExternalBlobPolicy | None = None,
    actor: str | None = None,
    force: bool = False,
) -> Graph:
    """Create a graph with a schema at a path, `file://`, `s3://`, `gs://` or `az://` location.

    The schema is a `.pg` text, or the path of a file that holds one; a name like `schema.pg` is that of a file. The
    options are those of `open`. Raises `CompileError` for a schema that is wrong, `ConflictError` for a location that
    holds a graph or anything else; `force` accepts what an interrupted `init` left behind.
    """
    graph = Graph.init(uri, schema, actor=actor, force=force, storage_options=storage_options)
    return _configure(graph, embedder, limits, external_blobs)


def open(
    uri: str | Path,
    *,
    storage_options: Mapping[str, object] | None = None,
    embedder: Embedder | None = None,
    limits: Limits | None = None,
    external_blobs: ExternalBlobPolicy | None = None,
    maintain: bool | MaintenancePolicy = False,
    policy: str | Path | None = None,
    actor: str | None = None,
    queries: str | PathLike[str] | Queries | None = None,
) -> Graph:
    """Open an existing graph. Raises `NotFoundError` where there is none.

    * `storage_options` say how an object store is reached (`aws_access_key_id`, `aws_endpoint`, `allow_http`, …); what
      they leave out comes from the environment. A local graph needs none.
    * `embedder` turns the texts given to `nearest` into vectors; without one, the provider the environment names does.
    * `limits` bound what one write may hold in memory, `external_blobs` says which blob references are admitted.
    * A process that runs for long and writes should say `maintain=True`, or give a policy: a thread then compacts the
      tables of main and releases history beyond the policy's retention, every few minutes until the graph is closed.
    * `actor` is who the handle acts for: its writes are recorded under that name and no other. With `policy`, the path
      of a bundle of rules, the handle does what they allow this actor and shows what they show it, reads included.
      A user who can open the files can also open them without rules; only a server can enforce them.
    * `queries`, a `.gq` file or what `omnigraph.queries` gives, are offered by name: `stored_queries` lists them, and
      `invoke` runs one, as behind a server that stores them.
    """
    if policy is not None and actor is None:
        raise BadRequestError("a policy says what actors may do: give the one that the handle acts for as actor=")
    offered = None if queries is None else _read_queries(queries)
    graph = _configure(Graph.open(uri, storage_options=storage_options), embedder, limits, external_blobs)
    graph = graph if offered is None else graph.with_queries(offered)
    if maintain:
        from omnigraph.engine.maintenance.maintainer import Maintainer

        Maintainer(graph._workspace, DEFAULT_POLICY if maintain is True else maintain).start()
    if policy is not None:
        from omnigraph.policy.gate import load_gate
        from omnigraph.sources import read_text

        try:
            rules = load_gate(read_text(Path(policy), "policy"), "graph", str(policy), graph.id)
            graph = graph._with_gate(rules.bind_schema(graph.catalog))
        except BaseException:
            graph.close()
            raise
    return graph if actor is None else graph.acting_for(actor)


def _read_queries(queries: str | PathLike[str] | Queries) -> Queries:
    from omnigraph import sources

    return sources.queries(queries) if isinstance(queries, str | PathLike) else queries


def _configure(
    graph: Graph, embedder: Embedder | None, limits: Limits | None, external_blobs: ExternalBlobPolicy | None
) -> Graph:
    chosen = {"limits": limits, "external_blobs": external_blobs}
    changes = {name: value for name, value in chosen.items() if value is not None}
    return graph._with(embedder=EnvironmentEmbedder() if embedder is None else embedder, **changes)
