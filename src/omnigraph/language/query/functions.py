"""The functions of `.gq` by name: their signatures, which types they take and what they give.

The checker asks here what a call means, and shows the signatures when it means nothing; the engine has one
implementation for each name in `FUNCTIONS`. Functions are pure: the same arguments give the same value. Unless its
result says otherwise, a call is null when an argument is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from omnigraph.language.query.value_types import (
    BOOL,
    DATE,
    DATETIME,
    F64,
    I64,
    STRING,
    EntityType,
    NullType,
    PathType,
    ValueType,
    as_nullable,
    is_bool,
    is_integer,
    is_list,
    is_number,
    is_scalar,
    is_text,
    item_of,
    list_of,
    unify,
    unify_all,
)
from omnigraph.language.types import PropertyType, Scalar

_CALLS: Final = """
lower(s: String) -> String
upper(s: String) -> String
trim(s: String) -> String
ltrim(s: String) -> String
rtrim(s: String) -> String
reverse(s: String) -> String
reverse(list: list) -> same
left(s: String, n: integer) -> String
right(s: String, n: integer) -> String
substring(s: String, start: integer[, n: integer]) -> String
replace(s: String, a: String, b: String) -> String
split(s: String, sep: String) -> [String]
join(list: [String], sep: String) -> String
size(s: String) -> I64
size(list: list) -> I64
ends_with(s: String, t: String) -> Bool
matches(s: String, re: String) -> Bool
abs(x: integer) -> I64
abs(x: number) -> F64
sign(x: integer) -> I64
sign(x: number) -> F64
ceil(x: number) -> F64
floor(x: number) -> F64
round(x: number[, digits: integer]) -> F64
sqrt(x: number) -> F64
exp(x: number) -> F64
log(x: number) -> F64
log10(x: number) -> F64
power(x: number, y: number) -> F64
pi() -> F64
e() -> F64
sin(x: number) -> F64
cos(x: number) -> F64
tan(x: number) -> F64
asin(x: number) -> F64
acos(x: number) -> F64
atan(x: number) -> F64
atan2(y: number, x: number) -> F64
degrees(x: number) -> F64
radians(x: number) -> F64
to_string(x: scalar) -> String
to_int(x: integer) -> I64
to_int(x: number | String) -> I64?
to_float(x: number) -> F64
to_float(x: String) -> F64?
to_bool(s: Bool) -> Bool
to_bool(s: String) -> Bool?
coalesce(a: value, …) -> common
nullif(a: value, b: value) -> first
date(x: String | Date | DateTime) -> Date
datetime(x: String | Date | DateTime) -> DateTime
year(d: Date | DateTime) -> I64
month(d: Date | DateTime) -> I64
day(d: Date | DateTime) -> I64
hour(t: DateTime) -> I64
minute(t: DateTime) -> I64
second(t: DateTime) -> I64
weekday(d: Date | DateTime) -> I64
add_days(d: Date | DateTime, n: integer) -> same
add_months(d: Date | DateTime, n: integer) -> same
add_seconds(t: DateTime, n: integer) -> DateTime
days_between(a: Date | DateTime, b: Date | DateTime) -> I64
seconds_between(a: Date | DateTime, b: Date | DateTime) -> I64
head(list: list) -> item
last(list: list) -> item
tail(list: list) -> same
item(list: list, i: integer) -> item
slice(list: list, from: integer, to: integer) -> same
range(a: integer, b: integer[, step: integer]) -> [I64]
keys(x: node or edge) -> [String]
length(p: path) -> I64
nodes(p: path) -> nodes
edges(p: path) -> edges
start(p: path) -> node
end(p: path) -> node
"""

FORMS: Final[Mapping[str, tuple[str, ...]]] = {
    "contains": ("contains(s: String, t: String) -> Bool",),
    "starts_with": ("starts_with(s: String, t: String) -> Bool",),
    "record": ("record(name: value, …) -> record",),
    "field": ('field(r: record, "name") -> value',),
    "path": ("path($a, $e, $b, …) -> path",),
    "map": ("map($x in list [where p] : value) -> list",),
    "any": ("any($x in list : p) -> Bool",),
    "all": ("all($x in list : p) -> Bool",),
    "none": ("none($x in list : p) -> Bool",),
    "single": ("single($x in list : p) -> Bool",),
    "reduce": ("reduce($a = value, $x in list : value) -> value",),
}
"""What is written as a call and becomes another value of the plan, with its signatures as shown."""


def _is(scalar: Scalar) -> Callable[[ValueType], bool]:
    return lambda type_: is_scalar(type_) and isinstance(type_, PropertyType) and type_.scalar is scalar


_KINDS: Final[Mapping[str, Callable[[ValueType], bool]]] = {
    "String": is_text,
    "integer": is_integer,
    "number": is_number,
    "Bool": is_bool,
    "Date": _is(Scalar.DATE),
    "DateTime": _is(Scalar.DATETIME),
    "scalar": is_scalar,
    "list": is_list,
    "[String]": lambda type_: is_list(type_) and (is_text(item_of(type_)) or isinstance(item_of(type_), NullType)),
    "path": lambda type_: isinstance(type_, PathType),
    "node or edge": lambda type_: isinstance(type_, EntityType),
    "value": lambda type_: True,
}


def _nodes_of(path: ValueType) -> EntityType:
    assert isinstance(path, PathType)
    return path.nodes


def _edges_of(path: ValueType) -> EntityType:
    assert isinstance(path, PathType)
    return path.edges


def _common(types: Sequence[ValueType]) -> ValueType | None:
    """Null only where every argument is."""
    common = unify_all(types)
    return None if common is None else as_nullable(common, all(type_.nullable for type_ in types))


def _first_unless_equal(types: Sequence[ValueType]) -> ValueType | None:
    return None if unify(types[0], types[1]) is None else as_nullable(types[0])


# The results that are not simply a type which is null when an argument is.
_RULES: Final[Mapping[str, Callable[[Sequence[ValueType]], ValueType | None]]] = {
    "common": _common,
    "first": _first_unless_equal,
    "item": lambda types: as_nullable(item_of(types[0])),
    "I64?": lambda types: I64.as_nullable(),
    "F64?": lambda types: F64.as_nullable(),
    "Bool?": lambda types: BOOL.as_nullable(),
}
_RESULTS: Final[Mapping[str, Callable[[Sequence[ValueType]], ValueType]]] = {
    "String": lambda types: STRING,
    "I64": lambda types: I64,
    "F64": lambda types: F64,
    "Bool": lambda types: BOOL,
    "Date": lambda types: DATE,
    "DateTime": lambda types: DATETIME,
    "[String]": lambda types: list_of(STRING),
    "[I64]": lambda types: list_of(I64),
    "same": lambda types: types[0],
    "nodes": lambda types: list_of(_nodes_of(types[0])),
    "edges": lambda types: list_of(_edges_of(types[0])),
    "node": lambda types: _nodes_of(types[0]),
}


class Signature(Struct, frozen=True):
    """One way to call a function. `kinds` has the alternatives for each argument; `text` is how it is shown."""

    text: str
    kinds: tuple[tuple[str, ...], ...]
    required: int
    is_variadic: bool
    result: str

    def takes(self, types: Sequence[ValueType]) -> bool:
        """Whether arguments of these types fit; null fits everything."""
        if len(types) < self.required or (len(types) > len(self.kinds) and not self.is_variadic):
            return False
        return all(
            isinstance(type_, NullType) or any(_KINDS[kind](type_) for kind in self.kinds[min(i, len(self.kinds) - 1)])
            for i, type_ in enumerate(types)
        )

    def result_of(self, types: Sequence[ValueType]) -> ValueType | None:
        """The type of a call with arguments that fit; None when they have no type in common that it needs."""
        if rule := _RULES.get(self.result):
            return NullType() if self.result == "item" and isinstance(types[0], NullType) else rule(types)
        nullable = any(type_.nullable for type_ in types)
        if types and isinstance(types[0], NullType) and self.result in ("same", "nodes", "edges", "node"):
            return types[0]
        return as_nullable(_RESULTS[self.result](types), nullable)


class Function(Struct, frozen=True):
    name: str
    signatures: tuple[Signature, ...]

    def result(self, types: Sequence[ValueType]) -> ValueType | None:
        """The type of a call, by the first signature that takes these arguments, or None."""
        signature = next((signature for signature in self.signatures if signature.takes(types)), None)
        return None if signature is None else signature.result_of(types)


_DECLARATION: Final = re.compile(r"(\w+)\((.*)\) -> (.+)")


def _signature(text: str) -> tuple[str, Signature]:
    declaration = _DECLARATION.fullmatch(text)
    assert declaration is not None, text
    name, parameters, result = declaration.groups()
    required, _, _ = parameters.partition("[, ")
    written = [each for each in parameters.replace("[, ", ", ").removesuffix("]").split(", ") if each]
    is_variadic = written[-1:] == ["…"]
    named = written[:-1] if is_variadic else written
    kinds = tuple(tuple(each.partition(": ")[2].split(" | ")) for each in named)
    least = len(named) if required == parameters else required.count(":")
    return name, Signature(text, kinds, least, is_variadic, result)


def _functions() -> dict[str, Function]:
    overloads: dict[str, list[Signature]] = {}
    for line in _CALLS.strip().splitlines():
        name, signature = _signature(line)
        overloads.setdefault(name, []).append(signature)
    return {name: Function(name, tuple(signatures)) for name, signatures in overloads.items()}


FUNCTIONS: Final[Mapping[str, Function]] = _functions()
"""The functions that are `ir.Call`s, by name."""

NAMES: Final = frozenset({*FUNCTIONS, *FORMS})
"""Everything that may be written as a call, for suggestions."""


def signatures_of(name: str) -> tuple[str, ...]:
    """The signatures of a function or form, as messages show them."""
    function = FUNCTIONS.get(name)
    return FORMS.get(name, ()) if function is None else tuple(signature.text for signature in function.signatures)
