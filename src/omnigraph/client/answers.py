"""Answers that are taken in pieces, from threads and from asyncio. One that breaks off raises: it never ends early."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Self

import httpx

from omnigraph.client.messages import Reply
from omnigraph.errors import AnswerBrokenError


class Answer:
    """An answer from which a thread takes pieces; `head` is its status and headers."""

    def __init__(self, head: Reply, response: httpx.Response) -> None:
        self.head = head
        self._response = response
        self._chunks = response.iter_bytes()
        self._received = 0

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            chunk = next(self._chunks)
        except (httpx.RequestError, httpx.StreamError) as error:
            self.close()
            raise AnswerBrokenError(self._received, str(error) or type(error).__name__) from error
        except StopIteration:
            self.close()
            raise
        self._received += len(chunk)
        return chunk

    def close(self) -> None:
        self._response.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        """A stream that nobody reads to its end gives its connection back."""
        self.close()


class AsyncAnswer:
    """As `Answer`, to be awaited."""

    def __init__(self, head: Reply, response: httpx.Response) -> None:
        self.head = head
        self._response = response
        self._chunks = response.aiter_bytes()
        self._received = 0

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await anext(self._chunks)
        except (httpx.RequestError, httpx.StreamError) as error:
            await self.aclose()
            raise AnswerBrokenError(self._received, str(error) or type(error).__name__) from error
        except StopAsyncIteration:
            await self.aclose()
            raise
        self._received += len(chunk)
        return chunk

    async def aclose(self) -> None:
        await self._response.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
