"""A short run of the torture runner, so that it keeps working: what it is for are runs of many minutes by hand."""

from __future__ import annotations

from pathlib import Path

from tests.torture.runner import Settings, run

COMMITS = 40


def test_a_little_torture_finds_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    settings = Settings(
        str(directory / "graph"),
        str(directory),
        seed="smoke",
        measure="commits",
        length=COMMITS,
        round=COMMITS / 2,
        nemesis=COMMITS / 8,
        weights=dict.fromkeys(("cleanup", "maintain", "schema"), 0),
    )
    report = run(settings)
    assert report.clean, "\n".join(report.lines())
    assert report.figures["commits read in full"] > 0
    assert report.figures["reads of what must be readable"] > 0
