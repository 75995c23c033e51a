"""What `--json` prints, for every command that has it: names, order and types of members, byte for byte."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.engine.write.external_blobs import AllowedBase, ExternalBlobPolicy, Scope
from tests.cli.conftest import Cli, Outcome
from tests.golden import assert_golden

SCHEMA = """\
node Person { name: String @key  age: I32?  height: F64?  level: enum(junior, senior)?  taste: Vector(2)? @index  born: DateTime? }
node City { name: String @key @index  tags: [String]? }
node Doc { name: String @key  body: Blob? }
edge LivesIn: Person -> City { since: Date? }
edge Knows: Person -> Person
"""  # noqa: E501

RECORDS = """\
{"type":"Person","data":{"name":"Ada","age":36,"height":1.5,"level":"senior","taste":[0.5,1],"born":"2001-02-03T04:05:06Z"}}
{"type":"Person","data":{"name":"Bö\\"b"}}
{"type":"City","data":{"name":"Oslo","tags":["north","sea"]}}
{"edge":"LivesIn","from":"Ada","to":"Oslo","data":{"since":"2001-02-03"}}
{"edge":"Knows","from":"Ada","to":"Bö\\"b"}
"""

QUERIES = """\
query people() {
    match { $p: Person }
    return { $p.name, $p.age, $p.height as tall, $p.level, $p.taste, $p.born }
    order { $p.name }
}
query ages() { match { $p: Person } return { count($p) as people, avg($p.age) as age } }
query none() { match { $p: Person { name: "Nobody" } } return { $p.name } }
query add($name: String, $age: I32?) { insert Person { name: $name, age: $age } }
query grow($name: String, $age: I32) { update Person set { age: $age } where name = $name }
query remove($name: String) { delete Person where name = $name }
query fixed() { insert City { name: "Rome" } }
"""

BROKEN_QUERIES = """\
query good($n: String) { match { $p: Person { name: $n } $p livesIn $c } return { $p.name, $c.tags, $p } }
query bad() { match { $p: Persn } return { $p.name } }
query write($n: String) { update Person set { level: "junior" } where name = $n }
"""

CHANGED = """\
interface Named { label: String? }
node Human @rename_from("Person") @description("people") {
    name: String @key  years: I32? @rename_from("age")  height: F64?  level: enum(junior, middle, senior)?
    taste: Vector(2)? @index  born: DateTime?  nick: [String]?  mood: enum(good, bad)?  face: Vector(3)?
}
node City { name: String @key @index  country: String? @index }
node Planet { name: String @key }
edge LivesIn: Human -> City { since: Date? @description("the day") }
edge Knows: Human -> Human
"""


@pytest.fixture(scope="session")
def _golden_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("golden") / "g.omni"
    with Graph.init(place, SCHEMA, actor="founder") as graph:
        graph.load(RECORDS, mode="append", actor="setup")
    return place


@pytest.fixture
def graph(cli: Cli, _golden_template: Path) -> str:
    shutil.copytree(_golden_template, "g.omni")
    for name, text in (("s.pg", SCHEMA), ("q.gq", QUERIES), ("b.gq", BROKEN_QUERIES), ("new.pg", CHANGED)):
        Path(name).write_text(text, encoding="utf-8")
    return "g.omni"


Told = Callable[..., Outcome]


@pytest.fixture
def told(cli: Cli) -> Told:
    """Runs a command and compares its stdout with the golden text of this name."""

    def call(name: str, *arguments: str, code: int = 0) -> Outcome:
        outcome = cli(*arguments)
        assert outcome.code == code, outcome.err
        assert_golden(f"json/{name}", outcome.out.replace(str(Path.cwd()), "WORK"))
        return outcome

    return call


def mutate(name: str, params: dict[str, object], *more: str) -> list[str]:
    return ["mutate", name, "--query", "q.gq", "--store", "g.omni", "--params", json.dumps(params), "--json", *more]


def query(name: str, *more: str) -> list[str]:
    return ["query", name, "--query", "q.gq", "--store", "g.omni", *more]


def test_queries(told: Told, graph: str, cli: Cli) -> None:
    for format_ in ("json", "jsonl", "csv", "kv", "table"):
        told(
            f"query-{format_}.json" if format_ == "json" else f"query-{format_}.txt",
            *query("people"),
            "--format",
            format_,
        )
    told("query.json", *query("people"), "--json")
    told("query-aggregates.json", *query("ages"), "--json")
    told("query-no-rows.json", *query("none"), "--json")
    told("query-no-rows-jsonl.txt", *query("none"), "--format", "jsonl")
    head = cli("commit", "list", graph, "--json").json["commits"][0]["graph_commit_id"]
    told("query-snapshot.json", *query("ages"), "--json", "--snapshot", head)
    told("query-at-version.json", *query("ages"), "--json", "--at-version", "1")
    told("query-explain.txt", *query("people"), "--explain")


def test_mutations(told: Told, graph: str) -> None:
    told("mutate.json", *mutate("add", {"name": "Cy", "age": 5}, "--as", "me"))
    told("mutate-nothing.json", *mutate("remove", {"name": "Nobody"}))
    told("mutate-cascade.json", *mutate("remove", {"name": "Ada"}))
    old = "01M7JJ02P100000014Z52RM2ST"
    told("mutate-lost-race.json", *mutate("add", {"name": "Di"}, "--if-commit", old), code=4)


def test_loads(told: Told, graph: str) -> None:
    Path("more.jsonl").write_text('{"type":"City","data":{"name":"Rome"}}\n')
    load = ["--data", "more.jsonl", "--json", "--quiet"]
    told("load.json", "load", graph, *load, "--mode", "merge")
    told("load-new-branch.json", "load", graph, *load, "--mode", "append", "--branch", "b", "--from", "main", code=1)
    Path("more.jsonl").write_text('{"type":"City","data":{"name":"Oslo"}}\n')
    told("load-from.json", "load", graph, *load, "--mode", "merge", "--branch", "b", "--from", "main", "--as", "me")
    Path("more.jsonl").write_text('{"type":"City","data":{"name":"Bern"}}\n')
    told("ingest.json", "ingest", graph, *load, "--branch", "b")


def test_branches(told: Told, graph: str, cli: Cli) -> None:
    uri = ["--uri", graph, "--json", "--quiet"]
    told("branch-create.json", "branch", "create", "review", *uri, "--as", "me")
    cli("branch", "create", "zoo", *uri)
    cli("branch", "create", "alpha/beta", *uri)
    told("branch-list.json", "branch", "list", "--uri", graph, "--json")
    told("branch-list.txt", "branch", "list", "--uri", graph)
    told("branch-delete.json", "branch", "delete", "zoo", *uri)
    told("merge-up-to-date.json", "branch", "merge", "review", *uri)
    cli(*mutate("add", {"name": "Cy", "age": 5}, "--branch", "review"))
    told("merge-preview-fast-forward.json", "branch", "merge", "review", *uri, "--preview")
    told("merge-fast-forward.json", "branch", "merge", "review", *uri, "--as", "me")
    cli(*mutate("grow", {"name": "Ada", "age": 1}, "--branch", "review"))
    cli(*mutate("remove", {"name": "Cy"}, "--branch", "review"))
    cli(*mutate("grow", {"name": "Ada", "age": 2}))
    told("merge-preview.json", "branch", "merge", "review", *uri, "--preview")
    told("merge-conflicts.json", "branch", "merge", "review", *uri, code=1)
    told("merge-delete-branch.json", "branch", "merge", "review", *uri, "--ours", "all", "--delete-branch")
    cli("branch", "create", "alpha", "--uri", graph)
    cli("branch", "create", "kept", *uri)
    cli("branch", "create", "child", *uri, "--from", "kept")
    told("merge-delete-refused.json", "branch", "merge", "kept", *uri, "--delete-branch")


def test_history(told: Told, graph: str, cli: Cli) -> None:
    cli("branch", "create", "review", "--uri", graph)
    cli(*mutate("grow", {"name": "Ada", "age": 37}, "--branch", "review", "--as", "me"))
    cli(*mutate("add", {"name": "Cy", "age": 5}, "--branch", "review"))
    cli(*mutate("fixed", {}))
    cli("branch", "merge", "review", "--uri", graph)
    cli(*mutate("remove", {"name": "Ada"}))
    commits = cli("commit", "list", graph, "--json").json["commits"]
    told("commit-list.json", "commit", "list", graph, "--json")
    told("commit-list-branch.json", "commit", "list", graph, "--json", "--branch", "review", "--limit", "2")
    uri = ["--uri", graph, "--json"]
    for position, what in ((0, "delete"), (1, "merge"), (-1, "first")):
        told(f"commit-show-{what}.json", "commit", "show", commits[position]["graph_commit_id"], *uri)
    told("commit-show.txt", "commit", "show", commits[1]["graph_commit_id"], "--uri", graph)
    told("commit-changes.json", "commit", "changes", commits[0]["graph_commit_id"], *uri)
    first = told("commit-changes-page.json", "commit", "changes", commits[-2]["graph_commit_id"], *uri, "--limit", "2")
    assert len(first.json["changes"]) == 5
    told("commit-changes-filtered.json", "commit", "changes", commits[1]["graph_commit_id"], *uri, "--op", "insert")
    told("commit-changes-first.json", "commit", "changes", commits[-1]["graph_commit_id"], *uri, code=1)
    told("changes-poll.json", "changes", "poll", *uri, "--start", "beginning", "--limit", "3")
    told("changes-poll-now.json", "changes", "poll", *uri)
    told("changes-poll.txt", "changes", "poll", "--uri", graph, "--start", f"after:{commits[1]['graph_commit_id']}")
    told("changes-baseline.json", "changes", "baseline", *uri, "--out", "base.jsonl")
    told("diff.json", "diff", "main@1", "main", *uri)
    told("diff-back.json", "diff", "main", "review", *uri)
    told("diff-filtered.json", "diff", "main@2", "main", *uri, "--kind", "node", "--op", "update")


def test_snapshots_and_schemas(told: Told, graph: str) -> None:
    told("snapshot.json", "snapshot", graph, "--json")
    told("snapshot-at-version.json", "snapshot", graph, "--json", "--at-version", "1")
    told("snapshot.txt", "snapshot", graph)
    told("schema-show.json", "schema", "show", graph, "--json")
    told("schema-plan.json", "schema", "plan", graph, "--schema", "new.pg", "--json")
    told("schema-plan-hard.json", "schema", "plan", graph, "--schema", "new.pg", "--json", "--allow-data-loss")
    told("schema-plan.txt", "schema", "plan", graph, "--schema", "new.pg")
    told("schema-plan-nothing.json", "schema", "plan", graph, "--schema", "s.pg", "--json")
    Path("blocked.pg").write_text(SCHEMA.replace("age: I32?", 'age: String? @custom("x", note = "y")  must: Bool'))
    told("schema-plan-blocked.json", "schema", "plan", graph, "--schema", "blocked.pg", "--json")
    told("schema-apply-blocked.json", "schema", "apply", graph, "--schema", "blocked.pg", "--json", code=1)
    told("schema-apply.json", "schema", "apply", graph, "--schema", "new.pg", "--json")
    told("schema-apply-again.json", "schema", "apply", graph, "--schema", "new.pg", "--json")
    told("snapshot-renamed.json", "snapshot", graph, "--json")


def test_sources(told: Told, graph: str) -> None:
    told("lint.json", "lint", graph, "--query", "q.gq", "--pedantic", "--json")
    told("lint-broken.json", "lint", "--schema", "s.pg", "--query", "b.gq", "--json", code=1)
    Path("x.gq").write_text("query {")
    told("lint-unparsable.json", "lint", "--schema", "s.pg", "--query", "x.gq", "--json", code=1)
    Path("x.pg").write_text("node {")
    told("fmt.json", "fmt", "q.gq", "x.pg", "s.pg", "--check", "--json", code=1)


def test_upkeep(told: Told, graph: str, cli: Cli) -> None:
    told("index-status-pending.json", "index", "status", graph, "--json")
    told("optimize.json", "optimize", graph, "--json")
    told("optimize-again.json", "optimize", graph, "--json")
    told("index-status.json", "index", "status", graph, "--json")
    told("index-status.txt", "index", "status", graph)
    told("repair.json", "repair", graph, "--json")
    told("cleanup-dry-run.json", "cleanup", graph, "--keep", "1", "--dry-run", "--json")
    told("cleanup.json", "cleanup", graph, "--keep", "1", "--older-than", "0s", "--confirm", "--json")
    table = cli("snapshot", graph, "--json").json["datasets"][-1]["dataset_path"]
    manifest = max((Path(graph) / table / "_versions").glob("*.manifest"), key=lambda path: path.stat().st_mtime)
    manifest.write_bytes(manifest.read_bytes()[: manifest.stat().st_size // 2])
    told("repair-damaged.json", "repair", graph, "--json", code=1)


def test_blobs_and_exports(told: Told, graph: str, tmp_path: Path) -> None:
    outside = Path("outside")
    outside.mkdir()
    (outside / "x.bin").write_bytes(b"elsewhere")
    cells = {
        "full": f"base64:{base64.b64encode(b'abc').decode()}",
        "empty": "base64:",
        "outside": (outside.resolve() / "x.bin").as_uri(),
    }
    lines = [{"type": "Doc", "data": {"name": name, "body": body}} for name, body in cells.items()]
    policy = ExternalBlobPolicy.allow(AllowedBase(outside.resolve().as_uri(), Scope.EMBEDDED_ONLY))
    with Graph.open(graph) as opened:
        opened.with_external_blobs(policy).load("\n".join(json.dumps(line) for line in lines), mode="merge")
        head = opened.resolve_snapshot()
    cell = ["blob", "stat", "node", "Doc"]
    told("blob-stat.json", *cell, "full", "body", "--store", graph, "--json")
    told("blob-stat-snapshot.json", *cell, "empty", "body", "--store", graph, "--json", "--snapshot", head)
    told("blob-stat.txt", *cell, "full", "body", "--store", graph, "--branch", "main")
    told("blob-stat-unknown.json", *cell, "nobody", "body", "--store", graph, "--json", code=1)
    told("export.txt", "export", graph, "--type", "Person", "--type", "LivesIn", "--type", "City")
    told("export-files.txt", "export", graph, "--format", "parquet", "--out", "files")


def test_profiles_and_version(told: Told, graph: str, config: Callable[[str], None]) -> None:
    config(
        "servers: {prod: {url: https://x.example}}\ndefaults: {output: kv, store: g.omni}\n"
        "profiles:\n  p: {server: prod, default_graph: g}\n  bad: {server: prod, store: g.omni}\n"
    )
    told("profile-list.json", "profile", "list", "--json")
    told("profile-show.json", "profile", "show", "p", "--json")
    told("profile-show-defaults.json", "profile", "show", "--json")
    told("version.txt", "version")
    told("version.json", "version", "--json")


def test_pipelines(told: Told, graph: str) -> None:
    Path("people.csv").write_text("name,age\nDi,4\n")
    Path("p.yaml").write_text(
        "version: 1\nname: people\ngraph: g.omni\nmode: merge\nsources:\n  people: {format: csv, path: people.csv}\n"
        "nodes:\n  Person: {from: people, select: {name: name, age: age}}\n"
    )
    told("pipeline-validate.json", "pipeline", "validate", "p.yaml", "--json")


def test_errors(told: Told, graph: str) -> None:
    Path("bad.jsonl").write_text('{"type":"Person","data":{"name":"Ada"}}\n')
    load = ["load", graph, "--data", "bad.jsonl", "--mode", "append", "--json", "--quiet"]
    told("error-key-conflict.json", *load, code=1)
    told("error-branch-not-found.json", *query("people"), "--json", "--branch", "nope", code=1)
    told("error-unknown-query.json", *query("nope"), "--json", code=1)
    told(
        "error-compile.json",
        "query",
        "-e",
        "query q() { match { $p: Persn } return { $p } }",
        "--store",
        graph,
        "--json",
        code=1,
    )
    told(
        "error-commit-not-found.json", "commit", "show", "01M7JJ02P100000014Z52RM2ST", "--uri", graph, "--json", code=1
    )
    told("error-usage.json", *query("people"), "--json", "--format", "csv", code=2)
    told("error-no-graph.json", "snapshot", "nowhere.omni", "--json", code=1)
