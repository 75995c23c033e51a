"""The options that several commands share, declared once so that they read alike in every help text."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from omnigraph.api.enums import EntityKind, Operation
from omnigraph.cli.usage import at_most_one

Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]
# A graph is named with --store; that its URI may also be an argument, or the value of --uri, is for old scripts.
Uri: TypeAlias = Annotated[
    str | None, typer.Argument(help="The graph: a path, file:// or s3://.", metavar="URI", hidden=True)
]
UriOption: TypeAlias = Annotated[
    str | None, typer.Option("--uri", help="The graph: a path, file:// or s3://.", metavar="URI", hidden=True)
]
Branch: TypeAlias = Annotated[str, typer.Option("--branch", help="The branch.", metavar="NAME")]
ReadBranch: TypeAlias = Annotated[
    str | None, typer.Option("--branch", help="Read this branch.  [default: main]", metavar="NAME")
]
AtSnapshot: TypeAlias = Annotated[
    str | None, typer.Option("--snapshot", help="Read the state of this commit.", metavar="COMMIT")
]
AtVersion: TypeAlias = Annotated[
    int | None, typer.Option("--at-version", help="Read the branch as of this version.", metavar="N")
]
AtTime: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--at", help="Read the branch as of this moment, in ISO 8601; UTC unless it says otherwise.", metavar="TIME"
    ),
]
QueryFile: TypeAlias = Annotated[
    Path | None, typer.Option("--query", help="A .gq file that holds the query.", metavar="FILE")
]
QueryString: TypeAlias = Annotated[
    str | None, typer.Option("-e", "--query-string", help="The query itself.", metavar="GQ")
]
Params: TypeAlias = Annotated[str | None, typer.Option("--params", help="Parameters, a JSON object.", metavar="JSON")]
ParamsFile: TypeAlias = Annotated[
    Path | None, typer.Option("--params-file", help="A file with the parameters; - is stdin.", metavar="FILE")
]

NamedParams: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--param",
        help="A parameter, read as the type that the query declares; may be repeated.",
        metavar="NAME=VALUE",
    ),
]


class Engine(StrEnum):
    """Where the work of a command is done: in this process, or on Spark."""

    LOCAL = "local"
    SPARK = "spark"


def given_uri(argument: str | None, option: str | None) -> str | None:
    """The URI of a command that takes it as an argument or with --uri."""
    at_most_one(("URI", argument), ("--uri", option))
    return argument if option is None else option


Kinds: TypeAlias = Annotated[list[EntityKind] | None, typer.Option("--kind", help="Only these; may be repeated.")]
Types: TypeAlias = Annotated[
    list[str] | None, typer.Option("--type", help="Only this type; may be repeated.", metavar="TYPE")
]
Ops: TypeAlias = Annotated[list[Operation] | None, typer.Option("--op", help="Only these; may be repeated.")]
Limit: TypeAlias = Annotated[int | None, typer.Option("--limit", help="Changes per page.", metavar="N", min=1)]
