"""The benchmarks ask every system the same: where answers differ, their times say nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks import bench_query, bench_write, graph_systems
from benchmarks.contest import Contender, NotOfferedError, Report, Timed, installed, place

PEOPLE = 120


def opened(contender: type[Contender], folder: Path) -> Contender:
    system = contender(place(contender, folder))
    system.build()
    system.open()
    return system


def test_every_system_reads_the_same(tmp_path: Path) -> None:
    bench_query.make_files(tmp_path, PEOPLE)
    questions = bench_query.Questions(tmp_path, PEOPLE)
    keys, mails = questions.keys(4), questions.mails(4)
    commits = [questions.new_edges(3), questions.new_edges(1)]
    answers = {}
    for contender in installed(graph_systems.SYSTEMS):
        system = opened(contender, tmp_path)
        assert isinstance(system, graph_systems.GraphSystem)
        answers[system.name] = []
        for edges in commits:
            reached = [system.hops(keys, most) for most in (1, 2, 3)]
            rows = [system.lookup(keys), system.by_mail(mails), system.friends_of_friends(keys[0])]
            answers[system.name] += [*reached, *rows, system.paths(), system.by_city()]
            system.befriend(edges)
        system.close()
    ours = answers[graph_systems.OmniGraph.name]
    assert all(found == ours for found in answers.values())
    assert len(answers) >= 2


def test_every_system_writes_the_same(tmp_path: Path) -> None:
    (tmp_path / "sizes.json").write_text(json.dumps({"rows": 20, "properties": 30}))
    for contender in installed(bench_write.SYSTEMS):
        system = opened(contender, tmp_path)
        assert isinstance(system, bench_write.WriteSystem)
        system.insert([(f"n{i}", "name", i) for i in range(3)])
        system.commits([("m", "name", 1)])
        try:
            system.build_wide()
        except NotOfferedError:
            system.close()
            continue
        before = system.read_wide(1)
        system.update_wide(1, 5, 1_006)
        assert system.read_wide(1) == before + 1_000
        assert system.export_wide() == bench_write.WIDE_ROWS
        system.close()


def test_a_report_shows_medians_and_reasons(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    report = Report(rounds=3)
    report.add("case", "ours", [Timed(1, 0.2, seconds) for seconds in (0.1, 9.0, 0.2)])
    report.add("case", "theirs", [Timed(1, 0.2, 0.1)])
    report.add("case", "others", [Timed(None, 0, 0, "has no such thing")])
    report.save(tmp_path / "figures.json")
    rows = json.loads((tmp_path / "figures.json").read_text())["rows"]
    assert [row.get("cpu_ms") for row in rows] == [200.0, 100.0, None]
    assert rows[1]["our_cpu_over_theirs"] == 2.0
    assert "has no such thing" in capsys.readouterr().out
