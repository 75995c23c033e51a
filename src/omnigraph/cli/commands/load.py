"""`omnigraph load`, and its old form `ingest`: data from files as one commit.

What one process can hold is loaded by the engine here; more, and other formats, by a pipeline on Spark. Both print
the same receipt.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import click

from omnigraph.api.enums import LoadMode
from omnigraph.api.values import count_noun
from omnigraph.cli.data_input import STDIN, DataFormat, DataInput, data_inputs, excess, names_data
from omnigraph.cli.params import UsageError, branch_option, choice_option, json_option
from omnigraph.cli.printing.output import print_note, print_warning
from omnigraph.cli.printing.progress import reading, stages
from omnigraph.cli.target import Invocation, ServerScope, open_graph, storage_needed
from omnigraph.errors import BadRequestError, NotFoundError, ResourceLimitError

if TYPE_CHECKING:
    from omnigraph.api.governance import Limits
    from omnigraph.api.graph import GraphApi
    from omnigraph.api.load import LoadReceipt
    from omnigraph.graph import Graph


class LoadEngine(StrEnum):
    """As `Engine`, and the choice left to the data."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


data_option = click.option(
    "--data",
    multiple=True,
    help="Graph records, one JSON object per line, or a corrected quarantine; with --type, rows of csv, parquet, arrow "
    "or ndjson. A file, which may be compressed, a directory or a pattern; may be repeated; - is stdin. Spark also "
    "reads URIs and orc files.",
    metavar="FILE",
)
_PIECE_BYTES = 1 << 20


@choice_option(
    "--mode",
    LoadMode,
    required=True,
    help="append refuses existing ids, merge replaces those entities, update changes only the given properties of "
    "entities that exist, overwrite replaces whole types.",
)
@data_option
@branch_option
@click.option("--from", "base", help="Create a missing branch from this one.", metavar="BASE")
@click.option(
    "--type",
    "type_name",
    help="The type of every row: columns are properties; from and to, or src and dst, are the ends of an edge.",
    metavar="TYPE",
)
@choice_option("--format", DataFormat, help="The format of the data, if the file names do not show it.")
@click.option("--delimiter", help="The delimiter of CSV rows: ; or \\t.", metavar="C")
@click.option("--encoding", help="The encoding of CSV files.", metavar="NAME")
@choice_option(
    "--engine",
    LoadEngine,
    default="auto",
    help="auto loads local files in this process if they fit, and everything else on Spark.",
)
@click.option(
    "--embed", is_flag=True, help="Compute every missing @embed vector, not only those declared on_write=true."
)
@json_option
def load(
    invocation: Invocation,
    mode: LoadMode,
    data: tuple[str, ...],
    branch: str,
    base: str | None,
    type_name: str | None,
    format: DataFormat | None,
    delimiter: str | None,
    encoding: str | None,
    engine: LoadEngine,
    embed: bool,
) -> None:
    if not data and invocation.uri is not None and names_data(invocation.uri):
        data, invocation.uri = (invocation.uri,), None
    if not data:
        raise UsageError("Missing option '--data'.")
    inputs = data_inputs(data, format, type_name, delimiter, encoding)
    target = invocation.target
    invocation.echo()
    if mode is LoadMode.OVERWRITE:
        invocation.require_consent("load --mode overwrite")
    actor = invocation.write_actor()
    where: dict[str, Any] = {"mode": mode.value, "branch": branch, "base": base, "embed": embed, "actor": actor}
    if isinstance(target, ServerScope):
        receipt = _load_served(invocation, inputs, type_name, engine, where)
    else:
        with open_graph(target) as graph:
            receipt = _load_stored(graph, inputs, type_name, engine, where)
    if receipt.commit is None:
        reason = "the graph has these values already" if receipt.total_entities else "the data hold no records"
        print_note(f"{reason}: no commit was made")
    if receipt.nulled:
        print_note(
            f"existing entities lost values that their records leave out: {', '.join(receipt.nulled)}; "
            "to change only what the records have, use --mode update"
        )
    from omnigraph.api.load import LoadOutput

    loaded = f"loaded {target.uri} on branch {receipt.branch} with {mode}: {_entities(receipt)}"
    nodes, edges = (len(types) for types in (receipt.nodes_loaded, receipt.edges_loaded))
    lines = [f"{loaded} across {count_noun(nodes, 'node type')} and {count_noun(edges, 'edge type')}"]
    if receipt.total_entities and receipt.changes:
        lines.append(", ".join(receipt.changes))
    if receipt.branch_created:
        lines.append(f"branch {receipt.branch} created from {receipt.base_branch}")
    invocation.print(LoadOutput.of(target.uri, receipt), lines)


def _entities(receipt: LoadReceipt) -> str:
    return count_noun(receipt.total_entities, "entity", "entities")


def _load_served(
    invocation: Invocation, inputs: list[DataInput], type_name: str | None, engine: LoadEngine, where: dict[str, Any]
) -> LoadReceipt:
    """The load of one file, or of stdin, by a server, which gets the bytes as they are read."""
    first = inputs[0]
    if engine is LoadEngine.SPARK:
        raise storage_needed("loading on Spark")
    if (reason := first.why_not_in_process()) is not None:
        raise storage_needed(f"'{first.argument}' {reason}: loading it")
    if len(inputs) > 1 or (first.argument != STDIN and len(first.files()) > 1):
        raise BadRequestError(
            "there are several files, and a server takes one at a time: load them one by one, or give the graph's "
            "storage with --store <uri>"
        )
    with invocation.open() as graph:
        return _load_one(graph, first, type_name, where)


def _load_stored(
    graph: Graph, inputs: list[DataInput], type_name: str | None, engine: LoadEngine, where: dict[str, Any]
) -> LoadReceipt:
    """The load in this process, or on Spark where the data or the caller ask for it."""
    if not _goes_to_spark(inputs, engine, graph.limits):
        try:
            return _load_here(graph, inputs, type_name, where)
        except ResourceLimitError as error:
            first = inputs[0]
            only_here = first.argument == STDIN or first.format is DataFormat.ARROW
            if engine is not LoadEngine.AUTO or only_here or not error.resource.startswith("load "):
                raise
            print_note(f"{_describe(inputs)} is too large for an in-process load ({error}): loading on Spark")
    from omnigraph.pipeline import load_on_spark

    with stages("starting Spark") as progress:
        bulk = [each.for_spark() for each in inputs]
        return load_on_spark(graph, bulk, type_name=type_name, progress=progress, **where)


def _load_here(graph: Graph, inputs: list[DataInput], type_name: str | None, where: dict[str, Any]) -> LoadReceipt:
    """The load of local files, or of stdin, in this process."""
    from omnigraph.engine.rows.kernels.ndjson import records_of
    from omnigraph.engine.write.row_input import InputFiles

    first = inputs[0]
    paths = [file for each in inputs for file in each.files()]
    if first.argument == STDIN or len(paths) <= 1:
        return _load_one(graph, first, type_name, where, records_of)
    files = InputFiles(paths)
    if type_name is None:
        with files.keep_positions(), reading(f"{len(paths)} files", None) as advance:
            return graph.load(records_of(advance(piece) for piece in files.records()), **where)
    rows = files.rows(type_name, first.row_format, first.dialect)
    with files.keep_positions(rows.unit):
        return graph.load(rows, type=type_name, **where)


def _load_one(
    graph: GraphApi,
    data: DataInput,
    type_name: str | None,
    where: dict[str, Any],
    records_of: Callable[[Iterator[bytes]], Any] = iter,
) -> LoadReceipt:
    """The load of stdin, or of the one file that an input comes to."""
    source = STDIN if data.argument == STDIN else next(iter(data.files()), None)
    if source is None:
        raise NotFoundError(f"'{data.argument}' does not exist any more")
    if type_name is None:
        with _pieces(source) as pieces:
            return graph.load(records_of(pieces), **where)
    rows = sys.stdin.buffer if source == STDIN else source
    return graph.load(rows, type=type_name, format=data.row_format, csv=data.dialect(source), **where)


def _describe(inputs: list[DataInput]) -> str:
    return f"'{inputs[0].argument}'" if len(inputs) == 1 else f"the data of {len(inputs)} inputs"


def _goes_to_spark(inputs: list[DataInput], engine: LoadEngine, limits: Limits) -> bool:
    """Choose the engine that loads the data, and report a choice that the user did not make."""
    formats = {each.format for each in inputs}
    beyond = ((each, each.why_not_in_process()) for each in inputs)
    reason = next((f"'{each.argument}' {why}" for each, why in beyond if why is not None), None)
    if reason is None and len(formats) > 1:
        reason = f"there are several formats ({', '.join(sorted(formats))})"
    if engine is LoadEngine.LOCAL:
        if reason is not None:
            raise BadRequestError(f"{reason}, and --engine local can't read that; use --engine spark")
        return False
    if engine is LoadEngine.AUTO and reason is None:
        files = [file for each in inputs for file in each.files()]
        if (too_much := excess(files, inputs[0].format, limits)) is not None:
            reason = f"{_describe(inputs)} {too_much}"
    if engine is LoadEngine.AUTO and reason is not None:
        print_note(f"{reason}: loading on Spark")
    return engine is LoadEngine.SPARK or reason is not None


@click.option("--data", required=True, help="The records; - is stdin.", metavar="FILE")
@choice_option("--mode", LoadMode, default="merge", help="What to do with existing ids.")
@branch_option
@click.option("--from", "base", default="main", help="Create a missing branch from this one.", metavar="BASE")
@json_option
def ingest(invocation: Invocation, data: str, mode: LoadMode, branch: str, base: str) -> None:
    print_warning("`omnigraph ingest` is deprecated; use `omnigraph load --mode <mode>`")
    target = invocation.target
    invocation.echo()
    actor = invocation.write_actor()
    with invocation.open() as graph, _pieces(data) as pieces:
        receipt = graph.load_lenient(pieces, mode=mode.value, branch=branch, base=base, actor=actor)
    if receipt.values_nulled or receipt.values_dropped:
        print_warning(
            f"not everything was loaded: values of a wrong type that became null: {receipt.values_nulled}, "
            f"unknown or repeated members that were left out: {receipt.values_dropped}"
        )
    existed = "branch created" if receipt.branch_created else "branch exists"
    what = f"ingested {_entities(receipt)} from {target.uri} into branch {receipt.branch}"
    lines = [f"{what} from {base} with {mode} ({existed})"]
    lines += [f"  node {name}: {count}" for name, count in sorted(receipt.nodes_loaded.items())]
    lines += [f"  edge {name}: {count}" for name, count in sorted(receipt.edges_loaded.items())]
    if receipt.actor_id is not None:
        lines.append(f"actor_id: {receipt.actor_id}")
    invocation.print(invocation.name_graph(receipt), lines)


@contextmanager
def _pieces(path: str) -> Iterator[Iterator[bytes]]:
    """The bytes of a file, with a progress bar when a person watches; or those of stdin."""
    if path == STDIN:
        with reading("stdin", None) as advance:
            yield (advance(piece) for piece in iter(lambda: sys.stdin.buffer.read(_PIECE_BYTES), b""))
        return
    from omnigraph.api.load import compression_of, local_pieces

    size = os.path.getsize(path) if os.path.isfile(path) and compression_of(path) is None else None
    with reading(os.path.basename(path), size) as advance:
        yield (advance(piece) for piece in local_pieces(path))
