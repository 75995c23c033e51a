"""The policies of a configuration: what they are bound to, whether they fit there, and whether their tests pass."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from omnigraph.cluster.addresses import CLUSTER_SCOPE, Address, Kind, graph_address
from omnigraph.cluster.config import PolicySettings
from omnigraph.cluster.diagnostics import Diagnostic, error
from omnigraph.cluster.sources import Source, UnreadableError, read_source
from omnigraph.engine.sources import CheckedSchema
from omnigraph.errors import OmniGraphError
from omnigraph.policy.cases import read_cases, run_cases
from omnigraph.policy.gate import PolicyGate, load_gate


def scopes_of(where: str, policy: PolicySettings, graphs: Mapping[str, object]) -> tuple[list[str], list[Diagnostic]]:
    """What a policy is bound to, in one spelling and sorted."""
    found: list[Diagnostic] = []
    scopes: set[str] = set()
    for index, named in enumerate(policy.applies_to):
        at = f"{where}.applies_to[{index}]"
        if named == CLUSTER_SCOPE:
            scopes.add(named)
            continue
        address = Address.parse(named)
        if "." in named and (address is None or address.kind is not Kind.GRAPH):
            message = f"'{named}' is no graph; write cluster, graph.<id> or the id of a graph"
            found.append(error("wrong_kind_reference", at, message))
            continue
        graph_id = named if address is None else address.name
        if graph_id not in graphs:
            known = ", ".join(sorted(graphs)) or "none"
            found.append(
                error("dangling_graph_reference", at, f"there is no graph '{graph_id}'; declared graphs: {known}")
            )
            continue
        scopes.add(graph_address(graph_id))
    if not policy.applies_to:
        message = "it is bound to nothing; name cluster, or at least one graph"
        found.append(error("policy_missing_applies_to", f"{where}.applies_to", message))
    if CLUSTER_SCOPE in scopes and len(scopes) > 1:
        message = "rules are for the server (cluster) or for graphs, not for both; split the file"
        found.append(error("policy_mixed_binding_kinds", f"{where}.applies_to", message))
    return sorted(scopes), found


def refuse_bound_twice(bound: Mapping[str, list[str]]) -> list[Diagnostic]:
    """A scope has one bundle. `bound` are the scopes of each policy."""
    found: list[Diagnostic] = []
    owners: dict[str, str] = {}
    for name, scopes in bound.items():
        for scope in scopes:
            owner = owners.setdefault(scope, name)
            if owner != name:
                message = f"'{scope}' is bound by policy '{owner}' already; put the rules into one file"
                found.append(error("duplicate_policy_binding", f"policies.{name}.applies_to", message))
    return found


def read_policy(
    directory: Path, name: str, policy: PolicySettings, scopes: list[str], schemas: Mapping[str, CheckedSchema | None]
) -> tuple[Source | None, list[Diagnostic]]:
    """The file of a policy, checked for where it is bound to, with its tests run."""
    where = f"policies.{name}"
    if not policy.file:
        return None, []
    try:
        source = read_source(directory, policy.file)
    except UnreadableError as problem:
        return None, [error("policy_file_missing", f"{where}.file", str(problem))]
    gates: list[PolicyGate] = []
    for scope in scopes or [graph_address("graph")]:
        address = Address.parse(scope)
        graph_id = address.name if address is not None else None
        try:
            gate = load_gate(source.text, "server" if graph_id is None else "graph", policy.file, graph_id)
            if graph_id is not None and (schema := schemas.get(graph_id)) is not None:
                gate = gate.fitted(schema.catalog)
        except OmniGraphError as problem:
            of = f" (for {scope})" if len(scopes) > 1 else ""
            return source, [error("policy_invalid", f"{where}.file", f"{problem}{of}")]
        gates.append(gate)
    return source, _tested(directory, where, policy.tests, gates)


def _tested(directory: Path, where: str, tests: str | None, gates: list[PolicyGate]) -> list[Diagnostic]:
    if tests is None:
        return []
    try:
        cases = read_cases(read_source(directory, tests).text, tests)
    except UnreadableError as problem:
        return [error("policy_file_missing", f"{where}.tests", str(problem))]
    except OmniGraphError as problem:
        return [error("policy_tests_invalid", f"{where}.tests", str(problem))]
    # The graph a bundle is for changes nothing about who may do what, so its tests need one gate.
    try:
        report = run_cases(gates[0], cases)
    except OmniGraphError as problem:
        return [error("policy_tests_failed", f"{where}.tests", str(problem))]
    return [] if report.passed else [error("policy_tests_failed", f"{where}.tests", "\n".join(report.lines()))]
