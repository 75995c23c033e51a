"""What a worker does next: operations drawn at random from what it sees of the graph.

An operation is plain JSON, complete enough to be carried out, and to be judged by somebody who was not there. Keys come
from a small set, so that writers meet; names of branches are such that some lie beneath others.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from omnigraph import Graph, errors
from tests.support.log_entries import list_commits
from tests.torture.readings import READINGS, WORDS
from tests.torture.shapes import CHANGING, ROLES, Document, document_of, role_of

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
        page = list_commits(graph, branch, limit=chance.choice((5, 40)))
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
