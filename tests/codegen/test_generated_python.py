"""Generated Python: checked by mypy and ruff, and run on graphs, where its rows say what untyped rows say."""

from __future__ import annotations

import importlib.util
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pydantic
import pytest

import omnigraph
from omnigraph import Graph
from omnigraph.api.enums import CodeStyle
from omnigraph.codegen.names import member_name
from omnigraph.codegen.python import write_python
from omnigraph.dates import format_datetime
from tests.codegen.programs import ENDS_SCHEMA, programs, random_programs
from tests.engine.query_graphs import mixed_graph
from tests.server.running import faultless
from tests.support.feature_queries import STORED, STORED_TEXT, WRITES, Example, Write, feature_graph, label

ROOT = Path(__file__).resolve().parents[2]
SYSTEM = {
    "@id": "entity_id",
    "@src": "source_id",
    "@src_type": "source_type",
    "@dst": "target_id",
    "@dst_type": "target_type",
}

pytestmark = pytest.mark.xdist_group("codegen")


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every program in both styles, and those that are for every feature with stored queries as well."""
    directory = tmp_path_factory.mktemp("modules")
    for name, program in programs().items():
        for style in CodeStyle:
            for stored in (False, True) if name in ("features", "awkward", "no_queries") else (False,):
                text = write_python(program, style=style, stored=stored)
                (directory / f"{name}_{style}{'_stored' if stored else ''}.py").write_text(text)
    return directory


def check(*command: str, cwd: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=cwd,
        env={"MYPYPATH": str(ROOT / "src"), "PATH": "", "HOME": str(cwd)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr


def test_the_formatter_would_change_nothing(modules: Path) -> None:
    check("ruff", "format", "--isolated", "--no-cache", "--diff", ".", cwd=modules)


def test_the_linter_finds_nothing(modules: Path) -> None:
    check("ruff", "check", "--isolated", "--no-cache", ".", cwd=modules)


USES = """\
import datetime

import features_dataclass as features
import features_dataclass_stored as stored
import omnigraph


def use(graph: omnigraph.Graph, remote: omnigraph.RemoteGraph) -> list[str]:
    row = features.objects(graph)[0]
    receipt: omnigraph.MutationReceipt = features.lend_all(graph.branch("b"), cards=[], day=datetime.date.today())
    features.page(graph.at(1), size=1, skip=0), features.page(remote.snapshot(), size=1, skip=0)
    features.forget_lost(remote), stored.forget_lost(remote), stored.states(graph, branch="b")
    status: features.BookStatus = "lost"
    seen = features.named(remote.branch("b"), q="a")[0].x
    age = seen.age if isinstance(seen, features.Reader) else seen.born
    return [row.r.name, receipt.branch, status, str(age)]
"""
MISUSES = """\
import features_dataclass as features
import omnigraph


def misuse(graph: omnigraph.Graph) -> None:
    features.page(graph, size="1", skip=0)
    features.page(graph, size=1)
    features.forget_lost(graph.at(1))
    features.objects(graph)[0].r.nom
    status: features.BookStatus = "gone"
"""


def test_types_are_strict_and_say_what_is_wrong(modules: Path) -> None:
    """One run of mypy, because it reads the whole package."""
    (modules / "uses.py").write_text(USES)
    (modules / "misuses.py").write_text(MISUSES)
    command = [
        "-m",
        "mypy",
        "--strict",
        "--config-file",
        str(ROOT / "pyproject.toml"),
        "--cache-dir",
        str(ROOT / ".mypy_cache"),
    ]
    files = sorted(each.name for each in modules.glob("*.py"))
    done = subprocess.run(
        [sys.executable, *command, *files],
        cwd=modules,
        env={"MYPYPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert [line.partition(" error:")[0] for line in lines] == [f"misuses.py:{line}:" for line in (6, 7, 8, 9, 10)]


def module(directory: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, directory / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    spec.loader.exec_module(made)
    return made


def untyped(value: Any) -> Any:
    """A typed value as a plain row has it, with members by the names of classes and in one order."""
    if is_dataclass(value):
        return untyped({each.name: getattr(value, each.name) for each in fields(value)})
    if isinstance(value, pydantic.BaseModel):
        return untyped({name: getattr(value, name) for name in type(value).model_fields})
    match value:
        case dict():
            named = {SYSTEM.get(name, member_name(name)): each for name, each in value.items() if name != "@type"}
            return {name: untyped(named[name]) for name in sorted(named)}
        case list():
            return [untyped(each) for each in value]
        case datetime():
            return format_datetime(int(value.timestamp() * 1000))
        case date():
            return value.isoformat()
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else f"{value}".replace("inf", "Infinity")
    return value


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with feature_graph(tmp_path_factory.mktemp("features") / "kb") as graph:
        yield graph


@pytest.mark.parametrize("style", CodeStyle)
@pytest.mark.parametrize("example", STORED, ids=label)
def test_typed_rows_say_what_untyped_rows_say(modules: Path, graph: Graph, example: Example, style: CodeStyle) -> None:
    function = getattr(module(modules, f"features_{style}"), example.name)
    assert untyped(function(graph, **example.params)) == untyped(example.rows)


def test_rows_are_typed_all_the_way_down(modules: Path, graph: Graph) -> None:
    features = module(modules, "features_dataclass")
    [row] = features.objects(graph)
    assert row.loan.on == date(2024, 1, 1)
    assert row.facts.author == row.authors[0] == features.Author(
        entity_id="ann", slug="ann", name="Ann", born=date(1950, 1, 2)
    )  # fmt: skip
    assert [type(row.x).__name__ for row in features.named(graph, q="a")] == ["Author", "Reader"]
    [way] = features.ways(graph, since=2)
    assert [node.name for node in way.way.nodes] == ["Rita", "Rob", "Rex"]
    assert math.isnan(features.calculated(graph)[0].nan)


@pytest.mark.parametrize("style", CodeStyle)
def test_random_reads(modules: Path, tmp_path: Path, style: CodeStyle) -> None:
    """Models of pydantic check their values as well: a null, or a value of another type than was said, would raise."""
    generated = module(modules, f"random_{style}")
    compared = 0
    with mixed_graph(tmp_path / "g", 3) as graph:
        for text, read in random_programs():
            name = text.partition("query ")[2].partition("(")[0]
            plain = graph.query(text, params=read.parameters).rows()
            typed = getattr(generated, name)(graph, **read.parameters)
            assert untyped(typed) == untyped(plain), text
            compared += 1
    assert compared > 60


@pytest.mark.parametrize("write", WRITES, ids=label)
def test_mutations(modules: Path, graph: Graph, write: Write) -> None:
    branch = graph.branch(f"py/{write.name}", create=True)
    params = {name: date.fromisoformat(value) if name == "day" else value for name, value in write.params.items()}
    function = getattr(module(modules, "features_dataclass"), write.name)
    receipt = function(branch, **params, idempotency_key="once")
    assert (receipt.affected_nodes, receipt.affected_edges) == write.counts
    assert branch.query(write.shown_by).rows() == write.rows
    assert function(branch, **params, idempotency_key="once").replayed


def test_handles_of_every_kind(modules: Path, graph: Graph) -> None:
    features, stored = module(modules, "features_dataclass"), module(modules, "features_dataclass_stored")
    expected = features.objects(graph)
    with faultless({"kb": graph}, queries=STORED_TEXT) as server:
        remote = omnigraph.connect(f"{server.url}/graphs/kb")
        for handle in (remote, remote.branch("main"), remote.snapshot(), graph.branch("main"), graph.snapshot()):
            assert features.objects(handle) == expected
        assert [row.name for row in stored.lost_books(remote, branch="main")] == ["Rex", "Rita", "Rob"]
        receipt = stored.register(remote, card="r8", if_commit=graph.branch("main").head())
    assert receipt.affected_nodes == 2


def test_a_query_runs_under_its_awkward_names(modules: Path, tmp_path: Path) -> None:
    from tests.codegen.programs import AWKWARD_SCHEMA

    for style in CodeStyle:
        awkward = module(modules, f"awkward_{style}")
        with Graph.init(tmp_path / style, AWKWARD_SCHEMA) as graph:
            graph.load(
                '{"type":"Any","data":{"id":"a"}}\n{"type":"Promise","data":{"entity_id":"p","int":9007199254740993}}\n'
                '{"type":"Error","data":{"message":"m","json":"007"}}\n{"edge":"Links","from":"a","to":"p"}',
                mode="append",
            )
            day = date(2031, 5, 4)
            [row] = awkward.class_(graph_=graph, graph="a", rows=9007199254740993, params=day, class_=[])
            assert (row.a.id, row.p.int_, row.it_s) == ("a", 9007199254740993, None)
            [error] = awkward.list_(graph)
            assert (error.row, error.text, error.deep[0][0].message) == ("007", "a`b${c}\\", "m")
            assert awkward.delete(graph, if_commit="a").affected_nodes == 1


@pytest.mark.parametrize("style", CodeStyle)
def test_an_end_that_is_an_interface_has_its_type(modules: Path, tmp_path: Path, style: CodeStyle) -> None:
    ends = module(modules, f"ends_{style}")
    with Graph.init(tmp_path / "g", ENDS_SCHEMA) as graph:
        graph.load(
            '{"type":"Post","data":{"slug":"a"}}\n{"type":"Photo","data":{"slug":"a"}}\n'
            '{"type":"Person","data":{"name":"p"}}\n{"edge":"Wrote","id":"w","from":"p","to":"a"}\n'
            '{"edge":"Likes","from":"p","to":"a","to_type":"Photo","data":{"source_type":"x"}}\n'
            '{"edge":"Likes","from":"p","to":"a","to_type":"Post"}\n'
            '{"edge":"Cites","id":"c","from":"a","from_type":"Post","to":"a","to_type":"Photo"}',
            mode="append",
        )
        first, second = ends.likes(graph)
        assert (first.e.target_id, first.e.target_type, first.e.source_type) == ("a", "Photo", "x")
        assert (second.e.target_type, type(second.x).__name__) == ("Post", "Post")
        cites, *_, wrote = (row.e for row in ends.every_edge(graph))
        assert (cites.source_id, cites.source_type, cites.target_id, cites.target_type) == ("a", "Post", "a", "Photo")
        assert (type(wrote).__name__, wrote.target_id, hasattr(wrote, "target_type")) == ("Wrote", "a", False)


PAGE = (ROOT / "docs" / "user" / "codegen.md").read_text()


def test_the_program_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from omnigraph.cli.main import run

    [program] = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert run(["quickstart", str(tmp_path / "first")]) == 0
    monkeypatch.chdir(tmp_path / "first")
    monkeypatch.syspath_prepend(tmp_path / "first")
    assert run(["codegen", "--schema", "schema.pg", "--query", "queries", "--output", "team.py"]) == 0
    assert run(["init", "--schema", "schema.pg", "--store", "team.omni"]) == 0
    assert run(["load", "--data", "data/team.jsonl", "--mode", "merge", "--store", "team.omni"]) == 0
    capsys.readouterr()
    exec(compile(program, "codegen.md", "exec"), {})
    assert capsys.readouterr().out.splitlines()[-1] == "1 2"
