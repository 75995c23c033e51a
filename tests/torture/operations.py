"""How operations are carried out through the public API, and which refusals they may meet.

The answer of an operation is plain JSON for its trace. `EXPECTED` lists, for each kind, the errors that are part of
life when others work on the same graph; any other error is a finding.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from omnigraph import Graph, errors
from omnigraph.api.branches import Resolutions
from omnigraph.api.history import ChangeBlock
from omnigraph.api.maintenance import MaintenancePolicy, Retention
from omnigraph.engine.history.commits import create_branch
from omnigraph.storage.models import BranchRef
from tests.torture.choices import CHOOSING, MUTATING, Arguments
from tests.torture.model import records
from tests.torture.readings import READINGS
from tests.torture.shapes import rendered


@dataclass
class Memory:
    """What a worker remembers from one operation to the next: where it is in the feeds it follows."""

    grace: float
    streams: dict[str, tuple[str, str]] = field(default_factory=dict)
    followed: int = 0


def carry_out(graph: Graph, operation: Mapping[str, Any], memory: Memory) -> dict[str, Any]:
    """Do it through the public API. The answer names the commit it made or read, and what it saw."""
    return DOING[operation["kind"]](graph, operation, operation["args"], memory)


def _do_load(graph: Graph, operation: Mapping[str, Any], arguments: Arguments, memory: Memory) -> dict[str, Any]:
    lines = "\n".join(json.dumps(line) for line in records(arguments))
    receipt = graph.load(
        lines,
        mode=arguments["mode"],
        branch=arguments.get("branch", operation["branch"]),
        base=arguments.get("base"),
        actor=operation["op"],
        idempotency_key=operation.get("key"),
    )
    commit = None if receipt.commit is None else receipt.commit.graph_commit_id
    return {"commit": commit, "created": receipt.branch_created}


def _do_mutate(graph: Graph, operation: Mapping[str, Any], arguments: Arguments, memory: Memory) -> dict[str, Any]:
    source = f"query q{MUTATING[arguments['template']]}".replace("<Knows>", arguments["knows"])
    receipt = graph.mutate(
        source,
        "q",
        arguments["params"],
        branch=operation["branch"],
        if_commit=arguments.get("if_commit"),
        actor=operation["op"],
        idempotency_key=operation.get("key"),
    )
    return {"commit": None if receipt.commit is None else receipt.commit.graph_commit_id}


def _do_merge(graph: Graph, operation: Mapping[str, Any], arguments: Arguments, memory: Memory) -> dict[str, Any]:
    take = arguments["take"]
    decided = ("divergent_insert", "divergent_update", "delete_vs_update")
    merged = graph.merge(
        arguments["source"],
        arguments["target"],
        delete_branch=arguments["delete"],
        resolutions=Resolutions.of(kinds=dict.fromkeys(decided, str(take)) if take else None),
        actor=operation["op"],
        idempotency_key=operation.get("key"),
    )
    commit = None if merged.commit is None else merged.commit.graph_commit_id
    return {"commit": commit, "merge": merged.outcome.value, "deleted": merged.branch_deleted}


def _do_branch(graph: Graph, operation: Mapping[str, Any], arguments: Arguments, memory: Memory) -> dict[str, Any]:
    name, source, key = arguments["name"], arguments["source"], operation.get("key")
    made = create_branch(graph._workspace, name, source, actor=operation["op"], idempotency_key=key)
    return {"branch_id": made.branch_id} if isinstance(made, BranchRef) else {"earlier": made.actor}


def _do_unbranch(graph: Graph, operation: Mapping[str, Any], arguments: Arguments, memory: Memory) -> dict[str, Any]:
    deleted = graph.delete_branch(arguments["name"], actor=operation["op"], idempotency_key=operation.get("key"))
    return {"earlier": deleted.actor_id} if deleted.replayed else {}


def _do_schema(graph: Graph, operation: Mapping[str, Any], arguments: Arguments, memory: Memory) -> dict[str, Any]:
    text = rendered(arguments["document"])
    done = graph.schema.apply(
        text,
        branch=operation["branch"],
        allow_data_loss=arguments["hard"],
        actor=operation["op"],
        idempotency_key=operation.get("key"),
    )
    return {"commit": None if done.commit is None else done.commit.commit_id}


def _do_cleanup(graph: Graph, operation: Mapping[str, Any], arguments: Arguments, memory: Memory) -> dict[str, Any]:
    report = graph.maintenance.cleanup(
        keep_versions=arguments.get("keep"),
        older_than=arguments.get("older"),
        grace=timedelta(seconds=memory.grace),
    )
    return {
        "versions": report.versions_removed,
        "errors": sorted({row.error for row in report.datasets if row.error is not None}),
    }


def _do_optimize(graph: Graph, operation: Mapping[str, Any], arguments: Arguments, memory: Memory) -> dict[str, Any]:
    report = graph.maintenance.optimize(operation["branch"], actor=operation["op"])
    return {"commit": None if report.commit is None else report.commit.commit_id}


def _do_indices(graph: Graph, operation: Mapping[str, Any], arguments: Arguments, memory: Memory) -> dict[str, Any]:
    graph.maintenance.ensure_indices(operation["branch"], actor=operation["op"])
    return {}


def _do_maintain(graph: Graph, operation: Mapping[str, Any], arguments: Arguments, memory: Memory) -> dict[str, Any]:
    policy = MaintenancePolicy(small_fragments=3, deleted_share=0.05, retention=Retention(keep_versions=5))
    report = graph.maintenance.maintain(policy, branch=operation["branch"], actor=operation["op"])
    return {"reasons": report.reasons}


def _do_query(graph: Graph, operation: Mapping[str, Any], arguments: Arguments, memory: Memory) -> dict[str, Any]:
    reading = READINGS[arguments["reading"]]
    result = graph.query(reading.text(arguments["names"]), "q", arguments["params"], **arguments["at"])
    return {"read": result.graph_commit_id, "answer": reading.seen(result.rows())}


def _do_diff(graph: Graph, operation: Mapping[str, Any], arguments: Arguments, memory: Memory) -> dict[str, Any]:
    found = graph.diff(arguments["before"], arguments["after"])
    return {"changes": [[c.type_name, c.id, c.op.value] for c in found.changes]}


def _do_changes(graph: Graph, operation: Mapping[str, Any], arguments: Arguments, memory: Memory) -> dict[str, Any]:
    changes, token = [], None
    while True:
        page = graph.changes.page(arguments["commit"], page_token=token, max_changes=arguments["page"])
        changes += _told(page.block)
        token = page.next_page_token
        if token is None:
            return {"changes": changes}


def _do_poll(graph: Graph, operation: Mapping[str, Any], arguments: Arguments, memory: Memory) -> dict[str, Any]:
    """The next part of a feed. Who follows no feed of this branch begins with a baseline."""
    branch = operation["branch"]
    if branch not in memory.streams:
        digest = _Digest()
        baseline = graph.changes.baseline(digest, branch=branch)
        memory.followed += 1
        stream = f"{operation['op'].rpartition('-')[0]}/{memory.followed}"
        memory.streams[branch] = (stream, baseline.resume_cursor)
        return {"stream": stream, "baseline": baseline.snapshot_commit_id, "content": digest.content()}
    stream, cursor = memory.streams.pop(branch)  # an error ends the stream
    blocks: list[dict[str, Any]] = []
    limits = {"max_changes": arguments["page"], "max_commits": arguments["commits"]}
    poll = graph.changes.poll(branch=branch, cursor=cursor, **limits)
    while True:
        for block in poll.blocks:
            if not blocks or blocks[-1]["commit"] != block.cause.graph_commit_id:
                blocks.append(
                    {"commit": block.cause.graph_commit_id, "parent": block.cause.parent_commit_id, "changes": []}
                )
            blocks[-1]["changes"] += _told(block)
        if poll.next_page_token is None:
            break
        poll = graph.changes.poll(branch=branch, page_token=poll.next_page_token, **limits)
    assert poll.cursor is not None
    memory.streams[branch] = (stream, poll.cursor)
    return {"stream": stream, "blocks": blocks}


def _told(block: ChangeBlock) -> list[list[str]]:
    """Type, key and operation of every change; an edge is known by its tag."""
    told = []
    for change in block.changes:
        image = change.after or change.before
        assert image is not None
        told.append([change.type_name, image.properties["tag" if change.kind == "edge" else "name"], change.op.value])
    return told


class _Digest:
    """Takes an export and gives a digest of its content, whatever the ids of edges."""

    def __init__(self) -> None:
        self._data = b""

    def write(self, data: bytes, /) -> None:
        self._data += data

    def content(self) -> str:
        return digest_of(json.loads(line) for line in self._data.splitlines())


def digest_of(lines: Iterable[dict[str, Any]]) -> str:
    """The same for equal content: of lines of an export without ids and without what is null."""
    told = [
        json.dumps(
            {**line, "data": {k: v for k, v in line["data"].items() if v is not None and k != "id"}}, sort_keys=True
        )
        for line in lines
    ]
    return hashlib.sha256("\n".join(sorted(told)).encode()).hexdigest()


DOING: dict[str, Callable[[Graph, Mapping[str, Any], Arguments, Memory], dict[str, Any]]] = {
    kind: globals()[f"_do_{kind}"] for kind in CHOOSING
}

_MISSING = (errors.BranchNotFoundError,)
_MOVED = (*_MISSING, errors.ReadSetChangedError)
_RECLAIMED = (errors.NotFoundError, errors.HistoricalVersionReclaimedError)

EXPECTED: dict[str, tuple[type[errors.OmniGraphError], ...]] = {
    "look": _MISSING,
    "load": (*_MOVED, errors.BadRequestError, errors.KeyConflictError),
    "mutate": (*_MOVED, errors.BadRequestError, errors.KeyConflictError, errors.PreconditionFailedError),
    "merge": (*_MOVED, errors.BadRequestError, errors.MergeConflictsError, errors.HistoricalVersionReclaimedError),
    "branch": (*_RECLAIMED, errors.ConflictError, errors.BadRequestError),
    "unbranch": (*_MISSING, errors.ConflictError, errors.BadRequestError),
    "schema": (*_MOVED, errors.BadRequestError),
    "cleanup": (errors.ConflictError,),
    "optimize": _MOVED,
    "indices": _MOVED,
    "maintain": (*_MOVED, errors.ConflictError),
    "query": (*_MISSING, errors.BadRequestError),
    "diff": (*_RECLAIMED, errors.ChangeFeedGapError),
    "changes": (
        *_RECLAIMED,
        errors.ChangeFeedGapError,
        errors.CommitHasNoParentError,
    ),
    "poll": (
        *_MISSING,
        errors.ChangeFeedGapError,
        errors.ChangeCursorRejectedError,
    ),
}


def is_expected(operation: Mapping[str, Any], error: errors.OmniGraphError) -> bool:
    """Whether the operation may meet this refusal. Only who names history may find it reclaimed."""
    kind, arguments = operation["kind"], operation["args"]
    if kind == "query" and arguments["at"].keys() - {"branch"} and isinstance(error, _RECLAIMED):
        return True
    if kind == "load" and "base" in arguments and isinstance(error, (*_RECLAIMED, errors.ConflictError)):
        return True
    if operation.get("abuse") and isinstance(error, errors.ConflictError):
        return True
    return isinstance(error, EXPECTED[kind])
