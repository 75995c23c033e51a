"""A process that asks a graph things of any size and says how each one ended. A dead process is a failed test."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from omnigraph import Graph
from omnigraph.errors import CompileError, OmniGraphError
from tests.support.child import say

SCHEMA = "node P { slug: String @key  name: String?  age: I32?  tags: [String]? }\nedge K: P -> P"
NODES = 20


def read(match: str, returned: str = "$p.slug", tail: str = "") -> str:
    return f"query q() {{ match {{ {match} }} return {{ {returned} }} {tail} }}"


def repeated(count: int, text: Callable[[int], str], separator: str = " ") -> str:
    return separator.join(map(text, range(count)))


def quoted(prefix: str) -> Callable[[int], str]:
    return lambda i: f'"{prefix}{i}"'


def nested(depth: int, kind: type) -> Any:
    value: Any = kind()
    for _ in range(depth):
        value = [value] if kind is list else {"a": value}
    return value


# What it takes to overflow the native stack of the store's parser: beyond the limits, and within them.
TOO_LARGE = {
    "tests": read("$p: P " + "$p.age > 1 " * 40_000),
    "traversals": read("$v0: P " + repeated(3_000, lambda i: f"$v{i} k $v{i + 1}"), "count($v0) as n"),
    "negations": read("$p: P " + "not { $p k $_ } " * 3_000),
    "negations in negations": read("$p: P " + "not { $p k $_ " * 3_000 + "}" * 3_000),
    "columns": read("$p: P", repeated(100_000, lambda i: f"1 as c{i}", ",")),
    "sort keys": read("$p: P", tail=f"order {{ {repeated(10_000, lambda i: '$p.age', ',')} }}"),
    "lists in lists": read("$p: P  $p.age = " + "[" * 10_000),
    "parentheses": read("$p: P  search(" + "(" * 10_000),
    "nots": read("$p: P  " + "not " * 40_000 + "$p.age > 1"),
    "a long sum": read(f"$p: P  $p.age > {repeated(40_000, str, ' + ')}"),
    "a long text": read(f'$p: P  $p.name = "{"x" * 2_000_000}"'),
    "a long name": read(f"$p: P  $p.{'a' * 2_000_000} = 1"),
}
ANSWERED = {
    "texts in a list": (read(f"$p: P  [{repeated(40_000, quoted('n'), ',')}] contains $p.name"), NODES),
    "keys in a list": (read(f"$p: P  [{repeated(9_000, quoted('p'), ',')}] contains $p.slug"), NODES),
    "numbers in a list": (read(f"$p: P  [{repeated(12_000, str, ',')}] contains $p.age"), NODES),
    "many tests": (read("$p: P " + "$p.age > 1 " * 2_000), NODES - 2),
    "many tests in one": (read(f"$p: P  {repeated(5_000, '$p.age > 1 - {}'.format, ' and ')}"), NODES - 2),
    "alternatives": (read(f"$p: P  {repeated(40_000, '$p.age = {}'.format, ' or ')}"), NODES),
    "alternatives of two properties": (
        read("$p: P  " + repeated(5_000, lambda i: f'$p.age = {i + 1} or $p.name = "n{i}"', " or ")),
        NODES,
    ),
    "negated alternatives": (read(f"$p: P  not ({repeated(9_000, '$p.age = {}'.format, ' or ')})"), 0),
    "items": (read(f"$p: P  $p.age in [{repeated(40_000, str, ',')}]"), NODES),
    "as many traversals as are allowed": (
        read("$v0: P " + repeated(199, lambda i: f"$v{i} k $v{i + 1}  $v{i + 1}.age != $v{i}.age"), "$v0.slug"),
        NODES,
    ),
    "as many groups as are allowed": (read(repeated(200, '$v{}: P {{ slug: "p1" }}'.format), "$v0.slug"), 1),
    "as deep a negation as is allowed": (read("$p: P " + "not { $p k $_ " * 60 + "}" * 60), NODES),
    "a name within a text": (read(f'$p: P  "{"n1 " * 100_000}" contains $p.name'), 1),
}


def main(path: str) -> None:
    with Graph.init(Path(path), SCHEMA) as graph:
        nodes = [{"type": "P", "data": {"slug": f"p{i}", "name": f"n{i}", "age": i}} for i in range(NODES)]
        edges = [{"edge": "K", "from": f"p{i}", "to": f"p{(i + 1) % NODES}"} for i in range(NODES)]
        graph.load("\n".join(map(json.dumps, [*nodes, *edges])), mode="append")
        _ask(graph)


def _ask(graph: Graph) -> None:
    for name, text in TOO_LARGE.items():
        _say(name, partial(graph.query, text))
    for name, (text, expected) in ANSWERED.items():
        rows = len(graph.query(text).rows())
        say(name, "answered" if rows == expected else f"{rows} rows")
    deepest = ANSWERED["as many traversals as are allowed"][0]
    say("a plan", len(graph.explain(deepest)))
    say("a profile", len(list(graph.profile(deepest).lines())) > 400)
    asked = "query q($v: [String]?) { match { $p: P } return { $p.slug } }"
    inserted = 'query q($v: [String]?) { insert P { slug: "x"  tags: $v } }'
    for kind in (list, dict):
        deep = {"v": nested(5_000, kind), "w": nested(5_000, kind)}
        _say(f"parameter {kind.__name__}", partial(graph.query, asked, params=deep))
        _say(f"written parameter {kind.__name__}", partial(graph.mutate, inserted, params=deep, idempotency_key="k"))
        for number, text in enumerate((json.dumps(nested(900, kind)), ("[" if kind is list else '{"a":') * 50_000)):
            record = f'{{"type": "P", "data": {{"slug": "y", "tags": {text}}}}}'
            _say(f"record {kind.__name__} {number}", partial(graph.load, record, mode="append"))
    say("done", len(graph.query(read("$p: P")).rows()))


def _say(name: str, action: Callable[[], object]) -> None:
    """A typed error by its code or class, anything else by what it is."""
    try:
        action()
        say(name, "answered")
    except CompileError as error:
        say(name, error.code, error.diagnostics[0].message.partition(":")[0].replace(" ", "_"))
    except OmniGraphError as error:
        say(name, type(error).__name__)
