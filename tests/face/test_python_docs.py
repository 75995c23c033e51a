"""The Python guide does what it shows, and the reference is what the docstrings say."""

from __future__ import annotations

import inspect
import re
import runpy
from pathlib import Path

import pytest

import omnigraph
from omnigraph.client.streams import NeedsStorage
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
    "name", ["Graph", "Branch", "RemoteGraph", "AsyncRemoteGraph", "Query", "Queries", "QueryResult", "QueryStream"]
)
def test_every_method_that_users_call_is_in_the_reference(name: str) -> None:
    """One without a docstring would be left out. Storage is nothing that a client works on."""
    internal = runpy.run_path(str(DOCS / "python_api.py"))["INTERNAL"]
    needs_storage = vars(NeedsStorage) if name.endswith("RemoteGraph") else {}
    kind = getattr(omnigraph, name)
    members = {each: inspect.getattr_static(kind, each) for each in dir(kind) if not each.startswith("_")}
    called = {each for each, value in members.items() if callable(value) or isinstance(value, property)}
    silent = {each for each in called if not inspect.getdoc(getattr(kind, each))}
    assert silent <= {*internal, *needs_storage, "typed_columns"}


def test_links_of_the_guide_lead_somewhere() -> None:
    for target, anchor in re.findall(r"\]\(([\w.-]+\.md)(?:#([\w-]+))?\)", GUIDE):
        text = (DOCS / "user" / target).read_text(encoding="utf-8")
        headings = {
            re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-") for h in re.findall(r"^#+ (.*)", text, re.M)
        }
        assert not anchor or anchor in headings, f"{target}#{anchor}"
