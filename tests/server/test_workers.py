"""The life of server processes: boot, readiness, drain, death and replacement."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from omnigraph import Graph
from omnigraph.server.runtime.context import Draining
from omnigraph.server.runtime.run_directory import RunDirectory
from omnigraph.server.runtime.worker import refuse_while_ending
from tests.server.conftest import LightServer, Room
from tests.server.test_protocol import one_answer, status_of, until_closed
from tests.support.servers import WITHOUT_TLS, ServerProcess, is_alive, served
from tests.support.waiting import GIVE_UP, wait_until

WORKERS = pytest.mark.parametrize("workers", [1, 2])
PATIENT = {"drain_seconds": GIVE_UP}
"""Limits that no test reaches, however slow the machine."""


def asked(server: ServerProcess, path: str) -> socket.socket:
    """A request whose answer is still to come."""
    connection = server.connect()
    connection.sendall(f"GET {path} HTTP/1.1\r\nhost: here\r\n\r\n".encode())
    return connection


def fetched(server: ServerProcess, path: str) -> str:
    with urllib.request.urlopen(server.url + path, timeout=600) as answer:
        return str(answer.read().decode())


def pids_that_answer(server: ServerProcess, count: int = 40) -> set[int]:
    return {int(fetched(server, "/pid")) for _ in range(count)}


@WORKERS
def test_told_to_end_it_finishes_what_is_under_way_and_exits_with_0(
    light: LightServer, room: Room, workers: int
) -> None:
    server = light(workers=workers, limits=PATIENT)
    with asked(server, "/hold/a") as busy, asked(server, "/pid") as idle:
        assert one_answer(idle)[0] == 200
        wait_until(lambda: room.has("a-began"), "the request is under way")
        serving = server.workers()
        for pid in {server.pid, *serving}:
            os.kill(pid, signal.SIGTERM)  # as a service manager does; who is told twice still finishes
        assert until_closed(idle) == b""  # nothing was under way on it
        wait_until(lambda: refuses(server), "no connection is taken any more")
        room.put("a-go")
        answer = until_closed(busy)
    assert status_of(answer) == 200
    assert answer.endswith(b"held")
    assert server.wait() == 0
    assert "killed" not in server.errors()
    assert list(server.temporary.glob("omnigraph-*")) == []
    assert server.lines == [f"OMNIGRAPH_LISTEN_ADDR=127.0.0.1:{server.port}"]
    assert all(room.has(f"closed-{pid}") for pid in serving)


def refuses(server: ServerProcess) -> bool:
    try:
        server.connect().close()
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:
        return False  # it was queued at a socket that closed meanwhile; the next one learns whether others still listen
    return False


def test_a_request_that_comes_after_the_signal_is_refused() -> None:
    draining = Draining()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(refuse_while_ending(application, draining))
        async with httpx.AsyncClient(transport=transport, base_url="http://here", verify=WITHOUT_TLS) as client:
            return await client.get("/readyz")

    assert asyncio.run(ask()).status_code == 200
    draining.begin()
    refused = asyncio.run(ask())
    assert refused.status_code == 503
    assert (refused.headers["connection"], refused.headers["retry-after"]) == ("close", "1")
    assert "is ending" in refused.json()["error"]


def test_a_stream_that_waits_for_news_learns_of_the_end(light: LightServer) -> None:
    server = light()
    with asked(server, "/drained") as connection:
        assert connection.recv(4096)
        server.signal(signal.SIGTERM)
        assert b"ended" in until_closed(connection)
    assert server.wait() == 0


def test_what_does_not_finish_in_time_is_cut_off(light: LightServer, room: Room) -> None:
    server = light(limits={"drain_seconds": 0.1})
    with asked(server, "/hold/a") as busy:
        wait_until(lambda: room.has("a-began"), "the request is under way")
        assert server.terminate() == 0
        assert b"200" not in until_closed(busy)


SOON = 15
"""Seconds in which a server that drains for one second has ended, on any machine."""


@pytest.mark.parametrize(("kind", "workers"), [("python", 1), ("native", 2)])
def test_a_server_ends_in_time_whatever_its_threads_do(light: LightServer, room: Room, kind: str, workers: int) -> None:
    server = light(workers=workers, limits={"drain_seconds": 1.0})
    with asked(server, f"/stuck/{kind}"):
        wait_until(lambda: room.has("stuck"), "the threads are stuck")
        began = time.monotonic()
        assert server.terminate() == 0
        assert time.monotonic() - began < SOON


def test_reads_that_never_end_do_not_keep_a_server_from_ending(tmp_path: Path) -> None:
    """As many as there are threads for, each waiting for a provider of embeddings that takes calls and says nothing."""
    graph = str(tmp_path / "g")
    with Graph.init(graph, "node Spot { slug: String @key  at: Vector(2) }") as made:
        made.load('{"type":"Spot","data":{"slug":"a","at":[1,0]}}', mode="append")
    text = 'query q() { match { $p: Spot } return { $p.slug } order { nearest($p.at, "TEXT") } limit 1 }'
    silent = socket.create_server(("127.0.0.1", 0))
    environment = {
        "OMNIGRAPH_EMBED_PROVIDER": "openai-compatible",
        "OMNIGRAPH_EMBED_BASE_URL": f"http://127.0.0.1:{silent.getsockname()[1]}/v1",
        "OMNIGRAPH_EMBED_MODEL": "silent",
        "OPENAI_API_KEY": "none",
    }
    flags = ["--drain-seconds", "1", "--query-seconds", "600", "--read-threads", "8"]
    with (
        silent,
        served(
            "serve", "--store", graph, "--unauthenticated", "--bind", "127.0.0.1:0", *flags, environment=environment
        ) as server,
        ExitStack() as connections,
    ):
        for number in range(8):
            body = json.dumps({"query": text.replace("TEXT", f"text {number}")}).encode()
            connection = connections.enter_context(server.connect())
            head = f"POST /graphs/g/query HTTP/1.1\r\nhost: {server.host}\r\n"
            head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)
        silent.settimeout(GIVE_UP)
        for _ in range(8):
            connections.enter_context(silent.accept()[0])
        began = time.monotonic()
        assert server.terminate() == 0
        assert time.monotonic() - began < SOON


@pytest.mark.parametrize(("workers", "healthy"), [(1, 0), (2, 1)])
def test_a_server_that_must_not_start_says_why(
    light_refused: Callable[..., Any], room: Room, workers: int, healthy: int
) -> None:
    room.put("refuse", str(healthy))
    code, errors, lines = light_refused(workers=workers)
    assert (code, lines) == (1, [])
    assert "Error: no healthy graphs" in errors


def test_a_worker_that_dies_while_it_starts_is_replaced(light: LightServer, room: Room) -> None:
    room.put("die_once", "1")
    server = light(workers=2)
    assert len(room.revisions_booted()) == 3
    assert server.terminate() == 0


def test_an_address_that_is_taken_is_named(light: LightServer, light_refused: Callable[..., Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, errors, lines = light_refused(workers=2, port=port)
        assert (code, lines) == (1, [])
        assert f"can't bind 127.0.0.1:{port}" in errors


@pytest.mark.parametrize("workers", [1, 2])
def test_an_address_that_is_taken_while_it_boots_is_named(
    light_refused: Callable[..., Any], room: Room, workers: int
) -> None:
    room.put("take")
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        code, errors, lines = light_refused(workers=workers, port=port)
    assert (code, lines) == (1, [])
    assert f"Error: can't bind 127.0.0.1:{port}: Address already in use" in errors


def test_while_a_worker_is_dead_the_other_serves_until_it_is_replaced(light: LightServer, room: Room) -> None:
    """The socket belongs to all. Whoever comes later serves what the first one found, however often it is tried."""
    server = light(workers=2)
    room.put("refuse", "2")  # whoever starts now does not come up
    left, victim = server.workers()
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: "can't start again" in server.errors(), "the replacement was refused")
    assert pids_that_answer(server) == {left}
    (room.path / "refuse").unlink()
    wait_until(lambda: "serves again" in server.errors(), "another one serves")
    (fresh,) = set(server.workers()) - {left}
    wait_until(lambda: int(fetched(server, "/pid")) == fresh, "the new worker answers")
    first, *others = sorted(room.revisions_booted(), key=lambda revision: revision or 0)
    assert first is None
    assert set(others) == {7}
    assert server.terminate() == 0


def test_the_only_worker_is_replaced_too(light: LightServer) -> None:
    """A client that connects meanwhile waits for the new one: the socket stays open."""
    server = light(workers=1)
    (victim,) = server.workers()
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: not is_alive(victim), "the worker is dead")
    fresh = int(fetched(server, "/pid"))
    assert [fresh] == server.workers() != [victim]
    wait_until(lambda: "serves again" in server.errors(), "the replacement is reported")
    assert server.terminate() == 0


def test_one_worker_has_the_right_to_maintain_and_passes_it_on_by_dying(tmp_path: Path) -> None:
    directory = RunDirectory(str(tmp_path))
    script = f"from omnigraph.server.runtime.run_directory import RunDirectory as R; d = R({str(tmp_path)!r}); "
    script += "held = d.await_maintenance(); print('held', flush=True); input()"
    holder = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdin is not None
    assert holder.stdout.readline() == b"held\n"
    taken: list[object] = []
    waiter = threading.Thread(target=lambda: taken.append(directory.await_maintenance()))
    waiter.start()
    assert taken == []
    holder.kill()
    holder.communicate()
    waiter.join(GIVE_UP)
    assert len(taken) == 1


def test_workers_end_when_their_supervisor_was_killed(light: LightServer, room: Room) -> None:
    server = light(workers=2, limits=PATIENT)
    with asked(server, "/hold/a") as busy:
        wait_until(lambda: room.has("a-began"), "the request is under way")
        workers = server.workers()
        server.kill()
        wait_until(lambda: refuses(server), "no connection is taken any more")
        room.put("a-go")
        assert until_closed(busy).endswith(b"held")
    for pid in workers:
        wait_until(lambda pid=pid: not is_alive(pid), "the worker has ended")
        assert room.has(f"closed-{pid}")
    assert list(server.temporary.glob("omnigraph-*")) == []


def test_what_a_killed_worker_had_admitted_is_free_again(light: LightServer, room: Room) -> None:
    server = light(limits={"actor_requests": 1})
    with asked(server, "/write/ada/a"):
        wait_until(lambda: room.has("a-began"), "the write is under way")
        with asked(server, "/write/ada/b") as other:
            status, body = one_answer(other)
            assert status == 429
            assert b"in-flight count cap 1" in body
        os.kill(*server.workers(), signal.SIGKILL)
    wait_until(lambda: "serves again" in server.errors(), "it was replaced")
    room.put("c-go")
    assert fetched(server, "/write/ada/c") == "written"
    assert server.terminate() == 0


# -- following a cluster


def revisions(server: ServerProcess) -> dict[int, int]:
    """Which worker serves which revision."""
    answers = (fetched(server, "/revision").split() for _ in range(20))
    return {int(pid): int(revision) for pid, revision in answers}


def test_every_worker_follows_and_one_that_dies_meanwhile_harms_nobody(light: LightServer, room: Room) -> None:
    server = light(workers=2, watch=True)
    left, victim = server.workers()
    room.put("newest", "8")
    wait_until(lambda: all(room.has(f"renewing-{pid}") for pid in (left, victim)), "both build the new state")
    assert set(revisions(server).values()) == {7}
    os.kill(victim, signal.SIGKILL)  # in the middle of it
    wait_until(lambda: "serves again" in server.errors(), "another one serves")
    assert set(revisions(server).values()) == {7}
    room.put("go-8")
    wait_until(lambda: list(revisions(server).values()) == [8, 8], "both serve the new state")
    wait_until(lambda: server.errors().count("revision 8 is served") == 2, "the supervisor was told")
    os.kill(left, signal.SIGKILL)
    wait_until(lambda: server.errors().count("serves again") == 2, "another one serves")
    wait_until(lambda: list(revisions(server).values()) == [8, 8], "both serve")
    assert sorted(room.revisions_booted(), key=lambda r: r or 0) == [None, 7, 7, 8]
    assert server.terminate() == 0


def test_a_state_that_can_not_be_built_changes_nothing_until_a_newer_one_can(light: LightServer, room: Room) -> None:
    server = light(watch=True)
    room.put("go-8", "broken")
    room.put("newest", "8")
    wait_until(lambda: "revision 8 is broken" in server.errors(), "it was tried")
    assert set(revisions(server).values()) == {7}
    failing = fetched(server, "/metrics")
    assert "omnigraph_workers_behind 1.0" in failing
    assert 'omnigraph_state_changes_total{outcome="failed"}' in failing
    room.put("go-9")
    room.put("newest", "9")
    wait_until(lambda: "revision 9 is served" in server.errors(), "the newer one is served")
    assert set(revisions(server).values()) == {9}
    served = fetched(server, "/metrics")
    assert "omnigraph_workers_behind 0.0" in served
    assert "omnigraph_revision 9.0" in served
    assert server.errors().count("revision 8 can't be served, revision 7 still is: revision 8 is broken") == 1
    assert server.terminate() == 0


def test_told_to_end_it_does_not_wait_for_a_state_that_is_being_built(light: LightServer, room: Room) -> None:
    server = light(watch=True, limits={"drain_seconds": 0.1})
    room.put("newest", "8")
    (worker,) = server.workers()
    wait_until(lambda: room.has(f"renewing-{worker}"), "it is being built")
    server.signal(signal.SIGTERM)
    wait_until(lambda: refuses(server), "no connection is taken any more")
    room.put("go-8")
    assert server.wait() == 0
    assert "revision 8 is served" not in server.errors()


TOLD_TWICE = """
import os, signal
from omnigraph.server.runtime.worker import exit_on_signal
with exit_on_signal():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        print("closed")
"""


def test_told_twice_while_it_starts_it_closes_what_it_opened() -> None:
    done = subprocess.run([sys.executable, "-c", TOLD_TWICE], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "closed\n"), done.stderr
