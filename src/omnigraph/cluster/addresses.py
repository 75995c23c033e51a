"""How the resources of a cluster are named, and how a name is taken apart."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, NamedTuple

RESOURCE_ID: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
CLUSTER_SCOPE: Final = "cluster"
"""What rules are bound to that govern the server itself."""


class Kind(StrEnum):
    GRAPH = "graph"
    SCHEMA = "schema"
    QUERY = "query"
    POLICY = "policy"
    EMBEDDING_PROVIDER = "embedding_provider"
    PIPELINE = "pipeline"


_PREFIXES: Final = {
    Kind.GRAPH: "graph.",
    Kind.SCHEMA: "schema.",
    Kind.QUERY: "query.",
    Kind.POLICY: "policy.",
    Kind.EMBEDDING_PROVIDER: "provider.embedding.",
    Kind.PIPELINE: "pipeline.",
}


class Address(NamedTuple):
    """A resource. `name` is its own one; `graph` is the graph of a query, and of a graph and its schema their id."""

    kind: Kind
    name: str
    graph: str | None = None

    def __str__(self) -> str:
        within = f"{self.graph}." if self.kind is Kind.QUERY else ""
        return f"{_PREFIXES[self.kind]}{within}{self.name}"

    @staticmethod
    def parse(text: str) -> Address | None:
        """The resource that a text names, None when it is no address."""
        for kind, prefix in _PREFIXES.items():
            if text.startswith(prefix):
                names = text.removeprefix(prefix).split(".")
                if len(names) != (2 if kind is Kind.QUERY else 1) or not all(map(RESOURCE_ID.fullmatch, names)):
                    return None
                graph = names[0] if kind in (Kind.GRAPH, Kind.SCHEMA, Kind.QUERY) else None
                return Address(kind, names[-1], graph)
        return None


def graph_address(graph_id: str) -> str:
    return str(Address(Kind.GRAPH, graph_id, graph_id))


def schema_address(graph_id: str) -> str:
    return str(Address(Kind.SCHEMA, graph_id, graph_id))
