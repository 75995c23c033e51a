"""The options that several commands share, declared once so that they read alike in every help text.

The global flags: what every command line may carry, before or after its subcommand.

The parser only knows them in front, so `hoisted` moves them there first. Values are read by the root callback into a
`GlobalFlags`, which the guard, the scope resolution and the consent rules look at; no command parses them itself.

Wrong usage that only shows when arguments are seen together: flags that exclude each other, one that is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from omnigraph.api.enums import EntityKind, Operation

WITH_VALUE = ("--as", "--server", "--graph", "--profile", "--store", "--cluster")
WITHOUT_VALUE = ("--yes", "--quiet", "--debug")

# `commit list --graph` draws the history; with a value after it, the flag selects a graph as everywhere else.
_BARE: dict[tuple[str, ...], str] = {("commit", "list", "--graph"): "--dag"}


@dataclass(frozen=True, slots=True)
class GlobalFlags:
    """The flags as given; None is absent. `profile` is the flag alone, never the environment."""

    actor: str | None = None
    server: str | None = None
    graph: str | None = None
    profile: str | None = None
    store: str | None = None
    cluster: str | None = None
    yes: bool = False
    quiet: bool = False

    def addressing(self) -> Iterator[tuple[str, str]]:
        """The flags a command may refuse, in the order in which they are reported."""
        values = (self.server, self.cluster, self.graph, self.store, self.actor, self.profile)
        for flag, value in zip(("server", "cluster", "graph", "store", "as", "profile"), values, strict=True):
            if value is not None:
                yield flag, value


def path_of(ctx: Any) -> str:
    """The words of the command that runs, without the program's name."""
    return str(ctx.command_path).partition(" ")[2]


def hoisted(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """A command line as its global flags and everything else. Nothing behind `--` is looked at."""
    front: list[str] = []
    rest: list[str] = []
    position = 0
    while position < len(arguments):
        argument = arguments[position]
        position += 1
        if argument == "--":
            rest += [argument, *arguments[position:]]
            break
        name, assigned, _ = argument.partition("=")
        if name in WITHOUT_VALUE and not assigned:
            front.append(argument)
        elif name not in WITH_VALUE:
            rest.append(argument)
        elif assigned:
            front.append(argument)
        elif position < len(arguments) and not arguments[position].startswith("-"):
            front += [argument, arguments[position]]
            position += 1
        elif (bare := _BARE.get((*rest[:2], name))) is not None:
            rest.append(bare)
        else:
            # Last, and without a value: the parser says that one is missing.
            return [*front, argument], []
    return front, rest


class UsageError(Exception):
    """The command line makes no sense, whatever the graph holds. Exit code 2."""


def at_most_one(*given: tuple[str, object]) -> None:
    """Refuse more than one of these flags. A flag is given when its value is neither None nor False."""
    named = [name for name, value in given if value is not None and value is not False]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} are mutually exclusive; give one of them")


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
