"""The entry to the query language: from text and catalog to queries that can be described and run.

The engine and every interface call `compile_queries`. Parsing happens at once; each query is typechecked when it is
requested and lowered when it is about to run, so one broken query does not stop its neighbours. `describe` gives the
result columns of a query and the types that it may read and write, for lint, policy and the HTTP catalog; these sets
contain every type that execution may touch.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from functools import cached_property
from threading import Lock
from typing import Literal, TypeAlias

from msgspec import Struct

from omnigraph.api.governance import QueryLimits
from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import Catalog, EdgeType, NodeType
from omnigraph.language.query import ir, resolved
from omnigraph.language.query import syntax as ast
from omnigraph.language.query.check.query import check_query
from omnigraph.language.query.lower import lower_query
from omnigraph.language.query.parser import DEFAULT_LIMITS, parse_queries
from omnigraph.language.source import SourceText, did_you_mean
from omnigraph.language.types import FLOATS, PropertyType, Scalar

_NUMBERS = {
    **dict.fromkeys((Scalar.I32, Scalar.U32), "int"),
    **dict.fromkeys((Scalar.I64, Scalar.U64), "bigint"),
    **dict.fromkeys(FLOATS, "float"),
}
_KINDS = {scalar: _NUMBERS.get(scalar, scalar.value.lower()) for scalar in Scalar}


class ValueShape(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The description of one column or parameter; its fields are the wire form."""

    name: str
    kind: str
    item_kind: str | None = None
    vector_dim: int | None = None
    nullable: bool

    @classmethod
    def of(cls, name: str, type_: PropertyType, *, nullable: bool | None = None) -> ValueShape:
        return cls(
            name=name,
            kind="list" if type_.list else _KINDS[type_.scalar],
            item_kind=_KINDS[type_.scalar] if type_.list else None,
            vector_dim=type_.dimension,
            nullable=type_.nullable if nullable is None else nullable,
        )


class TouchedType(Struct, frozen=True):
    """A type that an operation reads or writes."""

    kind: Literal["node", "edge"]
    type_name: str

    @classmethod
    def of(cls, type_: NodeType | EdgeType) -> TouchedType:
        return cls("edge" if isinstance(type_, EdgeType) else "node", type_.name)


class Operation(Struct, frozen=True):
    """`result` in projection order, empty for mutations; `reads` and `writes` without repeats, nodes first."""

    result: tuple[ValueShape, ...]
    reads: tuple[TouchedType, ...]
    writes: tuple[TouchedType, ...]


def describe(query: resolved.Query) -> Operation:
    if isinstance(query.body, resolved.Writes):
        plans = [statement.plan for statement in query.body.statements]
        cascades = [edge for plan in plans if isinstance(plan, ir.DeleteNodes) for edge in plan.cascades]
        written = {*(TouchedType.of(plan.type) for plan in plans), *map(TouchedType.of, cascades)}
        edges = [plan.type for plan in plans if isinstance(plan, ir.InsertEdge)]
        ends = {TouchedType("node", name) for edge in edges for name in (edge.from_type, edge.to_type)}
        return Operation((), _sort_types(written | ends), _sort_types(written))
    result = tuple(_result_shape(projection) for projection in query.body.projections)
    return Operation(result, _sort_types(_types_in_match(query.body.clauses)), ())


def describe_parameters(parameters: Iterable[ir.QueryParameter]) -> tuple[ValueShape, ...]:
    return tuple(ValueShape.of(parameter.name, parameter.type) for parameter in parameters)


def _result_shape(projection: resolved.Projection) -> ValueShape:
    value = projection.value
    if isinstance(value, ir.NodeId):
        return ValueShape(name=projection.described_name, kind="object", nullable=False)
    # An aggregate may meet no rows at all, so every one of them is described as nullable.
    nullable = True if isinstance(value, ir.AggregateValue) else None
    return ValueShape.of(projection.described_name, value.type, nullable=nullable)


def _sort_types(touched: Iterable[TouchedType]) -> tuple[TouchedType, ...]:
    return tuple(sorted(set(touched), key=lambda type_: (type_.kind != "node", type_.type_name)))


def _types_in_match(clauses: Iterable[resolved.Clause]) -> Iterator[TouchedType]:
    for clause in clauses:
        match clause:
            case resolved.Binding():
                yield TouchedType.of(clause.type)
            case resolved.Traversal():
                yield TouchedType.of(clause.edge)
                yield TouchedType.of(clause.source_type)
                yield TouchedType.of(clause.destination_type)
            case resolved.Negation():
                yield from _types_in_match(clause.clauses)


CACHE_SIZE = 256
CACHE_CHARACTERS = 1 << 20
"""Of texts; a compiled file takes some fifty times as many bytes. Whoever may send queries may send long ones."""


class CompiledQuery:
    """One query against one catalog. What was computed once is kept; everything here is immutable."""

    def __init__(self, syntax: ast.Query, catalog: Catalog, source: SourceText, limits: QueryLimits) -> None:
        self.syntax = syntax
        self._catalog = catalog
        self._source = source
        self._limits = limits

    @property
    def name(self) -> str:
        return self.syntax.name.text

    @property
    def is_mutation(self) -> bool:
        return self.syntax.is_mutation

    @property
    def description(self) -> str | None:
        return self.syntax.description

    @property
    def instruction(self) -> str | None:
        return self.syntax.instruction

    @cached_property
    def resolved(self) -> resolved.Query:
        """Names and types; raises `CompileError` with every type error of the query."""
        return check_query(self.syntax, self._catalog, self._source, self._limits)

    @property
    def parameters(self) -> tuple[ir.QueryParameter, ...]:
        return self.resolved.parameters

    @cached_property
    def operation(self) -> Operation:
        return describe(self.resolved)

    @cached_property
    def plan(self) -> ir.Plan:
        """What the engine runs; raises `CompileError` for what typechecks and can't run."""
        return lower_query(self.resolved, self._source)

    @property
    def read_plan(self) -> ir.ReadPlan:
        plan = self.plan
        if isinstance(plan, ir.WritePlan):
            way = "run it with `omnigraph mutate` or POST /mutate"
            raise BadRequestError(f"query '{self.name}' contains mutations; {way}")
        return plan

    @property
    def write_plan(self) -> ir.WritePlan:
        plan = self.plan
        if isinstance(plan, ir.ReadPlan):
            raise BadRequestError(f"query '{self.name}' is a read; run it with `omnigraph query` or POST /query")
        return plan


class CompiledFile:
    """The queries of one text, in source order."""

    def __init__(self, queries: tuple[CompiledQuery, ...]) -> None:
        self.queries = queries

    def query(self, name: str | None = None) -> CompiledQuery:
        """The query of that name, the first one if it repeats; without a name, the only query there is."""
        if name is not None:
            for query in self.queries:
                if query.name == name:
                    return query
            options = [query.name for query in self.queries]
            hint = did_you_mean(name, options) or (f"the source has: {', '.join(options)}" if options else "")
            raise BadRequestError(f"query '{name}' not found" + (f"; {hint}" if hint else ""))
        if not self.queries:
            raise BadRequestError("the source holds no query")
        if len(self.queries) > 1:
            names = ", ".join(query.name for query in self.queries)
            raise BadRequestError(f"the source holds multiple queries; name one of: {names}")
        return self.queries[0]


_Key: TypeAlias = tuple[str | None, bytes, str, QueryLimits]


class _RecentlyUsed:
    """A bounded memory of compiled files. Entries are immutable, so sharing them between threads is safe."""

    def __init__(self) -> None:
        self.characters = 0
        self._entries: OrderedDict[_Key, tuple[CompiledFile, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: _Key) -> CompiledFile | None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: _Key, compiled: CompiledFile, characters: int) -> None:
        """Remember a file, and forget the oldest ones that it leaves no room for. One that fills the whole memory is
        not worth what would have to go for it."""
        if characters > CACHE_CHARACTERS:
            return
        with self._lock:
            self.characters += characters - self._entries.pop(key, (None, 0))[1]
            self._entries[key] = compiled, characters
            while len(self._entries) > CACHE_SIZE or self.characters > CACHE_CHARACTERS:
                _, (_, forgotten) = self._entries.popitem(last=False)
                self.characters -= forgotten

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self.characters = 0

    def __len__(self) -> int:
        return len(self._entries)


_cache = _RecentlyUsed()


def compile_queries(
    text: str, catalog: Catalog, path: str | None = None, limits: QueryLimits = DEFAULT_LIMITS
) -> CompiledFile:
    """The queries of a text. Raises `CompileError` when it does not parse; `path` only shows in messages.

    A text that was compiled against the same schema before comes from memory.
    """
    key = (path, hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest(), catalog.digest, limits)
    compiled = _cache.get(key)
    if compiled is None:
        source = SourceText(text, path)
        parsed = parse_queries(text, path, limits)
        compiled = CompiledFile(tuple(CompiledQuery(query, catalog, source, limits) for query in parsed.queries))
        _cache.put(key, compiled, len(text))
    return compiled
