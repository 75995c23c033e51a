"""What `GraphApi` promises, held against a graph that is opened here, one behind a server, and one that is awaited."""

from __future__ import annotations

import datetime as dt
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import omnigraph
from omnigraph.api import wire
from omnigraph.api.branches import BranchCreated, BranchDeleted, Resolutions
from omnigraph.api.enums import Integers
from omnigraph.api.history import ChangeScope
from omnigraph.errors import (
    BadRequestError,
    BlobRangeError,
    BranchNotFoundError,
    ChangeCursorRejectedError,
    CommitHasNoParentError,
    CompileError,
    ConstraintError,
    DirectAccessError,
    IdempotencyKeyReusedError,
    KeyConflictError,
    MergeConflictsError,
    NotFoundError,
    OmniGraphError,
    PreconditionFailedError,
    ResourceLimitError,
)
from tests.client.conftest import WAYS
from tests.client.three_graphs import Api
from tests.server.sample import ADD, AGE, BY_AGE, DROP, EVERYBODY, PHOTO, SCHEMA, knows, person
from tests.support.receipts import replayed

ALL = """query all() {
  match { $p: Person }
  return { $p.name as name, $p.age as age, $p.born as born, $p.seen as seen, $p.score as score,
           $p.tags as tags, $p.mood as mood }
  order { name asc }
}"""
WIDER = SCHEMA.replace("email: String?", "email: String?  nick: String?")


def same(ways: dict[str, Api], call: Callable[[Api], Any]) -> Any:
    """What all three give for one call, as it travels."""
    answers = {way: wire.to_builtins(call(ways[way])) for way in WAYS}
    assert answers["remote"] == answers["embedded"]
    assert answers["async"] == answers["embedded"]
    return answers["embedded"]


def refusal(call: Callable[[], Any]) -> tuple[type, str, dict[str, Any]]:
    with pytest.raises(OmniGraphError) as caught:
        call()
    return type(caught.value), str(caught.value), caught.value.fields


# Reading


def test_rows_are_the_same_in_every_form(ways: dict[str, Api]) -> None:
    results = {way: graph.query(ALL) for way, graph in ways.items()}
    here = results["embedded"]
    for way, result in results.items():
        assert result.to_arrow().equals(here.to_arrow(), check_metadata=True), way
        assert result.rows() == here.rows()
        assert result.rows(Integers.JS_SAFE) == here.rows(Integers.JS_SAFE)
        assert list(result) == here.rows()  # type: ignore[call-overload]
        assert wire.encode(result.read_output()) == wire.encode(here.read_output())
        assert repr(result) == repr(here)
        assert (len(result), result.num_rows, result.columns) == (3, 3, here.columns)
        assert result.to_polars().equals(here.to_polars())
        assert result.to_pandas().equals(here.to_pandas())
        assert pl.DataFrame(result).equals(here.to_polars())
        assert (result.query_name, result.target, result.graph_commit_id) == (
            here.query_name,
            here.target,
            here.graph_commit_id,
        )


def test_streams_are_the_same(ways: dict[str, Api]) -> None:
    here = ways["embedded"].query(ALL)
    for graph in ways.values():
        stream = graph.stream(ALL)
        assert (stream.query_name, stream.columns, stream.graph_commit_id) == (
            "all",
            here.columns,
            here.graph_commit_id,
        )
        assert pa.Table.from_batches(stream).equals(here.to_arrow())
        assert list(graph.stream(ALL).rows()) == here.rows()
        assert graph.stream(ALL).reader().read_all().equals(here.to_arrow())
        assert repr(graph.stream(ALL)).endswith(" all(name: String, age: I32?, born: Date?, seen: DateTime?, "
                                                "score: F64?, tags: [String]?, mood: Vector(2)?)>")  # fmt: skip


def test_parameters_are_given_in_all_ways(g: Api) -> None:
    q = omnigraph.queries(f"{BY_AGE}\n{ADD}")
    expected = g.query(BY_AGE, "by_age", {"age": 36}).rows()
    assert len(expected) == 2
    assert g.query(BY_AGE, params={"age": 36}).rows() == expected
    assert g.query(BY_AGE, age=36).rows() == expected
    assert g.query(q.by_age, age=36).rows() == expected  # type: ignore[arg-type]
    with pytest.raises(BadRequestError, match="there is no parameter 'agee'; did you mean 'age'"):
        g.query(q.by_age, agee=36)  # type: ignore[arg-type]
    with pytest.raises(BadRequestError, match="'branch' is a parameter of the query and an option"):
        g.query("query q($branch: String) { match { $p: Person } return { $p.name } }", branch="x", other=1)


def test_the_largest_unsigned_integer_is_a_parameter(g: Api) -> None:
    text = 'query q($n: U64) { match { $p: Person { name: "Ada" } $n > 0 } return { $n as n } }'
    for largest in (2**64 - 1, str(2**64 - 1)):
        assert g.query(text, params={"n": largest}).rows() == [{"n": 2**64 - 1}]
    with pytest.raises(BadRequestError, match="param 'n': 18446744073709551616 exceeds U64"):
        g.query(text, params={"n": str(2**64)})


def test_the_past_is_read_by_commit_version_and_moment(ways: dict[str, Api]) -> None:
    first = ways["embedded"].commits(limit=1, before=3).commits[0]
    # The next commit was begun when this one was there, and ended later.
    moment = dt.datetime.fromtimestamp(ways["embedded"].commits(limit=1).commits[0].created_at / 1e6, dt.UTC)
    for point in ({"version": 2}, {"snapshot": first.id}, {"branch": "main", "version": 2}, {"at": moment}):
        same(ways, lambda g, point=point: g.query(EVERYBODY, **point).read_output())
        same(ways, lambda g, point=point: g.listing(**point))
        same(ways, lambda g, point=point: g.schema.show(**point))
        same(ways, lambda g, point=point: g.entity("Person", "Ada", **point))
        same(ways, lambda g, point=point: list(g.export(**point)))
        same(ways, lambda g, point=point: g.read_blob("node", "Person", "Ada", "photo", **point).description)
        same(ways, lambda g, point=point: g.explain(EVERYBODY, **point))
    assert same(ways, lambda g: g.resolve_snapshot(version=2)) == first.id
    assert same(ways, lambda g: g.resolve_snapshot(" main ", at=moment)) == first.id
    assert same(ways, lambda g: g.version_of(snapshot=first.id)) == 2
    assert same(ways, lambda g: g.version_of("main", at=moment)) == 2
    assert same(ways, lambda g: g.resolve_snapshot()) == same(ways, lambda g: g.commits(limit=1).commits[0].id)
    assert same(ways, lambda g: g.version_of()) == 3


def test_entities(ways: dict[str, Api]) -> None:
    assert same(ways, lambda g: g.entity("node:Person", "Ada"))["age"] == 36
    assert same(ways, lambda g: g.entity("Person", 'Bob, or "Rob"\nSmith')) is not None
    assert same(ways, lambda g: g.entity("Person", "nobody")) is None


def test_exports(ways: dict[str, Api]) -> None:
    lines = same(ways, lambda g: list(g.export()))
    assert len(lines) == 4
    assert same(ways, lambda g: list(g.export(epoch=True))) != lines
    assert same(ways, lambda g: list(g.export(types=["Knows"]))) == lines[:1]
    for graph in ways.values():
        out = io.BytesIO()
        assert graph.export_to(out) == 4
        assert out.getvalue().decode() == "".join(lines)


def test_blobs(ways: dict[str, Api]) -> None:
    told = same(ways, lambda g: g.read_blob("node", "Person", "Ada", "photo").description)
    assert (told["kind"], told["size"]) == ("managed", len(PHOTO))
    for graph in ways.values():
        blob = graph.read_blob("node", "Person", "Ada", "photo", branch="main")
        assert blob.read() == PHOTO
        assert (blob.read_range(10, 20), blob.read_range(0, 0)) == (PHOTO[10:20], b"")
        assert refusal(lambda blob=blob: blob.read_range(5, 2000)) == (
            BlobRangeError,
            "the range 5..2000 does not lie within a blob of 1280 bytes",
            {"start": 5, "end": 2000, "length": 1280},
        )
        assert graph.read_blob("node", "Person", "Cy", "photo").read() == b""


def test_listings(ways: dict[str, Api]) -> None:
    same(ways, lambda g: g.listing())
    same(ways, lambda g: g.schema.show())
    same(ways, lambda g: g.list_branches())
    same(ways, lambda g: g.commits())
    assert len(same(ways, lambda g: g.commits(limit=2))["commits"]) == 2
    same(ways, lambda g: g.commits(limit=1, before=3))
    same(ways, lambda g: g.commit_history(limit=2))
    head = ways["embedded"].resolve_snapshot()
    same(ways, lambda g: g.describe_commit(head))
    same(ways, lambda g: g.explain(EVERYBODY))
    same(ways, lambda g: g.changes.page(head))
    same(ways, lambda g: list(g.changes.of(head, scope=ChangeScope.of(kinds=["edge"]))))
    same(ways, lambda g: g.schema.plan(WIDER))
    same(ways, lambda g: g.schema.plan(SCHEMA.replace("score: F64?", "score: String?"), allow_data_loss=True))


# Writing


def test_a_mutation_is_one_commit(g: Api, branch: str) -> None:
    receipt = g.mutate(ADD, name="add", params={"name": "Zoe"}, branch=branch)
    assert (receipt.branch, receipt.query_name, receipt.affected_nodes) == (branch, "add", 1)
    assert receipt.commit is not None
    assert g.resolve_snapshot(branch) == receipt.commit.id
    assert "Zoe" in [row["name"] for row in g.query(EVERYBODY, branch=branch).rows()]
    key = f"key of {branch}"
    first = g.mutate(AGE, params={"name": "Ada", "age": 7}, branch=branch, idempotency_key=key)
    again = g.mutate(AGE, params={"name": "Ada", "age": 7}, branch=branch, idempotency_key=key)
    assert (first.replayed, again.replayed, again.commit) == (False, True, first.commit)
    nothing = g.mutate(DROP, params={"name": "nobody"}, branch=branch)
    assert (nothing.commit, nothing.affected_nodes) == (None, 0)
    assert first.commit is not None
    done = g.mutate(AGE, params={"name": "Ada", "age": 8}, branch=branch, if_commit=first.commit.id)
    assert done.commit is not None
    assert refusal(lambda: g.mutate(DROP, params={"name": "Ada"}, branch=branch, if_commit=receipt.commit.id)) == (
        PreconditionFailedError,
        f"branch '{branch}' is at commit {done.commit.id}, not at {receipt.commit.id} as expected; nothing was written",
        {"branch": branch, "expected": receipt.commit.id, "actual": done.commit.id},
    )


def test_loads(g: Api, branch: str, tmp_path: Path) -> None:
    receipt = g.load(person("Dan") + "\n" + knows("Dan", "Ada"), mode="append", branch=branch)
    assert (receipt.nodes_loaded, receipt.edges_loaded, receipt.total_entities) == ({"Person": 1}, {"Knows": 1}, 2)
    assert (receipt.uri, receipt.branch_created, receipt.replayed) == (None, False, False)
    again = g.load(person("Eve").encode(), mode="merge", branch=branch, idempotency_key=f"load {branch}")
    assert g.load(person("Eve"), mode="merge", branch=branch, idempotency_key=f"load {branch}").commit == again.commit
    pieces = (piece for piece in (person("Fay")[:9], person("Fay")[9:].encode(), b"\n", person("Gus")))
    assert g.load(pieces, mode="append", branch=branch).total_entities == 2
    file = tmp_path / "records.jsonl"
    file.write_text(person("Hal"))
    assert g.load(file, mode="append", branch=branch).total_entities == 1  # type: ignore[arg-type]
    ages = [{"name": "Dan", "age": 50}, {"name": "Eve"}]
    updated = g.load(ages, type="Person", mode="update", branch=branch)
    assert (updated.inserted, updated.updated, updated.unchanged) == (0, 1, 1)
    for same in (pa.table({"name": ["Dan"], "age": [50]}), b"name,age\nDan,50\n"):
        data = io.BytesIO(same) if isinstance(same, bytes) else same
        more = {"format": "csv"} if isinstance(same, bytes) else {}
        kept = g.load(data, type="Person", mode="update", branch=branch, **more)
        assert (kept.commit, kept.unchanged) == (None, 1)
    merged = g.load([{"name": "Dan"}], type="Person", mode="merge", branch=branch)
    assert merged.nulled == ("Person.age",)
    with pytest.raises(ConstraintError, match="no Person with the id 'Nobody'"):
        g.load('{"type": "Person", "data": {"name": "Nobody"}}', mode="update", branch=branch)
    with pytest.raises(BadRequestError, match="strict records only"):
        g.load_lenient(person("Dan"), mode="update", branch=branch)
    created = g.load(person("Ida"), mode="append", branch=f"{branch}-2", base=branch)
    assert (created.branch_created, created.base_branch) == (True, branch)
    assert g.load("", mode="merge", branch=branch).commit is None
    lenient = g.load_lenient(person("Jim", unknown=1) + " " + person("Kim", age="x"), mode="merge", branch=branch)
    assert (lenient.total_entities, lenient.uri) == (2, None)
    assert (lenient.values_nulled, lenient.values_dropped) == (1, 1)
    assert (receipt.values_nulled, receipt.values_dropped) == (None, None)


def test_branches_and_merges(g: Api, branch: str, way: str) -> None:
    side = f"{branch}-side"
    made = g.create_branch(side, source=branch)
    assert (made.source, made.name, made.actor_id, made.uri) == (branch, side, None, g.uri)
    assert side in g.list_branches()
    g.mutate(ADD, params={"name": "Lou"}, branch=side)
    found = g.diff(branch, side)
    assert [(change.op, change.id) for change in found.changes] == [("insert", "Lou")]
    assert g.diff(side, branch, ChangeScope.of(ops=["insert"])).changes == ()
    preview = g.preview_merge(side, branch)
    assert (preview.outcome, [change.id for change in preview.changes]) == ("fast_forward", ["Lou"])
    merged = g.merge(side, branch, delete_branch=True, message="done")
    assert (merged.outcome, merged.branch_deleted) == ("fast_forward", True)
    history = g.commit_history(branch, limit=1).commits[0]
    assert (history.kind, history.message) == ("merge", "done")
    assert side not in g.list_branches()
    gone = g.create_branch(side)
    assert g.delete_branch(side).name == gone.name
    g.create_branch(side, source=branch)
    g.mutate(AGE, params={"name": "Ada", "age": 1}, branch=side)
    g.mutate(AGE, params={"name": "Ada", "age": 2}, branch=branch)
    kind, _, fields = refusal(lambda: g.merge(side, branch))
    assert kind is MergeConflictsError
    assert [(c.kind, c.type_key, c.entity_id) for c in fields["conflicts"]] == [
        ("divergent_update", "node:Person", "Ada")
    ]
    assert len(g.preview_merge(side, branch).conflicts) == 1
    theirs = Resolutions.of(kinds={"divergent_update": "theirs"})
    assert g.preview_merge(side, branch, resolutions=theirs).conflicts == ()
    assert g.merge(side, branch, resolutions=theirs, idempotency_key=f"merge {branch}").outcome == "merged"
    assert g.merge(side, branch, resolutions=theirs, idempotency_key=f"merge {branch}").replayed
    assert g.entity("Person", "Ada", branch=branch)["age"] == 1  # type: ignore[index]


def test_schemas_of_branches(g: Api, branch: str) -> None:
    applied = g.schema.apply(WIDER, branch=branch)
    assert (applied.applied, applied.uri, [step.kind for step in applied.steps]) == (True, g.uri, ["add_property"])
    assert g.schema.show(branch) == WIDER
    assert g.schema.show() == SCHEMA
    assert not g.schema.apply(WIDER, branch=branch).applied
    assert g.schema.plan(WIDER, branch=branch).steps == ()


def test_branches_and_schemas_under_a_key(g: Api, branch: str, served_graph: omnigraph.Graph) -> None:
    side, made, ended, changed = f"{branch}-side", f"made {branch}", f"ended {branch}", f"changed {branch}"
    created = g.create_branch(side, source=branch, idempotency_key=made)
    assert (created, created.replayed) == (BranchCreated(g.uri, branch, side, None), False)
    assert g.create_branch(side, source=branch, idempotency_key=made) == replayed(created)
    applied = g.schema.apply(WIDER, branch=side, idempotency_key=changed)
    again = g.schema.apply(WIDER, branch=side, idempotency_key=changed)
    assert wire.to_builtins(again) == {**wire.to_builtins(applied), "replayed": True}
    assert g.version_of(side) == applied.graph_manifest_version
    kind, _, fields = refusal(lambda: g.schema.apply(SCHEMA, branch=side, idempotency_key=changed))
    assert (kind, fields) == (
        IdempotencyKeyReusedError,
        {"key": changed, "commit_id": served_graph.resolve_snapshot(side)},
    )
    for other in (
        lambda: g.create_branch(side, idempotency_key=made),
        lambda: g.delete_branch(side, idempotency_key=made),
    ):
        assert refusal(other) == (
            IdempotencyKeyReusedError,
            f"idempotency key '{made}' was used for another request; nothing was written, choose another key",
            {"key": made, "commit_id": None},
        )
    deleted = g.delete_branch(side, idempotency_key=ended)
    assert (deleted, deleted.replayed) == (BranchDeleted(g.uri, side, None), False)
    assert g.delete_branch(side, idempotency_key=ended) == replayed(deleted)
    g.create_branch(side, source=branch)
    assert g.delete_branch(side, idempotency_key=ended).replayed, "and the new branch of that name stays"
    assert side in g.list_branches()


# Changes


def test_feeds_and_baselines(ways: dict[str, Api], branch: str) -> None:
    here = ways["embedded"]
    cursor = here.changes.poll(branch=branch).cursor
    here.mutate(ADD, params={"name": "Mia"}, branch=branch)
    here.mutate(AGE, params={"name": "Mia", "age": 5}, branch=branch)
    polled = same(ways, lambda g: g.changes.poll(branch=branch, cursor=cursor))
    assert [block["changes"][0]["op"] for block in polled["blocks"]] == ["insert", "update"]
    assert same(ways, lambda g: g.changes.poll(branch=branch, start="beginning", max_commits=1))["caught_up"] is False
    page = same(ways, lambda g: g.changes.poll(branch=branch, start="beginning", max_changes=2))
    same(ways, lambda g: g.changes.poll(branch=branch, page_token=page["next_page_token"], max_changes=2))
    scope = ChangeScope.of(kinds=["node"], types=["Person"], ops=["update"])
    same(ways, lambda g: g.changes.poll(branch=branch, start="beginning", scope=scope))
    baselines = []
    for graph in ways.values():
        out = io.BytesIO()
        baseline = graph.changes.baseline(out, branch=branch, scope=ChangeScope.of(types=["Person"]))
        baselines.append((out.getvalue(), baseline))
        assert [json.loads(line)["data"]["name"] for line in out.getvalue().splitlines()][-1] == "Mia"
    assert baselines == [baselines[0]] * 3


def test_a_feed_over_a_schema_change(ways: dict[str, Api], branch: str) -> None:
    here = ways["embedded"]
    cursor = here.changes.poll(branch=branch).cursor
    here.schema.apply(WIDER, branch=branch)
    commit = here.resolve_snapshot(branch)
    polled = same(ways, lambda g: g.changes.poll(branch=branch, cursor=cursor))
    page = same(ways, lambda g: g.changes.page(commit))
    (change,) = same(ways, lambda g: list(g.changes.of(commit)))
    assert polled["blocks"] == [{name: page[name] for name in ("cause", "changes", "schema_changes")}]
    assert page["schema_changes"] == [change]
    assert (change["op"], change["change"], change["steps"][0]["property_name"]) == ("schema_change", "changed", "nick")
    records = {way: next(iter(ways[way].changes.of(commit))) for way in WAYS}
    assert records["remote"] == records["async"] == records["embedded"]


# Refusals: the same class, the same words, the same fields

PERSN = ChangeScope.of(types=["Persn"])
REFUSED: dict[str, tuple[Callable[[Api], Any], type[OmniGraphError]]] = {
    "unknown branch": (lambda g: g.query(EVERYBODY, branch="none"), BranchNotFoundError),
    "unknown branch of a stream": (lambda g: g.stream(EVERYBODY, branch="none"), BranchNotFoundError),
    "unknown branch of an export": (lambda g: list(g.export(branch="none")), BranchNotFoundError),
    "unknown commit": (lambda g: g.query(EVERYBODY, snapshot="01M7GW98VK00000019F8ZGQ2TW"), NotFoundError),
    "unknown commit of an entity": (
        lambda g: g.entity("Person", "Ada", snapshot="01M7GW98VK00000019F8ZGQ2TW"),
        NotFoundError,
    ),
    "unknown type of an entity": (lambda g: g.entity("Persn", "Ada"), BadRequestError),
    "unknown node type of an entity": (lambda g: g.entity("node:Persn", "Ada"), BadRequestError),
    "wrong kind of an entity": (lambda g: g.entity("edge:Person", "Ada"), BadRequestError),
    "unknown type of a count": (lambda g: g.count("Persn"), BadRequestError),
    "unknown type of rows": (lambda g: g.load([{"name": "x"}], type="Persn", mode="append"), BadRequestError),
    "a row": (lambda g: g.load([{"name": "x"}, {"age": "old"}], type="Person", mode="append"), ConstraintError),
    "an unknown column": (lambda g: g.load(pa.table({"nam": ["x"]}), type="Person", mode="append"), BadRequestError),
    "one row": (lambda g: g.load({"name": "x"}, type="Person", mode="append"), BadRequestError),
    "a frame without a type": (lambda g: g.load(pa.table({"name": ["x"]}), mode="append"), BadRequestError),
    "a format of no file": (lambda g: g.load([], type="Person", format="csv", mode="append"), BadRequestError),
    "a dialect without a type": (lambda g: g.load("{}", csv=omnigraph.CsvDialect(), mode="append"), BadRequestError),
    "no file": (lambda g: g.load("/none/people.csv", type="Person", mode="append"), NotFoundError),
    "no such format": (lambda g: g.load(__file__, type="Person", mode="append"), BadRequestError),
    "branch of no name": (lambda g: g.branch("none"), BranchNotFoundError),
    "branch of a bad name": (lambda g: g.branch("a//b", create=True), BadRequestError),
    "snapshot of no branch": (lambda g: g.snapshot("none"), BranchNotFoundError),
    "two points of a snapshot": (lambda g: g.at(2, snapshot="01M7GW98VK00000019F8ZGQ2TW"), BadRequestError),
    "two points": (lambda g: g.query(EVERYBODY, version=2, at=dt.datetime.now(dt.UTC)), BadRequestError),
    "no query": (lambda g: g.query("query q( { }"), CompileError),
    "unknown property": (lambda g: g.query("query q() { match { $p: Person } return { $p.x } }"), CompileError),
    "no plan": (lambda g: g.explain("query q() { match { $p: Persn } return { $p.x } }"), CompileError),
    "a mutation that is read": (lambda g: g.query(ADD, params={"name": "x"}), BadRequestError),
    "a read that is mutated": (lambda g: g.mutate(EVERYBODY), BadRequestError),
    "bad parameter": (lambda g: g.query(BY_AGE, params={"age": "old"}), BadRequestError),
    "bad params": (lambda g: g.query(BY_AGE, params=[1]), BadRequestError),  # type: ignore[arg-type]
    "unknown export type": (lambda g: list(g.export(types=["Persn"])), BadRequestError),
    "unknown type of a diff": (lambda g: g.diff("main", "main", PERSN), BadRequestError),
    "unknown type of a commit": (lambda g: g.changes.page(g.commits().commits[0].id, scope=PERSN), BadRequestError),
    "unknown type of a feed": (lambda g: g.changes.poll(scope=PERSN), BadRequestError),
    "unknown type of a feed from its beginning": (
        lambda g: g.changes.poll(start="beginning", scope=PERSN),
        BadRequestError,
    ),
    "unknown type of a baseline": (lambda g: g.changes.baseline(io.BytesIO(), scope=PERSN), BadRequestError),
    "constraint": (lambda g: g.load(person("Ned", age=200), mode="append"), ConstraintError),
    "record": (lambda g: g.load('{"type":"Person"', mode="append"), ConstraintError),
    "no record": (lambda g: g.load("people.jsonl", mode="append"), BadRequestError),
    "dictionaries": (lambda g: g.load([{"name": "x"}], mode="append"), BadRequestError),  # type: ignore[list-item]
    "unknown mode": (lambda g: g.load(person("x"), mode="replace"), BadRequestError),
    "existing key": (lambda g: g.load(person("Ada"), mode="append"), KeyConflictError),
    "load to nowhere": (lambda g: g.load(person("x"), mode="append", branch="none"), BranchNotFoundError),
    "existing branch": (lambda g: g.create_branch("main"), OmniGraphError),
    "bad branch name": (lambda g: g.create_branch("a//b"), BadRequestError),
    "branch of nothing": (lambda g: g.create_branch("x", source="none"), BranchNotFoundError),
    "delete main": (lambda g: g.delete_branch("main"), BadRequestError),
    "delete nothing": (lambda g: g.delete_branch("none"), BranchNotFoundError),
    "merge with itself": (lambda g: g.merge("main", "main"), BadRequestError),
    "merge of nothing": (lambda g: g.merge("none"), BranchNotFoundError),
    "preview of nothing": (lambda g: g.preview_merge("none"), BranchNotFoundError),
    "diff of nothing": (lambda g: g.diff("none", "main"), NotFoundError),
    "commit of nothing": (lambda g: g.describe_commit("01M7GW98VK00000019F8ZGQ2TW"), NotFoundError),
    "changes of nothing": (lambda g: g.changes.page("01M7GW98VK00000019F8ZGQ2TW"), NotFoundError),
    "changes of the first": (
        lambda g: g.changes.page(g.commits(before=2).commits[0].id),
        CommitHasNoParentError,
    ),
    "a foreign cursor": (lambda g: g.changes.poll(cursor="bm90aGluZw"), ChangeCursorRejectedError),
    "too many changes": (lambda g: g.changes.poll(max_changes=9_000), ResourceLimitError),
    "too many commits": (lambda g: g.changes.poll(max_commits=9_000), ResourceLimitError),
    "two starts": (lambda g: g.changes.poll(start="now", cursor="x"), BadRequestError),
    "baseline of nothing": (lambda g: g.changes.baseline(io.BytesIO(), branch="none"), BranchNotFoundError),
    "schema that does not parse": (lambda g: g.schema.plan("node {"), CompileError),
    "schema that does not fit": (lambda g: g.schema.apply(SCHEMA.replace("F64?", "Date?")), OmniGraphError),
    "blob of no kind": (lambda g: g.read_blob("vertex", "Person", "Ada", "photo"), BadRequestError),
    "blob of no type": (lambda g: g.read_blob("node", "Persn", "Ada", "photo"), NotFoundError),
    "blob of nobody": (lambda g: g.read_blob("node", "Person", "nobody", "photo"), NotFoundError),
    "null blob": (lambda g: g.read_blob("node", "Person", 'Bob, or "Rob"\nSmith', "photo"), NotFoundError),
    "no blob": (lambda g: g.read_blob("node", "Person", "Ada", "age"), BadRequestError),
    "blob of no branch": (lambda g: g.read_blob("node", "Person", "Ada", "photo", branch="none"), BranchNotFoundError),
}  # fmt: skip


OTHER_REMEDIES = {"load to nowhere"}
"""Branches of loads have a hint of their own over HTTP."""


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_are_the_same(ways: dict[str, Api], case: str) -> None:
    call, kind = REFUSED[case]
    expected = refusal(lambda: call(ways["embedded"]))
    assert issubclass(expected[0], kind)
    for way in ("remote", "async"):
        kind, words, fields = refusal(lambda way=way: call(ways[way]))
        assert (kind, fields) == (expected[0], expected[2])
        assert words == expected[1] or case in OTHER_REMEDIES


@pytest.mark.parametrize("way", ["remote", "async"])
@pytest.mark.parametrize("name", ["optimize", "cleanup", "repair", "verify", "maintain", "ensure_indices"])
def test_storage_is_not_maintained_through_a_server(g: Api, name: str) -> None:
    with pytest.raises(DirectAccessError, match=f"{name} needs direct storage access"):
        getattr(g.maintenance, name)(**({"keep_versions": 1} if name == "cleanup" else {}))
    with pytest.raises(DirectAccessError, match="export_files needs direct storage access"):
        g.export_files("x")


@pytest.mark.parametrize("way", ["remote", "async"])
def test_a_served_write_has_the_actor_of_its_token(g: Api) -> None:
    with pytest.raises(BadRequestError, match="actor 'ada' is not allowed on a served write"):
        g.mutate(ADD, params={"name": "x"}, actor="ada")


# Stored queries


def test_stored_queries(g: Api, branch: str) -> None:
    assert [query.name for query in g.stored_queries().queries] == ["add", "everybody"]
    rows = g.invoke("everybody", branch=branch)
    assert not isinstance(rows, omnigraph.MutationReceipt)
    assert rows.read_output() == g.query(EVERYBODY, branch=branch).read_output()
    added = g.invoke("add", {"name": "Nan"}, branch=branch, idempotency_key=f"add {branch}")
    assert isinstance(added, omnigraph.MutationReceipt)
    assert added.commit is not None
    assert g.invoke("add", {"name": "Nan"}, branch=branch, idempotency_key=f"add {branch}") == (
        omnigraph.MutationReceipt(branch, "add", 1, 0, None, added.commit, True)
    )
    g.invoke("add", {"name": "Ola"}, branch=branch, if_commit=added.commit.id)
    with pytest.raises(PreconditionFailedError):
        g.invoke("add", {"name": "Pia"}, branch=branch, if_commit=added.commit.id)
    with pytest.raises(BadRequestError, match="'add' is a mutation — use omnigraph mutate add"):
        g.invoke("add", {"name": "Pia"}, expect_mutation=False)
    with pytest.raises(NotFoundError, match="stored query not found"):
        g.invoke("none")
