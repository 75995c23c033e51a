"""The desired state: a configuration with every file it names, read, checked and reduced to resources.

All problems are collected in one pass. A desired state with an error is never compared with anything or applied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, TypeAlias

from omnigraph.api.cluster import DeclaredResource, Dependency, is_ok
from omnigraph.cluster.addresses import (
    CLUSTER_SCOPE,
    RESOURCE_ID,
    Address,
    graph_address,
    pipeline_address,
    policy_address,
    provider_address,
    query_address,
    schema_address,
    unservable,
)
from omnigraph.cluster.blob_bases import blob_policy
from omnigraph.cluster.config import PipelineSettings
from omnigraph.cluster.config_file import ConfigFile
from omnigraph.cluster.diagnostics import Diagnostic, error, warning
from omnigraph.cluster.digests import config_digest, embedding_provider_digest, graph_digest
from omnigraph.cluster.policy_files import read_policy, refuse_bound_twice, scopes_of
from omnigraph.cluster.providers import bound_provider, check_profile
from omnigraph.cluster.query_files import QueryFiles
from omnigraph.cluster.sources import Source, UnreadableError, read_source
from omnigraph.cluster.state import Resource
from omnigraph.engine.sources import BrokenSchema, CheckedSchema, SchemaFlaw, check_schema
from omnigraph.errors import OmniGraphError

CheckPipeline: TypeAlias = Callable[[CheckedSchema], None]
ReadPipeline: TypeAlias = Callable[[str, str], CheckPipeline]
"""Reads the text of a pipeline file (its path only shows in messages) and gives what checks it against a schema. Both
raise an `OmniGraphError`. Pipelines are above clusters, so whoever knows both hands this in."""

_BAD_ID: Final = "a name has letters, digits, _ and -, and begins with a letter or _"


@dataclass
class Desired:
    """What a cluster is to be: its resources in the form the ledger keeps them, and the files they come from."""

    file: ConfigFile
    resources: dict[str, Resource] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    dependencies: set[tuple[str, str]] = field(default_factory=set)
    schemas: dict[str, CheckedSchema | None] = field(default_factory=dict)
    found: list[Diagnostic] = field(default_factory=list)

    @property
    def is_valid(self) -> bool:
        return is_ok(tuple(self.found))

    @cached_property
    def config_digest(self) -> str:
        return config_digest(self.file.config, self.digests)

    @property
    def digests(self) -> dict[str, str]:
        return {address: self.resources[address].digest for address in sorted(self.resources)}

    def listed(self) -> tuple[DeclaredResource, ...]:
        return tuple(
            DeclaredResource(
                address, str(parsed.kind), digest, self.sources[address].shown if address in self.sources else None
            )
            for address, digest in self.digests.items()
            if (parsed := Address.parse(address)) is not None
        )

    def edges(self) -> tuple[Dependency, ...]:
        return tuple(Dependency(*edge) for edge in sorted(self.dependencies))


def load_desired(file: ConfigFile, read_pipeline: ReadPipeline) -> Desired:
    """Everything that a configuration comes to, with everything that is wrong with it in `found`."""
    desired = Desired(file)
    _providers(desired)
    for graph_id in file.config.graphs:
        _graph(desired, graph_id)
    _policies(desired)
    for name, settings in file.config.pipelines.items():
        _pipeline(desired, name, settings, read_pipeline)
    return desired


def default_deny(desired: Desired) -> list[Diagnostic]:
    """A reminder for each graph that takes no external blobs in: nobody should find out by a refused write."""
    return [
        warning(
            "external_blob_ingress_default_deny",
            f"graphs.{graph_id}.external_blobs",
            "new external blob references are denied; allow a base if some are needed",
        )
        for graph_id in desired.file.config.graphs
        if desired.resources[graph_address(graph_id)].external_blob_policy is None
    ]


def _is_named(desired: Desired, where: str, name: str) -> bool:
    if RESOURCE_ID.fullmatch(name) is None:
        desired.found.append(error("invalid_resource_id", where, _BAD_ID))
        return False
    return True


def _providers(desired: Desired) -> None:
    for name, profile in desired.file.config.providers.embedding.items():
        where = f"providers.embedding.{name}"
        if _is_named(desired, where, name):
            desired.found += check_profile(where, profile)
            desired.resources[provider_address(name)] = Resource(
                digest=embedding_provider_digest(profile), embedding_profile=profile
            )


def _graph(desired: Desired, graph_id: str) -> None:
    config = desired.file.config
    settings, where = config.graphs[graph_id], f"graphs.{graph_id}"
    if not _is_named(desired, where, graph_id):
        return
    if (flaw := unservable(graph_id)) is not None:
        desired.found.append(error("unservable_graph_id", where, flaw))
    schema = _schema(desired, graph_id, settings.schema)
    files = QueryFiles(desired.file.directory, f"{where}.queries")
    files.collect(settings.queries)
    files.check(desired.schemas[graph_id])
    provider, provider_flaws = bound_provider(
        f"{where}.embedding_provider", settings.embedding_provider, config.providers.embedding
    )
    blobs, blob_flaws = blob_policy(f"{where}.external_blobs", settings.external_blobs)
    desired.found += [*files.found, *provider_flaws, *blob_flaws]
    graph, of_schema = graph_address(graph_id), schema_address(graph_id)
    for name, source in files.queries.items():
        address = query_address(graph_id, name)
        desired.resources[address] = Resource(digest=source.digest)
        desired.sources[address] = source
        desired.dependencies |= {(address, graph), (address, of_schema)}
    if schema is not None:
        desired.resources[of_schema] = Resource(digest=schema.digest)
        desired.sources[of_schema] = schema
        desired.dependencies.add((of_schema, graph))
    bound = desired.resources.get(provider) if provider is not None else None
    if provider is not None:
        desired.dependencies.add((graph, provider))
    desired.resources[graph] = Resource(
        digest=graph_digest(
            graph_id,
            schema.digest if schema is not None else None,
            {name: source.digest for name, source in files.queries.items()},
            (provider, bound.digest) if provider is not None and bound is not None else None,
            blobs,
        ),
        embedding_provider=provider,
        external_blob_policy=blobs,
    )


def _schema(desired: Desired, graph_id: str, shown: str) -> Source | None:
    where = f"graphs.{graph_id}.schema"
    desired.schemas[graph_id] = None
    try:
        source = read_source(desired.file.directory, shown)
    except UnreadableError as problem:
        desired.found.append(error("schema_file_missing", where, str(problem)))
        return None
    checked = check_schema(source.text, shown)
    if isinstance(checked, BrokenSchema):
        code = "schema_parse_error" if checked.flaw is SchemaFlaw.SYNTAX else "schema_catalog_error"
        desired.found.append(error(code, where, str(checked.problem)))
    else:
        desired.schemas[graph_id] = checked
    return source


def _policies(desired: Desired) -> None:
    config = desired.file.config
    bound: dict[str, list[str]] = {}
    for name, settings in config.policies.items():
        where = f"policies.{name}"
        if not _is_named(desired, where, name):
            continue
        scopes, scope_flaws = scopes_of(where, settings, config.graphs)
        source, file_flaws = read_policy(desired.file.directory, name, settings, scopes, desired.schemas)
        desired.found += [*scope_flaws, *file_flaws]
        bound[name] = scopes
        if source is not None:
            address = policy_address(name)
            desired.resources[address] = Resource(digest=source.digest, applies_to=tuple(scopes))
            desired.sources[address] = source
            desired.dependencies |= {(address, scope) for scope in scopes if scope != CLUSTER_SCOPE}
    desired.found += refuse_bound_twice(bound)


def _pipeline(desired: Desired, name: str, settings: PipelineSettings, read_pipeline: ReadPipeline) -> None:
    where = f"pipelines.{name}"
    if not _is_named(desired, where, name):
        return
    graph_id = settings.graph.removeprefix("graph.")
    is_known = graph_id in desired.file.config.graphs
    if not is_known:
        known = ", ".join(sorted(desired.file.config.graphs)) or "none"
        message = f"there is no graph '{graph_id}'; declared graphs: {known}"
        desired.found.append(error("unknown_pipeline_graph", f"{where}.graph", message))
    try:
        source = read_source(desired.file.directory, settings.file)
        check = read_pipeline(source.text, settings.file)
    except (UnreadableError, OmniGraphError) as problem:
        desired.found.append(error("invalid_pipeline_file", f"{where}.file", str(problem)))
        return
    schema = desired.schemas.get(graph_id)
    if schema is not None:
        try:
            check(schema)
        except OmniGraphError as problem:
            desired.found.append(error("pipeline_schema_mismatch", f"{where}.file", str(problem)))
    address = pipeline_address(name)
    desired.resources[address] = Resource(digest=source.digest, pipeline_graph=graph_address(graph_id))
    desired.sources[address] = source
    if is_known:
        desired.dependencies |= {(address, graph_address(graph_id)), (address, schema_address(graph_id))}
