"""Which rules govern which scope: bundles bound to the server or to a graph, and what makes a gate of their text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from omnigraph.api.access import Gate
from omnigraph.cluster.addresses import CLUSTER_SCOPE, Address, Kind
from omnigraph.cluster.serving import ClusterPolicy
from omnigraph.errors import BootRefusedError
from omnigraph.policy.bundle import ScopeKind


class PolicyLoader(Protocol):
    """Turns the text of a bundle into the gate of a scope. Raises when it can't: rules that can't be evaluated must
    never be taken for rules that allow. `label` says whose text it is; the server itself has no graph id."""

    def __call__(self, source: str, kind: ScopeKind, label: str, graph_id: str | None = None) -> Gate: ...


@dataclass(frozen=True, slots=True)
class Bindings:
    """The bundle of each scope that has one."""

    server: ClusterPolicy | None = None
    graphs: Mapping[str, ClusterPolicy] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.server is not None or bool(self.graphs)


def bind(policies: Iterable[ClusterPolicy]) -> Bindings:
    """Refuses a scope with two bundles, and a binding that names no scope."""
    bound: dict[str, ClusterPolicy] = {}
    refused = []
    for policy in policies:
        for scope in policy.applies_to:
            address = Address.parse(scope)
            if scope != CLUSTER_SCOPE and (address is None or address.kind is not Kind.GRAPH):
                refused.append(f"policy '{policy.name}' is bound to '{scope}', which is neither cluster nor a graph")
            elif (other := bound.setdefault(scope, policy)) is not policy:
                refused.append(f"policies '{other.name}' and '{policy.name}' are both bound to '{scope}'")
    if refused:
        raise BootRefusedError(refused)
    server = bound.pop(CLUSTER_SCOPE, None)
    return Bindings(server, {scope.removeprefix("graph."): policy for scope, policy in bound.items()})
