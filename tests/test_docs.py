"""Runs what the documentation shows: every command of the documents listed below, in order, from nothing.

A `sh` block is a script. In a `console` block a line that starts with `$ ` is a command (continued after a backslash),
and the lines under it, if any, are what it prints: `…` stands for any text in a line, a line of `...` for any lines. A
command whose output starts with `Error:` must fail, every other one must succeed. A block after the comment
`<!-- not run -->` is left out, and so is a line that runs `./dev`: that is for a checkout of the sources, and what it
runs includes these tests. Variables and the working directory carry over from one step to the next.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path

import pytest

import omnigraph
from omnigraph import errors
from omnigraph.api import graph as graph_module
from omnigraph.errors import OmniGraphError
from omnigraph.server.settings import ServerLimits
from tests.support.warm_command import installed

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = (
    "README.md",
    "docs/user/quickstart.md",
    "docs/user/cluster.md",
    "docs/user/embeddings.md",
    "docs/user/install.md",
    "docs/user/modelling.md",
    "docs/user/codegen.md",
    "docs/user/backup-and-restore.md",
    "docs/user/upgrade.md",
    "docs/user/schema-evolution.md",
)

FENCED = re.compile(
    r"^(?P<skip><!-- not run[^>]*-->\s*\n)?```(?P<language>console|sh|bash|shell)\s*\n(?P<body>.*?)^```\s*$",
    re.MULTILINE | re.DOTALL,
)


CHECKOUT_ONLY = re.compile(r"^(?:\$ )?\./dev\b.*\n", re.MULTILINE)

# Every step is a shell of its own, which takes up where the one before it ended.
SESSION = """\
set -a
if [ -f "$SESSION_STATE" ]; then . "$SESSION_STATE"; cd "$PWD"; fi
trap 'export -p > "$SESSION_STATE"' EXIT
"""


@dataclass(frozen=True)
class Step:
    """One script to run, and the lines it is said to print (None when the document does not say)."""

    script: str
    shown: list[str] | None = None


def steps(text: str) -> Iterator[Step]:
    for block in FENCED.finditer(text):
        if block["skip"]:
            continue
        body = CHECKOUT_ONLY.sub("", block["body"])
        yield from _console(body) if block["language"] == "console" else [Step(body)] if body.strip() else []


def _console(body: str) -> Iterator[Step]:
    script, shown = "", list[str]()
    continued = False
    for line in body.splitlines():
        if continued or line.startswith("$ "):
            if not continued and script:
                yield Step(script, shown or None)
                script, shown = "", []
            script += line.removeprefix("$ ") + "\n"
            continued = line.endswith("\\")
        else:
            shown.append(line)
    if script:
        yield Step(script, shown or None)


def matches(shown: list[str], printed: list[str]) -> bool:
    pattern = ""
    for line in (line.rstrip() for line in shown):
        escaped = ".*".join(re.escape(part) for part in line.split("…"))
        pattern += r"(?:[^\n]*\n)*" if line == "..." else rf"{escaped}[^\S\n]*\n"
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in printed)) is not None


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with installed(tmp_path_factory.mktemp("bin") / "omnigraph") as program:
        yield program


@pytest.fixture
def shell(program: Path, tmp_path: Path) -> dict[str, str]:
    """An environment in which `omnigraph` is this source tree, and nobody's configuration is read."""
    return {
        **os.environ,
        "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "OMNIGRAPH_HOME": str(tmp_path / "operator"),
        "OMNIGRAPH_PROFILE": "",
        "SESSION_STATE": str(tmp_path / "session"),
    }


def test_the_command_line_starts_from_nothing(tmp_path: Path) -> None:
    """The documents are run by forks of a process that has the imports; here is one that has nothing."""
    (tmp_path / "s.pg").write_text("node Person { name: String @key }")
    command = [sys.executable, "-m", "omnigraph.cli.main", "init", "--schema", "s.pg", "g.omni"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMNIGRAPH_HOME": str(tmp_path / "operator")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "g.omni").is_dir()


def run(step: Step, environment: dict[str, str], work: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", SESSION + step.script],
        cwd=work,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("document", DOCUMENTS)
def test_what_the_documents_show_is_what_happens(document: str, shell: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    follow(document, shell, tmp_path / "work")


PROGRAMS = ("docs/user/writing-data.md", "docs/user/troubleshooting.md")


@pytest.mark.parametrize("document", PROGRAMS)
def test_the_programs_of_a_document_run(document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / document).read_text(encoding="utf-8")
    program = "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    exec(compile(program, document, "exec"), {})


EXAMPLES_ELSEWHERE = {
    "library": "tests/pipeline/test_demo.py",  # on the session of the tests that use Spark
    "policy": "tests/policy/test_policy_page.py",
}


@pytest.mark.parametrize("example", sorted(path.name for path in (ROOT / "examples").iterdir() if path.is_dir()))
def test_every_example_is_run(example: str, shell: dict[str, str], tmp_path: Path) -> None:
    if (test := EXAMPLES_ELSEWHERE.get(example)) is not None:
        assert f'"{example}"' in (text := (ROOT / test).read_text()) or f"examples/{example}" in text
        return
    shutil.copytree(ROOT / "examples" / example, tmp_path / "examples" / example)
    follow(f"examples/{example}/README.md", shell, tmp_path / "examples" / example)


def follow(document: str, shell: dict[str, str], work: Path) -> None:
    """Run the steps of a document, and compare what they print with what it shows."""
    for step in steps((ROOT / document).read_text(encoding="utf-8")):
        done = run(step, shell, work)
        fails = step.shown is not None and any(line.startswith("Error:") for line in step.shown)
        assert (done.returncode != 0) is fails, f"{step.script}exited with {done.returncode}:\n{done.stdout}"
        if step.shown is not None:
            assert matches(step.shown, done.stdout.splitlines()), f"{step.script}printed\n{done.stdout}"


def test_steps_share_variables_and_the_working_directory(shell: dict[str, str], tmp_path: Path) -> None:
    run(Step("mkdir sub; cd sub; name=Ada; export WHERE='a b'\n"), shell, tmp_path)
    assert run(Step('echo "$name $WHERE ${PWD##*/}"; exit 3\n'), shell, tmp_path).stdout == "Ada a b sub\n"
    assert run(Step("echo $name\n"), shell, tmp_path).stdout == "Ada\n"


def test_the_extractor_reads_both_kinds_of_blocks() -> None:
    text = (
        "```sh\n./dev test\n```\n```sh\na\n./dev demo  # all\nb\n```\n<!-- not run: installs -->\n```sh\nno\n```\n"
        "```console\n$ c \\\n  d\nout\n$ e\n```\n```python\nx\n```\n"
    )
    assert list(steps(text)) == [Step("a\nb\n"), Step("c \\\n  d\n", ["out"]), Step("e\n")]


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        (["a"], ["a"], True),
        (["a"], ["a", "b"], False),
        (["id …", "b"], ["id 42", "b"], True),
        (["a", "..."], ["a", "b", "c"], True),
        (["a", "...", "d"], ["a", "d"], True),
        (["a.c"], ["abc"], False),
        (["a"], ["a  "], True),
    ],
)
def test_what_counts_as_the_same_output(shown: list[str], printed: list[str], same: bool) -> None:
    assert matches(shown, printed) is same


SOURCES = ROOT / "src" / "omnigraph"
HOMES = (SOURCES, ROOT / "tests", ROOT / "benchmarks", ROOT / "docs")
FILES = sorted(
    path.relative_to(ROOT).as_posix() for home in HOMES for path in home.rglob("*") if "__pycache__" not in path.parts
)
PACKAGES = {path.name for path in SOURCES.rglob("*") if path.is_dir()}
FILE = re.compile(r"`(?:\.\./)*([\w*/.-]+\.py)(?:[:#][^`]*)?`")
MODULE = re.compile(r"`([a-z_]+(?:/[a-z_]+)+)/?`")
DOTTED = re.compile(r"`omnigraph((?:\.[A-Za-z_]+)+)(?:\(\))?`")


def is_file(name: str) -> bool:
    return any(fnmatch(f"/{path}", f"*/{name}") for path in FILES)


LOGS = {
    name for path in SOURCES.rglob("*.py") for name in re.findall(r'getLogger\("omnigraph([\w.]+)"\)', path.read_text())
}


def is_dotted(name: str) -> bool:
    """A module, a name that stands in one, or a log."""
    if name in LOGS:
        return True
    parts = name.strip(".").split(".")
    for end in range(len(parts), -1, -1):
        place = SOURCES.joinpath(*parts[:end])
        source = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        if source.exists():
            return all(re.search(rf"\b{part}\b", source.read_text()) for part in parts[end : end + 1])
    return False


def unknown_names(text: str) -> list[str]:
    """What a page calls a file, a module or a name of ours and is none."""
    modules = [name for name in MODULE.findall(text) if name.split("/")[0] in PACKAGES]
    return [
        *(name for name in FILE.findall(text) if not is_file(name)),
        *(name for name in modules if not (is_file(name) or is_file(f"{name}.py"))),
        *(f"omnigraph{name}" for name in DOTTED.findall(text) if not is_dotted(name)),
    ]


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_files_and_modules_that_exist(page: Path) -> None:
    assert unknown_names(page.read_text(encoding="utf-8")) == []


def test_the_pages_about_packages_leave_none_out() -> None:
    architecture = (ROOT / "docs" / "dev" / "architecture.md").read_text()
    packages = {path.name for path in SOURCES.iterdir() if (path / "__init__.py").exists()}
    assert set(re.findall(r"^  (\w+)/ ", architecture, re.MULTILINE)) == packages
    contract = (ROOT / "docs" / "dev" / "contract.md").read_text()
    modules = {path.stem for path in (SOURCES / "api").glob("*.py")} - {"__init__"}
    assert {name for name in modules if f"`{name}`" not in contract} == set()


def test_troubleshooting_names_every_error_class() -> None:
    page = (ROOT / "docs" / "user" / "troubleshooting.md").read_text()
    classes = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, OmniGraphError)}
    assert {kind.__name__ for kind in classes if f"`{kind.__name__}`" not in page} == set()
    rows = re.findall(r"^\| `(\w+Error)` \| (\d+) \|", page, re.MULTILINE)
    assert {name: int(status) for name, status in rows} == {
        kind.__name__: kind.http_status for kind in classes - {OmniGraphError}
    }


def test_the_page_about_limits_has_those_of_the_server() -> None:
    page = (ROOT / "docs" / "user" / "limits.md").read_text()
    rows = dict(re.findall(r"^\| `--([\w-]+)` \| ([^|]+?) \|", page, re.MULTILINE))
    assert rows == {name.replace("_", "-"): readable(name, limit) for name, limit in asdict(ServerLimits()).items()}


def readable(name: str, limit: float) -> str:
    """A limit as the page writes it: `4 GiB`, `60 s`, `16,384`."""
    if name.endswith("_bytes"):
        power = max(power for power in (10, 20, 30) if limit >= 1 << power)
        return f"{int(limit) >> power} {dict(zip((10, 20, 30), ('KiB', 'MiB', 'GiB'), strict=True))[power]}"
    if name.endswith("_seconds"):
        return f"{limit:g} s"
    return f"{limit / 1000:g} s" if name.endswith("_ms") else f"{limit:,}"


def test_deprecated_names_have_their_successors_on_the_page(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "user" / "upgrade.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| `([\w.]+)` \|$", page, re.MULTILINE))
    graph = omnigraph.init(tmp_path / "g.omni", "node Person { name: String @key }")
    for name, successor in rows.items():
        with pytest.warns(DeprecationWarning, match=rf"Graph\.{name} .*Graph\.{successor}$"):
            getattr(graph, name)
    assert set(graph_module._DEPRECATED) == set(rows)


def test_names_that_do_not_exist_are_found() -> None:
    known = (
        "`engine/workspace.py` `storage/log` `checks/rules` `omnigraph.open` `omnigraph.api.graph` `search/*.py` "
        "`a/b` `load/ndjson` `../output.py` `tests/torture` `omnigraph.errors.PolicyError`"
    )
    assert unknown_names(known) == []
    strange = "`lookup.py` `engine/publish.py` `storage/nothing` `omnigraph.engine.nowhere` `omnigraph.neverland`"
    assert unknown_names(strange) == [name.strip("`") for name in strange.split()]


LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    broken = [
        target for target in LINK.findall(page.read_text(encoding="utf-8")) if not (page.parent / target).exists()
    ]
    assert broken == []


def test_every_page_is_found_from_the_readme() -> None:
    found, waiting = set[Path](), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop().resolve()
        if page not in found and page.suffix == ".md":
            found.add(page)
            waiting += [page.parent / target for target in LINK.findall(page.read_text(encoding="utf-8"))]
    assert [page.name for page in PAGES if page.resolve() not in found] == []
