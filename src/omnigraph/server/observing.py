"""What the application tells of itself, as log lines, counters and spans."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeVar

from omnigraph.api.access import AccessRequest, Decision
from omnigraph.engine.audit import FIELDS
from omnigraph.server import logs
from omnigraph.server.metrics import UNMATCHED, Metrics
from omnigraph.server.services import RequestRecord
from omnigraph.server.tracing import Tracing

Result = TypeVar("Result")

logger: Final = logging.getLogger("omnigraph.server")


class Observing:
    """The observer of a server that runs."""

    def __init__(self, metrics: Metrics, tracing: Tracing) -> None:
        self._metrics = metrics
        self._tracing = tracing

    def began(self, operation_id: str) -> None:
        self._metrics.began()

    def around(self, operation_id: str, work: Callable[[], Result]) -> Callable[[], Result]:
        return self._tracing.within(f"{operation_id} engine", work)

    def answered(self, record: RequestRecord) -> None:
        operation = record.operation_id
        if operation != UNMATCHED:
            self._metrics.ended()
        self._metrics.answered(operation, record.method, record.status, record.seconds)
        self._tracing.describe(operation, record)
        logs.request(
            record.request_id,
            operation,
            record.status,
            record.seconds * 1000,
            graph=record.graph_id,
            actor=record.actor,
            received=record.received_bytes,
            sent=record.sent_bytes,
            broke_off=record.broke_off,
        )

    def decided(self, request_id: str, actor: str | None, request: AccessRequest, decision: Decision) -> None:
        logs.decision(
            request_id,
            request.action,
            decision.allowed,
            branch=request.branch,
            target_branch=request.target_branch,
            actor=actor,
            rule=decision.matched_rule_id,
        )

    def failed(self, request_id: str, operation_id: str, error: BaseException) -> None:
        fields = {"request_id": request_id, "operation": operation_id}
        logger.error("request failed", exc_info=error, extra={FIELDS: fields})

    def stream_opened(self, graph_id: str) -> None:
        self._metrics.stream_opened(graph_id)

    def stream_closed(self, graph_id: str) -> None:
        self._metrics.stream_closed(graph_id)

    def committed(self, graph_id: str) -> None:
        self._metrics.committed(graph_id)

    def conflicted(self, graph_id: str) -> None:
        self._metrics.conflicted(graph_id)

    def exposition(self) -> bytes:
        return self._metrics.text()
