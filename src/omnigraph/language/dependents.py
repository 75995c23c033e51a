"""Who a change of the schema breaks: stored queries, policies and pipelines that fit the accepted schema and not the
desired one.

`schema plan` names them. Policies and pipelines live in packages that the language does not know, so callers describe
them by a function that checks one against a catalog. What did not fit before is not reported: the change breaks nothing
there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from omnigraph.api.schema import Breakage, DependentKind
from omnigraph.errors import CompileError, OmniGraphError
from omnigraph.language.catalog import Catalog
from omnigraph.language.query.compile import compile_queries
from omnigraph.language.query.parser import parse_queries


@dataclass(frozen=True, slots=True)
class Dependent:
    """Something that relies on a schema. `check` raises if it does not fit one."""

    kind: DependentKind
    name: str
    check: Callable[[Catalog], object]


def stored_queries(text: str, path: str | None = None) -> Iterator[Dependent]:
    """The queries of a file. Raises `CompileError` if it does not parse."""
    for name in dict.fromkeys(query.name.text for query in parse_queries(text, path).queries):

        def check(schema: Catalog, name: str = name) -> object:
            return compile_queries(text, schema, path).query(name).operation

        yield Dependent("stored_query", name, check)


def breakages(accepted: Catalog, desired: Catalog, dependents: Iterable[Dependent]) -> tuple[Breakage, ...]:
    """Those that the change breaks, in their order, each with the first reason."""
    broken = []
    for each in dependents:
        if _refusal(each, accepted) is None and (reason := _refusal(each, desired)) is not None:
            broken.append(Breakage(each.kind, each.name, reason))
    return tuple(broken)


def _refusal(dependent: Dependent, catalog: Catalog) -> str | None:
    try:
        dependent.check(catalog)
    except CompileError as error:
        first = error.diagnostics[0]
        return f"{first.message} ({first.code})" if first.code else first.message
    except OmniGraphError as error:
        return str(error).splitlines()[0]
    return None
