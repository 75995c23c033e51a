"""The pipeline file: its model, and how it is read from YAML.

`read_pipeline` makes every check that needs neither Spark nor a graph; `check_against` checks names and mappings
against a catalog. Both report every mistake with its line. A model that was built in Python has no lines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from omnigraph.api.enums import LoadMode
from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import Catalog, EdgeType, Property, TableType
from omnigraph.language.source import did_you_mean
from omnigraph.yaml_documents import Flaw, Value, YamlDocument

_CODES: Final = {
    Flaw.SYNTAX: "P001",
    Flaw.SHAPE: "P002",
    Flaw.REPEATED_KEY: "P003",
    Flaw.CHOICE: "P004",
    Flaw.UNKNOWN_KEY: "P005",
    Flaw.MISSING_KEY: "P006",
}
CSV_FORMAT = "csv"
GRAPH_FORMAT = "graph"
LANCE_FORMAT = "lance"
DEFAULT_MAX_REJECTED = 1_000
_ENDS = {"src": "from", "dst": "to"}
_END_TYPES = {"src_type": "from_type", "dst_type": "to_type"}
END_COLUMNS = {**_ENDS, **_END_TYPES}
"""The settings of an edge for its ends, and for the types of those that are interfaces, and the columns of the row
kernel that they become."""


class OnError(StrEnum):
    """The effect of a bad row: end the run with nothing written, or go to the quarantine."""

    FAIL = "fail"
    QUARANTINE = "quarantine"


class Duplicates(StrEnum):
    """The meaning of a repeated id in one input: the last row counts, or every later row is a bad row. `load` refuses a
    repeated key in every mode; for an id that is not a key, a merge takes the last row."""

    LAST = "last"
    REJECT = "reject"
    LOAD = "load"


@dataclass(frozen=True, slots=True)
class Source:
    """A named input: files or tables of a Spark format, or a Spark SQL query over the sources before it.

    `properties` are those that its columns become as they are, by column: of JSON, a record that lacks one then has its
    default.
    """

    name: str
    format: str = ""
    path: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    sql: str | None = None
    properties: Mapping[str, Property] = field(default_factory=dict)

    @property
    def is_graph(self) -> bool:
        return self.format == GRAPH_FORMAT


@dataclass(frozen=True, slots=True)
class TypeMapping:
    """How rows of a source become entities of a type. `src` and `dst` are there for edges only, and not in every
    update; `src_type` and `dst_type` are beside ends that are interfaces."""

    type_name: str
    source: str
    select: Mapping[str, str]
    src: str | None = None
    dst: str | None = None
    where: str | None = None
    src_type: str | None = field(default=None, repr=False)
    dst_type: str | None = field(default=None, repr=False)
    of_edges: bool = field(default=False, repr=False)
    """Whether the type is one of edges, where an update leaves out both ends."""

    @property
    def is_edge(self) -> bool:
        return self.of_edges or self.src is not None or self.dst is not None

    @property
    def type_key(self) -> str:
        return f"{'edge' if self.is_edge else 'node'}:{self.type_name}"

    @property
    def columns(self) -> dict[str, str]:
        """Input column of the row kernel -> Spark SQL expression."""
        ends = zip(END_COLUMNS.values(), (self.src, self.dst, self.src_type, self.dst_type), strict=True)
        return {**{name: text for name, text in ends if text is not None}, **self.select}


@dataclass(frozen=True, slots=True)
class EmbedStep:
    type_name: str
    property: str


@dataclass(frozen=True, slots=True)
class Quality:
    on_error: OnError = OnError.FAIL
    quarantine: str | None = None
    max_rejected: int = DEFAULT_MAX_REJECTED
    duplicates: Duplicates | None = None

    def keeps_last(self, mode: LoadMode, *, keyed: bool) -> bool:
        """Whether the last row of a repeated id counts. By default a merge takes it, and an update the last value of
        each property; any other mode refuses it."""
        if self.duplicates is None or (self.duplicates is Duplicates.LOAD and not keyed):
            return mode in (LoadMode.MERGE, LoadMode.UPDATE)
        return self.duplicates is Duplicates.LAST


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Where Spark runs. `remote` is a Spark Connect endpoint; it and `master` exclude each other."""

    master: str | None = None
    remote: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    packages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A whole pipeline. `places` gives the line of a type's or source's entry for messages, when there is a file."""

    name: str
    sources: Mapping[str, Source]
    mappings: tuple[TypeMapping, ...] = ()
    graph: str | None = None
    branch: str = "main"
    base: str | None = None
    mode: LoadMode = LoadMode.MERGE
    embed: tuple[EmbedStep, ...] = ()
    quality: Quality = Quality()
    index: bool = False
    spark: SparkSettings = field(default_factory=SparkSettings)
    directory: str | None = None
    places: Mapping[str, Value] = field(default_factory=dict, repr=False, compare=False)

    def resolve_path(self, path: str) -> str:
        """A path of the file, relative to the file."""
        if "://" in path or path.startswith("/") or self.directory is None:
            return path
        return str(Path(self.directory) / path)


_TOP = (
    "version", "name", "graph", "branch", "from", "mode", "spark", "sources", "nodes", "edges", "embed", "quality",
    "index",
)  # fmt: skip


def load_pipeline(path: str | Path) -> Pipeline:
    """Read a pipeline file. Relative paths in it are relative to it."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequestError(f"can't read the pipeline file '{path}': {error}") from None
    return read_pipeline(text, path=str(path), directory=str(file.absolute().parent))


def read_pipeline(text: str, *, path: str | None = None, directory: str | None = None) -> Pipeline:
    """A pipeline from YAML text, or a CompileError with every mistake."""
    document = YamlDocument(text, path, _CODES, scalars_are_texts=True)
    root = document.root()
    members = root.members(_TOP, required=("version", "sources"))
    if "version" in members and members["version"].text().value != "1":
        members["version"].report("P007", "this omnigraph reads pipeline files of version 1")
    places: dict[str, Value] = {}
    sources = _sources(members["sources"], places) if "sources" in members else {}
    mode = members["mode"].choice(LoadMode) if "mode" in members else LoadMode.MERGE
    entries = [(kind, *entry) for kind in ("nodes", "edges") if kind in members for entry in members[kind].entries()]
    read = [_mapping(kind, key.value, member, sources, places, mode) for kind, key, member in entries]
    mappings = tuple(mapping for mapping in read if mapping is not None)
    pipeline = Pipeline(
        name=_text(members, "name") or (Path(path).stem if path else "pipeline"),
        sources=sources,
        mappings=mappings,
        graph=_text(members, "graph"),
        branch=_text(members, "branch") or "main",
        base=_text(members, "from"),
        mode=mode,
        embed=tuple(_embeds(members["embed"], places)) if "embed" in members else (),
        quality=_quality(members["quality"]) if "quality" in members else Quality(),
        index=members["index"].flag() if "index" in members else False,
        spark=_spark(members["spark"]) if "spark" in members else SparkSettings(),
        directory=directory,
        places=places,
    )
    if not mappings and not any(source.is_graph for source in sources.values()):
        root.report("P008", "nothing is mapped: add nodes or edges, or a source with format: graph")
    document.raise_any()
    return pipeline


def _text(members: Mapping[str, Value], name: str) -> str | None:
    """None also after a finding, which then has no consequences."""
    return members[name].text().value or None if name in members else None


def _sources(located: Value, places: dict[str, Value]) -> dict[str, Source]:
    sources: dict[str, Source] = {}
    for key, member in located.entries():
        name = key.value
        places[f"source:{name}"] = member
        if not name.isidentifier():
            member.report("P009", f"the source name '{name}' must be a word: it is a table name in Spark SQL")
        parts = member.members(("format", "path", "options", "sql"))
        options = {key.value: _option(value) for key, value in parts["options"].entries()} if "options" in parts else {}
        source = Source(name, _text(parts, "format") or "", _text(parts, "path"), options, _text(parts, "sql"))
        if source.sql is not None and (source.format or source.path or options):
            member.report("P010", f"source '{name}' is a query and takes no format, path or options")
        elif source.sql is None and not source.format:
            member.report("P006", f"source '{name}' needs 'format', or 'sql' for a query over other sources")
        elif source.path is None and source.format in (CSV_FORMAT, GRAPH_FORMAT, LANCE_FORMAT):
            member.report("P006", f"source '{name}' needs 'path'")
        elif source.format == CSV_FORMAT:
            from omnigraph.pipeline.sources.input_files import csv_dialect

            try:
                csv_dialect(options)
            except BadRequestError as error:
                parts.get("options", member).report("P017", str(error))
        elif source.format == LANCE_FORMAT and not options.get("version", "1").isdecimal():
            parts["options"].report("P002", f"the version of the Lance source '{name}' must be a whole number")
        sources[name] = source
    return sources


def _option(located: Value) -> str:
    value: Any = located.plain()
    if value is None:  # `nullValue: NULL` means the word
        return str(located.node.value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _mapping(
    kind: str, name: str, located: Value, sources: Mapping[str, Source], places: dict[str, Value], mode: LoadMode
) -> TypeMapping | None:
    ends = _ENDS if kind == "edges" else {}
    needed = ends if mode is not LoadMode.UPDATE else {}
    members = ("from", "select", "where", *(END_COLUMNS if ends else ()))
    parts = located.members(members, required=("from", *(needed or ("select",))))
    columns = {key.value: value for key, value in parts["select"].entries()} if "select" in parts else {}
    type_key = f"{kind[:-1]}:{name}"
    places[type_key] = located
    places.update({f"{type_key}.{column}": expression for column, expression in columns.items()})
    places.update({f"{type_key}.{end}": parts[key] for key, end in END_COLUMNS.items() if key in parts})
    select = {column: expression.text().value or "null" for column, expression in columns.items()}
    source = _text(parts, "from")
    if source is not None and source not in sources:
        hint = did_you_mean(source, sources) or f"sources: {', '.join(sources)}"
        parts["from"].report("P011", f"{located.name} reads from '{source}', which is not a source of this file", hint)
    elif source is not None and sources[source].is_graph:
        parts["from"].report("P012", f"'{source}' has format graph: its records name their types and need no mapping")
    if source is None or not needed.keys() <= parts.keys():
        return None
    texts = {each: _text(parts, each) for each in (*END_COLUMNS, "where")}
    return TypeMapping(name, source, select, **texts, of_edges=kind == "edges")


def _embeds(located: Value, places: dict[str, Value]) -> list[EmbedStep]:
    steps = []
    for item in located.items():
        members = item.members(("type", "property"), required=("type", "property"))
        type_name, prop = _text(members, "type"), _text(members, "property")
        if type_name and prop:
            places[f"embed:{type_name}.{prop}"] = item
            steps.append(EmbedStep(type_name, prop))
    return steps


def _quality(located: Value) -> Quality:
    members = located.members(("on_error", "quarantine", "max_rejected", "duplicates"))
    quality = Quality(
        members["on_error"].choice(OnError) if "on_error" in members else OnError.FAIL,
        _text(members, "quarantine"),
        members["max_rejected"].whole_number() if "max_rejected" in members else DEFAULT_MAX_REJECTED,
        members["duplicates"].choice(Duplicates) if "duplicates" in members else None,
    )
    if quality.on_error is OnError.QUARANTINE and quality.quarantine is None:
        located.report("P006", "quality needs 'quarantine', the directory that bad rows go to")
    return quality


def _spark(located: Value) -> SparkSettings:
    members = located.members(("master", "remote", "conf", "packages"))
    if "master" in members and "remote" in members:
        members["remote"].report("P010", "give spark.master or spark.remote, not both")
    conf = {key.value: _option(value) for key, value in members["conf"].entries()} if "conf" in members else {}
    packages = [item.text().value for item in members["packages"].items()] if "packages" in members else []
    return SparkSettings(_text(members, "master"), _text(members, "remote"), conf, tuple(filter(None, packages)))


def read_check(text: str, path: str) -> Callable[[Catalog], None]:
    """Read a pipeline file, and return the function that checks it against a schema. Clusters, which may not import
    pipelines, are given this function."""
    pipeline = read_pipeline(text, path=path)
    return lambda catalog: check_against(pipeline, catalog)


def check_against(pipeline: Pipeline, catalog: Catalog) -> None:
    """Raise for every mapping that the schema can't take."""
    complaints = Complaints(pipeline.places)
    for mapping in pipeline.mappings:
        types: Mapping[str, TableType] = catalog.edges if mapping.is_edge else catalog.nodes
        type_ = types.get(mapping.type_name)
        kind = "edge" if mapping.is_edge else "node"
        if type_ is None:
            hint = did_you_mean(mapping.type_name, types) or ""
            complaints.add(mapping.type_key, "P013", f"the schema has no {kind} type '{mapping.type_name}'", hint)
            continue
        if isinstance(type_, EdgeType):
            _check_end_types(mapping, type_, complaints)
        for column in mapping.select:
            if column != type_.system_name("id") and column not in type_.properties:
                hint = did_you_mean(column, type_.properties) or ""
                place = f"{mapping.type_key}.{column}"
                complaints.add(place, "P014", f"{kind} type {type_.name} has no property '{column}'", hint)
        if pipeline.mode is LoadMode.UPDATE:
            _check_identity(mapping, type_, complaints)
            continue
        if mapping.is_edge and (mapping.src is None or mapping.dst is None):
            complaints.add(mapping.type_key, "P006", f"{type_.name} needs 'src' and 'dst' in the mode {pipeline.mode}")
        for name, prop in type_.properties.items():
            is_embedded = prop.is_embedded_on_write or EmbedStep(type_.name, name) in pipeline.embed
            is_optional = prop.type.nullable or prop.default is not None or is_embedded
            if not is_optional and name not in mapping.select:
                message = f"{type_.name}.{name} is not nullable and nothing is selected for it"
                complaints.add(mapping.type_key, "P015", message)
    for step in pipeline.embed:
        node = catalog.nodes.get(step.type_name)
        vector = node.properties.get(step.property) if node else None
        if vector is None or vector.embed is None:
            message = f"{step.type_name}.{step.property} has no @embed source in the schema"
            complaints.add(f"embed:{step.type_name}.{step.property}", "P016", message)
    complaints.raise_any()


def _check_end_types(mapping: TypeMapping, edge: EdgeType, complaints: Complaints) -> None:
    """Spark does not look ids up in several node types: a mapping says what is at an interface."""
    ends = ((mapping.src, mapping.src_type), (mapping.dst, mapping.dst_type))
    for end, (node_id, text) in zip(edge.ends, ends, strict=True):
        setting = f"{end.column}_type"
        if end.interface is None and text is not None:
            message = f"'{setting}' is for an end that is an interface, and {edge.name} has a {end.types[0]} there"
            complaints.add(f"{mapping.type_key}.{end.name}_type", "P014", message, "leave it out")
        elif text is not None and node_id is None:
            message = f"'{setting}' is the type of a node, and '{end.column}' does not say which"
            complaints.add(f"{mapping.type_key}.{end.name}_type", "P015", message, "give both, or neither")
        elif end.interface is not None and node_id is not None and text is None:
            named = edge.from_type if end.column == "src" else edge.to_type
            message = f"{edge.name} needs '{setting}': its end is the interface {named}"
            example = f"write `{setting}: \"'{end.types[0]}'\"`, or name a column that holds {' or '.join(end.types)}"
            complaints.add(mapping.type_key, "P015", message, example)


def _check_identity(mapping: TypeMapping, type_: TableType, complaints: Complaints) -> None:
    """An update finds its entities by id or key."""
    ends = {"src": mapping.src, "dst": mapping.dst}
    columns = {*mapping.select, *(f"@{end}" for end, text in ends.items() if text is not None)}
    identity = type_.system_name("id")
    names = {name if name in type_.properties else f"@{type_.rule_column(name)}" for name in type_.key}
    if identity not in columns and not (names and names <= columns):
        wanted = " and ".join([f"'{name}'" for name in type_.key])
        wanted = f"{wanted}, or '{identity}'" if wanted else f"'{identity}'"
        message = f"an update of {type_.name} needs {wanted}, and nothing is selected for it"
        complaints.add(mapping.type_key, "P015", message)


@dataclass
class Complaints:
    """Findings about a model: with lines when it came from a file, as one plain error otherwise."""

    places: Mapping[str, Value]
    _plain: list[str] = field(default_factory=list)
    _located: Value | None = None

    def add(self, place: str, code: str, message: str, help: str = "") -> None:
        located = self.places.get(place)
        if located is None:
            self._plain.append(message + (f"; {help}" if help else ""))
        else:
            located.report(code, message, help)
            self._located = located

    def raise_any(self) -> None:
        if self._located is not None:
            self._located.document.raise_any()
        if self._plain:
            raise BadRequestError("\n".join(self._plain))
