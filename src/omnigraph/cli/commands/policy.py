"""The `policy` commands check, test and explain rules: of a bundle that is applied to a cluster, or of a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

from omnigraph.api.enums import PolicyAction
from omnigraph.cli.inputs import json_object, read_source
from omnigraph.cli.params import UsageError, at_most_one, file_option
from omnigraph.cli.printing.output import print_lines, print_text
from omnigraph.cli.target import Invocation
from omnigraph.errors import BadRequestError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnigraph.api.governance import AccessRequest
    from omnigraph.cluster.serving import ClusterPolicy
    from omnigraph.graph import Graph
    from omnigraph.language.catalog import Catalog
    from omnigraph.language.query.row_filter import Visibility
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
    from omnigraph.cluster.serving import read_serving

    applied = read_serving(scope.root)
    policy = _select(applied.policies, scope.graph, scope.root)
    uri = next((graph.uri for graph in applied.graphs if graph.graph_id == scope.graph), None)
    return ChosenBundle(policy.name, policy.source, f"policy '{policy.name}'", scope.graph or _NO_GRAPH, uri)


def _select(policies: Sequence[ClusterPolicy], graph_id: str | None, root: str) -> ClusterPolicy:
    candidates, missing = policies, f"'{root}' has no applied policy bundles"
    advice = "pass --graph <id> to select one"
    if graph_id is not None:
        of_graph = [policy for policy in policies if f"graph.{graph_id}" in policy.applies_to]
        # A bundle of the cluster itself governs the listing of graphs; it is meant only where the graph has none.
        candidates = of_graph or [policy for policy in policies if "cluster" in policy.applies_to]
        missing = f"no policy bundle is bound to graph '{graph_id}' or to the cluster scope of '{root}'"
        advice = "one bundle per graph scope"
    if not candidates:
        raise NotFoundError(missing)
    if len(candidates) > 1:
        names = ", ".join(sorted(policy.name for policy in candidates))
        raise BadRequestError(f"several policy bundles apply ({names}): {advice}")
    return candidates[0]


bundle_option = file_option("--file", help="A bundle file, instead of the applied bundle of a cluster.")
schema_option = file_option(
    "--schema", help="The .pg file that row filters and masks are checked against; else the schema of the graph."
)


@bundle_option
@schema_option
def validate(invocation: Invocation, file: Path | None, schema: Path | None) -> None:
    bundle = chosen_bundle(invocation, file)
    gate = bundle.gate()
    if schema is not None or (gate.restricts and bundle.graph_uri is not None):
        gate.bind_schema(_catalog(bundle, schema))
    print_lines([f"policy valid: bundle '{bundle.name}' [{len(gate.bundle.groups_of)} actors]"])


@file_option("--tests", required=True, help="The test cases: requests and expected decisions.")
@bundle_option
def try_cases(invocation: Invocation, tests: Path, file: Path | None) -> None:
    from omnigraph.policy.explanation import read_cases, run_cases

    bundle = chosen_bundle(invocation, file)
    report = run_cases(bundle.gate(), read_cases(read_source(tests), str(tests)))
    print_lines(report.lines())
    raise Exit(0 if report.passed else 1)


@click.option("--actor", required=True, help="The actor of the request.", metavar="ID")
@click.option("--action", required=True, help="The action: read, change, branch-merge, …", metavar="ACTION")
@click.option("--branch", help="The branch of the request.", metavar="NAME")
@click.option("--target-branch", help="The branch it targets.", metavar="NAME")
@bundle_option
@schema_option
@click.option("--type", "type_name", help="Also explain a row of this type.", metavar="TYPE")
@click.option("--row", help="The row's properties, as JSON.", metavar="JSON")
@click.option("--id", help="The id of a row of the graph.", metavar="ID")
def explain(
    invocation: Invocation,
    actor: str,
    action: str,
    branch: str | None,
    target_branch: str | None,
    file: Path | None,
    schema: Path | None,
    type_name: str | None,
    row: str | None,
    id: str | None,
) -> None:
    from omnigraph.api.governance import AccessRequest
    from omnigraph.policy.explanation import explain as explained

    at_most_one(("--row", row), ("--id", id))
    if (type_name is None) is not (row is None and id is None):
        raise UsageError("a row is explained by its type and itself: give --type with --row or with --id")
    try:
        policy_action = PolicyAction(action.replace("-", "_"))
    except ValueError:
        actions = ", ".join(action.replace("_", "-") for action in PolicyAction)
        raise UsageError(f"unknown action '{action}'; use one of: {actions}") from None
    # As every request does, without the white space around a name.
    request = AccessRequest(policy_action, branch and branch.strip(), target_branch and target_branch.strip())
    bundle = chosen_bundle(invocation, file)
    gate = bundle.gate()
    explanation = explained(gate, actor, request)
    lines = list(explanation.lines())
    if type_name is not None and explanation.decision.allowed:
        if row is not None:
            lines += _explain_given(bundle, gate, actor, request, schema, type_name, row)
        else:
            lines += _explain_stored(bundle, gate, actor, request, type_name, str(id))
    print_lines(lines)


@bundle_option
@click.option("--cedar", is_flag=True, help="Print the Cedar schema and policies it becomes.")
def show(invocation: Invocation, file: Path | None, cedar: bool) -> None:
    bundle = chosen_bundle(invocation, file)
    if not cedar:
        print_text(bundle.source)
        return
    from omnigraph.policy.cedar import SCHEMA

    print_text(f"{SCHEMA}\n{bundle.gate().rules.text}")


def _catalog(bundle: ChosenBundle, schema: Path | None, branch: str | None = None) -> Catalog:
    """The schema of a file, or that of the graph which the bundle was chosen for."""
    if schema is not None:
        from omnigraph.language.schema.compile import compile_schema

        return compile_schema(read_source(schema), str(schema))
    with _open_graph(bundle, "--schema <file>, or ") as graph:
        return graph.snapshot(branch).catalog


def _open_graph(bundle: ChosenBundle, otherwise: str = "") -> Graph:
    import omnigraph

    if bundle.graph_uri is None:
        raise UsageError(f"rows have a schema: give {otherwise}a graph with --cluster <dir|uri> --graph <id>")
    return omnigraph.open(bundle.graph_uri)


def _explain_given(
    bundle: ChosenBundle, gate: PolicyGate, actor: str, request: AccessRequest, schema: Path | None, name: str, row: str
) -> tuple[str, ...]:
    """Whether the actor sees a row that is only given. It has no ends: of an edge, its own properties count."""
    from omnigraph.engine.query.visibility import shows_row
    from omnigraph.policy.explanation import describe_row_visibility

    catalog = _catalog(bundle, schema, request.branch)
    gate.bind_schema(catalog)
    type_ = catalog.type_named(name)
    values = json_object(row, "--row", "it must be a JSON object of properties")
    return describe_row_visibility(
        gate, actor, request, catalog, type_, lambda visibility: shows_row(visibility.of(type_), values)
    )


def _explain_stored(
    bundle: ChosenBundle, gate: PolicyGate, actor: str, request: AccessRequest, name: str, id: str
) -> tuple[str, ...]:
    """Whether the actor sees a row of the graph."""
    from omnigraph.policy.explanation import describe_row_visibility

    with _open_graph(bundle) as graph:
        state = graph.snapshot(request.branch)
        gate.bind_schema(state.catalog)
        type_ = state.catalog.type_named(name)
        key, branch = type_.type_key, state.branch
        if state.entity(key, id) is None:
            raise NotFoundError(f"there is no {type_.kind} {type_.name} with the id '{id}' on branch '{branch}'")

        def shows(visibility: Visibility) -> bool:
            return graph._restricted_to(visibility).entity(key, id, branch=branch) is not None

        return describe_row_visibility(gate, actor, request, state.catalog, type_, shows)
