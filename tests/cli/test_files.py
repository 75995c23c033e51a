"""The commands that work on files: lint, fmt, schema plan, version; run as a person would run them."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from omnigraph import __version__
from omnigraph.cli.main import run
from omnigraph.graph import Graph
from omnigraph.process import without_collections

SCHEMA = "node Book { isbn: String @key  title: String?  price: F64? }\n"
QUERIES = "query by_isbn($i: String) { match { $b: Book { isbn: $i } } return { $b.title } }\n"


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Writes a file into the working directory of the command."""
    monkeypatch.chdir(tmp_path)

    def write_file(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write_file


Write = Callable[[str, str], Path]
Capture = pytest.CaptureFixture[str]


# -- the program itself


def omnigraph(*arguments: str, cwd: Path | None = None, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "omnigraph.cli.main", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        input=stdin,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        check=False,
    )


def test_help_comes_on_stdout_and_ends_with_the_legend() -> None:
    done = omnigraph("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "COMMANDS BY CAPABILITY" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["load", "--help"],
        ["load"],
        ["nonsense"],
        ["query", "--as", "me", "-e", "x"],
        ["snapshot"],
        ["version"],
    ],
)
def test_help_and_wrong_usage_load_nothing_heavy(arguments: list[str], tmp_path: Path) -> None:
    program = f"""
import sys
from omnigraph.cli.main import run
run({arguments!r})
heavy = ("lark", "msgspec", "pydantic", "rich", "lance", "pyarrow", "numpy", "obstore")
print([m for m in heavy if m in sys.modules])
"""
    environment = {**os.environ, "OMNIGRAPH_HOME": str(tmp_path)}
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
    )
    assert loaded.stdout.strip().splitlines()[-1] == "[]"


def test_the_list_of_commands_imports_none_of_them() -> None:
    program = "import sys; from omnigraph.cli.main import run; run(['--help'])\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = done.stdout.splitlines()[-1].split()
    assert [name for name in loaded if name.startswith("omnigraph.cli.commands")] == []
    assert {name for name in loaded if name.startswith("omnigraph.") and ".cli" not in name} == {
        "omnigraph.errors",
        "omnigraph.api",
        "omnigraph.api.enums",
        "omnigraph.process",
    }


def test_listing_branches_loads_few_modules_and_no_lance(tmp_path: Path) -> None:
    (tmp_path / "s.pg").write_text(SCHEMA)
    assert omnigraph("init", "--schema", "s.pg", "graph", cwd=tmp_path).returncode == 0
    program = "import sys; from omnigraph.cli.main import run; run(['branch', 'list', 'graph'])\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    branch, loaded = done.stdout.splitlines()
    names = loaded.split()
    assert branch == "main"
    assert {"lance", "pyarrow", "numpy", "pandas", "lark"}.isdisjoint(names)
    assert len([name for name in names if name.split(".")[0] == "omnigraph"]) <= 60


COMMANDS_OF_THE_LOG = """
import sys
from omnigraph.cli.main import run
heavy = {"lance", "pyarrow", "numpy", "pandas", "lark"}
for command in ("branch list --verbose", "branch create x", "branch delete x --yes", "commit list", "commit list --dag",
                "commit list --json", "commit show " + sys.argv[1], "schema show", "snapshot", "snapshot --json"):
    print("##", run([*command.split(), "--store", "graph"]), command, sorted(heavy & sys.modules.keys()))
print("##", len([name for name in sys.modules if name.split(".")[0] == "omnigraph"]))
"""


def test_what_is_in_the_log_alone_is_shown_and_changed_without_lance(tmp_path: Path) -> None:
    (tmp_path / "s.pg").write_text(SCHEMA)
    assert omnigraph("init", "--schema", "s.pg", "graph", cwd=tmp_path).returncode == 0
    with Graph.open(tmp_path / "graph") as graph:
        commit = graph.branch("main").head()
    program = [sys.executable, "-c", COMMANDS_OF_THE_LOG, commit]
    done = subprocess.run(program, capture_output=True, text=True, check=True, cwd=tmp_path)
    *commands, modules = [line.removeprefix("## ") for line in done.stdout.splitlines() if line.startswith("## ")]
    assert [line for line in commands if not (line.startswith("0 ") and line.endswith("[]"))] == [], done.stderr
    assert len(commands) == 10
    assert int(modules) <= 100


QUERY_AND_REPORT = """
import atexit, sys
from omnigraph.cli.main import main
atexit.register(lambda: print("too late"))
try:
    main(["query", "-e", "query n() { match { $b: Book } return { count($b) as n } }", "--store", sys.argv[1]])
finally:
    atexit.register(lambda: print("pandas" in sys.modules, end=""))
"""


def test_a_command_in_its_own_process_leaves_pandas_out_and_ends_quickly(tmp_path: Path) -> None:
    """Exit functions that a command registers still run, and their output arrives; the modules are not taken apart,
    which is why a function that was registered before the command does not run."""
    (tmp_path / "s.pg").write_text(SCHEMA)
    assert omnigraph("init", "--schema", "s.pg", "graph", cwd=tmp_path).returncode == 0
    command = [sys.executable, "-c", QUERY_AND_REPORT, "graph"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "False"
    assert "too late" not in done.stdout


def test_pandas_can_still_be_used_after_arrow_was_imported_without_it() -> None:
    program = """
from omnigraph.process import PROCESS
PROCESS.take()
PROCESS.import_arrow()
import sys, pyarrow
assert not {"pandas", "dateutil"} & sys.modules.keys()
frame = pyarrow.table({"a": [1, None]}).to_pandas()
print(type(frame).__name__, pyarrow.Table.from_pandas(frame).num_rows)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "DataFrame 2\n"


def test_garbage_is_looked_for_again_after_an_import_unless_the_program_does_not_want_it() -> None:
    assert gc.isenabled()
    with without_collections():
        assert not gc.isenabled()
        with without_collections():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_process_of_somebody_else_keeps_pandas() -> None:
    program = "import sys, omnigraph.process as p; p.PROCESS.import_arrow(); print('pyarrow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_piped_run_end_to_end(tmp_path: Path) -> None:
    (tmp_path / "s.pg").write_text(SCHEMA)
    (tmp_path / "q.gq").write_text(QUERIES)
    done = omnigraph("lint", "--query", "q.gq", "--schema", "s.pg", cwd=tmp_path)
    assert done.returncode == 0
    assert "\x1b[" not in done.stdout
    assert done.stdout.splitlines()[0] == "OK    query `by_isbn` (read)"
    piped = omnigraph("fmt", "-", stdin="edge  E:A->B")
    assert (piped.returncode, piped.stdout) == (0, "edge E: A -> B\n")


def test_a_reader_that_goes_away_is_no_crash() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [sys.executable, "-m", "omnigraph.cli.main", "version"],
        stdout=write_end,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("flag", ["-v", "--version"])
def test_version_flag(flag: str, capsys: Capture) -> None:
    assert run([flag]) == 0
    assert capsys.readouterr().out == f"omnigraph {__version__}\n"


def test_the_format_version_is_that_of_the_storage() -> None:
    from omnigraph.cli.commands.setup import INTERNAL_SCHEMA_VERSION
    from omnigraph.storage.models import FORMAT_VERSION

    assert INTERNAL_SCHEMA_VERSION == FORMAT_VERSION


def test_version_command(capsys: Capture) -> None:
    assert run(["version"]) == 0
    assert capsys.readouterr().out == f"omnigraph {__version__}\ninternal-schema 6\n"
    assert run(["version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "version": __version__,
        "internal_schema_version": 6,
        "languages": {"gq": "3.0"},
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ["bogus"],
        ["lint"],
        ["lint", "--bogus"],
        ["schema"],
        ["schema", "plan"],
        ["fmt"],
        [],
        ["fmt", "--language", "sql", "-"],
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: Capture) -> None:
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(("Error:", "Usage:"))


# -- lint


def test_lint_reports_json(write: Write, capsys: Capture) -> None:
    write("s.pg", SCHEMA)
    write("q.gq", QUERIES + "query é() {}")
    write("ok.gq", QUERIES)
    assert run(["lint", "--query", "ok.gq", "--schema", "s.pg", "--json"]) == 0
    text = capsys.readouterr().out
    report = json.loads(text)
    assert report["status"] == "ok"
    assert report["schema_source"] == {"kind": "file", "path": "s.pg"}
    assert report["queries_processed"] == 1
    assert text.startswith('{\n  "status": "ok",\n')
    assert text.endswith("}\n")
    assert run(["lint", "--query", "q.gq", "--schema", "s.pg", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["findings"][0]["code"] == "Q000"


def test_lint_fails_on_a_query_that_does_not_typecheck(write: Write, capsys: Capture) -> None:
    write("s.pg", SCHEMA)
    write("q.gq", QUERIES.replace(": Book", ": Boo"))
    assert run(["lint", "--query", "q.gq", "--schema", "s.pg"]) == 1
    out = capsys.readouterr().out
    assert "ERROR query `by_isbn`: type error: T1" in out
    shown, caret = out.splitlines()[1:3]
    assert "$b: Boo" in shown
    assert (shown.index("Boo"), caret.strip()) == (caret.index("^"), "^^^")
    assert out.splitlines()[-1].startswith("INFO  Lint complete: 1 query processed (1 error(s), 0 warning(s)")
    write("q.gq", "queery")
    assert run(["lint", "--query", "q.gq", "--schema", "s.pg"]) == 1
    assert capsys.readouterr().out.splitlines()[:3] == [
        (
            "ERROR Q000: parse error: Q001: expected a statement, 'query' or the end of the file, found 'queery' "
            "(line 1, column 1)"
        ),
        "        queery",
        "        ^^^^^^",
    ]


def test_lint_shows_the_errors_of_two_queries_of_one_name_each_at_its_place(write: Write, capsys: Capture) -> None:
    write("s.pg", SCHEMA)
    write(
        "q.gq", "query q() { match { $b: Boo } return { $b } }\nquery q() { match { $b: Book } return { $b.tytle } }\n"
    )
    assert run(["lint", "--query", "q.gq", "--schema", "s.pg"]) == 1
    lines = capsys.readouterr().out.splitlines()
    heads = [number for number, line in enumerate(lines) if line.startswith("ERROR query `q`")]
    assert ["$b: Boo }" in lines[heads[0] + 1], "$b.tytle" in lines[heads[1] + 1]] == [True, True]


def test_lint_checks_a_schema_alone(write: Write, capsys: Capture) -> None:
    write("s.pg", SCHEMA)
    assert run(["lint", "--schema", "s.pg"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "OK    schema s.pg"
    write("s.pg", "node Book { isbn: Sting  title: Strang }")
    assert run(["lint", "--schema", "s.pg"]) == 1
    shown = capsys.readouterr().out.splitlines()
    assert shown[:4] == [
        "ERROR Q000: parse error: unknown type 'Sting' (line 1, column 19)",
        "        node Book { isbn: Sting  title: Strang }",
        "                          ^^^^^",
        "        help: did you mean 'String'?",
    ]
    assert shown[-1].startswith("INFO  Lint complete: 0 queries processed (2 error(s)")
    assert run(["lint", "--schema", "s.pg", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert [(f["severity"], f["code"]) for f in report["findings"]] == [("error", "Q000"), ("error", "Q000")]


def test_lint_keeps_matters_of_taste_for_those_who_ask(write: Write, capsys: Capture) -> None:
    write("s.pg", "node Book { isbn: String @key  title: String?  pages: I32? }")
    write("q.gq", "query t($i: String, $t: String) { update Book set { title: $t } where isbn = $i }")
    assert run(["lint", "--query", "q.gq", "--schema", "s.pg"]) == 0
    assert "L201" not in capsys.readouterr().out
    assert run(["lint", "--query", "q.gq", "--schema", "s.pg", "--pedantic"]) == 0
    assert "WARN  L201: Book.pages exists in schema" in capsys.readouterr().out


def test_lint_against_a_broken_schema_shows_the_schema_error(write: Write, capsys: Capture) -> None:
    write("s.pg", "node Book { isbn: Sting }")
    write("q.gq", QUERIES)
    assert run(["lint", "--query", "q.gq", "--schema", "s.pg"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("Error: s.pg:1:19: parse error: unknown type 'Sting'")
    assert "did you mean 'String'?" in captured.err


def test_lint_needs_a_schema(write: Write, capsys: Capture) -> None:
    write("q.gq", QUERIES)
    assert run(["lint", "--query", "q.gq"]) == 1
    assert "no graph addressed" in capsys.readouterr().err


def test_a_missing_file_is_named(write: Write, capsys: Capture) -> None:
    write("s.pg", SCHEMA)
    assert run(["lint", "--query", "absent.gq", "--schema", "s.pg"]) == 1
    assert capsys.readouterr().err == "Error: 'absent.gq' does not exist\n"


@pytest.mark.parametrize("old", [["check"], ["query", "lint"], ["query", "check"]])
def test_old_spellings_still_work_and_say_so(old: list[str], write: Write, capsys: Capture) -> None:
    write("s.pg", SCHEMA)
    write("q.gq", QUERIES)
    assert run([*old, "--query", "q.gq", "--schema", "s.pg"]) == 0
    captured = capsys.readouterr()
    assert captured.err == f"warning: `omnigraph {' '.join(old)}` is deprecated; use `omnigraph lint`\n"
    assert captured.out.startswith("OK    query `by_isbn` (read)")


# -- fmt

UGLY = "node A{a:I32 // why\n}"
NEAT = "node A {\n    a: I32  // why\n}\n"


def test_fmt_rewrites_files_in_place(write: Write, capsys: Capture) -> None:
    path, neat = write("a.pg", UGLY), write("b.pg", NEAT)
    assert run(["fmt", "a.pg", "b.pg"]) == 0
    assert path.read_text() == NEAT
    assert neat.read_text() == NEAT
    assert capsys.readouterr().out == "formatted a.pg\n"


def test_fmt_walks_directories_and_knows_both_languages(write: Write, capsys: Capture) -> None:
    schema = write("in/deep/a.pg", UGLY)
    queries = write("in/q.gq", QUERIES)
    write("in/readme.md", "node A{}")
    assert run(["fmt", "in"]) == 0
    assert schema.read_text() == NEAT
    assert queries.read_text().startswith("query by_isbn($i: String) {\n")
    assert run(["fmt", "--check", "in"]) == 0


def test_fmt_check_changes_nothing(write: Write, capsys: Capture) -> None:
    path = write("a.pg", UGLY)
    assert run(["fmt", "--check", "a.pg"]) == 1
    assert capsys.readouterr().out == "would reformat a.pg\n"
    assert path.read_text() == UGLY


def test_fmt_diff_changes_nothing(write: Write, capsys: Capture) -> None:
    path = write("a.pg", UGLY)
    assert run(["fmt", "--diff", "a.pg"]) == 0
    assert "+    a: I32  // why" in capsys.readouterr().out.splitlines()
    assert path.read_text() == UGLY
    assert run(["fmt", "--diff", "--check", "a.pg"]) == 1


def test_fmt_reports_json(write: Write, capsys: Capture) -> None:
    write("a.pg", UGLY)
    write("bad.pg", "node A {")
    assert run(["fmt", "--check", "--json", "a.pg", "bad.pg"]) == 1
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert report["changed"] == 1
    assert report["files"][0] == {"path": "a.pg", "changed": True}
    assert "never closed" in report["files"][1]["error"]


def test_one_broken_file_does_not_stop_the_others(write: Write, capsys: Capture) -> None:
    broken, path = write("a.pg", "node A {"), write("b.pg", UGLY)
    assert run(["fmt", "a.pg", "b.pg"]) == 1
    assert broken.read_text() == "node A {"
    assert path.read_text() == NEAT
    assert "Error: a.pg:1:8: parse error" in capsys.readouterr().err


def test_fmt_refuses_other_files(write: Write, capsys: Capture) -> None:
    write("a.sql", "select 1")
    assert run(["fmt", "a.sql"]) == 1
    assert "neither a .pg nor a .gq file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("node A{}", [], "node A {}\n"),
        ("// c\nquery q() { delete A where b = 1 }", [], "// c\nquery q() {\n    delete A where b = 1\n}\n"),
        ("", ["--language", "gq"], ""),
    ],
)
def test_fmt_reads_stdin(
    text: str, options: list[str], expected: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(text.encode())))
    assert run(["fmt", *options, "-"]) == 0
    assert capsys.readouterr().out == expected


# -- schema plan


def test_schema_plan_between_files(write: Write, capsys: Capture) -> None:
    write("old.pg", SCHEMA)
    write("new.pg", 'node Book { isbn: String @key  name: String? @rename_from("title")  price: F64?  pages: I32? }')
    assert run(["schema", "plan", "--schema", "new.pg", "--from", "old.pg"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "schema plan for old.pg",
        "supported: yes",
        "- rename property 'Book.title' -> 'Book.name' on node 'Book'",
        "- add property 'Book.pages' (I32?) on node 'Book'",
    ]


def test_an_unsupported_plan_is_shown_and_is_no_failure(write: Write, capsys: Capture) -> None:
    write("old.pg", SCHEMA)
    write("new.pg", SCHEMA.replace("F64?", "F32?"))
    assert run(["schema", "plan", "--schema", "new.pg", "--from", "old.pg", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert list(plan) == ["uri", "supported", "step_count", "steps"]
    assert (plan["uri"], plan["supported"], plan["step_count"]) == ("old.pg", False, 1)
    assert plan["steps"][0]["code"] == "OG-MF-106"


def test_schema_plan_without_changes(write: Write, capsys: Capture) -> None:
    write("old.pg", SCHEMA)
    assert run(["schema", "plan", "--schema", "old.pg", "--from", "old.pg"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "no schema changes"


def test_schema_plan_notes_a_hint_that_is_not_needed(write: Write, capsys: Capture) -> None:
    write("old.pg", SCHEMA)
    write("new.pg", SCHEMA.replace("title: String?", 'title: String? @rename_from("name")'))
    assert run(["schema", "plan", "--schema", "new.pg", "--from", "old.pg"]) == 0
    captured = capsys.readouterr()
    assert captured.err.startswith("note: new.pg:1:")
    assert "no schema changes" in captured.out


def test_schema_plan_hard_drops(write: Write, capsys: Capture) -> None:
    write("old.pg", SCHEMA)
    write("new.pg", SCHEMA.replace("price: F64?", ""))
    assert run(["schema", "plan", "--schema", "new.pg", "--from", "old.pg", "--allow-data-loss"]) == 0
    assert "- drop property 'Book.price' of node 'Book' (hard mode)" in capsys.readouterr().out
