"""Log lines: their form, their level, and what they never hold."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from omnigraph.api.enums import PolicyAction
from omnigraph.api.governance import AccessRequest, Decision
from omnigraph.errors import IntegrityError
from omnigraph.server.runtime import logs
from omnigraph.server.runtime.tracing import RequestRecord


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """Configuring the log of a process must not outlive a test."""
    root, ours = logging.getLogger(), logging.getLogger("omnigraph")
    found_out = ("_srcfile", "logThreads", "logProcesses", "logMultiprocessing")
    before = {name: getattr(logging, name) for name in found_out}
    handlers, levels = root.handlers, (root.level, ours.level)
    yield
    root.handlers = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])
    logging.captureWarnings(False)
    for name, value in before.items():
        setattr(logging, name, value)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_request_is_one_json_object_with_these_members() -> None:
    stream = io.StringIO()
    logs.configure({}, worker=3, stream=stream)
    logs.log_request(RequestRecord("r1", "POST", "mutate", 200, 0.0123456, "kb", "ada", 10, 20))
    (line,) = lines(stream)
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "omnigraph.server.request",
        "message": "request",
        "worker": 3,
        "request_id": "r1",
        "operation": "mutate",
        "graph": "kb",
        "status": 200,
        "ms": 12.35,
        "actor": "ada",
        "received": 10,
        "sent": 20,
    }


def test_a_decision_is_one_json_object_too() -> None:
    stream = io.StringIO()
    logs.configure({}, stream=stream)
    request = AccessRequest(PolicyAction.CHANGE, "main")
    logs.log_decision("r1", "ada", request, Decision(allowed=False, message="no", matched_rule_id="writers"))
    (line,) = lines(stream)
    assert {"action": "change", "allowed": False, "branch": "main", "rule": "writers"}.items() <= line.items()


def test_a_damaged_file_is_named() -> None:
    for stream in (io.StringIO(), Terminal()):
        logs.configure({}, stream=stream)
        try:
            raise IntegrityError("nodes/1/_versions/d7.manifest", "planted-reason")
        except IntegrityError:
            logging.getLogger("omnigraph.server").exception("request failed")
        assert "nodes/1/_versions/d7.manifest" in stream.getvalue()
        assert "planted-reason" not in stream.getvalue()


def test_of_an_exception_the_class_and_the_places_are_told_and_not_the_text() -> None:
    for stream in (io.StringIO(), Terminal()):
        logs.configure({}, stream=stream)
        try:
            try:
                raise ValueError("planted-secret")
            except ValueError as error:
                raise KeyError("planted-row") from error
        except KeyError:
            logging.getLogger("omnigraph.server").exception("request failed")
            logging.getLogger("uvicorn.error").exception("Exception in ASGI application\n")
        told = stream.getvalue()
        assert "planted" not in told
        assert told.count("builtins.KeyError") == told.count("builtins.ValueError") == 2
        assert "test_logs.py:" in told


def test_what_is_not_text_is_logged_nevertheless() -> None:
    stream = io.StringIO()
    logs.configure({}, stream=stream)
    logs.log_request(RequestRecord("r1", "POST", "query", 200, actor="a\ud800\n"))
    assert lines(stream)[0]["actor"] == "a\\ud800\n"


def test_on_a_terminal_people_read_it_and_nothing_moves_the_cursor() -> None:
    stream = Terminal()
    logs.configure({}, stream=stream)
    logs.log_request(RequestRecord("r1", "POST", "query", 200, actor="a\x1b[2J\nfake line"))
    assert len(stream.getvalue().splitlines()) == 1
    assert "\x1b" not in stream.getvalue()
    assert "operation=query status=200" in stream.getvalue()


@pytest.mark.parametrize(
    ("environment", "level"),
    [
        ({}, logging.INFO),
        ({"RUST_LOG": "debug"}, logging.DEBUG),
        ({"RUST_LOG": "WARN"}, logging.WARNING),
        ({"RUST_LOG": "warn,omnigraph=debug"}, logging.DEBUG),
        ({"RUST_LOG": "lance=debug"}, logging.INFO),
        ({"RUST_LOG": "lance=debug,error"}, logging.ERROR),
        ({"RUST_LOG": "debug", "OMNIGRAPH_LOG": "error"}, logging.ERROR),
        ({"RUST_LOG": "off"}, logging.CRITICAL + 1),
        ({"OMNIGRAPH_LOG": " "}, logging.INFO),
    ],
)
def test_the_environment_sets_the_level(environment: dict[str, str], level: int) -> None:
    assert logs.level(environment) == (level, None)


def test_a_level_that_is_none_is_reported() -> None:
    stream = io.StringIO()
    logs.configure({"OMNIGRAPH_LOG": "loud"}, stream=stream)
    (line,) = lines(stream)
    assert line["level"] == "warning"
    assert "OMNIGRAPH_LOG" in line["message"]


def test_above_info_requests_are_not_told() -> None:
    stream = io.StringIO()
    logs.configure({"OMNIGRAPH_LOG": "warn"}, stream=stream)
    logs.log_request(RequestRecord("r1", "POST", "query", 200))
    logging.getLogger("uvicorn.error").info("Started server process")
    assert stream.getvalue() == ""
