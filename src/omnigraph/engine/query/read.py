"""The entry of the read runtime: a query text on a pinned snapshot.

`Graph` and `Snapshot` call this module and nothing below it. It compiles the text, binds parameters, sets limits and
returns a result, a stream, an explanation or a profile.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

import pyarrow as pa

from omnigraph.api.governance import DEFAULT_TRAVERSAL_WORK
from omnigraph.api.queries import OperatorProfile, ReadPoint, StoredQuery
from omnigraph.api.values import compact_json, count_noun
from omnigraph.engine.query.context import ReadContext, TraversalMode
from omnigraph.engine.query.estimates import estimate_rows
from omnigraph.engine.query.limits import (
    DEFAULT_MEMORY_BYTES,
    Cancellation,
    MemoryBudget,
    TraversalWork,
)
from omnigraph.engine.query.operators.pushdown import split_pushdown
from omnigraph.engine.query.operators.stages import rows_to_find
from omnigraph.engine.query.plans import PreparedPlan, first_of_intersection
from omnigraph.engine.query.properties import Properties
from omnigraph.engine.query.result import OperatorProfile as MeasuredOperator
from omnigraph.engine.query.result import Profiler, QueryResult, QueryStream
from omnigraph.engine.query.run import ReadRun
from omnigraph.engine.query.search.embedder import Embedder
from omnigraph.engine.query.traversal.edge_visibility import visible_rows
from omnigraph.engine.query.traversal.neighbours import describe_neighbours, fetch_topologies
from omnigraph.engine.query.value_columns import BoundValues
from omnigraph.engine.snapshot import Snapshot
from omnigraph.errors import PolicyError
from omnigraph.language.catalog import Catalog
from omnigraph.language.query import ir
from omnigraph.language.query.compile import (
    CompiledFile,
    CompiledQuery,
    compile_queries,
    compile_text,
    describe_parameters,
)
from omnigraph.language.query.params import BoundValue, Host, bind_parameters
from omnigraph.language.query.parser import first_word, statement_refusal
from omnigraph.language.query.row_filter import Visibility
from omnigraph.language.query.value_types import I64, STRING


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How to run a read. Of `catalog` and `embedder`, None means those that the snapshot has.

    A cancelled read returns at once, for which each of its steps runs in a thread of its own. A caller that does not
    wait for the read itself says `returns_at_once=False` and saves that; the read then ends at its next step.
    `traversal_work` is how many edges all traversals may look at, and steps of paths they may bind.
    `feed_seconds` is the time that the feeds of a mutation have, which can't be cancelled otherwise.
    """

    memory_bytes: int = DEFAULT_MEMORY_BYTES
    traversal_work: int = DEFAULT_TRAVERSAL_WORK
    cancellation: Cancellation | None = None
    feed_seconds: float | None = None
    returns_at_once: bool = True
    profile: bool = False
    host: Host = Host.NATIVE
    embedder: Embedder | None = None
    catalog: Catalog | None = None


DEFAULT_OPTIONS = ReadOptions()

_PREPARED: Final[WeakKeyDictionary[CompiledQuery, PreparedPlan]] = WeakKeyDictionary()
_NOT_CANCELLED: Final = Cancellation()
"""For all reads that nobody can cancel."""

Asked: TypeAlias = tuple[str, str | None, Mapping[str, Any] | None]
"""The text of some queries, the name of one (None when there is only one), and its parameters."""


def run_query(
    snapshot: Snapshot, target: ReadPoint, invocation: Asked, options: ReadOptions | None = None
) -> QueryResult:
    """The whole result."""
    return stream_query(snapshot, target, invocation, options).collect()


_EXPLAIN: Final = "explain"
_PLAN_COLUMNS: Final = (
    *(ir.OutputColumn("tree", STRING), ir.OutputColumn("depth", I64)),
    *(ir.OutputColumn("node", STRING), ir.OutputColumn("detail", STRING)),
)
_PLAN_SCHEMA: Final = pa.schema(
    [("tree", pa.string()), ("depth", pa.int64()), ("node", pa.string()), ("detail", pa.string())]
)


def stream_query(
    snapshot: Snapshot, target: ReadPoint, invocation: Asked, options: ReadOptions | None = None
) -> QueryStream:
    """The result as it is made. Problems of the query itself show here, before the first batch. The rows of
    `explain query …` are the plan."""
    options = options or DEFAULT_OPTIONS
    explains = first_word(invocation[0]) == _EXPLAIN
    if not explains:
        snapshot.open_ahead(invocation[0])
    prepared, context = _prepare(snapshot, invocation, options)
    plan, commit_id = prepared.plan, snapshot.commit_id
    if explains:
        batches, profile = iter([_plan_batch(plan, context)]), MeasuredOperator(_EXPLAIN)
        return QueryStream(plan.name, target, commit_id, _PLAN_COLUMNS, _PLAN_SCHEMA, profile, batches)
    fetch_topologies(plan.root, context)
    batches = ReadRun(prepared, context).batches()
    if options.cancellation is not None and options.returns_at_once:
        batches = _watch(batches, options.cancellation)
    columns, profile = plan.columns, context.profiler.root
    return QueryStream(plan.name, target, commit_id, columns, prepared.schema, profile, batches, context.budget)


def explain_query(snapshot: Snapshot, invocation: Asked, options: ReadOptions | None = None) -> list[str]:
    """The plan as an indented tree, with what goes into the storage scans. Nothing is read."""
    prepared, context = _prepare(snapshot, invocation, options or DEFAULT_OPTIONS)
    plan = prepared.plan
    estimates = _estimates(plan, context)
    lines = []
    for operator, depth in ir.plan_levels(plan.root):
        indent = "  " * depth
        estimate = f"  (about {count_noun(estimates[id(operator)], 'row')})" if estimates else ""
        lines.append(f"{indent}{ir.operator_text(operator)}{estimate}")
        lines += (f"{indent}    {detail}" for detail in _details(operator, context, estimates))
    return lines


def _plan_batch(plan: ir.ReadPlan, context: ReadContext) -> pa.RecordBatch:
    """A row for each operator, the last one first, with its text and its details as JSON."""
    rows, estimates = [], _estimates(plan, context)
    for operator, depth in ir.plan_levels(plan.root):
        detail: dict[str, Any] = {"text": ir.operator_text(operator)}
        if estimates:
            detail["rows"] = estimates[id(operator)]
        if notes := list(_details(operator, context, estimates)):
            detail["notes"] = notes
        node = type(operator).__name__
        rows.append({"tree": "plan", "depth": depth, "node": node, "detail": compact_json(detail)})
    return pa.RecordBatch.from_pylist(rows, _PLAN_SCHEMA)


def _estimates(plan: ir.ReadPlan, context: ReadContext) -> dict[int, int]:
    """The estimated rows of each operator by its id. A reader who does not see all rows gets none: the sizes of tables
    would tell of the others."""
    if not context.visibility.is_unrestricted:
        return {}
    return estimate_rows(plan.root, context.catalog, lambda type_: context.snapshot.state_of(type_).rows)


def _details(operator: ir.ReadOperator, context: ReadContext, estimates: Mapping[int, int]) -> Iterator[str]:
    """How an operator would go about it."""
    match operator:
        case ir.Scan() | ir.TypeUnionScan():
            scans = (operator,) if isinstance(operator, ir.Scan) else operator.scans
            for part in scans:
                pushed, rest = split_pushdown(part.predicates, context)
                of_type = "" if part is operator else f" of {part.type.name}"
                if pushed is not None:
                    yield f"in the scan{of_type}: {pushed}"
                if rest:
                    yield f"on values{of_type}: {len(rest)} predicates"
        case ir.Rank(rank=ir.NearestRank() as rank):
            if context.visibility.is_unrestricted:  # the size of a table would tell of its other rows
                from omnigraph.engine.query.search.approximation import describe_search

                yield describe_search(operator, rank, context)
        case ir.Expand() if estimates:
            yield f"neighbours: {describe_neighbours(operator, estimates[id(operator.input)], context)}"
            if (first := first_of_intersection(operator)) is not None:
                yield f"together with the traversal to ${first.destination}: common neighbours of two nodes"
        case ir.Expand() | ir.ExpandWalk() | ir.PathExpand():
            by_cost = context.mode is TraversalMode.AUTO
            yield f"neighbours: {'lookups or topology, by cost' if by_cost else context.mode}"


def profile_query(snapshot: Snapshot, invocation: Asked, options: ReadOptions | None = None) -> OperatorProfile:
    """What each operator did. The rows are made to be measured, and dropped."""
    rows = stream_query(
        snapshot, ReadPoint(snapshot.branch), invocation, replace(options or DEFAULT_OPTIONS, profile=True)
    )
    for _ in rows:
        pass
    return rows.profile.report


def _prepare(snapshot: Snapshot, invocation: Asked, options: ReadOptions) -> tuple[PreparedPlan, ReadContext]:
    source, name, params = invocation
    catalog = options.catalog or snapshot.catalog
    prepared = _prepared_plan(_find_query(snapshot, source, name, catalog))
    visibility = snapshot.visibility if snapshot.visibility.is_unrestricted else snapshot.visibility.on(catalog)
    named = () if visibility.is_unrestricted else prepared.named
    for value in named:  # sorting by a masked property, or counting where it is set, would reveal it
        if value.prop.name in visibility.of(value.owner).masked:
            raise PolicyError(f"policy: '{value.owner.name}.{value.prop.name}' is hidden from you; leave it out")
    now_millis = time.time_ns() // 1_000_000
    bound = bind_parameters(prepared.plan.parameters, params, now_millis=now_millis, host=options.host)
    context = context_of(snapshot, catalog, visibility, bound, options)
    context.named = named
    for operator in prepared.limits:
        rows_to_find(operator, context)  # a negative number is refused before anything is read
    return prepared, context


def _prepared_plan(query: CompiledQuery) -> PreparedPlan:
    """The plan of a query, prepared by its first run and kept for as long as the compiled query is."""
    if (prepared := _PREPARED.get(query)) is None:
        prepared = _PREPARED[query] = PreparedPlan(query.read_plan)
    return prepared


def _find_query(snapshot: Snapshot, source: str, name: str | None, catalog: Catalog) -> CompiledQuery:
    """The query of that name in a text, or the one that `explain` is about."""
    compiled = compile_text(source, catalog, limits=snapshot.resources.limits.query)
    if compiled.explained is not None:
        return CompiledFile((compiled.explained,)).query(name)
    if compiled.is_statement:
        raise statement_refusal(source, None)
    return compiled.query(name)


def context_of(
    snapshot: Snapshot,
    catalog: Catalog,
    visibility: Visibility,
    parameters: Mapping[str, BoundValue],
    options: ReadOptions = DEFAULT_OPTIONS,
) -> ReadContext:
    """What the operators of one read share."""
    cancellation = options.cancellation or _NOT_CANCELLED
    budget = MemoryBudget(options.memory_bytes, cancellation)
    context = ReadContext(
        snapshot=snapshot,
        catalog=catalog,
        parameters=parameters,
        mode=TraversalMode.from_environment(),
        budget=budget,
        cancellation=cancellation,
        profiler=Profiler(snapshot.requests if options.profile else None, restricted=not visibility.is_unrestricted),
        properties=Properties(budget),
        bound=BoundValues(budget),
        work=TraversalWork(options.traversal_work),
        embedder=options.embedder or snapshot.resources.embedder,
        visibility=visibility,
    )
    if not visibility.is_unrestricted:
        context.visible_rows = partial(visible_rows, context=context)
    return context


def _watch(batches: Iterator[pa.RecordBatch], cancellation: Cancellation) -> Iterator[pa.RecordBatch]:
    """A query that is cancelled returns at once, however long the step that runs now."""
    while (batch := cancellation.waiting_for(lambda: next(batches, None))) is not None:
        yield batch


def describe_stored_query(snapshot: Snapshot, source: str, name: str, path: str | None = None) -> StoredQuery:
    """The query of that name in a text. Raises `CompileError` when the text does not parse or the query does not fit
    the schema, `BadRequestError` when the text does not declare it; `path` only shows in messages."""
    query = compile_queries(source, snapshot.catalog, path, snapshot.resources.limits.query).query(name)
    return StoredQuery.of(query, describe_parameters(query.parameters))
