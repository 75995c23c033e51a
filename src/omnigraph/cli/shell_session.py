"""One session of the shell on one graph: the branch or past state it reads, its formats, and what statements do.

It works on any `GraphApi`; the terminal reads lines, passes statements in and shows errors. A line that begins with `:`
is a command, a `query … { }` ends with its last brace, and anything else ends with its line if its brackets are closed,
else with `;` or an empty line. Completion offers names of the schema and of branches and never disturbs typing.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from omnigraph.api.enums import ReadFormat
from omnigraph.api.graph import GraphApi
from omnigraph.api.queries import ReadPoint
from omnigraph.cli.inputs import describe_affected, describe_change, json_object, json_or_text, read_source
from omnigraph.cli.params import UsageError, read_point
from omnigraph.cli.printing.output import print_lines, print_text
from omnigraph.cli.printing.rows import ReadPrinter, show_profiled
from omnigraph.errors import BadRequestError, OmniGraphError
from omnigraph.language.catalog import Catalog
from omnigraph.language.query.parser import declared_queries, first_word, parse_queries
from omnigraph.language.query.syntax import BranchList, Explain, Query
from omnigraph.language.schema.compile import compile_schema
from omnigraph.language.source import did_you_mean, structure_of

if TYPE_CHECKING:
    from omnigraph.api.graph import QueryRows
    from omnigraph.api.load import MutationReceipt
    from omnigraph.client import RemoteGraph


_OPEN, _CLOSED = "{([", "})]"
_BODY = re.compile(r"(match|unwind|return|insert|upsert|update|delete)\b|\{")
_CALL = re.compile(r"([A-Za-z_]\w*)\s*(.*)", re.DOTALL)


class Statement:
    """The lines of one statement, until it is complete."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    @property
    def text(self) -> str:
        return "\n".join(self._lines)

    @property
    def is_empty(self) -> bool:
        return not structure_of(self.text).strip()

    def take(self, line: str) -> str | None:
        """The statement, if this line completes one."""
        if not self._lines and not line.strip():
            return None
        self._lines.append(line)
        if not self._is_complete(line):
            return None
        statement = self.rest() or ""
        structure = structure_of(statement).rstrip()
        if statement.startswith(":") or not structure.endswith(";"):
            return statement
        return statement[: len(structure) - 1]  # the semicolon is the shell's, not the language's

    def rest(self) -> str | None:
        """A statement that was begun and never completed, when nothing more will come."""
        left, self._lines = self.text.strip(), []
        return left or None

    def _is_complete(self, line: str) -> bool:
        if self.text.lstrip().startswith(":"):
            return True
        structure = structure_of(self.text).rstrip()
        if not structure.strip():
            return False
        if not line.strip() or structure.endswith(";"):
            return True
        if sum(map(structure.count, _OPEN)) > sum(map(structure.count, _CLOSED)):
            return False
        return "{" in structure if structure.split(None, 1)[0] in ("query", "explain") else len(self._lines) == 1


def statements(lines: Iterable[str]) -> Iterator[str]:
    """The statements of a text that nobody types."""
    begun = Statement()
    for line in lines:
        if (whole := begun.take(line.rstrip("\r\n"))) is not None:
            yield whole
    if (left := begun.rest()) is not None:
        yield left


def as_query(text: str) -> str:
    """The body of a query as a query; a whole one as it is."""
    return f"query shell() {{ {text} }}" if _BODY.match(structure_of(text).lstrip()) else text


KEYWORDS = (
    *("query", "match", "return", "order", "limit", "not", "as", "desc", "asc", "insert", "update", "delete"),
    *("unwind", "then", "union", "optional", "distinct", "offset", "exists", "upsert", "path", "shortest", "each"),
    *("set", "where", "and", "or", "contains", "starts_with", "nearest", "bm25", "rrf", "search", "fuzzy"),
    *("count", "sum", "avg", "min", "max", "collect", "case", "when", "else", "end", "now", "date", "datetime"),
)
_BOUND = re.compile(r"\$(\w+)\s*:\s*([A-Za-z_]\w*)")
_INTO = re.compile(r"\b(?:insert|update|delete)\s+([A-Za-z_]\w*)[^}]*$")


@dataclass
class Names:
    """The sources of names. Each is asked when it is needed, and remembers what it gave."""

    schema: Callable[[], str]
    branches: Callable[[], Sequence[str]]
    queries: Callable[[], Iterable[str]]
    commands: Mapping[str, Sequence[str]]
    """The commands of the shell, with the words that may follow each."""

    _compiled: tuple[str, Catalog] | None = None

    def complete(self, before: str, word: str) -> list[str]:
        """The words that `word` may become, after the text before it in the statement."""
        return sorted(name for name in self._candidates(before, word) if name.startswith(word))

    def _candidates(self, before: str, word: str) -> Iterable[str]:
        words = before.split()
        if not words and word.startswith(":"):
            return self.commands
        if words and words[0] in self.commands and words[0] not in (":explain", ":profile"):
            branches = self.branches() if words[0] == ":branch" else ()
            return [*branches, *self.commands[words[0]]] or _types(self._catalog())
        if word.startswith("$") and "." not in word:
            return [f"${name}" for name, _ in _BOUND.findall(before)]
        catalog = self._catalog()
        if word.startswith("$"):
            variable, _, _ = word.partition(".")
            bound = dict(_BOUND.findall(before)).get(variable[1:])
            any_type = (name for type_ in catalog.types() for name in type_.properties)
            return [f"{variable}.{name}" for name in (any_type if bound is None else _properties(catalog, bound))]
        if (into := _INTO.search(before)) is not None:
            return _properties(catalog, into[1])
        # A traversal spells edges with a small initial.
        edges = [name[:1].lower() + name[1:] for name in catalog.edges]
        offered = [*KEYWORDS, *_types(catalog), *edges, *(self.queries() if not words else ())]
        pinned = _BOUND.search(before.rpartition("{")[0].rpartition("\n")[2])
        if pinned is not None and before.rstrip().endswith(("{", ",")):
            offered += _properties(catalog, pinned[2])
        return offered

    def _catalog(self) -> Catalog:
        """The schema as it is now; an empty one while it does not compile."""
        try:
            text = self.schema()
            if self._compiled is None or text != self._compiled[0]:
                self._compiled = (text, compile_schema(text))
            return self._compiled[1]
        except OmniGraphError:
            return compile_schema("")


def _types(catalog: Catalog) -> list[str]:
    return [*catalog.nodes, *catalog.edges, *catalog.interfaces]


def _properties(catalog: Catalog, name: str) -> list[str]:
    # An edge is spelled with a small initial where it is walked.
    type_ = catalog.nodes.get(name) or catalog.interfaces.get(name) or catalog.edge_named(name)
    return [] if type_ is None else list(type_.properties)


HELP = """\
match { $p: Person } return { $p.name }      a read; one line, or end it with ; or an empty line
insert Person { name: "Ada" }                a mutation on the current branch, one commit
query q($n: String) { … }                    a whole query; it ends with its brace
branch create work from main                 a statement: branch create, delete, merge and list, explain query
q n=Ada     or     q {"n": "Ada"}            a query by name: stored by the server, or of a file (:queries FILE)

:branch [NAME | create NAME]   the branches, or go to one
:at [VERSION | TIME | COMMIT]  read the past of the branch; :at now comes back
:schema [TYPE]                 the schema, or one declaration of it
:queries [FILE]                the queries that can be called, or take those of a file
:params {"n": "Ada"}           values for parameters of queries that are typed
:explain READ                  the plan of a read
:profile READ                  run it, and show what each operator did
:format [NAME]                 table, kv, csv, jsonl or json
:help, :quit                   Ctrl-D leaves too; Ctrl-C drops the line, or the running query"""


# What people type who know other shells.
_PLAIN_WORDS = {"help": ":help", "?": ":help", "quit": ":quit", "exit": ":quit"}


@dataclass(frozen=True, slots=True)
class KnownQuery:
    """A query with the text it is part of, or one that a server has stored, whose text only the server knows."""

    name: str
    parameters: tuple[str, ...]
    is_mutation: bool
    source: str | None

    @classmethod
    def of(cls, query: Query, source: str) -> KnownQuery:
        return cls(query.name.text, tuple(p.name for p in query.parameters), query.is_mutation, source)


class Leaving(Exception):  # noqa: N818  (no error: somebody said goodbye)
    """The session is over."""


class Session:
    """The graph, the branch or the past of it that is read, the values of parameters, and the queries by name."""

    def __init__(self, graph: GraphApi, printer: ReadPrinter, actor: str | None, branch: str) -> None:
        self.graph = graph
        self.printer = printer
        self.actor = actor
        self.branch = branch
        self.point = ReadPoint(branch)
        self.params: dict[str, Any] = {}
        self.queries: dict[str, KnownQuery] = {}
        self._commands: dict[str, Callable[[str], None]] = {
            ":at": self._at,
            ":branch": self._branch,
            ":explain": self._explain,
            ":format": self._format,
            ":help": lambda _: print_text(HELP),
            ":params": self._params,
            ":profile": self._profile,
            ":queries": self._queries,
            ":quit": self._quit,
            ":schema": self._schema,
        }
        offered: dict[str, tuple[str, ...]] = dict.fromkeys(self._commands, ())
        offered |= {":format": tuple(ReadFormat), ":branch": ("create",), ":at": ("now",)}
        schema = lambda: graph.schema.show(self.branch)  # noqa: E731
        self.names = Names(schema, graph.list_branches, lambda: self.queries, offered)

    @property
    def prompt(self) -> str:
        point = self.point
        past = point.snapshot or point.version or (point.at and point.at.isoformat())
        return f"{self.branch}@{past}> " if past else f"{self.branch}> "

    def run(self, statement: str) -> None:
        """One statement. Raises what went wrong; the session stays as it was."""
        statement = _PLAIN_WORDS.get(statement, statement) if statement not in self.queries else statement
        if statement.startswith(":"):
            name, _, rest = statement.partition(" ")
            command = self._commands.get(name)
            if command is None:
                hint = did_you_mean(name, list(self._commands))
                raise BadRequestError(f"there is no {name}; {hint or ':help lists the commands'}")
            command(rest.strip())
            return
        if self._is_statement(statement, "branch"):
            self._run_branch_statement(statement)
            return
        query, arguments = self._find_query(statement)
        if query.is_mutation:
            self._mutate(query, arguments)
        elif query.source is None:
            rows = self._server().invoke(query.name, arguments, **self.point.keywords, expect_mutation=False)
            self.printer.show(cast("QueryRows", rows))
        else:
            self.printer.show(self.graph.query(query.source, query.name, arguments, **self.point.keywords))

    def _find_query(self, text: str) -> tuple[KnownQuery, dict[str, Any]]:
        """The query that a text asks for, and values for its parameters."""
        source, arguments = as_query(text), {}
        call = _CALL.fullmatch(text.strip())
        is_whole = call is None or call[1] == "query" or self._is_statement(text, "explain")
        name = None if call is None or is_whole else call[1]
        if call is not None and name in self.queries:
            query, arguments = self.queries[name], _arguments(call[2])
        elif name is not None and source == text:
            names = f"; :queries FILE takes some: {', '.join(sorted(self.queries)) or 'there are none yet'}"
            raise BadRequestError(f"'{name}' is not a query that can be called{names}")
        else:
            file = parse_queries(source)
            queries = (file.statement.query,) if isinstance(file.statement, Explain) else file.queries
            if len(queries) != 1:
                raise BadRequestError("one query at a time; :queries FILE takes those of a file")
            query = KnownQuery.of(queries[0], source)
        values = {name: self.params[name] for name in query.parameters if name in self.params}
        return query, values | arguments

    def _find_source(self, text: str) -> tuple[str, str, dict[str, Any]]:
        """The same where the text of the query is needed."""
        query, arguments = self._find_query(text)
        if query.source is None:
            raise BadRequestError(f"the text of '{query.name}' is the server's; write the read itself")
        return query.source, query.name, arguments

    def _server(self) -> RemoteGraph:
        from omnigraph.client import RemoteGraph

        assert isinstance(self.graph, RemoteGraph), "only a server stores queries"
        return self.graph

    def _is_statement(self, text: str, word: str) -> bool:
        """Whether a text is a statement that begins with this word, and not the call of a query of that name."""
        return first_word(text) == word and word not in self.queries

    def _run_branch_statement(self, text: str) -> None:
        """A statement says itself what it is about, so the branch and the point of the session are left out."""
        if isinstance(parse_queries(text).statement, BranchList):
            self.printer.show(self.graph.query(text))
        else:
            print_lines([describe_change(self.graph.mutate(text, actor=self.actor))])

    def _mutate(self, query: KnownQuery, arguments: dict[str, Any]) -> None:
        if not self.point.is_head:
            raise BadRequestError("the past can't be changed; :at now goes back to the branch")
        if query.source is None:
            done = self._server().invoke(query.name, arguments, branch=self.branch, expect_mutation=True)
            receipt = cast("MutationReceipt", done)
        else:
            receipt = self.graph.mutate(query.source, query.name, arguments, branch=self.branch, actor=self.actor)
        print_lines([f"changed {receipt.branch}: {describe_affected(receipt)}"])

    # ---- commands

    def _at(self, where: str) -> None:
        point = ReadPoint(self.branch)
        # It is looked up now, and not at the next read: nobody can be at a snapshot that does not exist.
        if where.isdigit():
            newest = self.graph.version_of(self.branch)
            if not 1 <= int(where) <= newest:
                raise BadRequestError(f"branch '{self.branch}' has the versions 1 to {newest}")
            point = ReadPoint(self.branch, version=int(where))
        elif len(where) == 26 and where.isalnum():
            point = ReadPoint(snapshot=where)
            self.graph.version_of(snapshot=where)
        elif where not in ("", "now"):
            point = ReadPoint(**read_point(self.branch, at=where))
            self.graph.version_of(self.branch, at=point.at)
        self.point = point

    def _branch(self, name: str) -> None:
        branches = self.graph.list_branches()
        word, _, created = name.partition(" ")
        if word == "create" and created.strip():
            self.graph.create_branch(created.strip(), source=self.branch, actor=self.actor)
            name = created.strip()
        elif not name:
            print_lines(f"{'*' if each == self.branch else ' '} {each}" for each in branches)
            return
        elif name not in branches:
            hint = did_you_mean(name, branches)
            raise BadRequestError(f"branch '{name}' not found; {hint or f':branch create {name} makes it'}")
        self.branch = name
        self.point = ReadPoint(name)

    def _explain(self, text: str) -> None:
        print_lines(self.graph.explain(*self._find_source(text), **self.point.keywords), lambda _: "")

    def _profile(self, text: str) -> None:
        show_profiled(self.graph, *self._find_source(text), self.point.keywords, self.printer)

    def _format(self, name: str) -> None:
        if not name:
            print_lines([self.printer.format.value])
            return
        try:
            self.printer.format = ReadFormat(name)
        except ValueError:
            raise UsageError(f"'{name}' is not a format; use {', '.join(ReadFormat)}") from None

    def _params(self, text: str) -> None:
        if text:
            self.params = json_object(text, ":params", "parameters are a JSON object")
        else:
            print_lines([json.dumps(self.params, ensure_ascii=False)])

    def _queries(self, file: str) -> None:
        if file:
            self.take_queries(Path(file))
        for name, query in sorted(self.queries.items()):
            parameters = ", ".join(f"${parameter}" for parameter in query.parameters)
            print_lines([f"{'mutation' if query.is_mutation else 'read':<9}{name}({parameters})"])

    def take_queries(self, path: Path) -> None:
        """Let the queries of a file be called by name."""
        source = read_source(path)
        declared = declared_queries(source, str(path))
        self.queries |= {query.name.text: KnownQuery.of(query, source) for query in declared}

    def take_stored_queries(self) -> None:
        """Let the queries that a server has stored be called by name."""
        for stored in self._server().stored_queries().queries:
            parameters = tuple(parameter.name for parameter in stored.params)
            self.queries[stored.name] = KnownQuery(stored.name, parameters, stored.mutation, None)

    def _schema(self, name: str) -> None:
        text = self.graph.schema.show(self.branch)
        print_text(_declaration(text, name) if name else text)

    def _quit(self, _: str) -> None:
        raise Leaving


def _arguments(text: str) -> dict[str, Any]:
    """`{"name": "Ada"}`, or `name=Ada age=36`: values are JSON where they can be, else text."""
    if not text or text.startswith("{"):
        return json_object(text, "the arguments", "arguments are a JSON object") if text else {}
    arguments: dict[str, Any] = {}
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise BadRequestError(f"the arguments can't be read: {error}") from None
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise BadRequestError(f"'{word}' is not an argument; write name=value, or a JSON object")
        if (name := name.removeprefix("$")) in arguments:
            raise BadRequestError(f"the parameter '{name}' is given twice")
        arguments[name] = json_or_text(value)
    return arguments


def _declaration(schema: str, name: str) -> str:
    """The part of a schema that declares a type, as it was written."""
    from omnigraph.language.schema.parser import parse_schema

    declared = {each.name.text: each for each in parse_schema(schema).declarations}
    if name not in declared:
        hint = did_you_mean(name, list(declared))
        raise BadRequestError(f"the schema has no type '{name}'" + (f"; {hint}" if hint else ""))
    at = declared[name].at
    return schema[at.start : at.end]
