"""A command line that is still being typed: its command, what it says so far, and what the cursor is on.

Nothing here is refused: an unknown word is skipped, a value that is missing is what may be asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from omnigraph.cli.params import WITH_VALUE, GlobalFlags
from omnigraph.cli.registry import spelled_out


@dataclass
class Line:
    """What the words before the cursor say, and the word under it."""

    word: str
    command: Any
    """The command or group as it is made by the tree."""
    path: str = ""
    values: dict[str, list[str]] = field(default_factory=dict)
    """What options were given, by their first name; a flag has no value."""
    arguments: list[str] = field(default_factory=list)
    option: Any = None
    """The option whose value is under the cursor."""

    @property
    def flags(self) -> GlobalFlags:
        given = {name: values[-1] for name, values in self.values.items() if values}
        return GlobalFlags(
            actor=given.get("--as"),
            server=given.get("--server"),
            graph=given.get("--graph"),
            profile=given.get("--profile"),
            store=given.get("--store"),
            cluster=given.get("--cluster"),
        )

    @property
    def argument(self) -> Any:
        """The positional parameter under the cursor."""
        positional = [each for each in self.command.params if each.param_type_name == "argument"]
        for number, each in enumerate(positional):
            if each.nargs == -1 or number == len(self.arguments):
                return each
        return None

    def argument_named(self, name: str) -> str | None:
        """What a positional parameter was given, if it was."""
        positional = [each.name for each in self.command.params if each.param_type_name == "argument"]
        number = positional.index(name) if name in positional else len(self.arguments)
        return self.arguments[number] if number < len(self.arguments) else None


def line_of(root: Any, words: Sequence[str], position: int) -> Line:
    """The line as far as the cursor. Words are those after the program's name, which is word 0."""
    before, word = _joined(list(words[: position - 1]), words[position - 1] if position <= len(words) else "")
    command, path, rest = _command(root, before)
    line = Line(word, command, path)
    options = {name: each for each in (*root.params, *command.params) for name in _names(each)}
    waiting: Any = None
    for said in rest:
        if waiting is not None:
            line.values[_names(waiting)[0]].append(said)
            waiting = None
            continue
        name, assigned, value = said.partition("=")
        option = options.get(name) if said.startswith("-") else None
        if option is None:
            line.arguments += [] if said.startswith("-") else [said]
            continue
        given = line.values.setdefault(_names(option)[0], [])
        if assigned:
            given.append(value)
        elif not option.is_flag:
            waiting = option
    name, assigned, value = word.partition("=")
    if waiting is None and assigned and name in options:
        line.option, line.word = options[name], value
    else:
        line.option = waiting
    return line


def _joined(before: list[str], word: str) -> tuple[list[str], str]:
    """bash cuts `--format=csv` into three words."""
    if word == "=" and before:
        return before, ""
    if before and before[-1] == "=":
        before.pop()
    return [said for said in before if said != "="], word


def _command(root: Any, before: Sequence[str]) -> tuple[Any, str, list[str]]:
    """The command that the words name, its path, and the words that are not part of the name."""
    rest: list[str] = []
    path: list[str] = []
    command = root
    skip = False
    for said in spelled_out(before)[0]:
        if skip or said.startswith("-") or not hasattr(command, "commands"):
            skip = said in WITH_VALUE and not skip
            rest.append(said)
        elif said in command.commands:
            command = command.commands[said]
            path.append(said)
    return command, " ".join(path), rest


def _names(parameter: Any) -> list[str]:
    """The spellings of an option, the long one first."""
    if parameter.param_type_name != "option":
        return []
    return sorted(parameter.opts, key=lambda name: not name.startswith("--"))


def offered_options(line: Line, root: Any, accepted: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Options that the command takes and that may still be given, with what they are."""
    own = line.command.params if line.command is not root else []
    for parameter in (*own, *root.params):
        names = _names(parameter)
        if not names or parameter.hidden or (names[0] in line.values and not parameter.multiple):
            continue
        if parameter in root.params and line.path and names[0].removeprefix("--") not in accepted:
            continue
        yield names[0], (parameter.help or "").partition(".")[0]
    yield "--help", "Show the help"
