"""Compiling both languages, beside Python's own parser on a text of the same number of lines."""

from __future__ import annotations

import ast
import time
from collections.abc import Callable

from omnigraph.language.query.compile import compile_queries
from omnigraph.language.schema.compile import compile_schema

MEMBERS = ["id_text: String @key", "tags: [String]?", "state: enum(a, b)", "n: I64? @index"]
SCHEMA = "".join(f"node N{i} {{\n" + "".join(f"    {m}\n" for m in MEMBERS) + "}\n" for i in range(84))
QUERY = (
    "query q($d: String) {\n    match {\n"
    + "".join(f"        $p{i}: N{i} {{ id_text: $d }}\n" for i in range(14))
    + "    }\n    return { $p0.n as n }\n    order { n }\n    limit 3\n}\n"
)


def least(work: Callable[[int], object], times: int = 30) -> float:
    best = float("inf")
    for i in range(times):
        started = time.perf_counter()
        work(i)
        best = min(best, time.perf_counter() - started)
    return best * 1e3


def python_of(lines: int) -> str:
    return "\n".join(f"value_{i} = function(argument_{i}, key='text')" for i in range(lines))


def main() -> None:
    catalog = compile_schema(SCHEMA)
    for label, lines, work in (
        ("schema", SCHEMA.count("\n"), lambda i: compile_schema(SCHEMA + " " * i)),
        (
            "query, parsed and typechecked",
            QUERY.count("\n"),
            lambda i: compile_queries(QUERY + " " * i, catalog).query("q"),
        ),
        ("query, cached", QUERY.count("\n"), lambda _: compile_queries(QUERY, catalog).query("q")),
    ):
        ours, python = least(work), least(lambda _, n=lines: ast.parse(python_of(n)))
        print(f"{label}, {lines} lines: {ours:.3f} ms = {ours / python:.1f}x Python's parser on as many lines")
