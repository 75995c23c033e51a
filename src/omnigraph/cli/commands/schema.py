"""The `schema` commands show, plan and apply the schema of a graph, and propose one for files; `init` creates a graph
from a schema file.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from omnigraph.api.load import without_compression
from omnigraph.api.schema import Dedupe
from omnigraph.api.values import count_noun
from omnigraph.cli.inputs import STDIN, read_source, write_source
from omnigraph.cli.params import (
    UsageError,
    branch_option,
    choice_option,
    file_option,
    json_option,
    read_point_options,
    repeatable_option,
)
from omnigraph.cli.printing.output import print_json, print_lines, print_note, print_text
from omnigraph.cli.printing.progress import working
from omnigraph.cli.target import Invocation, StoreScope, refuse_inside_cluster
from omnigraph.errors import ConflictError
from omnigraph.process import PROCESS

if TYPE_CHECKING:
    from omnigraph.language.dependents import Dependent

_ANY_GRAPH = "graph"
"""A policy bundle is for graphs; which one does not matter where only its restrictions are checked."""


def files_option(name: str, parameter: str, help: str) -> Callable[[Any], Any]:
    """Files that something relies on the schema in."""
    path = click.Path(path_type=Path, exists=True)
    return repeatable_option(name, parameter, type=path, help=help, metavar="FILE")


dedupe_option = click.option(
    "--dedupe",
    type=click.Choice(["first", "last"]),
    help="Where an edge type gets a key: which of several edges with equal keys stays.",
)


class RowFileFormat(StrEnum):
    """How files of rows are written, as a load in this process reads them."""

    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"
    NDJSON = "ndjson"


@read_point_options
@json_option
def show(invocation: Invocation, point: dict[str, Any]) -> None:
    from omnigraph.api.schema import SchemaSource

    with invocation.open() as graph:
        source = graph.schema.show(**point)
    if invocation.json:
        print_json(SchemaSource(source))
    else:
        print_text(source)


@file_option("--schema", "desired", required=True, help="The desired schema, a .pg file.")
@file_option("--from", "accepted", help="Plan offline, from this .pg file.")
@branch_option
@click.option("--allow-data-loss", is_flag=True, help="Plan drops as hard drops: history is purged with them.")
@dedupe_option
@files_option("--query", "queries", "Report which queries of this .gq file, or of the files in a directory, break")
@files_option("--policy", "policies", "Report whether this policy bundle breaks")
@files_option("--pipeline", "pipelines", "Report whether this pipeline file breaks")
@json_option
def plan(
    invocation: Invocation,
    desired: Path,
    accepted: Path | None,
    branch: str,
    allow_data_loss: bool,
    dedupe: Dedupe | None,
    queries: tuple[Path, ...],
    policies: tuple[Path, ...],
    pipelines: tuple[Path, ...],
) -> None:
    invocation.instead_of_graph("--from", accepted)
    from omnigraph.api.schema import SchemaPlanOutput
    from omnigraph.language.dependents import breakages
    from omnigraph.language.schema.compile import accept_schema, declare_schema
    from omnigraph.language.schema.migration import evolve

    source = read_source(desired)
    after = declare_schema(source, str(desired))  # first, so that a mistake is shown with the name of the file
    if accepted is not None:
        planned_for = str(accepted)
        before = accept_schema(read_source(accepted), planned_for)
        migration = evolve(before, after, allow_data_loss=allow_data_loss).plan
    else:
        planned_for = invocation.target.uri
        with invocation.open() as graph, working("planning the change"):
            migration = graph.schema.plan(source, branch=branch, allow_data_loss=allow_data_loss, dedupe=dedupe)
            before = accept_schema(graph.schema.show(branch))
    if queries or policies or pipelines:
        dependents = _dependents(queries, policies, pipelines)
        migration = replace(migration, breaks=breakages(before, accept_schema(source), dependents))
    for note in migration.notes:
        print_note(note.render())
    lines = [f"schema plan for {planned_for}", f"supported: {'yes' if migration.supported else 'no'}"]
    if migration.failing_checks:
        lines.append(f"blocked by stored rows: {count_noun(migration.failing_checks, 'step')}")
    lines += migration.lines() or ["no schema changes"]
    invocation.print(SchemaPlanOutput.of(planned_for, migration), lines)


def _dependents(queries: Sequence[Path], policies: Sequence[Path], pipelines: Sequence[Path]) -> Iterator[Dependent]:
    """What the files rely on. Files that are wrong by themselves are errors."""
    from omnigraph.language.dependents import Dependent, stored_queries
    from omnigraph.pipeline.file import check_against, load_pipeline
    from omnigraph.policy.gate import load_gate

    for path in queries:
        for file in sorted(path.glob("*.gq")) if path.is_dir() else [path]:
            yield from stored_queries(read_source(file), str(file))
    for path in policies:
        gate = load_gate(read_source(path), "graph", str(path), _ANY_GRAPH)
        yield Dependent("policy", str(path), gate.bind_schema)
    for path in pipelines:
        yield Dependent("pipeline", str(path), partial(check_against, load_pipeline(path)))


@file_option("--schema", "desired", required=True, help="The desired schema, a .pg file.")
@branch_option
@click.option("--allow-data-loss", is_flag=True, help="Drop hard: history is purged with what is dropped.")
@dedupe_option
@json_option
def apply(invocation: Invocation, desired: Path, branch: str, allow_data_loss: bool, dedupe: Dedupe | None) -> None:
    from omnigraph.language.schema.compile import declare_schema

    target = invocation.target
    source = read_source(desired)
    declare_schema(source, str(desired))  # first, so that a mistake is shown with the name of the file
    if isinstance(target, StoreScope):
        refuse_inside_cluster(target.uri)
    invocation.echo()
    actor = invocation.write_actor()
    with invocation.open() as graph, working("applying the schema"):
        applied = graph.schema.apply(source, branch=branch, allow_data_loss=allow_data_loss, dedupe=dedupe, actor=actor)
    for note in applied.notes:
        print_note(note.render())
    lines = [
        f"schema apply for {target.uri}",
        f"supported: {'yes' if applied.supported else 'no'}",
        f"applied: {'yes' if applied.applied else 'no'}",
        f"graph_manifest_version: {applied.graph_manifest_version}",
    ]
    lines += [f"- {step.line()}" for step in applied.steps] or ["no schema changes"]
    invocation.print(invocation.name_graph(applied), lines)


@click.argument("files", nargs=-1, help="Files of rows or of graph records.", metavar="[FILE]...")
@repeatable_option("--type", "types", help="A file whose type has this name", metavar="NAME=FILE")
@repeatable_option(
    "--edge", "edges", help="A file of edges of this type, between these types", metavar="NAME:FROM:TO=FILE"
)
@click.option("--sample", type=click.IntRange(min=1), help="Read the first N rows of each file.", metavar="N")
@choice_option("--format", RowFileFormat, help="The format of the files, if their names do not show it.")
@click.option("--delimiter", help="The delimiter of CSV rows: ; or \\t.", metavar="C")
@click.option("--encoding", help="The encoding of CSV files.", metavar="NAME")
@file_option("--output", help="The .pg file to write; stdout by default.")
@click.option("--force", is_flag=True, help="Replace a file that exists.")
@json_option
def infer(
    invocation: Invocation,
    files: tuple[str, ...],
    types: tuple[str, ...],
    edges: tuple[str, ...],
    sample: int | None,
    format: RowFileFormat | None,
    delimiter: str | None,
    encoding: str | None,
    output: Path | None,
    force: bool,
) -> None:
    if output is not None and not force and os.path.exists(output):
        raise ConflictError(f"'{output}' exists; choose another --output, or pass --force")
    from omnigraph.engine.infer.inputs import Source
    from omnigraph.engine.infer.proposal import propose_schema
    from omnigraph.engine.rows.kernels.csv_rows import CsvDialect

    def source(file: str, name: str | None = None, ends: tuple[str, str] | None = None) -> Source:
        if delimiter is None and encoding is None:
            return Source(file, name, ends)
        usual = "\t" if without_compression(file).lower().endswith(".tsv") else ","
        dialect = CsvDialect((delimiter or usual).replace("\\t", "\t"), encoding=encoding or "utf-8")
        return Source(file, name, ends, dialect)

    sources = [source(file) for file in files] + [source(file, name) for name, file in _named_files("--type", types)]
    for name, file in _named_files("--edge", edges):
        parts = name.split(":")
        if len(parts) != 3:
            raise UsageError(f"--edge takes NAME:FROM:TO=FILE, not '{name}={file}'")
        sources.append(source(file, parts[0], (parts[1], parts[2])))
    if not sources:
        raise UsageError("name the files to infer a schema from")
    if any(each.data == str(STDIN) for each in sources):
        raise UsageError("stdin (-) has no name to tell its format; write the data to a file")
    with working("reading the files"):
        proposal = propose_schema(sources, sample=sample, format=None if format is None else format.value)
    if output is not None:
        write_source(output, proposal.schema)
        kinds = [each.kind for each in proposal.types]
        counts = f"{count_noun(kinds.count('node'), 'node type')} and {count_noun(kinds.count('edge'), 'edge type')}"
        invocation.print(proposal, [f"{output} written: {counts} from {count_noun(len(sources), 'file')}"])
    elif invocation.json:
        print_json(proposal)
    else:
        print_text(proposal.schema)


def _named_files(option: str, values: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for value in values:
        name, assigned, file = value.partition("=")
        if not assigned or not name or not file:
            raise UsageError(f"{option} takes NAME=FILE, not '{value}'")
        yield name, file


@file_option("--schema", required=True, help="The schema, a .pg file.")
@click.option("--force", is_flag=True, help="Take a place that an interrupted init left behind; never a graph.")
def init(invocation: Invocation, schema: Path, force: bool) -> None:
    from omnigraph.language.schema.compile import accept_schema

    place = invocation.new_storage()
    source = read_source(schema)
    accept_schema(source, str(schema))  # first, so that a mistake is shown with the name of the file
    refuse_inside_cluster(place)
    import omnigraph

    PROCESS.import_arrow()
    omnigraph.init(place, source, force=force).close()
    print_lines([f"initialized {place}"])
