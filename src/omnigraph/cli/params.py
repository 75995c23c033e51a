"""The global flags, and the options that several commands share, so that they read alike in every help text.

Commands decorate their functions with them. Options that are combined pass one value on: the point to read at, the
scope of changes. Nothing here opens a graph, and a command never parses a global flag itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from omnigraph.api.enums import EntityKind, Operation, ReadFormat

if TYPE_CHECKING:
    from omnigraph.api.history import ChangeScope

COMPLETION_VARIABLE = "_OMNIGRAPH_COMPLETE"
"""The scripts of `omnigraph completion` set it to ask for candidates."""
WITH_VALUE = ("--as", "--server", "--graph", "--profile", "--store", "--cluster")
WITHOUT_VALUE = ("--yes", "--quiet", "--debug")

# `commit list --graph` draws the history; with a value after it, the flag selects a graph as everywhere else.
_BARE: dict[tuple[str, ...], str] = {("commit", "list", "--graph"): "--dag"}

Function = Callable[..., None]
Decorator = Callable[[Function], Function]
F = TypeVar("F", bound=Callable[..., Any])


class UsageError(Exception):
    """The command line makes no sense, whatever the graph holds. Exit code 2."""


def at_most_one(*options: tuple[str, object]) -> None:
    """Refuse more than one of these flags. A flag is given when its value is neither None nor False."""
    names = [name for name, value in options if value is not None and value is not False]
    if len(names) > 1:
        raise UsageError(f"{' and '.join(names)} are mutually exclusive; give one of them")


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

    def addresses(self) -> Iterator[tuple[str, str]]:
        """The flags a command may refuse, in the order in which they are reported."""
        values = (self.server, self.cluster, self.graph, self.store, self.actor, self.profile)
        for flag, value in zip(("server", "cluster", "graph", "store", "as", "profile"), values, strict=True):
            if value is not None:
                yield flag, value


def split_global_flags(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split a command line into its global flags and the rest. Everything after `--` belongs to the rest."""
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
            # The flag is last and has no value: the parser reports that one is missing.
            return [*front, argument], []
    return front, rest


class HiddenArgument(click.Argument):
    """An argument that neither the usage line nor the list of arguments shows; it is kept for old scripts."""

    def get_usage_pieces(self, ctx: click.Context) -> list[str]:
        return []


class GroupedOption(click.Option):
    """An option that the help shows under a heading of its own."""

    def __init__(self, *declarations: Any, heading: str, **attributes: Any) -> None:
        super().__init__(*declarations, **attributes)
        self.heading = heading


class ValueChoice(click.Choice[StrEnum]):
    """A choice between the members of an enum, which are written as their values. Click would take their names."""

    def normalize_choice(self, choice: object, ctx: click.Context | None) -> str:
        return str(choice)


class Engine(StrEnum):
    """Where a command does its work: in this process, or on Spark."""

    LOCAL = "local"
    SPARK = "spark"


def choice_option(name: str, choices: type[StrEnum], **attributes: Any) -> Callable[[F], F]:
    """An option whose value is a member of an enum; a default is given as its text."""
    return click.option(name, type=ValueChoice(choices), **attributes)


def repeatable_option(*declarations: str, help: str, **attributes: Any) -> Callable[[F], F]:
    """An option that may be given several times, as its help says."""
    return click.option(*declarations, multiple=True, help=f"{help}; may be repeated.", **attributes)


def file_option(name: str, *declarations: str, **attributes: Any) -> Callable[[F], F]:
    """An option whose value is a path, `-` included."""
    attributes.setdefault("metavar", "FILE")
    return click.option(name, *declarations, type=click.Path(path_type=Path), **attributes)


def complete_branch(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The branches of the addressed graph, for the shell. Only the root command can open a graph."""
    root: Any = ctx.find_root().command
    return [name for name in root.branch_names(ctx) if name.startswith(incomplete)]


json_option = click.option("--json", "json", is_flag=True, help="Print JSON.")
branch_option = click.option(
    "--branch", default="main", help="The branch.", metavar="NAME", shell_complete=complete_branch
)
write_branch_option = click.option(
    "--branch", help="Change this branch.  [default: main]", metavar="NAME", shell_complete=complete_branch
)
types_option = repeatable_option("--type", "types", help="Only this type", metavar="TYPE")
limit_option = click.option("--limit", type=click.IntRange(min=1), help="Changes per page.", metavar="N")
format_option = choice_option("--format", ReadFormat, help="How rows are shown.  [default: table]")


def uri_parameters(*, with_option: bool) -> list[click.Parameter]:
    """The URI of a graph as an argument, and with --uri. They are for old scripts: a graph is named with --store."""
    option = [click.Option(["--uri", "uri_option"], hidden=True)] if with_option else []
    return [HiddenArgument(["uri"], required=False), *option]


def combine(name: str, make: Callable[..., Any], **options: Decorator) -> Decorator:
    """Several options, by the names of their values, that a command gets as the one value that `make` makes of them."""

    def decorate(function: Function) -> Function:
        @wraps(function)
        def command(*arguments: Any, **values: Any) -> None:
            value = make(**{each: values.pop(each) for each in options})
            function(*arguments, **{name: value}, **values)

        decorated: Function = command
        for option in reversed(options.values()):
            decorated = option(decorated)
        return decorated

    return decorate


def read_point(
    branch: str | None = None, snapshot: str | None = None, at_version: int | None = None, at: str | None = None
) -> dict[str, Any]:
    """The point that the options name, as the keywords of every method that reads; the head of main by default."""
    point = named_point(branch, snapshot, at_version, at)
    return {**point, "branch": "main"} if branch is None and snapshot is None else point


def named_point(
    branch: str | None = None, snapshot: str | None = None, at_version: int | None = None, at: str | None = None
) -> dict[str, Any]:
    """The same with None for the branch that no option names, for texts that may be no query of a state.

    They are those of `ReadPoint`, which is not imported here: a command line that is refused must not pay for it.
    """
    at_most_one(("--branch", branch), ("--snapshot", snapshot))
    at_most_one(("--snapshot", snapshot), ("--at-version", at_version), ("--at", at))
    try:
        time = None if at is None else datetime.fromisoformat(at.strip())
    except ValueError:
        raise UsageError(f"--at: '{at}' is not a point in time; write 2026-03-01 or 2026-03-01T09:30:00Z") from None
    if time is not None and time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return {"branch": branch, "snapshot": snapshot, "version": at_version, "at": time}


_POINT_OPTIONS: Final = {
    "branch": click.option(
        "--branch", help="Read this branch.  [default: main]", metavar="NAME", shell_complete=complete_branch
    ),
    "snapshot": click.option("--snapshot", help="Read the graph as of this commit.", metavar="COMMIT"),
    "at_version": click.option("--at-version", type=int, help="Read the branch as of this version.", metavar="N"),
    "at": click.option(
        "--at", help="Read the branch as of this time, in ISO 8601; UTC if it names no zone.", metavar="TIME"
    ),
}
read_point_options = combine("point", read_point, **_POINT_OPTIONS)
named_point_options = combine("point", named_point, **_POINT_OPTIONS)


def _change_scope(kind: tuple[str, ...], types: tuple[str, ...], op: tuple[str, ...]) -> ChangeScope:
    from omnigraph.api.history import ChangeScope

    return ChangeScope.of(kinds=kind, types=types, ops=op)


change_scope_options = combine(
    "scope",
    _change_scope,
    kind=choice_option("--kind", EntityKind, multiple=True, help="Only this kind; may be repeated."),
    types=types_option,
    op=choice_option("--op", Operation, multiple=True, help="Only this operation; may be repeated."),
)
