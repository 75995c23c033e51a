"""Many branches written by many processes and merged back: nothing is lost, nothing is there twice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph import Graph
from tests.engine.town import content, new_town
from tests.support.processes import REPOSITORY, acknowledged, go, wait_ready

WRITERS = 8
MERGERS = 2
BRANCHES_EACH = 10


def start(uri: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'src'}", "OMNIGRAPH_TEST_QUICK_START": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.engine.fleet", str(uri), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=REPOSITORY,
    )


def run(fleet: list[subprocess.Popen[str]]) -> list[str]:
    """Let every process begin at the same moment; the branches they told of."""
    for process in fleet:
        wait_ready(process)
    for process in fleet:
        go(process)
    return [words[1] for process in fleet for words in acknowledged(process, timeout=180)]


@pytest.mark.timeout(200)
def test_every_branch_that_was_written_and_merged_back_is_in_main(tmp_path: Path) -> None:
    town = tmp_path / "town"
    new_town(town).close()
    written = run([start(town, "write", f"p{i}", str(BRANCHES_EACH)) for i in range(WRITERS)])
    assert len(written) == WRITERS * BRANCHES_EACH
    merged = run([start(town, "merge", *written[i::MERGERS]) for i in range(MERGERS)])
    assert sorted(merged) == sorted(written)
    with Graph.open(town) as graph:
        assert graph.list_branches() == ["main"]
        people = {entity_id for type_name, entity_id in content(graph) if type_name == "Person"}
        assert people == {f"{branch}-{who}" for branch in written for who in "ab"}
        kinds = [commit.kind for commit in graph.commit_history(limit=1_000).commits]
        assert kinds.count("merge") == len(written)
        assert graph.verify().clean
