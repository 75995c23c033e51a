"""`omnigraph load`, and its old form `ingest`: data from files as one commit.

What one process can hold is loaded by the engine here; more, and other formats, by a pipeline on Spark. Both print
the same receipt.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.api.enums import LoadMode
from omnigraph.cli.data_input import STDIN, DataFormat, DataInput, data_inputs, names_data
from omnigraph.cli.invocation import Invocation, open_graph
from omnigraph.cli.options import Branch, Json, Uri
from omnigraph.cli.output import print_json, print_lines, print_note, print_warning
from omnigraph.cli.progress import reading, stages
from omnigraph.cli.scope import ServerScope, Target, storage_needed
from omnigraph.cli.usage import UsageError
from omnigraph.errors import BadRequestError, NotFoundError, ResourceLimitError

if TYPE_CHECKING:
    from omnigraph.api.limits import Limits
    from omnigraph.api.load import LoadReceipt
    from omnigraph.graph import Graph


class LoadEngine(StrEnum):
    """As `Engine`, and the choice left to the data."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


Data = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        help="Graph records, one JSON object per line, or a quarantine that was corrected; with --type csv, parquet "
        "and ndjson rows; - is stdin. On Spark also a directory, a pattern, a URI, a compressed or an orc file, or "
        "several of these (repeat it).",
        metavar="FILE",
    ),
]
_PIECE_BYTES = 1 << 20


def load(
    ctx: typer.Context,
    mode: Annotated[
        LoadMode,
        typer.Option(
            "--mode", help="append refuses existing ids, merge replaces those entities, overwrite replaces whole types."
        ),
    ],
    uri: Uri = None,
    data: Data = None,
    branch: Branch = "main",
    base: Annotated[
        str | None, typer.Option("--from", help="Create a missing branch from this one.", metavar="BASE")
    ] = None,
    type_name: Annotated[
        str | None,
        typer.Option(
            "--type",
            help="Every row is an entity of this type: its columns are properties; from and to, or src and dst, are "
            "the ends of an edge.",
            metavar="TYPE",
        ),
    ] = None,
    format: Annotated[
        DataFormat | None, typer.Option("--format", help="What the data are, when their names do not tell.")
    ] = None,
    engine: Annotated[
        LoadEngine,
        typer.Option(
            "--engine",
            help="auto loads one plain file in this process while it fits, and everything else on Spark.",
        ),
    ] = LoadEngine.AUTO,
    embed: Annotated[
        bool,
        typer.Option("--embed", help="Compute every missing @embed vector, not only those declared on_write=true."),
    ] = False,
    json: Json = False,
) -> None:
    """Load data into a branch as one commit, all or nothing.

    `omnigraph load people.csv --type Person` takes the file from the place of the URI, and the graph from --store or
    the configuration.
    """
    if not data and uri is not None and names_data(uri):
        data, uri = [uri], None
    if not data:
        raise UsageError("Missing option '--data'.")
    inputs = data_inputs(data, format, type_name)
    invocation = Invocation.of(ctx)
    target = invocation.target(uri)
    invocation.echo(target)
    if mode is LoadMode.OVERWRITE:
        invocation.require_consent(target, "load --mode overwrite", json=json)
    where: dict[str, Any] = {
        "mode": mode.value,
        "branch": branch,
        "base": base,
        "embed": embed,
        "actor": invocation.actor_of(target),
    }
    if isinstance(target, ServerScope):
        _tell_loaded(target, _load_served(invocation, target, inputs, type_name, engine, where), mode, json=json)
        return
    with open_graph(target) as graph:
        receipt = None
        if not _goes_to_spark(inputs, engine, graph.limits):
            try:
                receipt = _load_here(graph, inputs[0], type_name, where)
            except ResourceLimitError as error:
                if engine is not LoadEngine.AUTO or inputs[0].given == STDIN or not error.resource.startswith("load "):
                    raise
                print_note(f"'{inputs[0].given}' is too large for an in-process load ({error}): loading on Spark")
        if receipt is None:
            from omnigraph.pipeline import load_on_spark

            with stages("starting Spark") as progress:
                bulk = [each.for_spark() for each in inputs]
                receipt = load_on_spark(graph, bulk, type_name=type_name, progress=progress, **where)
    _tell_loaded(target, receipt, mode, json=json)


def _tell_loaded(target: Target, receipt: LoadReceipt, mode: LoadMode, *, json: bool) -> None:
    if json:
        from omnigraph.api.load import LoadOutput

        print_json(LoadOutput.of(target.uri, receipt))
        return
    loaded = f"loaded {target.uri} on branch {receipt.branch} with {mode}: {receipt.total_entities} entities"
    lines = [
        f"{loaded} across {len(receipt.nodes_loaded)} node types and {len(receipt.edges_loaded)} edge types",
    ]
    if receipt.branch_created:
        lines.append(f"branch {receipt.branch} created from {receipt.base_branch}")
    print_lines(lines)


def _load_served(
    invocation: Invocation,
    target: ServerScope,
    inputs: list[DataInput],
    type_name: str | None,
    engine: LoadEngine,
    where: dict[str, Any],
) -> LoadReceipt:
    """The load of one file of graph records, or of stdin, by a server, which gets the bytes as they are read."""
    first = inputs[0]
    if type_name is not None or first.format is not DataFormat.GRAPH:
        raise storage_needed("loading rows of one type")
    if engine is LoadEngine.SPARK or len(inputs) > 1 or not first.is_plain_file:
        raise storage_needed("loading on Spark, as anything but one plain file has to be,")
    with invocation.opened(target) as graph, _pieces(first.path) as pieces:
        return graph.load(pieces, **where)


def _load_here(graph: Graph, data: DataInput, type_name: str | None, where: dict[str, Any]) -> LoadReceipt:
    """The load of one file, or of stdin, in this process."""
    if type_name is None:
        from omnigraph.engine.rows.kernels.quarantined import records_of

        with _pieces(data.path) as pieces:
            return graph.load(records_of(pieces), **where)
    rows = sys.stdin.buffer if data.given == STDIN else data.path
    return graph.load(rows, type=type_name, format=data.row_format, **where)


def _goes_to_spark(inputs: list[DataInput], engine: LoadEngine, limits: Limits) -> bool:
    """Which engine takes the data; a choice that was made for the user is told."""
    first = inputs[0]
    if len(inputs) > 1:
        reason: str | None = f"there are {len(inputs)} inputs"
    else:
        reason = None if first.is_plain_file else f"'{first.given}' {first.why_not_in_process()}"
    if engine is LoadEngine.LOCAL:
        if reason is not None:
            raise BadRequestError(f"{reason}, and --engine local takes one plain file or stdin; use --engine spark")
        return False
    if engine is LoadEngine.AUTO and reason is None and (excess := first.excess(limits)) is not None:
        reason = f"'{first.given}' {excess}"
    if engine is LoadEngine.AUTO and reason is not None:
        print_note(f"{reason}: loading on Spark")
    return engine is LoadEngine.SPARK or reason is not None


def ingest(
    ctx: typer.Context,
    data: Annotated[str, typer.Option("--data", help="The records; - is stdin.", metavar="FILE")],
    uri: Uri = None,
    mode: Annotated[LoadMode, typer.Option("--mode", help="What to do with existing ids.")] = LoadMode.MERGE,
    branch: Branch = "main",
    base: Annotated[
        str, typer.Option("--from", help="Create a missing branch from this one.", metavar="BASE")
    ] = "main",
    json: Json = False,
) -> None:
    """Load records in the forgiving grammar of old exports (deprecated: use load)."""
    print_warning("`omnigraph ingest` is deprecated; use `omnigraph load --mode <mode>`")
    invocation = Invocation.of(ctx)
    target = invocation.target(uri)
    invocation.echo(target)
    actor = invocation.actor_of(target)
    with invocation.opened(target) as graph, _pieces(data) as pieces:
        receipt = graph.load_lenient(pieces, mode=mode.value, branch=branch, base=base, actor=actor)
    if json:
        from msgspec.structs import replace

        print_json(replace(receipt, uri=target.uri))
        return
    existed = "branch created" if receipt.branch_created else "branch exists"
    what = f"ingested {receipt.total_entities} entities from {target.uri} into branch {receipt.branch}"
    lines = [f"{what} from {base} with {mode} ({existed})"]
    lines += [f"  node {name}: {count}" for name, count in sorted(receipt.nodes_loaded.items())]
    lines += [f"  edge {name}: {count}" for name, count in sorted(receipt.edges_loaded.items())]
    if receipt.commit.actor_id is not None:
        lines.append(f"actor_id: {receipt.commit.actor_id}")
    print_lines(lines)


@contextmanager
def _pieces(path: str) -> Iterator[Iterator[bytes]]:
    """The bytes of a file, with a progress bar when a person watches; or those of stdin."""
    if path == STDIN:
        with reading("stdin", None) as advance:
            yield (advance(piece) for piece in iter(lambda: sys.stdin.buffer.read(_PIECE_BYTES), b""))
        return
    try:
        file = open(path, "rb")  # noqa: SIM115  (closed below; only opening it may fail in these ways)
    except FileNotFoundError:
        raise NotFoundError(f"'{path}' does not exist") from None
    except OSError as error:
        raise BadRequestError(f"can't read '{path}': {error.strerror}") from error
    with file, reading(os.path.basename(path), os.path.getsize(path)) as advance:
        yield (advance(piece) for piece in iter(lambda: file.read(_PIECE_BYTES), b""))
