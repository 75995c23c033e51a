"""One graph seen three ways: opened here, over HTTP, and over HTTP with asyncio, behind the same methods.

`AwaitedGraph` lets a test call an `AsyncRemoteGraph` like the others: it awaits what comes back and collects what is
iterated. The event loop lives in a thread of its own, for as long as the graph.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import pyarrow as pa

from omnigraph import AsyncRemoteGraph, Branch, RemoteSnapshot
from omnigraph.api.graph import ChangesArea, GraphApi, MaintenanceArea, SchemaArea


class AwaitedGraph:
    """An `AsyncRemoteGraph` for callers that do not wait."""

    def __init__(self, make: Callable[[], AsyncRemoteGraph]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.graph = make()

    def close(self) -> None:
        self.run(self.graph.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, awaited: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(awaited, self._loop).result()

    def __getattr__(self, name: str) -> Any:
        return self.awaiting(name, getattr(self.graph, name))

    def awaiting(self, name: str, found: Any) -> Any:
        """A member of the graph, or of what is reached through it."""
        if isinstance(found, VIEWS):
            return AwaitedView(self, found)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            made = found(*(arg._view if isinstance(arg, AwaitedView) else arg for arg in args), **kwargs)
            if inspect.isasyncgen(made):
                return self._iterated(made)
            result = self.run(made) if inspect.isawaitable(made) else made
            if isinstance(result, VIEWS):
                return AwaitedView(self, result)
            if name == "read_blob":
                return AwaitedBlob(self, result)
            return AwaitedBatches(self, result) if name == "stream" else result

        return call

    def _iterated(self, made: AsyncIterator[Any]) -> Iterator[Any]:
        """The first item is asked for at once: what fails, fails in the call, as with the others."""
        first = self.run(_next(made))

        def items() -> Iterator[Any]:
            found = first
            while found is not _END:
                yield found
                found = self.run(_next(made))

        return items()


VIEWS = (Branch, RemoteSnapshot, SchemaArea, ChangesArea, MaintenanceArea)


class AwaitedView:
    """A branch, a snapshot or an area for callers that do not wait."""

    def __init__(self, graph: AwaitedGraph, view: Any) -> None:
        self._graph, self._view = graph, view

    def __repr__(self) -> str:
        return repr(self._view)

    def __getattr__(self, name: str) -> Any:
        return self._graph.awaiting(name, getattr(self._view, name))


_END = object()


async def _next(made: AsyncIterator[Any]) -> Any:
    return await anext(made, _END)


class AwaitedBlob:
    def __init__(self, graph: AwaitedGraph, blob: Any) -> None:
        self._graph, self._blob = graph, blob
        self.description = blob.description

    def read(self) -> bytes:
        return self._graph.run(self._blob.read())

    def read_range(self, start: int, end: int) -> bytes:
        return self._graph.run(self._blob.read_range(start, end))


class AwaitedBatches:
    def __init__(self, graph: AwaitedGraph, batches: Any) -> None:
        self._graph, self._batches = graph, batches

    def __repr__(self) -> str:
        return repr(self._batches)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)

    def __iter__(self) -> Iterator[Any]:
        return self._graph._iterated(self._batches.__aiter__())

    def rows(self) -> Iterator[dict[str, Any]]:
        return self._graph._iterated(self._batches.rows())

    def reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self._batches.schema, iter(self))


Api = GraphApi
"""What tests of the suite hold, whichever it is."""
