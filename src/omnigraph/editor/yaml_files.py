"""Pipelines, policies and cluster configurations: their keys, the place of the cursor, and what their values name.

`KEYS` describes the keys of each kind once, for completion and hover; what is wrong with a file is the business of its
own validator. Types and properties of a schema that a file names are occurrences, as in queries, so that they are found
and renamed with them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml
from msgspec import Struct, field

from omnigraph.api.enums import LoadMode, PolicyAction
from omnigraph.cluster.configuration import CONFIG_FILE
from omnigraph.cluster.resources import CLUSTER_SCOPE
from omnigraph.editor.completion import Completion, Item, ItemKind, property_item, type_item
from omnigraph.editor.documents import Document, Kind, Location
from omnigraph.editor.projects import QUERY_SUFFIX, SCHEMA_SUFFIX, Workspace, normal_path
from omnigraph.editor.schema_symbols import Occurrence, SchemaIndex, SymbolKind
from omnigraph.errors import CompileError
from omnigraph.language.catalog import TableType
from omnigraph.language.query import syntax as ast
from omnigraph.language.query.parser import parse_row_filter
from omnigraph.language.source import Name, SyntaxNode, TextSpan
from omnigraph.pipeline.file import Duplicates, OnError
from omnigraph.policy.bundle import BranchScope
from omnigraph.policy.explanation import Expectation
from omnigraph.yaml_documents import Value, YamlDocument

# ---- keys -----------------------------------------------------------------------------------------------


class Key(Struct, frozen=True):
    """A key: what it is for, the keys or items below it, and what its value or its free keys name."""

    text: str = ""
    keys: Mapping[str, Key] = field(default_factory=dict)
    free: Key | None = None
    """The shape behind keys with free names."""
    item: Key | None = None
    names: str = ""
    """What the value names: a word below, or a suffix of files."""
    key_names: str = ""
    """What the free keys name."""
    choices: tuple[str, ...] = ()


def _choices(text: str, words: type[Any]) -> Key:
    return Key(text, choices=tuple(word.value for word in words))


_VERSION: Final = Key("The version of the format: 1.", choices=("1",))
_FLAG: Final = ("true", "false")
_WHERE: Final = Key("A Spark SQL condition on the rows of the source.")
_FROM: Final = Key("The source whose rows become entities.", names="source")


def _select(kind: str) -> Key:
    return Key(f"For each property of the {kind} a Spark SQL expression over the source.", key_names="property")


_PIPELINE: Final = Key(
    keys={
        "version": _VERSION,
        "name": Key("The name of the pipeline in reports; without it, that of the file."),
        "graph": Key("The location of the graph."),
        "branch": Key("The branch that is written; main without it."),
        "from": Key("The branch that a new branch begins at."),
        "mode": _choices("What happens to entities that exist.", LoadMode),
        "index": Key("Build the declared indexes in the same commit.", choices=_FLAG),
        "spark": Key(
            "Where Spark runs, and its settings.",
            keys={
                "master": Key("The master of Spark, such as local[4]."),
                "remote": Key("A Spark Connect endpoint, instead of a master."),
                "conf": Key("Settings of Spark."),
                "packages": Key("Packages that Spark loads."),
            },
        ),
        "sources": Key(
            "The inputs, by name.",
            free=Key(
                "An input.",
                keys={
                    "format": Key(
                        "A Spark format, `graph` for graph records or `lance`.",
                        choices=("csv", "parquet", "json", "orc", "graph", "lance"),
                    ),
                    "path": Key("Files or a directory, relative to this file.", names="path"),
                    "options": Key("Options of the format."),
                    "sql": Key("A Spark SQL query over the sources, instead of format and path."),
                },
            ),
        ),
        "nodes": Key(
            "How rows become nodes, by node type.",
            free=Key("A node type.", keys={"from": _FROM, "select": _select("node"), "where": _WHERE}),
            key_names="node",
        ),
        "edges": Key(
            "How rows become edges, by edge type.",
            free=Key(
                "An edge type.",
                keys={
                    "from": _FROM,
                    "src": Key("A Spark SQL expression for the key of the node that the edge leads from."),
                    "dst": Key("A Spark SQL expression for the key of the node that the edge leads to."),
                    "src_type": Key("A Spark SQL expression for the type of that node, where the end is an interface."),
                    "dst_type": Key("A Spark SQL expression for the type of that node, where the end is an interface."),
                    "select": _select("edge"),
                    "where": _WHERE,
                },
            ),
            key_names="edge",
        ),
        "embed": Key(
            "Vectors that the run computes.",
            item=Key(
                keys={"type": Key("The node type.", names="node"), "property": Key("Its vector.", names="vector")}
            ),
        ),
        "quality": Key(
            "What happens to bad rows.",
            keys={
                "on_error": _choices("End the run, or put bad rows aside.", OnError),
                "quarantine": Key("The directory that bad rows go to."),
                "max_rejected": Key("How many bad rows a run may have."),
                "duplicates": _choices("What a repeated id means.", Duplicates),
            },
        ),
    }
)
_ACTION: Final = _choices("What is done.", PolicyAction)
_POLICY: Final = Key(
    keys={
        "version": _VERSION,
        "groups": Key("The actors of each group."),
        "protected_branches": Key("Branches for which scopes can be told apart."),
        "rules": Key(
            "What the members of groups may do. Everything else is denied.",
            item=Key(
                keys={
                    "id": Key("The name of the rule in decisions."),
                    "allow": Key(
                        "Who may do what.",
                        keys={
                            "actors": Key("Whom the rule is for.", keys={"group": Key("A group.", names="group")}),
                            "actions": Key("What they may do.", item=_ACTION),
                            "branch_scope": _choices("The branches that they may work on.", BranchScope),
                            "target_branch_scope": _choices("The branches that they may change.", BranchScope),
                            "rows": Key("The rows that they see, by type: a condition of one row.", key_names="type"),
                            "hide": Key(
                                "The properties that read as null for them, by type.",
                                free=Key("Properties of the type.", item=Key(names="property")),
                                key_names="type",
                            ),
                        },
                    ),
                }
            ),
        ),
    }
)
_POLICY_TESTS: Final = Key(
    keys={
        "version": _VERSION,
        "cases": Key(
            "Requests with the decisions that are expected.",
            item=Key(
                keys={
                    "id": Key("The name of the case in reports."),
                    "actor": Key("Who asks."),
                    "action": _ACTION,
                    "branch": Key("The branch that the request is about."),
                    "target_branch": Key("The branch that the request would change."),
                    "expect": _choices("The decision.", Expectation),
                }
            ),
        ),
    }
)
_FILE_OF_QUERIES: Final = Key("A file that declares the query.", keys={"file": Key("A .gq file.", names=QUERY_SUFFIX)})
_CLUSTER: Final = Key(
    keys={
        "version": _VERSION,
        "metadata": Key("About the cluster.", keys={"name": Key("Its name in reports.")}),
        "storage": Key("Where graphs and the ledger are; without it, this directory."),
        "state": Key(
            "The ledger.", keys={"backend": Key("Only `cluster`.", choices=("cluster",)), "lock": Key(choices=_FLAG)}
        ),
        "providers": Key(
            "Services that the graphs use.",
            keys={
                "embedding": Key(
                    "Providers of vectors, by name.",
                    free=Key(
                        keys={
                            "kind": Key("The kind of the provider."),
                            "base_url": Key("Where it is."),
                            "model": Key("The model that it is asked for."),
                            "api_key": Key("The variable that holds its key: ${NAME}. Never the key itself."),
                        }
                    ),
                )
            },
        ),
        "graphs": Key(
            "The graphs, by id.",
            free=Key(
                "A graph.",
                keys={
                    "schema": Key("Its schema, a .pg file.", names=SCHEMA_SUFFIX),
                    "queries": Key(
                        "Its stored queries: files, folders, or files by the name of a query.",
                        free=_FILE_OF_QUERIES,
                        item=Key(names=QUERY_SUFFIX),
                        names=QUERY_SUFFIX,
                    ),
                    "embedding_provider": Key("A provider of this file.", names="provider"),
                    "external_blobs": Key(
                        "Where blobs may be that are stored elsewhere.",
                        keys={
                            "allow": Key(
                                "The locations.",
                                item=Key(keys={"base": Key("A location."), "scope": Key("Who may read there.")}),
                            )
                        },
                    ),
                },
            ),
        ),
        "policies": Key(
            "Rules, by name.",
            free=Key(
                keys={
                    "file": Key("A policy file.", names=".yaml"),
                    "tests": Key("Its tests, which every plan runs.", names=".yaml"),
                    "applies_to": Key("Graphs, or `cluster` for the server.", item=Key(names="scope")),
                }
            ),
        ),
        "pipelines": Key(
            "Pipelines, by name.",
            free=Key(
                keys={
                    "file": Key("A pipeline file.", names=".yaml"),
                    "graph": Key("The graph that it writes to.", names="graph"),
                }
            ),
        ),
    }
)
KEYS: Final[Mapping[Kind, Key]] = {
    Kind.PIPELINE: _PIPELINE,
    Kind.POLICY: _POLICY,
    Kind.POLICY_TESTS: _POLICY_TESTS,
    Kind.CLUSTER: _CLUSTER,
}

KeyPath: TypeAlias = tuple[str | int, ...]


def key_at(kind: Kind, path: KeyPath) -> Key | None:
    """What is known of the value at a path of keys and positions in lists."""
    key: Key | None = KEYS[kind]
    for step in path:
        if key is None:
            return None
        key = key.item if isinstance(step, int) else key.keys.get(step, key.free)
    return key


# ---- the place of the cursor ----------------------------------------------------------------------------


class YamlPlace(Struct, frozen=True):
    """Where the cursor is: the path of the mapping or list around it, whether a key may be there, and where the word
    begins that is being written."""

    path: KeyPath
    is_key: bool
    start: int


_MARK: Final = "zzcursorzz"
_WORD: Final = re.compile(r"[\w./*@-]*\Z")


def yaml_place(text: str, offset: int) -> YamlPlace | None:
    """The place of the cursor in a text that need not be complete: the text up to the cursor is read as YAML with a
    mark at its end, as a key and as a value."""
    line_start = text.rfind("\n", 0, offset) + 1
    word = _WORD.search(text, line_start, offset)
    start = offset if word is None else word.start()
    before = text[line_start:start].rstrip()
    if "#" in before:
        return None
    marks = [_MARK + ":", _MARK]
    if before.strip() and before[-1] not in "-{,":
        marks.reverse()
    for mark in marks:
        if (place := _path_to_mark(text[:start] + mark)) is not None:
            return YamlPlace(*place, start)
    return None


def _path_to_mark(text: str) -> tuple[KeyPath, bool] | None:
    # A frame is [is a mapping, key or position, where it begins].
    frames: list[tuple[bool, str | int | None, int]] = []

    def path() -> KeyPath:
        return tuple(step for _, step, _ in frames if step is not None)

    def next_item() -> None:
        if frames:
            is_mapping, step, begin = frames[-1]
            frames[-1] = is_mapping, None if is_mapping else int(step or 0) + 1, begin

    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.ScalarEvent):
                is_key = bool(frames) and frames[-1][0] and frames[-1][1] is None
                if event.value == _MARK:
                    begin = event.start_mark.index
                    if is_key and len(frames) > 1 and frames[-1][2] == begin and not frames[-2][0] and "[" in text:
                        is_flow_item = text.rfind("[", 0, begin) > text.rfind("\n", 0, begin)
                        if is_flow_item:  # `[a, mark:` is a mapping in a list, and was meant as an item
                            frames.pop()
                            return path(), False
                    return path(), is_key
                if is_key:
                    frames[-1] = True, event.value, frames[-1][2]
                else:
                    next_item()
            elif isinstance(event, yaml.CollectionStartEvent):
                is_mapping = isinstance(event, yaml.MappingStartEvent)
                frames.append((is_mapping, None if is_mapping else 0, event.start_mark.index))
            elif isinstance(event, yaml.CollectionEndEvent):
                frames.pop()
                next_item()
    except (yaml.YAMLError, RecursionError, ValueError):
        return None
    return None


# ---- completion -----------------------------------------------------------------------------------------


def complete_yaml(workspace: Workspace, document: Document, offset: int) -> Completion:
    place = yaml_place(document.text, offset)
    key = None if place is None or document.kind is None else key_at(document.kind, place.path)
    if place is None or key is None:
        return Completion(offset, ())
    names = _Names(workspace, document, place)
    items: list[Item] = []
    if place.is_key:
        items += [Item(name, ItemKind.KEYWORD, text=each.text, insert=f"{name}: ") for name, each in key.keys.items()]
        items += names.of(key.key_names)
    if not place.is_key or not items:
        items += [Item(choice, ItemKind.VALUE) for choice in key.choices]
        items += names.of(key.names)
    return Completion(place.start, tuple(items))


class _Names:
    """What a value may name, by the word that a key has for it."""

    def __init__(self, workspace: Workspace, document: Document, place: YamlPlace) -> None:
        self._workspace = workspace
        self._document = document
        self._place = place
        self._root = _readable_root(document.text, place.start)

    def of(self, names: str) -> list[Item]:
        if not names:
            return []
        if names.startswith("."):
            return list(self._files(names))
        sources: Mapping[str, Callable[[], Iterator[Item]]] = {
            "node": lambda: (type_item(type_) for type_ in self._types() if type_.kind == "node"),
            "edge": lambda: (type_item(type_) for type_ in self._types() if type_.kind == "edge"),
            "type": lambda: (type_item(type_) for type_ in self._types()),
            "property": lambda: self._properties(),
            "vector": lambda: self._vectors(),
            "source": lambda: self._keys("sources"),
            "group": lambda: self._keys("groups"),
            "graph": lambda: self._keys("graphs"),
            "scope": lambda: iter([*self._keys("graphs"), Item(CLUSTER_SCOPE, ItemKind.VALUE)]),
            "provider": lambda: self._keys("providers", "embedding"),
        }
        return list(sources[names]()) if names in sources else []

    def _keys(self, *path: str) -> Iterator[Item]:
        value = None if self._root is None else self._root.find(*path)
        for name, _ in value.entries_quietly() if value is not None else ():
            if name != _MARK:
                yield Item(name, ItemKind.VALUE, path[-1])

    def _types(self) -> Iterator[TableType]:
        for schema in schemas_of(self._workspace, self._document):
            if schema.catalog is not None:
                yield from schema.catalog.nodes.values()
                yield from schema.catalog.edges.values()

    def _properties(self) -> Iterator[Item]:
        names = {step for step in self._place.path if isinstance(step, str)}
        kind = {"nodes": "node", "edges": "edge"}.get(str(self._place.path[0])) if self._place.path else None
        for type_ in self._types():
            if names & {type_.name, type_.type_key} and kind in (None, type_.kind):
                yield from (property_item(type_.name, prop) for prop in type_.property_list)

    def _vectors(self) -> Iterator[Item]:
        for type_ in self._types():
            yield from (property_item(type_.name, prop) for prop in type_.property_list if prop.embed is not None)

    def _files(self, suffix: str) -> Iterator[Item]:
        top = self._document.path.parent
        for path in self._workspace.files(suffix):
            if path.is_relative_to(top) and path.name != CONFIG_FILE:
                yield Item(path.relative_to(top).as_posix(), ItemKind.FILE)


def schemas_of(workspace: Workspace, document: Document) -> list[SchemaIndex]:
    schemas = (workspace.valid_schema(path) for path in workspace.choose_schema(document).schemas)
    return [schema for schema in schemas if schema is not None]


def read_root(text: str) -> Value | None:
    """The outermost value of a YAML text, without findings; None for one that is not YAML."""
    try:
        return YamlDocument(text).root()
    except CompileError:
        return None


def _readable_root(text: str, start: int) -> Value | None:
    """The root of a text whose line at `start` may be incomplete."""
    root = read_root(text)
    if root is not None:
        return root
    begin, end = text.rfind("\n", 0, start) + 1, text.find("\n", start)
    return read_root(text[:begin] + text[end if end >= 0 else len(text) :])


# ---- what a file names ----------------------------------------------------------------------------------


def written_at(value: Value) -> TextSpan:
    """The text of a value without quotes around it."""
    inset = 1 if isinstance(value.node, yaml.ScalarNode) and value.node.style in ("'", '"') else 0
    return TextSpan(value.at.start + inset, value.at.end - inset)


def entries(value: Value | None) -> list[tuple[Value, Value]]:
    """The keys and values of a mapping, both with positions."""
    if value is None or not value.is_mapping:
        return []
    document = value.document
    return [(Value(document, key, ""), Value(document, node, "")) for key, node in value.node.value]


def _items(value: Value | None) -> list[Value]:
    return value.items() if value is not None and value.is_list else []


def text_of(value: Value) -> str:
    return str(value.node.value) if isinstance(value.node, yaml.ScalarNode) else ""


class _Occurrences:
    """The types and properties that a pipeline or a policy names."""

    def __init__(self, schema: SchemaIndex) -> None:
        self._schema = schema
        self.occurrences: list[Occurrence] = []

    def add_type(self, value: Value, kind: SymbolKind | None) -> str:
        """The key of the type that a value names."""
        prefix, _, name = text_of(value).rpartition(":")
        is_edge = kind is SymbolKind.EDGE or prefix == SymbolKind.EDGE
        symbol = self._schema.edge(name) if is_edge else self._schema.node_or_edge(name)
        at = written_at(value)
        if symbol.name == name and self._schema.has(symbol):
            self.occurrences.append(Occurrence(TextSpan(at.end - len(name), at.end), (symbol,)))
        return f"{symbol.kind}:{symbol.name}"

    def add_property(self, owner: str, name: Name) -> None:
        symbol = self._schema.property(owner, name.text)
        if symbol is not None:
            self.occurrences.append(Occurrence(name.at, (symbol,), owners=(owner,)))

    def add_written(self, owner: str, value: Value) -> None:
        self.add_property(owner, Name(text_of(value), at=written_at(value)))

    def add_filter(self, owner: str, value: Value, text: str) -> None:
        """The properties in a row filter that is written as it is read."""
        at = written_at(value)
        written = text_of(value)
        if text[at.start : at.end] != written:
            return
        try:
            waiting: list[object] = [parse_row_filter(written)]
        except CompileError:
            return
        while waiting:
            part = waiting.pop()
            if isinstance(part, ast.Alias):
                span = TextSpan(at.start + part.at.start, at.start + part.at.end)
                self.add_property(owner, Name(part.name, at=span))
            elif isinstance(part, tuple):
                waiting += part
            elif isinstance(part, SyntaxNode) and not isinstance(part, Name):
                waiting += [getattr(part, name) for name in part.__struct_fields__]


def yaml_occurrences(workspace: Workspace, document: Document) -> tuple[Occurrence, ...]:
    """The names of the schema in a pipeline or a policy."""
    root = read_root(document.text)
    schemas = [schema for path in workspace.choose_schema(document).schemas if (schema := workspace.schema(path))]
    if root is None or not schemas:
        return ()
    names = _Occurrences(schemas[0])
    if document.kind is Kind.PIPELINE:
        for key, kind in (("nodes", SymbolKind.NODE), ("edges", SymbolKind.EDGE)):
            for type_name, mapping in entries(root.find(key)):
                owner = names.add_type(type_name, kind)
                for column, _ in entries(mapping.find("select")):
                    names.add_written(owner, column)
        for step in _items(root.find("embed")):
            type_, prop = step.find("type"), step.find("property")
            if type_ is not None:
                owner = names.add_type(type_, SymbolKind.NODE)
                if prop is not None:
                    names.add_written(owner, prop)
    elif document.kind is Kind.POLICY:
        for rule in _items(root.find("rules")):
            for type_name, row_filter in entries(rule.find("allow", "rows")):
                names.add_filter(names.add_type(type_name, None), row_filter, document.text)
            for type_name, properties in entries(rule.find("allow", "hide")):
                owner = names.add_type(type_name, None)
                for prop in _items(properties):
                    names.add_written(owner, prop)
    return tuple(names.occurrences)


class Link(Struct, frozen=True):
    """A value that names something in another file, or elsewhere in this one."""

    at: TextSpan
    target: Location


def yaml_links(workspace: Workspace, document: Document) -> Iterator[Link]:
    """Files, stored queries, sources, groups, graphs and providers that a file names."""
    root = read_root(document.text)
    if root is None:
        return
    if document.kind is Kind.CLUSTER:
        yield from _cluster_links(workspace, document, root)
    elif document.kind is Kind.PIPELINE:
        sources = _key_positions(root, "sources")
        for kind in ("nodes", "edges"):
            for _, mapping in entries(root.find(kind)):
                yield from _link_to(document, mapping.find("from"), sources)
        for _, source in entries(root.find("sources")):
            yield from _file(document, source.find("path"))
    elif document.kind is Kind.POLICY:
        groups = _key_positions(root, "groups")
        for rule in _items(root.find("rules")):
            yield from _link_to(document, rule.find("allow", "actors", "group"), groups)


def _key_positions(root: Value, *path: str) -> dict[str, TextSpan]:
    return {text_of(key): written_at(key) for key, _ in entries(root.find(*path))}


def _link_to(document: Document, value: Value | None, declared: Mapping[str, TextSpan]) -> Iterator[Link]:
    name = "" if value is None else text_of(value).rpartition(".")[2]
    if value is not None and name in declared:
        yield Link(written_at(value), Location(document.path, declared[name]))


def _file(document: Document, value: Value | None) -> Iterator[Link]:
    if value is not None and text_of(value) and "://" not in text_of(value):
        path = normal_path(document.path.parent / Path(text_of(value)).expanduser())
        if path.is_file():
            yield Link(written_at(value), Location(path, TextSpan(0, 0)))


def _cluster_links(workspace: Workspace, document: Document, root: Value) -> Iterator[Link]:
    providers = _key_positions(root, "providers", "embedding")
    graphs = _key_positions(root, "graphs")
    for _, graph in entries(root.find("graphs")):
        yield from _file(document, graph.find("schema"))
        yield from _link_to(document, graph.find("embedding_provider"), providers)
        queries = graph.find("queries")
        for each in (queries, *_items(queries)):
            yield from _file(document, each)
        for name, entry in entries(queries):
            yield from (links := list(_file(document, entry.find("file"))))
            yield from _stored_query(workspace, name, links)
    for _, policy in entries(root.find("policies")):
        for key in ("file", "tests"):
            yield from _file(document, policy.find(key))
        for scope in _items(policy.find("applies_to")):
            yield from _link_to(document, scope, graphs)
    for _, pipeline in entries(root.find("pipelines")):
        yield from _file(document, pipeline.find("file"))
        yield from _link_to(document, pipeline.find("graph"), graphs)


def _stored_query(workspace: Workspace, name: Value, files: list[Link]) -> Iterator[Link]:
    """The declaration of a stored query in its file."""
    for link in files:
        file = workspace.document(link.target.path)
        for query in workspace.queries(file).queries if file is not None else ():
            if query.name.text == text_of(name):
                yield Link(written_at(name), Location(link.target.path, query.name.at))
