"""Mutations: the write statements of one query become one commit, or nothing.

`Graph.mutate` calls `mutate`; a server also calls `earlier_receipt` with an idempotency key. A mutation either inserts
and updates, each statement seeing the ones before it, or deletes from the committed state and counts each entity once;
the language refuses a mix. Consecutive inserts are typed together, one block per type, and the violation of the
earliest statement is raised. Reads go into the read set, so unrelated commits do not conflict with a mutation.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.api.enums import PolicyAction
from omnigraph.api.governance import Limits
from omnigraph.api.load import MutationReceipt
from omnigraph.engine.blobs import admit_blobs
from omnigraph.engine.rows.columns import fillable, rows_field
from omnigraph.engine.rows.kernels.ids import EdgeEnds, EnvelopeError, edge_ends
from omnigraph.engine.rows.kernels.records import Records, RecordTyper
from omnigraph.engine.rows.kernels.typed_rows import RejectedRow, Stage, TypedRows, check_values
from omnigraph.engine.workspace import Workspace
from omnigraph.engine.write import publish
from omnigraph.engine.write.author_visibility import AuthorVisibility
from omnigraph.engine.write.change import GraphChange, RequestDigest, TypeChange, receipt_of
from omnigraph.engine.write.constraints import FinalImage, check_constraints
from omnigraph.engine.write.embedding import OnWriteVectors
from omnigraph.engine.write.mutation_rows import STATEMENT, Condition, PendingRows, StoredRows, refuse_beyond
from omnigraph.errors import ConflictError
from omnigraph.language.catalog import Catalog, EdgeType, TableType
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
        visibility.refuse_masked_names(plan.statements)
        executed: _Deletes | _InsertsAndUpdates = _Deletes(txn, values, visibility)
        if not plan.only_deletes:
            executed = _InsertsAndUpdates(txn, values, self.workspace.limits, visibility, self.vectors)
        executed.run(plan.statements)
        change = executed.change()
        if not change.by_type:
            return None
        visibility.refuse_invisible(change)
        order = sorted(change.by_type.values(), key=lambda each: (each.type.kind == "edge", each.type_key))
        for each in order:
            origin = each.origin
            if origin is not None and (broken := check_values(TypedRows(each.type, each.rows, origin.numbers))):
                raise broken[0].error(origin.unit)
        with visibility.redact_conflicts():
            checked = check_constraints(FinalImage(txn, change), order)
        change = admit_blobs(txn.resources, change)
        change = self.vectors.fill(change, txn.snapshot.catalog)
        nodes, edges = executed.affected_nodes, executed.affected_edges
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


def _refuse_first(rejected: list[RejectedRow]) -> None:
    """Raise for the earliest statement, and of its violations the one that is checked first."""
    if rejected:
        raise min(rejected, key=lambda row: (row.line, row.stage)).error(STATEMENT)


def _evaluate(value: ir.Value, bound: Mapping[str, BoundValue]) -> BoundValue:
    """A plain value. Dates stay texts here; they are read where their column is known."""
    match value:
        case ir.Constant():
            return list(value.value) if isinstance(value.value, tuple) else value.value
        case ir.ParameterValue():
            return bound[value.name]
        case ir.Now():
            return bound[ir.NOW_PARAMETER]
        case _:
            raise AssertionError(f"{type(value).__name__} is not a cell of a statement")


def _condition(
    statement: ir.UpdateNodes | ir.DeleteNodes | ir.DeleteEdges, bound: Mapping[str, BoundValue], catalog: Catalog
) -> Condition:
    """The `where` of a statement with its value. The ends of edges are stored as ids, so a key becomes one."""
    type_, where = statement.type, statement.where
    value = _evaluate(where.value, bound)
    is_equality = where.operator in (ir.Operator.EQUAL, ir.Operator.NOT_EQUAL)
    if isinstance(type_, EdgeType) and isinstance(where.column, ir.Endpoint) and value is not None and is_equality:
        end = edge_ends(catalog, type_)[0 if where.column is ir.Endpoint.FROM else 1]
        try:
            value = end.id_of(value)
        except EnvelopeError:
            value = str(value)  # no node has this key, so no edge has this text at its end
    return Condition(type_, where, value)


@dataclass
class _InsertsAndUpdates:
    """The state of a mutation that inserts and updates."""

    txn: publish.WriteTxn
    values: Mapping[str, BoundValue]
    limits: Limits
    visibility: AuthorVisibility
    vectors: OnWriteVectors
    affected_nodes: int = 0
    affected_edges: int = 0
    tables_read: set[str] = field(default_factory=set)
    _waiting: dict[str, Records] = field(default_factory=dict)
    _pending: dict[str, PendingRows] = field(default_factory=dict)
    _ends: dict[str, EdgeEnds] = field(default_factory=dict)

    def run(self, statements: Sequence[ir.WriteStatement]) -> None:
        catalog = self.txn.snapshot.catalog
        numbered = list(enumerate(statements, start=1))
        numbered_updates = [(number, each) for number, each in numbered if isinstance(each, ir.UpdateNodes)]
        updates = {number: _condition(update, self.values, catalog) for number, update in numbered_updates}
        stored = StoredRows(self.txn, updates.values(), self.limits)
        for number, statement in numbered:
            match statement:
                case ir.InsertNode():
                    self._insert(statement, number)
                    self.affected_nodes += 1
                case ir.InsertEdge():
                    self._insert(statement, number, self._node_ids(statement, number))
                    self.affected_edges += 1
                case ir.UpdateNodes():
                    self._flush_inserts()
                    self._update(statement, number, updates[number], stored)
                case _:
                    raise AssertionError("deletes never share a mutation with inserts and updates")
        self._flush_inserts()

    def change(self) -> GraphChange:
        return GraphChange({key: pending.change() for key, pending in self._pending.items() if len(pending)})

    def _insert(self, insert: ir.InsertNode | ir.InsertEdge, number: int, ends: tuple[str, str] | None = None) -> None:
        records = self._waiting.setdefault(insert.type.type_key, Records(insert.type))
        records.add(number, self._record(insert.assignments), ends)

    def _flush_inserts(self) -> None:
        """Make the inserts so far pending rows, before a later statement reads them or fails for its own reason."""
        waiting, self._waiting = list(self._waiting.values()), {}
        rejected: list[RejectedRow] = []
        typed = [RecordTyper(fillable(each.type, self.vectors.is_computed), rejected).read(each) for each in waiting]
        _refuse_first(rejected)
        for records, rows in zip(waiting, typed, strict=True):
            self._pending_of(records.type).insert(rows)

    def _node_ids(self, insert: ir.InsertEdge, number: int) -> tuple[str, str]:
        if insert.type.name not in self._ends:
            self._ends[insert.type.name] = edge_ends(self.txn.snapshot.catalog, insert.type)
        source, target = self._ends[insert.type.name]
        values = _evaluate(insert.source, self.values), _evaluate(insert.target, self.values)
        try:
            return source.id_of(values[0]), target.id_of(values[1])
        except EnvelopeError as error:
            self._flush_inserts()
            key, end, rule = insert.type.type_key, str(error.values["name"]), error.sentence.rule
            raise RejectedRow(number, key, end, str(error), Stage.ENVELOPE, rule).error(STATEMENT) from None

    def _update(self, update: ir.UpdateNodes, number: int, condition: Condition, stored: StoredRows) -> None:
        assigned = self._assigned_row(update, number)
        pending = self._pending_of(update.type)
        self.tables_read.add(update.type.type_key)
        rows = self.visibility.visible_matches(update.type, stored.select(condition, pending.stored_columns))
        rows = rows.filter(pc.invert(pending.holds(rows.column("id"))))
        self.affected_nodes += pending.update(condition, rows, assigned, number)
        refuse_beyond(self.limits, update.type, len(pending), pending.nbytes(self.limits.bytes))

    def _assigned_row(self, update: ir.UpdateNodes, number: int) -> pa.Table:
        """One row of the assigned values in their stored types. Vectors of an assigned text become null, to be computed
        anew."""
        properties = tuple(assign.property for assign in update.assignments)
        # Reduced to what the update assigns, so that the rules of these values apply and no others.
        reduced = msgspec.structs.replace(update.type, property_list=properties, key=())
        rejected: list[RejectedRow] = []
        typed = RecordTyper(reduced, rejected).read(Records(reduced, [number], [self._record(update.assignments)]))
        _refuse_first(rejected)
        assigned = typed.rows.drop_columns(["id"])
        names = {prop.name for prop in properties}
        for prop in update.type.property_list:
            is_stale = prop.embed is not None and prop.embed.property in names and prop.name not in names
            if is_stale and self.vectors.is_computed(prop):
                column = rows_field(prop)
                assigned = assigned.append_column(column, pa.nulls(1, column.type))
        return assigned

    def _record(self, assignments: Sequence[ir.Assign]) -> dict[str, BoundValue]:
        return {assign.property.name: _evaluate(assign.value, self.values) for assign in assignments}

    def _pending_of(self, type_: TableType) -> PendingRows:
        if type_.type_key not in self._pending:
            self._pending[type_.type_key] = PendingRows(type_)
        return self._pending[type_.type_key]


@dataclass
class _Deletes:
    """The state of a mutation that deletes."""

    txn: publish.WriteTxn
    values: Mapping[str, BoundValue]
    visibility: AuthorVisibility
    affected_nodes: int = 0
    affected_edges: int = 0
    tables_read: set[str] = field(default_factory=set)
    _removed: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def run(self, statements: Sequence[ir.WriteStatement]) -> None:
        deletes = [s for s in statements if isinstance(s, ir.DeleteNodes | ir.DeleteEdges)]
        if len(deletes) < len(statements):
            raise AssertionError("inserts and updates never share a mutation with deletes")
        conditions = [_condition(delete, self.values, self.txn.snapshot.catalog) for delete in deletes]
        stored = StoredRows(self.txn, conditions)
        cascades: dict[str, EdgeType] = {}
        for delete, condition in zip(deletes, conditions, strict=True):
            matched = self.visibility.visible_matches(delete.type, stored.select(condition, ["id"]))
            self._removed[delete.type.type_key].update(matched.column("id").to_pylist())
            if isinstance(delete, ir.DeleteNodes) and matched.num_rows:
                cascades |= {edge.type_key: edge for edge in delete.cascades}
        # Every edge that touches a removed node goes with it; all edge types are searched at the same time.
        for key, incident in zip(cascades, self.txn.root.workers.map(self._incident, cascades.values()), strict=True):
            self._removed[key].update(incident)
        self.tables_read |= self._removed.keys()
        self.affected_nodes = sum(len(ids) for key, ids in self._removed.items() if key.startswith("node:"))
        self.affected_edges = sum(map(len, self._removed.values())) - self.affected_nodes

    def change(self) -> GraphChange:
        catalog = self.txn.snapshot.catalog
        removed = {key: ids for key, ids in self._removed.items() if ids}
        return GraphChange.of(*(TypeChange.removal(catalog.type_named(k), frozenset(v)) for k, v in removed.items()))

    def _incident(self, edge: EdgeType) -> set[str]:
        table = self.txn.snapshot.table(edge.type_key)
        ids: set[str] = set()
        for column, node_type in (("src", edge.from_type), ("dst", edge.to_type)):
            gone = self._removed.get(f"node:{node_type}", set())
            ids.update(table.rows_among(column, gone, ["id"]).column("id").to_pylist())
        return ids
