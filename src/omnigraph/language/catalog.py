"""The compiled catalog: what a schema means, with the identities that survive renames.

Built by `omnigraph.language.schema.compile`, persisted by the engine through `to_json`/`from_json`, asked by
everything else. Immutable. A property's physical column is fixed at birth and never reused within a type,
so a rename moves no data and a re-added name never meets old values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cached_property
from itertools import chain
from typing import ClassVar, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct, field

from omnigraph.errors import BadRequestError, FormatVersionError, IntegrityError
from omnigraph.language.source import did_you_mean, quote
from omnigraph.language.types import PropertyType, Scalar

CATALOG_FORMAT = 3
"""The newest persisted form. A catalog is written in the oldest form that can say it (`Catalog.format`)."""

TypeKind: TypeAlias = Literal["interface", "node", "edge"]

ENDPOINTS = ("@src", "@dst")
"""The ends of an edge as its rules name them. Their columns have the names without the sign."""

SYSTEM_COLUMNS: dict[TypeKind, tuple[str, ...]] = {"interface": ("id",), "node": ("id",), "edge": ("id", "src", "dst")}


class IndexKind(StrEnum):
    """What `@index`, `@key` and `@unique` ask the engine to build; results never depend on it."""

    BTREE = "btree"
    FULL_TEXT = "full_text"
    NGRAM = "ngram"
    LABEL_LIST = "label_list"
    VECTOR = "vector"


class Metric(StrEnum):
    L2 = "l2"
    COSINE = "cosine"
    DOT = "dot"


EXACT_ROWS: Final = 100_000
"""So many rows of a type are searched exactly where its vector index does not say another number."""


class VectorIndex(Struct, frozen=True, omit_defaults=True):
    """How the vectors of a property are indexed: what `@index(…)` says. None leaves the choice to the build."""

    partitions: int | None = None
    """Groups of near vectors."""
    probes: int | None = None
    """Groups that a search looks at before it may end."""
    exact_rows: int = EXACT_ROWS
    """Up to so many rows of the type a search compares all vectors."""


class InlineRule(StrEnum):
    """The constraints that may be written beside a property instead of in the body."""

    KEY = "key"
    UNIQUE = "unique"
    INDEX = "index"


class Annotation(Struct, frozen=True, omit_defaults=True):
    """A custom annotation: stored, shown, never interpreted. Numbers are kept as the text that was written."""

    name: str
    value: str | None = None
    kwargs: tuple[tuple[str, str], ...] = ()


class EmbedSource(Struct, frozen=True, omit_defaults=True):
    """Where a vector comes from: a String property of the same type, and the model when one is recorded.

    `on_write` has every write of a text compute its vector; otherwise vectors are supplied.
    """

    property: str
    model: str | None = None
    on_write: bool = False


class RangeRule(Struct, frozen=True, omit_defaults=True):
    """Inclusive bounds of a numeric property; None is open."""

    property: str
    low: int | float | None = None
    high: int | float | None = None


class CheckRule(Struct, frozen=True):
    """An unanchored regular expression that a String property must match."""

    property: str
    pattern: str


class Cardinality(Struct, frozen=True, omit_defaults=True):
    """How many edges of a type one source node may have; `maximum` None is unbounded."""

    minimum: int = 0
    maximum: int | None = None

    def __str__(self) -> str:
        return f"{self.minimum}..{'' if self.maximum is None else self.maximum}"


DefaultItem: TypeAlias = str | bool | int | float
DefaultValue: TypeAlias = DefaultItem | tuple[DefaultItem, ...]
"""A default as a record of a load would give it: dates are texts."""


class Property(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One property of a type.

    `column` is the physical column, fixed for the property's life (an interface property has no table and
    repeats its name). `inline` are the rules written beside it, `interfaces` the contracts it fulfils, and
    `injected` says that the type did not declare it itself. `default` is the value of an entity that is written
    without one. `renamed_values` are the enum values that were renamed since the property exists, each with its name
    now: rows of branches that are older than the renaming still have the old ones. `index` has the parameters of the
    index of a vector.
    """

    name: str
    id: int
    type: PropertyType
    column: str
    inline: tuple[InlineRule, ...] = ()
    embed: EmbedSource | None = None
    metric: Metric | None = None
    description: str | None = None
    annotations: tuple[Annotation, ...] = ()
    interfaces: tuple[str, ...] = ()
    injected: bool = False
    default: DefaultValue | None = None
    renamed_values: tuple[tuple[str, str], ...] = ()
    index: VectorIndex | None = None

    @property
    def default_text(self) -> str | None:
        """The default as a schema writes it."""
        if isinstance(self.default, tuple):
            return f"[{', '.join(map(self._spell, self.default))}]"
        return None if self.default is None else self._spell(self.default)

    def _spell(self, item: DefaultItem) -> str:
        if isinstance(item, str):
            return quote(item) if self.type.enum_values is None else item
        return str(item).lower() if isinstance(item, bool) else repr(item)

    @property
    def is_embedded_on_write(self) -> bool:
        return self.embed is not None and self.embed.on_write

    @property
    def distance(self) -> Metric:
        """The metric that `nearest` ranks by: the declared one, else L2."""
        return self.metric or Metric.L2

    @property
    def vector_index(self) -> VectorIndex:
        """The parameters of the index of a vector, declared or not."""
        return self.index or VectorIndex()


TAG_SIGN: Final = "\x1f"
"""The character before and after the id of the type in a tagged id."""
UNTYPED: Final = f"{TAG_SIGN}?{TAG_SIGN}"
"""The tag of an id whose type a write has not found out yet. Never stored."""


class EndMember(Struct, frozen=True):
    """A node type that an end may have, by its id and name. `key_name` stands for it in the ids of edges that have a
    key, and never changes."""

    id: int
    name: str
    key_name: str


class InterfaceEnd(Struct, frozen=True, omit_defaults=True):
    """An end of an edge type that may be of any node type that implements an interface.

    Ids are unique within a node type, so the column of the end holds the id behind the tag of its type. `base` is the
    id of the node type whose nodes have none: the one that the end had before it was widened.
    """

    members: tuple[EndMember, ...] = ()
    base: int | None = None


class EdgeEnd(Struct, frozen=True):
    """One end of an edge type: its column, what a record calls it, and the node types that it may have, by name."""

    column: str
    name: str
    types: tuple[str, ...]
    interface: InterfaceEnd | None = None

    @property
    def rule_name(self) -> str:
        return f"@{self.column}"

    def tag_of(self, node: str) -> str:
        """What precedes the id of a node of this type in the column; nothing where the id needs none."""
        if self.interface is None:
            return ""
        member = next(member for member in self.interface.members if member.name == node)
        return "" if member.id == self.interface.base else type_tag(member.id)


def type_tag(type_id: int) -> str:
    return f"{TAG_SIGN}{type_id}{TAG_SIGN}"


def _alone(tuples: Iterable[tuple[str, ...]]) -> frozenset[str]:
    """The names that a rule holds for by themselves."""
    return frozenset(names[0] for names in tuples if len(names) == 1)


class _Declared:
    """What every type has. Each type lists its fields itself, because their order is that of the persisted form."""

    kind: ClassVar[TypeKind]
    name: str
    property_list: tuple[Property, ...]

    @cached_property
    def properties(self) -> Mapping[str, Property]:
        """By name, in column order."""
        return {prop.name: prop for prop in self.property_list}

    @property
    def type_key(self) -> str:
        return f"{self.kind}:{self.name}"

    @property
    def format(self) -> int:
        """The oldest persisted form that says all of the type."""
        return max((property_format(self.kind, prop) for prop in self.property_list), default=1)


def property_format(kind: TypeKind, prop: Property) -> int:
    """The oldest persisted form that says all of a property: readers that know no defaults would not write them, and
    those that know no property `id` would take it for the identity."""
    if prop.default is not None:
        return 3
    return 2 if kind != "interface" and prop.name in SYSTEM_COLUMNS[kind] else 1


class _Table(_Declared):
    key: tuple[str, ...]
    uniques: tuple[tuple[str, ...], ...]
    indexes: tuple[tuple[str, ...], ...]
    annotations: tuple[Annotation, ...]

    def rule_column(self, name: str) -> str:
        """The column that a name in a rule stands for: that of a property, or of an end (`@src`, or `src` where no
        property is called so)."""
        prop = self.properties.get(name)
        return prop.column if prop is not None else name.removeprefix("@")

    @property
    def key_columns(self) -> tuple[tuple[str, Scalar], ...]:
        """The columns that ids are made of, and the scalar of each. The ends of an edge hold the ids of its nodes."""
        members = ((self.rule_column(name), self.properties.get(name)) for name in self.key)
        return tuple((column, Scalar.STRING if prop is None else prop.type.scalar) for column, prop in members)

    def system_name(self, column: str) -> str:
        """What a system column is called where properties are beside it: `id`, or `@id` where one of them is called
        so."""
        return f"@{column}" if column in self.properties else column

    @property
    def shown_properties(self) -> tuple[Property, ...]:
        """The properties that an entity shows where a query returns it: all but blobs and vectors."""
        return tuple(prop for prop in self.property_list if not (prop.type.is_blob or prop.type.is_vector))

    @property
    def label(self) -> str | None:
        """The name that `@label` gives the type in openCypher."""
        return next((annotation.value for annotation in self.annotations if annotation.name == "label"), None)

    @cached_property
    def _indexed(self) -> frozenset[str]:
        return _alone(self.indexes)

    @cached_property
    def _unique(self) -> frozenset[str]:
        return _alone(self.uniques)


class InterfaceType(_Declared, Struct, frozen=True, omit_defaults=True, kw_only=True, dict=True):
    """A contract that node types implement, and perhaps the type of an end of edges. It has no rows of its own."""

    kind: ClassVar[TypeKind] = "interface"

    name: str
    id: int
    property_list: tuple[Property, ...] = field(name="properties", default=())


class NodeType(_Table, Struct, frozen=True, omit_defaults=True, kw_only=True, dict=True):
    """A node type. `key` lists its members in stable-property-id order, the order ids are made in."""

    kind: ClassVar[TypeKind] = "node"
    system_columns: ClassVar[tuple[str, ...]] = SYSTEM_COLUMNS["node"]

    name: str
    id: int
    table_incarnation: int
    birth_name: str
    property_list: tuple[Property, ...] = field(name="properties", default=())
    used_columns: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    uniques: tuple[tuple[str, ...], ...] = ()
    indexes: tuple[tuple[str, ...], ...] = ()
    ranges: tuple[RangeRule, ...] = ()
    checks: tuple[CheckRule, ...] = ()
    implements: tuple[str, ...] = ()
    description: str | None = None
    instruction: str | None = None
    annotations: tuple[Annotation, ...] = ()

    def index_kinds(self, property_name: str) -> tuple[IndexKind, ...]:
        """Every index that the declarations ask for on one property; tuples of several columns ask for none.

        Of a column that has n-grams and a BTREE, Lance asks whichever was built first and scans for what that one can't
        answer, so a text gets one of the two. N-grams find parts of texts and narrow equality as well; a BTREE finds
        many values at once, as uniqueness needs it. A key with n-grams is looked up as the id, which is the same text.
        """
        type_ = self.properties[property_name].type
        is_key, is_indexed = self.key == (property_name,), property_name in self._indexed
        is_unique, is_declared = property_name in self._unique, is_key or is_indexed
        if type_.is_free_text:
            texts = (IndexKind.FULL_TEXT,) if is_declared else ()
            if is_indexed and not is_unique:
                return (*texts, IndexKind.NGRAM)
            return (*texts, IndexKind.BTREE) if is_key or is_unique else texts
        if _is_ordered(type_):
            return (IndexKind.BTREE,) if is_declared or is_unique else ()
        if not is_declared or type_.is_blob:
            return ()
        return (IndexKind.VECTOR,) if type_.is_vector else (IndexKind.LABEL_LIST,)


class EdgeType(_Table, Struct, frozen=True, omit_defaults=True, kw_only=True, dict=True):
    """An edge type between two node types or interfaces.

    `from_interface` says that `from_type` is an interface, `to_interface` that `to_type` is one.
    `key` names both ends, `@src` and `@dst`, then properties in stable-property-id order: the order ids are made in.
    Other rules name the ends too; catalogs of older releases have them there as `src` and `dst`.
    """

    kind: ClassVar[TypeKind] = "edge"
    system_columns: ClassVar[tuple[str, ...]] = SYSTEM_COLUMNS["edge"]

    name: str
    id: int
    table_incarnation: int
    birth_name: str
    from_type: str
    to_type: str
    cardinality: Cardinality = Cardinality()
    property_list: tuple[Property, ...] = field(name="properties", default=())
    used_columns: tuple[str, ...] = ()
    uniques: tuple[tuple[str, ...], ...] = ()
    indexes: tuple[tuple[str, ...], ...] = ()
    description: str | None = None
    instruction: str | None = None
    annotations: tuple[Annotation, ...] = ()
    key: tuple[str, ...] = ()
    from_interface: InterfaceEnd | None = None
    to_interface: InterfaceEnd | None = None

    @cached_property
    def ends(self) -> tuple[EdgeEnd, EdgeEnd]:
        """The source and the target."""
        return (
            EdgeEnd("src", "from", _end_types(self.from_type, self.from_interface), self.from_interface),
            EdgeEnd("dst", "to", _end_types(self.to_type, self.to_interface), self.to_interface),
        )

    @property
    def source_types(self) -> tuple[str, ...]:
        return self.ends[0].types

    @property
    def target_types(self) -> tuple[str, ...]:
        return self.ends[1].types

    @property
    def has_interface_end(self) -> bool:
        return self.from_interface is not None or self.to_interface is not None

    def index_kinds(self, property_name: str) -> tuple[IndexKind, ...]:
        """As of a node, but only what finds values: edges are not searched."""
        is_declared = property_name in self._indexed or property_name in self._unique
        return (IndexKind.BTREE,) if is_declared and _is_ordered(self.properties[property_name].type) else ()

    @property
    def format(self) -> int:
        """Readers that know no keys of edges would write edges twice, and those that know no interface at an end would
        take a tagged id for an id."""
        return max(super().format, 3 if self.has_interface_end else 2 if self.key else 1)

    @property
    def is_symmetric(self) -> bool:
        """Both endpoints have one node type, so that several hops and undirected traversal make sense."""
        return self.from_type == self.to_type and not self.has_interface_end


def _end_types(name: str, interface: InterfaceEnd | None) -> tuple[str, ...]:
    return (name,) if interface is None else tuple(member.name for member in interface.members)


TableType: TypeAlias = NodeType | EdgeType
AnyType: TypeAlias = InterfaceType | NodeType | EdgeType


class Catalog(Struct, frozen=True, dict=True):
    """Every type of one schema. Iteration order is source order offline and name order in a live graph."""

    nodes: dict[str, NodeType]
    edges: dict[str, EdgeType]
    interfaces: dict[str, InterfaceType]
    next_id: int

    @cached_property
    def _edges_by_folded_name(self) -> dict[str, EdgeType]:
        return {edge.name.lower(): edge for edge in self.edges.values()}

    @cached_property
    def _incident(self) -> dict[str, tuple[EdgeType, ...]]:
        touching: dict[str, list[EdgeType]] = {name: [] for name in self.nodes}
        for edge in self.edges.values():
            for endpoint in dict.fromkeys((*edge.source_types, *edge.target_types)):
                touching[endpoint].append(edge)
        return {name: tuple(edges) for name, edges in touching.items()}

    def edge_named(self, name: str) -> EdgeType | None:
        """Exact first, then by lower case: a traversal can only spell a lowercase initial."""
        return self.edges.get(name) or self._edges_by_folded_name.get(name.lower())

    def type_named(self, name: str) -> TableType:
        """A node or edge type by its name or its type key (`node:Person`)."""
        kind, _, bare = name.rpartition(":")
        for wanted, types in (("node", self.nodes), ("edge", self.edges)):
            type_: TableType | None = types.get(bare)
            if type_ is not None and kind in ("", wanted):
                return type_
        raise unknown_type(name, self)

    def type_of_key(self, type_key: str) -> TableType | None:
        """The type with a type key, if there is one."""
        kind, _, name = type_key.partition(":")
        return self.nodes.get(name) if kind == "node" else self.edges.get(name)

    def ids_of(self, names: Collection[str]) -> frozenset[int]:
        """The identities of the node and edge types with these names."""
        types: tuple[TableType, ...] = (*self.nodes.values(), *self.edges.values())
        return frozenset(type_.id for type_ in types if type_.name in names)

    def incident_edges(self, node_type: str) -> tuple[EdgeType, ...]:
        """Edge types that touch a node type at either end, in catalog order."""
        return self._incident.get(node_type, ())

    def types(self) -> Iterator[AnyType]:
        """Interfaces, then nodes, then edges."""
        return chain(self.interfaces.values(), self.nodes.values(), self.edges.values())

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the persisted form: equal digests mean equal schemas with equal identities."""
        return hashlib.sha256(self.to_json()).hexdigest()

    @property
    def format(self) -> int:
        """The oldest form that says all of it."""
        return max((type_.format for type_ in self.types()), default=1)

    def to_json(self) -> bytes:
        """The persisted form: deterministic, compact, with its format version first."""
        return _ENCODER.encode(
            _Persisted(
                self.format,
                self.next_id,
                tuple(self.interfaces.values()),
                tuple(self.nodes.values()),
                tuple(self.edges.values()),
            )
        )

    @classmethod
    def from_json(cls, data: bytes, path: str = "catalog") -> Catalog:
        """Read what `to_json` wrote; `path` names the object in errors."""
        try:
            version = _FORMAT.decode(data).format
            if not 1 <= version <= CATALOG_FORMAT:
                raise FormatVersionError(path, version, CATALOG_FORMAT)
            persisted = _DECODER.decode(data)
        except msgspec.MsgspecError as error:
            raise IntegrityError(path, f"not a catalog: {error}") from error
        return cls(
            nodes={node.name: node for node in persisted.nodes},
            edges={edge.name: edge for edge in persisted.edges},
            interfaces={interface.name: interface for interface in persisted.interfaces},
            next_id=persisted.next_id,
        )


class _Format(Struct):
    format: int


class _Persisted(Struct, frozen=True):
    format: int
    next_id: int
    interfaces: tuple[InterfaceType, ...]
    nodes: tuple[NodeType, ...]
    edges: tuple[EdgeType, ...]


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(_Persisted)
_FORMAT = msgspec.json.Decoder(_Format)


def _is_ordered(property_type: PropertyType) -> bool:
    return not (property_type.is_blob or property_type.is_vector or property_type.list)


def check_type_names(names: Iterable[str], *catalogs: Catalog) -> None:
    """Refuse a filter by a type that none of the catalogs declares: it would let nothing through, silently."""
    for name in sorted(names):
        if not any(name in catalog.nodes or name in catalog.edges for catalog in catalogs):
            raise unknown_type(name, *catalogs)


def unknown_type(name: str, *catalogs: Catalog) -> BadRequestError:
    """The error for the name of a type, with the known one that was probably meant."""
    type_names = {type_name for catalog in catalogs for type_name in (*catalog.nodes, *catalog.edges)}
    bare = name.rpartition(":")[2]
    hint = f"did you mean '{bare}'?" if bare in type_names else did_you_mean(bare, type_names)
    return BadRequestError(f"the graph has no type '{name}'" + (f"; {hint}" if hint else ""))
