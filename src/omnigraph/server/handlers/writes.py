"""The handlers that write: mutations, stored queries, loads, schema changes and branches.

Each one asks for the permission of its actor, waits for admission, calls the graph once, and encodes the receipt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import msgspec

from omnigraph import errors
from omnigraph.api.branches import NO_RESOLUTIONS, BranchCreateRequest, BranchMergeRequest
from omnigraph.api.calls import Author
from omnigraph.api.commits import required_commit
from omnigraph.api.enums import Grammar, LoadMode, PolicyAction
from omnigraph.api.load import ChangeRequest, GraphBatchLoadOutput, IngestRequest
from omnigraph.api.queries import InvokeStoredQueryRequest, QueryRequest, ReadPoint, require_branch, require_kind
from omnigraph.api.schema import SchemaApplyRequest
from omnigraph.api.service.http import LoadParameters, RowsParameters
from omnigraph.api.service.routes import COMMIT_HEADER, IF_COMMIT_HEADER, Media
from omnigraph.engine.rows.kernels.csv_rows import CsvDialect
from omnigraph.engine.statements import BranchWrite, access_of, branch_write, run_branch_write
from omnigraph.engine.write.load import HOW_TO_CREATE
from omnigraph.engine.write.mutation import MutationRequest, earlier_receipt
from omnigraph.engine.write.mutation import mutate as run_mutation
from omnigraph.engine.write.row_input import RowFormat, format_named, format_of, received_rows
from omnigraph.server.handlers.reads import query_response
from omnigraph.server.http.call import BRANCH_OPERATION_BYTES, Call, LoadTarget, ReceivedFile, branch_name, handles
from omnigraph.server.http.responses import AnyResponse, json_response

Result = TypeVar("Result")


def run_write(call: Call, size: int, write: Callable[[], Result]) -> Result:
    """Run a write. It counts against its actor's budget while it waits for its turn and runs."""
    metrics, graph_id = call.services.telemetry.metrics, call.served.graph_id
    if not call.route.if_commit:
        _refuse_condition(call)
    budgets = call.services.budgets
    with budgets.admit(call.actor, size), budgets.turn(call.actor):
        try:
            result = write()
        except errors.OmniGraphError as error:
            if error.http_status in (409, 412):
                metrics.conflicts.labels(graph_id).inc()
            raise
    members = result.get if isinstance(result, dict) else partial(getattr, result)  # a tool of an agent returns a dict
    if members("commit", None) is not None and not members("replayed", False):
        metrics.commits.labels(graph_id).inc()
    return result


def size_of(text: str) -> int:
    """The bytes of a text as it was sent."""
    return len(text) if text.isascii() else len(text.encode())


def _receipt_response(call: Call, receipt: Any) -> AnyResponse:
    if hasattr(receipt, "uri"):
        receipt = msgspec.structs.replace(receipt, uri=call.served.public_uri)
    commit = getattr(receipt, "commit", None)
    return json_response(receipt, {} if commit is None else {COMMIT_HEADER: commit.id})


def _write(call: Call, size: int, write: Callable[..., Any]) -> AnyResponse:
    """Run a write in the name of the caller, and respond with its receipt."""
    return _receipt_response(call, run_write(call, size, lambda: write(**_author(call))))


def _author(call: Call) -> dict[str, Any]:
    return {"actor": call.actor, "idempotency_key": call.idempotency_key}


# Mutations and stored queries


@handles("mutate", "change")
def mutate(call: Call) -> AnyResponse:
    _refuse_condition(call, "mutate/if-graph-commit")
    return _mutate(call, None)


@handles("mutate_if_graph_commit")
def mutate_if_graph_commit(call: Call) -> AnyResponse:
    return _mutate(call, _expected_commit(call))


def _mutate(call: Call, if_commit: str | None) -> AnyResponse:
    request: ChangeRequest = call.body
    source, name, params = request.source, request.chosen_name, request.params
    statement = branch_write(source, name, params, request.branch, if_commit)
    if statement is not None:
        return _run_statement(call, statement)
    target, key = branch_name(request.branch), call.idempotency_key
    return _run_mutation(call, MutationRequest(source, name, params, target, if_commit, call.actor, key))


def _run_statement(call: Call, statement: BranchWrite) -> AnyResponse:
    """As the route of the same operation does it."""
    graph, author = call.require(*access_of(statement)), Author(call.actor, call.idempotency_key)
    receipt = run_write(call, BRANCH_OPERATION_BYTES, lambda: run_branch_write(graph, statement, author))
    return _receipt_response(call, receipt)


def _run_mutation(call: Call, request: MutationRequest) -> AnyResponse:
    workspace = call.workspace.for_action(PolicyAction.CHANGE, request.branch)
    request = replace(request, reading=call.read_options())
    size = size_of(request.source) + len(msgspec.json.encode(request.params or {}))
    return _receipt_response(call, run_write(call, size, lambda: run_mutation(workspace, request)))


@handles("invoke_query", "invoke_query_if_graph_commit")
def invoke_query(call: Call) -> AnyResponse:
    """Run a stored query. An actor who may not invoke queries does not learn which there are."""
    request: InvokeStoredQueryRequest = call.body
    expected = _expected_commit(call) if call.route.if_commit else None
    may_invoke = call.workspace.allows(PolicyAction.INVOKE_QUERY)
    if may_invoke and (earlier := _earlier_invocation(call, expected)) is not None:
        return earlier
    stored = call.served.queries.get(call.path["name"])
    if not may_invoke or stored is None:
        raise errors.NotFoundError("stored query not found")
    name, point = stored.entry.name, ReadPoint.of(request)
    require_kind(name, stored.entry.mutation, request.expect_mutation)
    if not call.route.if_commit:
        _refuse_condition(call, f"queries/{name}/if-graph-commit")
        if not stored.entry.mutation:
            return query_response(call, QueryRequest(stored.source, name, request.params, **point.keywords))
    require_branch(name, stored.entry.mutation, point)
    return _run_mutation(call, _stored_mutation(call, stored.source, branch_name(request.branch), expected))


def _earlier_invocation(call: Call, if_commit: str | None) -> AnyResponse | None:
    """The receipt of an earlier request with the same idempotency key, when the mutation that it named is gone since.

    A mutation that is there looks for its key itself. A read has none to look for, and costs nothing here.
    """
    request: InvokeStoredQueryRequest = call.body
    stored = call.served.queries.get(call.path["name"])
    is_gone = stored is None or (request.expect_mutation is True and not stored.entry.mutation)
    if not is_gone or call.idempotency_key is None:
        return None
    target = branch_name(request.branch)
    try:
        workspace = call.workspace.for_action(PolicyAction.CHANGE, target)
        receipt = earlier_receipt(workspace, _stored_mutation(call, "", target, if_commit))
    except (errors.BranchNotFoundError, errors.IdempotencyKeyReusedError, errors.PolicyError):
        return None  # the caller has to know that the query is not there
    return None if receipt is None else _receipt_response(call, receipt)


def _stored_mutation(call: Call, source: str, target: str, if_commit: str | None) -> MutationRequest:
    name, params, key = call.path["name"], call.body.params, call.idempotency_key
    return MutationRequest(source, name, params, target, if_commit, call.actor, key, stored=True)


def _refuse_condition(call: Call, conditional: str | None = None) -> None:
    """Refuse a precondition that this route would not check."""
    if IF_COMMIT_HEADER.lower() in call.headers:
        remedy = "leave it out" if conditional is None else f"send the request to POST {conditional}"
        raise errors.BadRequestError(f"{IF_COMMIT_HEADER} is not checked here; {remedy}")


def _expected_commit(call: Call) -> str:
    values = call.exchange.header_values(IF_COMMIT_HEADER.lower())
    if len(values) != 1:
        raise errors.BadRequestError(f"this operation needs the header {IF_COMMIT_HEADER}, exactly once")
    return required_commit(values[0], f"the header {IF_COMMIT_HEADER}")


# Loads


@handles("load", "ingest")
def load(call: Call) -> AnyResponse:
    request: IngestRequest = call.body
    target = load_target(call, request.branch, request.base)
    default = Grammar.LENIENT if call.route.operation_id == "ingest" else Grammar.STRICT
    lenient = (request.grammar or default) is Grammar.LENIENT
    run = target.graph.load_lenient if lenient else target.graph.load
    records, mode = request.data.encode(), request.mode or LoadMode.MERGE
    write = partial(run, records, mode=mode, branch=target.branch, base=target.creates_from)
    receipt = run_write(call, len(records), lambda: write(**_author(call)))
    return _receipt_response(call, msgspec.structs.replace(receipt, base_branch=target.base))


@handles("loadNdjson", "loadRows")
def load_file(call: Call) -> AnyResponse:
    """A load of records, or of rows of one type. Its target was authorized before its body was received."""
    parameters: LoadParameters = call.parameters
    received: ReceivedFile = call.body
    target = received.target
    data: Any = received.path
    type_: str | None = None
    if isinstance(parameters, RowsParameters):
        type_, format_ = parameters.type, row_format(parameters, received.media)
        data = received_rows(data, type_, name=parameters.file, format=format_, csv=_dialect(parameters))
    load = partial(
        target.graph.load,
        data,
        type=type_,
        mode=parameters.mode,
        branch=target.branch,
        base=target.creates_from,
        embed=bool(parameters.embed),
    )
    receipt = run_write(call, received.size, lambda: load(**_author(call)))
    output = GraphBatchLoadOutput(**{name: getattr(receipt, name) for name in GraphBatchLoadOutput.__struct_fields__})
    return _receipt_response(call, msgspec.structs.replace(output, base_branch=target.base))


def row_format(parameters: RowsParameters, media: Media) -> RowFormat:
    """The format of the rows of a body, by its media type, by a parameter, or by the name of its file."""
    if media is not Media.BYTES:
        return {Media.ARROW: RowFormat.ARROW_STREAM, Media.CSV: RowFormat.CSV, Media.NDJSON: RowFormat.NDJSON}[media]
    if parameters.format is not None:
        named = format_named(parameters.format)
    elif parameters.file is not None:
        named = format_of(parameters.file)
    else:
        raise errors.BadRequestError(
            "say how the rows are written: by the media type, with format=, or by the name in file="
        )
    if named.holds_columns:
        raise errors.UnsupportedMediaTypeError(
            f"{named} files are not read from requests: send the rows as '{Media.ARROW}'"
        )
    return named


def _dialect(parameters: RowsParameters) -> CsvDialect | None:
    """The dialect of CSV, as far as it is said; None leaves it to the name of the file."""
    names = ("delimiter", "quote", "header", "encoding", "null")
    said = {name: value for name in names if (value := getattr(parameters, name)) is not None}
    if not said:
        return None
    return CsvDialect(**{**said, "quote": (said.get("quote", '"') or None)})


def load_target(call: Call, branch: str | None, base: str | None) -> LoadTarget:
    """The branch of a load, for an actor who may change it, and create it where it does not exist yet."""
    target = branch_name(branch)
    source = None if base is None else branch_name(base)
    graph, exists = call.graph, True
    try:
        call.served.graph._workspace.head(target)
    except errors.BranchNotFoundError:
        exists = False
    if not exists and source is not None:
        graph = graph._allow(PolicyAction.BRANCH_CREATE, source, target)
    graph = graph._allow(PolicyAction.CHANGE, target)
    if not exists and source is None and call.idempotency_key is None:
        raise errors.BranchNotFoundError(target, HOW_TO_CREATE)
    # Without a base it may be a repeat, whose branch was deleted since.
    return LoadTarget(target, source, None if exists else source, graph)


# Schema and branches


@handles("applySchema")
def apply_schema(call: Call) -> AnyResponse:
    request: SchemaApplyRequest = call.body
    branch = branch_name(request.branch)
    graph = call.require(PolicyAction.SCHEMA_APPLY, target_branch=branch)
    if call.served.owned_by_cluster:
        raise errors.ConflictError(
            "the schema of this graph belongs to the cluster's configuration; change it there and run "
            "`omnigraph cluster apply`"
        )
    source, allow_data_loss, dedupe = request.schema_source, request.allow_data_loss, request.dedupe
    apply = partial(graph.schema.apply, source, branch=branch, allow_data_loss=allow_data_loss, dedupe=dedupe)
    return _write(call, size_of(source), apply)


@handles("createBranch")
def create_branch(call: Call) -> AnyResponse:
    request: BranchCreateRequest = call.body
    name, source = branch_name(request.name), branch_name(request.source)
    graph = call.require(PolicyAction.BRANCH_CREATE, source, name)
    return _write(call, BRANCH_OPERATION_BYTES, partial(graph.create_branch, name, source=source))


@handles("deleteBranch")
def delete_branch(call: Call) -> AnyResponse:
    name = branch_name(call.path["branch"])
    graph = call.require(PolicyAction.BRANCH_DELETE, target_branch=name)
    return _write(call, BRANCH_OPERATION_BYTES, partial(graph.delete_branch, name))


@handles("mergeBranches")
def merge_branches(call: Call) -> AnyResponse:
    request: BranchMergeRequest = call.body
    source, target = branch_name(request.source), branch_name(request.target)
    merge = partial(
        call.require(PolicyAction.BRANCH_MERGE, source, target).merge,
        source,
        target,
        delete_branch=request.delete_branch,
        resolutions=request.resolutions or NO_RESOLUTIONS,
        message=request.message,
    )
    return _write(call, BRANCH_OPERATION_BYTES, merge)
