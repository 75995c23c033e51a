"""The page about policy and its example say the same, and both are run."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph
from omnigraph.api.enums import PolicyAction
from omnigraph.api.governance import AccessRequest
from omnigraph.cli.main import run
from omnigraph.language.catalog import Catalog
from omnigraph.language.query import ir
from omnigraph.language.schema.compile import compile_schema
from omnigraph.policy.bundle import read_bundle
from omnigraph.policy.explanation import read_cases, run_cases
from omnigraph.policy.gate import PolicyGate, load_gate
from omnigraph.policy.visibility import resolve_restrictions
from tests.support.clusters import make_cluster

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "policy"
PAGE = (ROOT / "docs" / "user" / "policy.md").read_text("utf-8")


@pytest.fixture(scope="module")
def gate() -> PolicyGate:
    return load_gate((EXAMPLE / "team.policy.yaml").read_text("utf-8"), "graph", "team.policy.yaml", "kb")


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return compile_schema((EXAMPLE / "schema.pg").read_text("utf-8"), "schema.pg")


def test_the_example_keeps_its_own_tests(gate: PolicyGate) -> None:
    report = run_cases(gate, read_cases((EXAMPLE / "team.tests.yaml").read_text("utf-8"), "team.tests.yaml"))
    assert report.lines() == ("policy tests passed: 21 cases",)


def test_every_rule_of_the_example_is_tried(gate: PolicyGate) -> None:
    """A rule that no case needs is a rule that nobody has thought about."""
    cases = read_cases((EXAMPLE / "team.tests.yaml").read_text("utf-8"))
    allowing = {rule.id for case in cases for rule in gate.allowing_rules(case.actor, case.request)}
    assert {rule.id for rule in gate.bundle.rules} == allowing


def test_the_example_fits_its_schema(gate: PolicyGate, catalog: Catalog) -> None:
    resolve_restrictions(gate.bundle, catalog)
    read = AccessRequest(PolicyAction.READ, "main")
    research = gate.visibility("agent-research", read, catalog)
    assert research.of(catalog.nodes["Person"]).masked == {"email", "salary"}
    notes = research.of(catalog.nodes["Note"]).rows
    assert isinstance(notes, ir.Or)
    assert len(notes.operands) == 3
    assert gate.visibility("agent-review", read, catalog).of(catalog.nodes["Person"]).masked == {"salary"}
    assert gate.visibility("lea", read, catalog).is_unrestricted


def blocks(language: str) -> Iterator[str]:
    return (found[1] for found in re.finditer(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))


def test_the_rules_on_the_page_are_those_of_the_example() -> None:
    whole, *excerpts = blocks("yaml")
    shown = read_bundle(whole)
    example = (EXAMPLE / "team.policy.yaml").read_text("utf-8")
    bundle = read_bundle(example)
    assert set(shown.rules) <= set(bundle.rules)
    plain = re.sub(r"^ *#.*\n", "", example, flags=re.MULTILINE)
    tests = (EXAMPLE / "team.tests.yaml").read_text("utf-8")
    for excerpt in excerpts:
        assert len(excerpt.splitlines()) > 1
        for rule in re.split(r"^(?=  - )", excerpt, flags=re.MULTILINE):
            assert rule in plain or rule in tests


def commands() -> Iterator[tuple[str, list[str]]]:
    for block in blocks("console"):
        for command, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
            yield command, output.splitlines()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cluster with the example applied to its graph, and the example's files beside it."""
    folder = tmp_path_factory.mktemp("kb")
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True)
    schema, rules = ((EXAMPLE / name).read_text("utf-8") for name in ("schema.pg", "team.policy.yaml"))
    made = make_cluster(folder, {"kb": schema}, {}, policies={"team": (rules, ("graph.kb",))})
    with omnigraph.open(made.graph_uri("kb")) as graph:
        graph.load((EXAMPLE / "records.ndjson").read_text("utf-8"), mode="append")
    return folder


def test_the_program_of_the_page_sees_what_its_actor_sees(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (program,) = blocks("python")
    monkeypatch.chdir(cluster)
    with omnigraph.init("kb.omni", (EXAMPLE / "schema.pg").read_text("utf-8")) as graph:
        graph.load((EXAMPLE / "records.ndjson").read_text("utf-8"), mode="append")
    names: dict[str, object] = {}
    exec(compile(program.replace("    kb.query", "    rows = kb.query"), "policy.md", "exec"), names)
    assert len(names["rows"]) == 2  # type: ignore[arg-type]


@pytest.mark.parametrize(("command", "output"), list(commands()))
def test_what_the_page_prints_is_what_comes_out(
    cluster: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    output: list[str],
) -> None:
    monkeypatch.chdir(cluster)
    monkeypatch.setenv("OMNIGRAPH_HOME", str(cluster / "operator"))
    program, *arguments = shlex.split(command)
    assert program == "omnigraph"
    assert run(arguments) == 0
    assert capsys.readouterr().out.splitlines() == output
