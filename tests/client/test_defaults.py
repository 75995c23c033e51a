"""Default values over HTTP: a server stores what the same call stores in a graph that is opened here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import omnigraph
from omnigraph import Graph
from tests.engine.stored import everything, rows
from tests.server.running import RunningServer, running
from tests.support import default_rows
from tests.support.default_rows import Row

BLOBS = 'node A { k: String @key  n: I32? = 7  at: DateTime = "2024-01-01"  photo: Blob? }'


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Graph]:
    place = tmp_path_factory.mktemp("served")
    return {"items": default_rows.init(place / "items"), "blobs": Graph.init(place / "blobs", BLOBS)}


@pytest.fixture(scope="module")
def server(graphs: dict[str, Graph]) -> Iterator[RunningServer]:
    with running(graphs) as server:
        yield server


def post(remote: Any, server: RunningServer, path: str, body: Any, **options: Any) -> None:
    answer = server.client.post(f"/graphs/items/{path}", **{"json": body, **options})
    assert answer.status_code == 200, answer.text


RAGGED: dict[str, Callable[[Any, RunningServer, str, str, list[Row]], object]] = {
    "dictionaries": lambda g, _, b, t, rows: g.load(rows, type=t, mode="append", branch=b),
    "records": lambda g, _, b, t, rows: g.load(default_rows.records(t, rows), mode="append", branch=b),
    "a JSON body": lambda g, s, b, t, rows: post(
        g, s, "load", {"data": default_rows.records(t, rows), "mode": "append", "branch": b}
    ),
    "lenient": lambda g, s, b, t, rows: post(
        g, s, "load", {"data": default_rows.records(t, rows), "mode": "append", "branch": b, "grammar": "lenient"}
    ),
    "mutations": lambda g, _, b, t, rows: [g.mutate(default_rows.insert_text(t, row), branch=b) for row in rows],
}
UNIFORM: dict[str, Callable[[Any, RunningServer, str, str, list[Row]], object]] = {
    "polars": lambda g, _, b, t, rows: g.load(pl.DataFrame(rows), type=t, mode="append", branch=b),
    "csv": lambda g, s, b, t, rows: post(
        g,
        s,
        "load/rows",
        None,
        json=None,
        params={"type": t, "mode": "append", "branch": b},
        content=default_rows.csv_text(rows),
        headers={"Content-Type": "text/csv"},
    ),
}


@pytest.mark.parametrize("way", [*RAGGED, *UNIFORM])
def test_what_a_request_lacks_is_stored_as_its_default(
    way: str, graphs: dict[str, Graph], server: RunningServer, tmp_path: Path
) -> None:
    branch = way.replace(" ", "-")
    graphs["items"].create_branch(branch)
    with omnigraph.connect(f"{server.url}/graphs/items") as remote:
        load = (RAGGED | UNIFORM)[way]
        default_rows.load_by(lambda t, some: load(remote, server, branch, t, some), ragged=way in RAGGED)
    assert everything(graphs["items"], branch) == default_rows.stored_rows(tmp_path / "g")


BYTES: list[Row] = [
    {"k": "a", "photo": b"\x00\xff"},
    {"k": "b", "n": None},
    {"k": "c", "n": 1, "photo": "base64:AP8=", "at": "2020-01-01T00:00:00Z"},
    {"k": "d"},
]


@pytest.mark.parametrize("once", [False, True])
def test_rows_with_bytes_lack_what_they_lack(once: bool, graphs: dict[str, Graph], server: RunningServer) -> None:
    """They are sent as columns, where a row can't lack a member of another one."""
    stored = []
    for way in ("here", "there"):
        branch = f"{way}-{once}"
        graphs["blobs"].create_branch(branch)
        given: Any = iter(BYTES) if once else BYTES
        with omnigraph.connect(f"{server.url}/graphs/blobs") as remote:
            (graphs["blobs"] if way == "here" else remote).load(given, type="A", mode="append", branch=branch)
        stored.append(rows(graphs["blobs"], "node:A", branch))
    assert stored[1] == stored[0]
    assert {key: (row["n"], row["photo"]) for key, row in stored[0].items()} == {
        "a": (7, b"\x00\xff"),
        "b": (None, None),
        "c": (1, b"\x00\xff"),
        "d": (7, None),
    }


def test_a_column_of_another_kind_with_the_name_of_absent_members_is_a_bad_request(server: RunningServer) -> None:
    with omnigraph.connect(f"{server.url}/graphs/blobs") as remote:
        frame = pl.DataFrame({"k": ["x"], "#absent": [1]})
        with pytest.raises(omnigraph.BadRequestError, match="no property for the column '#absent'"):
            remote.load(frame, type="A", mode="append")
