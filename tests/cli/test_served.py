"""Commands on a graph behind a server: the same words and bytes as on its storage, and what only servers have."""

from __future__ import annotations

import io
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from click.shell_completion import ShellComplete
from pyarrow import feather

import omnigraph
from omnigraph.cli.config import load_config, store_token, token_for
from omnigraph.cli.main import app
from tests.cli.conftest import Cli, Outcome
from tests.server.running import RunningServer, running
from tests.server.sample import ADD, AGE, EVERYBODY, EVERYTHING, PHOTO, SCHEMA, Rules, knows, people, person

Config = Callable[[str], None]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph with three people, a branch that conflicts with main, and a merge in its history."""
    place = tmp_path_factory.mktemp("served") / "kb"
    with people(place) as graph:
        for name, age in (("side", 40), ("done", 41)):
            graph.create_branch(name)
            graph.mutate(AGE, params={"name": "Ada", "age": age}, branch=name, actor="ann")
        graph.merge("done", "main", message="older")
        graph.mutate(ADD, params={"name": "Dan"}, actor="bob")
    return place


@pytest.fixture(scope="module")
def server(place: Path) -> Iterator[RunningServer]:
    with omnigraph.open(place) as graph, running({"kb": graph}, queries=f"{EVERYBODY}\n{ADD}") as server:
        yield server


def alike(outcome: Outcome, *places: str) -> tuple[int, str, str]:
    """An outcome without the place of the graph and the words for how it was reached."""
    texts = []
    for text in (outcome.out, outcome.err):
        for place in places:
            text = text.replace(place, "<graph>")
        texts.append(re.sub(r"\((served|direct, local)\)", "(<access>)", text))
    return (outcome.code, texts[0], texts[1])


READS = [
    ["query", "-e", EVERYBODY],
    ["query", "everybody", "-e", f"{EVERYBODY}\n{ADD}", "--json"],
    *(["query", "-e", EVERYBODY, "--format", each] for each in ("table", "kv", "csv", "ndjson", "jsonl", "json")),
    ["query", "-e", EVERYBODY, "--branch", "side"],
    ["query", "-e", EVERYBODY, "--snapshot", "{commit}", "--json"],
    ["query", "-e", EVERYBODY, "--at-version", "2"],
    ["query", "-e", EVERYBODY, "--at", "2100-01-01"],
    ["query", "-e", "query q($n: String) { match { $p: Person { name: $n } } return { $p.seen, $p.mood, $p.born } }",
     "--params", '{"n": "Ada"}', "--json"],
    ["query", "-e", EVERYBODY, "--explain"],
    ["snapshot"],
    ["snapshot", "--branch", "side", "--json"],
    ["branch", "list"],
    ["branch", "list", "--json"],
    ["branch", "list", "--verbose"],
    ["branch", "list", "--verbose", "--json"],
    ["branch", "merge", "side", "--preview", "--exit-code"],
    ["branch", "merge", "side", "--preview"],
    ["branch", "merge", "side", "--preview", "--json"],
    ["commit", "list"],
    ["commit", "list", "--limit", "2", "--json"],
    ["commit", "list", "--dag"],
    ["commit", "list", "--dag", "--limit", "3"],
    ["commit", "show", "{commit}"],
    ["commit", "show", "{commit}", "--json"],
    ["commit", "changes", "{commit}"],
    ["commit", "changes", "{commit}", "--limit", "1", "--json"],
    ["changes", "poll", "--start", "beginning"],
    ["changes", "poll", "--start", "beginning", "--limit", "1", "--kind", "node", "--op", "insert", "--json"],
    ["changes", "poll"],
    ["diff", "side", "main"],
    ["diff", "main@1", "main", "--json"],
    ["export"],
    ["export", "--type", "Person", "--branch", "side"],
    ["blob", "get", "node", "Person", "Ada", "photo", "--offset", "65", "--length", "26"],
    ["blob", "stat", "node", "Person", "Ada", "photo"],
    ["blob", "stat", "node", "Person", "Ada", "photo", "--json"],
    ["schema", "show"],
    ["schema", "show", "--at-version", "1", "--json"],
    # What can't be read
    ["query", "-e", EVERYBODY, "--branch", "none", "--json"],
    ["query", "-e", "query q( {"],
    ["query", "-e", "query q() { match { $p: Persn } return { $p.name } }", "--json"],
    ["query", "-e", f"{EVERYBODY}\n{ADD}"],
    ["query", "other", "-e", EVERYBODY],
    ["query", "-e", EVERYBODY, "--at-version", "99"],
    ["query", "-e", " "],
    ["query"],
    ["snapshot", "--branch", "none"],
    ["commit", "show", "nothing"],
    ["commit", "changes", "{commit}", "--page-token", "x"],
    ["changes", "poll", "--cursor", "x", "--json"],
    ["diff", "main", "none"],
    ["diff", "main@77", "main"],
    ["export", "--type", "Persn"],
    ["blob", "get", "node", "Person", "nobody", "photo"],
    ["blob", "get", "node", "Person", "Ada", "age"],
    ["blob", "get", "node", "Person", "Ada", "photo", "--length", "0"],
    ["blob", "get", "node", "Person", "Ada", "photo", "--offset", "5000"],
    ["blob", "stat", "node", "Person", "Ada", "photo", "--branch", "none", "--json"],
    ["schema", "show", "--branch", "none"],
    ["commit", "changes", "{commit}", "--limit", "0", "--json"],
    ["commit", "changes", "{commit}", "--limit", "9000", "--json"],
    ["changes", "poll", "--start", "later", "--json"],
    ["diff", "side", "main", "--type", "Nope", "--json"],
    ["branch", "merge", "side", "--preview", "--theirs", "nonsense", "--json"],
]  # fmt: skip


@pytest.mark.parametrize("command", READS, ids=lambda command: " ".join(command)[:60])
def test_reads_are_the_same_byte_for_byte(command: list[str], cli: Cli, place: Path, server: RunningServer) -> None:
    with omnigraph.open(place) as graph:
        commit = graph.commits(limit=1).commits[0].id
    command = [part.format(commit=commit) if part == "{commit}" else part for part in command]
    stored = cli(*command, "--store", str(place))
    served = cli(*command, "--server", server.url, "--graph", "kb")
    assert alike(served, server.graph()) == alike(stored, str(place))


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Cli:
    """As the other tests of commands have it, for commands that also write bytes."""
    from omnigraph.cli.main import run

    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "operator"))

    def call(*arguments: str) -> Outcome:
        code = run(list(arguments))
        captured = capfdbinary.readouterr()
        return Outcome(code, captured.out.decode("utf-8", "backslashreplace"), captured.err.decode())

    return call


def test_a_schema_is_planned_and_stored_queries_are_listed(cli: Cli, place: Path, server: RunningServer) -> None:
    Path("s.pg").write_text(SCHEMA + "node More { name: String @key }\n")
    for more in ([], ["--json"], ["--branch", "side"], ["--branch", "none"]):
        plan = ["schema", "plan", "--schema", "s.pg", *more]
        planned = alike(cli(*plan, "--server", server.url, "--graph", "kb"), server.graph())
        assert planned == alike(cli(*plan, "--store", str(place)), str(place))
    listed = cli("queries", "list", "--server", server.url, "--graph", "kb")
    assert (listed.code, listed.lines) == (0, ["mutation  add($name: string, $age: int?)", "read  everybody()"])
    told = cli("queries", "list", "--server", server.graph(), "--json").json["queries"]
    assert [(query["name"], query["tool_name"], query["mutation"]) for query in told] == [
        ("add", "add", True),
        ("everybody", "everybody", False),
    ]
    assert "pass --graph <id>" in cli("queries", "list", "--server", server.url).err
    both = cli("queries", "list", "--server", server.url, "--cluster", "box")
    assert "mutually exclusive" in both.err


def test_stored_queries_take_parameters_by_name(cli: Cli, server: RunningServer) -> None:
    assert cli("branch", "create", "own", "--server", server.graph()).code == 0
    served = ("--server", server.url, "--graph", "kb", "--branch", "own")
    added = cli("mutate", "add", "--param", "name=007", "--param", "age=7", *served)
    assert added.lines == ["changed own via add: 1 node, 0 edges"]
    by_name = "query q($n: String) { match { $p: Person { name: $n } } return { $p.name as name } }"
    shown = cli("query", "-e", by_name, "--param", "n=007", "--format", "csv", *served)
    assert shown.lines == ["name", "007"]
    assert cli("branch", "delete", "own", "--yes", "--server", server.graph()).code == 0


def test_a_baseline_is_installed(cli: Cli, place: Path, server: RunningServer) -> None:
    stored = cli("changes", "baseline", "--out", "a.jsonl", "--json", "--store", str(place))
    served = cli("changes", "baseline", "--out", "b.jsonl", "--json", "--server", server.graph())
    assert stored == served
    assert Path("a.jsonl").read_bytes() == Path("b.jsonl").read_bytes()
    refused = cli("changes", "baseline", "--out", "b.jsonl", "--branch", "none", "--server", server.graph())
    assert refused.code == 1
    assert Path("a.jsonl").read_bytes() == Path("b.jsonl").read_bytes(), "a failure leaves the file alone"


def test_a_blob_goes_to_a_file(cli: Cli, server: RunningServer) -> None:
    cell = ["blob", "get", "node", "Person", "Ada", "photo", "--out", "photo"]
    assert cli(*cell, "--server", server.graph()).code == 0
    assert Path("photo").read_bytes() == PHOTO
    assert cli(*cell, "--server", server.graph(), "--branch", "none").code == 1
    assert Path("photo").read_bytes() == PHOTO, "a failed read leaves an existing file alone"


def test_a_profile_of_what_a_server_did_is_that_of_the_rows(cli: Cli, server: RunningServer) -> None:
    asked = ["query", "-e", EVERYBODY, "--format", "jsonl"]
    profiled = cli(*asked, "--profile-query", "--server", server.graph())
    assert (profiled.code, profiled.out) == (0, cli(*asked, "--server", server.graph()).out)
    assert profiled.err.startswith(f"query  [{len(profiled.lines) - 1} rows, ")
    assert "Scan $p: Person  [" in profiled.err
    gone = cli(*asked, "--profile-query", "--branch", "none", "--server", server.graph())
    assert (gone.code, gone.out) == (1, "")


def test_a_conversation_with_a_server(cli: Cli, server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    statements = (
        ":format csv\n:queries\neverybody\n:branch side\nmatch { $p: Person } return { count($p) as n }\n"
        ":explain everybody\n:profile match { $p: Person } return { $p }\n:schema Nope\n:at 1\neverybody\n:at now\n"
        ':branch create talk\nadd name=Zoe\nmatch { $p: Person { name: "Zoe" } } return { $p.name as n }\n'
    )
    monkeypatch.setattr("sys.stdin", io.StringIO(statements))
    shown = cli("shell", "--server", server.graph())
    assert shown.code == 1
    errors = [line for line in shown.err.splitlines() if line.startswith("Error:")]
    for fragment, error in zip(("'everybody' is the server's", "Nope"), errors, strict=True):
        assert fragment in error
    assert "Scan $p: Person  [" in shown.err, "what the operators of the server did"
    assert shown.lines[:2] == ["mutation add($name, $age)", "read     everybody()"]
    assert shown.lines[-3:] == ["changed talk: 1 node, 0 edges", "n", "Zoe"]
    assert cli("shell", "--server", server.graph(), "--as", "me").code == 1
    assert cli("branch", "delete", "talk", "--yes", "--server", server.graph()).code == 0


def test_branches_of_a_server_are_completed(cli: Cli, server: RunningServer) -> None:
    complete = ShellComplete(app, {}, "omnigraph", "_OMNIGRAPH_COMPLETE")
    offered = complete.get_completions(["query", "--server", server.graph(), "--branch"], "")
    assert "side" in [item.value for item in offered]


# Writes: the same commands, one after another, on a graph in storage and on its twin behind a server

WIDER = SCHEMA.replace("email: String?", "email: String?  nick: String?")
WRITES = [
    ["mutate", "-e", ADD, "--params", '{"name": "Eve"}', "--json"],
    ["mutate", "-e", AGE, "--params", '{"name": "Eve", "age": 7}'],
    ["mutate", "-e", AGE, "--params", '{"name": "Eve", "age": 700}', "--json"],
    ["mutate", "-e", AGE, "--params", '{"name": "nobody", "age": 7}', "--json"],
    ["mutate", "-e", EVERYBODY],
    ["mutate", "-e", ADD, "--params", '{"name": "Fay"}', "--if-commit", "01M7GW98VK00000019F8ZGQ2TW", "--json"],
    ["mutate", "-e", ADD, "--params", '{"name": "Fay"}', "--if-commit", "01M7GW98VK00000019F8ZGQ2TW"],
    ["mutate", "-e", ADD, "--params", '{"name": "Fay"}', "--if-commit", "*", "--json"],
    ["mutate", "-e", ADD, "--params", '{"name": "Fay"}', "--if-commit", " "],
    ["mutate", "-e", ADD, "--params", '{"name": "Fay"}', "--branch", "none"],
    ["load", "--data", "d.jsonl", "--mode", "append", "--json"],
    ["load", "--data", "d.jsonl", "--mode", "append", "--json"],
    ["load", "--data", "d.jsonl", "--mode", "merge", "--branch", "new", "--from", "main"],
    ["load", "--data", "d.jsonl", "--mode", "overwrite", "--yes", "--quiet"],
    ["load", "--data", "bad.jsonl", "--mode", "append", "--json"],
    ["load", "--data", "d.jsonl", "--mode", "append", "--branch", "none", "--json"],
    ["load", "--data", "d.jsonl", "--mode", "append", "--branch", "other", "--from", "none", "--json"],
    ["load", "--data", "absent.jsonl", "--mode", "append"],
    ["load", "--data", "one", "--mode", "merge"],
    ["load", "--data", "one/*.jsonl", "--mode", "merge"],
    ["load", "--data", "people.arrow", "--type", "Person", "--mode", "merge", "--json"],
    ["load", "--data", "people.csv", "--type", "Person", "--mode", "merge", "--delimiter", ";"],
    ["ingest", "--data", "loose.jsonl", "--branch", "loose", "--json"],
    ["ingest", "--data", "loose.jsonl"],
    ["branch", "create", "b1", "--json"],
    ["branch", "create", " b2 ", "--from", "b1"],
    ["branch", "create", "b1"],
    ["branch", "delete", "b2", "--yes", "--json"],
    ["branch", "delete", "b2", "--yes"],
    ["branch", "merge", "side"],
    ["branch", "merge", "side", "--json"],
    ["branch", "merge", "side", "--theirs", "all", "--json"],
    ["branch", "merge", "new", "--delete-branch"],
    ["branch", "merge", "main", "--into", "main"],
    ["schema", "apply", "--schema", "wider.pg"],
    ["schema", "apply", "--schema", "wider.pg", "--json"],
    ["schema", "apply", "--schema", "other.pg", "--json"],
    ["schema", "apply", "--schema", "broken.pg"],
]  # fmt: skip


def told(outcome: Outcome, *places: str) -> tuple[int, str, str]:
    """As `alike`, without what is of the moment: commit ids by their first appearance, and times."""
    code, out, err = alike(outcome, *places)
    names: dict[str, str] = {}

    def name(found: re.Match[str]) -> str:
        return names.setdefault(found[0], f"<commit {len(names)}>")

    def plain(text: str) -> str:
        text = re.sub(r"\b[0-9A-HJKMNP-TV-Z]{26}\b", name, text)
        return re.sub(r'("created_at": )\d+', r"\1<time>", text)

    return code, plain(out), plain(err)


def test_writes_are_the_same_one_after_another(cli: Cli, place: Path) -> None:
    stored, behind = Path("stored"), Path("behind")
    shutil.copytree(place, stored)
    shutil.copytree(place, behind)
    Path("d.jsonl").write_text("\n".join((person("Gus", age=1), knows("Gus", "Gus"))))
    Path("bad.jsonl").write_text(person("Hal") + "\n" + person("Ida", age="old"))
    Path("loose.jsonl").write_text(person("Jim", shoe=44))
    Path("one").mkdir()
    Path("one/d.jsonl").write_text(person("Kim"))
    feather.write_feather(pa.table({"name": ["Lee", "Mia"]}), "people.arrow")
    Path("people.csv").write_text("name;age\nLee;3\n")
    Path("wider.pg").write_text(WIDER)
    Path("other.pg").write_text(WIDER.replace("score: F64?", "score: Date?"))
    Path("broken.pg").write_text("node {")
    with omnigraph.open(behind) as graph, running({"kb": graph}) as server:
        for command in WRITES:
            here = cli(*command, "--store", str(stored))
            there = cli(*command, "--server", server.url, "--graph", "kb")
            assert told(there, server.graph(), str(behind.absolute())) == told(here, str(stored)), command
        several = cli("load", "--data", "one", "--data", "d.jsonl", "--mode", "merge", "--server", server.graph())
        assert "there are several files, and a server takes one at a time" in several.err
        lost = next(c for c in WRITES if "--if-commit" in c)
        assert cli(*lost, "--server", server.graph()).code == 4
        exported = [cli("export", *where) for where in (["--store", "stored"], ["--server", server.graph()])]
        assert told(exported[0]) == told(exported[1])
        used = {record.operation_id for record in server.recorder.records}
        assert {"change", "mutate_if_graph_commit", "loadNdjson", "ingest", "mergeBranches"} <= used
        assert not {"mutate", "load", "read"} & used


def test_a_destructive_write_to_a_server_needs_a_yes(cli: Cli, server: RunningServer) -> None:
    where = ["--server", server.graph(), "--json"]
    for command, what in (
        (["branch", "delete", "side"], "branch delete"),
        (["load", "--data", "x", "--mode", "overwrite"], "load --mode overwrite"),
    ):
        Path("x").write_text("")
        refused = cli(*command, *where)
        assert refused.code == 1
        assert f"refusing destructive `{what}` on {server.graph()}" in refused.err
        assert "--yes" in refused.err
    assert "side" in cli("branch", "list", "--server", server.graph()).lines


# Which graph of which server


def test_a_graph_has_to_be_named_where_there_are_some(cli: Cli, place: Path, config: Config) -> None:
    with omnigraph.open(place) as graph, running({"a": graph, "b": graph}) as two:
        refused = cli("snapshot", "--server", two.url)
        assert refused.code == 1
        assert f"server scope '{two.url}' has 2 graph(s): [a, b]; pass --graph <id>" in refused.err
        assert cli("snapshot", "--server", two.url + "/", "--graph", "b").code == 0
        assert cli("snapshot", "--server", two.graph("a")).code == 0
        listed = cli("graphs", "list", "--server", two.url)
        assert [line.split("\t")[0] for line in listed.lines] == ["a", "b"]
        found = cli("graphs", "list", "--server", two.url, "--json").json["graphs"]
        assert [each["graph_id"] for each in found] == ["a", "b"]
        config(f"servers: {{two: {{url: '{two.url}'}}}}\nprofiles: {{there: {{server: two, default_graph: a}}}}")
        assert cli("snapshot", "--profile", "there").code == 0
        assert cli("graphs", "list", "--profile", "there").code == 0
        assert "server scope 'two' has 2 graph(s)" in cli("snapshot", "--server", "two").err


class _Closed:
    """Lets nobody know the graphs."""

    def decide(self, actor: object, request: object) -> object:
        from omnigraph.api.governance import Decision

        return Decision(False, "policy denied action 'graph_list'")


def test_a_server_that_does_not_tell_its_graphs_is_taken_as_it_is(cli: Cli, place: Path) -> None:
    """The list is refused; the commands go to the bare URL, where this server has nothing."""
    with omnigraph.open(place) as graph, running({"kb": graph}, server_gate=_Closed()) as silent:
        refused = cli("snapshot", "--server", silent.url)
        assert refused.code == 1
        assert refused.err.startswith("Error: there is no such path; name the graph, as in /graphs/<id>/")
        assert "policy denied action 'graph_list'" in cli("graphs", "list", "--server", silent.url).err


# Stored queries and aliases


def test_stored_queries_are_run_by_name(cli: Cli, place: Path) -> None:
    shutil.copytree(place, "kb")
    with omnigraph.open("kb") as graph, running({"kb": graph}, queries=f"{EVERYBODY}\n{ADD}") as server:
        where = ["--server", server.graph()]
        assert cli("query", "everybody", *where).out == cli("query", "-e", EVERYBODY, *where).out
        assert cli("query", "everybody", "--at-version", "1", "--json", *where).json["row_count"] == 0
        added = cli("mutate", "add", "--params", '{"name": "Kim"}', *where)
        assert (added.code, added.lines) == (0, ["changed main via add: 1 node, 0 edges"])
        lost = cli("mutate", "add", "--params", '{"name": "Lou"}', "--if-commit", "01M7GW98VK00000019F8ZGQ2TW", *where)
        assert lost.code == 4
        assert "'add' is a mutation — use omnigraph mutate add" in cli("query", "add", *where).err
        assert "'everybody' is a read — use omnigraph query everybody" in cli("mutate", "everybody", *where).err
        assert "stored query not found" in cli("query", "none", *where).err
        assert "by-name invocation needs a server" in cli("query", "everybody", "--store", "kb").err


def test_aliases(cli: Cli, server: RunningServer, config: Config) -> None:
    config(
        f"servers: {{here: {{url: '{server.url}'}}}}\n"
        "aliases:\n"
        "  all: {server: here, graph: kb, query: everybody, format: csv}\n"
        "  add: {server: here, graph: kb, query: add, args: [name, age], params: {age: 1}}\n"
        "  lost: {server: there, query: everybody}\n"
    )
    where = ["--server", server.graph()]
    assert cli("alias", "all").out == cli("query", "everybody", "--format", "csv", *where).out
    assert cli("alias", "all", "--json").out == cli("query", "everybody", "--json", *where).out
    assert "'add' is a mutation" in cli("alias", "add", "Max", "2").err, "aliases run reads alone"
    refused = cli("alias", "add", "a", "b", "c")
    assert "alias 'add' takes 2 positional arg(s) (name, age), got 3" in refused.err
    assert "unknown alias 'none'; defined aliases: [add, all, lost]" in cli("alias", "none").err
    assert "unknown server 'there'" in cli("alias", "lost").err
    flagged = cli("alias", "all", "--store", "x", "--server", "y", "--as", "z")
    assert flagged.code == 1
    assert "`alias` uses the server, graph, and stored query" in flagged.err
    assert "--server, --store, --as" in flagged.err


# Tokens

TOKEN = "tok-secret-1234567890"


def test_a_token_is_kept_used_and_forgotten(
    cli: Cli, place: Path, config: Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("OMNIGRAPH_BEARER_TOKEN", raising=False)
    gates = {"kb": Rules({"ann": EVERYTHING})}
    with omnigraph.open(place) as graph, running({"kb": graph}, tokens={"ann": TOKEN}, gates=gates) as server:
        config(f"servers: {{here: {{url: '{server.url}'}}}}")
        where = ["--server", "here", "--graph", "kb"]
        assert "missing bearer token" in cli("snapshot", *where).err
        stored = cli("login", "here", "--token", f" {TOKEN} ", "--json")
        path = tmp_path / "operator" / "credentials"
        assert stored.json == {"server": "here", "credentials_path": str(path), "declared": True}
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert cli("snapshot", *where).code == 0
        added = cli("branch", "create", "of-ann", *where, "--json")
        assert (added.json["actor_id"], added.json["uri"]) == ("ann", server.graph())
        assert TOKEN not in "".join((stored.out, stored.err, added.out, added.err))
        monkeypatch.setenv("OMNIGRAPH_TOKEN_HERE", "wrong-and-secret")
        refused = cli("snapshot", *where)
        assert "invalid bearer token" in refused.err
        assert "wrong-and-secret" not in refused.err
        blob = cli("blob", "stat", "node", "Person", "Ada", "photo", *where)
        assert "Blob read requires authentication" in blob.err
        monkeypatch.delenv("OMNIGRAPH_TOKEN_HERE")
        path.chmod(0o640)
        assert f"chmod 600 '{path}'" in cli("snapshot", *where).err
        path.chmod(0o600)
        removed = cli("logout", "here", "--json")
        assert removed.json == {"server": "here", "credentials_path": str(path)}
        assert cli("logout", "here").lines == [f"removed credential for 'here' from {path}"]
        assert "missing bearer token" in cli("snapshot", *where).err


def test_doctor_says_whether_a_server_lets_the_operator_in(
    cli: Cli, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = {"ann": TOKEN, "eve": "tok-of-eve-1234567890"}
    gates = {"kb": Rules({"ann": EVERYTHING})}

    def access(*where: str, token: str | None = None) -> tuple[int, str, str]:
        monkeypatch.setenv("OMNIGRAPH_BEARER_TOKEN", token or "")
        told = cli("doctor", *where, "--json")
        [check] = [check for check in told.json["checks"] if check["name"] == "access"]
        return told.code, check["status"], check["found"] + check.get("remedy", "")

    with omnigraph.open(place) as graph, running({"kb": graph}, tokens=tokens, gates=gates) as server:
        at_server, at_graph = ["--server", server.url], ["--server", server.graph()]
        code, status, said = access(*at_graph)
        assert (code, status) == (1, "broken")
        assert "missing bearer token" in said
        assert "omnigraph login" in said
        assert access(*at_graph, token=TOKEN)[:2] == (0, "ok")
        assert access(*at_graph, token=tokens["eve"])[:2] == (0, "warning")
        assert access(*at_server, token=tokens["eve"])[:2] == (0, "ok")
        assert access(*at_server, "--graph", "none", token=TOKEN)[:2] == (1, "broken")


def test_login_keeps_other_sections_and_says_what_is_missing(cli: Cli, tmp_path: Path) -> None:
    noted = cli("login", "prod", "--token", "one")
    assert noted.lines == [f"stored credential for 'prod' in {tmp_path / 'operator' / 'credentials'}"]
    assert "no server is called 'prod'" in noted.err
    path = tmp_path / "operator" / "credentials"
    path.write_text("# mine\n[other]\ntoken = 'two words' \n\n" + path.read_text())
    assert cli("login", "prod", "--token", "three").code == 0
    assert path.read_text() == "# mine\n[other]\ntoken = 'two words' \n\n[prod]\ntoken = three\n"
    assert cli("logout", "other").code == 0
    assert path.read_text() == "# mine\n[prod]\ntoken = three\n"
    assert "no token provided" in cli("login", "prod", "--token", "  ").err
    assert cli("login", "a]b", "--token", "x").code == 1
    assert [p.name for p in path.parent.iterdir()] == ["credentials"], "nothing is left behind"


def test_a_token_goes_to_its_own_server_alone(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    config("servers:\n  prod: {url: 'https://h/'}\n  prod-eu: {url: 'https://h/eu'}\n  none: {url: 'https://n'}\n")
    monkeypatch.setattr(os, "environ", {**os.environ})
    monkeypatch.delenv("OMNIGRAPH_BEARER_TOKEN", raising=False)
    store_token("prod", "p")
    store_token("prod-eu", "e")
    settings = load_config()
    assert token_for("https://h", settings, {}) == "p"
    assert token_for("https://h/graphs/kb", settings, {}) == "p"
    assert token_for("https://h/eu/graphs/kb", settings, {}) == "e", "the longest beginning counts"
    assert token_for("https://h/europe", settings, {}) == "p"
    assert token_for("https://h.example/graphs/kb", settings, {}) is None
    assert token_for("https://n/x", settings, {}) is None
    assert token_for("https://n/x", settings, {"OMNIGRAPH_BEARER_TOKEN": " b "}) == "b"
    assert token_for("https://elsewhere", settings, {"OMNIGRAPH_BEARER_TOKEN": "b"}) == "b"
    assert token_for("https://h/x", settings, {"OMNIGRAPH_BEARER_TOKEN": "b", "OMNIGRAPH_TOKEN_PROD": " "}) == "p"
    assert token_for("https://h/eu", settings, {"OMNIGRAPH_TOKEN_PROD_EU": "v"}) == "v"


# Servers that are none of ours


def test_other_answers_are_shown_as_they_are(cli: Cli) -> None:
    from tests.support.http_server import HttpServer

    answers = {
        "/a/snapshot": ("502 Bad Gateway", [("Content-Length", "9")], b"<tired/>\n"),
        "/b/snapshot": ("301 Moved", [("Location", "https://elsewhere/x?secret=1"), ("Content-Length", "0")], b""),
        "/c/snapshot": ("200 OK", [("Content-Length", "2")], b"{}"),
        "/d/snapshot": ("418 Odd", [("Content-Length", "27")], b'{"error":"odd","extra":[1]}'),
    }
    nothing = ("404 Not Found", [("Content-Length", "0")], b"")
    other = HttpServer(lambda environ: answers.get(environ["PATH_INFO"], nothing))
    try:
        base = f"http://127.0.0.1:{other.port}"
        assert cli("snapshot", "--server", f"{base}/a").err == "Error: server returned 502: <tired/>\n"
        moved = cli("snapshot", "--server", f"{base}/b")
        assert "server returned 301: a redirect to 'https://elsewhere/x', which is not followed" in moved.err
        assert "is this an OmniGraph server?" in cli("snapshot", "--server", f"{base}/c").err
        assert cli("snapshot", "--server", f"{base}/d").err == "Error: odd\n"
        assert cli("snapshot", "--server", f"http://u:pw@127.0.0.1:{other.port}").code == 1
        assert "pw" not in cli("snapshot", "--server", f"http://u:pw@127.0.0.1:{other.port}").err
    finally:
        other.close()
