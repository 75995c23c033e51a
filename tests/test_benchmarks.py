"""The benchmarks ask every system the same: where answers differ, their times say nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks import wide_systems
from benchmarks.contest import Contender, NotOfferedError, Timed, installed, place
from benchmarks.graph_files import Questions, make_files
from benchmarks.graph_sql import Sqlite
from benchmarks.graph_stores import SYSTEMS
from benchmarks.graph_systems import IN_ORDER, READS, GraphSystem, meaning
from benchmarks.report import WARM, Goal, Report

PEOPLE = 60


def opened(contender: type[Contender], folder: Path) -> Contender:
    system = contender(place(contender, folder))
    system.build()
    system.open()
    return system


def in_one_process(contenders: tuple[type[Contender], ...]) -> list[type[Contender]]:
    """Those that are installed. The libraries of Ladybug and Kuzu can't be in one process; one class uses both."""
    systems = installed(contenders)
    return [c for c in systems if c.name != "kuzu" or not any(other.name == "ladybug" for other in systems)]


def test_every_system_reads_the_same_after_the_same_writes(tmp_path: Path) -> None:
    make_files(tmp_path, PEOPLE)
    questions = Questions(tmp_path)
    reads = {name: [questions.params(*READS[name]) for _ in range(3)] for name in READS}
    edges, changed, added = questions.new_edges(3), questions.changed_people(5), questions.new_people(3)
    first, second = questions.keys(2)
    answers = {}
    for contender in in_one_process(SYSTEMS):
        system = opened(contender, tmp_path)
        assert isinstance(system, GraphSystem)
        answers[system.name] = [ask_all(system, reads)]
        system.write("befriend", edges)
        system.write("age", [{"k": first, "a": 99}])
        system.write("remove", [{"k": second}])
        system.insert_people(added[:1])
        system.load_new_people(added[1:])
        system.update_people([person for person in changed if person["slug"] != second])
        answers[system.name].append(ask_all(system, {name: asked for name, asked in reads.items() if name != "person"}))
        system.close()
    ours = answers[SYSTEMS[0].name]
    assert all(answer == ours for answer in answers.values())
    assert len(answers) >= 2


def ask_all(system: GraphSystem, reads: dict[str, list[dict[str, object]]]) -> dict[str, object]:
    return {
        name: [meaning(rows, in_order=name in IN_ORDER) for rows in system.read(name, asked)]
        for name, asked in reads.items()
    }


def test_every_system_writes_wide_rows_the_same(tmp_path: Path) -> None:
    (tmp_path / wide_systems.SIZES).write_text(json.dumps({"properties": 30}))
    for contender in in_one_process(wide_systems.SYSTEMS):
        system = opened(contender, tmp_path)
        assert isinstance(system, wide_systems.WideSystem)
        try:
            system.load_wide()
        except NotOfferedError:
            system.close()
            continue
        before = system.read_wide(1)
        system.update_wide(1, 5, 1_006)
        assert system.read_wide(1) == before + 1_000
        assert system.export_wide() == wide_systems.WIDE_ROWS
        system.close()


def timed(*seconds: float) -> list[Timed]:
    return [Timed(1, 0.2, s) for s in seconds]


def test_a_report_shows_medians_and_reasons(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    report = Report()
    report.begin("query", 3, [], "a small graph")
    report.add("lookup", "omnigraph", timed(0.1, 9.0, 0.2), goal=WARM)
    report.add("lookup", "theirs", timed(0.1))
    report.add("lookup", "others", [Timed(None, 0, 0, "does not offer this")])
    report.save(tmp_path / "figures.json")
    report.print_table("query")
    figures = json.loads((tmp_path / "figures.json").read_text())["figures"]
    assert [figure["cpu_ms"] for figure in figures] == [200.0, 100.0, None]
    assert "others, lookup: does not offer this" in capsys.readouterr().out


def test_a_summary_compares_with_the_best_peer_and_the_goal(tmp_path: Path) -> None:
    report = Report()
    report.begin("query", 3, [Sqlite], "a small graph")
    for system, seconds in {"omnigraph": 0.02, "duckdb": 0.04, "kuzu": 0.01, "sqlite": 0.001}.items():
        report.add("lookup", system, timed(seconds), goal=WARM)
    report.add("lookup", "lancedb", timed(0.001), counts=False)  # it finds too little
    report.add("after an update", "omnigraph", timed(0.03), goal=Goal(1.2, beside="lookup"))
    report.add_value("cold open", "omnigraph", 12, "requests", Goal(14, "requests"))
    lookup, after, cold = report.summary()
    report.save(tmp_path / "figures.json")
    assert list(Report.read(tmp_path / "figures.json").summary()) == [lookup, after, cold]
    assert (lookup.peer, lookup.ratio, lookup.missed, lookup.only_shown) == ("kuzu", 2.0, True, {"sqlite": 1.0})
    assert (after.peer, after.ratio, after.missed) == ("lookup", pytest.approx(1.5), True)
    assert (cold.ours, cold.ratio, cold.missed) == (12, None, False)
