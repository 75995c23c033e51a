"""What both remote graphs know: the address, how queries are given, and which commits this client has made.

A commit that was made through a client is on every branch that it then reads: the client tells the server which one it
must have seen, and a worker that has not seen it yet is asked again.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeAlias

from omnigraph.api.queries import ReadPoint, ReadTarget
from omnigraph.api.service.routes import COMMIT_HEADER, IDEMPOTENCY_HEADER, MIN_COMMIT_HEADER, route
from omnigraph.api.values import json_problem, plain_parameters
from omnigraph.client.address import Address
from omnigraph.client.messages import Reply, Request, Upload, header_text, json_body, query_string
from omnigraph.errors import BadRequestError

MAIN: Final = "main"


class Asked(NamedTuple):
    """A query to be run: the text, the name of one query in it, and its parameters."""

    source: str
    name: str | None
    params: Mapping[str, Any] | None


Binder: TypeAlias = Callable[[Any, str | None, Mapping[str, Any] | None, Mapping[str, Any], Mapping[str, Any]], Any]
"""Makes an `Asked` of what a caller gives: source or handle, name, params, keywords, and the options it also gave."""


def plain_binder(
    query: Any,
    name: str | None,
    params: Mapping[str, Any] | None,
    given: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Asked:
    """Texts only, with the parameters as they are. The server checks them."""
    if not isinstance(query, str):
        raise BadRequestError(f"a query is a text here, not '{type(query).__name__}'")
    both = {**plain_parameters(params or {}), **plain_parameters(given)}
    return Asked(query, name, both if params is not None or given else None)


class Remote:
    """A graph behind a server."""

    def __init__(self, address: Address, binder: Binder = plain_binder) -> None:
        self._address = address
        self._binder = binder
        self._made: dict[str, str] = {}

    @property
    def uri(self) -> str:
        """The address of the graph."""
        return self._address.uri

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.uri}>"

    # Requests

    def _bound(
        self,
        source: Any,
        name: str | None,
        params: Mapping[str, Any] | None,
        given: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> Asked:
        """A query with its parameters, as a caller of any method gave them."""
        asked = Asked(*self._binder(source, name, params, given, options))
        if asked.params is not None:
            require_json(asked.params)
        return asked

    def _request(self, operation_id: str, parameters: Any = None, body: Any = None, **path: str) -> Request:
        """A request for an operation that reads."""
        row = route(operation_id)
        try:
            content, headers = (None, {}) if body is None else json_body(body)
            url = self._address.url(row, **path) + ("" if parameters is None else query_string(parameters))
        except UnicodeEncodeError as error:
            half = error.object[error.start : error.end].encode(errors="backslashreplace").decode()
            raise BadRequestError(f"a text of the request holds half of a surrogate pair, '{half}'") from None
        return Request(row, url, content, headers)

    def _reading(self, request: Request, point: ReadPoint) -> Request:
        """The same of a branch's head, no older than what this client wrote there."""
        made = self._made.get(branch_of(point.branch)) if point.is_head else None
        return request if made is None else request.with_headers({MIN_COMMIT_HEADER: made})

    def _writing(
        self, request: Request, *, actor: str | None, key: str | None = None, content: Upload | None = None
    ) -> Request:
        """The same as a write under a key, one of its own when none is given, so that sending it twice is safe."""
        if actor is not None:
            raise BadRequestError(
                f"actor '{actor}' is not allowed on a served write: the server knows who writes by the token"
            )
        named = key if key is not None else secrets.token_hex(16)
        headers = {IDEMPOTENCY_HEADER: header_text(named, "an idempotency key")}
        if content is not None:
            headers["Content-Type"] = (content.media or request.route.request_media[0]).value
        body = request.content if content is None else content
        return replace(request.with_headers(headers), content=body, writes=True)

    # What this client has written

    def _wrote(self, branch: str, reply: Reply) -> None:
        """Remember the commit that a write made."""
        commit = reply.header(COMMIT_HEADER)
        if commit is not None and 200 <= reply.status < 300:
            self._made[branch] = commit

    def _forget(self, branch: str) -> None:
        """What was written to a branch that is gone, or begins anew, says nothing about it any more."""
        self._made.pop(branch, None)


def require_json(params: Mapping[str, Any]) -> None:
    """Refuse parameters that JSON does not have: they would arrive as something else."""
    for name, value in params.items():
        if (problem := json_problem(value)) is not None:
            raise BadRequestError(f"param '{name}': {problem}")


def branch_of(name: str | None) -> str:
    """A branch as the server knows it: main when none is said, without the white space around it."""
    return MAIN if name is None else name.strip()


def target_of(point: ReadPoint) -> ReadTarget:
    return ReadTarget.of(point, branch_of(point.branch))
