"""Digests of the resources of a cluster. Ledgers outlive versions of this program, so the bytes below never change."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from omnigraph.cluster.addresses import Address, Kind, graph_address, schema_address
from omnigraph.cluster.config import ClusterConfig
from omnigraph.cluster.state import BlobPolicy, Resource
from omnigraph.embeddings.profile import EmbeddingProfile


def file_digest(data: bytes) -> str:
    """Of a schema, a query file or a policy file."""
    return hashlib.sha256(data).hexdigest()


def embedding_provider_digest(profile: EmbeddingProfile) -> str:
    return file_digest(b"embedding-provider\0" + msgspec.json.encode(profile))


def graph_digest(
    graph_id: str,
    schema: str | None,
    queries: Mapping[str, str],
    provider: tuple[str, str] | None = None,
    blobs: BlobPolicy | None = None,
) -> str:
    """Of a graph with all its parts: digests of its schema and queries by name, the address and digest of its provider,
    and what external blobs it allows."""
    parts = ["graph", graph_id, "schema", schema or ""]
    for name in sorted(queries):
        parts += ["query", name, queries[name]]
    if provider is not None:
        parts += ["embedding_provider", *provider]
    if blobs is not None:
        parts += ["external_blob_policy", msgspec.json.encode(blobs).decode()]
    return file_digest("".join(f"{part}\0" for part in parts).encode())


def config_digest(config: ClusterConfig, digests: Mapping[str, str]) -> str:
    """Of a configuration and of everything it comes to, by address."""
    parts = ["cluster-config", msgspec.json.encode(config, order="deterministic").decode()]
    for address in sorted(digests):
        parts += [address, digests[address]]
    return file_digest("".join(f"{part}\0" for part in parts).encode())


def composite_digest(resources: Mapping[str, Resource], graph_id: str) -> str:
    """What the digest of a graph has to be, by the other resources beside it."""
    schema = resources.get(schema_address(graph_id))
    addresses = ((address, resource) for text, resource in resources.items() if (address := Address.parse(text)))
    queries = {a.name: query.digest for a, query in addresses if a.kind is Kind.QUERY and a.graph == graph_id}
    graph = resources[graph_address(graph_id)]
    bound = graph.embedding_provider
    provider = resources.get(bound) if bound is not None else None
    return graph_digest(
        graph_id,
        schema.digest if schema is not None else None,
        queries,
        (bound, provider.digest if provider is not None else "") if bound is not None else None,
        graph.external_blob_policy,
    )
