"""The types of values in a query: those of properties, and entities, paths, lists, records and null on top of them.

A property type stays what it is; the other kinds exist only while a query runs. A list of scalars is always a
`PropertyType`; `ListType` is for lists of anything else, so that each type has one spelling. Everything that asks what
a value is, or whether two values can meet, asks here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from omnigraph.language.catalog import EdgeType, NodeType, TableType
from omnigraph.language.types import FLOATS, PropertyType, Scalar

Table = TypeVar("Table", NodeType, EdgeType, TableType)

STRING: Final = PropertyType(Scalar.STRING)
BOOL: Final = PropertyType(Scalar.BOOL)
I64: Final = PropertyType(Scalar.I64)
F64: Final = PropertyType(Scalar.F64)
DATE: Final = PropertyType(Scalar.DATE)
DATETIME: Final = PropertyType(Scalar.DATETIME)


class NullType(Struct, frozen=True):
    """The type of `null` alone, which fits everything. As a column it is `String?`."""

    nullable: bool = True

    def __str__(self) -> str:
        return "null"


class ListType(Struct, frozen=True):
    """A list of something else than scalars: entities, lists, records, paths. Items may be null.

    A list of nothing but nulls, `[]` too, is a list of `NullType`, which fits every list.
    """

    item: ValueType
    nullable: bool = False

    def __str__(self) -> str:
        return f"[{self.item}]" + ("?" if self.nullable else "")


class RecordType(Struct, frozen=True):
    """Named values, in the order in which they were written."""

    fields: tuple[tuple[str, ValueType], ...]
    nullable: bool = False

    def field(self, name: str) -> ValueType | None:
        return dict(self.fields).get(name)

    def __str__(self) -> str:
        return f"record({', '.join(f'{name}: {type_}' for name, type_ in self.fields)})" + (
            "?" if self.nullable else ""
        )


class EntityType(Struct, frozen=True):
    """A node or an edge of one of the `members`, which are all nodes or all edges.

    The order of the members is part of the type: a binding of several types stores the position of its member.
    """

    members: tuple[TableType, ...]
    nullable: bool = False

    @property
    def is_edge(self) -> bool:
        return bool(self.members) and isinstance(self.members[0], EdgeType)

    @property
    def type_names(self) -> tuple[str, ...]:
        return tuple(member.name for member in self.members)

    def __str__(self) -> str:
        kind = "edge" if self.is_edge else "node"
        return f"{kind} {' | '.join(self.type_names)}" + ("?" if self.nullable else "")


class PathType(Struct, frozen=True):
    """A walk: one node more than edges. `nodes` and `edges` are the types that may occur on it."""

    nodes: EntityType
    edges: EntityType
    nullable: bool = False

    def __str__(self) -> str:
        return "path" + ("?" if self.nullable else "")


ValueType: TypeAlias = PropertyType | NullType | ListType | RecordType | EntityType | PathType


def as_nullable(type_: ValueType, nullable: bool = True) -> ValueType:
    """The same type with this nullability. Null itself is always nullable."""
    if isinstance(type_, PropertyType):
        return type_ if type_.nullable == nullable else type_.as_nullable(nullable)
    if isinstance(type_, NullType) or type_.nullable == nullable:
        return type_
    return replace(type_, nullable=nullable)


def is_list(type_: ValueType) -> bool:
    return isinstance(type_, ListType) or (isinstance(type_, PropertyType) and type_.list)


def item_of(type_: ValueType) -> ValueType:
    """The type of an item of a list, which may be null."""
    if isinstance(type_, ListType):
        return as_nullable(type_.item)
    assert isinstance(type_, PropertyType)
    assert type_.list
    return type_.item.as_nullable()


def list_of(item: ValueType, *, nullable: bool = False) -> ValueType:
    """The type of a list of such items."""
    is_scalar = isinstance(item, PropertyType) and not (item.list or item.is_vector or item.is_blob)
    if is_scalar:
        assert isinstance(item, PropertyType)
        return PropertyType(item.scalar, nullable=nullable, list=True, enum_values=None)
    return ListType(as_nullable(item, False), nullable)


def is_scalar(type_: ValueType) -> bool:
    """A single value that has a place in an order: a number, a text, a truth value, a day or an instant."""
    return isinstance(type_, PropertyType) and not (type_.list or type_.is_vector or type_.is_blob)


def is_number(type_: ValueType) -> bool:
    return isinstance(type_, PropertyType) and type_.is_numeric


def is_integer(type_: ValueType) -> bool:
    return isinstance(type_, PropertyType) and type_.is_integer


def is_text(type_: ValueType) -> bool:
    return isinstance(type_, PropertyType) and type_.is_text


def is_bool(type_: ValueType) -> bool:
    return is_scalar(type_) and isinstance(type_, PropertyType) and type_.scalar is Scalar.BOOL


def is_null(type_: ValueType) -> bool:
    return isinstance(type_, NullType)


def as_column(type_: ValueType) -> ValueType:
    """The type of an output column or of a stored value: nothing but null is a text that is always null."""
    match type_:
        case NullType():
            return STRING.as_nullable()
        case ListType():
            return list_of(as_column(type_.item), nullable=type_.nullable)
        case RecordType():
            fields = tuple((name, as_column(field)) for name, field in type_.fields)
            return type_ if fields == type_.fields else RecordType(fields, type_.nullable)
    return type_


def display(type_: ValueType) -> str:
    """The type of a column as descriptions show it: `I32?`, `node Person`, `edge Knows`, `path`, `[node Person]`."""
    return str(as_column(type_))


def unify(left: ValueType, right: ValueType) -> ValueType | None:
    """The type that holds values of both, or None. Numbers widen (integers to I64, a float makes F64), null fits
    everything, enums unite or become String, entities unite their types."""
    nullable = left.nullable or right.nullable
    if isinstance(left, NullType):
        return as_nullable(right)
    if isinstance(right, NullType):
        return as_nullable(left)
    if is_list(left) and is_list(right):
        item = unify(item_of(left), item_of(right))
        return None if item is None else list_of(item, nullable=nullable)
    if isinstance(left, PropertyType) and isinstance(right, PropertyType):
        return _unify_scalars(left, right, nullable)
    if isinstance(left, EntityType) and isinstance(right, EntityType):
        return None if left.is_edge != right.is_edge else EntityType(_unite(left, right), nullable)
    if isinstance(left, PathType) and isinstance(right, PathType):
        nodes = EntityType(_unite(left.nodes, right.nodes))
        return PathType(nodes, EntityType(_unite(left.edges, right.edges)), nullable)
    if isinstance(left, RecordType) and isinstance(right, RecordType):
        return _unify_records(left, right, nullable)
    return None


def _unify_scalars(left: PropertyType, right: PropertyType, nullable: bool) -> PropertyType | None:
    if not left.compatible_with(right):
        return None
    if left.is_numeric and left.scalar is not right.scalar:
        is_float = left.scalar in FLOATS or right.scalar in FLOATS
        return PropertyType(Scalar.F64 if is_float else Scalar.I64, nullable)
    if left.enum_values is not None and right.enum_values is not None:
        return PropertyType.enum((*left.enum_values, *right.enum_values), nullable=nullable)
    return PropertyType(left.scalar, nullable, left.list, None, left.dimension)


def _unite(left: EntityType, right: EntityType) -> tuple[TableType, ...]:
    return unique_types((*left.members, *right.members))


def unique_types(types: Iterable[Table]) -> tuple[Table, ...]:
    """Each type once, in the order of its first appearance; all of them are nodes, or all are edges."""
    return tuple({type_.name: type_ for type_ in types}.values())


def _unify_records(left: RecordType, right: RecordType, nullable: bool) -> RecordType | None:
    if [name for name, _ in left.fields] != [name for name, _ in right.fields]:
        return None
    fields: list[tuple[str, ValueType]] = []
    for (name, own), (_, other) in zip(left.fields, right.fields, strict=True):
        both = unify(own, other)
        if both is None:
            return None
        fields.append((name, both))
    return RecordType(tuple(fields), nullable)


def unify_all(types: Iterable[ValueType]) -> ValueType | None:
    """The type that holds the values of all of them; that of null when there is none."""
    whole: ValueType = NullType()
    for i, type_ in enumerate(types):
        both = type_ if i == 0 else unify(whole, type_)
        if both is None:
            return None
        whole = both
    return whole


def overlaps(left: EntityType, right: EntityType) -> bool:
    """Whether one entity can be of both types."""
    if left.is_edge != right.is_edge:
        return False
    names = set(left.type_names)
    return any(member.name in names for member in right.members)
