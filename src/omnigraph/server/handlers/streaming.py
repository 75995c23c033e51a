"""Answers that are made while the client takes them: exports, baselines and streamed rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from omnigraph.api import wire
from omnigraph.api.changes import ChangeBaselineRecord, ChangeBaselineRequest
from omnigraph.api.enums import Dates, PolicyAction
from omnigraph.api.export import ExportRequest
from omnigraph.api.query import ReadPoint
from omnigraph.api.routes import Media
from omnigraph.engine.export import export_lines
from omnigraph.engine.history.feed import begin_baseline
from omnigraph.engine.snapshot import Snapshot
from omnigraph.server.answers import AnyAnswer, StreamAnswer
from omnigraph.server.call import Call, branch_name, handles
from omnigraph.server.row_streams import in_chunks

_NDJSON = f"{Media.NDJSON}; charset=utf-8"


def stream_answer(
    call: Call,
    chunks: Iterator[bytes],
    media: str,
    headers: Mapping[str, str],
    *,
    last_line_tells_error: bool = False,
) -> AnyAnswer:
    """A stream in one of the slots that its graph has."""
    observer, graph_id = call.services.observer, call.served.graph_id
    close = call.services.budgets.open_stream(call.actor, graph_id)
    observer.stream_opened(graph_id)

    def release() -> None:
        close()
        observer.stream_closed(graph_id)

    return StreamAnswer(chunks, media, headers=headers, last_line_tells_error=last_line_tells_error, release=release)


@handles("export")
def export(call: Call) -> AnyAnswer:
    request: ExportRequest = call.body
    dates = request.dates or call.parameters.dates or Dates.EPOCH

    def run(state: Snapshot) -> AnyAnswer:
        lines = (line + b"\n" for line in export_lines(state, request.type_names or (), dates=dates))
        return stream_answer(call, in_chunks(lines), _NDJSON, call.saw(state), last_line_tells_error=True)

    point = ReadPoint(request.branch, request.snapshot, request.version, request.at)
    return call.read(point, run, action=PolicyAction.EXPORT, text=dates.value)


@handles("captureChangeBaseline")
def capture_baseline(call: Call) -> AnyAnswer:
    request: ChangeBaselineRequest = call.body
    branch = branch_name(request.branch)
    graph = call.require(PolicyAction.EXPORT, branch)
    baseline = begin_baseline(graph._workspace, branch, request.scope)

    def lines() -> Iterator[bytes]:
        for line in baseline.lines():
            yield line + b"\n"
        # Only a stream that was written to its end has this record, so only a whole one can be continued.
        yield wire.encode(ChangeBaselineRecord(baseline.record)) + b"\n"

    headers = call.saw(baseline.state)
    return stream_answer(call, in_chunks(lines()), _NDJSON, headers, last_line_tells_error=True)
