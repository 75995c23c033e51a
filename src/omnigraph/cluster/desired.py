"""The desired state: a configuration and every file it names, checked and reduced to resources.

Commands call `load_desired`, which collects all problems in one pass. A desired state with an error is never compared
with the recorded state and never applied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec

from omnigraph.api.service.cluster import DeclaredResource, Dependency, is_ok
from omnigraph.cluster import config_files
from omnigraph.cluster.configuration import ConfigFile, PipelineSettings
from omnigraph.cluster.payloads import PayloadStore
from omnigraph.cluster.resources import (
    CLUSTER_SCOPE,
    RESOURCE_ID,
    Address,
    Diagnostic,
    Kind,
    error,
    graph_address,
    provider_address,
    schema_address,
    unservable_reason,
    warning,
)
from omnigraph.cluster.state import Resource, composite_digest, config_digest, embedding_provider_digest
from omnigraph.errors import CompileError, IntegrityError, NotFoundError, OmniGraphError, StorageError
from omnigraph.language.catalog import Catalog
from omnigraph.language.query.parser import parse_queries
from omnigraph.language.schema.compile import accept_schema
from omnigraph.language.schema.parser import parse_recovering
from omnigraph.language.source import DiagnosticSink, SourceText

CheckPipeline: TypeAlias = Callable[[Catalog], None]
ReadPipeline: TypeAlias = Callable[[str, str], CheckPipeline]
"""Reads the text of a pipeline file (the path is for messages) and returns a check against a schema. Both raise an
`OmniGraphError`. Clusters may not import pipelines, so the command line passes this function in."""

_BAD_ID: Final = "a name has letters, digits, _ and -, and begins with a letter or _"


@dataclass
class Desired:
    """The resources that a configuration declares, in the form of the ledger, and the files they come from."""

    file: ConfigFile
    resources: dict[str, Resource] = field(default_factory=dict)
    sources: dict[str, config_files.Source] = field(default_factory=dict)
    dependencies: set[tuple[str, str]] = field(default_factory=set)
    schemas: dict[str, Catalog | None] = field(default_factory=dict)
    findings: list[Diagnostic] = field(default_factory=list)
    config_digest: str = ""
    """Depends on the files only, not on the applied state."""

    @property
    def is_valid(self) -> bool:
        return is_ok(tuple(self.findings))

    @property
    def digests(self) -> dict[str, str]:
        return {address: self.resources[address].digest for address in sorted(self.resources)}

    def add(self, address: str, source: config_files.Source, needed: Iterable[str], **members: Any) -> None:
        """Add the resource that a file declares, with the members beside its digest and the resources it needs."""
        self.resources[address] = Resource(digest=source.digest, **members)
        self.sources[address] = source
        self.dependencies |= {(address, other) for other in needed}

    def declarations(self) -> tuple[DeclaredResource, ...]:
        shown = {address: source.shown for address, source in self.sources.items()}
        return tuple(
            DeclaredResource(address, str(parsed.kind), digest, shown.get(address))
            for address, digest in self.digests.items()
            if (parsed := Address.parse(address)) is not None
        )

    def edges(self) -> tuple[Dependency, ...]:
        return tuple(Dependency(*edge) for edge in sorted(self.dependencies))


def load_desired(file: ConfigFile, read_pipeline: ReadPipeline) -> Desired:
    """The desired state of a configuration, with all its problems in `findings`."""
    desired = Desired(file, findings=list(file.findings))
    _providers(desired)
    for graph_id in file.config.graphs:
        _graph(desired, graph_id)
    _policies(desired)
    for name, settings in file.config.pipelines.items():
        _pipeline(desired, name, settings, read_pipeline)
    desired.config_digest = config_digest(file.config, desired.digests)
    return desired


def keep_unchanged_queries(desired: Desired, before: Mapping[str, Resource], catalog: PayloadStore) -> None:
    """Keep the recorded digest of a stored query when only other queries of its file were edited.

    The digest of a query is that of its whole file. Queries with the same recorded digest come from the same file, so
    one payload is read for each changed file. If that payload can't be read, its queries are stored again.
    """
    edited: dict[tuple[str, str], list[Address]] = {}
    for text in desired.resources.keys() & before.keys():
        address, recorded = Address.parse(text), before[text].digest
        if address is not None and address.kind is Kind.QUERY and recorded != desired.resources[text].digest:
            edited.setdefault((address.graph or "", recorded), []).append(address)
    declared: dict[str, dict[str, object]] = {}
    for (graph_id, recorded), addresses in edited.items():
        try:
            payload = catalog.read(str(addresses[0]), recorded).decode("utf-8")
            applied = frozenset(parse_queries(payload, graph_id).queries)
        except (NotFoundError, IntegrityError, StorageError, CompileError, UnicodeDecodeError):
            continue
        for address in addresses:
            source = desired.sources[str(address)]
            if source.digest not in declared:
                queries = parse_queries(source.text, source.shown).queries
                declared[source.digest] = {query.name.text: query for query in queries}
            if declared[source.digest][address.name] in applied:
                desired.resources[str(address)] = before[str(address)]
    for graph_id in {graph_id for graph_id, _ in edited}:
        graph = graph_address(graph_id)
        digest = composite_digest(desired.resources, graph_id)
        desired.resources[graph] = msgspec.structs.replace(desired.resources[graph], digest=digest)


def default_deny(desired: Desired) -> list[Diagnostic]:
    """A reminder for each graph that allows no external blobs, so that nobody learns it from a refused write."""
    message = "new external blob references are denied; allow a base if some are needed"
    return [
        warning("external_blob_ingress_default_deny", f"graphs.{graph_id}.external_blobs", message)
        for graph_id in desired.file.config.graphs
        if desired.resources[graph_address(graph_id)].external_blob_policy is None
    ]


def _is_named(desired: Desired, where: str, name: str) -> bool:
    if RESOURCE_ID.fullmatch(name) is None:
        desired.findings.append(error("invalid_resource_id", where, _BAD_ID))
        return False
    return True


def _providers(desired: Desired) -> None:
    for name, profile in desired.file.config.providers.embedding.items():
        where = f"providers.embedding.{name}"
        if _is_named(desired, where, name):
            desired.findings += config_files.check_profile(where, profile)
            desired.resources[provider_address(name)] = Resource(
                digest=embedding_provider_digest(profile), embedding_profile=profile
            )


def _graph(desired: Desired, graph_id: str) -> None:
    config = desired.file.config
    settings, where = config.graphs[graph_id], f"graphs.{graph_id}"
    if not _is_named(desired, where, graph_id):
        return
    if (flaw := unservable_reason(graph_id)) is not None:
        desired.findings.append(error("unservable_graph_id", where, flaw))
    schema = _schema(desired, graph_id, settings.schema)
    files = config_files.QueryFiles(desired.file.directory, f"{where}.queries")
    files.collect(settings.queries)
    files.check(desired.schemas[graph_id])
    provider, provider_flaws = config_files.resolve_provider(
        f"{where}.embedding_provider", settings.embedding_provider, config.providers.embedding
    )
    blobs, blob_flaws = config_files.blob_policy(f"{where}.external_blobs", settings.external_blobs)
    desired.findings += [*files.findings, *provider_flaws, *blob_flaws]
    graph, of_schema = graph_address(graph_id), schema_address(graph_id)
    for name, source in files.queries.items():
        desired.add(str(Address(Kind.QUERY, name, graph_id)), source, [graph, of_schema])
    if schema is not None:
        desired.add(of_schema, schema, [graph])
    if provider is not None:
        desired.dependencies.add((graph, provider))
    declared = Resource(digest="", embedding_provider=provider, external_blob_policy=blobs)
    digest = composite_digest({**desired.resources, graph: declared}, graph_id)
    desired.resources[graph] = msgspec.structs.replace(declared, digest=digest)


def _schema(desired: Desired, graph_id: str, shown: str) -> config_files.Source | None:
    where = f"graphs.{graph_id}.schema"
    desired.schemas[graph_id] = None
    if not shown:
        return None
    try:
        source = config_files.read_source(desired.file.directory, shown)
    except config_files.UnreadableError as problem:
        desired.findings.append(error("schema_file_missing", where, str(problem)))
        return None
    code = "schema_parse_error"
    try:
        sink = DiagnosticSink(SourceText(source.text, shown))
        parse_recovering(sink)
        sink.raise_if_any()
        code = "schema_catalog_error"
        desired.schemas[graph_id] = accept_schema(source.text, shown)
    except CompileError as problem:
        desired.findings.append(error(code, where, str(problem)))
    return source


def _policies(desired: Desired) -> None:
    config = desired.file.config
    bound: dict[str, list[str]] = {}
    for name, settings in config.policies.items():
        where = f"policies.{name}"
        if not _is_named(desired, where, name):
            continue
        scopes, scope_flaws = config_files.scopes_of(where, settings, config.graphs)
        source, file_flaws = config_files.read_policy(desired.file.directory, name, settings, scopes, desired.schemas)
        desired.findings += [*scope_flaws, *file_flaws]
        bound[name] = scopes
        if source is not None:
            graphs = [scope for scope in scopes if scope != CLUSTER_SCOPE]
            desired.add(str(Address(Kind.POLICY, name)), source, graphs, applies_to=tuple(scopes))
    desired.findings += config_files.check_single_bindings(bound)


def _pipeline(desired: Desired, name: str, settings: PipelineSettings, read_pipeline: ReadPipeline) -> None:
    where = f"pipelines.{name}"
    if not _is_named(desired, where, name):
        return
    graph_id = settings.graph.removeprefix("graph.")
    is_known = graph_id in desired.file.config.graphs
    if not is_known:
        graph_ids = ", ".join(sorted(desired.file.config.graphs)) or "none"
        message = f"there is no graph '{graph_id}'; declared graphs: {graph_ids}"
        desired.findings.append(error("unknown_pipeline_graph", f"{where}.graph", message))
    if not settings.file:
        return
    try:
        source = config_files.read_source(desired.file.directory, settings.file)
        check = read_pipeline(source.text, settings.file)
    except (config_files.UnreadableError, OmniGraphError) as problem:
        desired.findings.append(error("invalid_pipeline_file", f"{where}.file", str(problem)))
        return
    schema = desired.schemas.get(graph_id)
    if schema is not None:
        try:
            check(schema)
        except OmniGraphError as problem:
            desired.findings.append(error("pipeline_schema_mismatch", f"{where}.file", str(problem)))
    needed = [graph_address(graph_id), schema_address(graph_id)] if is_known else []
    desired.add(str(Address(Kind.PIPELINE, name)), source, needed, pipeline_graph=graph_address(graph_id))
