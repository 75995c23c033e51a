"""Answers as other servers give them: older ones, newer ones, and proxies that say something themselves."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import omnigraph
from omnigraph import AsyncRemoteGraph, RemoteGraph
from omnigraph.errors import UnexpectedAnswerError
from tests.support.http_server import Answer, HttpServer

QUERY = "query q() { match { $p: Person } return { $p.name as name } }"
ROWS = [{"name": "Ada", "age": 36, "tags": ["x"]}, {"name": "Bob", "age": None, "tags": []}]
PAGE = b"<!doctype html><html><head><title>\n Sign  in </title></head><body>please</body></html>"


def sent(body: bytes | dict[str, Any], media: str = "application/json", status: str = "200 OK") -> Answer:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return status, [("Content-Length", str(len(data))), ("Content-Type", media)], data


@contextmanager
def server(answer: Answer) -> Iterator[tuple[RemoteGraph, Any]]:
    """Something that always answers the same; a client of it, and how to run a call of one that is awaited."""
    other = HttpServer(lambda environ: answer)
    url = f"http://127.0.0.1:{other.port}/graphs/kb"

    def awaited(call: Any) -> Any:
        async def run() -> Any:
            async with omnigraph.connect_async(url, retries=False) as graph:
                return await call(graph)

        return asyncio.run(run())

    try:
        with omnigraph.connect(url, retries=False) as graph:
            yield graph, awaited
    finally:
        other.close()


async def collected(graph: AsyncRemoteGraph) -> list[dict[str, Any]]:
    return [row async for row in (await graph.stream(QUERY)).rows()]


OLDER = {"query_name": "q", "target": {"branch": "main", "snapshot": None}, "row_count": 2, "rows": ROWS}
NEWER = {**OLDER, "columns": ["name", "age", "tags"], "graph_commit_id": "c1", "warnings": [{"text": "new"}]}


@pytest.mark.parametrize("body", [OLDER, NEWER], ids=["older", "newer"])
def test_rows_in_json_are_understood(body: dict[str, Any]) -> None:
    with server(sent(body, "application/json; charset=utf-8")) as (graph, awaited):
        rows = graph.query(QUERY)
        assert (rows.rows(), list(rows), rows[1]["name"], len(rows)) == (ROWS, ROWS, "Bob", 2)
        assert (rows.columns, rows.query_name) == (["name", "age", "tags"], "q")
        assert rows.graph_commit_id == body.get("graph_commit_id", "")
        assert rows.to_arrow().to_pylist() == ROWS
        assert "Ada" in repr(rows)
        stream = graph.stream(QUERY)
        assert list(stream.rows()) == ROWS
        assert stream.reader().read_all().to_pylist() == ROWS
        assert graph.invoke("q").rows() == ROWS  # type: ignore[union-attr]
        assert awaited(lambda g: g.query(QUERY)).rows() == ROWS
        assert awaited(collected) == ROWS


def test_values_of_different_kinds_in_one_column_are_kept() -> None:
    rows = [{"x": 1, "y": "a"}, {"x": "one", "y": {"z": 2}}]
    with server(sent({"rows": rows})) as (graph, _):
        found = graph.query(QUERY)
        assert found.rows() == rows
        assert found.to_arrow().column("x").to_pylist() == ["1", '"one"']


@pytest.mark.parametrize(
    ("values", "column"),
    [([2**64 - 1, None], [2**64 - 1, None]), ([2**64 - 1, -1], ["18446744073709551615", "-1"])],
)
def test_integers_beyond_the_usual_range_are_kept(values: list[Any], column: list[Any]) -> None:
    with server(sent({"rows": [{"x": value} for value in values]})) as (graph, _):
        found = graph.query(QUERY)
        assert found.to_arrow().column("x").to_pylist() == column
        assert "18446744073709551615" in repr(found)


def test_an_error_of_a_newer_server_is_told_by_its_sentence() -> None:
    told = {"error": "the moon is full", "code": "moonlit", "type": "moon", "fields": {"phase": 4}}
    said = pytest.raises(omnigraph.OmniGraphError, match=r"^the moon is full$")
    with server(sent(told, status="418 I'm a teapot")) as (graph, _), said:
        graph.list_branches()
    told = {"error": "row 1 is odd", "code": "bad_request", "type": "constraint", "fields": {"rule": "odd"}}
    said = pytest.raises(omnigraph.BadRequestError, match=r"^row 1 is odd$")
    with server(sent(told, status="400 Bad Request")) as (graph, _), said:
        graph.list_branches()


@pytest.mark.parametrize(
    ("line", "kind", "words"),
    [
        (b'{"error":{"error":"too late","code":"moonlit"}}', omnigraph.OmniGraphError, "^too late$"),
        (b'{"error": oops', omnigraph.AnswerBrokenError, "can't read"),
        (b'{"error":' + b"[" * 100_000, omnigraph.AnswerBrokenError, "can't read"),
        (b'{"error":7}', omnigraph.AnswerBrokenError, "can't read"),
    ],
    ids=["of a newer server", "not JSON", "too deep", "not an error"],
)
def test_a_last_line_that_tells_an_error_ends_an_export(line: bytes, kind: type[Exception], words: str) -> None:
    records = sent(b'{"type":"Person"}\n' + line + b"\n", "application/x-ndjson")
    with server(records) as (graph, _), pytest.raises(kind, match=words):
        list(graph.export())


@pytest.mark.parametrize("status", ["200 OK", "400 Bad Request"])
def test_an_answer_that_is_nested_too_deeply_is_refused(status: str) -> None:
    with server(sent(b"[" * 100_000, status=status)) as (graph, _):
        for call in (graph.list_branches, lambda: graph.query(QUERY), lambda: graph.invoke("q")):
            with pytest.raises(UnexpectedAnswerError):
                call()


def test_receipts_of_other_versions_are_understood() -> None:
    commit = {"graph_commit_id": "c1", "graph_manifest_version": 3, "created_at": 1, "signed_by": "k"}
    receipt = {
        "branch": "main",
        "query_name": "q",
        "affected_nodes": 1,
        "affected_edges": 0,
        "commit": commit,
        "new": 1,
    }
    with server(sent(receipt)) as (graph, _):
        found = graph.mutate("query q() { delete Person }")
        assert (found.actor_id, found.replayed) == (None, False)
        assert found.commit is not None
        assert (found.commit.id, found.commit.parent_commit_id) == ("c1", None)
        assert graph.invoke("q") == found
    with server(sent({"branch": "main"})) as (graph, _), pytest.raises(UnexpectedAnswerError, match="query_name"):
        graph.mutate("query q() { delete Person }")


@pytest.mark.parametrize("status", ["200 OK", "403 Forbidden", "502 Bad Gateway"])
def test_a_page_for_people_is_said_to_be_one(status: str) -> None:
    async def exported(graph: AsyncRemoteGraph) -> list[str]:
        return [line async for line in graph.export()]

    with server(sent(PAGE, "text/html", status)) as (graph, awaited):
        for call in (
            lambda: graph.query(QUERY),
            lambda: list(graph.stream(QUERY)),
            lambda: list(graph.export()),
            lambda: graph.changes.baseline(io.BytesIO()),
            lambda: graph.list_branches(),
            lambda: graph.mutate("query q() { delete Person }"),
            lambda: graph.invoke("q"),
            lambda: awaited(collected),
            lambda: awaited(exported),
        ):
            with pytest.raises(UnexpectedAnswerError, match="a page for browsers"):
                call()


def test_a_page_is_named_by_its_title() -> None:
    said = pytest.raises(UnexpectedAnswerError, match="a page for browsers titled 'Sign in', not an answer")
    with server(sent(PAGE, "text/html; charset=utf-8")) as (graph, _), said:
        graph.list_branches()


def test_rows_in_another_format_are_refused_by_its_name() -> None:
    with server(sent(b"name\nAda\n", "text/csv")) as (graph, _), pytest.raises(UnexpectedAnswerError, match="text/csv"):
        graph.query(QUERY)
