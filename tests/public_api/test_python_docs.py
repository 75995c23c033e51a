"""The Python guide does what it shows, and the reference is what the docstrings say."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

import omnigraph
from tests.server.running import running

DOCS = Path(__file__).resolve().parents[2] / "docs"
GUIDE = (DOCS / "user" / "python.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)


def test_the_script_for_new_users_runs_and_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(PROGRAMS[0], "python.md", "exec"), names)
    printed = capsys.readouterr().out.splitlines()
    shown = re.findall(r"^It prints\n\n```text\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)[0].splitlines()
    assert printed[:-1] == shown[:-1]
    assert printed[-1].split(" ")[1] == shown[-1].split(" ")[1] == "['2']"
    body = PROGRAMS[0].partition("with omnigraph")[2]
    assert len(body.splitlines()) <= 30


def test_a_handle_and_a_text_are_the_same_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program = PROGRAMS[0] + "\n" + 'g = omnigraph.open("library.omni")\n' + PROGRAMS[1] + "\nassert len(rows) == 2\n"
    exec(compile(program, "python.md", "exec"), {})


def test_the_same_code_works_behind_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(PROGRAMS[0], "python.md", "exec"), {})
    (remote,) = [program for program in PROGRAMS if "omnigraph.connect(" in program]
    with omnigraph.open("library.omni") as graph, running({"library": graph}) as server:
        exec(compile(remote.replace("https://graphs.example", server.url), "python.md", "exec"), {})
    assert "insert Book 3" in capsys.readouterr().out


def test_the_reference_is_up_to_date() -> None:
    page = runpy.run_path(str(DOCS / "python_api.py"))["page"]()
    stored = (DOCS / "user" / "python-api.md").read_text(encoding="utf-8")
    assert page == stored, "run ./dev docs"


@pytest.mark.parametrize(
    "name",
    [
        *("Graph", "Graph.schema", "Graph.changes", "Graph.maintenance", "Branch", "Snapshot"),
        *("RemoteGraph", "RemoteSnapshot", "AsyncRemoteGraph", "Query", "QueryResult", "QueryStream"),
    ],
)
def test_completion_shows_what_the_reference_tells(name: str) -> None:
    """A name that people are shown is explained to them; one that is not theirs has an underscore, or is gone."""
    section = re.search(rf"^### {re.escape(name)}\n(.*?)(?=^##)", REFERENCE, re.MULTILINE | re.DOTALL)
    assert section is not None
    told = set(re.findall(r"^\* \*\*`(\w+)", section[1], re.MULTILINE))
    shown = {each for each in dir(instance(name)) if not each.startswith("_")}
    assert {each for each in shown - told if f"`{each}`" not in section[1]} == set()
    fields = re.search(r"^Fields: (.*)\.$", section[1], re.MULTILINE)
    attributes = set() if fields is None else set(re.findall(r"`(\w+)`", fields[1]))
    assert told - shown - attributes <= SPECIAL


SPECIAL = {"__len__", "__iter__", "__getitem__", "__contains__", "__arrow_c_stream__"}
REFERENCE = (DOCS / "user" / "python-api.md").read_text(encoding="utf-8")


def instance(name: str) -> object:
    """Something of a public kind, or an area of a graph, to be completed."""
    owner, _, area = name.partition(".")
    made = object.__new__(getattr(omnigraph, owner))
    return getattr(made, area) if area else made


def test_queries_complete_to_their_names() -> None:
    found = omnigraph.queries("query books() { match { $b: Book } return { $b.title } }")
    assert [name for name in dir(found) if not name.startswith("_")] == ["books"]


DEPRECATED = {
    "schema_text": "schema.show",
    "plan_schema": "schema.plan",
    "apply_schema": "schema.apply",
    "commit_changes": "changes.page",
    "iter_commit_changes": "changes.of",
    "poll_changes": "changes.poll",
    "follow": "changes.follow",
    "capture_baseline": "changes.baseline",
    **{
        name: f"maintenance.{name}"
        for name in ("optimize", "ensure_indices", "cleanup", "maintain", "verify", "repair")
    },
}


@pytest.mark.parametrize("name", DEPRECATED)
def test_a_deprecated_name_works_with_a_warning_that_names_the_new_one(tmp_path: Path, name: str) -> None:
    with omnigraph.init(tmp_path / "g", "node Book { isbn: String @key }") as graph:
        assert name not in dir(graph)
        with pytest.warns(DeprecationWarning, match=rf"Graph\.{name} is deprecated .*; use Graph\.{DEPRECATED[name]}$"):
            old = getattr(graph, name)
        area, method = DEPRECATED[name].split(".")
        assert old.__func__ is getattr(type(getattr(graph, area)), method)
        if name == "schema_text":
            assert old() == graph.schema.show()


def test_a_deprecated_name_of_a_remote_graph_works_too() -> None:
    with omnigraph.connect("http://localhost:1", graph="g") as graph:
        with pytest.warns(DeprecationWarning, match=r"use Graph\.schema\.show"):
            assert graph.schema_text  # type: ignore[attr-defined]
        with pytest.raises(omnigraph.DirectAccessError, match="with_limits needs direct storage access"):
            graph.with_limits(None)


@pytest.mark.parametrize("name", ["query_at", "entity_at", "diff_commits", "load_file", "list_commits", "nothing"])
def test_names_that_are_gone_are_gone(tmp_path: Path, name: str) -> None:
    graph = omnigraph.init(tmp_path / "g", "node Book { isbn: String @key }")
    with graph, pytest.raises(AttributeError, match=f"'Graph' object has no attribute '{name}'"):
        getattr(graph, name)


def test_links_of_the_guide_lead_somewhere() -> None:
    for target, anchor in re.findall(r"\]\(([\w.-]+\.md)(?:#([\w-]+))?\)", GUIDE):
        text = (DOCS / "user" / target).read_text(encoding="utf-8")
        headings = {
            re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-") for h in re.findall(r"^#+ (.*)", text, re.M)
        }
        assert not anchor or anchor in headings, f"{target}#{anchor}"
