"""A graph as an actor finds it over HTTP, without HTTP: every method is an operation of the table of routes.

For what stands beside the routes and speaks another protocol, so that the same gate, lens, budgets and limits hold
there: nothing is decided here. Rows are streamed from the engine after the same question that `/query` asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from omnigraph.api import wire
from omnigraph.api.branches import (
    NO_RESOLUTIONS,
    BranchCreated,
    BranchCreateRequest,
    BranchList,
    BranchMergeRequest,
    MergePreview,
    MergePreviewRequest,
    MergeResult,
    Resolutions,
)
from omnigraph.api.enums import EntityKind
from omnigraph.api.history import ChangeRecord, ChangeScope, ChangeSet, CommitChangesPage, CommitList
from omnigraph.api.load import ChangeRequest, MutationReceipt
from omnigraph.api.queries import InvokeStoredQueryRequest, ReadOutput, ReadPoint, StoredQueries
from omnigraph.api.schema import SchemaSource
from omnigraph.api.service.http import (
    CommitChangesParameters,
    CommitsParameters,
    DiffParameters,
    EntityParameters,
)
from omnigraph.api.service.routes import IDEMPOTENCY_HEADER, IF_COMMIT_HEADER, route
from omnigraph.engine.query.read import stream_query
from omnigraph.engine.query.result import QueryStream
from omnigraph.errors import BadRequestError
from omnigraph.server.handlers import changes, reads, writes
from omnigraph.server.http.call import HANDLERS, Call
from omnigraph.server.http.responses import Answer

HANDLER_MODULES: Final = (changes, reads, writes)
"""Importing them registers the handlers."""

Shape = TypeVar("Shape")


@dataclass(frozen=True, slots=True)
class ReadRows:
    """The rows of a stored query, which come whole."""

    output: ReadOutput

    @property
    def graph_commit_id(self) -> str:
        assert self.output.graph_commit_id is not None, "every read tells its commit"
        return self.output.graph_commit_id

    @property
    def columns(self) -> tuple[str, ...]:
        return self.output.columns

    def rows(self) -> list[dict[str, Any]]:
        return self.output.rows


@dataclass(frozen=True, slots=True)
class InProcessGraph:
    """One graph for one actor. Who an actor is was settled before; what it may do is asked at each call."""

    asked: Call
    """A call of this actor on this graph; every operation is called as it was."""

    # Reading

    def stream(
        self,
        source: str,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        version: int | None = None,
    ) -> QueryStream:
        call = self._call("query")
        point = ReadPoint(branch, snapshot, version).normalize()
        asked = (source, name, None if params is None else dict(params))
        return stream_query(call.state(point), point.target, asked, call.read_options())

    def entity(
        self,
        type_key: str,
        entity_id: str,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        version: int | None = None,
    ) -> dict[str, Any]:
        kind, _, name = type_key.partition(":")
        parameters = EntityParameters(
            entity=EntityKind(kind), type=name, id=entity_id, branch=branch, snapshot=snapshot, version=version
        )
        return self._answer("getEntity", dict[str, Any], parameters=parameters)

    def schema_text(self, branch: str | None = None, *, snapshot: str | None = None, version: int | None = None) -> str:
        point = ReadPoint(branch, snapshot, version)
        return self._answer("getSchema", SchemaSource, parameters=point).schema_source

    def stored_queries(self) -> StoredQueries:
        return self._answer("list_queries", StoredQueries)

    def list_branches(self) -> list[str]:
        return list(self._answer("listBranches", BranchList).branches)

    def commits(self, branch: str = "main", *, limit: int = 100, before: int | None = None) -> CommitList:
        return self._answer("listCommits", CommitList, parameters=CommitsParameters(branch, limit, before))

    def iter_commit_changes(self, commit_id: str, *, scope: ChangeScope | None = None) -> Iterator[ChangeRecord]:
        token: str | None = None
        while True:
            parameters = CommitChangesParameters(page_token=token, **_scope(scope))
            page = self._answer(
                "getCommitChanges", CommitChangesPage, parameters=parameters, path={"commit_id": commit_id}
            )
            yield from page.changes
            if (token := page.next_page_token) is None:
                return

    def diff(self, before: str, after: str, filter: ChangeScope | None = None) -> ChangeSet:
        pages = [self._diff_page(before, after, filter, None)]
        while (token := pages[-1].next_page_token) is not None:
            pages.append(self._diff_page(before, after, filter, token))
        every = tuple(change for page in pages for change in page.changes)
        return wire.convert({**wire.to_builtins(pages[-1]), "changes": wire.to_builtins(every)}, ChangeSet)

    def _diff_page(self, before: str, after: str, scope: ChangeScope | None, token: str | None) -> ChangeSet:
        parameters = DiffParameters(before=before, after=after, page_token=token, **_scope(scope))
        return self._answer("diff", ChangeSet, parameters=parameters)

    def preview_merge(
        self, source: str, target: str = "main", *, resolutions: Resolutions = NO_RESOLUTIONS
    ) -> MergePreview:
        request = MergePreviewRequest(source, target, resolutions)
        return self._answer("previewMerge", MergePreview, body=request)

    # Writing

    def mutate(
        self,
        source: str,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        branch: str | None = None,
        if_commit: str | None = None,
        actor: str | None = None,
        idempotency_key: str | None = None,
    ) -> MutationReceipt:
        body = ChangeRequest(source, name, None if params is None else dict(params), branch)
        operation = "mutate" if if_commit is None else "mutate_if_graph_commit"
        headers = self._write_headers(actor, if_commit, idempotency_key)
        return self._answer(operation, MutationReceipt, body=body, headers=headers)

    def invoke(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        version: int | None = None,
        if_commit: str | None = None,
        actor: str | None = None,
        idempotency_key: str | None = None,
    ) -> ReadRows | MutationReceipt:
        body = InvokeStoredQueryRequest(None if params is None else dict(params), branch, snapshot, version)
        operation = "invoke_query" if if_commit is None else "invoke_query_if_graph_commit"
        headers = self._write_headers(actor, if_commit, idempotency_key)
        stored = self.asked.served.queries.get(name)
        path = {"name": name}
        if stored is not None and stored.entry.mutation:
            return self._answer(operation, MutationReceipt, path=path, body=body, headers=headers)
        return ReadRows(self._answer(operation, ReadOutput, path=path, body=body, headers=headers))

    def create_branch(
        self,
        name: str,
        *,
        source: str | None = None,
        actor: str | None = None,
        idempotency_key: str | None = None,
    ) -> BranchCreated:
        body, headers = BranchCreateRequest(name, source), self._write_headers(actor, None, idempotency_key)
        return self._answer("createBranch", BranchCreated, body=body, headers=headers)

    def merge(
        self,
        source: str,
        target: str = "main",
        *,
        delete_branch: bool = False,
        resolutions: Resolutions = NO_RESOLUTIONS,
        actor: str | None = None,
        message: str | None = None,
        idempotency_key: str | None = None,
    ) -> MergeResult:
        body = BranchMergeRequest(source, target, delete_branch, resolutions, message)
        headers = self._write_headers(actor, None, idempotency_key)
        return self._answer("mergeBranches", MergeResult, body=body, headers=headers)

    # Operations

    def _answer(self, operation_id: str, shape: type[Shape], **request: Any) -> Shape:
        answer = HANDLERS[operation_id](self._call(operation_id, **request))
        assert isinstance(answer, Answer), f"{operation_id} answers whole where no stream is asked for"
        return wire.decode(answer.body, shape)

    def _call(
        self,
        operation_id: str,
        *,
        path: Mapping[str, str] | None = None,
        parameters: Any = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Call:
        said = {name.lower(): value for name, value in (headers or {}).items()}
        return replace(
            self.asked,
            route=route(operation_id),
            path=path or {},
            parameters=parameters,
            body=body,
            headers=said,
            all_headers={name: (value,) for name, value in said.items()},
            raw_request=b"",
        )

    def _write_headers(
        self, actor: str | None, if_commit: str | None = None, idempotency_key: str | None = None
    ) -> dict[str, str]:
        if actor is not None and actor != self.asked.actor:
            raise BadRequestError(f"a write is recorded for '{self.asked.actor}', who asks for it, not for '{actor}'")
        named = {IF_COMMIT_HEADER: if_commit, IDEMPOTENCY_HEADER: idempotency_key}
        return {name: value for name, value in named.items() if value is not None}


def _scope(scope: ChangeScope | None) -> dict[str, Any]:
    if scope is None:
        return {}
    return {"kind": tuple(scope.kinds), "type": tuple(scope.types), "op": tuple(scope.ops)}
