"""HTTP as the stock server speaks it with our options, over raw sockets: what our clients and operators rely on."""

from __future__ import annotations

import json
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.conftest import LightServer, Room
from tests.support.servers import ServerProcess, served
from tests.support.waiting import wait_until

pytestmark = pytest.mark.xdist_group("connections")  # one server for nearly all of it

GET = b"GET /pid HTTP/1.1\r\nhost: here\r\n\r\n"


def until_closed(connection: socket.socket) -> bytes:
    """Everything the server sends before it ends the connection."""
    received = b""
    while part := connection.recv(65536):
        received += part
    return received


def one_answer(connection: socket.socket) -> tuple[int, bytes]:
    """Status and body of the next answer on a connection that stays open."""
    received = b""
    while b"\r\n\r\n" not in received:
        part = connection.recv(65536)
        assert part, received
        received += part
    head, _, body = received.partition(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
    )
    while len(body) < length:
        body += connection.recv(65536)
    return int(head.split()[1]), body


def status_of(answer: bytes) -> int:
    return int(answer.split()[1])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    room = Room(tmp_path_factory.mktemp("light") / "room")
    limits = {"header_bytes": 4096, "keep_alive_seconds": 600}
    with served(json.dumps({"limits": limits}), module="tests.server.light", environment=room.environment) as running:
        yield running


def test_a_kept_alive_connection_is_answered_again_and_again(server: ServerProcess) -> None:
    with server.connect() as connection:
        for _ in range(3):
            connection.sendall(GET)
            assert one_answer(connection) == (200, str(*server.workers()).encode())


def test_requests_in_one_packet_are_answered_in_order(server: ServerProcess) -> None:
    with server.connect() as connection:
        post = b"POST /echo HTTP/1.1\r\nhost: here\r\ncontent-length: 2\r\n\r\nhi"
        connection.sendall(post + GET * 100 + b"GET /pid HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n")
        answers = until_closed(connection)
    assert answers.count(b"HTTP/1.1 200") == 102
    assert answers.index(b"hi") < answers.index(str(*server.workers()).encode())


@pytest.mark.parametrize("start", [b"GET /pid HTTP/1.1\r\nhost: here\r\nx: ", b"GET /"], ids=["header", "target"])
def test_headers_that_never_end_are_refused_at_the_limit(server: ServerProcess, start: bytes) -> None:
    """The server keeps 4 KiB of them and what one read of the socket brings, not all that a client sends."""
    with server.connect() as connection:
        connection.sendall(start)
        answer = b""
        try:
            for _ in range(4096):
                connection.sendall(b"a" * 4096)
            answer = until_closed(connection)
        except ConnectionError:  # it did not read on
            return
    assert status_of(answer) == 400
    assert b"connection: close" in answer.lower()


def test_the_rest_of_a_body_that_nobody_wants_does_not_become_a_request(server: ServerProcess) -> None:
    with server.connect() as connection:
        connection.sendall(b"POST /unread HTTP/1.1\r\nhost: here\r\ncontent-length: 100000\r\n\r\n")
        assert one_answer(connection)[0] == 413
        try:
            connection.sendall(b"a" * 100_000 + GET)
            assert connection.recv(4096).split()[1:2] in ([], [b"200"])
        except ConnectionError:
            pass  # the server has closed the connection instead


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: here\r\nhost: there\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: here\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
    ],
    ids=["TLS", "no target", "no host", "two hosts", "two lengths"],
)
def test_a_request_that_is_not_http_is_refused(server: ServerProcess, nonsense: bytes) -> None:
    with server.connect() as connection:
        connection.sendall(nonsense)
        assert status_of(until_closed(connection)) == 400


def test_a_body_that_can_not_be_told_from_what_follows_ends_the_connection(server: ServerProcess) -> None:
    with server.connect() as connection:
        head = b"POST /echo HTTP/1.1\r\nhost: here\r\ntransfer-encoding: chunked\r\n\r\n"
        connection.sendall(head + b"2\r\nhi\r\nno length\r\n" + GET)
        assert b"200 OK" not in until_closed(connection)


def test_a_stream_for_http_1_0_has_no_chunks(server: ServerProcess) -> None:
    with server.connect() as connection:
        connection.sendall(b"GET /stream/whole HTTP/1.0\r\n\r\n")
        head, _, body = until_closed(connection).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert body == b"one\ntwo\n"


def test_a_stream_that_breaks_off_has_no_end_mark(server: ServerProcess) -> None:
    with server.connect() as connection:
        connection.sendall(b"GET /stream/broken HTTP/1.1\r\nhost: here\r\n\r\n")
        answer = until_closed(connection)
    assert answer.endswith(b"4\r\none\n\r\n")


def test_an_offer_of_another_protocol_is_not_taken_up(server: ServerProcess) -> None:
    with server.connect() as connection:
        offer = b"connection: upgrade\r\nupgrade: h2c\r\n"
        connection.sendall(b"GET /pid HTTP/1.1\r\nhost: here\r\n" + offer + b"\r\n")
        assert one_answer(connection)[0] == 200


def test_an_idle_connection_is_closed_without_a_word(light: LightServer) -> None:
    server = light(limits={"keep_alive_seconds": 0.2})
    with server.connect() as connection:
        connection.sendall(GET)
        assert one_answer(connection)[0] == 200
        assert until_closed(connection) == b""


def test_connections_over_the_limit_are_refused_and_those_within_it_are_not(light: LightServer) -> None:
    server = light(limits={"connections": 3})
    first, second = server.connect(), server.connect()
    with first, second:
        for connection in (first, second):
            connection.sendall(GET)
            assert one_answer(connection)[0] == 200
        with server.connect() as third:
            third.sendall(GET)
            assert status_of(third.recv(4096)) == 503
    wait_until(lambda: is_admitted(server), "a closed connection makes room for another")


def is_admitted(server: ServerProcess) -> bool:
    with server.connect() as connection:
        connection.sendall(GET)
        return status_of(connection.recv(4096)) == 200


def test_thousands_of_idle_connections_are_cheap(light: LightServer) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = 2000
    if hard < 3 * count:
        pytest.skip("this machine does not allow enough open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 3 * count)), hard))
    server = light()
    before = resident(*server.workers())
    connections = [server.connect() for _ in range(count)]
    for connection in connections:
        connection.sendall(GET)
    for connection in connections:
        assert one_answer(connection)[0] == 200
    per_connection = (resident(*server.workers()) - before) / count
    print(f"{per_connection:.0f} bytes per idle connection")
    assert per_connection < 20_000
    for connection in connections:
        connection.close()


def resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()
