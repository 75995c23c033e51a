"""Writes the reference of every command, from the code, below the mark in docs/user/cli.md; `./dev docs` runs it.

The text above the mark is written by people. A test renders the page again and compares.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from omnigraph.cli.main import app
from omnigraph.cli.params import HiddenArgument
from omnigraph.cli.registry import COMMANDS, FAMILIES

PAGE = Path(__file__).parent / "user" / "cli.md"
MARK = "<!-- Below is what `./dev docs` writes from the code. -->"
WIDE = 10_000


def page() -> str:
    written = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
    return written + "\n".join([MARK, "", "## Every command", "", *_reference()]).rstrip() + "\n"


def _reference() -> Iterator[str]:
    yield "`omnigraph COMMAND --help` shows the same."
    yield ""
    for path, row in COMMANDS.items():
        if not row.hidden and " " not in path:
            yield from _command(path)
    for family, text in FAMILIES.items():
        yield f"### {family}"
        yield ""
        yield text
        yield ""
        for path in COMMANDS:
            if path.startswith(f"{family} "):
                yield from _command(path, level=4)


def _command(path: str, level: int = 3) -> Iterator[str]:
    row, command = COMMANDS[path], _built(path)
    ctx = click.Context(
        command, info_name=f"omnigraph {path}", terminal_width=WIDE, max_content_width=WIDE, show_default=True
    )
    yield f"{'#' * level} {path}"
    yield ""
    yield f"`{' '.join([ctx.command_path, *command.collect_usage_pieces(ctx)])}`"
    yield ""
    yield from _paragraphs(row.help)
    if rows := [*_rows(ctx, command, click.Argument), *_rows(ctx, command, click.Option)]:
        yield "| | |"
        yield "|---|---|"
        yield from (f"| `{_cell(name)}` | {_cell(meaning)} |" for name, meaning in rows)
        yield ""
    accepted = [f"`--{flag}`" for flag in ("server", "cluster", "graph", "store", "as", "profile") if flag in row.flags]
    if accepted:
        yield f"Global options: {', '.join(accepted)}."
        yield ""
    yield "```text"
    yield from row.examples
    yield "```"
    yield ""


def _built(path: str) -> click.Command:
    command: click.Command | None = app
    for word in path.split():
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word)
    assert command is not None
    return command


def _rows(ctx: click.Context, command: click.Command, kind: type[click.Parameter]) -> Iterator[tuple[str, str]]:
    for parameter in command.get_params(ctx):
        if not isinstance(parameter, kind) or isinstance(parameter, HiddenArgument) or "--help" in parameter.opts:
            continue
        if (record := parameter.get_help_record(ctx)) is not None:
            yield record[0], " ".join(record[1].split())


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.strip().split("\n\n"):
        yield " ".join(paragraph.split())
        yield ""


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", text)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
