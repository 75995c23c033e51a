"""`omnigraph shell`: what a statement is, what Tab offers, what statements do; and a person at a real terminal."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any

import pexpect
import pytest

from omnigraph import Graph
from omnigraph.cli.shell_session import Names, as_query, statements
from tests.cli.conftest import QUERIES, SCHEMA, Cli, Outcome
from tests.support.waiting import wait_until


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("match { $p: P } return { $p }\n", ["match { $p: P } return { $p }"]),
        ("match {\n$p: P }\nreturn { $p }\nlimit 1\n\nq\n", ["match {\n$p: P }\nreturn { $p }\nlimit 1", "q"]),
        ("match {\n$p: P } return\n{ $p };\nq\n", ["match {\n$p: P } return\n{ $p }", "q"]),
        ("query a()\n{ match { $p: P }\n}\n:help\n", ["query a()\n{ match { $p: P }\n}", ":help"]),
        ("\n\n  :branch x  \n", [":branch x"]),
        ('insert P { name: "a;{" }\n', ['insert P { name: "a;{" }']),
        ('insert P { name: "a" };\n', ['insert P { name: "a" }']),
        ("// only a remark\nq\n", ["// only a remark\nq"]),
        ("match {\n$p: P\n", ["match {\n$p: P"]),
        (":params {\"a;\": 1};\n", [":params {\"a;\": 1};"]),
    ],
)  # fmt: skip
def test_where_a_statement_ends(typed: str, expected: list[str]) -> None:
    assert list(statements(io.StringIO(typed))) == expected


def test_the_body_of_a_query_is_a_query() -> None:
    assert as_query("match { $p: P } return { $p }") == "query shell() { match { $p: P } return { $p } }"
    assert as_query("query q() { }") == "query q() { }"


@pytest.mark.parametrize(
    ("before", "word", "offered"),
    [
        ("", ":b", [":branch"]),
        (":branch ", "ma", ["main"]),
        (":format ", "js", ["json", "jsonl"]),
        (":schema ", "Ci", ["City"]),
        ("match { $p: ", "Pe", ["Person"]),
        ("match { $p: Person } return { ", "$p.a", ["$p.age"]),
        ("match { $p: Person } return { ", "$", ["$p"]),
        ("match { $p ", "li", ["limit", "livesIn"]),
        ("match { $p $e: livesIn $c } return { ", "$e.", ["$e.since"]),
        ("match { $p: Person { ", "na", ["name"]),
        ("insert Person { ", "le", ["level"]),
        (":explain match { $p: ", "Ci", ["City"]),
        ("", "by", ["by_name"]),
        ("match { ", "by", []),
    ],
)
def test_tab_offers_what_fits(before: str, word: str, offered: list[str]) -> None:
    commands: dict[str, Any] = {
        ":branch": ("create",),
        ":format": ("json", "jsonl", "kv"),
        ":schema": (),
        ":explain": (),
    }
    names = Names(lambda: SCHEMA, lambda: ["main", "work"], lambda: ["by_name"], commands)
    assert names.complete(before, word) == offered


def test_a_schema_that_does_not_compile_does_not_disturb_typing() -> None:
    names = Names(lambda: "node {", list, list, {})
    assert names.complete("match { $p: ", "Pe") == []


@pytest.fixture
def piped(cli: Cli, g: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(text: str, *flags: str) -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        return cli("shell", g, *flags)

    return run


def test_piped_statements_run_in_order_on_one_branch(piped: Any, g: str) -> None:
    done = piped(
        ":format csv\n:branch create work\n"
        'insert Person { name: "Zoe", age: 5 }\n'
        "match {\n$p: Person { age: 5 }\n}\nreturn { $p.name as n }\n\n"
        ":branch main\nmatch { $p: Person } return { count($p) as n }\n:branch\n",
        "--as",
        "me",
    )
    assert (done.code, done.err) == (0, "")
    assert done.lines == ["changed work: 1 node, 0 edges", "n", "Zoe", "n", "2", "* main", "  work"]
    with Graph.open(g) as graph:
        assert graph.commits("work").commits[0].actor_id == "me"


def test_queries_of_a_file_are_called_by_name(piped: Any) -> None:
    text = 'by_name name=Ada\nby_name {"name": "Ada"}\n:params {"name": "Ada"}\nby_name\n'
    done = piped(text, "--query", "q.gq", "--format", "csv")
    assert (done.code, done.lines) == (0, ["age", "36"] * 3)
    listed = piped(":queries\n", "--query", "q.gq").lines
    assert "read     by_name($name)" in listed
    assert "mutation add($name, $age)" in listed


def test_an_error_ends_a_statement_and_not_the_shell(piped: Any) -> None:
    done = piped(
        "match { $p: Persn } return { $p }\n:branch nope\n:at 99\n:at never\n:format xml\n:bransh\nq\n"
        "by_name age\nby_name name=A $name=B\n:schema Nope\n"
        ':params [\n{ $p }\n:at 1\ninsert Person { name: "X" }\n:at now\n'
        "match { $p: Person } return { count($p) as n }\n",
        "--format",
        "csv",
        "--query",
        "q.gq",
    )
    assert done.code == 2  # of the failures the one with the highest exit code
    assert done.lines == ["n", "2"]
    errors = [line for line in done.err.splitlines() if line.startswith("Error:")]
    fragments = (
        *("Persn", "branch 'nope' not found", "versions 1 to 2", "not a point in time", "'xml' is not a format"),
        *(
            "there is no :bransh; did you mean ':branch'?",
            "'q' is not a query",
            "'age' is not an argument",
            "the parameter 'name' is given twice",
            "no type 'Nope'",
        ),
        *(":params is not JSON", "", "the past can't be changed"),
    )
    assert len(errors) == len(fragments)
    for fragment, error in zip(fragments, errors, strict=True):
        assert fragment in error


def test_the_plan_the_profile_and_the_schema(piped: Any) -> None:
    read = "match { $p: Person } return { $p.name }"
    done = piped(f":explain {read}\n:profile {read}\n:schema City\n")
    assert done.code == 0
    assert "  Scan $p: Person  (about 2 rows)" in done.lines
    assert done.lines[-1] == "node City { name: String @key }"
    assert "Scan $p: Person  [2 rows" in done.err


@pytest.mark.parametrize("word", [":quit", "quit", "exit"])
def test_quit_ends_it(word: str, piped: Any) -> None:
    assert piped(f"{word}\nnonsense {{\n").code == 0


@pytest.mark.parametrize("word", [":help", "help", "?"])
def test_help_lists_the_commands(word: str, piped: Any) -> None:
    shown = piped(f"{word}\n").out
    for command in (":branch", ":at", ":schema", ":queries", ":params", ":explain", ":profile", ":format", ":quit"):
        assert command in shown


def test_a_missing_branch_is_known_at_once(piped: Any) -> None:
    refused = piped(":help\n", "--branch", "nope")
    assert (refused.code, refused.out) == (1, "")
    assert "branch 'nope' not found" in refused.err


# ---- a terminal


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at a process through /proc")
def test_a_person_at_a_terminal(g: str, tmp_path: Path) -> None:
    """A process of its own, because it needs a terminal that is its own too."""
    with Graph.open(g) as graph:
        graph.load("".join(f'{{"type":"City","data":{{"name":"c{i}"}}}}\n' for i in range(400)), mode="append")
    Path("q.gq").write_text(QUERIES)
    environment = {**os.environ, "OMNIGRAPH_HOME": str(tmp_path / "operator"), "TERM": "dumb", "COLUMNS": "100"}
    command = ["-m", "omnigraph.cli.main", "shell", g, "--query", "q.gq"]
    shell = pexpect.spawn(sys.executable, command, env=environment, encoding="utf-8", timeout=300)
    prompt = "main> "
    shell.expect_exact("(direct, local); :help, or Ctrl-D to leave")
    shell.expect_exact(prompt)
    shell.send("match { $p: Pers\t")  # Tab completes the type, and the bracket below closes it
    shell.expect_exact("Person")
    shell.sendline(" }")
    shell.expect_exact(prompt)  # a read without `return`: an error, and the shell goes on
    shell.sendline("match {")
    shell.expect_exact("…> ")
    shell.sendintr()  # drops what was begun
    shell.expect_exact(prompt)
    shell.sendline("by_name name=Ada")
    shell.expect_exact("36")
    shell.expect_exact(prompt)
    before = cpu_seconds(shell.pid)
    shell.sendline("match { $a: City $b: City $c: City $a.name < $b.name $b.name < $c.name } return { count($a) as n }")
    wait_until(lambda: cpu_seconds(shell.pid) > before + 0.1, "the query is running")
    shell.sendintr()
    shell.expect_exact("cancelled")
    shell.expect_exact(prompt)
    shell.sendline(":branch create work")
    shell.expect_exact("work> ")
    shell.sendeof()
    shell.expect(pexpect.EOF)
    shell.close()
    assert shell.exitstatus == 0
    history = tmp_path / "operator" / "shell_history"
    assert "by_name name=Ada" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0
