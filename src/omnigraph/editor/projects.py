"""Which files belong together: the schema of a query file, of a pipeline and of a policy, and the files of a schema.

A query file belongs to the schema that a `cluster.yaml` above it names for it; else to that of a cluster in the
operator's configuration; else to the one that a comment `// schema: PATH` at its top or the setting `omnigraph.schema`
names; else to the only `.pg` file in its folder or in the nearest folder above that has one. Texts that are open in the
editor count instead of those on the disk. No graph is opened and nothing is written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from omnigraph.cluster.configuration import CONFIG_FILE, PolicySettings, parse_root, survey_root
from omnigraph.cluster.resources import CLUSTER_SCOPE, ClusterError
from omnigraph.editor.documents import YAML_SUFFIXES, Document, Kind
from omnigraph.editor.query_symbols import QueryIndex, index_queries
from omnigraph.editor.schema_symbols import SchemaIndex, index_schema
from omnigraph.policy.bundle import ScopeKind

_DIRECTIVE: Final = re.compile(r"^[ \t]*(?://|#)[ \t]*schema:[ \t]*(\S[^\r\n]*?)[ \t]*\r?$", re.MULTILINE)
_TOP: Final = re.compile(r"(?:[ \t]*(?:(?://|#)[^\n]*)?\n)*(?:[ \t]*(?://|#)[^\n]*)?")
"""The comments at the top of a file."""
_SKIPPED_FOLDERS: Final = frozenset({"node_modules", "__pycache__", "venv"})
SCHEMA_SUFFIX: Final = ".pg"
QUERY_SUFFIX: Final = ".gq"


class GraphFiles(Struct, frozen=True):
    """The files of one graph of a cluster. `queries` are files and folders."""

    schema: Path
    queries: tuple[Path, ...]

    def has_query_file(self, path: Path) -> bool:
        return path in self.queries or (path.parent in self.queries and path.suffix == QUERY_SUFFIX)


class ClusterFiles(Struct, frozen=True):
    """The files that a `cluster.yaml` names, as far as it can be understood."""

    graphs: Mapping[str, GraphFiles]
    policies: Mapping[Path, PolicySettings]
    pipelines: Mapping[Path, str]
    """The graph of each pipeline file."""

    def schemas(self, document: Document) -> tuple[Path, ...]:
        """The schemas that the configuration gives to a query file, a pipeline or a policy, each once."""
        graph_ids: Iterable[str] = ()
        if document.kind is Kind.QUERIES:
            graph_ids = (name for name, graph in self.graphs.items() if graph.has_query_file(document.path))
        elif document.path in self.pipelines:
            graph_ids = (self.pipelines[document.path],)
        elif document.path in self.policies:
            graph_ids = self.policies[document.path].applies_to
        ids = (graph_id.removeprefix("graph.") for graph_id in graph_ids)
        return tuple(dict.fromkeys(self.graphs[graph_id].schema for graph_id in ids if graph_id in self.graphs))

    def scope(self, document: Document) -> ScopeKind | None:
        """What the rules of a policy are for; None for a policy that is not bound."""
        policy = self.policies.get(document.path)
        if policy is None or not policy.applies_to:
            return None
        return "server" if CLUSTER_SCOPE in policy.applies_to else "graph"


class Choice(Struct, frozen=True):
    """The schema of a document. Where several fit none is chosen, and `origin` says where they come from."""

    schemas: tuple[Path, ...]
    origin: str

    @property
    def schema(self) -> Path | None:
        return self.schemas[0] if len(self.schemas) == 1 else None


@lru_cache(maxsize=32)
def _read_cluster(directory: Path, text: str) -> ClusterFiles | None:
    try:
        config = survey_root(directory, parse_root(text)).config
    except ClusterError:
        return None  # its own diagnostics say why

    def place(shown: str) -> Path:
        return normal_path(directory / Path(shown).expanduser())

    graphs = {}
    for graph_id, settings in config.graphs.items():
        declared = settings.queries
        named = [query.file for query in declared.values()] if isinstance(declared, dict) else declared or ()
        files = [named] if isinstance(named, str) else named
        if settings.schema:
            graphs[graph_id] = GraphFiles(place(settings.schema), tuple(place(file) for file in files if file))
    policies = {place(policy.file): policy for policy in config.policies.values() if policy.file}
    pipelines = {place(p.file): p.graph.removeprefix("graph.") for p in config.pipelines.values() if p.file}
    return ClusterFiles(graphs, policies, pipelines)


def normal_path(path: Path) -> Path:
    """An absolute path without `..`; links are not followed, because the editor does not follow them either."""
    return Path(os.path.abspath(path))


class Workspace(Struct, frozen=True):
    """What the editor has open at one moment, and where it looks for more. `clusters` are the configuration directories
    of the operator's configuration. `valid_schemas` has the last text of each schema that compiled, for completion
    while one is edited; all moments share it."""

    folders: tuple[Path, ...] = ()
    open: Mapping[Path, Document] = field(default_factory=dict)
    schema_setting: str | None = None
    clusters: tuple[Path, ...] = ()
    valid_schemas: dict[Path, SchemaIndex] = field(default_factory=dict)

    # ---- texts ------------------------------------------------------------------------------------------

    def document(self, path: Path) -> Document | None:
        """A file as it is in the editor, else on the disk; None for one that can't be read."""
        if (document := self.open.get(path)) is not None:
            return document
        try:
            return Document(path, path.read_bytes().decode("utf-8"))
        except (OSError, UnicodeDecodeError, ValueError):
            return None

    def files(self, *suffixes: str) -> Iterator[Path]:
        """Every file of the workspace with one of these suffixes, and what is open, each once."""
        seen = {path for path in self.open if path.suffix in suffixes}
        yield from sorted(seen)
        for top in self.folders:
            for folder, inner, names in os.walk(top):
                inner[:] = sorted(name for name in inner if name not in _SKIPPED_FOLDERS and not name.startswith("."))
                for name in sorted(names):
                    path = Path(folder, name)
                    if path.suffix in suffixes and path not in seen:
                        seen.add(path)
                        yield path

    def _ancestors(self, path: Path) -> Iterator[Path]:
        """The folder of a file and those above, up to the folder that is open in the editor."""
        tops = {top for top in self.folders if path.is_relative_to(top)}
        for folder in path.parents:
            yield folder
            if folder in tops or (not tops and (folder / ".git").exists()):
                return

    def _schemas_in(self, folder: Path) -> list[Path]:
        try:
            stored = {entry for entry in folder.iterdir() if entry.suffix == SCHEMA_SUFFIX and entry.is_file()}
        except OSError:
            stored = set()
        return sorted(stored | {path for path in self.open if path.parent == folder and path.suffix == SCHEMA_SUFFIX})

    # ---- clusters ---------------------------------------------------------------------------------------

    def cluster_files(self, directory: Path) -> ClusterFiles | None:
        document = self.document(directory / CONFIG_FILE)
        return None if document is None else _read_cluster(directory, document.text)

    def cluster_of(self, document: Document) -> tuple[Path, ClusterFiles] | None:
        """The nearest configuration that names a file, with its directory."""
        for directory in dict.fromkeys((*self._ancestors(document.path), *self.clusters)):
            files = self.cluster_files(directory)
            if files is not None and (files.schemas(document) or files.scope(document)):
                return directory, files
        return None

    # ---- the schema of a file ---------------------------------------------------------------------------

    def choose_schema(self, document: Document) -> Choice:
        named = self._named_schema(document)
        if (owner := self.cluster_of(document)) is not None:
            schemas = owner[1].schemas(document)
            origin = str(owner[0] / CONFIG_FILE)
            return Choice((named,) if named in schemas else schemas, origin)
        if named is not None:
            return Choice((named,), "the comment `schema:`")
        if self.schema_setting:
            tops = self.folders or (document.path.parent,)
            top = next((top for top in tops if document.path.is_relative_to(top)), tops[0])
            return Choice((normal_path(top / Path(self.schema_setting).expanduser()),), "the setting omnigraph.schema")
        for folder in self._ancestors(document.path):
            if schemas_here := self._schemas_in(folder):
                return Choice(tuple(schemas_here), str(folder))
        return Choice((), "")

    def _named_schema(self, document: Document) -> Path | None:
        """The schema that a comment at the top of a file names."""
        top = _TOP.match(document.text)
        directive = _DIRECTIVE.search(document.text, 0, top.end() if top is not None else 0)
        return None if directive is None else normal_path(document.path.parent / Path(directive[1]).expanduser())

    def schema(self, path: Path | None) -> SchemaIndex | None:
        """The names of a schema file; None for one that can't be read."""
        document = None if path is None else self.document(path)
        if document is None:
            return None
        schema = index_schema(document.path, document.text)
        if schema.catalog is not None:
            self.valid_schemas[document.path] = schema
        return schema

    def valid_schema(self, path: Path | None) -> SchemaIndex | None:
        """A schema as it is, or as it last compiled, or with mistakes if it never did."""
        schema = self.schema(path)
        if schema is None or path is None or schema.catalog is not None:
            return schema
        return self.valid_schemas.get(path, schema)

    def queries(self, document: Document) -> QueryIndex:
        """The names of a query file."""
        chosen = self.choose_schema(document).schema
        return index_queries(document.path, document.text, self.schema(chosen), self.valid_schema(chosen))

    def users_of(self, schema: Path) -> Iterator[Document]:
        """The query files, pipelines and policies of the workspace that belong to a schema."""
        for path in self.files(QUERY_SUFFIX, *YAML_SUFFIXES):
            document = self.document(path)
            if document is not None and document.kind in (Kind.QUERIES, Kind.PIPELINE, Kind.POLICY):
                chosen = self.choose_schema(document)
                bound = chosen.schemas if document.kind is Kind.POLICY else (chosen.schema,)
                if schema in bound:
                    yield document
