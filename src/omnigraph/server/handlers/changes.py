"""Differences: the changes of a commit, the feed of a branch, and the net difference of two states.

The change feed for those who wait: an answer that is held back until something happens, and an endless stream.

Waiting for a branch to move. However many clients wait for one branch, the store is asked by one of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeAlias

from msgspec.structs import replace

from omnigraph.api import wire
from omnigraph.api.enums import PolicyAction
from omnigraph.api.history import ChangePoll
from omnigraph.api.queries import ReadPoint
from omnigraph.api.service.http import ChangeFeedParameters, CommitChangesParameters, DiffParameters
from omnigraph.api.service.routes import Media
from omnigraph.engine.history.changes import commit_changes_page, diff_page
from omnigraph.engine.history.log_walk import could_be_commit
from omnigraph.engine.snapshot import Snapshot
from omnigraph.errors import NotFoundError, OmniGraphError
from omnigraph.server.admission import Pools
from omnigraph.server.http.call import Call, branch_name, handles
from omnigraph.server.http.request import ClientGoneError, Exchange
from omnigraph.server.http.responses import Answer, AnyAnswer, error_output, json_answer
from omnigraph.server.reload import HeldState


@handles("getCommitChanges")
def get_commit_changes(call: Call) -> AnyAnswer:
    parameters: CommitChangesParameters = call.parameters
    commit_id = call.path["commit_id"].strip()
    state = call.whole._workspace.snapshot(snapshot=commit_id)
    if not call.decision(PolicyAction.READ, state.entry.branch).allowed:
        raise NotFoundError(f"commit '{commit_id}' not found: it is on no branch of this graph")
    state = state.restricted_to(call.visibility(PolicyAction.READ, state.entry.branch))
    page = commit_changes_page(state, parameters.scope, parameters.page_token, parameters.limit, parameters.max_bytes)
    return json_answer(page, call.saw(state))


@handles("pollChanges")
def poll_changes(call: Call) -> AnyAnswer:
    require_feed(call)
    return json_answer(polled(call, call.parameters))


def require_feed(call: Call) -> None:
    """Ask once whether the actor may follow the branch, before anything is told of it."""
    parameters: ChangeFeedParameters = call.parameters
    call.require(PolicyAction.READ, branch_name(parameters.branch))


def polled(call: Call, parameters: ChangeFeedParameters) -> ChangePoll:
    """One poll of a branch's feed, for an actor who may follow it."""
    branch = branch_name(parameters.branch)
    return call.whole._restricted_to(call.visibility(PolicyAction.READ, branch)).changes.poll(
        branch=branch,
        start=parameters.start,
        cursor=parameters.cursor,
        page_token=parameters.page_token,
        scope=parameters.scope,
        max_changes=parameters.limit,
        max_bytes=parameters.max_bytes,
        max_commits=parameters.max_commits,
    )


@handles("diff")
def diff(call: Call) -> AnyAnswer:
    parameters: DiffParameters = call.parameters
    before, after = (_state_of(call, branch_name(name)) for name in (parameters.before, parameters.after))
    return json_answer(diff_page(before, after, parameters.scope, parameters.page_token, parameters.limit))


def _state_of(call: Call, name: str) -> Snapshot:
    """A branch's head or a commit, once the actor may read it."""
    return call.allowed_state(ReadPoint(snapshot=name) if could_be_commit(name) else ReadPoint(name), PolicyAction.READ)


LOOK_EVERY_SECONDS: Final = 0.2

Head: TypeAlias = Callable[[], Awaitable[str]]


class _Watched:
    """A branch that somebody waits for."""

    def __init__(self) -> None:
        self.waiters = 0
        self.news = asyncio.Event()
        self.commit: str | None = None
        self.task: asyncio.Task[None] | None = None


class HeadWatch:
    """The branches that clients of this process wait for, each looked at by one task while anybody waits."""

    def __init__(self) -> None:
        self._watched: dict[tuple[str, str], _Watched] = {}

    async def moved(self, key: tuple[str, str], seen: str, head: Head, seconds: float) -> bool:
        """Whether the branch left the commit that was seen, within some time."""
        watched = self._watched.setdefault(key, _Watched())
        watched.waiters += 1
        if watched.task is None:
            watched.task = asyncio.create_task(self._look(watched, head))
        try:
            async with asyncio.timeout(seconds):
                while watched.commit is None or watched.commit == seen:
                    news, task = watched.news, watched.task
                    waiting = asyncio.create_task(news.wait())
                    try:
                        await asyncio.wait({waiting, task}, return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        waiting.cancel()
                    if task.done():
                        task.result()
            return True
        except TimeoutError:
            return False
        finally:
            watched.waiters -= 1
            if watched.waiters == 0:
                watched.task.cancel()
                del self._watched[key]

    async def _look(self, watched: _Watched, head: Head) -> None:
        while True:
            commit = await head()
            if commit != watched.commit:
                watched.commit = commit
                watched.news.set()
                watched.news = asyncio.Event()
            await asyncio.sleep(LOOK_EVERY_SECONDS)


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
