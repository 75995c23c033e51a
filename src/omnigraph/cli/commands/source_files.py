"""The commands on source files: `fmt` writes `.pg` and `.gq` files in their canonical layout, `lint` checks the queries
of a file against a schema, or a schema alone, and `lsp` does both and more for an editor.
"""

from __future__ import annotations

import difflib
import os.path
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

from omnigraph.cli.inputs import STDIN, read_source, write_source
from omnigraph.cli.params import UsageError, choice_option, file_option, json_option
from omnigraph.cli.printing.output import report_style, unified_diff_style
from omnigraph.cli.target import Invocation
from omnigraph.errors import BadRequestError, OmniGraphError

if TYPE_CHECKING:
    from omnigraph.cli.printing.reports import FormatReport


class Language(StrEnum):
    PG = "pg"
    GQ = "gq"


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The result of formatting one source, or the error."""

    path: Path
    before: str = ""
    after: str = ""
    error: OmniGraphError | None = None

    @property
    def changed(self) -> bool:
        return self.before != self.after


@click.argument(
    "paths",
    type=click.Path(path_type=Path),
    nargs=-1,
    required=True,
    help="Files or directories; - reads stdin and writes stdout.",
    metavar="PATH...",
)
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if anything would change.")
@click.option("--diff", is_flag=True, help="Write nothing; show what would change.")
@choice_option("--language", Language, help="The language of stdin; guessed when omitted.")
@click.option("--json", is_flag=True, help="Print the outcome per file as JSON.")
def fmt(invocation: Invocation, paths: tuple[Path, ...], check: bool, diff: bool, language: Language | None) -> None:
    outcomes = [_format(path, language) for path in source_paths(paths, ".pg", ".gq")]
    for outcome in outcomes:
        if outcome.error is not None:
            print(f"Error: {outcome.error}", file=sys.stderr)
        elif outcome.path == STDIN and not (check or diff or invocation.json):
            sys.stdout.write(outcome.after)
        elif outcome.changed and not (check or diff) and outcome.path != STDIN:
            write_source(outcome.path, outcome.after)
    lines = _lines(outcomes, check=check, diff=diff)
    invocation.print(_report(outcomes), lines, unified_diff_style if diff else report_style)
    failed = any(outcome.error is not None for outcome in outcomes)
    raise Exit(1 if failed or (check and any(outcome.changed for outcome in outcomes)) else 0)


def _report(outcomes: list[_Outcome]) -> FormatReport:
    from omnigraph.cli.printing.reports import FormatReport, FormattedFile

    files = [(str(each.path), each.changed, None if each.error is None else str(each.error)) for each in outcomes]
    return FormatReport(tuple(FormattedFile(*file) for file in files), sum(each.changed for each in outcomes))


def _lines(outcomes: list[_Outcome], *, check: bool, diff: bool) -> Iterator[str]:
    for outcome in outcomes:
        if not outcome.changed:
            continue
        if diff:
            name = str(outcome.path)
            before, after = outcome.before.splitlines(), outcome.after.splitlines()
            yield from difflib.unified_diff(before, after, name, f"{name} (formatted)", lineterm="")
        elif check:
            yield f"would reformat {outcome.path}"
        elif outcome.path != STDIN:
            yield f"formatted {outcome.path}"


def source_paths(paths: Sequence[Path], *suffixes: str) -> Iterator[Path]:
    """The files that are named, and those with one of the endings below directories that are."""
    for path in paths:
        if path != STDIN and os.path.isdir(path):
            yield from sorted(file for file in path.rglob("*") if file.suffix in suffixes and file.is_file())
        else:
            yield path


def _format(path: Path, language: Language | None) -> _Outcome:
    from omnigraph.language.source import structure_of

    try:
        text, name = read_source(path), "<stdin>" if path == STDIN else str(path)
        if path != STDIN and path.suffix not in (".pg", ".gq"):
            raise BadRequestError(f"'{path}' is neither a .pg nor a .gq file")
        if path != STDIN:
            language = Language(path.suffix.removeprefix("."))
        elif language is None:
            # A query file begins with `query`; everything else is read as a schema.
            language = Language.GQ if structure_of(text).split(None, 1)[:1] == ["query"] else Language.PG
        if language is Language.GQ:
            from omnigraph.language.query.formatter import format_queries

            return _Outcome(path, text, format_queries(text, name))
        from omnigraph.language.schema.formatter import format_schema

        return _Outcome(path, text, format_schema(text, name))
    except OmniGraphError as error:
        return _Outcome(path, error=error)


@file_option("--query", help="The .gq file to check.")
@file_option("--schema", help="Check against this .pg file, offline.")
@click.option("--branch", default="main", help="The branch whose schema counts.", metavar="NAME")
@click.option("--pedantic", is_flag=True, help="Also warn of nullable properties that no update sets (L201).")
@json_option
def lint(invocation: Invocation, query: Path | None, schema: Path | None, branch: str, pedantic: bool) -> None:
    invocation.instead_of_graph("--schema", schema)
    from omnigraph.language.lint import SchemaSource, diagnostics_of, lint_queries, lint_schema
    from omnigraph.language.schema.compile import compile_schema

    if query is None:
        if schema is None:
            raise UsageError("give the file to check: --query <file.gq>, or --schema <file.pg> for a schema alone")
        report, diagnostics = lint_schema(read_source(schema), str(schema))
    else:
        if schema is not None:
            catalog = compile_schema(read_source(schema), str(schema))
            schema_source = SchemaSource.file(str(schema))
        else:
            with invocation.open_storage() as graph:
                catalog = graph.snapshot(branch).catalog
            schema_source = SchemaSource.graph(invocation.target.uri)
        text, path = read_source(query), str(query)
        report = lint_queries(catalog, text, query_path=path, schema_source=schema_source, pedantic=pedantic)
        diagnostics = diagnostics_of(catalog, text, path)
    invocation.print(report, report.lines(diagnostics))
    raise Exit(report.exit_code)


def lsp(invocation: Invocation) -> None:
    from omnigraph.cli.commands.serve import name_missing_extra

    named = (*invocation.config.clusters.values(), *(p.cluster for p in invocation.config.profiles.values()))
    directories = (Path(each).expanduser() for each in named if each is not None and "://" not in each)
    with name_missing_extra("the language server"):
        from omnigraph.editor.server import serve
    serve(directory for directory in directories if directory.is_dir())
