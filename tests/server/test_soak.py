"""Acknowledged writes survive the workers that acknowledged them; `python -m tests.server.soak` does it for long."""

from __future__ import annotations

from pathlib import Path

import omnigraph
from tests.server.soak import SCHEMA, check, soak
from tests.support.servers import served

WRITES = 100
KILLED_AFTER = (20, 60)
"""Acknowledged writes after which a worker is killed."""


def test_every_acknowledged_write_is_there_once_though_workers_are_killed(tmp_path: Path) -> None:
    graph = omnigraph.init(tmp_path / "g", SCHEMA)
    flags = ("--store", str(tmp_path / "g"), "--bind", "127.0.0.1:0", "--unauthenticated", "--workers", "2")
    with served("serve", *flags, "--actor-requests", "1000") as server:
        tally, kills = soak(
            server,
            graph,
            clients=16,
            go_on=lambda told, kills: len(told.acknowledged) < WRITES or kills < len(KILLED_AFTER),
            strikes=lambda told, kills: len(told.acknowledged) >= (*KILLED_AFTER, float("inf"))[kills],
        )
        assert server.terminate() == 0
    assert check(graph, tally) == []
    assert len(tally.acknowledged) >= WRITES
    assert kills == len(KILLED_AFTER)
