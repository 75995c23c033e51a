"""Turns the description of a call into a method of a graph, for threads and for asyncio, with its own signature."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from omnigraph.client.async_transport import AsyncTransport
from omnigraph.client.messages import Steps
from omnigraph.client.remote import Remote
from omnigraph.client.transport import Transport

Given = ParamSpec("Given")
Result = TypeVar("Result")


def sent(describe: Callable[Concatenate[Remote, Given], Steps[Result]]) -> Callable[Concatenate[Any, Given], Result]:
    """A method that carries a call out and returns its result."""

    def method(self: Any, /, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        transport: Transport = self._transport
        return transport.run(describe(self, *args, **kwargs))

    return _told(method, describe)


def awaited(
    describe: Callable[Concatenate[Remote, Given], Steps[Result]], *, reads_input: bool = False
) -> Callable[Concatenate[Any, Given], Coroutine[Any, Any, Result]]:
    """A method that carries a call out when it is awaited."""

    async def method(self: Any, /, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        transport: AsyncTransport = self._transport
        return await transport.run(describe(self, *args, **kwargs), reads_input=reads_input)

    return _told(method, describe)


Method = TypeVar("Method", bound=Callable[..., Any])


def _told(method: Method, describe: Callable[..., Any]) -> Method:
    """The method under the name, the documentation and the signature of its description, with what it returns."""
    functools.update_wrapper(method, describe)
    signature = inspect.signature(describe)
    of, *given = signature.parameters.values()
    returned = str(signature.return_annotation).removeprefix("Steps[").removesuffix("]")
    told = signature.replace(parameters=[of.replace(name="self"), *given], return_annotation=returned)
    method.__signature__ = told  # type: ignore[attr-defined]
    return method
