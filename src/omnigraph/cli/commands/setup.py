"""`omnigraph quickstart`: a directory with everything a first graph needs, and what to run next.

`omnigraph completion`: the script that makes a shell complete command lines.

`omnigraph version`: the version of the program, and of the storage format it writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph import __version__
from omnigraph.cli.completion.scripts import SCRIPTS, Shell
from omnigraph.cli.params import Json
from omnigraph.cli.printing.output import print_json, print_lines, print_text
from omnigraph.errors import BadRequestError, ConflictError

if TYPE_CHECKING:
    from omnigraph.cli.printing.reports import Quickstart


_README = "README.md"
_SECTION = re.compile(r"^## (?P<title>[^\n]+)$|^```sh\n(?P<commands>.*?)^```$", re.MULTILINE | re.DOTALL)


def quickstart(
    directory: Annotated[Path, typer.Argument(help="Where to write the files; made if missing.", metavar="DIR")],
    json: Json = False,
) -> None:
    """Write a directory to begin with: schema, data, queries, a pipeline, a cluster with rules.

    Existing files are never overwritten. What to run next is printed, and explained in the README.md it writes.
    """
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
    """The files of the package, by their path below it, without what makes it a package."""
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
    """What was written; and the commands of the README under its headings, so that they are written down once."""
    from omnigraph.cli.printing.reports import NextCommands, Quickstart

    sections: list[tuple[str, list[str]]] = []
    for found in _SECTION.finditer(files[_README].decode()):
        if found["title"] is not None:
            sections.append((found["title"], []))
        else:
            sections[-1][1].extend(found["commands"].splitlines())
    steps = tuple(NextCommands(title, tuple(commands)) for title, commands in sections)
    return Quickstart(str(directory), tuple(files), steps)


def completion(shell: Annotated[Shell, typer.Argument(help="The shell.", metavar="bash|zsh|fish")]) -> None:
    """Print the script that completes command lines in a shell.

    For bash put `source <(omnigraph completion bash)` into ~/.bashrc, for zsh the same with zsh into ~/.zshrc after
    compinit, for fish `omnigraph completion fish | source` into ~/.config/fish/config.fish.
    """
    print_text(SCRIPTS[shell])


INTERNAL_SCHEMA_VERSION = 6


def version() -> None:
    """Print the version and the storage format version."""
    print(f"omnigraph {__version__}")
    print(f"internal-schema {INTERNAL_SCHEMA_VERSION}")
