"""The change feed for those who wait: an answer that is held back until something happens, and an endless stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from omnigraph.api import wire
from omnigraph.api.changes import ChangePoll
from omnigraph.api.parameters import ChangeFeedParameters
from omnigraph.api.routes import Media
from omnigraph.errors import OmniGraphError
from omnigraph.server.answers import Answer, error_output, json_answer
from omnigraph.server.bodies import ClientGoneError
from omnigraph.server.call import Call, branch_name
from omnigraph.server.exchange import Exchange
from omnigraph.server.handlers.changes import polled
from omnigraph.server.head_watch import HeadWatch
from omnigraph.server.pools import Pools
from omnigraph.server.states import HeldState

HEARTBEAT_SECONDS: Final = 15.0
_LAST_EVENT: Final = "last-event-id"


class FeedDelivery:
    """Polls that wait, for all branches of all graphs of a state."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self._watch = HeadWatch()
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Let everybody who waits go home with what there is."""
        self._stopping.set()

    async def answer(self, call: Call, exchange: Exchange) -> Answer:
        """One poll; an empty one is held back for as long as the client says, or until the branch moves."""
        parameters: ChangeFeedParameters = call.parameters
        patience = min(parameters.wait_ms or 0, call.limits.wait_ms) / 1000
        until = asyncio.get_running_loop().time() + patience
        while True:
            seen = await self._head(call, parameters) if patience else ""
            poll = await self._poll(call, parameters)
            left = until - asyncio.get_running_loop().time()
            if not patience or not _is_empty(poll) or left <= 0 or self._stopping.is_set():
                return json_answer(poll)
            parameters = _continued(parameters, poll)
            await self._moved(call, exchange, parameters, seen, left)

    async def stream(self, call: Call, exchange: Exchange, failed: Callable[[BaseException], None]) -> None:
        """Server-sent events: every poll is one, with the cursor as its id, so that a client goes on where it was."""
        parameters: ChangeFeedParameters = call.parameters
        last = call.headers.get(_LAST_EVENT)
        if last:
            parameters = replace(parameters, start=None, page_token=None, cursor=last)
        seen = await self._head(call, parameters)
        poll = await self._poll(call, parameters)
        await exchange.start(200, {"Cache-Control": "no-store"}, Media.EVENTS, call.route)
        is_first = True
        try:
            while not self._stopping.is_set():
                if is_first or not _is_empty(poll):
                    await exchange.chunk(_event(poll), more=True)
                is_first = False
                parameters = _continued(parameters, poll)
                if _is_empty(poll) and not await self._moved(call, exchange, parameters, seen, HEARTBEAT_SECONDS):
                    await exchange.chunk(b": still here\n\n", more=True)
                seen = await self._head(call, parameters)
                poll = await self._poll(call, parameters)
        except OmniGraphError as error:
            failed(error)
            told = wire.encode(error_output(error, exchange.request_id, call.route))
            await exchange.chunk(b"event: error\ndata: " + told + b"\n\n", more=True)
        await exchange.chunk(b"", more=False)

    async def _poll(self, call: Call, parameters: ChangeFeedParameters) -> ChangePoll:
        return await self._pools.read(call.actor, lambda: polled(call, parameters))

    async def _head(self, call: Call, parameters: ChangeFeedParameters) -> str:
        branch = branch_name(parameters.branch)
        return await self._pools.look(lambda: call.whole.resolve_snapshot(branch))

    async def _moved(
        self, call: Call, exchange: Exchange, parameters: ChangeFeedParameters, seen: str, seconds: float
    ) -> bool:
        """Whether the branch moved before the time was over. A client that leaves ends the wait."""
        key = (call.served.graph_id, branch_name(parameters.branch))
        moved = asyncio.create_task(self._watch.moved(key, seen, lambda: self._head(call, parameters), seconds))
        stopped = asyncio.create_task(self._stopping.wait())
        gone = exchange.gone()
        try:
            await asyncio.wait({moved, stopped, gone}, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                raise ClientGoneError
            return moved.result() if moved.done() else False
        finally:
            moved.cancel()
            stopped.cancel()


class Feeds:
    """The feeds of a process, one for each state that is served. Whoever waits on a state that is replaced goes home
    with what there is, and comes back to the new one: an endless stream must not keep old rules for ever."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self._feeds: dict[HeldState, FeedDelivery] = {}
        self._stopped = False

    def of(self, state: HeldState) -> FeedDelivery:
        feed = self._feeds.get(state)
        if feed is None:
            feed = self._feeds[state] = FeedDelivery(self._pools)
            loop = asyncio.get_running_loop()
            state.when_replaced(lambda: _soon(loop, lambda: self._dismiss(state)))
            if self._stopped:
                feed.stop()
        return feed

    def stop(self) -> None:
        """Send everybody home; the server ends."""
        self._stopped = True
        for feed in self._feeds.values():
            feed.stop()

    def _dismiss(self, state: HeldState) -> None:
        self._feeds.pop(state).stop()


def _soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop has ended, and everybody who waited with it
        loop.call_soon_threadsafe(call)


def _is_empty(poll: ChangePoll) -> bool:
    return not poll.blocks and bool(poll.caught_up)


def _continued(parameters: ChangeFeedParameters, poll: ChangePoll) -> ChangeFeedParameters:
    return replace(parameters, start=None, cursor=poll.cursor, page_token=poll.next_page_token)


def _event(poll: ChangePoll) -> bytes:
    """A page inside a commit has no id: a client that loses the connection there gets the commit again."""
    id_line = b"" if poll.cursor is None else b"id: " + poll.cursor.encode() + b"\n"
    return id_line + b"event: changes\ndata: " + wire.encode(poll) + b"\n\n"
