"""Mutations: the write statements of one query become one commit, or nothing.

`Graph.mutate` calls `mutate`; a server also calls `earlier_receipt` with an idempotency key. A mutation either inserts
and updates, each plain statement seeing the ones before it, or deletes from the committed state and counts each entity
once; the language refuses a mix. Consecutive inserts are typed together, one block per type, and the violation of the
earliest statement is raised. Statements that run for the rows of a feed are worked out by `mutation_feeds`. Reads go
into the read set, so unrelated commits do not conflict with a mutation.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby

import numpy as np
import pyarrow as pa

from omnigraph.api.enums import PolicyAction
from omnigraph.api.governance import Limits
from omnigraph.api.load import MutationReceipt
from omnigraph.engine.blobs import admit_blobs
from omnigraph.engine.query.context import ReadContext
from omnigraph.engine.query.limits import Cancellation
from omnigraph.engine.query.plans import property_values
from omnigraph.engine.query.read import DEFAULT_OPTIONS, ReadOptions, context_of
from omnigraph.engine.query.values.evaluate import constant_value, is_constant
from omnigraph.engine.rows.columns import ID_FIELD, fillable
from omnigraph.engine.rows.end_ids import stored_id
from omnigraph.engine.rows.kernels.ids import EdgeEnds, EnvelopeError, edge_ends
from omnigraph.engine.rows.kernels.records import Records, RecordTyper
from omnigraph.engine.rows.kernels.typed_rows import RejectedRow, TypedRows, check_values
from omnigraph.engine.workspace import Workspace
from omnigraph.engine.write import publish
from omnigraph.engine.write.author_visibility import AuthorVisibility
from omnigraph.engine.write.change import GraphChange, RequestDigest, TypeChange
from omnigraph.engine.write.constraints import (
    FinalImage,
    check_constraints,
    find_end_types,
    has_untyped_ends,
    taken_id,
)
from omnigraph.engine.write.embedding import OnWriteVectors
from omnigraph.engine.write.mutation_conditions import Condition, StoredRows, evaluate_rows
from omnigraph.engine.write.mutation_feeds import (
    FeedRows,
    FeedWrite,
    InsertedRows,
    UpdatedRows,
    insert_form,
    one_of_each,
    refuse_ambiguous,
    refused_end,
    types_read_by,
)
from omnigraph.engine.write.mutation_rows import (
    STATEMENT,
    InsertForm,
    PendingRows,
    refuse_beyond,
    refuse_first,
    stale_vectors,
    type_assigned,
    type_calculated,
)
from omnigraph.engine.write.publish import receipt_of
from omnigraph.errors import BadRequestError, ConflictError
from omnigraph.language.catalog import EdgeType, TableType
from omnigraph.language.query import ir
from omnigraph.language.query.compile import compile_queries
from omnigraph.language.query.params import BoundValue, Host, bind_parameters

_RECEIPT = "mutation"


@dataclass(frozen=True, slots=True)
class MutationRequest:
    """Everything a caller says about a mutation. `name` may be omitted when the source holds one query.

    The caller of a `stored` mutation names it and does not know its source, which may change: a repeat is then known by
    the name and the parameters.
    """

    source: str
    name: str | None
    params: Mapping[str, object] | None
    branch: str
    if_commit: str | None = None
    actor: str | None = None
    idempotency_key: str | None = None
    host: Host = Host.NATIVE
    stored: bool = False
    reading: ReadOptions = DEFAULT_OPTIONS
    """The limits of what the mutation reads. They hold for each attempt anew."""

    @property
    def intent(self) -> publish.Intent:
        key, head, digest = self.idempotency_key, self.if_commit, None
        if key is not None:
            kind, text = ("stored mutation", []) if self.stored else ("mutation", [self.source])
            digest = RequestDigest(kind, self.branch.strip(), *text, self.name, dict(self.params or {})).text
        return publish.Intent("mutation", self.actor, idempotency_key=key, request_digest=digest, expected_head=head)


def mutate(workspace: Workspace, request: MutationRequest) -> MutationReceipt:
    """Run a mutation to its commit. Insert-only ones follow a moving branch, others report the conflict."""
    workspace.require(request.actor, PolicyAction.CHANGE, request.branch.strip())
    intent = request.intent
    run = _Mutation(workspace, request, intent, OnWriteVectors(workspace.embedder, workspace.limits))
    published = run.vectors.compute_for(lambda: workspace.commit(request.branch, run.prepare, intent))
    if published is None:
        if request.if_commit is not None:
            # Nothing is published that would notice a moved head, so it is looked at once more.
            publish.refuse_other_head(workspace.begin(request.branch.strip(), intent))
        return MutationReceipt(request.branch.strip(), run.query_name, 0, 0, request.actor, None)
    return _receipt(published)


def earlier_receipt(workspace: Workspace, request: MutationRequest) -> MutationReceipt | None:
    """The receipt of an earlier mutation with the same idempotency key, if the branch remembers it. Writes nothing."""
    workspace.require(request.actor, PolicyAction.CHANGE, request.branch.strip())
    published = publish.already_published(workspace.begin(request.branch, request.intent))
    return None if published is None else _receipt(published)


@dataclass
class _Mutation:
    """One mutation over all its attempts; the instant of the request is that of its intent."""

    workspace: Workspace
    request: MutationRequest
    intent: publish.Intent
    vectors: OnWriteVectors
    query_name: str = ""

    def prepare(self, txn: publish.WriteTxn) -> publish.PublishPlan | None:
        limits = self.workspace.limits.query
        query = compile_queries(self.request.source, txn.snapshot.catalog, limits=limits).query(self.request.name)
        self.query_name = query.name
        plan = query.write_plan
        now_millis = self.intent.authored_at // 1_000
        values = bind_parameters(plan.parameters, self.request.params, now_millis=now_millis, host=self.request.host)
        visibility = AuthorVisibility(txn)
        visibility.refuse_masked_names(plan)
        reading = replace(self.request.reading, embedder=self.vectors.for_reads)
        context = _WriteContext(txn, visibility, self.workspace.limits, self.vectors, values, reading)
        executed = (_Deletes if plan.only_deletes else _InsertsAndUpdates)(context, plan.statements)
        executed.run()
        change = executed.change()
        nodes, edges = executed.affected_nodes, executed.affected_edges
        if not nodes and not edges:
            return None  # what matched is a commit, even if it had the assigned values already
        if not visibility.is_unrestricted:
            # Whether a row already has the assigned values must not depend on values that its author can't see.
            visibility.refuse_invisible(executed.whole_change())
        order = sorted(change.by_type.values(), key=lambda each: (each.type.kind == "edge", each.type_key))
        for each in order:
            origin = each.origin
            if origin is not None and (broken := check_values(TypedRows(each.type, each.rows, origin.numbers))):
                raise broken[0].error(origin.unit)
        with visibility.redact_conflicts():
            checked = check_constraints(FinalImage(txn, change), order)
        change = admit_blobs(txn.resources, change)
        change = self.vectors.fill(change, txn.snapshot.catalog)
        receipt = {"query": plan.name, "affected_nodes": nodes, "affected_edges": edges}
        return publish.PublishPlan(
            staged=txn.stage(change.staging_jobs(txn.root.staging)),
            read_set=publish.ReadSet(checked.tables | (executed.tables_read - change.by_type.keys()), checked.present),
            strict=not plan.is_insert_only,
            details={_RECEIPT: json.dumps(receipt)},
        )


def _receipt(published: publish.PublishedCommit) -> MutationReceipt:
    details = json.loads(published.entry.commit.details.get(_RECEIPT, "null"))
    if details is None:
        raise ConflictError("this idempotency key belongs to a write that is not a mutation; choose another key")
    name, nodes, edges = details["query"], details["affected_nodes"], details["affected_edges"]
    commit = receipt_of(published.entry)
    return MutationReceipt(published.branch, name, nodes, edges, commit.actor_id, commit, published.replayed)


@dataclass(frozen=True)
class _WriteContext:
    """What the statements of one attempt share: the captured head, and what its author sees and may hold."""

    txn: publish.WriteTxn
    visibility: AuthorVisibility
    limits: Limits
    vectors: OnWriteVectors
    parameters: Mapping[str, BoundValue]
    options: ReadOptions

    @cached_property
    def reads(self) -> ReadContext:
        """The reads of plain statements."""
        return self._read_with(self.options)

    @cached_property
    def feeds(self) -> ReadContext:
        """The reads of all feeds, whose time begins with the first one."""
        seconds = self.options.feed_seconds
        if seconds is None:
            return self._read_with(self.options)
        return self._read_with(replace(self.options, cancellation=Cancellation(seconds)))

    def _read_with(self, options: ReadOptions) -> ReadContext:
        """Reads see what the author sees."""
        state = self.visibility.state
        return context_of(state, state.catalog, state.visibility, self.parameters, options)

    def condition(self, statement: ir.Update | ir.Delete) -> Condition | BadRequestError:
        """Its condition. What is wrong with its values is for the statement to say, when its turn comes."""
        try:
            return Condition(statement.type, statement.where, self.reads)
        except BadRequestError as error:
            return error

    def plain_value(self, value: ir.Value) -> object:
        """A value that is the same for every row. Dates stay texts here; they are read where their column is known."""
        match value:
            case ir.Constant():
                return list(value.value) if isinstance(value.value, tuple) else value.value
            case ir.ParameterValue():
                return self.parameters[value.name]
            case ir.Now():
                return self.parameters[ir.NOW_PARAMETER]
        return constant_value(value, self.reads)

    def record(self, assignments: Iterable[ir.Assign]) -> dict[str, object]:
        return {assign.property.name: self.plain_value(assign.value) for assign in assignments}

    def tables_of(self, type_: TableType) -> set[str]:
        """The tables that decide which entities of a type a condition can match."""
        if self.visibility.is_unrestricted or not isinstance(type_, EdgeType):
            return {type_.type_key}
        return {type_.type_key, *(f"node:{name}" for end in type_.ends for name in end.types)}

    def read_feed(self, feed: ir.ForEachRow) -> FeedRows:
        if not self.visibility.is_unrestricted:
            self.feeds.named = tuple(property_values(feed))
        return FeedRows(feed, self.feeds, self.limits, self.vectors.is_computed)


@dataclass
class _Inserts:
    """Inserts of one type that follow each other, and how each of them meets a row with its id."""

    records: Records
    forms: list[InsertForm] = field(default_factory=list)


class _InsertsAndUpdates:
    """The state of a mutation that inserts and updates."""

    def __init__(self, context: _WriteContext, statements: Sequence[ir.WriteStatement]) -> None:
        self.context = context
        self.affected_nodes = 0
        self.affected_edges = 0
        self.tables_read: set[str] = set()
        self._statements = statements
        self._conditions = [context.condition(each) if isinstance(each, ir.Update) else None for each in statements]
        conditions = [each for each in self._conditions if isinstance(each, Condition)]
        self._stored = StoredRows(conditions, context.visibility, context.reads, context.limits)
        self._waiting: dict[str, _Inserts] = {}
        self._pending: dict[str, PendingRows] = {}
        self._ends: dict[str, EdgeEnds] = {}

    def run(self) -> None:
        number = 1
        for statement, condition in zip(self._statements, self._conditions, strict=True):
            if isinstance(condition, BadRequestError):
                self._flush_inserts()
                raise condition
            match statement:
                case ir.InsertNode() | ir.InsertEdge():
                    self._insert(statement, number)
                case ir.Update() if condition is not None:
                    self._flush_inserts()
                    self._update(statement, number, condition)
                case ir.ForEachRow():
                    self._flush_inserts()
                    self._run_feed(statement, number)
                case _:
                    raise AssertionError("deletes never share a mutation with inserts and updates")
            number += len(statement.statements) if isinstance(statement, ir.ForEachRow) else 1
        self._flush_inserts()

    def whole_change(self) -> GraphChange:
        """The rows that statements are about, also those that have the assigned values already."""
        return GraphChange({key: each.change(unchanged=True) for key, each in self._pending.items() if len(each)})

    def change(self) -> GraphChange:
        changes = {key: pending.change() for key, pending in self._pending.items() if len(pending)}
        self.tables_read |= changes.keys()
        return GraphChange({key: change for key, change in changes.items() if change.rows.num_rows})

    def _count(self, type_: TableType, entities: int) -> None:
        if type_.kind == "node":
            self.affected_nodes += entities
        else:
            self.affected_edges += entities

    # Inserts

    def _insert(self, insert: ir.InsertNode | ir.InsertEdge, number: int) -> None:
        ends = self._node_ids(insert, number) if isinstance(insert, ir.InsertEdge) else None
        inserts = self._waiting.setdefault(insert.type.type_key, _Inserts(Records(insert.type)))
        inserts.records.add(number, self.context.record(insert.assignments), ends)
        inserts.forms.append(insert_form(insert, self.context.vectors.is_computed))
        self._count(insert.type, 1)

    def _flush_inserts(self) -> None:
        """Make the inserts so far pending rows, before a later statement reads them or fails for its own reason."""
        waiting, self._waiting = list(self._waiting.values()), {}
        rejected: list[RejectedRow] = []
        is_computed = self.context.vectors.is_computed
        typed = [RecordTyper(fillable(each.records.type, is_computed), rejected).read(each.records) for each in waiting]
        refuse_first(rejected)
        # Edges may lead to nodes that are inserted beside them.
        for inserts, rows in sorted(zip(waiting, typed, strict=True), key=lambda pair: pair[1].type.kind == "edge"):
            rows = self._with_end_types(rows)
            self._write_inserts(self._pending_of(inserts.records.type), rows, inserts.forms)

    def _with_end_types(self, typed: TypedRows, beside: Sequence[TypedRows] = ()) -> TypedRows:
        """Rows of edges with the types of all ends, by the nodes that there are so far, and those that are inserted
        `beside` the edges."""
        if not has_untyped_ends(typed):
            return typed
        changes = dict(self.change().by_type)
        for nodes in beside:
            earlier = changes.get(nodes.type_key, TypeChange(nodes.type, nodes.rows.slice(0, 0)))
            changes[nodes.type_key] = replace(earlier, rows=pa.concat_tables([earlier.rows, nodes.rows]))
        image = FinalImage(self.context.txn, GraphChange(changes))
        typed = find_end_types(typed, image, STATEMENT)
        self.tables_read |= image.read_set().tables
        return typed

    def _write_inserts(self, pending: PendingRows, typed: TypedRows, forms: Sequence[InsertForm]) -> None:
        """Rows in the order of their statements, those of one form together."""
        asking = pa.array([row for row, form in enumerate(forms) if form.asks_for_stored], pa.int64())
        keeps_rest = any(form.columns is not None for form in forms)
        stored = self._stored_of(pending, typed.rows.column("id").take(asking), keeps_rest)
        start = 0
        for form, together in groupby(forms):
            count = len(list(together))
            self._write_part(pending, typed.slice(start, count), form, stored)
            start += count

    def _stored_of(self, pending: PendingRows, ids: pa.ChunkedArray, keeps_rest: bool) -> pa.Table:
        """The committed rows with some ids that are not pending."""
        absent = ids.filter(pa.array(~pending.holds(ids))).unique()
        if not len(absent):
            return pa.schema([ID_FIELD]).empty_table()
        return self._stored.with_ids(pending.type, absent, pending.stored_columns if keeps_rest else ["id"])

    def _write_part(self, pending: PendingRows, typed: TypedRows, form: InsertForm, stored: pa.Table) -> None:
        if form.must_be_new:
            self._refuse_taken(pending, typed, stored)
        if form.columns is None:
            pending.insert(typed)
        else:
            pending.upsert(typed.last_of_each(), form.columns, stored)
            self._refuse_beyond(pending)

    def _refuse_taken(self, pending: PendingRows, typed: TypedRows, stored: pa.Table) -> None:
        """An id that is stored, or that an earlier statement made, can't be inserted as a new one. One that the author
        does not see is refused with the whole change, in other words."""
        ids = typed.rows.column("id")
        in_use = set(stored.column("id").to_pylist())
        if in_use and not self.context.visibility.is_unrestricted:
            in_use = self.context.visibility.visible_among(pending.type, sorted(in_use))
        for entity_id, is_pending in zip(ids.to_pylist(), pending.holds(ids).tolist(), strict=True):
            if is_pending or entity_id in in_use:
                raise taken_id(pending.type.type_key, entity_id)
            in_use.add(entity_id)

    def _node_ids(self, insert: ir.InsertEdge, number: int) -> tuple[str, str]:
        if insert.type.name not in self._ends:
            self._ends[insert.type.name] = edge_ends(self.context.reads.catalog, insert.type)
        source, target = self._ends[insert.type.name]
        values = self.context.plain_value(insert.source), self.context.plain_value(insert.target)
        try:
            return source.id_of(values[0]), target.id_of(values[1])
        except EnvelopeError as error:
            self._flush_inserts()
            raise refused_end(insert.type, error, number) from None

    # Updates

    def _update(self, update: ir.Update, number: int, condition: Condition) -> None:
        pending = self._pending_of(update.type)
        self.tables_read |= self.context.tables_of(update.type)
        constant: list[ir.Assign] = []
        varying: list[ir.Assign] = []
        for assign in update.assignments:
            (constant if is_constant(assign.value) else varying).append(assign)
        properties = [assign.property for assign in constant]
        assigned = _columns(type_assigned(update.type, properties, [self.context.record(constant)], number))
        rows = self._stored.select(condition, pending.stored_columns)
        is_pending = pending.holds(rows.column("id"))
        matched = pending.mark_stored(rows.filter(pa.array(~is_pending)) if is_pending.any() else rows)
        earlier = condition.select_pending(pending)
        matched = pa.concat_tables([earlier, matched]) if earlier.num_rows else matched
        if varying:
            assigned |= self._calculate(update.type, varying, matched, number)
        self._assign(pending, matched, assigned, number)
        self._count(update.type, matched.num_rows)

    def _calculate(
        self, type_: TableType, assignments: Sequence[ir.Assign], matched: pa.Table, number: int
    ) -> dict[str, pa.ChunkedArray]:
        """What each of some rows is assigned, calculated from the row as it was before the statement."""
        values = {each.property: evaluate_rows(each.value, matched, self.context.reads) for each in assignments}
        return _columns(type_calculated(type_, values, matched.column("id"), number, self.context.limits))

    def _assign(
        self, pending: PendingRows, matched: pa.Table, assigned: Mapping[str, pa.ChunkedArray], number: int
    ) -> None:
        stale = stale_vectors(pending.type, assigned, self.context.vectors.is_computed)
        shared = sum(values.nbytes for values in assigned.values() if len(values) == 1)
        refuse_beyond(self.context.limits, pending.type, 0, shared * matched.num_rows)
        pending.assign(matched, {**assigned, **stale}, number)
        self._refuse_beyond(pending)

    def _refuse_beyond(self, pending: PendingRows) -> None:
        """Rows that are inserted one by one are no more than the text of a query can name."""
        limits = self.context.limits
        refuse_beyond(limits, pending.type, len(pending), pending.nbytes(limits.bytes))

    # Feeds

    def _run_feed(self, feed: ir.ForEachRow, first: int) -> None:
        """An entity that several rows write, or an earlier statement as well, counts once."""
        self.tables_read |= types_read_by(feed, self.context.reads)
        rows = self.context.read_feed(feed)
        writes = [rows.write(statement, number) for number, statement in enumerate(feed.statements, start=first)]
        nodes = [write.typed for write in writes if isinstance(write.statement, ir.InsertNode)]
        writes = [self._with_types_of_ends(write, nodes) for write in writes]
        refuse_ambiguous(writes)
        for write in map(one_of_each, writes):
            pending = self._pending_of(write.type)
            before = len(pending)
            if isinstance(write, InsertedRows):
                asking = write.typed.rows.column("id").slice(0, len(write.typed) if write.form.asks_for_stored else 0)
                stored = self._stored_of(pending, asking, write.form.columns is not None)
                self._write_part(pending, write.typed, write.form, stored)
                self._refuse_beyond(pending)
            else:
                self._write_update(pending, write)
            self._count(write.type, len(pending) - before)

    def _with_types_of_ends(self, write: FeedWrite, beside: Sequence[TypedRows]) -> FeedWrite:
        if isinstance(write, UpdatedRows):
            return write
        return replace(write, typed=self._with_end_types(write.typed, beside))

    def _write_update(self, pending: PendingRows, update: UpdatedRows) -> None:
        is_pending = pending.holds(update.ids)
        order = np.concatenate([np.flatnonzero(is_pending), np.flatnonzero(~is_pending)])
        pending_ids = update.ids.filter(pa.array(is_pending)).to_pylist()
        stored = self._stored.with_row_ids(pending.type, update.rows[~is_pending], pending.stored_columns)
        matched = pa.concat_tables([pending.rows_of(pending_ids), pending.mark_stored(stored)])
        self._assign(pending, matched, _columns(update.values.take(pa.array(order))), update.number)

    def _pending_of(self, type_: TableType) -> PendingRows:
        if type_.type_key not in self._pending:
            self._pending[type_.type_key] = PendingRows(type_)
        return self._pending[type_.type_key]


class _Deletes:
    """The state of a mutation that deletes."""

    def __init__(self, context: _WriteContext, statements: Sequence[ir.WriteStatement]) -> None:
        self.context = context
        self.affected_nodes = 0
        self.affected_edges = 0
        self.tables_read: set[str] = set()
        self._statements = statements
        self._removed: defaultdict[str, set[str]] = defaultdict(set)
        self._cascades: dict[str, EdgeType] = {}

    def run(self) -> None:
        context = self.context
        conditions = [context.condition(each) if isinstance(each, ir.Delete) else None for each in self._statements]
        if wrong := next((each for each in conditions if isinstance(each, BadRequestError)), None):
            raise wrong
        sought = [each for each in conditions if isinstance(each, Condition)]
        stored = StoredRows(sought, context.visibility, context.reads)
        for statement, condition in zip(self._statements, conditions, strict=True):
            if isinstance(statement, ir.Delete) and isinstance(condition, Condition):
                self.tables_read |= context.tables_of(statement.type)
                self._remove(statement, stored.select(condition, ["id"]).column("id").to_pylist())
            elif isinstance(statement, ir.ForEachRow):
                self._run_feed(statement)
            else:
                raise AssertionError("inserts and updates never share a mutation with deletes")
        # Every edge that touches a removed node goes with it; all edge types are searched at the same time.
        incident = context.txn.root.workers.map(self._incident, self._cascades.values())
        for key, ids in zip(self._cascades, incident, strict=True):
            self._removed[key].update(ids)
        self.tables_read |= self._removed.keys()
        self.affected_nodes = sum(len(ids) for key, ids in self._removed.items() if key.startswith("node:"))
        self.affected_edges = sum(map(len, self._removed.values())) - self.affected_nodes

    def whole_change(self) -> GraphChange:
        return self.change()

    def change(self) -> GraphChange:
        catalog = self.context.txn.snapshot.catalog
        removed = {key: ids for key, ids in self._removed.items() if ids}
        return GraphChange.of(*(TypeChange.removal(catalog.type_named(k), frozenset(v)) for k, v in removed.items()))

    def _run_feed(self, feed: ir.ForEachRow) -> None:
        self.tables_read |= types_read_by(feed, self.context.reads)
        rows = self.context.read_feed(feed)
        for statement in feed.statements:
            if not isinstance(statement, ir.DeleteVariable):
                raise AssertionError("inserts and updates never share a mutation with deletes")
            self._remove(statement, rows.ids_of(statement))

    def _remove(self, delete: ir.Delete | ir.DeleteVariable, ids: Collection[str]) -> None:
        self._removed[delete.type.type_key].update(ids)
        if ids:
            self._cascades |= {edge.type_key: edge for edge in delete.cascades}

    def _incident(self, edge: EdgeType) -> set[str]:
        table = self.context.txn.snapshot.table(edge.type_key)
        ids: set[str] = set()
        for end in edge.ends:
            gone = {stored_id(end, node, each) for node in end.types for each in self._removed.get(f"node:{node}", ())}
            ids.update(table.rows_among(end.column, gone, ["id"]).column("id").to_pylist())
        return ids


def _columns(rows: pa.Table) -> dict[str, pa.ChunkedArray]:
    return dict(zip(rows.column_names, rows.columns, strict=True))
