"""`omnigraph codegen`: typed Python or TypeScript for a schema and the queries of files, and `--check` for CI."""

from __future__ import annotations

import os.path
from pathlib import Path
from typing import Final

import click
from click.exceptions import Exit

from omnigraph.api.enums import CodeLanguage, CodeStyle
from omnigraph.api.values import count_noun
from omnigraph.cli.commands.source_files import source_paths
from omnigraph.cli.inputs import read_source, write_source
from omnigraph.cli.params import UsageError, branch_option, choice_option, file_option, json_option
from omnigraph.cli.printing.output import print_text
from omnigraph.cli.target import Invocation
from omnigraph.errors import BadRequestError, ConflictError
from omnigraph.language.catalog import Catalog

_LANGUAGES: Final = {".py": CodeLanguage.PYTHON, ".ts": CodeLanguage.TYPESCRIPT}
_FILE: Final = "graph_queries"


@file_option("--schema", help="The schema, a .pg file; without it, that of the addressed graph.")
@file_option(
    "--query", "queries", multiple=True, required=True, help="A .gq file, or a directory of them; may be repeated."
)
@choice_option("--language", CodeLanguage, help="The language; by default the one that --output names.")
@choice_option("--style", CodeStyle, help="What Python classes are.  [default: dataclass]")
@click.option("--stored", is_flag=True, help="Run queries that the graph stores by their names, not their texts.")
@file_option("--output", help="The file to write, or a directory for it; stdout by default.")
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if the file is out of date.")
@click.option("--force", is_flag=True, help="Replace a file that codegen did not write.")
@branch_option
@json_option
def codegen(
    invocation: Invocation,
    schema: Path | None,
    queries: tuple[Path, ...],
    language: CodeLanguage | None,
    style: CodeStyle | None,
    stored: bool,
    output: Path | None,
    check: bool,
    force: bool,
    branch: str,
) -> None:
    invocation.instead_of_graph("--schema", schema)
    if output is None and (check or invocation.json):
        raise UsageError(f"{'--check' if check else '--json'} needs the name of the file: --output FILE")
    language = _language(language, output)
    if style is not None and language is not CodeLanguage.PYTHON:
        raise UsageError("--style is for Python")

    from omnigraph.cli.printing.reports import GeneratedCode
    from omnigraph.codegen.model import QuerySource, read_program
    from omnigraph.codegen.python import write_python
    from omnigraph.codegen.typescript import write_typescript

    sources = [QuerySource(str(path), read_source(path)) for path in source_paths(queries, ".gq")]
    if not sources:
        raise BadRequestError(f"there is no .gq file in {', '.join(map(str, queries))}")
    program = read_program(_catalog(invocation, schema, branch), sources)
    if language is CodeLanguage.PYTHON:
        text = write_python(program, style=style or CodeStyle.DATACLASS, stored=stored)
    else:
        text = write_typescript(program, stored=stored)
    if output is None:
        print_text(text)
        return
    path = _file(output, language)
    changed = _is_other(path, text, check=check or force)
    if changed and not check:
        write_source(path, text)
    counts = len(program.entities), len(program.queries)
    what = f"{count_noun(counts[0], 'type')}, {count_noun(counts[1], 'query', 'queries')}"
    done = "is out of date: run the command without --check" if check else f"written: {what}"
    report = GeneratedCode(str(path), language, *counts, changed)
    invocation.print(report, [f"{path} {done if changed else f'is up to date: {what}'}"])
    raise Exit(1 if check and changed else 0)


def _language(language: CodeLanguage | None, output: Path | None) -> CodeLanguage:
    by_name = None if output is None else _LANGUAGES.get(output.suffix)
    if language is None and by_name is None:
        raise UsageError("say which --language, python or typescript, or give --output a name in .py or .ts")
    return language or by_name or CodeLanguage.PYTHON


def _file(output: Path, language: CodeLanguage) -> Path:
    """The file to write. A path without an ending is a directory."""
    if not output.suffix or os.path.isdir(output):
        suffix = next(suffix for suffix, each in _LANGUAGES.items() if each is language)
        return output / f"{_FILE}{suffix}"
    return output


def _catalog(invocation: Invocation, schema: Path | None, branch: str) -> Catalog:
    from omnigraph.language.schema.compile import compile_schema

    if schema is not None:
        return compile_schema(read_source(schema), str(schema))
    with invocation.open() as graph:
        return compile_schema(graph.schema.show(branch))


def _is_other(path: Path, text: str, *, check: bool) -> bool:
    """Whether a file is missing or has another text. Unless it is only checked, it must be one that codegen wrote."""
    from omnigraph.codegen.model import GENERATED

    if not os.path.exists(path):
        return True
    written = read_source(path)
    if not check and GENERATED not in written.partition("\n")[0]:
        raise ConflictError(f"'{path}' was not written by codegen; choose another --output, or pass --force")
    return written != text
