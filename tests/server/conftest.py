"""Clusters to serve, and light servers (no graphs in them) for tests of processes, connections and caps."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.cluster.storage_root import make_root
from tests.support.clusters import SCHEMA, Cluster, make_cluster
from tests.support.servers import ServerProcess, refused, served

_NUMBERS = itertools.count()
LightServer = Callable[..., ServerProcess]


class Room:
    """The directory that a light server and its test share."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()

    def put(self, name: str, text: str = "") -> None:
        (self.path / name).write_text(text)

    def has(self, name: str) -> bool:
        return (self.path / name).exists()

    def revisions_booted(self) -> list[int | None]:
        return [json.loads(text) for file in self.path.glob("boot-*") if (text := file.read_text())]

    @property
    def environment(self) -> dict[str, str]:
        return {"OMNIGRAPH_TEST_ROOM": str(self.path)}


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("cluster")
    make_cluster(root, {"kb": SCHEMA, "lab": SCHEMA})
    return root


@pytest.fixture
def cluster(made_once: Path, tmp_path: Path) -> Cluster:
    """Two graphs that stand, `kb` and `lab`."""
    root = tmp_path / "box"
    shutil.copytree(made_once, root)
    return Cluster(str(root), make_root(str(root)))


@pytest.fixture
def branch(graph: Graph) -> str:
    """A branch of its own for a test, of the graph of its module."""
    name = f"b{next(_NUMBERS)}"
    graph.create_branch(name)
    return name


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path / "room")


@pytest.fixture
def light(room: Room) -> Iterator[LightServer]:
    """Starts a light server with these settings; `limits` are those of `ServerLimits`."""
    with ExitStack() as servers:

        def start(**settings: Any) -> ServerProcess:
            return servers.enter_context(
                served(json.dumps(settings), module="tests.server.light", environment=room.environment)
            )

        yield start


@pytest.fixture
def light_refused(room: Room) -> Callable[..., Any]:
    """Runs a light server that does not start."""
    return lambda **settings: refused(json.dumps(settings), module="tests.server.light", environment=room.environment)
