"""Writes: mutations, stored queries, loads, schemas and branches. Each is one commit, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from omnigraph.api.branches import BranchCreateRequest
from omnigraph.api.commits import required_commit
from omnigraph.api.enums import LoadMode, PolicyAction
from omnigraph.api.load import ChangeRequest, GraphBatchLoadOutput, IngestRequest, LoadReceipt
from omnigraph.api.merge import NO_RESOLUTIONS, BranchMergeRequest
from omnigraph.api.parameters import LoadParameters
from omnigraph.api.query import InvokeStoredQueryRequest, QueryRequest
from omnigraph.api.routes import COMMIT_HEADER, IF_COMMIT_HEADER
from omnigraph.api.schema import SchemaApplyRequest
from omnigraph.engine.write.load import HOW_TO_CREATE
from omnigraph.errors import BadRequestError, BranchNotFoundError, ConflictError, NotFoundError, OmniGraphError
from omnigraph.server.answers import AnyAnswer, json_answer
from omnigraph.server.call import BRANCH_OPERATION_BYTES, Call, LoadTarget, branch_name, handles
from omnigraph.server.handlers.reads import answer_query
from omnigraph.server.serving import StoredQuerySource

Result = TypeVar("Result")


def written(call: Call, size: int, write: Callable[[], Result]) -> Result:
    """Run a write within its actor's budget; commits and conflicts are counted."""
    observer, graph_id = call.services.observer, call.served.graph_id
    if not call.route.if_commit:
        _refuse_condition(call)
    with call.admitted(size):
        try:
            result = write()
        except OmniGraphError as error:
            if error.http_status in (409, 412):
                observer.conflicted(graph_id)
            raise
    if getattr(result, "commit", None) is not None and not getattr(result, "replayed", False):
        observer.committed(graph_id)
    return result


def size_of(text: str) -> int:
    """The bytes of a text as it was sent."""
    return len(text) if text.isascii() else len(text.encode())


def _receipt_answer(receipt: Any) -> AnyAnswer:
    commit = getattr(receipt, "commit", None)
    return json_answer(receipt, {} if commit is None else {COMMIT_HEADER: commit.id})


# Mutations and stored queries


@handles("mutate")
def mutate(call: Call) -> AnyAnswer:
    _refuse_condition(call, "mutate/if-graph-commit")
    return _mutate(call, None)


@handles("change")
def change(call: Call) -> AnyAnswer:
    _refuse_condition(call, "mutate/if-graph-commit")
    return _mutate(call, None)


@handles("mutate_if_graph_commit")
def mutate_if_graph_commit(call: Call) -> AnyAnswer:
    return _mutate(call, _expected_commit(call))


def _mutate(call: Call, if_commit: str | None) -> AnyAnswer:
    request: ChangeRequest = call.body
    return _run_mutation(call, request.source, request.chosen_name, request.params, request.branch, if_commit)


def _run_mutation(
    call: Call,
    source: str,
    name: str | None,
    params: dict[str, Any] | None,
    branch: str | None,
    if_commit: str | None,
) -> AnyAnswer:
    target = branch_name(branch)
    graph = call.require(PolicyAction.CHANGE, target)
    key = call.idempotency_key
    size = size_of(source) + len(msgspec.json.encode(params or {}))
    receipt = written(
        call,
        size,
        lambda: graph.mutate(
            source, name, params, branch=target, if_commit=if_commit, actor=call.actor, idempotency_key=key
        ),
    )
    return _receipt_answer(receipt)


@handles("invoke_query")
def invoke_query(call: Call) -> AnyAnswer:
    stored, request = _stored(call)
    _refuse_condition(call, f"queries/{stored.entry.name}/if-graph-commit")
    if not stored.entry.mutation:
        return answer_query(
            call,
            QueryRequest(
                stored.source,
                stored.entry.name,
                request.params,
                request.branch,
                request.snapshot,
                request.version,
                request.at,
            ),
        )
    return _invoke_mutation(call, stored, request, None)


@handles("invoke_query_if_graph_commit")
def invoke_query_if_graph_commit(call: Call) -> AnyAnswer:
    expected = _expected_commit(call)
    stored, request = _stored(call)
    if not stored.entry.mutation:
        raise BadRequestError(f"'{stored.entry.name}' is a read; only stored mutations have a precondition")
    return _invoke_mutation(call, stored, request, expected)


def _stored(call: Call) -> tuple[StoredQuerySource, InvokeStoredQueryRequest]:
    """The query that is named. Whoever may not invoke queries learns nothing of which there are."""
    request: InvokeStoredQueryRequest = call.body
    stored = call.served.queries.get(call.path["name"])
    if not call.decision(PolicyAction.INVOKE_QUERY).allowed or stored is None:
        raise NotFoundError("stored query not found")
    name, is_mutation = stored.entry.name, stored.entry.mutation
    if request.expect_mutation is not None and request.expect_mutation != is_mutation:
        kind, verb = ("mutation", "mutate") if is_mutation else ("read", "query")
        raise BadRequestError(f"'{name}' is a {kind} — use omnigraph {verb} {name}")
    return stored, request


def _invoke_mutation(
    call: Call, stored: StoredQuerySource, request: InvokeStoredQueryRequest, if_commit: str | None
) -> AnyAnswer:
    if request.snapshot is not None or request.version is not None or request.at is not None:
        raise BadRequestError(f"'{stored.entry.name}' is a mutation: it runs on a branch, not on a snapshot")
    return _run_mutation(call, stored.source, stored.entry.name, request.params, request.branch, if_commit)


def _refuse_condition(call: Call, conditional: str | None = None) -> None:
    """A precondition that nobody checks must never look as if it held."""
    if IF_COMMIT_HEADER.lower() in call.headers:
        remedy = "leave it out" if conditional is None else f"send the request to POST {conditional}"
        raise BadRequestError(f"{IF_COMMIT_HEADER} is not checked here; {remedy}")


def _expected_commit(call: Call) -> str:
    values = call.all_of(IF_COMMIT_HEADER)
    if len(values) != 1:
        raise BadRequestError(f"this operation needs the header {IF_COMMIT_HEADER}, exactly once")
    return required_commit(values[0], f"the header {IF_COMMIT_HEADER}")


# Loads


@handles("load")
def load(call: Call) -> AnyAnswer:
    request: IngestRequest = call.body
    target = load_target(call, request.branch, request.base)
    receipt = written(
        call,
        size_of(request.data),
        lambda: target.graph.load_lenient(
            request.data,
            mode=request.mode or LoadMode.MERGE,
            branch=target.branch,
            base=target.creates_from,
            actor=call.actor,
            idempotency_key=call.idempotency_key,
        ),
    )
    return _receipt_answer(msgspec.structs.replace(receipt, uri=call.whole.uri, base_branch=target.base))


@handles("ingest")
def ingest(call: Call) -> AnyAnswer:
    return load(call)


@handles("loadNdjson")
def load_ndjson(call: Call) -> AnyAnswer:
    """The body was received into a file; where it goes was settled before that."""
    parameters: LoadParameters = call.parameters
    received, target = call.received, call.received.target
    receipt: LoadReceipt = written(
        call,
        received.size,
        lambda: target.graph.load_file(
            received.path,
            mode=parameters.mode,
            branch=target.branch,
            base=target.creates_from,
            embed=bool(parameters.embed),
            actor=call.actor,
            idempotency_key=call.idempotency_key,
        ),
    )
    names = GraphBatchLoadOutput.__struct_fields__
    output = GraphBatchLoadOutput(**{name: getattr(receipt, name) for name in names})
    return _receipt_answer(msgspec.structs.replace(output, base_branch=target.base))


def load_target(call: Call, branch: str | None, base: str | None) -> LoadTarget:
    """Ask for the branch that a load goes to, and for its creation when it does not exist yet."""
    target = branch_name(branch)
    source = None if base is None else branch_name(base)
    try:
        call.whole.workspace.head(target)
    except BranchNotFoundError:
        if source is None:
            call.require(PolicyAction.CHANGE, target)
            raise BranchNotFoundError(target, HOW_TO_CREATE) from None
        call.require(PolicyAction.BRANCH_CREATE, source, target)
        return LoadTarget(target, source, source, call.require(PolicyAction.CHANGE, target))
    return LoadTarget(target, source, None, call.require(PolicyAction.CHANGE, target))


# Schema and branches


@handles("applySchema")
def apply_schema(call: Call) -> AnyAnswer:
    request: SchemaApplyRequest = call.body
    branch = branch_name(request.branch)
    graph = call.require(PolicyAction.SCHEMA_APPLY, target_branch=branch)
    if call.served.owned_by_cluster:
        raise ConflictError(
            "the schema of this graph belongs to the cluster's configuration; change it there and run "
            "`omnigraph cluster apply`"
        )
    applied = written(
        call,
        size_of(request.schema_source),
        lambda: graph.apply_schema(
            request.schema_source,
            branch=branch,
            allow_data_loss=request.allow_data_loss,
            actor=call.actor,
            idempotency_key=call.idempotency_key,
        ),
    )
    return _receipt_answer(applied)


@handles("createBranch")
def create_branch(call: Call) -> AnyAnswer:
    request: BranchCreateRequest = call.body
    name, source = branch_name(request.name), branch_name(request.source)
    graph = call.require(PolicyAction.BRANCH_CREATE, source, name)
    key = call.idempotency_key
    created = written(
        call,
        BRANCH_OPERATION_BYTES,
        lambda: graph.create_branch(name, source=source, actor=call.actor, idempotency_key=key),
    )
    return json_answer(created)


@handles("deleteBranch")
def delete_branch(call: Call) -> AnyAnswer:
    name = branch_name(call.path["branch"])
    graph = call.require(PolicyAction.BRANCH_DELETE, target_branch=name)
    key = call.idempotency_key
    deleted = written(
        call, BRANCH_OPERATION_BYTES, lambda: graph.delete_branch(name, actor=call.actor, idempotency_key=key)
    )
    return json_answer(deleted)


@handles("mergeBranches")
def merge_branches(call: Call) -> AnyAnswer:
    request: BranchMergeRequest = call.body
    source, target = branch_name(request.source), branch_name(request.target)
    graph = call.require(PolicyAction.BRANCH_MERGE, source, target)
    may_delete = None
    if request.delete_branch:
        may_delete = call.decision(PolicyAction.BRANCH_DELETE, target_branch=source)
    result = written(
        call,
        BRANCH_OPERATION_BYTES,
        lambda: graph.merge(
            source,
            target,
            delete_branch=may_delete is not None and may_delete.allowed,
            resolutions=request.resolutions or NO_RESOLUTIONS,
            actor=call.actor,
            message=request.message,
            idempotency_key=call.idempotency_key,
        ),
    )
    if may_delete is not None and not may_delete.allowed:
        result = msgspec.structs.replace(result, branch_deleted=False, branch_delete_error=may_delete.message)
    return _receipt_answer(result)
