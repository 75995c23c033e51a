"""A stream into one graph type: a commit per micro-batch, exactly once across restarts.

Spark runs a micro-batch again when it died before noting that the batch was done. The key of a commit names the
streaming query and the batch, so a repeat is recognised. The query's id is the one in the checkpoint: with a new
checkpoint begins a new stream, even at the same path.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from omnigraph.engine.bulk.staged_run import last_number
from omnigraph.engine.write.publish import WriteTxn
from omnigraph.errors import BadRequestError
from omnigraph.pipeline.datasource.task_errors import noting_fields
from omnigraph.pipeline.datasource.write import Sink, WrittenRows

# Spark tells the tasks of a streaming query which query they work for; the committing process is told nothing.
_QUERY_PROPERTY: Final = "sql.streaming.queryId"


class TypeStreamWriter(DataSourceStreamArrowWriter):
    """`stream` names the stream instead of the query id, for those who keep track of batches themselves."""

    def __init__(self, sink: Sink, stream: str | None) -> None:
        self._sink = sink
        self._stream = stream

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY_PROPERTY) if context else None
        with noting_fields():
            return replace(self._sink.written(iterator), stream=self._stream or query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  (Spark's name)
        streams = {m.stream for m in messages if isinstance(m, WrittenRows) and m.fragments}
        if not streams:
            return
        stream = streams.pop()
        if stream is None:
            raise BadRequestError("Spark named no query for this stream; give it a name with the option runKey")
        key = f"{_prefix(stream)}{batchId}"
        with noting_fields():
            self._sink.publish(messages, key, unless=lambda txn: is_committed(txn, stream, batchId))


def _prefix(stream: str) -> str:
    return f"stream:{stream}:"


def is_committed(txn: WriteTxn, stream: str, batch: int) -> bool:
    """Whether the history of the branch holds this batch of the stream."""
    last = last_number(txn, _prefix(stream))
    return last is not None and last >= batch
