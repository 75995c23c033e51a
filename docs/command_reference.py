"""Writes the reference of every command, from the code, below the mark in docs/user/cli.md; `./dev docs` runs it.

What stands above the mark is written by people. A test renders the page again and compares.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from omnigraph.cli.main import app
from omnigraph.cli.registry import COMMANDS, EXAMPLES, FAMILIES, HIDDEN, RULES

PAGE = Path(__file__).parent / "user" / "cli.md"
MARK = "<!-- Below is what `./dev docs` writes from the code. -->"
WIDE = 10_000


def page() -> str:
    written = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
    return written + "\n".join([MARK, "", "## Every command", "", *_reference()]).rstrip() + "\n"


def _reference() -> Iterator[str]:
    yield "`omnigraph COMMAND --help` shows the same."
    yield ""
    for path in COMMANDS:
        if path in HIDDEN or " " in path:
            continue
        yield from _command(path, app.commands[path])
    for family, text in FAMILIES.items():
        yield f"### {family}"
        yield ""
        yield text
        yield ""
        for path in COMMANDS:
            if path.startswith(f"{family} "):
                yield from _command(path, app.commands[family].commands[path.partition(" ")[2]], level=4)


def _command(path: str, command: Any, level: int = 3) -> Iterator[str]:
    ctx = typer.Context(command, info_name=f"omnigraph {path}", terminal_width=WIDE, max_content_width=WIDE)
    yield f"{'#' * level} {path}"
    yield ""
    yield f"`{' '.join([ctx.command_path, *command.collect_usage_pieces(ctx)])}`"
    yield ""
    yield from _paragraphs(command.help or "")
    arguments, options = _rows(ctx, command)
    if arguments or options:
        yield "| | |"
        yield "|---|---|"
        yield from (f"| `{_cell(name)}` | {_cell(meaning)} |" for name, meaning in [*arguments, *options])
        yield ""
    accepted = [f"`--{flag}`" for flag in ("server", "cluster", "graph", "store", "as", "profile")]
    accepted = [flag for flag in accepted if flag.strip("`-") in RULES[path].flags]
    if accepted:
        yield f"Global options: {', '.join(accepted)}."
        yield ""
    yield "```text"
    yield from EXAMPLES.get(path, ())
    yield "```"
    yield ""


def _rows(ctx: Any, command: Any) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    arguments: list[tuple[str, str]] = []
    options: list[tuple[str, str]] = []
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is None or "--help" in parameter.opts:
            continue
        kind = arguments if parameter.param_type_name == "argument" else options
        # That a text is text says nothing.
        kind.append((re.sub(r" <(str|path)>$", "", record[0]), " ".join(record[1].split())))
    return arguments, options


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.strip().split("\n\n"):
        yield " ".join(paragraph.split())
        yield ""


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", text)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
