"""Watching all stores that are opened while a block runs, for operations that open several by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from omnigraph.storage.objects import Interceptor, Objects
from tests.support.preempt import DiedError

WRITES = frozenset({"create", "put", "delete"})


@contextmanager
def watched(interceptor: Interceptor) -> Iterator[None]:
    """Every store that is opened here is seen by the interceptor, also after the block."""
    opened = Objects.__init__

    def open_watched(self: Objects, *arguments: Any) -> None:
        opened(self, *arguments)
        self.interceptor = interceptor

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Objects, "__init__", open_watched)
        yield


class Counter:
    """Requests by kind and path, in order."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []

    def before(self, kind: str, path: str) -> None:
        self.requests.append((kind, path))

    def after(self, kind: str, path: str) -> None:
        """A request is counted when it begins."""

    @property
    def writes(self) -> list[tuple[str, str]]:
        return [request for request in self.requests if request[0] in WRITES]


class Death:
    """Dies before the n-th request that is meant; the dead make no requests, whatever their code still does."""

    def __init__(self, nth: int, meant: Callable[[str, str], bool] = lambda kind, _: kind in WRITES) -> None:
        self.nth, self.meant = nth, meant
        self.seen = 0
        self.happened = False

    def before(self, kind: str, path: str) -> None:
        self.seen += self.meant(kind, path)
        self.happened = self.happened or self.seen >= self.nth
        if self.happened:
            raise DiedError

    def after(self, kind: str, path: str) -> None:
        """Death comes before a request; behind it is before the next one."""


class Meanwhile:
    """Has something else done before the n-th request, once."""

    def __init__(self, nth: int, action: Callable[[], object]) -> None:
        self.nth, self.action = nth, action
        self.seen = 0

    def before(self, kind: str, path: str) -> None:
        self.seen += 1
        if self.seen == self.nth:
            self.action()

    def after(self, kind: str, path: str) -> None:
        """Somebody who is stopped behind a request is stopped before the next one."""

    @property
    def happened(self) -> bool:
        return self.seen >= self.nth
