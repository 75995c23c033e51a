"""Connections that are slow, greedy or many, over raw sockets."""

from __future__ import annotations

import json
import resource
import select
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.server.conftest import LightServer, Room
from tests.support.servers import ServerProcess, served
from tests.support.waiting import wait_until

pytestmark = pytest.mark.xdist_group("connections")  # two servers for all of it

GET = b"GET /pid HTTP/1.1\r\nhost: here\r\n\r\n"


def until_closed(connection: socket.socket) -> bytes:
    """Everything the server sends before it ends the connection."""
    received = b""
    while part := connection.recv(65536):
        received += part
    return received


def is_readable(connection: socket.socket) -> bool:
    return bool(select.select([connection], [], [], 0)[0])


def one_answer(connection: socket.socket) -> tuple[int, bytes]:
    """Status and body of the next answer on a connection that stays open."""
    received = b""
    while b"\r\n\r\n" not in received:
        part = connection.recv(65536)
        assert part, received
        received += part
    head, _, body = received.partition(b"\r\n\r\n")
    length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length"))
    while len(body) < length:
        body += connection.recv(65536)
    return int(head.split()[1]), body


def status_of(answer: bytes) -> int:
    return int(answer.split()[1])


PATIENT = {"header_bytes": 4096, "header_seconds": 600, "keep_alive_seconds": 600}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One that has all the time in the world."""
    room = Room(tmp_path_factory.mktemp("light") / "room")
    with served(json.dumps({"limits": PATIENT}), module="tests.server.light", environment=room.environment) as running:
        yield running


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One that waits for headers and left-over bodies for a moment only."""
    room = Room(tmp_path_factory.mktemp("light") / "room")
    limits = json.dumps({"limits": PATIENT | {"header_seconds": 0.2}})
    with served(limits, module="tests.server.light", environment=room.environment) as running:
        yield running


def test_a_kept_alive_connection_is_answered_again_and_again(server: ServerProcess) -> None:
    with server.connect() as connection:
        for _ in range(3):
            connection.sendall(GET)
            assert one_answer(connection) == (200, str(*server.workers()).encode())


def test_requests_in_one_packet_are_answered_in_order(server: ServerProcess) -> None:
    with server.connect() as connection:
        post = b"POST /echo HTTP/1.1\r\ncontent-length: 2\r\n\r\nhi"
        connection.sendall(post + GET + b"GET /pid HTTP/1.1\r\nconnection: close\r\n\r\n")
        answers = until_closed(connection)
    assert answers.count(b"HTTP/1.1 200") == 3
    assert answers.index(b"hi") < answers.index(str(*server.workers()).encode())


@pytest.mark.parametrize(
    "headers",
    [
        b"x: " + b"a" * 5000 + b"\r\n\r\n",
        b"".join(b"x-%d: some value\r\n" % number for number in range(400)) + b"\r\n",
        b"x: " + b"a" * 5000,
        b"a" * 300_000,
    ],
    ids=["one large", "many small", "unfinished", "no header at all"],
)
def test_headers_over_the_limit_are_refused(server: ServerProcess, headers: bytes) -> None:
    with server.connect() as connection:
        connection.sendall(b"GET /pid HTTP/1.1\r\n" + headers)
        answer = until_closed(connection)
    assert status_of(answer) == 431
    assert b"4096 bytes (--header-bytes)" in answer
    assert b"connection: close" in answer


def test_a_target_over_the_limit_is_refused(server: ServerProcess) -> None:
    with server.connect() as connection:
        connection.sendall(b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\n\r\n")
        assert status_of(until_closed(connection)) == 431


def test_headers_that_come_byte_by_byte_are_counted_as_well(server: ServerProcess) -> None:
    with server.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(b"GET /pid HTTP/1.1\r\nx: ")
        for _ in range(4200):
            connection.sendall(b"a")
        assert status_of(until_closed(connection)) == 431


@pytest.mark.parametrize("unfinished", [b"1;", b"0\r\nx-trailer: "], ids=["extension", "trailer"])
def test_what_follows_a_chunk_is_counted_as_well(server: ServerProcess, unfinished: bytes) -> None:
    """Trailers are kept like headers, and what stands behind a chunk's length is read until it ends."""
    with server.connect() as connection:
        connection.sendall(b"POST /echo HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n" + unfinished)
        with suppress(OSError):
            while not is_readable(connection):
                connection.sendall(b"a" * 1000)
        with suppress(ConnectionResetError):
            assert status_of(until_closed(connection)) == 431


def test_headers_that_never_end_run_out_of_time(hasty: ServerProcess) -> None:
    with hasty.connect() as connection:
        connection.sendall(b"GET /pid HTTP/1.1\r\nx: ")
        answer = until_closed(connection)
    assert status_of(answer) == 408
    assert b"--header-seconds" in answer


def test_a_byte_now_and_then_does_not_buy_time(hasty: ServerProcess) -> None:
    with hasty.connect() as connection:
        connection.settimeout(0.02)
        answer = b""
        for byte in b"\r\n\r\n" + b"GET /pid HTTP/1.1\r\nx: " + b"a" * 100_000:
            try:
                connection.sendall(bytes([byte]))
                answer = connection.recv(4096)
                break
            except TimeoutError:
                continue
    assert status_of(answer) == 408


def test_the_rest_of_a_body_that_nobody_wants_is_dropped(server: ServerProcess) -> None:
    with server.connect() as connection:
        connection.sendall(b"POST /unread HTTP/1.1\r\ncontent-length: 100000\r\n\r\n")
        assert one_answer(connection)[0] == 413
        connection.sendall(b"a" * 100_000 + GET)
        assert one_answer(connection)[0] == 200


def test_the_rest_of_a_body_is_not_awaited_for_ever(hasty: ServerProcess) -> None:
    with hasty.connect() as connection:
        connection.sendall(b"POST /unread HTTP/1.1\r\ncontent-length: 100000\r\n\r\na")
        assert one_answer(connection)[0] == 413
        assert until_closed(connection) == b""


@pytest.mark.parametrize(
    "nonsense",
    [b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"CONNECT a:1 HTTP/1.1\r\n\r\n"],
)
def test_what_is_not_http_is_refused(server: ServerProcess, nonsense: bytes) -> None:
    with server.connect() as connection:
        connection.sendall(nonsense)
        answer = until_closed(connection)
    assert status_of(answer) == 400
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == "bad_request"


def test_a_body_that_can_not_be_told_from_what_follows_is_refused(server: ServerProcess) -> None:
    with server.connect() as connection:
        connection.sendall(b"POST /echo HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\nno length\r\n")
        assert status_of(until_closed(connection)) == 400


def test_nonsense_behind_a_request_does_not_take_its_answer_away(light: LightServer, room: Room) -> None:
    with light().connect() as connection:
        connection.sendall(b"GET /hold/a HTTP/1.1\r\n\r\n" + GET + b"nonsense\r\n\r\n")
        wait_until(lambda: room.has("a-began"), "the first request is being answered")
        room.put("a-go")
        answers = until_closed(connection)
    assert answers.count(b"HTTP/1.1 200") == 2
    assert answers.count(b"connection: close") == 1


def test_requests_that_wait_for_one_another_are_so_many(light: LightServer, room: Room) -> None:
    """The others are neither run nor kept; the client sees which were not answered."""
    with light().connect() as connection:
        connection.sendall(b"GET /hold/a HTTP/1.1\r\n\r\n" + GET * 100)
        wait_until(lambda: room.has("a-began"), "the first request is being answered")
        room.put("a-go")
        answers = until_closed(connection)
    assert answers.count(b"HTTP/1.1 200") == 1 + 64


def test_while_requests_wait_no_more_are_received(light: LightServer, room: Room) -> None:
    with light().connect() as connection:
        connection.sendall(b"GET /hold/a HTTP/1.1\r\n\r\n" + GET * 60)
        wait_until(lambda: room.has("a-began"), "the first request is being answered")
        connection.sendall(GET * 60 + b"GET /pid HTTP/1.1\r\nconnection: close\r\n\r\n")
        room.put("a-go")
        answers = until_closed(connection)
    assert answers.count(b"HTTP/1.1 200") == 1 + 60 + 60 + 1


def test_a_stream_for_http_1_0_has_no_chunks(server: ServerProcess) -> None:
    with server.connect() as connection:
        connection.sendall(b"GET /stream/whole HTTP/1.0\r\n\r\n")
        head, _, body = until_closed(connection).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert body == b"one\ntwo\n"


def test_a_stream_for_http_1_0_that_breaks_off_never_looks_complete(server: ServerProcess) -> None:
    with server.connect() as connection:
        connection.sendall(b"GET /stream/broken HTTP/1.0\r\n\r\n")
        with pytest.raises(ConnectionResetError):
            until_closed(connection)


def test_a_whole_answer_for_http_1_0(server: ServerProcess) -> None:
    with server.connect() as connection:
        connection.sendall(b"GET /pid HTTP/1.0\r\nconnection: keep-alive\r\n\r\n")
        head, _, body = until_closed(connection).partition(b"\r\n\r\n")
    assert f"content-length: {len(body)}".encode() in head
    assert body == str(*server.workers()).encode()


def test_an_offer_of_another_protocol_is_not_taken_up(server: ServerProcess) -> None:
    with server.connect() as connection:
        connection.sendall(b"GET /pid HTTP/1.1\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n")
        answer = until_closed(connection)
    assert status_of(answer) == 200


def test_the_answer_arrives_though_the_client_is_still_sending(server: ServerProcess) -> None:
    with server.connect() as connection:
        connection.sendall(b"GET /pid HTTP/1.1\r\nx: " + b"a" * 1_000_000)
        assert status_of(until_closed(connection)) == 431


def test_an_idle_connection_is_closed_without_a_word(light: LightServer) -> None:
    server = light(limits={"keep_alive_seconds": 0.2})
    with server.connect() as silent, server.connect() as spoken:
        spoken.sendall(GET)
        assert one_answer(spoken)[0] == 200
        assert until_closed(silent) == b""
        assert until_closed(spoken) == b""


def test_connections_over_the_limit_are_refused_and_those_within_it_are_not(light: LightServer) -> None:
    server = light(limits={"connections": 2})
    first, second = server.connect(), server.connect()
    with first, second:
        for connection in (first, second):
            connection.sendall(GET)
            assert one_answer(connection)[0] == 200
        with server.connect() as third:
            third.sendall(GET)
            answer = until_closed(third)
        assert status_of(answer) == 503
        assert b"retry-after: 1" in answer
        assert b"(--connections)" in answer
        first.sendall(GET)
        assert one_answer(first)[0] == 200
    wait_until(lambda: admitted(server), "a closed connection makes room for another")


def admitted(server: ServerProcess) -> bool:
    with server.connect() as connection:
        connection.sendall(GET)
        return one_answer(connection)[0] == 200


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
