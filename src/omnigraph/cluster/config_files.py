"""The files that a configuration names: queries, policies and their tests, and the settings of providers and blobs.

`desired` calls these checks. Every file is read once, and compared again before it is applied. Keys of providers are
never read here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

from msgspec import UnsetType

from omnigraph.cluster.configuration import ExternalBlobs, NamedQuery, PolicySettings
from omnigraph.cluster.resources import (
    CLUSTER_SCOPE,
    RESOURCE_ID,
    Address,
    ClusterError,
    Diagnostic,
    Kind,
    error,
    graph_address,
    provider_address,
    warning,
)
from omnigraph.cluster.state import BlobBase, BlobPolicy, file_digest
from omnigraph.embeddings.configuration import EmbeddingProfile, ProviderKind, provider_kind
from omnigraph.engine.write.external_blobs import AllowedBase, ExternalBlobPolicy, Scope, normal_base
from omnigraph.errors import BadRequestError, CompileError, EmbeddingError, OmniGraphError
from omnigraph.language.catalog import Catalog
from omnigraph.language.query.compile import compile_queries
from omnigraph.language.query.parser import declared_queries
from omnigraph.policy.explanation import read_cases, run_cases
from omnigraph.policy.gate import PolicyGate, load_gate


@dataclass(frozen=True)
class Source:
    """The content of a file. `shown` is its path as the configuration has it."""

    path: Path
    shown: str
    data: bytes = field(repr=False)

    @cached_property
    def digest(self) -> str:
        return file_digest(self.data)

    @cached_property
    def text(self) -> str:
        return self.data.decode("utf-8")

    def refuse_changed(self, address: str) -> None:
        """Refuse a file that was edited since it was read: the reviewed text is the one that is applied, and its author
        must not believe that the edit was."""
        try:
            unchanged = self.path.read_bytes() == self.data
        except OSError:
            unchanged = False
        if not unchanged:
            message = f"{self.shown} was changed while it was applied; run it again"
            raise ClusterError.of("resource_content_changed", address, message)


class UnreadableError(Exception):
    """A file can't be read, for this reason."""


def read_source(directory: Path, shown: str) -> Source:
    """Raises `UnreadableError`, also when the file is not UTF-8 text."""
    path = directory / Path(shown).expanduser()
    try:
        source = Source(path, shown, path.read_bytes())
        _ = source.text
    except OSError as problem:
        raise UnreadableError(f"{shown}: {problem.strerror or problem}") from None
    except UnicodeDecodeError:
        raise UnreadableError(f"{shown} is not UTF-8 text") from None
    except ValueError as problem:
        raise UnreadableError(f"{shown!r} is not the name of a file: {problem}") from None
    return source


@dataclass
class QueryFiles:
    """Collects the queries of one graph. `where` is the key of the configuration that names them."""

    directory: Path
    where: str
    queries: dict[str, Source] = field(default_factory=dict)
    findings: list[Diagnostic] = field(default_factory=list)

    def collect(self, declared: str | tuple[str, ...] | dict[str, NamedQuery] | None) -> None:
        if isinstance(declared, dict):
            for name, entry in declared.items():
                self._add_query(name, entry.file)
            return
        paths = (declared,) if isinstance(declared, str) else declared or ()
        for file in dict.fromkeys(file for path in paths for file in self._files(path)):
            self._whole(file)

    def check(self, schema: Catalog | None) -> None:
        """Check every query against the schema of its graph; None when that schema is broken."""
        for name, source in self.queries.items():
            path = f"{self.where}.{name}"
            if schema is None:
                message = "it is not checked, because the schema of its graph is not valid"
                self.findings.append(warning("query_typecheck_skipped", path, message))
                continue
            try:
                _ = compile_queries(source.text, schema, source.shown).query(name).plan
            except BadRequestError as problem:
                self.findings.append(error("query_typecheck_error", path, str(problem)))

    def _files(self, path: str) -> Iterator[str]:
        full = self.directory / Path(path).expanduser()
        if not os.path.isdir(full):  # unlike `Path.is_dir`, this accepts texts that can't be file names
            yield path
            return
        try:
            names = sorted(entry.name for entry in full.iterdir() if entry.suffix == ".gq" and entry.is_file())
        except OSError as problem:
            message = f"{path}: {problem.strerror or problem}"
            self.findings.append(error("query_dir_unreadable", self.where, message))
            return
        if not names:
            self.findings.append(warning("query_dir_empty", self.where, f"there is no .gq file in {path}"))
        yield from (str(Path(path) / name) for name in names)

    def _whole(self, file: str) -> None:
        """Every query of a file."""
        if (contents := self._read(file, self.where)) is None:
            return
        source, declared = contents
        for name in declared:
            if name in self.queries:
                message = f"{source.shown} declares it, and {self.queries[name].shown} declares it too"
                self.findings.append(error("duplicate_query_name", f"{self.where}.{name}", message))
            self.queries.setdefault(name, source)

    def _add_query(self, name: str, file: str) -> None:
        """One query of a file."""
        where = f"{self.where}.{name}"
        if RESOURCE_ID.fullmatch(name) is None:
            message = "a name has letters, digits, _ and -, and begins with a letter or _"
            self.findings.append(error("invalid_resource_id", where, message))
            return
        contents = self._read(file, f"{where}.file") if file else None
        if contents is not None and name in contents[1]:
            self.queries[name] = contents[0]
        elif contents is not None:
            message = f"{file} does not declare a query '{name}'; it declares {', '.join(contents[1]) or 'none'}"
            self.findings.append(error("query_key_mismatch", f"{where}.file", message))

    def _read(self, file: str, where: str) -> tuple[Source, list[str]] | None:
        """A file and the names of its queries; None, with a finding, when it can't be read."""
        try:
            source = read_source(self.directory, file)
            return source, [query.name.text for query in declared_queries(source.text, source.shown)]
        except UnreadableError as problem:
            self.findings.append(error("query_file_missing", where, str(problem)))
        except CompileError as problem:
            self.findings.append(error("query_parse_error", where, str(problem)))
        return None


def scopes_of(where: str, policy: PolicySettings, graphs: Mapping[str, object]) -> tuple[list[str], list[Diagnostic]]:
    """The bindings of a policy, normalised and sorted."""
    findings: list[Diagnostic] = []
    scopes: set[str] = set()
    for index, named in enumerate(policy.applies_to):
        at = f"{where}.applies_to[{index}]"
        if named == CLUSTER_SCOPE:
            scopes.add(named)
            continue
        address = Address.parse(named)
        if "." in named and (address is None or address.kind is not Kind.GRAPH):
            message = f"'{named}' is not a graph; write cluster, graph.<id> or the id of a graph"
            findings.append(error("wrong_kind_reference", at, message))
            continue
        graph_id = named if address is None else address.name
        if graph_id not in graphs:
            message = f"there is no graph '{graph_id}'; declared graphs: {', '.join(sorted(graphs)) or 'none'}"
            findings.append(error("dangling_graph_reference", at, message))
            continue
        scopes.add(graph_address(graph_id))
    if not policy.applies_to:
        message = "it has no binding; name cluster, or at least one graph"
        findings.append(error("policy_missing_applies_to", f"{where}.applies_to", message))
    if CLUSTER_SCOPE in scopes and len(scopes) > 1:
        message = "rules are for the server (cluster) or for graphs, not for both; split the file"
        findings.append(error("policy_mixed_binding_kinds", f"{where}.applies_to", message))
    return sorted(scopes), findings


def check_single_bindings(bound: Mapping[str, list[str]]) -> Iterator[Diagnostic]:
    """Check that no scope has two policies. `bound` are the scopes of each policy."""
    owners: dict[str, str] = {}
    for name, scopes in bound.items():
        for scope in scopes:
            owner = owners.setdefault(scope, name)
            if owner != name:
                message = f"'{scope}' is already bound by policy '{owner}'; put the rules into one file"
                yield error("duplicate_policy_binding", f"policies.{name}.applies_to", message)


def read_policy(
    directory: Path, name: str, policy: PolicySettings, scopes: list[str], schemas: Mapping[str, Catalog | None]
) -> tuple[Source | None, list[Diagnostic]]:
    """The file of a policy, checked for its bindings, with its tests run."""
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
                gate = gate.bind_schema(schema)
        except OmniGraphError as problem:
            of = f" (for {scope})" if len(scopes) > 1 else ""
            return source, [error("policy_invalid", f"{where}.file", f"{problem}{of}")]
        gates.append(gate)
    return source, _run_tests(directory, where, policy.tests, gates)


def _run_tests(directory: Path, where: str, tests: str | None, gates: list[PolicyGate]) -> list[Diagnostic]:
    if tests is None:
        return []
    try:
        cases = read_cases(read_source(directory, tests).text, tests)
    except UnreadableError as problem:
        return [error("policy_file_missing", f"{where}.tests", str(problem))]
    except OmniGraphError as problem:
        return [error("policy_tests_invalid", f"{where}.tests", str(problem))]
    try:
        report = run_cases(gates[0], cases)  # decisions don't depend on the graph, so one gate is enough
    except OmniGraphError as problem:
        return [error("policy_tests_failed", f"{where}.tests", str(problem))]
    return [] if report.passed else [error("policy_tests_failed", f"{where}.tests", "\n".join(report.lines()))]


_VARIABLE: Final = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")


def check_profile(where: str, profile: EmbeddingProfile) -> Iterator[Diagnostic]:
    """The mistakes in a profile. No message shows a key."""
    kind: ProviderKind | None = None
    try:
        kind = provider_kind(profile.kind)
    except EmbeddingError as problem:
        yield error("invalid_embedding_provider", where, str(problem))
    if profile.api_key is not None and _VARIABLE.fullmatch(profile.api_key) is None:
        message = "a key does not belong in the file; name the variable that holds it, as in ${OPENAI_API_KEY}"
        yield error("embedding_api_key_inline", f"{where}.api_key", message)
    if profile.api_key is None and kind is not None and kind.needs_key:
        message = f"the {kind} provider needs the variable that holds its key, as in ${{OPENAI_API_KEY}}"
        yield error("embedding_api_key_required", f"{where}.api_key", message)


def resolve_provider(
    where: str, named: str | None, profiles: Mapping[str, EmbeddingProfile]
) -> tuple[str | None, list[Diagnostic]]:
    """The address of the provider that a graph refers to, by name or by address."""
    if named is None:
        return None, []
    address = Address.parse(named)
    if "." in named and (address is None or address.kind is not Kind.EMBEDDING_PROVIDER):
        message = f"'{named}' is not an embedding provider; write its name, or provider.embedding.<name>"
        return None, [error("wrong_kind_reference", where, message)]
    name = named if address is None else address.name
    if name not in profiles:
        names = ", ".join(sorted(profiles)) or "none"
        message = f"there is no embedding provider '{name}'; declared: {names}"
        return None, [error("dangling_embedding_provider_reference", where, message)]
    return provider_address(name), []


def blob_policy(where: str, declared: ExternalBlobs | UnsetType) -> tuple[BlobPolicy | None, list[Diagnostic]]:
    """The external blob policy of a graph, None when none are allowed, and its mistakes."""
    if isinstance(declared, UnsetType):
        return None, []
    findings: list[Diagnostic] = []
    bases: list[AllowedBase] = []
    for index, written in enumerate(declared.allow):
        base = AllowedBase(written.base, Scope(written.scope))
        try:
            bases.append(AllowedBase(normal_base(base), base.scope))
        except OmniGraphError as problem:
            findings.append(error("invalid_external_blob_base", f"{where}.allow[{index}].base", str(problem)))
    try:
        ExternalBlobPolicy(bases)
    except OmniGraphError as problem:
        findings.append(error("invalid_external_blob_policy", f"{where}.allow", str(problem)))
    return BlobPolicy("allow", tuple(BlobBase(base.uri, base.scope) for base in bases)), findings
