"""Every feature of the query language on the command line and in the shell: in each format, on storage and served."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.api.enums import ReadFormat
from omnigraph.api.values import count_noun
from tests.cli.conftest import Cli, Outcome
from tests.server.running import RunningServer, faultless
from tests.server.sample import EVERYTHING, Rules
from tests.support.feature_queries import (
    READS,
    REFUSALS,
    SCHEMA,
    STORED,
    STORED_TEXT,
    WRITES,
    WRONG_READS,
    WRONG_WRITES,
    Example,
    Refusal,
    Write,
    cell_value,
    feature_graph,
    label,
    lasting,
    statements,
)

Shell = Callable[..., Outcome]


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("features") / "kb"
    feature_graph(place).close()
    return place


@pytest.fixture
def g(cli: Cli, made_once: Path) -> str:
    """A graph that a test may change."""
    shutil.copytree(made_once, "g.omni")
    return "g.omni"


@pytest.fixture(scope="module")
def server(made_once: Path) -> Iterator[RunningServer]:
    with Graph.open(made_once) as graph, faultless({"kb": graph}, queries=STORED_TEXT) as server:
        yield server


@pytest.fixture
def shell(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Runs lines in the shell, which knows the queries of a file."""
    Path("features.gq").write_text(STORED_TEXT)

    def run(lines: Sequence[str], *flags: str) -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        return cli("shell", *flags)

    return run


# Lint


def test_lint_describes_every_feature(cli: Cli) -> None:
    Path("schema.pg").write_text(SCHEMA)
    Path("features.gq").write_text(STORED_TEXT)
    linted = cli("lint", "--schema", "schema.pg", "--query", "features.gq", "--json")
    assert (linted.code, linted.json["queries_processed"]) == (0, len(STORED) + len(WRITES))
    kinds = {
        result["name"]: {column["name"]: column["kind"] for column in result["operation"]["result"]}
        for result in linted.json["results"]
        if result["kind"] == "read"
    }
    assert kinds == {example.name: example.kinds for example in STORED}
    assert {finding["code"] for finding in linted.json["findings"]} == {"L202"}


# Reads


@pytest.mark.parametrize("example", READS, ids=label)
def test_a_feature_on_the_command_line(cli: Cli, made_once: Path, example: Example) -> None:
    params = ("--params", json.dumps(example.params))
    shown = cli("query", "-e", example.text, *params, "--json", "--store", str(made_once))
    assert (shown.code, shown.err, shown.json["rows"]) == (0, "", example.rows)
    assert shown.json["columns"] == list(example.rows[0])


CALLS = [f"{example.name} {json.dumps(example.params)}" for example in STORED]


@pytest.mark.parametrize("format_", list(ReadFormat))
def test_every_feature_in_a_format_of_the_shell(
    shell: Shell, config: Callable[[str], None], made_once: Path, format_: ReadFormat
) -> None:
    config("defaults: {table_max_column_width: 10000}")
    shown = shell(CALLS, "--format", format_, "--query", "features.gq", "--store", str(made_once))
    assert (shown.code, shown.err) == (0, "")
    read, rest = READERS[format_], shown.out
    for example in STORED:
        rows, rest = read(example, rest)
        assert rows == example.rows, example.name
    assert rest.strip() == ""


def lines_of(text: str, count: int) -> tuple[list[str], str]:
    *lines, rest = text.split("\n", count)
    return lines, rest


def read_cells(example: Example, rows: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    return [
        {name: cell_value(cell, expected[name]) for name, cell in zip(expected, row, strict=True)}
        for row, expected in zip(rows, example.rows, strict=True)
    ]


def read_csv(example: Example, text: str) -> tuple[list[dict[str, Any]], str]:
    lines, rest = lines_of(text, 1 + len(example.rows))
    header, *rows = csv.reader(lines)
    assert header == list(example.rows[0])
    return read_cells(example, rows), rest


def without_null(cells: list[str]) -> list[str]:
    """People see a word where a text file has nothing."""
    return ["" if cell == "null" else cell for cell in cells]


def read_table(example: Example, text: str) -> tuple[list[dict[str, Any]], str]:
    lines, rest = lines_of(text, 3 + len(example.rows))
    headline, header, _, *rows = lines
    assert headline == f"{count_noun(len(example.rows), 'row')} from branch main via {example.name}"
    assert [cell.strip() for cell in header.split(" | ")] == list(example.rows[0])
    return read_cells(example, [without_null([cell.strip() for cell in row.split(" | ")]) for row in rows]), rest


def read_kv(example: Example, text: str) -> tuple[list[dict[str, Any]], str]:
    columns = list(example.rows[0])
    lines, rest = lines_of(text, len(example.rows) * (len(columns) + 2))
    assert lines.pop(0) == f"{count_noun(len(example.rows), 'row')} from branch main via {example.name}"
    rows = []
    for number, block in enumerate("\n".join(lines).split("\n\n"), start=1):
        head, *members = block.split("\n")
        assert head == f"row {number}"
        assert [member.partition(": ")[0] for member in members] == columns
        rows.append(without_null([member.partition(": ")[2] for member in members]))
    return read_cells(example, rows), rest


def read_ndjson(example: Example, text: str) -> tuple[list[dict[str, Any]], str]:
    lines, rest = lines_of(text, len(example.rows))
    return [json.loads(line) for line in lines], rest


def read_jsonl(example: Example, text: str) -> tuple[list[dict[str, Any]], str]:
    (head,), rest = lines_of(text, 1)
    header = json.loads(head)
    assert (header["kind"], header["query_name"], header["row_count"]) == ("metadata", example.name, len(example.rows))
    return read_ndjson(example, rest)


def read_json(example: Example, text: str) -> tuple[list[dict[str, Any]], str]:
    output, end = json.JSONDecoder().raw_decode(text)
    assert (output["query_name"], output["columns"]) == (example.name, list(example.rows[0]))
    return output["rows"], text[end:].lstrip("\n")


READERS: dict[ReadFormat, Callable[[Example, str], tuple[list[dict[str, Any]], str]]] = {
    ReadFormat.TABLE: read_table,
    ReadFormat.KV: read_kv,
    ReadFormat.CSV: read_csv,
    ReadFormat.NDJSON: read_ndjson,
    ReadFormat.JSONL: read_jsonl,
    ReadFormat.JSON: read_json,
}


def test_a_server_shows_every_feature_as_its_storage_does(shell: Shell, made_once: Path, server: RunningServer) -> None:
    typed = [*CALLS, ":format csv", *CALLS, "branch list", READS[-1].text.replace("$age", "20").replace("20: I32", "")]
    stored = shell(typed, "--format", "json", "--query", "features.gq", "--store", str(made_once))
    served = shell(typed, "--format", "json", "--server", server.graph())
    assert (stored.code, stored.out) == (0, served.out)


def test_every_body_of_a_query_may_be_typed(shell: Shell, made_once: Path) -> None:
    typed = (
        "return { 1 + 1 as n }",
        "unwind [1, 2] as $n return { $n as n }",
        "{ return { 3 as n } union return { 3 as n } } then return { $n + 1 as n }",
        "match {\n$r: Reader\n}\nreturn { count($r) as n }\nthen\nreturn { $n + 2 as n };",
    )
    shown = shell(typed, "--format", "ndjson", "--store", str(made_once))
    assert (shown.code, [json.loads(line)["n"] for line in shown.lines]) == (0, [2, 1, 2, 4, 5])


# Writes


@pytest.mark.parametrize("write", WRITES, ids=label)
def test_a_feature_of_writes(cli: Cli, g: str, write: Write) -> None:
    done = cli("mutate", "-e", write.text, "--params", json.dumps(write.params), "--json", "--store", g)
    assert (done.json["affected_nodes"], done.json["affected_edges"]) == write.counts, done.err
    assert "outcome" not in done.json
    assert cli("query", "-e", write.shown_by, "--json", "--store", g).json["rows"] == write.rows


def test_every_feature_of_writes_in_the_shell(shell: Shell, g: str) -> None:
    typed, told = list[str](), list[Any]()
    for write in WRITES:
        nodes, edges = (count_noun(*each) for each in zip(write.counts, ("node", "edge"), strict=True))
        typed += [":branch main", f":branch create {write.name}", f"{write.name} {json.dumps(write.params)}"]
        typed += [" ".join(write.shown_by.split())]
        told += [f"changed {write.name}: {nodes}, {edges}", *write.rows]
    shown = shell(typed, "--format", "ndjson", "--query", "features.gq", "--store", g)
    assert (shown.code, shown.err) == (0, "")
    assert [line if line.startswith("changed") else json.loads(line) for line in shown.lines] == told


def test_the_start_of_an_upsert_is_a_mutation_of_the_shell(shell: Shell, g: str) -> None:
    shown = shell(['upsert Shelf { id: "s1", room: "Z" }'], "--store", g)
    assert (shown.code, shown.lines) == (0, ["changed main: 1 node, 0 edges"])


def test_types_with_a_property_id_and_keyed_edges_are_exported_and_loaded(cli: Cli, made_once: Path) -> None:
    types = ("--type", "Shelf", "--type", "Reader", "--type", "Follows")
    exported = cli("export", *types, "--store", str(made_once)).out
    Path("schema.pg").write_text(SCHEMA)
    Path("exported.jsonl").write_text(exported)
    assert cli("init", "--schema", "schema.pg", "--store", "copy.omni").code == 0
    for mode in ("append", "merge"):
        assert cli("load", "--data", "exported.jsonl", "--mode", mode, "--store", "copy.omni").code == 0
        assert cli("export", *types, "--store", "copy.omni").out == exported
    shelf = {"type": "Shelf", "id": "s1", "data": {"id": "s1", "room": "A"}}
    assert shelf in map(json.loads, exported.splitlines())
    refused = cli("load", "--data", "exported.jsonl", "--mode", "append", "--json", "--store", "copy.omni")
    assert refused.json["type"] == "key_conflict"


# What can't be calculated


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.name)
def test_an_error_of_evaluation(cli: Cli, made_once: Path, refusal: Refusal) -> None:
    command = ("mutate" if refusal.writes else "query", "-e", refusal.text, "--store", str(made_once))
    for more in ((), ("--format", "csv") if not refusal.writes else ("--branch", "main")):
        told = cli(*command, *more)
        assert (told.code, told.out) == (1, "")
        assert told.err.startswith("Error: ")
        assert f"in `{refusal.fields['expression']}`" in told.err
    as_json = cli(*command, "--json")
    assert (as_json.code, as_json.json["type"], as_json.json["fields"]) == (1, refusal.type, refusal.fields)


def test_the_work_of_paths_is_limited(cli: Cli, made_once: Path, server: RunningServer) -> None:
    reached = next(example for example in READS if example.name == "reached")
    for scope in (("--store", str(made_once)), ("--server", server.graph())):
        asked = ("query", "-e", reached.text, "--json", *scope, "--traversal-work")
        assert cli(*asked, "1000").json["rows"] == reached.rows
        refused = cli(*asked, "2")
        limit = refused.json["resource_limit"]
        assert (refused.code, limit["resource"], limit["limit"]) == (1, "traversal_work", 2)


# Statements


def test_statements_create_merge_and_delete_branches(cli: Cli, g: str, server: RunningServer) -> None:
    for scope in (("--store", g), ("--server", server.graph())):
        for statement in statements(scope[0].strip("-")):
            branch = () if statement.branch is None else ("--branch", statement.branch)
            done = cli("mutate", "-e", statement.text, "--json", *branch, *scope)
            assert (done.code, lasting(done.json)) == (0, statement.receipt), done.err
            names = [row["name"] for row in cli("query", "-e", "branch list", "--json", *scope).json["rows"]]
            assert names == cli("branch", "list", *scope).lines
        assert cli("query", "-e", "branch list", *scope).lines[0] == "1 row via branch list"


def test_what_statements_did_is_said_in_a_line(cli: Cli, shell: Shell, g: str) -> None:
    typed = [statement.text.replace("// from main\n;", "") for statement in statements("x") if not statement.branch]
    said = [
        *("created branch x/work", "created branch x-copy", "merged into x-copy: already_up_to_date"),
        *("merged into x-copy: already_up_to_date", "deleted branch x/work", "deleted branch x-copy"),
    ]
    assert [line for text in typed for line in cli("mutate", "-e", text, "--store", g).lines] == said
    shown = shell(
        [*typed, "branch list", ":branch create y", ":at 1", "branch delete y"], "--format", "csv", "--store", g
    )
    assert (shown.err, shown.lines) == ("", [*said, "name", "main", "deleted branch y"])


def test_a_merge_that_conflicts_is_the_same_error_as_that_of_the_command(cli: Cli, g: str) -> None:
    for branch, room in (("left", "L"), ("right", "R")):
        change = f'query q() {{ update Shelf set {{ room: "{room}" }} where id = "s1" }}'
        assert cli("mutate", "-e", f"branch create {branch}", "--store", g).code == 0
        assert cli("mutate", "-e", change, "--branch", branch, "--store", g).code == 0
    statement = cli("mutate", "-e", "branch merge left into right", "--json", "--store", g)
    command = cli("branch", "merge", "left", "--into", "right", "--json", "--store", g)
    assert (statement.code, statement.json) == (command.code, command.json)
    assert statement.json["merge_conflicts"]


def test_statements_that_read_have_a_profile_and_no_plan(cli: Cli, made_once: Path, server: RunningServer) -> None:
    for scope in (("--store", str(made_once)), ("--server", server.graph())):
        for text in ("branch list", "explain query q() { return { 1 as n } }"):
            asked = ("query", "-e", text, "--format", "csv", *scope)
            profiled = cli(*asked, "--profile-query")
            assert (profiled.code, profiled.out) == (0, cli(*asked).out)
        refused = cli("query", "-e", "branch list", "--explain", *scope)
        assert (refused.code, "Q004" in refused.err) == (1, True)


@pytest.mark.parametrize("command", ["query", "mutate"])
def test_a_wrong_statement_is_refused(cli: Cli, made_once: Path, server: RunningServer, command: str) -> None:
    for asked, words in WRONG_READS if command == "query" else WRONG_WRITES:
        arguments = [command, *([asked["name"]] if "name" in asked else []), "-e", asked["query"]]
        arguments += ["--params", json.dumps(asked["params"])] if "params" in asked else []
        arguments += ["--branch", asked["branch"]] if "branch" in asked else []
        stored = cli(*arguments, "--store", str(made_once))
        served = cli(*arguments, "--server", server.graph())
        assert (stored.code, words in stored.err) == (1, True), stored.err
        assert re.sub(r"^omnigraph .*\n", "", served.err) == re.sub(r"^omnigraph .*\n", "", stored.err)


def test_a_wrong_statement_does_not_end_the_shell(shell: Shell, made_once: Path) -> None:
    typed = ["branch", "branch create", "explain return { 1 as n }", "set x = 3", "return { 1 as n }"]
    shown = shell(typed, "--format", "csv", "--store", str(made_once))
    assert (shown.code, shown.lines) == (1, ["n", "1"])
    assert shown.err.count("Error: ") == len(typed) - 1


def test_a_condition_is_refused_beside_a_statement(cli: Cli, made_once: Path) -> None:
    refused = cli(
        "mutate", "-e", "branch create x", "--if-commit", "01M7GW98VK00000019F8ZGQ2TW", "--store", str(made_once)
    )
    assert (refused.code, "stands alone: leave out a commit" in refused.err) == (1, True)


def test_a_query_may_be_called_like_a_statement(shell: Shell, made_once: Path) -> None:
    Path("b.gq").write_text("query branch() { return { 1 as n } }\nquery explain() { return { 2 as n } }")
    shown = shell(["branch", "explain"], "--format", "ndjson", "--query", "b.gq", "--store", str(made_once))
    assert (shown.code, shown.lines) == (0, ['{"n":1}', '{"n":2}'])


def test_a_file_of_queries_holds_no_statement(cli: Cli, shell: Shell, made_once: Path) -> None:
    Path("s.gq").write_text("branch list")
    Path("schema.pg").write_text(SCHEMA)
    refused = shell([], "--query", "s.gq", "--store", str(made_once))
    assert (refused.code, "Q004: a statement is not a query" in refused.err) == (1, True)
    linted = cli("lint", "--schema", "schema.pg", "--query", "s.gq", "--json")
    assert (linted.code, linted.json["findings"][0]["code"]) == (1, "Q000")
    assert cli("query", "--query", "s.gq", "--format", "csv", "--store", str(made_once)).lines == ["name", "main"]


def test_the_parameters_of_an_explained_query_are_typed(cli: Cli, made_once: Path) -> None:
    text = "explain query q($only: Bool) { match { $r: Reader  $only } return { $r.card as card } }"
    shown = cli("query", "-e", text, "--param", "only=true", "--format", "ndjson", "--store", str(made_once))
    assert (shown.code, json.loads(shown.lines[0])["node"]) == (0, "Project")


def test_a_policy_decides_statements_like_commands(
    cli: Cli, made_once: Path, config: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = Rules({"ana": EVERYTHING, "rob": ["read", "change"]})
    tokens = {"ana": "t-ana", "rob": "t-rob"}
    with Graph.open(made_once) as graph, faultless({"kb": graph}, tokens=tokens, gates={"kb": rules}) as server:
        monkeypatch.setenv("OMNIGRAPH_BEARER_TOKEN", "t-rob")
        refused = cli("mutate", "-e", "branch create mine", "--server", server.graph())
        command = cli("branch", "create", "mine", "--server", server.graph())
        listed = cli("query", "-e", "branch list", "--format", "csv", "--server", server.graph())
    assert refused.err == "Error: policy denied action 'branch_create' for actor 'rob'\n"
    assert (refused.code, refused.err.splitlines()) == (command.code, command.err.splitlines()[-1:])
    assert listed.lines == ["name", "main"]
