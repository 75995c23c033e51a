"""The commands that need no graph: `quickstart` writes a directory to start with, `completion` prints a script for a
shell, and `version` prints the version of the program and of the storage format that it writes.

The commands about connections: `profile` shows the operator's profiles, `login` and `logout` store and delete the
token of a server, and `graphs list` lists the graphs of a server.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from omnigraph import __version__
from omnigraph.cli.config import active_profile_name, forget_token, load_config, store_token
from omnigraph.cli.params import COMPLETION_VARIABLE, json_option
from omnigraph.cli.printing.output import print_json, print_lines, print_note, print_text
from omnigraph.cli.target import Invocation, open_served, pass_invocation
from omnigraph.errors import BadRequestError, ConflictError

if TYPE_CHECKING:
    from omnigraph.cli.config import OperatorConfig, Profile
    from omnigraph.cli.printing.reports import ListedProfile, Quickstart, ShownProfile


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


@json_option
def list_profiles(json: bool) -> None:
    config, active = load_config(), active_profile_name()
    rows = [_row(profile, active) for _, profile in sorted(config.profiles.items())]
    if json:
        print_json(rows)
        return
    lines, width = [], max((len(row.name) for row in rows), default=0)
    for row in rows:
        graph = f" (graph {row.default_graph})" if row.default_graph else ""
        described = row.binding + graph if row.valid else f"invalid: {row.error}"
        lines.append(f"{'*' if row.active else ' '} {row.name:<{width}}  {described}")
    print_lines(lines or [f"no profiles in {config.path}"])


@click.argument("name", required=False, help="The profile; the active one if omitted.")
@json_option
def show_profile(name: str | None, json: bool) -> None:
    config = load_config()
    name = name or active_profile_name()
    profile = config.profile(name) if name is not None else None
    if profile is not None and profile.flaw is not None:
        raise BadRequestError(profile.flaw)
    from msgspec import structs

    shown = _describe(profile, config)
    if json:
        print_json(shown)
    else:
        print_lines([f"{key}: {value}" for key, value in structs.asdict(shown).items() if value is not None])


def _row(profile: Profile, active: str | None) -> ListedProfile:
    from omnigraph.cli.printing.reports import ListedProfile

    valid = profile.flaw is None
    kind, target = profile.bindings[0] if valid else ("invalid", None)
    return ListedProfile(
        name=profile.name,
        binding=", ".join(f"{kind}: {target}" for kind, target in profile.bindings),
        scope_kind=kind,
        target=target,
        valid=valid,
        error=profile.flaw,
        default_graph=profile.default_graph,
        active=profile.name == active,
    )


def _describe(profile: Profile | None, config: OperatorConfig) -> ShownProfile:
    from omnigraph.cli.printing.reports import ShownProfile

    defaults = config.defaults
    if profile is not None:
        name, (kind, target), graph = profile.name, profile.bindings[0], profile.default_graph
    else:
        name, graph = "(defaults)", defaults.default_graph
        bound = [("server", defaults.server), ("store", defaults.store)]
        kind, target = next(((k, t) for k, t in bound if t is not None), ("none", ""))
    return ShownProfile(
        name=name,
        scope_kind=kind,
        target=target or None,
        endpoint=_endpoint(kind, target, config),
        default_graph=graph,
        output_format=defaults.output,
    )


def _endpoint(kind: str, target: str, config: OperatorConfig) -> str | None:
    """Where the scope really points: the URL of a server, the root of a cluster, the storage itself."""
    if kind == "server":
        return config.servers.get(target, target if "://" in target else None)
    if kind == "cluster":
        return config.clusters.get(target, target)
    return target if kind == "store" else None


name_argument = click.argument("name", help="The server, as the configuration calls it.")


@name_argument
@click.option("--token", help="The token; else one line of stdin.", metavar="TOKEN")
@json_option
def login(name: str, token: str | None, json: bool) -> None:
    given = (_asked_for() if token is None else token).strip()
    if not given:
        raise BadRequestError("no token provided; give --token, or write it to stdin")
    config = load_config()
    path = store_token(name, given)
    declared = name in config.servers
    if not declared:
        print_note(f"no server is called '{name}' in {config.path}; declare it there to use the token")
    if json:
        from omnigraph.cli.printing.reports import LoggedIn

        print_json(LoggedIn(name, str(path), declared))
    else:
        print_lines([f"stored credential for '{name}' in {path}"])


@name_argument
@json_option
def logout(name: str, json: bool) -> None:
    path = forget_token(name)
    if json:
        from omnigraph.cli.printing.reports import LoggedOut

        print_json(LoggedOut(name, str(path)))
    else:
        print_lines([f"removed credential for '{name}' from {path}"])


def _asked_for() -> str:
    """One line, which a terminal does not show."""
    if sys.stdin.isatty():
        from getpass import getpass

        return getpass("token: ", stream=sys.stderr)
    return sys.stdin.readline()


@json_option
@pass_invocation
def list_graphs(invocation: Invocation, json: bool) -> None:
    from omnigraph.api.service.cluster import GraphList

    with open_served(invocation.server(), invocation.config) as server:
        found = server.list_graphs()
    if json:
        print_json(GraphList(tuple(found)))
    else:
        print_lines(f"{graph.graph_id}\t{graph.uri}" for graph in found)
