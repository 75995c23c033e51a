"""Reads `cluster.yaml`: from its text to a `ClusterConfig`, with every mistake in its shape and its header.

`survey_config` goes on after a mistake, so that `cluster validate` can report it together with missing files. Every
other command calls `read_config`, which refuses a configuration with any mistake. No message quotes a value: somebody
may have written a key where only the name of a variable belongs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec import UNSET, Struct, UnsetType

from omnigraph.cluster.resources import ClusterError, Diagnostic, error
from omnigraph.embeddings.configuration import EmbeddingProfile
from omnigraph.engine.write.external_blobs import Scope
from omnigraph.errors import CompileError
from omnigraph.yaml_documents import Finding, Flaw, Value, YamlDocument

CONFIG_FILE: Final = "cluster.yaml"
CONFIG_VERSION: Final = 1


class Metadata(Struct, frozen=True):
    name: str | None = None


class StateSettings(Struct, frozen=True):
    backend: str | None = None
    lock: bool = True


class Providers(Struct, frozen=True):
    embedding: dict[str, EmbeddingProfile] = {}


class NamedQuery(Struct, frozen=True):
    """A query in the map form: the file that declares it."""

    file: str


class DeclaredBase(Struct, frozen=True):
    base: str
    scope: str


class ExternalBlobs(Struct, frozen=True):
    allow: tuple[DeclaredBase, ...]


class GraphSettings(Struct, frozen=True):
    """`queries` is a path, a list of paths, or files by query name. Without `external_blobs` none are allowed."""

    schema: str
    queries: str | tuple[str, ...] | dict[str, NamedQuery] | None = None
    embedding_provider: str | None = None
    external_blobs: ExternalBlobs | UnsetType = UNSET


class PolicySettings(Struct, frozen=True):
    file: str
    tests: str | None = None
    applies_to: tuple[str, ...] = ()


class PipelineSettings(Struct, frozen=True):
    file: str
    graph: str


class ClusterConfig(Struct, frozen=True, kw_only=True):
    version: int
    metadata: Metadata = Metadata()
    storage: str | None = None
    state: StateSettings = StateSettings()
    providers: Providers = Providers()
    graphs: dict[str, GraphSettings] = {}
    policies: dict[str, PolicySettings] = {}
    pipelines: dict[str, PipelineSettings] = {}


def storage_root(source: str) -> str:
    """The storage root: a value with `://` itself, else the `storage:` of that configuration directory."""
    if "://" in source:
        return source
    directory = config_directory(source)
    # A server needs no other part of the configuration, so mistakes elsewhere don't matter.
    root = read_root(directory / CONFIG_FILE)
    value = root.find("storage")
    named = value.text().value if value is not None else None
    if value is not None and root.document.findings:
        raise ClusterError.of("invalid_storage_root", "storage", "storage must be a text")
    return root_below(directory, named)


def absolute_directory(source: str) -> str:
    """The path of a configuration directory in reports. The directory need not exist."""
    return str(Path(source).expanduser().absolute())


def config_directory(source: str) -> Path:
    directory = Path(absolute_directory(source))
    if not directory.is_dir():
        raise ClusterError.of("config_dir_not_found", str(directory), "it is not a directory")
    return directory


def root_below(directory: Path, named: str | None) -> str:
    """The storage root according to `storage:`; without it, the configuration directory itself."""
    if named is None:
        return str(directory)
    root = named.strip()
    if root not in ("/", "file:///"):
        root = root.rstrip("/")
    scheme, is_uri, place = root.partition("://")
    if not root or root.endswith(":") or (is_uri and scheme != "file" and not place.partition("/")[0]):
        raise ClusterError.of("invalid_storage_root", "storage", "it must be a location: a path, or s3://bucket/prefix")
    return root if "://" in root else str(directory / Path(root).expanduser())


def read_text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except FileNotFoundError:
        reason = f"there is none in {file.parent}; write one, or name the directory that has it"
    except OSError as error:
        reason = f"{file}: {error.strerror or error}"
    except UnicodeDecodeError:
        reason = f"{file} is not UTF-8 text"
    raise ClusterError.of("cluster_config_read_error", CONFIG_FILE, reason)


RESERVED: Final = ("apply", "env_file", "embeddings", "ui", "aliases", "bindings")
_TOP: Final = ("version", "metadata", "storage", "state", "providers", "graphs", "policies", "pipelines")
_GRAPH: Final = ("schema", "queries", "embedding_provider", "external_blobs")


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A configuration that was read; the files it names were not. With `findings`, parts of `config` are placeholders:
    an empty path belongs to a refused value."""

    directory: Path
    config: ClusterConfig
    findings: tuple[Diagnostic, ...] = ()

    @property
    def file(self) -> Path:
        return self.directory / CONFIG_FILE

    @property
    def storage_root(self) -> str:
        return root_below(self.directory, self.config.storage)


def read_config(source: str) -> ConfigFile:
    """The configuration of a directory. Raises `ClusterError` with every mistake in its text."""
    file = survey_config(source)
    if file.findings:
        raise ClusterError(file.findings)
    return file


_INVALID: Final = "invalid_cluster_yaml"
_CODES: Final = dict.fromkeys(Flaw, _INVALID) | {Flaw.REPEATED_KEY: "duplicate_yaml_key"}


def survey_config(source: str) -> ConfigFile:
    """The configuration of a directory, as far as it can be understood. Raises `ClusterError` when it is not YAML."""
    directory = config_directory(source)
    return survey_root(directory, read_root(directory / CONFIG_FILE))


def survey_root(directory: Path, root: Value) -> ConfigFile:
    """The configuration in a mapping. The findings about its shape are also in its document, with positions."""
    config = _config(root)
    shape = [shape_finding(finding) for finding in root.document.findings]
    return ConfigFile(directory, config, (*_refused_keys(root), *shape, *_header(config, shape)))


def read_root(file: Path) -> Value:
    """The mapping of a `cluster.yaml`. Raises `ClusterError` when it is not YAML, or not a mapping."""
    return parse_root(read_text(file))


def config_document(text: str) -> YamlDocument:
    return YamlDocument(text, codes=_CODES, name=CONFIG_FILE, shows_values=False, empty_is_absent=True)


def parse_root(text: str) -> Value:
    """As `read_root`, of a text."""
    document = config_document(text)
    try:
        root = document.root()
    except CompileError as problem:
        raise ClusterError([shape_finding(Finding(_INVALID, "", flaw)) for flaw in problem.diagnostics]) from None
    if not root.is_mapping or any(not isinstance(key.value, str) for key, _ in root.node.value):
        raise ClusterError.of(_INVALID, CONFIG_FILE, f"{CONFIG_FILE} must hold keys and values")
    return root


def shape_finding(finding: Finding) -> Diagnostic:
    """A finding about the shape of the text, as reports have it."""
    findings = finding.diagnostic
    line = f"line {findings.span.line}: " if findings.span is not None else ""
    if finding.code == _CODES[Flaw.REPEATED_KEY]:
        return error("duplicate_yaml_key", finding.key, f"{line}the key is given twice; keep one of them")
    remedy = f"; {findings.suggestion}" if findings.suggestion is not None else ""
    return error("invalid_cluster_yaml", CONFIG_FILE, f"{line}{findings.message}{remedy}")


def _refused_keys(root: Value) -> list[Diagnostic]:
    refused = []
    for key, value in root.entries_quietly():
        if key in RESERVED:
            line = root.document.source.span(value.at.start, value.at.end).line
            message = f"line {line}: the key is reserved and has no meaning yet; remove it"
            refused.append(error("future_phase_field", key, message))
    graphs = root.find("graphs")
    for name, graph in graphs.entries_quietly() if graphs is not None else ():
        if any(key == "streaming" for key, _ in graph.entries_quietly()):
            message = "graphs are no longer declared as streaming: writes need no declaration; remove the key"
            refused.append(error("removed_streaming_declaration", f"graphs.{name}.streaming", message))
    return refused


def _header(config: ClusterConfig, noted: list[Diagnostic]) -> list[Diagnostic]:
    """The mistakes in the header. `noted` are those in the shape: an unreadable version is 0 and reported there."""
    findings: list[Diagnostic] = []
    if config.version != CONFIG_VERSION and (config.version or not noted):
        message = f"it is {config.version}, and this omnigraph reads version {CONFIG_VERSION}"
        findings.append(error("unsupported_cluster_config_version", "version", message))
    if config.metadata.name is not None and not config.metadata.name.strip():
        findings.append(error("empty_metadata_name", "metadata.name", "it is blank; give a name, or leave it out"))
    if config.state.backend not in (None, "cluster"):
        message = f"'{config.state.backend}' is not a backend; the ledger is stored in the cluster: write cluster"
        findings.append(error("unsupported_state_backend", "state.backend", message))
    try:
        root_below(Path(), config.storage)
    except ClusterError as problem:
        findings += problem.diagnostics
    return findings


def _config(root: Value) -> ClusterConfig:
    top = root.members(_TOP, required=("version",), ignored=RESERVED)
    metadata = _members(top.get("metadata"), ("name",))
    state = _members(top.get("state"), ("backend", "lock"))
    providers = _members(top.get("providers"), ("embedding",))
    return ClusterConfig(
        version=top["version"].whole_number() if "version" in top else 0,
        metadata=Metadata(_text(metadata, "name")),
        storage=_text(top, "storage"),
        state=StateSettings(_text(state, "backend"), state["lock"].flag() if "lock" in state else True),
        providers=Providers({name: _profile(value) for name, value in _entries(providers, "embedding")}),
        graphs={name: _graph(value) for name, value in _entries(top, "graphs")},
        policies={name: _policy(value) for name, value in _entries(top, "policies")},
        pipelines={name: _pipeline(value) for name, value in _entries(top, "pipelines")},
    )


def _members(value: Value | None, names: tuple[str, ...]) -> dict[str, Value]:
    return value.members(names) if value is not None else {}


def _entries(members: dict[str, Value], name: str) -> list[tuple[str, Value]]:
    return [(key.value, value) for key, value in members[name].entries()] if name in members else []


def _text(members: dict[str, Value], name: str) -> str | None:
    return members[name].text().value if name in members else None


def _path(value: Value) -> str:
    """The path of a file. It is empty only after a finding."""
    count = len(value.document.findings)
    path = value.text().value
    if not path and len(value.document.findings) == count:
        value.report(_INVALID, f"{value.name} is empty; name a file")
    return path


def _path_of(members: dict[str, Value], name: str) -> str:
    return _path(members[name]) if name in members else ""


def _profile(value: Value) -> EmbeddingProfile:
    members = value.members(("kind", "provider", "base_url", "model", "api_key"))
    if "kind" in members and "provider" in members:
        members["provider"].report(_INVALID, f"{value.name}: provider is another name for kind; give one of them")
    texts = {key: _text(members, key) for key in ("base_url", "model", "api_key")}
    return EmbeddingProfile(kind=_text(members, "kind" if "kind" in members else "provider"), **texts)


def _graph(value: Value) -> GraphSettings:
    members = value.members(_GRAPH, required=("schema",), ignored=("streaming",))
    return GraphSettings(
        _path_of(members, "schema"),
        _queries(members["queries"]) if "queries" in members else None,
        _text(members, "embedding_provider"),
        _external_blobs(members["external_blobs"]) if "external_blobs" in members else UNSET,
    )


def _queries(value: Value) -> str | tuple[str, ...] | dict[str, NamedQuery] | None:
    if value.is_mapping:
        files = ((key.value, entry.members(("file",), required=("file",))) for key, entry in value.entries())
        return {name: NamedQuery(_path_of(members, "file")) for name, members in files}
    if value.is_list:
        return tuple(path for item in value.items() if (path := _path(item)))
    return _path(value) or None


def _external_blobs(value: Value) -> ExternalBlobs | UnsetType:
    members = value.members(("allow",))
    bases = []
    for item in members["allow"].items() if "allow" in members else ():
        base = item.members(("base", "scope"), required=("base", "scope"))
        scope = base["scope"].choice(Scope) if "scope" in base else Scope.SERVER_SAFE
        bases.append(DeclaredBase(_text(base, "base") or "", scope.value))
    return ExternalBlobs(tuple(bases)) if bases else UNSET


def _policy(value: Value) -> PolicySettings:
    members = value.members(("file", "tests", "applies_to"), required=("file",))
    scopes = members["applies_to"].items() if "applies_to" in members else []
    file, tests = _path_of(members, "file"), _path_of(members, "tests") or None
    return PolicySettings(file, tests, tuple(scope.text().value for scope in scopes))


def _pipeline(value: Value) -> PipelineSettings:
    members = value.members(("file", "graph"), required=("file", "graph"))
    return PipelineSettings(_path_of(members, "file"), _text(members, "graph") or "")
