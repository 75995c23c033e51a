"""The rules that a `policy` command is about: a bundle that is applied to a cluster, or a file that is not yet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph.cli.files import read_source
from omnigraph.cli.invocation import Invocation
from omnigraph.cli.usage import at_most_one
from omnigraph.errors import BadRequestError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnigraph.cluster.serving import ClusterPolicy
    from omnigraph.policy.gate import PolicyGate

_NO_GRAPH = "default"


@dataclass(frozen=True, slots=True)
class ChosenBundle:
    """A bundle by its name. `graph_uri` is the graph it was chosen for, where that is known."""

    name: str
    source: str
    path: str
    graph_id: str
    graph_uri: str | None = None

    def gate(self) -> PolicyGate:
        """Its rules for one graph. Raises when they are not valid."""
        from omnigraph.policy.gate import load_gate

        return load_gate(self.source, "graph", self.path, self.graph_id)


def chosen_bundle(invocation: Invocation, file: Path | None) -> ChosenBundle:
    """The bundle of a file, or of a cluster as it was applied last."""
    flags = invocation.flags
    at_most_one(("--file", file), ("--cluster", flags.cluster))
    if file is not None:
        name = file.name.removesuffix(file.suffix).removesuffix(".policy")
        return ChosenBundle(name, read_source(file), str(file), flags.graph or _NO_GRAPH)
    scope = invocation.cluster()
    root, graph_id = scope.root, scope.graph
    from omnigraph.cluster.serving import read_serving

    applied = read_serving(root)
    policy = _selected(applied.policies, graph_id, root)
    uri = next((graph.uri for graph in applied.graphs if graph.graph_id == graph_id), None)
    return ChosenBundle(policy.name, policy.source, f"policy '{policy.name}'", graph_id or _NO_GRAPH, uri)


def _selected(policies: Sequence[ClusterPolicy], graph_id: str | None, root: str) -> ClusterPolicy:
    if graph_id is None:
        if not policies:
            raise NotFoundError(f"'{root}' has no applied policy bundles")
        return _only(policies, "pass --graph <id> to select one")
    of_graph = [policy for policy in policies if f"graph.{graph_id}" in policy.applies_to]
    # A bundle of the cluster itself governs the listing of graphs; it is meant only where the graph has none.
    found = of_graph or [policy for policy in policies if "cluster" in policy.applies_to]
    if not found:
        raise NotFoundError(f"no policy bundle is bound to graph '{graph_id}' or to the cluster scope of '{root}'")
    return _only(found, "one bundle per graph scope")


def _only(policies: Sequence[ClusterPolicy], advice: str) -> ClusterPolicy:
    if len(policies) > 1:
        names = ", ".join(sorted(policy.name for policy in policies))
        raise BadRequestError(f"several policy bundles apply ({names}): {advice}")
    return policies[0]
