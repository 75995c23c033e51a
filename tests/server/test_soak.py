"""Acknowledged writes survive the workers that acknowledged them; `python -m tests.server.soak` does it for long."""

from __future__ import annotations

from pathlib import Path

import omnigraph
from tests.server.soak import SCHEMA, check, soak
from tests.support.servers import served

WRITES = 120


def test_every_acknowledged_write_is_there_once_though_workers_are_killed(tmp_path: Path) -> None:
    graph = omnigraph.init(tmp_path / "g", SCHEMA)
    flags = ("--store", str(tmp_path / "g"), "--bind", "127.0.0.1:0", "--unauthenticated", "--workers", "3")
    with served("serve", *flags, "--actor-requests", "1000") as server:
        tally, kills = soak(
            server,
            graph,
            clients=16,
            go_on=lambda told: len(told.acknowledged) < WRITES,
            kill_every=1.0,
        )
        assert server.terminate() == 0
    assert check(graph, tally) == []
    assert len(tally.acknowledged) >= WRITES
    assert kills >= 1
