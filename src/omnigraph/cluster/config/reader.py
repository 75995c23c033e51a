"""From the text of `cluster.yaml` to its model, with everything that is wrong about its shape and its header.

`survey_config` goes on after a flaw, so that one validation can report it together with the files that are missing.
Every other command uses `read_config`, which refuses a configuration with any flaw.

Where the storage root of a cluster is: given as a URI, or by the `storage:` of a configuration directory.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml
from msgspec import UNSET, UnsetType

from omnigraph.cluster.config.model import CONFIG_FILE as CONFIG_FILE
from omnigraph.cluster.config.model import (
    CONFIG_VERSION,
    ClusterConfig,
    DeclaredBase,
    ExternalBlobs,
    GraphSettings,
    Metadata,
    NamedQuery,
    PipelineSettings,
    PolicySettings,
    Providers,
    StateSettings,
    Values,
    compose,
    is_empty,
    repeated_keys,
)
from omnigraph.cluster.resources import ClusterError, Diagnostic, error
from omnigraph.embeddings.configuration import EmbeddingProfile
from omnigraph.engine.write.external_blobs import Scope


def storage_root(source: str) -> str:
    """A value with `://` is the root itself; any other is a directory whose `cluster.yaml` may name it."""
    if "://" in source:
        return source
    directory = config_directory(source)
    return root_below(directory, _storage_of(directory / CONFIG_FILE))


def absolute_directory(source: str) -> str:
    """A configuration directory as reports name it, whether it exists or not."""
    return str(Path(source).expanduser().absolute())


def config_directory(source: str) -> Path:
    directory = Path(absolute_directory(source))
    if not directory.is_dir():
        raise ClusterError.of("config_dir_not_found", str(directory), "it is no directory")
    return directory


def root_below(directory: Path, named: str | None) -> str:
    """The root that the `storage:` of a configuration names; without one it is the directory itself."""
    if named is None:
        return str(directory)
    root = named.strip()
    if root not in ("/", "file:///"):
        root = root.rstrip("/")
    scheme, is_uri, place = root.partition("://")
    if not root or root.endswith(":") or (is_uri and scheme != "file" and not place.partition("/")[0]):
        raise ClusterError.of(
            "invalid_storage_root", "storage", "it has to name a place: a path, or s3://bucket/prefix"
        )
    return root if "://" in root else str(directory / Path(root).expanduser())


def read_text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except FileNotFoundError:
        reason = f"there is none in {file.parent}; write one, or name the directory that has it"
    except OSError as error:
        reason = f"{file}: {error.strerror or error}"
    except UnicodeDecodeError:
        reason = f"{file}: it is no UTF-8 text"
    raise ClusterError.of("cluster_config_read_error", CONFIG_FILE, reason)


def _storage_of(file: Path) -> str | None:
    """Nothing else of the configuration counts here: a server needs no more of it, however old or new it is."""
    for key, value in compose(read_text(file)).value:
        if isinstance(key, yaml.ScalarNode) and key.value == "storage" and not is_empty(value):
            if not isinstance(value, yaml.ScalarNode) or not value.tag.endswith(":str"):
                raise ClusterError.of("invalid_storage_root", "storage", "it has to be text")
            return str(value.value)
    return None


RESERVED: Final = ("apply", "env_file", "embeddings", "ui", "aliases", "bindings")
_TOP: Final = ("version", "metadata", "storage", "state", "providers", "graphs", "policies", "pipelines")
_GRAPH: Final = ("schema", "queries", "embedding_provider", "external_blobs")


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A configuration that could be read. The files it refers to were not looked at. With anything in `found`, parts
    of `config` are placeholders: an empty path belongs to a value that was refused."""

    directory: Path
    config: ClusterConfig
    found: tuple[Diagnostic, ...] = ()

    @property
    def file(self) -> Path:
        return self.directory / CONFIG_FILE

    @property
    def storage_root(self) -> str:
        return root_below(self.directory, self.config.storage)


def read_config(source: str) -> ConfigFile:
    """The configuration of a directory. Raises `ClusterError` with everything that is wrong with its text."""
    file = survey_config(source)
    if file.found:
        raise ClusterError(file.found)
    return file


def survey_config(source: str) -> ConfigFile:
    """The configuration of a directory, as far as it can be understood. Raises `ClusterError` when it is not YAML."""
    directory = config_directory(source)
    root = compose(read_text(directory / CONFIG_FILE))
    values = Values()
    config = _config(values, root)
    return ConfigFile(directory, config, (*_refused_keys(root), *values.found, *_header(config, values.found)))


def _refused_keys(root: yaml.MappingNode) -> list[Diagnostic]:
    found = [
        error("duplicate_yaml_key", dotted, f"line {line}: the key is given twice; keep one of them")
        for dotted, line in repeated_keys(root)
    ]
    for key, value in root.value:
        if key.value in RESERVED:
            message = f"line {key.start_mark.line + 1}: the key is reserved and means nothing yet; remove it"
            found.append(error("future_phase_field", key.value, message))
        if key.value == "graphs" and isinstance(value, yaml.MappingNode):
            for name, graph in value.value:
                if isinstance(graph, yaml.MappingNode) and any(k.value == "streaming" for k, _ in graph.value):
                    path = f"graphs.{name.value}.streaming"
                    message = "graphs are not declared as streaming any more: writes need no declaration; remove it"
                    found.append(error("removed_streaming_declaration", path, message))
    return found


def _header(config: ClusterConfig, noted: list[Diagnostic]) -> list[Diagnostic]:
    """`noted` is what is wrong with the shape: a version that could not be read is 0, and said there."""
    found: list[Diagnostic] = []
    if config.version != CONFIG_VERSION and (config.version or not noted):
        message = f"it is {config.version}, and this omnigraph reads version {CONFIG_VERSION}"
        found.append(error("unsupported_cluster_config_version", "version", message))
    if config.metadata.name is not None and not config.metadata.name.strip():
        found.append(error("empty_metadata_name", "metadata.name", "it is blank; give a name, or leave it out"))
    if config.state.backend not in (None, "cluster"):
        message = f"'{config.state.backend}' is no backend; the ledger is kept in the cluster: write cluster"
        found.append(error("unsupported_state_backend", "state.backend", message))
    try:
        root_below(Path(), config.storage)
    except ClusterError as problem:
        found += problem.diagnostics
    return found


def _config(values: Values, root: yaml.MappingNode) -> ClusterConfig:
    top = values.members(root, CONFIG_FILE, _TOP, required=("version",), refused=RESERVED)
    metadata = values.members(top.get("metadata"), "metadata", ("name",))
    state = values.members(top.get("state"), "state", ("backend", "lock"))
    providers = values.members(top.get("providers"), "providers", ("embedding",))
    profiles = values.entries(providers.get("embedding"), "providers.embedding")
    graphs = values.entries(top.get("graphs"), "graphs")
    policies = values.entries(top.get("policies"), "policies")
    pipelines = values.entries(top.get("pipelines"), "pipelines")
    return ClusterConfig(
        version=values.number(top["version"], "version") if "version" in top else 0,
        metadata=Metadata(values.optional_text(metadata, "name", "metadata")),
        storage=values.optional_text(top, "storage", CONFIG_FILE),
        state=StateSettings(
            values.optional_text(state, "backend", "state"),
            values.flag(state["lock"], "state.lock") if "lock" in state else True,
        ),
        providers=Providers({name: _profile(values, name, node) for name, node in profiles}),
        graphs={name: _graph(values, f"graphs.{name}", node) for name, node in graphs},
        policies={name: _policy(values, f"policies.{name}", node) for name, node in policies},
        pipelines={name: _pipeline(values, f"pipelines.{name}", node) for name, node in pipelines},
    )


def _profile(values: Values, name: str, node: yaml.Node) -> EmbeddingProfile:
    where = f"providers.embedding.{name}"
    found = values.members(node, where, ("kind", "provider", "base_url", "model", "api_key"))
    if "kind" in found and "provider" in found:
        values.complain(found["provider"], f"{where}: provider is another name for kind; give one of them")
    said = {key: values.optional_text(found, key, where) for key in ("base_url", "model", "api_key")}
    kind = values.optional_text(found, "kind" if "kind" in found else "provider", where)
    return EmbeddingProfile(kind=kind, **said)


def _graph(values: Values, where: str, node: yaml.Node) -> GraphSettings:
    found = values.members(node, where, _GRAPH, required=("schema",), refused=("streaming",))
    return GraphSettings(
        values.path(found, "schema", where),
        _queries(values, f"{where}.queries", found.get("queries")),
        values.optional_text(found, "embedding_provider", where),
        _external_blobs(values, f"{where}.external_blobs", found.get("external_blobs")),
    )


def _queries(
    values: Values, where: str, node: yaml.Node | None
) -> str | tuple[str, ...] | dict[str, NamedQuery] | None:
    if node is None:
        return None
    if isinstance(node, yaml.MappingNode):
        return {name: _named_query(values, f"{where}.{name}", entry) for name, entry in values.entries(node, where)}
    if isinstance(node, yaml.SequenceNode):
        paths = (values.path_text(item, f"{where}[{index}]") for index, item in enumerate(node.value))
        return tuple(path for path in paths if path)
    return values.path_text(node, where) or None


def _named_query(values: Values, where: str, node: yaml.Node) -> NamedQuery:
    found = values.members(node, where, ("file",), required=("file",))
    return NamedQuery(values.path(found, "file", where))


def _external_blobs(values: Values, where: str, node: yaml.Node | None) -> ExternalBlobs | UnsetType:
    found = values.members(node, where, ("allow",))
    bases = []
    for index, item in enumerate(values.items(found.get("allow"), f"{where}.allow")):
        at = f"{where}.allow[{index}]"
        base = values.members(item, at, ("base", "scope"), required=("base", "scope"))
        scope = values.optional_text(base, "scope", at) or ""
        if "scope" in base and scope not in [known.value for known in Scope]:
            values.complain(base["scope"], f"{at}.scope has to be {' or '.join(Scope)}")
        bases.append(DeclaredBase(values.optional_text(base, "base", at) or "", scope))
    return ExternalBlobs(tuple(bases)) if bases else UNSET


def _policy(values: Values, where: str, node: yaml.Node) -> PolicySettings:
    found = values.members(node, where, ("file", "tests", "applies_to"), required=("file",))
    scopes = enumerate(values.items(found.get("applies_to"), f"{where}.applies_to"))
    return PolicySettings(
        values.path(found, "file", where),
        values.path(found, "tests", where) or None,
        tuple(values.text(scope, f"{where}.applies_to[{index}]") for index, scope in scopes),
    )


def _pipeline(values: Values, where: str, node: yaml.Node) -> PipelineSettings:
    found = values.members(node, where, ("file", "graph"), required=("file", "graph"))
    return PipelineSettings(values.path(found, "file", where), values.optional_text(found, "graph", where) or "")
