"""The names of a cluster's resources, and the diagnostics of every module of the package.

Diagnostics have stable codes. A `ClusterError` carries all diagnostics of a failed step.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from omnigraph.api.enums import Severity as Severity
from omnigraph.api.service.cluster import ClusterDiagnostic
from omnigraph.errors import OmniGraphError

RESOURCE_ID: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
SERVED_ID: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
RESERVED_GRAPH_IDS: Final = frozenset({"policies", "healthz", "openapi", "graphs"})
CLUSTER_SCOPE: Final = "cluster"
"""The binding of rules that govern the server itself."""


class Kind(StrEnum):
    GRAPH = "graph"
    SCHEMA = "schema"
    QUERY = "query"
    POLICY = "policy"
    EMBEDDING_PROVIDER = "embedding_provider"
    PIPELINE = "pipeline"


_PREFIXES: Final = {kind: f"{kind}." for kind in Kind} | {Kind.EMBEDDING_PROVIDER: "provider.embedding."}


class Address(NamedTuple):
    """The address of a resource. `graph` is the graph id of a graph, a schema or a query."""

    kind: Kind
    name: str
    graph: str | None = None

    def __str__(self) -> str:
        within = f"{self.graph}." if self.kind is Kind.QUERY else ""
        return f"{_PREFIXES[self.kind]}{within}{self.name}"

    @staticmethod
    def parse(text: str) -> Address | None:
        """The address in a text; None when the text is not an address."""
        for kind, prefix in _PREFIXES.items():
            if text.startswith(prefix):
                names = text.removeprefix(prefix).split(".")
                if len(names) != (2 if kind is Kind.QUERY else 1) or not all(map(RESOURCE_ID.fullmatch, names)):
                    return None
                graph = names[0] if kind in (Kind.GRAPH, Kind.SCHEMA, Kind.QUERY) else None
                return Address(kind, names[-1], graph)
        return None


def unservable_reason(graph_id: str) -> str | None:
    """The reason why a server can't serve a graph with this id; None when it can."""
    if SERVED_ID.fullmatch(graph_id) is None:
        return f"'{graph_id}' can't be served: an id has 1 to 64 letters, digits and hyphens"
    return f"'{graph_id}' can't be served: the name is reserved" if graph_id in RESERVED_GRAPH_IDS else None


def graph_address(graph_id: str) -> str:
    return str(Address(Kind.GRAPH, graph_id, graph_id))


def schema_address(graph_id: str) -> str:
    return str(Address(Kind.SCHEMA, graph_id, graph_id))


def provider_address(name: str) -> str:
    return str(Address(Kind.EMBEDDING_PROVIDER, name))


Diagnostic: TypeAlias = ClusterDiagnostic


def error(code: str, path: str, message: str) -> Diagnostic:
    return Diagnostic(code, Severity.ERROR, path, message)


def warning(code: str, path: str, message: str) -> Diagnostic:
    return Diagnostic(code, Severity.WARNING, path, message)


class ClusterError(OmniGraphError):
    """A cluster can't be used as it is. Carries every diagnostic."""

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        if not diagnostics:
            raise ValueError("a cluster error needs at least one diagnostic")
        message = "\n".join(map(str, diagnostics))
        super().__init__(message if len(diagnostics) > 1 else message.removeprefix("ERROR "))
        self.diagnostics = tuple(diagnostics)

    @classmethod
    def of(cls, code: str, path: str, message: str) -> ClusterError:
        return cls([error(code, path, message)])

    @property
    def codes(self) -> list[str]:
        return [diagnostic.code for diagnostic in self.diagnostics]
