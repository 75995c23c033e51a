"""`omnigraph.queries`: the queries of a file as Python objects that know their parameters; and texts of files.

    q = omnigraph.queries("library.gq")
    g.query(q.books_of, author="lem")

A name that the file does not have fails where it is looked up, and parameters fail where they are given, with the
signature. The types of the graph are not known here: they are checked when a query runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final

from omnigraph.api.calls import Call
from omnigraph.api.queries import StoredQueries
from omnigraph.api.values import plain_parameters
from omnigraph.errors import BadRequestError, NotFoundError
from omnigraph.language.query import syntax as ast
from omnigraph.language.query.check.query import declared_type
from omnigraph.language.query.ir import QueryParameter
from omnigraph.language.query.params import bind_parameters
from omnigraph.language.query.parser import declared_queries, first_word, parse_queries
from omnigraph.language.source import did_you_mean
from omnigraph.language.types import PropertyType


class UnknownQueryError(BadRequestError, AttributeError):
    """A name that a source of queries does not have."""


@dataclass(frozen=True, slots=True, repr=False)
class Query:
    """One query of a source. `Graph.query` and `Graph.mutate` take it instead of a text and a name."""

    name: str
    source: str
    parameters: Mapping[str, str]
    """The declared parameters by name, each with its type as it is written. One that ends in `?` may be left out."""

    is_mutation: bool
    description: str | None = None
    _types: Mapping[str, PropertyType] = field(default_factory=dict, compare=False)

    @property
    def signature(self) -> str:
        """`name($parameter: Type, …)`"""
        return f"{self.name}({', '.join(f'${name}: {type_}' for name, type_ in self.parameters.items())})"

    def bind(self, params: Mapping[str, Any] | None = None, /, **arguments: Any) -> dict[str, Any]:
        """Parameters from a mapping and from keywords together: all declared, none missing, each of its type."""
        both = plain_parameters(params or {})
        if twice := next((name for name in arguments if name in both), None):
            raise self._refusal(f"parameter '{twice}' is given twice, in params and as a keyword")
        both |= plain_parameters(arguments)
        for name in both:
            if name not in self.parameters:
                hint = did_you_mean(name, self.parameters)
                raise self._refusal(f"there is no parameter '{name}'" + (f"; {hint}" if hint else ""))
        declarations = [QueryParameter(name, type_) for name, type_ in self._types.items()]
        try:
            bind_parameters(declarations, both, now_millis=0)
        except BadRequestError as error:
            raise self._refusal(str(error)) from None
        return both

    def _refusal(self, reason: str) -> BadRequestError:
        return BadRequestError(f"{self.signature}: {reason}")

    def __repr__(self) -> str:
        return f"<{'mutation' if self.is_mutation else 'query'} {self.signature}>"


class Queries:
    """The queries of one source: `q.books_of`, `q["books_of"]`, or one after another in the order of the source."""

    __slots__ = ("_entries", "_origin", "_queries")

    def __init__(
        self, queries: Iterable[Query], origin: str | None = None, entries: StoredQueries | None = None
    ) -> None:
        """`entries` describe the queries to callers, where that was made before."""
        self._queries: dict[str, Query] = {}
        self._origin = origin
        self._entries = entries
        for query in queries:
            self._queries.setdefault(query.name, query)  # as in a run: of a repeated name the first one counts

    def __getattr__(self, name: str) -> Query:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> Query:
        query = self._queries.get(name)
        if query is None:
            hint = did_you_mean(name, self._queries) or (
                f"there are {', '.join(self._queries)}" if self._queries else "it holds no query"
            )
            raise UnknownQueryError(f"{self._origin or 'the source'} has no query '{name}'; {hint}")
        return query

    def __iter__(self) -> Iterator[Query]:
        return iter(self._queries.values())

    def __len__(self) -> int:
        return len(self._queries)

    def __contains__(self, name: object) -> bool:
        return name in self._queries

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._queries]

    def __repr__(self) -> str:
        return "\n".join([f"<queries of {self._origin or 'a text'}>", *(f"  {query!r}" for query in self)])


def queries(source: str | PathLike[str]) -> Queries:
    """The queries of a `.gq` file, by its path; or of a text, which a path never looks like: it has braces.

    Raises `CompileError` for a source that does not parse, or is a statement.
    """
    if isinstance(source, str) and "{" in source:
        return _read(source, None)
    if not Path(source).exists():
        raise NotFoundError(f"there is no file '{fspath(source)}' of queries")
    return _read(read_text(Path(source), "queries"), fspath(source))


def _read(text: str, path: str | None) -> Queries:
    return Queries((_query(query, text) for query in declared_queries(text, path)), path)


def _query(query: ast.Query, source: str) -> Query:
    spelled: dict[str, str] = {}
    types: dict[str, PropertyType] = {}
    for parameter in query.parameters:
        name = parameter.type_name.text
        if parameter.dimension is not None:
            name = f"{name}({parameter.dimension})"
        spelled[parameter.name] = (f"[{name}]" if parameter.is_list else name) + ("?" if parameter.nullable else "")
        if (type_ := declared_type(parameter)) is not None:
            types[parameter.name] = type_
    return Query(query.name.text, source, spelled, query.is_mutation, query.description, types)


# Calls


def bind_call(
    source: Any,
    name: str | None,
    params: Mapping[str, Any] | None,
    arguments: Mapping[str, Any],
    options: Mapping[str, object],
) -> Call:
    """What a caller asked for, by a text or by a handle. `arguments` are its keywords, `options` what else it may say.

    A parameter that is called like an option is given in `params`. As a keyword it could mean either, and is refused.
    """
    if isinstance(source, str) and not arguments:
        return Call(source, name, None if params is None else plain_parameters(params))
    if isinstance(source, Query):
        query = source
    elif isinstance(source, str):
        offered = _remember_call(source) if len(source) <= _LONGEST_REMEMBERED else _read_call(source)
        if name is None and len(offered) != 1:
            names = ", ".join(each.name for each in offered)
            raise BadRequestError(f"the source holds {len(offered)} queries; name one of: {names}")
        query, name = next(iter(offered)) if name is None else offered[name], None
    else:
        kind = type(source).__name__
        raise BadRequestError(
            f"a query is a text or a handle, not '{kind}'; omnigraph.queries(path) reads a file of them"
        )
    if name is not None:
        # The handle has the name already, so the word is free for a parameter.
        arguments = {"name": name, **arguments}
    for option, value in options.items():
        if value is not None and option in query.parameters:
            raise BadRequestError(
                f"{query.signature}: '{option}' is a parameter of the query and an option of the call; "
                f"give the parameter as params={{'{option}': …}}, and the option by g.branch(…) or g.at(…)"
            )
    return Call(query.source, query.name, query.bind(params, **arguments))


_REMEMBERED: Final = 256
_LONGEST_REMEMBERED: Final = 4_096


@lru_cache(_REMEMBERED)
def _remember_call(text: str) -> Queries:
    """As `_read_call`, for texts of usual lengths: a program runs the same ones again and again."""
    return _read_call(text)


def _read_call(text: str) -> Queries:
    """The queries of a text that is run, which may be a statement that explains one."""
    file = parse_queries(text)
    match file.statement:
        case None:
            declared = file.queries
        case ast.Explain(query=query):
            declared = (query,)
        case _:
            raise BadRequestError(f"a `{first_word(text)}` statement stands alone: leave out parameters")
    return Queries(_query(query, text) for query in declared)


_NAME_OF_A_SCHEMA: Final = re.compile(r"[^\n{}]*\.pg\s*")


def schema_source(schema: str | PathLike[str]) -> tuple[str, str | None]:
    """The text of a schema, given as it is or as a file, and the file that errors name. No text of a schema looks like
    a name that ends in `.pg`."""
    if isinstance(schema, str) and not _NAME_OF_A_SCHEMA.fullmatch(schema):
        return schema, None
    if not isinstance(schema, str | PathLike):
        raise BadRequestError(f"a schema is a text or the path of a file, not '{type(schema).__name__}'")
    path = Path(schema.rstrip() if isinstance(schema, str) else schema)
    return read_text(path, "schema"), str(path)


def read_text(path: Path, what: str) -> str:
    """The text of a file; `what` it is shows in messages."""
    try:
        return path.read_text("utf-8-sig")
    except OSError as error:
        raise BadRequestError(f"can't read the {what} '{path}': {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadRequestError(f"the {what} '{path}' is not UTF-8 text (byte {error.start})") from error
    except ValueError as error:
        raise BadRequestError(f"can't read the {what} {str(path)!r}: {error}") from error
