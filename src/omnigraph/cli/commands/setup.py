"""The commands that need no graph: `quickstart` writes a directory to start with, `completion` prints a script for a
shell, and `version` prints the version of the program and of the storage format that it writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from omnigraph import __version__
from omnigraph.cli.params import COMPLETION_VARIABLE, json_option
from omnigraph.cli.printing.output import print_json, print_lines, print_text
from omnigraph.errors import BadRequestError, ConflictError

if TYPE_CHECKING:
    from omnigraph.cli.printing.reports import Quickstart


_README = "README.md"
_SECTION = re.compile(r"^## (?P<title>[^\n]+)$|^```sh\n(?P<commands>.*?)^```$", re.MULTILINE | re.DOTALL)


@click.argument(
    "directory", type=click.Path(path_type=Path), help="Where to write the files; created if missing.", metavar="DIR"
)
@json_option
def quickstart(directory: Path, json: bool) -> None:
    home = resources.files("omnigraph.cli.scaffold")
    files = dict(_files(home))
    _write(directory, files)
    report = _report(directory, files)
    if json:
        print_json(report)
        return
    lines = [f"wrote {len(files)} files to {directory}; {_README} explains them", "", f"cd {directory}"]
    for section in report.next:
        lines += [f"# {section.title}", *section.commands]
    print_lines(lines, lambda line: "dim" if line.startswith("#") else "")


def _files(folder: Traversable, above: str = "") -> Iterator[tuple[str, bytes]]:
    """The data files of the package, by their path below it."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir() and entry.name != "__pycache__":
            yield from _files(entry, f"{above}{entry.name}/")
        elif entry.is_file() and not entry.name.endswith((".py", ".pyc")):
            yield f"{above}{entry.name}", entry.read_bytes()


def _write(directory: Path, files: dict[str, bytes]) -> None:
    taken = [name for name in files if (directory / name).exists()]
    if taken:
        raise ConflictError(f"'{directory / taken[0]}' exists; give an empty directory, nothing is overwritten")
    try:
        for name, content in files.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            with open(directory / name, "xb") as file:
                file.write(content)
    except OSError as error:
        raise BadRequestError(f"can't write '{error.filename or directory}': {error.strerror}") from error


def _report(directory: Path, files: dict[str, bytes]) -> Quickstart:
    """The written files, and the commands of the README under its headings."""
    from omnigraph.cli.printing.reports import NextCommands, Quickstart

    sections: list[tuple[str, list[str]]] = []
    for match in _SECTION.finditer(files[_README].decode()):
        if match["title"] is not None:
            sections.append((match["title"], []))
        else:
            sections[-1][1].extend(match["commands"].splitlines())
    steps = tuple(NextCommands(title, tuple(commands)) for title, commands in sections)
    return Quickstart(str(directory), tuple(files), steps)


@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), help="The shell.")
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    from click.shell_completion import get_completion_class

    script = get_completion_class(shell)
    assert script is not None, "Click knows the three shells"
    print_text(script(ctx.find_root().command, {}, "omnigraph", COMPLETION_VARIABLE).source())


INTERNAL_SCHEMA_VERSION = 6


def version() -> None:
    print(f"omnigraph {__version__}")
    print(f"internal-schema {INTERNAL_SCHEMA_VERSION}")
