"""What a `cluster.yaml` says, as a model: well-formed, and nothing in it looked up yet."""

from __future__ import annotations

from typing import Final

from msgspec import UNSET, Struct, UnsetType

from omnigraph.embeddings.profile import EmbeddingProfile

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
    """A query of the map form: the file that declares it."""

    file: str


class DeclaredBase(Struct, frozen=True):
    base: str
    scope: str


class ExternalBlobs(Struct, frozen=True):
    allow: tuple[DeclaredBase, ...]


class GraphSettings(Struct, frozen=True):
    """`queries` are a path, several, or files by the name of the query. Without `external_blobs` none are taken in."""

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
