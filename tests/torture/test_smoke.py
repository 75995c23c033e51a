"""A short run of the torture runner, so that it keeps working: what it is for are runs of many minutes by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.runner import Settings, run


@pytest.mark.timeout(180)
def test_a_few_seconds_of_torture_find_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    settings = Settings(
        str(directory / "graph"),
        str(directory),
        seed="smoke",
        seconds=8.0,
        round=4.0,
        nemesis=1.0,
        weights=dict.fromkeys(("cleanup", "maintain", "schema"), 0),
    )
    report = run(settings)
    assert report.clean, "\n".join(report.lines())
    assert report.figures["commits read in full"] > 0
    assert report.figures["reads of what must be readable"] > 0
