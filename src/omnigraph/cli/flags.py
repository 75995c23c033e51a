"""The global flags: what every command line may carry, before or after its subcommand.

The parser only knows them in front, so `hoisted` moves them there first. Values are read by the root callback into a
`GlobalFlags`, which the guard, the scope resolution and the consent rules look at; no command parses them itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

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
