"""The entry to the query language: from text and catalog to queries that can be described and run.

The engine and every interface call `compile_queries`, or `compile_text` where a text may be a statement as well.
Parsing happens at once; each query is typechecked when it is requested and lowered when it is about to run, so one
broken query does not stop its neighbours. `describe` gives the result columns of a query and the types that it may read
and write, for lint, policy and the HTTP catalog; these sets contain every type that execution may touch.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from threading import Lock
from typing import Literal, TypeAlias

from msgspec import Struct

from omnigraph.api.governance import QueryLimits
from omnigraph.errors import BadRequestError
from omnigraph.language.catalog import Catalog, EdgeType, TableType
from omnigraph.language.query import ir, resolved
from omnigraph.language.query import syntax as ast
from omnigraph.language.query.check.query import check_query
from omnigraph.language.query.lower.read import lower_read
from omnigraph.language.query.lower.writes import lower_writes
from omnigraph.language.query.parser import DEFAULT_LIMITS, parse_queries, statement_refusal
from omnigraph.language.query.value_types import (
    EntityType,
    ListType,
    NullType,
    PathType,
    RecordType,
    ValueType,
    as_column,
    is_list,
    is_scalar,
    item_of,
)
from omnigraph.language.source import SourceText, did_you_mean
from omnigraph.language.types import FLOATS, PropertyType, Scalar

# ---- descriptions ---------------------------------------------------------------------------------------

_NUMBERS = {
    **dict.fromkeys((Scalar.I32, Scalar.U32), "int"),
    **dict.fromkeys((Scalar.I64, Scalar.U64), "bigint"),
    **dict.fromkeys(FLOATS, "float"),
}
_KINDS = {scalar: _NUMBERS.get(scalar, scalar.value.lower()) for scalar in Scalar}


class ValueShape(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The description of one parameter; its fields are the wire form."""

    name: str
    kind: str
    item_kind: str | None = None
    vector_dim: int | None = None
    nullable: bool


class ColumnShape(ValueShape, frozen=True, kw_only=True, omit_defaults=True):
    """The description of one column. An object has the types that it may be of, a record its fields; `item` describes
    the items of a list that are not scalars."""

    type_names: tuple[str, ...] = ()
    fields: tuple[ColumnShape, ...] = ()
    item: ColumnShape | None = None

    @classmethod
    def of(cls, name: str, type_: ValueType, *, nullable: bool | None = None) -> ColumnShape:
        type_ = as_column(type_)
        item = item_of(type_) if is_list(type_) else None
        return cls(
            name=name,
            kind=_kind(type_),
            item_kind=None if item is None else _kind(item),
            vector_dim=type_.dimension if isinstance(type_, PropertyType) else None,
            nullable=type_.nullable if nullable is None else nullable,
            type_names=type_.type_names if isinstance(type_, EntityType) else (),
            fields=tuple(cls.of(*field) for field in type_.fields) if isinstance(type_, RecordType) else (),
            item=None if item is None or is_scalar(item) else cls.of("item", item),
        )


def _kind(type_: ValueType) -> str:
    match as_column(type_):
        case EntityType():
            return "object"
        case PathType():
            return "path"
        case RecordType():
            return "record"
        case ListType() | PropertyType(list=True) | NullType():
            return "list"
        case PropertyType(scalar=scalar):
            return _KINDS[scalar]


class TouchedType(Struct, frozen=True):
    """A type that an operation reads or writes."""

    kind: Literal["node", "edge"]
    type_name: str

    @classmethod
    def of(cls, type_: TableType) -> TouchedType:
        return cls("edge" if isinstance(type_, EdgeType) else "node", type_.name)


class Operation(Struct, frozen=True):
    """`result` in projection order, empty for mutations; `reads` and `writes` without repeats, nodes first."""

    result: tuple[ColumnShape, ...]
    reads: tuple[TouchedType, ...]
    writes: tuple[TouchedType, ...]


def describe(query: resolved.Query) -> Operation:
    """What a query returns, and every type that it may look at or change."""
    body = query.body
    reads = _TypesRead(query.blocks)
    if isinstance(body, resolved.Read):
        reads.add_read(body)
        return Operation(tuple(_result_shapes(body)), _sort_types(reads.types), ())
    written: set[TouchedType] = set()
    for statement in body.statements:
        if isinstance(statement, resolved.ForEachRow):
            reads.add_feed(statement.feed)
        for write in writes_of(statement):
            written |= types_written(write)
            reads.add_write(write)
    return Operation((), _sort_types(reads.types | written), _sort_types(written))


def describe_parameters(parameters: Iterable[ir.QueryParameter]) -> tuple[ValueShape, ...]:
    return tuple(
        ValueShape(
            name=parameter.name,
            kind=_kind(parameter.type),
            item_kind=_kind(parameter.type.item) if parameter.type.list else None,
            vector_dim=parameter.type.dimension,
            nullable=parameter.type.nullable,
        )
        for parameter in parameters
    )


def writes_of(statement: resolved.Write | resolved.ForEachRow) -> tuple[resolved.Write, ...]:
    """The statement itself, or those that a feed runs."""
    return statement.statements if isinstance(statement, resolved.ForEachRow) else (statement,)


def types_written(write: resolved.Write) -> set[TouchedType]:
    """The types that a statement changes."""
    cascades = write.plan.cascades if isinstance(write.plan, ir.Delete | ir.DeleteVariable) else ()
    return {TouchedType.of(write.plan.type), *map(TouchedType.of, cascades)}


def types_read(query: resolved.Query, feed: resolved.Feed) -> set[TouchedType]:
    """The types that the rows of a feed may come from."""
    reads = _TypesRead(query.blocks)
    reads.add_feed(feed)
    return reads.types


def _result_shapes(read: resolved.Read) -> Iterator[ColumnShape]:
    projections: tuple[resolved.Projection, ...] = ()
    if len(read.chains) == 1 and read.chains[0].stages:
        projections = read.chains[0].stages[-1].projections
    # An aggregate may meet no rows at all, so every one of them but a list is described as nullable.
    nullable = [isinstance(p.value, ir.AggregateValue) and not is_list(p.value.type) for p in projections]
    for i, column in enumerate(read.described):
        yield ColumnShape.of(column.name, column.type, nullable=True if nullable and nullable[i] else None)


def _sort_types(touched: Iterable[TouchedType]) -> tuple[TouchedType, ...]:
    return tuple(sorted(set(touched), key=lambda type_: (type_.kind != "node", type_.type_name)))


class _TypesRead:
    """Every type that parts of a query may look at, through their blocks too."""

    def __init__(self, blocks: Mapping[str, resolved.Block]) -> None:
        self.types: set[TouchedType] = set()
        self._blocks = blocks

    def add_read(self, read: resolved.Read) -> None:
        for chain in read.chains:
            self._add_chain(chain)

    def add_feed(self, feed: resolved.Feed) -> None:
        if feed.chain is not None:
            self._add_chain(feed.chain)
        self._add_clauses(feed.clauses)
        self._add_blocks(unwind.items for unwind in feed.unwinds)

    def add_write(self, write: resolved.Write) -> None:
        """What a statement needs beside the rows that it changes: the ends of a new edge, the blocks of its values."""
        plan = write.plan
        if isinstance(plan, ir.InsertEdge):
            self.types |= {TouchedType("node", name) for end in plan.type.ends for name in end.types}
        if not isinstance(plan, ir.Delete | ir.DeleteVariable):
            self._add_blocks(assignment.value for assignment in plan.assignments)

    def _add_chain(self, chain: resolved.Chain) -> None:
        if chain.head is not None:
            self.add_read(chain.head)
        for stage in chain.stages:
            self._add_clauses(stage.clauses)
            self._add_blocks(unwind.items for unwind in stage.unwinds)
            self._add_blocks(projection.value for projection in stage.projections)
            self._add_blocks(key.value for key in stage.sort if not isinstance(key.value, resolved.OutputName))

    def _add_types(self, *types: TableType) -> None:
        self.types.update(TouchedType.of(type_) for type_ in types)

    def _add_clauses(self, clauses: Iterable[resolved.Clause]) -> None:
        for clause in clauses:
            match clause:
                case resolved.Binding():
                    self._add_types(*clause.types)
                    self._add_blocks(clause.pins)
                case resolved.Traversal():
                    self._add_types(clause.edge, clause.source_type, clause.destination_type)
                case resolved.WalkTraversal(walk=walk):
                    self._add_types(*walk.edge_members, *walk.node_members)
                case resolved.Filter():
                    self._add_blocks((clause.predicate,))
                case resolved.Negation() | resolved.OptionalBlock():
                    self._add_clauses(clause.clauses)

    def _add_blocks(self, values: Iterable[ir.Value]) -> None:
        if not self._blocks:
            return
        for name in {name for value in values for name in ir.variables_of(value)} & self._blocks.keys():
            block = self._blocks[name]
            self._add_clauses(block.clauses)
            if block.aggregate is not None:
                self._add_blocks((block.aggregate,))


# ---- compiled queries -----------------------------------------------------------------------------------

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
        query = self.resolved
        if isinstance(query.body, resolved.Read):
            return lower_read(query, query.body)
        return lower_writes(query, query.body, self._source)

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


BranchStatement: TypeAlias = ast.BranchCreate | ast.BranchDelete | ast.BranchMerge | ast.BranchList


class CompiledFile:
    """The queries of one text, in source order. A text that is a statement has none: it is a `branch` statement, or
    `explained` is the query that it asks to explain."""

    def __init__(
        self,
        queries: tuple[CompiledQuery, ...],
        branch: BranchStatement | None = None,
        explained: CompiledQuery | None = None,
    ) -> None:
        self.queries = queries
        self.branch = branch
        self.explained = explained

    @property
    def is_statement(self) -> bool:
        return self.branch is not None or self.explained is not None

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


_Key: TypeAlias = tuple[str | None, str, str, QueryLimits]


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
    """The queries of a text. Raises `CompileError` when it does not parse, or is a statement, which is run and never
    stored; `path` only shows in messages.

    A text that was compiled against the same schema before comes from memory.
    """
    compiled = compile_text(text, catalog, path, limits)
    if compiled.is_statement:
        raise statement_refusal(text, path)
    return compiled


def compile_text(
    text: str, catalog: Catalog, path: str | None = None, limits: QueryLimits = DEFAULT_LIMITS
) -> CompiledFile:
    """As `compile_queries`, of a text that may be a statement."""
    key = (path, text, catalog.digest, limits)
    compiled = _cache.get(key)
    if compiled is None:
        source = SourceText(text, path)
        parsed = parse_queries(text, path, limits)
        queries = tuple(CompiledQuery(query, catalog, source, limits) for query in parsed.queries)
        statement = parsed.statement
        if isinstance(statement, ast.Explain):
            compiled = CompiledFile(queries, explained=CompiledQuery(statement.query, catalog, source, limits))
        else:
            compiled = CompiledFile(queries, branch=statement)
        _cache.put(key, compiled, len(text))
    return compiled
