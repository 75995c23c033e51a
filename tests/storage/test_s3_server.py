"""The short ways of the tests' S3 server lead to what moto itself answers."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote_to_bytes

import boto3
import pytest

from tests.support import s3_shortcuts
from tests.support.http_server import Answer
from tests.support.s3 import S3Server

BUCKET = "short-ways"
SHA = {"HTTP_X_AMZ_CONTENT_SHA256": "abc", "HTTP_X_AMZ_DATE": "20260101T000000Z"}
OF_NO_MEANING = {"x-amzn-requestid", "access-control-allow-origin"}


def request(method: str, path: str, query: str = "", body: bytes = b"", **headers: str) -> dict[str, Any]:
    return {
        "REQUEST_METHOD": method,
        "PATH_INFO": unquote_to_bytes(path).decode("latin-1"),
        "QUERY_STRING": query,
        "REQUEST_URI": f"{path}?{query}" if query else path,
        "SCRIPT_NAME": "",
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_HOST": "127.0.0.1",
        "HTTP_AUTHORIZATION": "AWS4-HMAC-SHA256 Credential=testing/20260101/us-east-1/s3/aws4_request",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
        "wsgi.url_scheme": "http",
        **SHA,
        **headers,
    }


def meaning(answer: Answer) -> tuple[str, dict[str, str], bytes]:
    status, headers, body = answer
    body = re.sub(rb"<(RequestId|HostId)>[^<]*", rb"<\1>", body).replace(b"<Prefix/>", b"<Prefix></Prefix>")
    told = {name.lower(): value for name, value in headers if name.lower() not in OF_NO_MEANING}
    if body.startswith(b"<?xml"):
        assert int(told.pop("content-length")) == len(answer[2])  # the ids above have any length
    return status, told, body


@pytest.fixture(scope="module")
def server(s3_server: S3Server) -> Iterator[S3Server]:
    s3_server.create_bucket(BUCKET)
    for name in ("p/1", "p/2", "p/3", "p/q/1", "p/b%20c%26%3C%C3%A9%3E", "empty"):
        asked = request("PUT", f"/{BUCKET}/{name}", body=b"" if name == "empty" else b"0123456789")
        s3_server.ask_moto(asked)
    return s3_server


READS = [
    request("GET", f"/{BUCKET}/p/1"),
    request("GET", f"/{BUCKET}/empty"),
    request("GET", f"/{BUCKET}/missing"),
    request("HEAD", f"/{BUCKET}/p/1"),
    request("HEAD", f"/{BUCKET}/missing"),
    request("GET", f"/{BUCKET}/p/1", HTTP_RANGE="bytes=0-0"),
    request("GET", f"/{BUCKET}/p/1", HTTP_RANGE="bytes=3-9"),
    *(
        request("GET", f"/{BUCKET}", query)
        for query in (
            "list-type=2",
            "list-type=2&prefix=p%2F",
            "list-type=2&prefix=nothing",
            "delimiter=%2F&list-type=2",
            "delimiter=%2F&list-type=2&prefix=p%2F",
            "list-type=2&prefix=p%2F&start-after=p%2F1",
            "list-type=2&max-keys=2&prefix=p%2F",
            "list-type=2&prefix=p%2F&max-keys=0",
        )
    ),
]


@pytest.mark.parametrize("asked", READS, ids=lambda r: f"{r['REQUEST_METHOD']} {r['PATH_INFO']} {r['QUERY_STRING']}")
def test_a_short_way_reads_what_moto_reads(server: S3Server, asked: dict[str, Any]) -> None:
    short = s3_shortcuts.answer(dict(asked))
    assert short is not None, "the plain form of a read is left to moto"
    assert meaning(short) == meaning(server.ask_moto(dict(asked)))


def test_the_rest_of_a_list_is_what_moto_lists(server: S3Server) -> None:
    first = s3_shortcuts.answer(request("GET", f"/{BUCKET}", "list-type=2&max-keys=2&prefix=p%2F"))
    assert first is not None
    found = re.search(rb"<NextContinuationToken>(\w+)<", first[2])
    assert found is not None
    rest = request("GET", f"/{BUCKET}", f"continuation-token={found[1].decode()}&list-type=2&prefix=p%2F")
    short = s3_shortcuts.answer(dict(rest))
    assert short is not None
    assert b"p/3" in short[2]
    assert b"p/1" not in short[2]
    assert meaning(short) == meaning(server.ask_moto(rest))


@pytest.mark.parametrize("headers", [{}, {"HTTP_IF_NONE_MATCH": "*"}, {"CONTENT_TYPE": "application/json"}], ids=str)
def test_a_short_way_writes_what_moto_writes(server: S3Server, headers: dict[str, str]) -> None:
    def written(name: str, answer: Answer | None) -> list[Any]:
        assert answer is not None
        read = server.ask_moto(request("GET", f"/{BUCKET}/{name}"))
        told = [meaning(answer), meaning(read)]
        for _, lines, _ in told:
            assert lines.pop("last-modified")
        return told

    kind = "-".join(headers) or "plain"
    short, long = f"short-{kind}", f"long-{kind}"
    by_short_way = s3_shortcuts.answer(request("PUT", f"/{BUCKET}/{short}", body=b"content", **headers))
    by_moto = server.ask_moto(request("PUT", f"/{BUCKET}/{long}", body=b"content", **headers))
    assert written(short, by_short_way) == written(long, by_moto)


@pytest.mark.parametrize(
    "asked",
    [
        request("PUT", f"/{BUCKET}/p/1", body=b"x", HTTP_IF_NONE_MATCH="*"),
        request("PUT", f"/{BUCKET}/p/1", body=b"x", HTTP_IF_MATCH='"other"'),
        request("PUT", f"/{BUCKET}/copied", HTTP_X_AMZ_COPY_SOURCE=f"/{BUCKET}/p/1"),
        request("PUT", f"/{BUCKET}/p/1", "partNumber=1&uploadId=u", body=b"x"),
        request("GET", f"/{BUCKET}/p/1", HTTP_IF_MATCH='"other"'),
        request("GET", f"/{BUCKET}/p/1", HTTP_RANGE="bytes=5-"),
        request("GET", f"/{BUCKET}/p/1", HTTP_RANGE="bytes=5-99"),
        request("GET", "/no-such-bucket/p/1"),
        request("GET", f"/{BUCKET}", "list-type=2&encoding-type=url"),
        request("GET", f"/{BUCKET}/p/1", "versionId=1"),
        request("DELETE", f"/{BUCKET}/p/9"),
        request("POST", f"/{BUCKET}", "delete", body=b"<Delete/>"),
        request("HEAD", f"/{BUCKET}/p/1", HTTP_RANGE="bytes=0-1"),
    ],
    ids=lambda asked: f"{asked['REQUEST_METHOD']} {asked['REQUEST_URI']}",
)
def test_what_is_not_plain_is_left_to_moto(server: S3Server, asked: dict[str, Any]) -> None:
    assert s3_shortcuts.answer(asked) is None
    assert asked["wsgi.input"].tell() == 0


def test_a_client_of_amazon_reads_what_it_wrote(server: S3Server) -> None:
    client = boto3.client(
        "s3", endpoint_url=server.endpoint, aws_access_key_id="t", aws_secret_access_key="t", region_name="us-east-1"
    )
    for name in ("plain", "with blanks & <é>", "100%"):
        client.put_object(Bucket=BUCKET, Key=f"boto/{name}", Body=b"x" * 100_000)
        assert client.get_object(Bucket=BUCKET, Key=f"boto/{name}")["Body"].read() == b"x" * 100_000
    listed = client.list_objects_v2(Bucket=BUCKET, Prefix="boto/")["Contents"]
    assert [entry["Key"] for entry in listed] == ["boto/100%", "boto/plain", "boto/with blanks & <é>"]
