"""Waiting for a branch to move. However many clients wait for one branch, the store is asked by one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

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
