"""What workers do to the graph: how each operation is chosen at random, and how it is carried out through the API.

`choose` draws an operation from a view of the graph; everything it needs to be carried out and to be judged later is
plain JSON in its arguments. `carry_out` does it and tells what came back. `EXPECTED` lists the refusals that each kind
may meet when others work on the same graph; any other error is a finding.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any

from omnigraph import Graph, errors
from omnigraph.engine.changes import ChangeBlock
from omnigraph.engine.cleanup import Retention
from omnigraph.engine.maintain import MaintenancePolicy
from omnigraph.engine.merge import Resolutions
from tests.torture.model import records
from tests.torture.readings import READINGS, WORDS
from tests.torture.shapes import CHANGING, ROLES, Document, document_of, rendered, role_of

BRANCHES = ("a", "a/b", "a/c", "b", "b/x", "c")
Arguments = dict[str, Any]


@dataclass
class View:
    """What a worker sees of the graph before it chooses."""

    branches: list[str]
    branch: str
    head: str
    version: int
    document: Document
    past: list[str]

    @classmethod
    def of(cls, graph: Graph, chance: Random) -> View:
        branches = graph.list_branches()
        branch = "main" if chance.random() < 0.5 else chance.choice(branches)
        try:
            snapshot = graph.snapshot(branch)
        except errors.BranchNotFoundError:
            branch = "main"
            snapshot = graph.snapshot(branch)
        page = graph.list_commits(branch, limit=chance.choice((5, 40)))
        past = [entry.commit.id for entry in page.commits]
        return cls(branches, branch, snapshot.commit_id, snapshot.version, document_of(snapshot.catalog), past)

    @property
    def names(self) -> dict[str, str]:
        """The name of each type by its role."""
        return {role_of(t["name"]): t["name"] for t in self.document["types"]}

    def extra(self, role: str) -> list[str]:
        """Properties that schema changes have brought to a type."""
        fixed = {p["name"] for p in ROLES[role]["properties"]}
        return [
            p["name"]
            for t in self.document["types"]
            if role_of(t["name"]) == role
            for p in t["properties"]
            if p["name"] not in fixed
        ]


@dataclass
class Memory:
    """What a worker remembers from one operation to the next: where it is in the feeds it follows."""

    grace: float
    streams: dict[str, tuple[str, str]] = field(default_factory=dict)
    followed: int = 0


# ---- choosing -------------------------------------------------------------------------------------------------------


def choose(chance: Random, view: View, tag: str, weights: Mapping[str, float]) -> dict[str, Any]:
    """An operation: its kind, its branch and its arguments. `tag` is unique and marks what it creates."""
    kinds = [kind for kind in CHOOSING if weights.get(kind, 1) > 0]
    kind = chance.choices(kinds, [CHOOSING[k][0] * weights.get(k, 1) for k in kinds])[0]
    return {"kind": kind, "branch": view.branch, "args": CHOOSING[kind][1](chance, view, tag)}


def _load(chance: Random, view: View, tag: str) -> Arguments:
    mode = chance.choices(("append", "merge", "overwrite"), (4, 5, 1))[0]
    arguments: Arguments = {"mode": mode}
    if chance.random() < 0.12:
        arguments["bulk"] = ["Person", chance.randrange(200), chance.randint(20, 200), chance.randrange(100)]
    elif mode == "overwrite":
        arguments["records"] = _overwriting(chance, view, tag)
    else:
        arguments["records"] = _few(chance, view, tag)
    if chance.random() < 0.08:
        arguments["branch"] = chance.choice(BRANCHES)
        arguments["base"] = chance.choice([*view.branches, *view.past])
    return arguments


def _few(chance: Random, view: View, tag: str) -> list[dict[str, Any]]:
    if chance.random() < 0.5:
        return [_person(chance, view)]
    lines = [_person(chance, view), _place(chance, view)]
    if "Note" in view.names:
        lines.append(_note(chance, view))
    person, place = lines[0]["data"]["name"], lines[1]["data"]["name"]
    other = chance.choice((person, f"p{chance.randrange(16)}"))
    lines.append(_edge(chance, view, "Knows", person, other, tag))
    if chance.random() < 0.5:
        lines.append(_edge(chance, view, "Lives", person, place, f"{tag}-l"))
    return lines


def _overwriting(chance: Random, view: View, tag: str) -> list[dict[str, Any]]:
    """A type as a whole, or everything at once, which keeps what grows in bounds."""
    if chance.random() < 0.5:
        return [_note(chance, view) if "Note" in view.names and chance.random() < 0.5 else _place(chance, view)]
    people = {line["data"]["name"]: line for line in (_person(chance, view) for _ in range(8))}
    place, names = _place(chance, view), sorted(people)
    first = {"n": 1}
    return [
        *({**line, "data": {**line["data"], "email": None}} for line in people.values()),
        place,
        *({"type": "Person", "data": {"name": f"b{i}", **first}} for i in range(3)),
        _edge(chance, view, "Knows", names[0], names[-1], tag),
        _edge(chance, view, "Lives", names[0], place["data"]["name"], f"{tag}-l"),
    ]


def _person(chance: Random, view: View) -> dict[str, Any]:
    data: dict[str, Any] = {"name": f"p{chance.randrange(16)}", "n": chance.randrange(100)}
    if chance.random() < 0.3:
        data["email"] = f"e{chance.randrange(8)}"
    if chance.random() < 0.6:
        data["bio"] = " ".join(chance.sample(WORDS, chance.randint(1, 3)))
    if chance.random() < 0.4:
        data["vec"] = _vector(chance)
    if chance.random() < 0.2:
        data["photo"] = "base64:" + base64.b64encode(chance.randbytes(chance.choice((0, 40, 5000)))).decode()
    return {"type": "Person", "data": {**data, **_extra(chance, view, "Person")}}


def _place(chance: Random, view: View) -> dict[str, Any]:
    data = {"name": f"h{chance.randrange(6)}", "n": chance.randrange(100)}
    return {"type": view.names["Place"], "data": {**data, **_extra(chance, view, "Place")}}


def _note(chance: Random, view: View) -> dict[str, Any]:
    return {"type": view.names["Note"], "data": {"name": f"n{chance.randrange(6)}", "text": chance.choice(WORDS)}}


def _edge(chance: Random, view: View, role: str, source: str, target: str, tag: str) -> dict[str, Any]:
    data = {"id": tag, "tag": tag, **({"since": chance.randrange(100)} if role == "Knows" else {})}
    return {"edge": view.names[role], "from": source, "to": target, "data": {**data, **_extra(chance, view, role)}}


def _extra(chance: Random, view: View, role: str) -> dict[str, Any]:
    return {
        name: chance.randrange(100) if name.startswith("xi") else chance.choice(WORDS)
        for name in view.extra(role)
        if chance.random() < 0.5
    }


def _vector(chance: Random) -> list[float]:
    return [chance.randrange(16) / 4 for _ in range(4)]


MUTATING = {
    "put_person": "($name: String, $n: I64, $email: String?) { insert Person { name: $name, n: $n, email: $email } }",
    "update_person": "($name: String, $n: I64) { update Person set { n: $n } where name = $name }",
    "raise_people": "($below: I64, $n: I64) { update Person set { n: $n } where n < $below }",
    "befriend": """($from: String, $to: String, $n: I64, $tag: String) {
        insert Person { name: $from, n: $n }
        insert Person { name: $to, n: $n }
        insert <Knows> { from: $from, to: $to, tag: $tag } }""",
    "connect": """($from: String, $to: String, $tag: String) {
        insert <Knows> { from: $from, to: $to, tag: $tag } }""",
    "delete_person": "($name: String) { delete Person where name = $name }",
    "delete_people": "($below: I64) { delete Person where n < $below }",
    "delete_edges": "($from: String) { delete <Knows> where from = $from }",
}


def _mutate(chance: Random, view: View, tag: str) -> Arguments:
    template = chance.choice(sorted(MUTATING))
    params: dict[str, Any] = {}
    for name in ("name", "from", "to"):
        params[name] = f"p{chance.randrange(16)}"
    params |= {"n": chance.randrange(100), "below": chance.randrange(20), "tag": tag}
    if chance.random() < 0.3:
        params["email"] = f"e{chance.randrange(8)}"
    declared = MUTATING[template].split(")")[0]
    arguments: Arguments = {
        "template": template,
        "params": {k: v for k, v in params.items() if f"${k}:" in declared},
        "knows": view.names["Knows"],
    }
    if chance.random() < 0.2:
        arguments["if_commit"] = chance.choice((view.head, view.head, chance.choice(view.past)))
    return arguments


def _merge(chance: Random, view: View, tag: str) -> Arguments:
    others = [b for b in view.branches if b != view.branch]
    source = chance.choice(others) if others else "a"
    target = view.branch
    if chance.random() < 0.3:
        source, target = target, source
    return {
        "source": source,
        "target": target,
        "delete": chance.random() < 0.2 and source != "main",
        "take": chance.choice((None, None, "ours", "theirs")),
    }


def _branch(chance: Random, view: View, tag: str) -> Arguments:
    source = view.branch if chance.random() < 0.5 else chance.choice(view.past)
    return {"name": chance.choice(BRANCHES), "source": source}


def _unbranch(chance: Random, view: View, tag: str) -> Arguments:
    named = [b for b in view.branches if b != "main"]
    return {"name": chance.choice(named or list(BRANCHES))}


def _schema(chance: Random, view: View, tag: str) -> Arguments:
    document: Document = json.loads(json.dumps(view.document))
    types = {role_of(t["name"]): t for t in document["types"]}
    change = chance.choice(("add", "add", "drop", "rename", "rename_type", "note"))
    type_ = types[chance.choice(("Person", "Place", "Knows"))]
    extra = [p for p in type_["properties"] if p["name"][:2] in CHANGING]
    if change == "add" and len(extra) < 4:
        prefix = chance.choice(sorted(CHANGING))
        name = f"{prefix}{chance.randrange(6)}"
        if all(p["name"] != name for p in extra):
            type_["properties"].append({"name": name, "type": CHANGING[prefix], "note": ""})
    elif change == "drop" and extra:
        type_["properties"].remove(chance.choice(extra))
    elif change == "rename" and extra:
        renamed = chance.choice(extra)
        renamed["was"] = renamed["name"]
        renamed["name"] = f"{renamed['name'][:2]}{chance.randrange(6)}"
    elif change == "rename_type":
        renamed = types[chance.choice(("Place", "Knows"))]
        renamed["was"] = renamed["name"]
        renamed["name"] = f"{role_of(renamed['name'])}{chance.randrange(1, 6)}"
        for edge in document["types"]:
            edge["ends"] = [renamed["name"] if end == renamed["was"] else end for end in edge["ends"] or ()] or None
    elif change == "note" and "Note" in types:
        document["types"].remove(types["Note"])
    elif change == "note":
        document["types"].append({**ROLES["Note"], "name": chance.choice(("Note", "Note1"))})
    return {"document": document, "hard": chance.random() < 0.4}


def _cleanup(chance: Random, view: View, tag: str) -> Arguments:
    return chance.choice(({"keep": 1}, {"keep": 1}, {"keep": 3}, {"keep": 10}, {"older": "2s"}))


def _query(chance: Random, view: View, tag: str) -> Arguments:
    params = {
        "name": f"p{chance.randrange(16)}",
        "word": chance.choice(WORDS),
        "q": _vector(chance),
        "n": chance.randrange(100),
    }
    reading = chance.choice(sorted(READINGS))
    at: Arguments = {"branch": view.branch}
    if chance.random() < 0.4:
        past = (
            {"snapshot": chance.choice(view.past)},
            {"branch": view.branch, "version": chance.randint(1, view.version)},
        )
        at = chance.choice(past)
    declared = READINGS[reading].source.split(")")[0]
    return {
        "reading": reading,
        "params": {k: v for k, v in params.items() if f"${k}:" in declared},
        "names": view.names,
        "at": at,
    }


def _diff(chance: Random, view: View, tag: str) -> Arguments:
    return {"before": chance.choice(view.past), "after": chance.choice([*view.past, view.head])}


def _changes(chance: Random, view: View, tag: str) -> Arguments:
    return {"commit": chance.choice(view.past[:5]), "page": chance.choice((1, 3, 1000))}


def _poll(chance: Random, view: View, tag: str) -> Arguments:
    return {"page": chance.choice((2, 10, 1000)), "commits": chance.choice((1, 5, 128))}


def _nothing(chance: Random, view: View, tag: str) -> Arguments:
    return {}


CHOOSING: dict[str, tuple[float, Callable[[Random, View, str], Arguments]]] = {
    "load": (22, _load),
    "mutate": (22, _mutate),
    "merge": (10, _merge),
    "branch": (7, _branch),
    "unbranch": (5, _unbranch),
    "schema": (3, _schema),
    "cleanup": (3, _cleanup),
    "optimize": (1.5, _nothing),
    "indices": (1, _nothing),
    "maintain": (1, _nothing),
    "query": (14, _query),
    "diff": (4, _diff),
    "changes": (4, _changes),
    "poll": (8, _poll),
}


# ---- carrying out ---------------------------------------------------------------------------------------------------


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
    return {"commit": receipt.commit.graph_commit_id, "created": receipt.branch_created}


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
    ref = graph.create_branch(arguments["name"], source=arguments["source"], actor=operation["op"])
    return {"branch_id": ref.branch_id}


def _do_unbranch(graph: Graph, operation: Mapping[str, Any], arguments: Arguments, memory: Memory) -> dict[str, Any]:
    graph.delete_branch(arguments["name"], actor=operation["op"])
    return {}


def _do_schema(graph: Graph, operation: Mapping[str, Any], arguments: Arguments, memory: Memory) -> dict[str, Any]:
    text = rendered(arguments["document"])
    done = graph.apply_schema(
        text, branch=operation["branch"], allow_data_loss=arguments["hard"], actor=operation["op"]
    )
    return {"commit": None if done.commit is None else done.commit.commit_id}


def _do_cleanup(graph: Graph, operation: Mapping[str, Any], arguments: Arguments, memory: Memory) -> dict[str, Any]:
    report = graph.cleanup(
        keep_versions=arguments.get("keep"),
        older_than=arguments.get("older"),
        grace=timedelta(seconds=memory.grace),
    )
    return {
        "versions": report.versions_removed,
        "errors": sorted({row.error for row in report.datasets if row.error is not None}),
    }


def _do_optimize(graph: Graph, operation: Mapping[str, Any], arguments: Arguments, memory: Memory) -> dict[str, Any]:
    report = graph.optimize(operation["branch"], actor=operation["op"])
    return {"commit": None if report.commit is None else report.commit.commit_id}


def _do_indices(graph: Graph, operation: Mapping[str, Any], arguments: Arguments, memory: Memory) -> dict[str, Any]:
    graph.ensure_indices(operation["branch"], actor=operation["op"])
    return {}


def _do_maintain(graph: Graph, operation: Mapping[str, Any], arguments: Arguments, memory: Memory) -> dict[str, Any]:
    policy = MaintenancePolicy(small_fragments=3, deleted_share=0.05, retention=Retention(keep_versions=5))
    report = graph.maintain(policy, branch=operation["branch"], actor=operation["op"])
    return {"reasons": report.reasons}


def _do_query(graph: Graph, operation: Mapping[str, Any], arguments: Arguments, memory: Memory) -> dict[str, Any]:
    reading = READINGS[arguments["reading"]]
    result = graph.query(reading.text(arguments["names"]), "q", arguments["params"], **arguments["at"])
    return {"read": result.graph_commit_id, "answer": reading.seen(result.rows())}


def _do_diff(graph: Graph, operation: Mapping[str, Any], arguments: Arguments, memory: Memory) -> dict[str, Any]:
    found = graph.diff_commits(arguments["before"], arguments["after"])
    return {"changes": [[c.type_name, c.id, c.op.value] for c in found.changes]}


def _do_changes(graph: Graph, operation: Mapping[str, Any], arguments: Arguments, memory: Memory) -> dict[str, Any]:
    changes, token = [], None
    while True:
        page = graph.commit_changes(arguments["commit"], page_token=token, max_changes=arguments["page"])
        changes += _told(page.block)
        token = page.next_page_token
        if token is None:
            return {"changes": changes}


def _do_poll(graph: Graph, operation: Mapping[str, Any], arguments: Arguments, memory: Memory) -> dict[str, Any]:
    """The next part of a feed. Who follows no feed of this branch begins with a baseline."""
    branch = operation["branch"]
    if branch not in memory.streams:
        digest = _Digest()
        baseline = graph.capture_baseline(digest, branch=branch)
        memory.followed += 1
        stream = f"{operation['op'].rpartition('-')[0]}/{memory.followed}"
        memory.streams[branch] = (stream, baseline.resume_cursor)
        return {"stream": stream, "baseline": baseline.snapshot_commit_id, "content": digest.content()}
    stream, cursor = memory.streams.pop(branch)  # an error ends the stream
    blocks: list[dict[str, Any]] = []
    limits = {"max_changes": arguments["page"], "max_commits": arguments["commits"]}
    poll = graph.poll_changes(branch=branch, cursor=cursor, **limits)
    while True:
        for block in poll.blocks:
            if not blocks or blocks[-1]["commit"] != block.cause.graph_commit_id:
                blocks.append(
                    {"commit": block.cause.graph_commit_id, "parent": block.cause.parent_commit_id, "changes": []}
                )
            blocks[-1]["changes"] += _told(block)
        if poll.next_page_token is None:
            break
        poll = graph.poll_changes(branch=branch, page_token=poll.next_page_token, **limits)
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


def digest_of(lines: Any) -> str:
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
        errors.ChangeSchemaBoundaryError,
        errors.CommitHasNoParentError,
    ),
    "poll": (
        *_MISSING,
        errors.ChangeFeedGapError,
        errors.ChangeSchemaBoundaryError,
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
    if isinstance(error, errors.HistoricalVersionReclaimedError) and kind in ("query", "load", "mutate"):
        return False
    return isinstance(error, EXPECTED[kind])
