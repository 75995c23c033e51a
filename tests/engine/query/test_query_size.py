"""A query of any size gets its answer or an error that names the limit, and the process lives on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph import Graph, Limits, QueryLimits
from omnigraph.engine.query.operators import pushdown
from omnigraph.engine.write.change import RequestDigest
from omnigraph.errors import BadRequestError, CompileError
from omnigraph.storage.tables.memory.columns import COLUMNS
from tests.engine.oversized import ANSWERED, SCHEMA, nested, read
from tests.support.processes import Process

EXPECTED = {
    "tests": "limit error query_clauses",
    "traversals": "limit error query_depth",
    "negations": "limit error query_depth",
    "negations in negations": "Q005 brackets_are_nested_deeper_than_64_levels",
    "columns": "limit error query_bytes",
    "sort keys": "limit error query_clauses",
    "lists in lists": "Q005 brackets_are_nested_deeper_than_64_levels",
    "parentheses": "Q005 brackets_are_nested_deeper_than_64_levels",
    "nots": "Q005 operators_are_nested_deeper_than_64_levels,_of_which_each_'not'_is_one",
    "a long sum": "Q005 operators_are_nested_deeper_than_64_levels,_of_which_each_'+'_is_one",
    "a long text": "limit error query_bytes",
    "a long name": "limit error query_bytes",
    "a plan": "599",
    "a profile": "True",
    **dict.fromkeys(ANSWERED, "answered"),
    **{f"{way} {kind}": "BadRequestError" for kind in ("list", "dict") for way in ("parameter", "written parameter")},
    **{f"record {kind} {number}": "ConstraintError" for kind in ("list", "dict") for number in (0, 1)},
    "done": "20",
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with Graph.init(tmp_path_factory.mktemp("small") / "g", SCHEMA) as graph:
        graph.load(
            '{"type": "P", "data": {"slug": "a", "age": 1}}\n{"type": "P", "data": {"slug": "b"}}', mode="append"
        )
        yield graph


def test_nothing_that_is_asked_for_ends_the_process(tmp_path: Path) -> None:
    process = Process("tests.engine.oversized", str(tmp_path / "g"))
    said = [line.strip() for line in process.stdout]
    process.wait()
    assert process.returncode == 0, (said, process.errors())
    assert said == [f"{name} {outcome}" for name, outcome in sorted(EXPECTED.items(), key=lambda e: _at(e[0], said))]


def _at(name: str, said: list[str]) -> int:
    return next((i for i, line in enumerate(said) if line.startswith(name + " ")), len(said))


@pytest.mark.parametrize(
    ("limits", "text", "message", "place"),
    [
        (QueryLimits(clauses=3), read("$p: P  $p.age = 1\n$p.age = 2"), "query_clauses: 4 ", (2, 23)),
        (QueryLimits(literals=1), read("$p: P  $p.age = 1\n  $p.age = 2"), "query_literals: 2 literals", (2, 12)),
        (QueryLimits(depth=1), read("$p: P\n$q: P"), "query_depth: 2 bindings", (2, 1)),
        (QueryLimits(bytes=60), read("$p: P\n// ééééééééééé\n"), "query_bytes: the text has 65 bytes", (3, 25)),
    ],
)
def test_a_limit_is_named_with_its_place_and_its_setting(
    graph: Graph, limits: QueryLimits, text: str, message: str, place: tuple[int, int]
) -> None:
    with pytest.raises(CompileError) as raised:
        graph.with_limits(Limits(query=limits)).query(text)
    finding = raised.value.diagnostics[0]
    assert finding.message.startswith(message)
    assert finding.span is not None
    assert (finding.span.line, finding.span.column) == place
    field = message.partition(":")[0].removeprefix("query_")
    assert f"`omnigraph serve --query-{field}`, `QueryLimits.{field}` in Python" in (finding.suggestion or "")
    assert graph.query(text).columns, "the limits of one handle are not those of another"


@pytest.mark.parametrize("name", ["bytes", "clauses", "literals", "depth"])
def test_a_limit_that_is_not_a_number_of_things_is_refused(name: str) -> None:
    for wrong in (-1, 2.5, "9", None, True):
        with pytest.raises(BadRequestError, match=f"QueryLimits.{name} must be a whole number of at least 0"):
            QueryLimits(**{name: wrong})
    assert getattr(QueryLimits(**{name: 0}), name) == 0


def test_a_limit_is_the_same_for_a_mutation(graph: Graph) -> None:
    limited = graph.with_limits(Limits(query=QueryLimits(clauses=1)))
    with pytest.raises(CompileError, match="query_clauses: 2 "):
        limited.mutate('query q() { insert P { slug: "x" } insert P { slug: "y" } }')


def test_the_most_selective_tests_go_into_a_scan_that_can_take_few(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pushdown, "MOST_TERMS", 2)
    plan = graph.explain(read('$p: P  $p.age != 7  $p.age < 9  $p.age > 0  $p.slug = "a"'))
    assert [line.strip() for line in plan if "scan" in line or "values" in line] == [
        "in the scan: `age` < 9 AND `slug` = 'a'",
        "on values: 2 predicates",
    ]
    assert graph.query(read('$p: P  $p.age != 7  $p.age < 9  $p.age > 0  $p.slug = "a"')).rows() == [{"p.slug": "a"}]


def test_what_a_scan_is_told_stays_short(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(COLUMNS, "limit", 0)
    COLUMNS.clear()
    many = read("$p: P " + " ".join(f"$p.age != {i + 5}" for i in range(2_000)))
    in_scan = next(line for line in graph.explain(many) if "in the scan" in line)
    assert in_scan.count("!=") == pushdown.MOST_TERMS
    long = read(f'$p: P  $p.name != "{"x" * pushdown.MOST_CHARACTERS}"')
    assert not any("in the scan" in line for line in graph.explain(long))


def test_a_request_that_is_nested_too_deeply_to_be_recognised_again_is_refused() -> None:
    with pytest.raises(BadRequestError, match="nested too deeply"):
        RequestDigest("mutation", nested(5_000, list))
