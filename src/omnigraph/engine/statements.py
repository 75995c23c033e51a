"""Statements about branches: texts that create, delete, merge or list branches instead of querying the graph.

`omnigraph.graph` and the server ask this module what a text is before they take it for a query, and run the statement
with the operation that has a method and a route of its own. So a statement has the rights, errors and effects of that
operation. `explain query …` is not here: it is read like the query that it explains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

from omnigraph.api.branches import MergeRequest
from omnigraph.api.calls import Author, GraphCalls
from omnigraph.api.enums import PolicyAction
from omnigraph.api.load import BranchOutcome, MutationReceipt
from omnigraph.api.queries import ReadPoint
from omnigraph.engine.query.result import OperatorProfile, QueryStream
from omnigraph.errors import BadRequestError
from omnigraph.language.query import syntax as ast
from omnigraph.language.query.ir import OutputColumn
from omnigraph.language.query.parser import first_word, parse_queries
from omnigraph.language.query.value_types import STRING
from omnigraph.language.source import Name
from omnigraph.storage.identifiers import MAIN

BranchWrite: TypeAlias = ast.BranchCreate | ast.BranchDelete | ast.BranchMerge

_LIST: Final = "branch list"
_NAMES: Final = (OutputColumn("name", STRING),)
_SCHEMA: Final = pa.schema([pa.field("name", pa.string())])
_TO_READ: Final = "use POST /query, `omnigraph query` or `query` of the graph"
_TO_WRITE: Final = "use POST /mutate, `omnigraph mutate` or `mutate` of the graph"


class Access(NamedTuple):
    """What an actor must be allowed to do, on which branches."""

    action: PolicyAction
    branch: str | None
    target_branch: str


def is_branch_list(text: str, name: str | None, params: Mapping[str, Any] | None, point: ReadPoint) -> bool:
    """Whether a text that is sent to be read lists the branches. Raises `BadRequestError` for a statement that writes,
    and for one with anything beside it; `point` is what the caller said of the state to read."""
    if first_word(text) != "branch":
        return False
    statement = _parse(text)
    if not isinstance(statement, ast.BranchList):
        raise BadRequestError(f"`{statement_name(statement)}` changes branches: {_TO_WRITE}")
    _refuse_beside(statement, name, params, {"a branch or snapshot to read": None if point == ReadPoint() else point})
    return True


def branch_rows(names: Sequence[str]) -> QueryStream:
    """The rows of `branch list`. They are of no state of the graph, so they name no commit."""
    batch = pa.record_batch([pa.array(names, pa.string())], schema=_SCHEMA)
    return QueryStream(_LIST, ReadPoint(), "", _NAMES, _SCHEMA, OperatorProfile(_LIST), iter([batch]))


def branch_write(
    text: str, name: str | None, params: Mapping[str, Any] | None, branch: str | None, if_commit: str | None
) -> BranchWrite | None:
    """The statement of a text that is sent to write; None for a text of queries. Raises `BadRequestError` for a
    statement that reads, and for one with anything beside it."""
    word = first_word(text)
    if word == "explain":
        raise BadRequestError(f"`explain` reads: {_TO_READ}")
    if word != "branch":
        return None
    statement = _parse(text)
    if isinstance(statement, ast.BranchList):
        raise BadRequestError(f"`{_LIST}` reads: {_TO_READ}")
    _refuse_beside(statement, name, params, {"a branch to write to": branch, "a commit that is required": if_commit})
    return statement


def _parse(text: str) -> BranchWrite | ast.BranchList:
    statement = parse_queries(text).statement
    assert isinstance(statement, BranchWrite | ast.BranchList), "the first word tells a statement"
    return statement


def _refuse_beside(
    statement: BranchWrite | ast.BranchList,
    name: str | None,
    params: Mapping[str, Any] | None,
    more: Mapping[str, object],
) -> None:
    """A statement says everything itself. What is said beside it would be ignored."""
    beside = {"the name of a query": name, "parameters": params or None, **more}
    for what, value in beside.items():
        if value is not None:
            raise BadRequestError(f"`{statement_name(statement)}` stands alone: leave out {what}")


def statement_name(statement: BranchWrite | ast.BranchList) -> str:
    """The name of a statement in responses, which have the name of a query there."""
    match statement:
        case ast.BranchCreate():
            return "branch create"
        case ast.BranchDelete():
            return "branch delete"
        case ast.BranchMerge():
            return "branch merge"
        case ast.BranchList():
            return _LIST


def access_of(statement: BranchWrite) -> Access:
    """What the route of the same operation asks of its actor."""
    match statement:
        case ast.BranchCreate(name=name, source=source):
            return Access(PolicyAction.BRANCH_CREATE, _or_main(source), name.text.strip())
        case ast.BranchDelete(name=name):
            return Access(PolicyAction.BRANCH_DELETE, None, name.text.strip())
        case ast.BranchMerge(source=source, target=target):
            return Access(PolicyAction.BRANCH_MERGE, source.text.strip(), _or_main(target))


def run_branch_write(graph: GraphCalls[Any, Any, Any, Any], statement: BranchWrite, author: Author) -> MutationReceipt:
    """Do what a statement says, as the method of the graph does it."""
    name = statement_name(statement)
    match statement:
        case ast.BranchCreate():
            created = graph._create_branch(statement.name.text, _or_main(statement.source), author)
            outcome = BranchOutcome("created")
            return MutationReceipt(created.name, name, 0, 0, created.actor_id, None, created.replayed, outcome)
        case ast.BranchDelete():
            deleted = graph._delete_branch(statement.name.text, author)
            outcome = BranchOutcome("deleted")
            return MutationReceipt(deleted.name, name, 0, 0, deleted.actor_id, None, deleted.replayed, outcome)
        case ast.BranchMerge():
            target = _or_main(statement.target)
            key = author.idempotency_key
            request = MergeRequest(statement.source.text.strip(), target, actor=author.actor, idempotency_key=key)
            merged = graph._merge(request)
            outcome = BranchOutcome("merged", merged.outcome)
            return MutationReceipt(target, name, 0, 0, merged.actor_id, merged.commit, merged.replayed, outcome)


def _or_main(name: Name | None) -> str:
    return MAIN if name is None else name.text.strip()
