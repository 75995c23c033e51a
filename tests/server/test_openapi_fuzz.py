"""Requests made from the OpenAPI document, good and bad: no answer is a 500, and every answer is as documented.

`OMNIGRAPH_FUZZ_EXAMPLES=500` looks for longer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

import omnigraph
from omnigraph.api.service.routes import ROUTES, Route
from omnigraph.server.settings import ServerLimits
from tests.server.running import RunningServer, running
from tests.support.clusters import QUERIES

EXAMPLES = int(os.environ.get("OMNIGRAPH_FUZZ_EXAMPLES", "12"))
SCHEMA = """
node Person { name: String @key  age: I32?  born: Date?  seen: DateTime?  photo: Blob?  mood: Vector(2)? }
edge Knows: Person -> Person { since: I32? }
"""
GOOD, BAD = GenerationMode.POSITIVE, GenerationMode.NEGATIVE
DOCUMENTED = [route for route in ROUTES if route.in_document]
ASKED = [(route, GOOD) for route in DOCUMENTED] + [
    (route, BAD) for route in DOCUMENTED if route.parameters or route.request
]
"""A request without parameters and body can't be wrong."""

CHECKS = (
    schemathesis.checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)


@schemathesis.serializer("application/x-ndjson")
def lines(context: schemathesis.SerializationContext, value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    graph = omnigraph.init(tmp_path_factory.mktemp("fuzzed") / "g", SCHEMA)
    graph.load('{"type":"Person","data":{"name":"Ada","photo":"base64:aGVsbG8="}}', mode="append")
    graph.create_branch("side")
    with running({"kb": graph}, queries=QUERIES, limits=ServerLimits(wait_ms=5)) as server:
        yield server


@pytest.fixture(scope="module")
def document(server: RunningServer) -> Any:
    return schemathesis.openapi.from_url(f"{server.url}/openapi.json")


@pytest.mark.parametrize(
    ("route", "mode"), ASKED, ids=[f"{route.operation_id}-{'good' if mode is GOOD else 'bad'}" for route, mode in ASKED]
)
def test_no_request_gets_a_500_and_every_answer_is_documented(
    server: RunningServer, document: Any, route: Route, mode: GenerationMode
) -> None:
    operation = document[route.full_path][route.method]

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def ask(case: schemathesis.Case) -> None:
        if "graph_id" in (case.path_parameters or {}):
            case.path_parameters["graph_id"] = "kb"
        response = case.call(timeout=60)
        case.validate_response(response, checks=list(CHECKS))

    ask()
    assert server.recorder.failures == []
