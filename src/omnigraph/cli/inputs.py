"""The texts and files that commands read: sources, JSON, query parameters; and the safe replacement of a file.

`-` is stdin wherever a file is read, once per command line. Every failure is a message that names the path.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from omnigraph.api.values import count_noun
from omnigraph.cli.config import replace_file
from omnigraph.cli.params import UsageError, at_most_one, combine, file_option, repeatable_option
from omnigraph.cli.target import Invocation, StoreScope, open_served
from omnigraph.errors import BadRequestError, CompileError, ConflictError, NotFoundError

if TYPE_CHECKING:
    from omnigraph.api.load import MutationReceipt
    from omnigraph.client import RemoteGraph


STDIN = Path("-")
_read: object = None


def read_source(path: Path) -> str:
    """The text of a `.pg` or `.gq` file, without a byte order mark. Line ends are kept: the languages know both. A
    second read of stdin is an error, because it would get nothing."""
    global _read
    try:
        if path != STDIN:
            return path.read_bytes().decode("utf-8-sig")
        if _read is sys.stdin:
            raise BadRequestError("stdin (-) can be given for one file only")
        _read = sys.stdin
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except FileNotFoundError:
        raise NotFoundError(f"'{path}' does not exist") from None
    except UnicodeDecodeError as error:
        where = "stdin" if path == STDIN else f"'{path}'"
        raise BadRequestError(f"{where} is not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise BadRequestError(f"can't read '{path}': {error.strerror}") from error


def write_source(path: Path, text: str) -> None:
    """Write a text to a file, and make the directories above it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8"))
    except OSError as error:
        raise BadRequestError(f"can't write '{path}': {error.strerror}") from error


def json_object(text: str, where: str, what: str) -> dict[str, Any]:
    """The object in a text; an empty one for null. Errors say `where` it came from and `what` it should be."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadRequestError(f"{where} is not JSON: {error}") from None
    except RecursionError:
        raise BadRequestError(f"{where}: the JSON is nested too deeply") from None
    except ValueError:
        raise BadRequestError(f"{where}: the JSON holds a number of thousands of digits") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise BadRequestError(f"{where}: {what}")
    return document


def json_or_text(text: str) -> Any:
    """The value that a text spells in JSON, else the text itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


_TEXTS: Final = frozenset({"string", "date", "datetime", "blob"})
"""Types whose values are texts, and need no quotes."""


def query_name(invocation: Invocation, name: str | None, source: str | None, kind: str) -> str | None:
    """The name of the query to run. The name and the graph's URI may be given in any order: a name is an identifier,
    and a URI is not, unless both are there. Without a source, it is the name of a stored query, and required."""
    uri = invocation.uri
    if (file := next((each for each in (uri, name) if each is not None and each.endswith(".gq")), None)) is not None:
        raise UsageError(f"Got unexpected extra argument(s) ({file}); a file of queries is given with --query")
    if name is not None and not name.isidentifier() and (uri is None or uri.isidentifier()):
        name, uri = uri, name
    if name is None and source is None:
        raise BadRequestError(f"provide a {kind} name, or the {kind} itself with --query <file> or -e '<gq>'")
    invocation.uri, invocation.query_name = uri, name
    return name


def _read_query(query: Path | None, query_string: str | None) -> str | None:
    at_most_one(("--query", query), ("--query-string", query_string))
    if query is not None:
        return read_source(query)
    if query_string is not None and not query_string.strip():
        raise BadRequestError("--query-string must not be empty")
    return query_string


query_options = combine(
    "source",
    _read_query,
    query=file_option("--query", help="A .gq file that holds the query."),
    query_string=click.option("-e", "--query-string", help="The query itself.", metavar="GQ"),
)
"""The text of an ad-hoc query; None where a name means a stored query, which only a server has."""


def open_stored(invocation: Invocation, name: str, kind: str) -> RemoteGraph:
    """The graph whose server has a query of this name."""
    target = invocation.target
    if isinstance(target, StoreScope):
        raise BadRequestError(
            f"by-name invocation needs a server: '{name}' would be a stored {kind}; "
            "on storage, give the source with --query <file> or -e '<gq>'"
        )
    if kind == "mutation":
        invocation.write_actor()  # refuses --as
    return open_served(target, invocation.config)


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a query on a command line: values of JSON, and texts that are read as the declared types."""

    values: dict[str, Any]
    texts: dict[str, str]

    @classmethod
    def parse(cls, params: str | None, params_file: Path | None, param: Sequence[str]) -> Parameters:
        at_most_one(("--params", params), ("--params-file", params_file))
        where = "--params" if params_file is None else f"'{params_file}'"
        text = params if params_file is None else read_source(params_file)
        values = {} if text is None else json_object(text, where, "params must be a JSON object")
        texts: dict[str, str] = {}
        for each in param:
            name, assigned, value = each.removeprefix("$").partition("=")
            if not assigned or not name:
                raise UsageError(f"--param takes NAME=VALUE, not '{each}'")
            if name in texts or name in values:
                raise UsageError(f"the parameter '{name}' is given twice")
            texts[name] = value
        return cls(values, texts)

    def of_source(self, source: str, name: str | None) -> dict[str, Any]:
        """The values for a query of a text. A text that does not parse, or does not have the query, has no types:
        running it gives the error."""
        if not self.texts:
            return self.values
        from omnigraph.language.query.formatter import spell_parameter_type
        from omnigraph.language.query.parser import parse_queries
        from omnigraph.language.query.syntax import Explain

        chosen = []
        with suppress(CompileError):
            file = parse_queries(source)
            declared = (file.statement.query,) if isinstance(file.statement, Explain) else file.queries
            chosen = [query for query in declared if name is None or query.name.text == name]
        parameters = chosen[0].parameters if len(chosen) == 1 else ()
        return self._read({each.name: spell_parameter_type(each).removesuffix("?") for each in parameters})

    def of_stored(self, graph: RemoteGraph, name: str) -> dict[str, Any]:
        """The values for a query that a server has under this name, which is asked for its types."""
        if not self.texts:
            return self.values
        stored = next((query for query in graph.stored_queries().queries if query.name == name), None)
        return self._read({} if stored is None else {parameter.name: parameter.kind for parameter in stored.params})

    def _read(self, types: Mapping[str, str]) -> dict[str, Any]:
        values = dict(self.values)
        for name, text in self.texts.items():
            type_ = types.get(name)
            try:
                values[name] = text if type_ is None or type_.lower() in _TEXTS else json.loads(text)
            except (ValueError, RecursionError):
                raise BadRequestError(f"--param {name}: expected {type_} as JSON writes it, got '{text}'") from None
        return values


parameter_options = combine(
    "parameters",
    Parameters.parse,
    params=click.option("--params", help="Parameters, a JSON object.", metavar="JSON"),
    params_file=file_option("--params-file", help="A file with the parameters; - is stdin."),
    param=repeatable_option(
        "--param", help="A parameter, read as the type that the query declares", metavar="NAME=VALUE"
    ),
)


def describe_change(receipt: MutationReceipt) -> str:
    """What a mutation or a statement about branches did."""
    name, outcome = receipt.branch, receipt.outcome
    if outcome is None:
        return f"changed {name} via {receipt.query_name}: {describe_affected(receipt)}"
    return f"merged into {name}: {outcome.merge}" if outcome.kind == "merged" else f"{outcome.kind} branch {name}"


def describe_affected(receipt: MutationReceipt) -> str:
    return f"{count_noun(receipt.affected_nodes, 'node')}, {count_noun(receipt.affected_edges, 'edge')}"


@contextmanager
def replace_locked(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `path` when the block ends well and vanishes when it does not.

    One installer runs at a time. The lock file stays: removing it would let two hold a lock of the same name. Locks and
    renames as they are needed here exist on POSIX only.
    """
    import fcntl

    try:
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise BadRequestError(f"can't write to '{path.parent}': {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with replace_file(path) as file:
            yield file
            installed = os.fstat(file.fileno()).st_ino
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
        if path.stat().st_ino != installed:
            raise ConflictError(f"'{path}' was replaced by somebody else meanwhile; run the command again")
    finally:
        os.close(lock)
