"""The texts and files that commands read: sources, JSON, query parameters; and the safe replacement of a file.

`-` is stdin wherever a file is read, once per command line. Every failure is a message that names the path.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

import click

from omnigraph.api.values import count_noun
from omnigraph.cli.params import Function, ReadPoint, UsageError, at_most_one, file_option
from omnigraph.cli.printing.progress import working
from omnigraph.cli.target import Invocation, StoreScope, open_served
from omnigraph.errors import BadRequestError, CompileError, ConflictError, NotFoundError

if TYPE_CHECKING:
    from omnigraph.api.graph import QueryRows
    from omnigraph.api.load import MutationReceipt
    from omnigraph.client import RemoteGraph


STDIN = Path("-")
_read: object = None


def read_source(path: Path) -> str:
    """The text of a `.pg` or `.gq` file, without a byte order mark. Line ends are kept: the languages know both."""
    if path == STDIN:
        return read_stdin()
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise NotFoundError(f"'{path}' does not exist") from None
    except OSError as error:
        raise BadRequestError(f"can't read '{path}': {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadRequestError(f"'{path}' is not UTF-8 text (byte {error.start})") from error


def read_stdin() -> str:
    """All of stdin as text. A second read is an error, because it would get nothing."""
    global _read
    if _read is sys.stdin:
        raise BadRequestError("stdin (-) can be given for one file only")
    _read = sys.stdin
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadRequestError(f"stdin is not UTF-8 text (byte {error.start})") from error


def write_source(path: Path, text: str) -> None:
    try:
        path.write_bytes(text.encode("utf-8"))
    except OSError as error:
        raise BadRequestError(f"can't write '{path}': {error.strerror}") from error


def json_object(text: str, where: str, what: str) -> dict[str, Any]:
    """The object in a text; an empty one for null. Errors say `where` it came from and `what` it should be."""
    try:
        given = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadRequestError(f"{where} is not JSON: {error}") from None
    except RecursionError:
        raise BadRequestError(f"{where}: the JSON is nested too deeply") from None
    except ValueError:
        raise BadRequestError(f"{where}: the JSON holds a number of thousands of digits") from None
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise BadRequestError(f"{where}: {what}")
    return given


_TEXTS: Final = frozenset({"string", "date", "datetime", "blob"})
"""Types whose values are texts, and need no quotes."""


def name_and_uri(name: str | None, uri: str | None) -> tuple[str | None, str | None]:
    """The arguments of a query told apart, in any order: a name is an identifier, and a graph's URI is not, unless both
    are there."""
    if (file := next((each for each in (uri, name) if each is not None and each.endswith(".gq")), None)) is not None:
        raise UsageError(f"Got unexpected extra argument(s) ({file}); a file of queries is given with --query")
    if name is None or (uri is not None and (name.isidentifier() or not uri.isidentifier())):
        return name, uri
    return (name, None) if name.isidentifier() else (uri, name)


def query_source(name: str | None, file: Path | None, text: str | None, *, kind: str) -> str | None:
    """The ad-hoc source; None where a name means a stored query, which only a server has."""
    at_most_one(("--query", file), ("--query-string", text))
    if text is not None:
        if not text.strip():
            raise BadRequestError("--query-string must not be empty")
        return text
    if file is not None:
        return read_source(file)
    if name is None:
        raise BadRequestError(f"provide a {kind} name, or the {kind} itself with --query <file> or -e '<gq>'")
    return None


def open_stored(invocation: Invocation, name: str, kind: str, uri: str | None = None) -> RemoteGraph:
    """The graph whose server has a query of this name."""
    target = invocation.target(uri)
    if isinstance(target, StoreScope):
        raise BadRequestError(
            f"by-name invocation needs a server: '{name}' would be a stored {kind}; "
            "on storage, give the source with --query <file> or -e '<gq>'"
        )
    if kind == "mutation":
        invocation.actor_of(target)
    return open_served(target, invocation.config)


def stored_rows(
    invocation: Invocation, name: str, given: Parameters, point: ReadPoint, uri: str | None = None
) -> QueryRows:
    """The rows of a read that the server has under this name."""
    with open_stored(invocation, name, "query", uri) as graph, working("running the query"):
        rows = graph.invoke(name, given.of_stored(graph, name), **point, expect_mutation=False)
    return cast("QueryRows", rows)


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a command line gives a query: values of JSON, and texts that are read as the declared types."""

    values: dict[str, Any]
    texts: dict[str, str]

    @classmethod
    def parse(cls, text: str | None, file: Path | None, named: Sequence[str]) -> Parameters:
        at_most_one(("--params", text), ("--params-file", file))
        where = "--params" if file is None else f"'{file}'"
        text = text if file is None else read_source(file)
        values = {} if text is None else json_object(text, where, "params must be a JSON object")
        texts: dict[str, str] = {}
        for each in named:
            name, assigned, value = each.removeprefix("$").partition("=")
            if not assigned or not name:
                raise UsageError(f"--param takes NAME=VALUE, not '{each}'")
            if name in texts or name in values:
                raise UsageError(f"the parameter '{name}' is given twice")
            texts[name] = value
        return cls(values, texts)

    def of_source(self, source: str, name: str | None) -> dict[str, Any]:
        """The values for a query of a text; an error in the text is raised when it is run."""
        if not self.texts:
            return self.values
        return self._read(_declared_types(source, name))

    def of_stored(self, graph: RemoteGraph, name: str) -> dict[str, Any]:
        """The values for a query that a server has under this name, which is asked for its types."""
        if not self.texts:
            return self.values
        found = next((query for query in graph.stored_queries().queries if query.name == name), None)
        return self._read({} if found is None else {parameter.name: parameter.kind for parameter in found.params})

    def _read(self, types: Mapping[str, str]) -> dict[str, Any]:
        return {**self.values, **{name: _parse_value(name, text, types.get(name)) for name, text in self.texts.items()}}


query_file_option = file_option("--query", help="A .gq file that holds the query.")
query_string_option = click.option("-e", "--query-string", help="The query itself.", metavar="GQ")


def parameter_options(function: Function) -> Function:
    """--params, --params-file and --param, passed on as `parameters`."""

    @click.option("--params", help="Parameters, a JSON object.", metavar="JSON")
    @file_option("--params-file", help="A file with the parameters; - is stdin.")
    @click.option(
        "--param",
        multiple=True,
        help="A parameter, read as the type that the query declares; may be repeated.",
        metavar="NAME=VALUE",
    )
    @wraps(function)
    def command(
        *arguments: Any, params: str | None, params_file: Path | None, param: tuple[str, ...], **options: Any
    ) -> None:
        function(*arguments, parameters=Parameters.parse(params, params_file, param), **options)

    return command


def describe_affected(receipt: MutationReceipt) -> str:
    """How many entities a mutation changed, for a person."""
    return f"{count_noun(receipt.affected_nodes, 'node')}, {count_noun(receipt.affected_edges, 'edge')}"


def _parse_value(name: str, text: str, type_: str | None) -> Any:
    if type_ is None or type_.lower() in _TEXTS:
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise BadRequestError(f"--param {name}: expected {type_} as JSON writes it, got '{text}'") from None


def refuse_where_unsafe() -> None:
    """Locks and renames as they are needed here exist on POSIX only."""
    if sys.platform == "win32":
        raise BadRequestError("a baseline can't be installed safely on this platform; run this on Linux or macOS")


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `path` when the block ends well and vanishes when it does not."""
    with _lock(path), _temporary(path) as (file, temporary):
        yield file
        file.flush()
        os.fsync(file.fileno())
        installed = os.fstat(file.fileno()).st_ino
        os.replace(temporary, path)
        _sync_directory(path.parent)
        if path.stat().st_ino != installed:
            raise ConflictError(f"'{path}' was replaced by somebody else meanwhile; run the command again")


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """One installer at a time. The lock file stays: removing it would let two hold a lock of the same name."""
    import fcntl

    try:
        handle = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise BadRequestError(f"can't write to '{path.parent}': {error.strerror}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def _temporary(path: Path) -> Iterator[tuple[BinaryIO, str]]:
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file, temporary
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _declared_types(source: str, name: str | None) -> dict[str, str]:
    """The parameter types that a query of a text declares, without `?`. Empty for a text that does not parse or does
    not have such a query: running it gives the error."""
    from omnigraph.language.query.formatter import spell_parameter_type
    from omnigraph.language.query.parser import parse_queries

    try:
        queries = parse_queries(source).queries
    except CompileError:
        return {}
    chosen = [query for query in queries if name is None or query.name.text == name]
    if len(chosen) != 1:
        return {}
    return {each.name: spell_parameter_type(each).removesuffix("?") for each in chosen[0].parameters}
