"""The types a property or a parameter can have, their display names and when two of them can meet.

Both languages, the coercions and the storage mapping ask here what a type is; nothing here knows about
Arrow, values or source positions.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Scalar(StrEnum):
    """The scalar kinds by their spelling in both languages. `VECTOR` always comes with a dimension."""

    STRING = "String"
    BOOL = "Bool"
    I32 = "I32"
    I64 = "I64"
    U32 = "U32"
    U64 = "U64"
    F32 = "F32"
    F64 = "F64"
    DATE = "Date"
    DATETIME = "DateTime"
    BLOB = "Blob"
    VECTOR = "Vector"


INTEGERS = frozenset({Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64})
FLOATS = frozenset({Scalar.F32, Scalar.F64})
NUMERIC = INTEGERS | FLOATS

INTEGER_RANGES: dict[Scalar, tuple[int, int]] = {
    Scalar.I32: (-(2**31), 2**31 - 1),
    Scalar.I64: (-(2**63), 2**63 - 1),
    Scalar.U32: (0, 2**32 - 1),
    Scalar.U64: (0, 2**64 - 1),
}

MAX_VECTOR_DIMENSION = 2**31 - 1

# Every name that may stand where a scalar type is written; `Vector` is spelled with its dimension instead.
SCALAR_NAMES: dict[str, Scalar] = {scalar.value: scalar for scalar in Scalar if scalar is not Scalar.VECTOR}


def vector_dimension_problem(dimension: int) -> str | None:
    """Why `Vector(dimension)` is not a type, or None when it is one."""
    if dimension <= 0:
        return "Vector dimension must be greater than zero"
    if dimension > MAX_VECTOR_DIMENSION:
        return f"Vector dimension {dimension} exceeds maximum supported {MAX_VECTOR_DIMENSION}"
    return None


class PropertyType(Struct, frozen=True, omit_defaults=True):
    """One property or parameter type. `enum_values` are sorted and unique: source order carries no meaning."""

    scalar: Scalar
    nullable: bool = False
    list: bool = False
    enum_values: tuple[str, ...] | None = None
    dimension: int | None = None

    @classmethod
    def enum(cls, values: tuple[str, ...], *, nullable: bool = False) -> PropertyType:
        return cls(Scalar.STRING, nullable=nullable, enum_values=tuple(sorted(set(values))))

    @classmethod
    def vector(cls, dimension: int, *, nullable: bool = False) -> PropertyType:
        return cls(Scalar.VECTOR, nullable=nullable, dimension=dimension)

    @property
    def is_enum(self) -> bool:
        return self.enum_values is not None

    @property
    def is_vector(self) -> bool:
        return self.scalar is Scalar.VECTOR

    @property
    def is_blob(self) -> bool:
        return self.scalar is Scalar.BLOB

    @property
    def is_numeric(self) -> bool:
        """A single number: lists of numbers are not numeric."""
        return self.scalar in NUMERIC and not self.list

    @property
    def is_integer(self) -> bool:
        return self.scalar in INTEGERS and not self.list

    @property
    def is_text(self) -> bool:
        """A single String, enum or free."""
        return self.scalar is Scalar.STRING and not self.list

    @property
    def is_free_text(self) -> bool:
        return self.is_text and not self.is_enum

    @property
    def item(self) -> PropertyType:
        """The type of one element of a list; a scalar is its own item."""
        return PropertyType(self.scalar, enum_values=self.enum_values) if self.list else self

    def as_nullable(self, nullable: bool = True) -> PropertyType:
        return PropertyType(self.scalar, nullable, self.list, self.enum_values, self.dimension)

    def compatible_with(self, other: PropertyType) -> bool:
        """Whether values of the two types may meet in a comparison or an assignment; nullability is ignored."""
        if self.list != other.list:
            return False
        if self.is_vector or other.is_vector:
            return self.scalar is other.scalar and self.dimension == other.dimension
        return self.scalar is other.scalar or (self.scalar in NUMERIC and other.scalar in NUMERIC)

    def __str__(self) -> str:
        """The name used in messages: `I32?`, `[String]`, `Vector(4)`, `enum(a, b)`."""
        if self.enum_values is not None:
            name = f"enum({', '.join(self.enum_values)})"
        elif self.is_vector:
            name = f"Vector({self.dimension})"
        else:
            name = self.scalar.value
        if self.list:
            name = f"[{name}]"
        return name + ("?" if self.nullable else "")

    display = property(__str__)
