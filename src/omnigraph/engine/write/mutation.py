"""Mutations: the write statements of one query become one commit, or nothing.

`Graph.mutate` calls `mutate`; a server also calls `earlier_receipt` with an idempotency key. A mutation either inserts
and updates, each statement seeing the ones before it, or deletes from the committed state; the language refuses a mix.
Its reads go into the read set, so unrelated commits do not conflict with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from omnigraph.api.enums import PolicyAction
from omnigraph.api.load import MutationReceipt
from omnigraph.engine.blobs import admit_blobs
from omnigraph.engine.rows.kernels import TypedRows, check_values
from omnigraph.engine.workspace import Workspace
from omnigraph.engine.write.author_visibility import AuthorVisibility
from omnigraph.engine.write.change import RequestDigest, receipt_of
from omnigraph.engine.write.constraints import FinalImage, check_constraints
from omnigraph.engine.write.embedding import OnWriteVectors
from omnigraph.engine.write.mutation_statements import Construction, Destruction
from omnigraph.engine.write.publish import (
    Intent,
    PublishedCommit,
    PublishPlan,
    ReadSet,
    WriteTxn,
    already_published,
    refuse_other_head,
)
from omnigraph.errors import ConflictError
from omnigraph.language.query.compile import compile_queries
from omnigraph.language.query.params import Host, bind_parameters

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
    def intent(self) -> Intent:
        return Intent(
            kind="mutation",
            actor=self.actor,
            idempotency_key=self.idempotency_key,
            request_digest=self._digest(),
            expected_head=self.if_commit,
        )

    def _digest(self) -> str | None:
        if self.idempotency_key is None:
            return None
        kind, text = ("stored mutation", []) if self.stored else ("mutation", [self.source])
        return RequestDigest(kind, self.branch.strip(), *text, self.name, dict(self.params or {})).text


def mutate(workspace: Workspace, request: MutationRequest) -> MutationReceipt:
    """Run a mutation to its commit. Insert-only ones follow a moving branch, others report the conflict."""
    workspace.require(request.actor, PolicyAction.CHANGE, request.branch.strip())
    intent = request.intent
    run = _Mutation(workspace, request, intent, OnWriteVectors(workspace.embedder, workspace.limits))
    published = run.vectors.computing(lambda: workspace.commit(request.branch, run.prepare, intent))
    if published is None:
        if request.if_commit is not None:
            # Nothing is published that would notice a moved head, so it is looked at once more.
            refuse_other_head(workspace.begin(request.branch.strip(), intent))
        return MutationReceipt(request.branch.strip(), run.query_name, 0, 0, request.actor, None)
    return _receipt(published)


def earlier_receipt(workspace: Workspace, request: MutationRequest) -> MutationReceipt | None:
    """The receipt of an earlier mutation with the same idempotency key, if the branch remembers it. Writes nothing."""
    workspace.require(request.actor, PolicyAction.CHANGE, request.branch.strip())
    published = already_published(workspace.begin(request.branch, request.intent))
    return None if published is None else _receipt(published)


@dataclass
class _Mutation:
    """One mutation over all its attempts; the instant of the request is that of its intent."""

    workspace: Workspace
    request: MutationRequest
    intent: Intent
    vectors: OnWriteVectors
    query_name: str = ""

    def prepare(self, txn: WriteTxn) -> PublishPlan | None:
        limits = self.workspace.limits.query
        query = compile_queries(self.request.source, txn.snapshot.catalog, limits=limits).query(self.request.name)
        self.query_name = query.name
        plan = query.write_plan
        now_millis = self.intent.authored_at // 1_000
        values = bind_parameters(plan.parameters, self.request.params, now_millis=now_millis, host=self.request.host)
        visibility = AuthorVisibility(txn)
        visibility.refuse_masked_names(plan.statements)
        executed = (
            Destruction(txn, values, visibility)
            if plan.only_deletes
            else Construction(txn, values, self.workspace.limits, visibility, self.vectors)
        )
        executed.run(plan.statements)
        change = executed.change()
        if not change.by_type:
            return None
        visibility.refuse_invisible(change)
        order = [*change.nodes(), *change.edges()]
        for each in order:
            origin = each.origin
            if origin is not None and (broken := check_values(TypedRows(each.type, each.rows, origin.numbers))):
                raise broken[0].error(origin.unit)
        with visibility.redact_conflicts():
            checked = check_constraints(FinalImage(txn, change), order)
        change = admit_blobs(txn.resources, change)
        change = self.vectors.fill(change, txn.snapshot.catalog)
        receipt = {
            "query": plan.name,
            "affected_nodes": executed.affected_nodes,
            "affected_edges": executed.affected_edges,
        }
        return PublishPlan(
            staged=txn.stage(change.staging_jobs(txn.root.staging)),
            read_set=ReadSet(checked.tables | (executed.tables_read - change.by_type.keys()), checked.present),
            strict=not plan.is_insert_only,
            details={_RECEIPT: json.dumps(receipt)},
        )


def _receipt(published: PublishedCommit) -> MutationReceipt:
    details = json.loads(published.entry.commit.details.get(_RECEIPT, "null"))
    if details is None:
        raise ConflictError("this idempotency key belongs to a write that is not a mutation; choose another key")
    return MutationReceipt(
        branch=published.branch,
        query_name=details["query"],
        affected_nodes=details["affected_nodes"],
        affected_edges=details["affected_edges"],
        actor_id=published.entry.commit.actor,
        commit=receipt_of(published.entry),
        replayed=published.replayed,
    )
