"""Blobs over HTTP: selectors, preconditions, ranges and redirects, in the order in which they are evaluated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph import Graph
from omnigraph.api.queries import LONGEST_READ
from omnigraph.engine.write.external_blobs import AllowedBase, ExternalBlobPolicy, Scope
from omnigraph.errors import BlobRangeError
from omnigraph.server.handlers.reads import Delivery, delivery
from tests.server import raw
from tests.server.running import RunningServer, faultless, running
from tests.server.sample import PEOPLE, PHOTO, SCHEMA, blob, people, person

LARGE = bytes(range(251)) * (LONGEST_READ // 251 + 40)
N = len(PHOTO)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    root = tmp_path_factory.mktemp("blobs")
    (root / "files").mkdir()
    (root / "files" / "a photo.bin").write_bytes(b"elsewhere")
    with Graph.init(root / "kb", SCHEMA) as graph:
        allowed = ExternalBlobPolicy.allow(AllowedBase((root / "files").as_uri(), Scope.EMBEDDED_ONLY))
        external = person("Ext", photo=(root / "files" / "a photo.bin").as_uri())
        graph.with_external_blobs(allowed).load("\n".join([*PEOPLE, external]), mode="overwrite")
        graph.load(person("Large", photo=blob(LARGE)), mode="merge")
        graph.load(person("Bare"), mode="merge")
        graph.create_branch("side")
        graph.load(person("Ada", age=36, photo=blob(b"another")), mode="merge", branch="side")
        yield graph


@pytest.fixture(scope="module")
def server(graph: Graph) -> Iterator[RunningServer]:
    with faultless({"kb": graph}) as server:
        yield server


def get(server: RunningServer, id: str = "Ada", method: str = "GET", **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    query = f"entity=node&type=Person&id={id}&property=photo"
    return server.client.request(method, f"/graphs/kb/blob?{query}", headers=named)


@pytest.fixture(scope="module")
def tag(server: RunningServer) -> str:
    return get(server, method="HEAD").headers["etag"]


# Selecting


def test_a_whole_blob(server: RunningServer, graph: Graph) -> None:
    answer = get(server)
    assert (answer.status_code, answer.content) == (200, PHOTO)
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-length"] == str(N)
    assert answer.headers["accept-ranges"] == "bytes"
    assert len(answer.headers["etag"].strip('"')) == 32
    assert int(answer.headers["etag"].strip('"'), 16) >= 0
    assert answer.headers["omnigraph-snapshot-id"] == graph.resolve_snapshot("main")


def test_an_empty_blob_is_a_value(server: RunningServer) -> None:
    answer = get(server, "Cy")
    assert (answer.status_code, answer.content, answer.headers["content-length"]) == (200, b"", "0")


def test_a_blob_larger_than_one_read(server: RunningServer) -> None:
    assert get(server, "Large").content == LARGE
    part = get(server, "Large", Range=f"bytes=7-{LONGEST_READ + 9}")
    assert (part.status_code, part.content) == (206, LARGE[7 : LONGEST_READ + 10])


def test_a_blob_of_a_branch_and_of_a_commit(server: RunningServer, graph: Graph) -> None:
    url, side = "/graphs/kb/blob?entity=node&type=Person&id=Ada&property=photo", graph.resolve_snapshot("side")
    of_branch, of_commit = (server.client.get(f"{url}&{point}") for point in ("branch=side", f"snapshot={side}"))
    assert of_branch.content == of_commit.content == b"another"
    assert of_commit.headers["omnigraph-snapshot-id"] == side
    assert of_branch.headers["etag"] == of_commit.headers["etag"] != get(server).headers["etag"]


@pytest.mark.parametrize(
    ("query", "status", "fragment"),
    [
        ("type=Person&id=Ada&property=photo", 400, "invalid Blob selector query parameters:"),
        ("entity=vertex&type=Person&id=Ada&property=photo", 400, "invalid Blob selector query parameters:"),
        ("entity=node&type=Person&id=Ada", 400, "invalid Blob selector query parameters:"),
        ("entity=node&type=Person&id=Ada&property=photo&id=Cy", 400, "invalid Blob selector query parameters:"),
        ("entity=node&type=Person&id=Ada&property=photo&other=1", 400, "invalid Blob selector query parameters:"),
        (
            "entity=node&type=Person&id=Ada&property=photo&branch=main&snapshot=x",
            400,
            "invalid Blob selector query parameters: name a branch or snapshot, not both",
        ),
        ("entity=node&type=Person&id=Ada&property=name", 400, "name"),
        ("entity=node&type=Person&id=Ada&property=none", 404, "none"),
        ("entity=node&type=None&id=Ada&property=photo", 404, "None"),
        ("entity=edge&type=Person&id=Ada&property=photo", 404, "Person"),
        ("entity=node&type=Person&id=nobody&property=photo", 404, "nobody"),
        ("entity=node&type=Person&id=Bare&property=photo", 404, "null"),
        ("entity=node&type=Person&id=Ada&property=photo&branch=none", 404, "branch 'none' not found"),
        ("entity=node&type=Person&id=Ada&property=photo&snapshot=none", 404, "commit 'none' not found"),
    ],
)
def test_blobs_that_are_not_there(server: RunningServer, query: str, status: int, fragment: str) -> None:
    answer = server.client.get(f"/graphs/kb/blob?{query}")
    assert answer.status_code == status, answer.text
    assert fragment in answer.json()["error"]
    assert server.client.head(f"/graphs/kb/blob?{query}").status_code == status


def test_a_blob_that_lies_elsewhere(server: RunningServer, tag: str) -> None:
    for method in ("GET", "HEAD"):
        for headers in ({}, {"If_Match": '"other"'}, {"If_None_Match": "*"}, {"Range": "bytes=0-1"}):
            answer = get(server, "Ext", method, **headers)
            assert (answer.status_code, answer.content) == (302, b"")
            assert answer.headers["location"].endswith("/a%20photo.bin")
            assert answer.headers["cache-control"] == "no-store"
            assert "omnigraph-snapshot-id" in answer.headers
            assert "etag" not in answer.headers


# Preconditions


@pytest.mark.parametrize(
    ("given_tag", "status"),
    [
        ("{tag}", 200),
        ('"x", {tag}', 200),
        ('"x" ,{tag}, "y"', 200),
        ("*", 200),
        ("W/{tag}", 412),
        ('"x"', 412),
        ("{bare}", 412),
        ("", 412),
        ("*, {tag}", 412),
        ('{tag} "x"', 412),
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_if_match_is_compared_strongly(
    server: RunningServer, tag: str, method: str, given_tag: str, status: int
) -> None:
    answer = get(server, method=method, If_Match=given_tag.format(tag=tag, bare=tag.strip('"')))
    assert answer.status_code == status
    assert answer.headers["etag"] == tag
    assert "omnigraph-snapshot-id" in answer.headers
    if status == 412 and method == "GET":
        assert answer.json()["code"] == "conflict"


@pytest.mark.parametrize(
    ("given_tag", "status"),
    [
        *(("{tag}", 304), ("W/{tag}", 304), ("*", 304), ('"x", W/{tag}', 304), (',, "x",\t,{tag} ,', 304)),
        *(('"x"', 200), ("{bare}", 200), ("", 200), (",", 200), ('"x"{tag}', 200), ("*, {tag}", 200)),
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_if_none_match_is_compared_weakly(
    server: RunningServer, tag: str, method: str, given_tag: str, status: int
) -> None:
    answer = get(server, method=method, If_None_Match=given_tag.format(tag=tag, bare=tag.strip('"')))
    assert answer.status_code == status
    assert (answer.headers["etag"], answer.headers["content-length"]) == (tag, str(N))
    assert "omnigraph-snapshot-id" in answer.headers
    if status == 304:
        assert answer.content == b""


def test_a_connection_lives_on_after_an_answer_without_a_body(server: RunningServer, tag: str) -> None:
    query = "entity=node&type=Person&id=Ada&property=photo"
    with raw.connected(server) as connection:
        for number in range(3):
            headers = {"If-None-Match": tag, "X-Request-Id": f"known-{number}"}
            connection.sendall(raw.head("GET", f"/graphs/kb/blob?{query}", headers))
            assert raw.answer(connection)[0].status == 304
        connection.sendall(raw.head("GET", f"/graphs/kb/blob?{query}", {}))
        assert raw.answer(connection)[1] == PHOTO
    records = [record for record in server.recorder.records if record.request_id.startswith("known-")]
    assert [(record.status, record.broke_off) for record in records] == [(304, False)] * 3
    assert not server.recorder.failures


def test_a_condition_over_two_lines_is_one_list(server: RunningServer, tag: str) -> None:
    lines = [("If-None-Match", tag), ("If-None-Match", '"x"')]
    answer = server.client.get("/graphs/kb/blob?entity=node&type=Person&id=Ada&property=photo", headers=lines)
    assert answer.status_code == 304


def test_conditions_in_their_order(server: RunningServer, tag: str) -> None:
    failed = get(server, If_Match='"x"', If_None_Match=tag, Range="bytes=0-1")
    known = get(server, If_Match=tag, If_None_Match=tag, Range="bytes=9999-")
    part = get(server, If_Match=tag, If_None_Match='"x"', If_Range=tag, Range="bytes=0-1")
    assert (failed.status_code, known.status_code, part.status_code) == (412, 304, 206)


@pytest.mark.parametrize(
    ("given_tag", "status"), [("{tag}", 206), ("W/{tag}", 200), ('"x"', 200), ("*", 200), ("", 200)]
)
def test_if_range(server: RunningServer, tag: str, given_tag: str, status: int) -> None:
    answer = get(server, If_Range=given_tag.format(tag=tag), Range="bytes=1-2")
    assert (answer.status_code, len(answer.content)) == (status, 2 if status == 206 else N)


def test_a_date_is_no_tag(server: RunningServer) -> None:
    answer = get(server, If_Range="Wed, 21 Oct 2015 07:28:00 GMT", Range="bytes=1-2")
    assert answer.status_code == 200


# Ranges


@pytest.mark.parametrize(
    ("header", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=1-9", 1, 10),
        ("BYTES=5-", 5, N),
        (f"bytes={N - 1}-", N - 1, N),
        ("bytes=-7", N - 7, N),
        (f"bytes=-{N + 5}", 0, N),
        (f"bytes=10-{N * 9}", 10, N),
    ],
)
def test_a_range(server: RunningServer, header: str, start: int, end: int) -> None:
    answer = get(server, Range=header)
    assert (answer.status_code, answer.content) == (206, PHOTO[start:end])
    assert answer.headers["content-range"] == f"bytes {start}-{end - 1}/{N}"
    assert answer.headers["content-length"] == str(end - start)
    headed = get(server, method="HEAD", Range=header)
    assert (headed.status_code, headed.headers["content-length"]) == (200, str(N))


@pytest.mark.parametrize(
    "header",
    [
        *("bytes", "bytes=", "bytes=-", "bytes=a-b", "bytes=1-2,4-5", "bytes= 1-2", "bytes=1 -2", "bytes=5-4"),
        *("items=0-1", "bytes=1-2;", "bytes=+1-2", "bytes=0x1-2", "0-1"),
        *(f"bytes={2**64}-", f"bytes=0-{2**63}", f"bytes=-{2**64}"),
        *("bytes=0-" + "9" * 5000, "bytes=" + "9" * 5000 + "-", "bytes=-" + "9" * 5000),
    ],
)
def test_a_range_that_is_none_is_ignored(server: RunningServer, header: str) -> None:
    answer = get(server, Range=header)
    assert (answer.status_code, len(answer.content)) == (200, N)
    assert "content-range" not in answer.headers


@pytest.mark.parametrize(
    ("id", "header", "told"),
    [
        ("Ada", f"bytes={N}-", (N, N, N)),
        ("Ada", f"bytes={N + 3}-{N + 5}", (N + 3, N + 6, N)),
        ("Ada", f"bytes={N + 3}-", (N + 3, N, N)),
        ("Ada", "bytes=-0", (N, N, N)),
        ("Cy", "bytes=0-", (0, 0, 0)),
        ("Cy", "bytes=-5", (0, 0, 0)),
        ("Cy", "bytes=0-0", (0, 1, 0)),
    ],
)
def test_a_range_that_the_blob_does_not_have(
    server: RunningServer, id: str, header: str, told: tuple[int, int, int]
) -> None:
    answer = get(server, id, Range=header)
    assert (answer.status_code, answer.json()["code"]) == (416, "bad_request")
    assert answer.json()["blob_range"] == dict(zip(("start", "end", "length"), told, strict=True))
    assert answer.headers["content-range"] == f"bytes */{told[2]}"


NUMBER = st.one_of(st.just(""), st.integers(0, 40).map(str), st.integers(0, 2**70).map(str), st.just("007"))


def expected(first: str, last: str, length: int) -> tuple[int, ...] | Delivery:
    """What the table says, from the numbers of `bytes=first-last`: three numbers are those of a refusal."""
    whole = Delivery(200, 0, length)
    if not first and not last:
        return whole
    if any(number and int(number) > 2**63 - 1 for number in (first, last)) or (last and int(last) == 2**63 - 1):
        return whole
    if not first:
        wanted = list(range(length))[-int(last) :] if int(last) else []
        return Delivery(206, wanted[0], length) if wanted else (length, length, length)
    if last and int(last) < int(first):
        return whole
    end = int(last) + 1 if last else length
    if int(first) >= length:
        return (int(first), end, length)
    return Delivery(206, int(first), min(end, length))


@settings(max_examples=400, deadline=None)
@given(NUMBER, NUMBER, st.integers(0, 40), st.sampled_from(["bytes", "Bytes", "BYTES"]))
def test_ranges_by_the_table(first: str, last: str, length: int, unit: str) -> None:
    try:
        found: tuple[int, ...] | Delivery = delivery({"range": f"{unit}={first}-{last}"}, '"t"', length, is_head=False)
    except BlobRangeError as error:
        found = (error.start, error.end, error.length)
    assert found == expected(first, last, length)


@settings(max_examples=200, deadline=None)
@given(
    st.text(st.characters(max_codepoint=255), max_size=20),
    st.sampled_from(["range", "if-match", "if-none-match", "if-range"]),
)
def test_no_header_breaks_the_evaluation(text: str, header: str) -> None:
    headers = {"range": "bytes=0-1", header: text}
    try:
        found = delivery(headers, '"t"', 10, is_head=False)
    except BlobRangeError:
        return
    assert found.status in (200, 206, 304, 412)
    assert 0 <= found.start <= found.end <= 10


def test_what_breaks_inside_stays_inside(tmp_path: Path) -> None:
    people(tmp_path / "kb").close()
    with Graph.open(tmp_path / "kb") as graph, running({"kb": graph}) as server:
        for file in (tmp_path / "kb" / "nodes").glob("*/data/*"):
            if file.is_file():
                file.write_bytes(b"torn")
        answer = get(server)
    assert answer.status_code == 500
    assert answer.json()["error"].startswith("Blob delivery failed before response headers")
    assert str(tmp_path) not in answer.text
