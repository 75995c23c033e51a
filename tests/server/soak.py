"""Many clients on one branch, workers that are killed under them, and the history checked afterwards.

    python -m tests.server.soak --seconds 60 --clients 200 --workers 3

Every client writes people of its own, each under an idempotency key, and reads in between. A request that gets no
answer, or one that says to come again, is repeated with its key until it is acknowledged. Afterwards the graph must
hold exactly the acknowledged people, each made by the commit that its acknowledgement named, and no other commit.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx

import omnigraph
from omnigraph import Graph
from tests.support.servers import WITHOUT_TLS, ServerProcess, served

SCHEMA = "node Person { name: String @key  by: I32 }"
ADD = "query add($name: String, $by: I32) { insert Person { name: $name, by: $by } }"
FIND = "query find($name: String) { match { $p: Person { name: $name } } return { $p.name, $p.by } }"
_COME_AGAIN = (408, 429, 500, 503)


@dataclass
class Tally:
    """What clients were told."""

    acknowledged: dict[str, str] = field(default_factory=dict)
    """The commit that each person was acknowledged with."""
    reads: int = 0
    repeats: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


async def client(number: int, url: str, tally: Tally, go_on: Callable[[], bool]) -> None:
    choose = random.Random(number)
    limits = httpx.Limits(max_connections=1, max_keepalive_connections=1)
    async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits, verify=WITHOUT_TLS) as http:
        mine: list[str] = []
        while go_on():
            if not mine or choose.random() < 0.5:
                name = f"c{number}-{len(mine)}"
                body = {"query": ADD, "params": {"name": name, "by": number}}
                answer = await _insisting(http, "mutate", body, tally, {"Idempotency-Key": name})
                tally.acknowledged[name] = answer["commit"]["graph_commit_id"]
                mine.append(name)
            else:
                name = choose.choice(mine)
                answer = await _insisting(http, "query", {"query": FIND, "params": {"name": name}}, tally, {})
                tally.reads += 1
                if answer["rows"] != [{"p.name": name, "p.by": number}]:
                    tally.problems.append(f"{name} was acknowledged and then read as {answer['rows']}")


async def _insisting(
    http: httpx.AsyncClient, operation: str, body: dict[str, object], tally: Tally, headers: dict[str, str]
) -> dict[str, object]:
    while True:
        try:
            answer = await http.post(f"/graphs/g/{operation}", json=body, headers=headers)
        except httpx.TransportError as error:
            tally.repeats[type(error).__name__] += 1
        else:
            if answer.status_code == 200:
                told: dict[str, object] = answer.json()
                return told
            if answer.status_code not in _COME_AGAIN:
                tally.problems.append(f"{operation} answered {answer.status_code}: {answer.text[:300]}")
                raise RuntimeError(tally.problems[-1])
            tally.repeats[str(answer.status_code)] += 1
        await asyncio.sleep(0.02)


async def _all(url: str, clients: int, tally: Tally, go_on: Callable[[], bool], nemesis: Callable[[], None]) -> None:
    async def disturb() -> None:
        while go_on():
            await asyncio.sleep(0.1)
            nemesis()

    await asyncio.gather(disturb(), *(client(number, url, tally, go_on) for number in range(clients)))


def check(graph: Graph, tally: Tally) -> list[str]:
    """What is wrong with the history after all of it."""
    found = list(tally.problems)
    stored = {
        row["name"]: row["by"]
        for row in graph.query("query all() { match { $p: Person } return { $p.name as name, $p.by as by } }")
    }
    if stored.keys() != tally.acknowledged.keys():
        lost = sorted(tally.acknowledged.keys() - stored.keys())[:5]
        strange = sorted(stored.keys() - tally.acknowledged.keys())[:5]
        found.append(f"acknowledged and lost: {lost}; stored and not acknowledged: {strange}")
    commits = graph.commits(limit=1_000_000).commits
    made = [commit.id for commit in commits[:-1]]  # all but the first, which made the graph
    if sorted(made) != sorted(tally.acknowledged.values()):
        found.append(f"{len(made)} commits for {len(tally.acknowledged)} acknowledged writes")
    return found


def soak(
    server: ServerProcess,
    graph: Graph,
    *,
    clients: int,
    go_on: Callable[[Tally, int], bool],
    strikes: Callable[[Tally, int], bool],
) -> tuple[Tally, int]:
    """Run until `go_on` says no; what clients were told, and how many workers were killed. Both are asked with how
    many were so far; `strikes` says whether to kill one now."""
    tally, kills, choose = Tally(), 0, random.Random(7)

    def nemesis() -> None:
        nonlocal kills
        workers = server.workers()
        if len(workers) > 1 and strikes(tally, kills):
            os.kill(choose.choice(workers), signal.SIGKILL)
            kills += 1

    asyncio.run(_all(server.url, clients, tally, lambda: go_on(tally, kills) and not tally.problems, nemesis))
    return tally, kills


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.server.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument(
        "--kill-every", type=float, default=5.0, help="seconds between two killed workers; 0 kills none"
    )
    parser.add_argument("--store", help="where the graph is made; default: a directory of the run's own")
    given = parser.parse_args()
    store = given.store or f"{tempfile.mkdtemp(prefix='soak-')}/g"
    graph = omnigraph.init(store, SCHEMA)
    flags = ("--store", store, "--bind", "127.0.0.1:0", "--unauthenticated", "--workers", str(given.workers))
    with served("serve", *flags, "--actor-requests", "100000") as server:
        began = time.monotonic()
        until = began + given.seconds
        tally, kills = soak(
            server,
            graph,
            clients=given.clients,
            go_on=lambda *_: time.monotonic() < until,
            strikes=lambda _, kills: 0 < given.kill_every * (kills + 1) < time.monotonic() - began,
        )
        code = server.terminate()
    found = check(graph, tally)
    print(f"{len(tally.acknowledged)} writes, {tally.reads} reads, {kills} workers killed, exit code {code}")
    print(f"repeated: {dict(tally.repeats)}")
    print("\n".join(found) or "every acknowledged write is there once, and nothing else")
    return 1 if found or code else 0


if __name__ == "__main__":
    sys.exit(main())
