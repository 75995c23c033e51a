"""The log of a server: one line per request, per decision of a policy, and per event, on stderr.

Lines are JSON objects, or readable text on a terminal. They must never hold a token, a parameter, a query text or a
row: callers name fields one by one, and an exception is logged by its class and its frames, because its text may quote
data.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, TextIO

import msgspec

from omnigraph.api.governance import AccessRequest, Decision
from omnigraph.engine.observers import FIELDS
from omnigraph.errors import IntegrityError
from omnigraph.server.runtime.tracing import RequestRecord

REQUESTS: Final = logging.getLogger("omnigraph.server.request")
DECISIONS: Final = logging.getLogger("omnigraph.server.policy")

LEVEL_VARIABLES: Final = ("OMNIGRAPH_LOG", "RUST_LOG")
_LEVELS: Final = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "off": logging.CRITICAL + 1,
}
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_FRAMES: Final = 40
_ENCODER: Final = msgspec.json.Encoder(enc_hook=str)


def log_request(record: RequestRecord) -> None:
    """Log one request. Its operation is an operation id of the route table, not a path."""
    if REQUESTS.isEnabledFor(logging.INFO):
        fields = {
            "request_id": record.request_id,
            "operation": record.operation_id,
            "graph": record.graph_id,
            "status": record.status,
            "ms": round(record.seconds * 1000, 2),
            "actor": record.actor,
            "received": record.received_bytes,
            "sent": record.sent_bytes,
            "broke_off": record.broke_off or None,
        }
        _log(REQUESTS, "request", fields)


def log_decision(request_id: str, actor: str | None, request: AccessRequest, decision: Decision) -> None:
    """Log one decision of a policy."""
    if DECISIONS.isEnabledFor(logging.INFO):
        fields = {
            "request_id": request_id,
            "action": request.action,
            "allowed": decision.allowed,
            "branch": request.branch,
            "target_branch": request.target_branch,
            "actor": actor,
            "rule": decision.matched_rule_id,
        }
        _log(DECISIONS, "decision", fields)


def _log(logger: logging.Logger, message: str, fields: Mapping[str, Any]) -> None:
    """Log at INFO, without looking for the line of code that logs: no form of the log shows it."""
    record = logging.LogRecord(logger.name, logging.INFO, "", 0, message, None, None)
    setattr(record, FIELDS, fields)
    logger.handle(record)


def configure(
    environment: Mapping[str, str] = os.environ, *, worker: int | None = None, stream: TextIO | None = None
) -> None:
    """Send everything that is logged in this process to stderr, in one form."""
    stream = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Readable() if stream.isatty() else _JsonLines(worker))
    root = logging.getLogger()
    root.handlers = [handler]
    own_level, unknown = level(environment)
    # Libraries log at INFO what only concerns themselves.
    root.setLevel(max(own_level, logging.WARNING))
    logging.getLogger("omnigraph").setLevel(own_level)
    logging.captureWarnings(True)
    # None of these is printed.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    if unknown is not None:
        logging.getLogger("omnigraph.server").warning("%s is not a log level; 'info' is used", unknown)


def level(environment: Mapping[str, str]) -> tuple[int, str | None]:
    """The level that the environment sets, and the name of the variable if its value is not a level.

    `RUST_LOG` may list levels per target (`warn,omnigraph=debug`): ours counts, else the one without a target.
    """
    for variable in LEVEL_VARIABLES:
        if not (text := environment.get(variable, "").strip()):
            continue
        general = ours = None
        for directive in text.lower().split(","):
            target, named, value = directive.strip().rpartition("=")
            if not named:
                general = value if value in _LEVELS else general
            elif target.startswith("omnigraph"):
                ours = value if value in _LEVELS else ours
        if (name := ours or general) is not None:
            return _LEVELS[name], None
        if "=" not in text:
            return logging.INFO, variable
    return logging.INFO, None


class _JsonLines(logging.Formatter):
    def __init__(self, worker: int | None) -> None:
        super().__init__()
        self._worker = worker

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(round(record.created, 3), UTC),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage().strip(),
        }
        if self._worker is not None:
            line["worker"] = self._worker
        line |= {name: value for name, value in getattr(record, FIELDS, {}).items() if value is not None}
        if (failure := _failure(record)) is not None:
            line["failure"] = failure
        try:
            return _ENCODER.encode(line).decode()
        except UnicodeEncodeError:  # text from outside may hold lone surrogates
            texts = {name: value for name, value in line.items() if isinstance(value, str)}
            escaped = {name: text.encode("utf-8", "backslashreplace").decode() for name, text in texts.items()}
            return _ENCODER.encode(line | escaped).decode()


class _Readable(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created).strftime("%H:%M:%S.%f")[:-3]
        fields = getattr(record, FIELDS, {})
        shown = " ".join(f"{name}={value}" for name, value in fields.items() if value is not None)
        text = f"{at} {record.levelname:<7} {record.name.removeprefix('omnigraph.')}: {record.getMessage().strip()}"
        # Text from outside must not move the cursor or begin a line of its own.
        lines = [_CONTROL.sub("�", f"{text} {shown}".rstrip())]
        for cause in _failure(record) or ():
            damaged = f": {cause['path']}" if "path" in cause else ""
            lines.append(f"    {cause['error']}{damaged}")
            lines += [f"      {frame}" for frame in cause["at"]]
        return "\n".join(lines)


def _failure(record: logging.LogRecord) -> list[dict[str, Any]] | None:
    """The exception of a record and its causes: classes and frames, no texts. A damaged file is named, because its path
    within the graph holds no data of users."""
    if not record.exc_info or record.exc_info[1] is None:
        return None
    error: BaseException | None = record.exc_info[1]
    causes: list[dict[str, Any]] = []
    while error is not None and len(causes) < 8:
        cause: dict[str, Any] = {"error": f"{type(error).__module__}.{type(error).__qualname__}"}
        if isinstance(error, IntegrityError):
            cause["path"] = error.path
        frames = traceback.walk_tb(error.__traceback__)
        at = [f"{frame.f_code.co_filename}:{line} {frame.f_code.co_name}" for frame, line in frames]
        causes.append({**cause, "at": at[-_FRAMES:]})
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return causes
