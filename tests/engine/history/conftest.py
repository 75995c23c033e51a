"""A small town with a branch beside main, for merges."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.graph import Graph
from tests.engine.town import knows, new_town, person, place


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Graph]:
    graph = new_town(tmp_path / "town", person("ada", age=1), person("bob"), place("inn"), knows("k", "ada", "bob"))
    graph.create_branch("side")
    yield graph
    graph.close()
