"""The handlers of changes: those of a commit, the feed of a branch, and the difference of two snapshots.

Long polls and event streams wait here for a branch to move. However many clients wait for one branch, one task reads
its head. `app` calls `Feeds` for polls that wait; nothing may wait in a thread of a pool.
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
from omnigraph.api.service.http import ChangeFeedParameters, CommitChangesParameters, DiffParameters
from omnigraph.api.service.routes import Media
from omnigraph.engine.history.changes import commit_changes_page, diff_page
from omnigraph.errors import NotFoundError, OmniGraphError, PolicyError
from omnigraph.graph import Graph
from omnigraph.server.admission import Pools
from omnigraph.server.http.call import Call, branch_name, handles
from omnigraph.server.http.request import ClientGoneError
from omnigraph.server.http.responses import AnyResponse, Response, error_output, json_response
from omnigraph.server.reload import HeldServing


@handles("getCommitChanges")
def get_commit_changes(call: Call) -> AnyResponse:
    parameters: CommitChangesParameters = call.parameters
    commit_id = call.path["commit_id"].strip()
    try:
        state = call.workspace.snapshot(snapshot=commit_id)
    except PolicyError:
        raise NotFoundError(f"commit '{commit_id}' not found: it is on no branch of this graph") from None
    page = commit_changes_page(state, parameters.scope, parameters.page_token, parameters.limit, parameters.max_bytes)
    return json_response(page, call.commit_header(state))


@handles("pollChanges")
def poll_changes(call: Call) -> AnyResponse:
    return json_response(poll(feed_graph(call), call.parameters))


def feed_graph(call: Call) -> Graph:
    """The graph for an actor who may follow the branch. It is decided once, before anything is sent of the branch."""
    parameters: ChangeFeedParameters = call.parameters
    return call.require(PolicyAction.READ, branch_name(parameters.branch))


def poll(graph: Graph, parameters: ChangeFeedParameters) -> ChangePoll:
    """One poll of a branch's feed."""
    return graph.changes.poll(
        branch=branch_name(parameters.branch),
        start=parameters.start,
        cursor=parameters.cursor,
        page_token=parameters.page_token,
        scope=parameters.scope,
        max_changes=parameters.limit,
        max_bytes=parameters.max_bytes,
        max_commits=parameters.max_commits,
    )


@handles("diff")
def diff(call: Call) -> AnyResponse:
    parameters: DiffParameters = call.parameters
    workspace = call.workspace
    before, after = (workspace.state_of(branch_name(name)) for name in (parameters.before, parameters.after))
    return json_response(diff_page(before, after, parameters.scope, parameters.page_token, parameters.limit))


LOOK_EVERY_SECONDS: Final = 0.2

Head: TypeAlias = Callable[[], Awaitable[str]]


class _Watched:
    """A branch that clients wait for, and the task that reads its head."""

    def __init__(self, head: Head) -> None:
        self.waiters = 0
        self.news = asyncio.Event()
        self.commit: str | None = None
        self.task = asyncio.create_task(self._look(head))

    async def _look(self, head: Head) -> None:
        try:
            while True:
                if (commit := await head()) != self.commit:
                    self.commit = commit
                    self.news.set()
                    self.news = asyncio.Event()
                await asyncio.sleep(LOOK_EVERY_SECONDS)
        finally:
            self.news.set()  # clients that wait learn how it ended


HEARTBEAT_SECONDS: Final = 15.0


class FeedWaits:
    """The branches of one serving set that clients of this process wait for."""

    def __init__(self, pools: Pools) -> None:
        self.pools = pools
        self.stopping = asyncio.Event()
        """Set when all waits have to end; each client gets what there is."""
        self._watched: dict[tuple[str, str], _Watched] = {}

    async def wait_for_move(self, key: tuple[str, str], seen: str, head: Head, seconds: float) -> bool:
        """Whether the branch left the commit that was seen, within some time. One task looks while anybody waits."""
        watched = self._watched.get(key) or _Watched(head)
        self._watched[key] = watched
        watched.waiters += 1
        try:
            async with asyncio.timeout(seconds):
                while watched.commit is None or watched.commit == seen:
                    await watched.news.wait()
                    if watched.task.done():
                        watched.task.result()
            return True
        except TimeoutError:
            return False
        finally:
            watched.waiters -= 1
            if watched.waiters == 0:
                watched.task.cancel()
                del self._watched[key]


class Feed:
    """One client that follows a branch. `_parameters` say where it is."""

    def __init__(self, waits: FeedWaits, call: Call, graph: Graph) -> None:
        self._waits = waits
        self._call = call
        self._graph = graph
        self._parameters: ChangeFeedParameters = call.parameters
        self._branch = branch_name(self._parameters.branch)
        self._head = ""

    async def respond(self) -> Response:
        """One poll; an empty one waits for as long as the client says, or until the branch moves."""
        clock = asyncio.get_running_loop().time
        wait = min(self._parameters.wait_ms or 0, self._call.limits.wait_ms) / 1000
        until = clock() + wait
        while True:
            page = await self._next_page(reads_head=bool(wait))
            left = until - clock()
            if not wait or not _is_empty(page) or left <= 0 or self._waits.stopping.is_set():
                return json_response(page)
            await self._wait_for_move(left)

    async def stream(self, log_failure: Callable[[BaseException], None]) -> None:
        """Server-sent events: each poll is one, with the cursor as its id, so that a client continues where it was."""
        exchange, route = self._call.exchange, self._call.route
        if last := self._call.headers.get("last-event-id"):
            self._parameters = replace(self._parameters, start=None, page_token=None, cursor=last)
        page = await self._next_page()
        await exchange.start(200, {"Cache-Control": "no-store"}, Media.EVENTS, route)
        is_first = True
        try:
            while not self._waits.stopping.is_set():
                if is_first or not _is_empty(page):
                    # A page inside a commit has no id: a client that loses the connection there gets the commit again.
                    id_line = b"" if page.cursor is None else b"id: " + page.cursor.encode() + b"\n"
                    event = id_line + b"event: changes\ndata: " + wire.encode(page) + b"\n\n"
                    await exchange.chunk(event, more=True)
                is_first = False
                if _is_empty(page) and not await self._wait_for_move(HEARTBEAT_SECONDS):
                    await exchange.chunk(b": still here\n\n", more=True)
                page = await self._next_page()
        except OmniGraphError as error:
            log_failure(error)
            body = wire.encode(error_output(error, exchange.request_id, route))
            await exchange.chunk(b"event: error\ndata: " + body + b"\n\n", more=True)
        await exchange.chunk(b"", more=False)

    async def _next_page(self, *, reads_head: bool = True) -> ChangePoll:
        """The head is read before the poll, so that a commit between the poll and a wait is not missed."""
        if reads_head:
            self._head = await self._read_head()
        parameters = self._parameters
        page = await self._waits.pools.read(self._call.actor, lambda: poll(self._graph, parameters))
        self._parameters = replace(parameters, start=None, cursor=page.cursor, page_token=page.next_page_token)
        return page

    async def _read_head(self) -> str:
        return await self._waits.pools.look(lambda: self._graph.resolve_snapshot(self._branch))

    async def _wait_for_move(self, seconds: float) -> bool:
        """Whether the branch moved before the time was over. A client that leaves ends the wait."""
        key = (self._call.served.graph_id, self._branch)
        moved = asyncio.create_task(self._waits.wait_for_move(key, self._head, self._read_head, seconds))
        stopped = asyncio.create_task(self._waits.stopping.wait())
        gone = self._call.exchange.client_gone()
        try:
            await asyncio.wait({moved, stopped, gone}, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                raise ClientGoneError
            return moved.result() if moved.done() else False
        finally:
            moved.cancel()
            stopped.cancel()


class Feeds:
    """The feeds of a process. When a serving set is replaced, its waits end and clients come back to the new one: an
    endless stream must not keep an old policy."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self._waits: dict[HeldServing, FeedWaits] = {}
        self._stopped = False

    def follow(self, call: Call, graph: Graph) -> Feed:
        held, waits = call.held, self._waits.get(call.held)
        if waits is None:
            waits = self._waits[held] = FeedWaits(self._pools)
            loop = asyncio.get_running_loop()

            def dismiss() -> None:
                with suppress(RuntimeError):  # the loop has ended, and all waits with it
                    loop.call_soon_threadsafe(lambda: self._waits.pop(held).stopping.set())

            held.when_replaced(dismiss)
            if self._stopped:
                waits.stopping.set()
        return Feed(waits, call, graph)

    def stop(self) -> None:
        """End all waits, because the server ends."""
        self._stopped = True
        for waits in self._waits.values():
            waits.stopping.set()


def _is_empty(poll: ChangePoll) -> bool:
    return not poll.blocks and bool(poll.caught_up)
