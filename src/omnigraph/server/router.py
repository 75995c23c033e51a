"""Which operation a request is for: a tree of path segments, made from the table of routes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote_to_bytes

from omnigraph.api.routes import ROUTES, Route


@dataclass(frozen=True, slots=True)
class Match:
    """A route and what stands in the variable segments of the path."""

    route: Route
    path: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class WrongMethod:
    """A path that exists, asked for with a method that it does not have."""

    allow: str


@dataclass(slots=True)
class _Node:
    fixed: dict[str, _Node] = field(default_factory=dict)
    variable: tuple[str, _Node] | None = None
    methods: dict[str, Route] = field(default_factory=dict)


class Router:
    """A fixed segment wins over a variable one, so `/branches/merge` never names a branch.

    Segments are decoded one by one: `feature%2Fx` is one segment with a slash in it.
    """

    def __init__(self, routes: Iterable[Route] = ROUTES) -> None:
        self._root = _Node()
        for route in routes:
            node = self._root
            for segment in route.full_path.strip("/").split("/"):
                node = _child(node, segment)
            node.methods[route.method] = route
            if route.method == "GET":
                node.methods.setdefault("HEAD", route)

    def match(self, raw_path: bytes, method: str) -> Match | WrongMethod | None:
        """None when there is no such path. A trailing slash makes another path."""
        if not raw_path.startswith(b"/"):
            return None
        node, path = self._root, {}
        for quoted in raw_path[1:].split(b"/"):
            try:
                segment = unquote_to_bytes(quoted).decode()
            except UnicodeDecodeError:
                return None
            if segment in node.fixed:
                node = node.fixed[segment]
            elif node.variable is not None and segment:
                name, node = node.variable
                path[name] = segment
            else:
                return None
        if not node.methods:
            return None
        route = node.methods.get(method)
        return Match(route, path) if route is not None else WrongMethod(", ".join(sorted(node.methods)))


def _child(node: _Node, segment: str) -> _Node:
    if not segment.startswith("{"):
        return node.fixed.setdefault(segment, _Node())
    name = segment.strip("{}")
    if node.variable is None:
        node.variable = name, _Node()
    assert node.variable[0] == name, "one place of a path has one name"
    return node.variable[1]


ROUTER: Final = Router()
