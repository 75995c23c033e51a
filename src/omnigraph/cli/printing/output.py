"""How commands print: JSON as documented, lines for people, colour only on a terminal.

A failure is one `Error:` line with its notes on stderr; a stack trace is printed only with `--debug`.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from omnigraph.cli.params import UsageError
from omnigraph.errors import OmniGraphError

# A style is found from the text of a line, so that what is piped and what is coloured can't differ.
Style = Callable[[str], str]

_CODES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "cyan": 36}
"""The words a style is made of, as terminals know them."""

_REPORT = {"OK": "green", "ERROR": "bold red", "WARN": "yellow", "INFO": "dim", "would": "yellow", "formatted": "green"}


def report_style(line: str) -> str:
    """By the first word of a report or plan line."""
    if line.startswith("- unsupported") or line == "supported: no":
        return "bold red"
    return "cyan" if line.startswith("- ") else _REPORT.get(line.split(" ", 1)[0], "")


def style_by(table: Mapping[str, str], otherwise: str = "") -> Style:
    """A style by the beginning of a line: that of the first entry that fits."""
    return lambda line: next((style for beginning, style in table.items() if line.startswith(beginning)), otherwise)


unified_diff_style = style_by({"---": "bold", "+++": "bold", "-": "red", "+": "green", "@": "cyan"})


def print_json(form: Any) -> None:
    """The wire form of a contract struct: two spaces, members in their order, UTF-8 as it is, one trailing newline."""
    sys.stdout.write(_text(form, indent=2) + "\n")


def print_json_line(form: Any) -> None:
    """The same on one line, at once: for reports that are read while they grow."""
    print(_text(form), flush=True)


def _text(form: Any, indent: int | None = None) -> str:
    from omnigraph.api import wire

    text = json.dumps(wire.to_builtins(form), indent=indent, ensure_ascii=False)
    # The name of a file may hold bytes that are no UTF-8; JSON has an escape for them.
    return text.encode("utf-8", "backslashreplace").decode()


def print_lines(lines: Iterable[str], style: Style = report_style) -> None:
    """Lines for a person: coloured on a terminal, unless its owner wants no colours (https://no-color.org)."""
    is_coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    for line in lines:
        codes = ";".join(str(_CODES[word]) for word in style(line).split()) if is_coloured else ""
        print(f"\x1b[{codes}m{line}\x1b[0m" if codes else line)


def print_text(text: str) -> None:
    """A document as it is, closed by a line break if it has none."""
    sys.stdout.write(text if text.endswith("\n") or not text else f"{text}\n")


def print_note(message: str) -> None:
    """A remark beside the result; never part of it."""
    print(f"note: {message}", file=sys.stderr)


def print_warning(message: str) -> None:
    print(f"warning: {message}", file=sys.stderr)


WRONG_USAGE = 2
_debugging = False


def show_traces(wanted: bool) -> None:
    global _debugging
    _debugging = wanted


def report_failure(error: BaseException) -> int:
    """Say what went wrong, and return the exit code for it."""
    if _debugging:
        traceback.print_exception(error)
    if isinstance(error, OmniGraphError | UsageError):
        message = str(error).removeprefix("ERROR ")  # as a finding of a cluster begins
        print("\n".join([f"Error: {message}", *getattr(error, "__notes__", ())]), file=sys.stderr)
        return error.exit_code if isinstance(error, OmniGraphError) else WRONG_USAGE
    hint = "" if _debugging else "; --debug shows where"
    print(f"Error: {describe_fault(error)}{hint}", file=sys.stderr)
    return 1


def describe_fault(error: BaseException) -> str:
    """An exception that nobody expected, as a sentence."""
    named = f"{type(error).__name__}: {error}".removesuffix(": ")
    return f"this is a fault of omnigraph or its surroundings: {named}"
