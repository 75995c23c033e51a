"""Many branches written by many processes and merged back: nothing is lost, nothing is there twice."""

from __future__ import annotations

from pathlib import Path

from omnigraph import Graph
from tests.engine.town import content, new_town
from tests.support.processes import Process, start_together

WRITERS = 8
MERGERS = 2
BRANCHES_EACH = 10


def run(town: Path, *commands: tuple[str, ...]) -> list[str]:
    """Let processes work on the town at the same time; the branches they told of."""
    fleet = [Process("tests.engine.fleet", str(town), *command) for command in commands]
    start_together(fleet)
    return [words[1] for process in fleet for words in process.acknowledged()]


def test_every_branch_that_was_written_and_merged_back_is_in_main(tmp_path: Path) -> None:
    town = tmp_path / "town"
    new_town(town).close()
    written = run(town, *(("write", f"p{i}", str(BRANCHES_EACH)) for i in range(WRITERS)))
    assert len(written) == WRITERS * BRANCHES_EACH
    merged = run(town, *(("merge", *written[i::MERGERS]) for i in range(MERGERS)))
    assert sorted(merged) == sorted(written)
    with Graph.open(town) as graph:
        assert graph.list_branches() == ["main"]
        people = {entity_id for type_name, entity_id in content(graph) if type_name == "Person"}
        assert people == {f"{branch}-{who}" for branch in written for who in "ab"}
        kinds = [commit.kind for commit in graph.commit_history(limit=1_000).commits]
        assert kinds.count("merge") == len(written)
        assert graph.maintenance.verify().clean
