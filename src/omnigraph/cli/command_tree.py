"""The commands as Typer runs them, each made when it is run or when its own help is shown.

The table of commands names functions by module. `omnigraph --help` needs their names and a line for each, and imports
none of them; whoever asks for one command gets that one imported and its parameters worked out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any, cast

from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info
from typer.models import CommandInfo

from omnigraph.cli.values import read_plainly

_HOME = "omnigraph.cli.commands"


def function_at(place: str) -> Callable[..., None]:
    """The function of a command, `module.function` below `omnigraph.cli.commands`."""
    module, _, name = place.rpartition(".")
    return cast("Callable[..., None]", getattr(import_module(f"{_HOME}.{module}"), name))


def summary_of(function: Callable[..., None]) -> str:
    """What a list of commands says of one: the first sentence of its help."""
    first = (function.__doc__ or "").strip().partition("\n\n")[0]
    return " ".join(first.split()).partition(". ")[0].removesuffix(".")


class OnDemand(MutableMapping[str, Any]):
    """Commands of a group by name, in the order of the table. Only a look at a value makes one."""

    def __init__(self, makers: Mapping[str, Callable[[], Any]]) -> None:
        self._makers = dict(makers)
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._makers[name] = lambda: command

    def __delitem__(self, name: str) -> None:
        del self._makers[name]
        self._made.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


class PlainCommand(TyperCommand):
    """A command whose values are read by us."""

    def get_params(self, ctx: Any) -> list[Any]:
        return read_plainly(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What is hidden is not in the first line of a help either."""
        shown = [parameter for parameter in self.get_params(ctx) if not getattr(parameter, "hidden", False)]
        pieces = [self.options_metavar] if self.options_metavar else []
        return pieces + [piece for parameter in shown for piece in parameter.get_usage_pieces(ctx)]


class CommandGroup(TyperGroup):
    """A group that lists its commands by their summaries, which are asked for when the list is shown."""

    summaries: Callable[[], Mapping[str, str]]

    def get_params(self, ctx: Any) -> list[Any]:
        return read_plainly(super().get_params(ctx))

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self.summaries().items()))


def group(
    name: str,
    commands: Mapping[str, Callable[[], Any]],
    summaries: Callable[[], Mapping[str, str]],
    **options: Any,
) -> CommandGroup:
    """A group of commands that are made on demand."""
    made = CommandGroup(name=name, no_args_is_help=True, rich_markup_mode=None, **options)
    made.commands = OnDemand(commands)
    made.summaries = summaries
    return made


def command(name: str, function: Callable[..., None], cls: type[PlainCommand], **options: Any) -> Any:
    """One command, from the function that runs it."""
    info = CommandInfo(name=name, cls=cls, callback=function, **options)
    return get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode=None)


def root(callback: Callable[..., None], made: CommandGroup) -> CommandGroup:
    """The group with the parameters, the text and the behaviour of a function that reads the global flags."""
    flags = command("", callback, PlainCommand)
    made.params, made.help, made.callback = flags.params, flags.help, flags.callback
    return made
