"""The commands that need no graph: `quickstart` writes a directory to start with, `completion` prints a script for a
shell, and `version` prints the version of the program and of the storage format that it writes.

`cache clear` deletes what is kept of remote graphs.

The commands about connections: `profile` shows the operator's profiles, `login` and `logout` store and delete the
token of a server, and `graphs list` lists the graphs of a server.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import click

from omnigraph import __version__
from omnigraph.cli.config import active_profile_name, forget_token, store_token
from omnigraph.cli.params import COMPLETION_VARIABLE, json_option
from omnigraph.cli.printing.output import print_note, print_text
from omnigraph.cli.target import Invocation, ServerScope, open_served
from omnigraph.errors import BadRequestError, ConflictError

_README = "README.md"
_SECTION = re.compile(r"^## (?P<title>[^\n]+)$|^```sh\n(?P<commands>.*?)^```$", re.MULTILINE | re.DOTALL)


@click.argument(
    "directory", type=click.Path(path_type=Path), help="Where to write the files; created if missing.", metavar="DIR"
)
@json_option
def quickstart(invocation: Invocation, directory: Path) -> None:
    from omnigraph.cli.printing.reports import NextCommands, Quickstart

    files = dict(_files(resources.files("omnigraph.cli.scaffold")))
    _write(directory, files)
    sections: list[tuple[str, list[str]]] = []  # the commands of the README under its headings
    for match in _SECTION.finditer(files[_README].decode()):
        if match["title"] is not None:
            sections.append((match["title"], []))
        else:
            sections[-1][1].extend(match["commands"].splitlines())
    steps = tuple(NextCommands(title, tuple(commands)) for title, commands in sections)
    lines = [f"wrote {len(files)} files to {directory}; {_README} explains them", "", f"cd {directory}"]
    for title, commands in sections:
        lines += [f"# {title}", *commands]
    report = Quickstart(str(directory), tuple(files), steps)
    invocation.print(report, lines, lambda line: "dim" if line.startswith("#") else "")


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


@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), help="The shell.")
def completion(_: Invocation, shell: str) -> None:
    from click.shell_completion import get_completion_class

    script, root = get_completion_class(shell), click.get_current_context().find_root()
    assert script is not None, "Click knows the three shells"
    print_text(script(root.command, {}, "omnigraph", COMPLETION_VARIABLE).source())


INTERNAL_SCHEMA_VERSION = 6


@json_option
def version(invocation: Invocation) -> None:
    if not invocation.json:
        print(f"omnigraph {__version__}")
        print(f"internal-schema {INTERNAL_SCHEMA_VERSION}")
        return
    from omnigraph.api.service.cluster import LANGUAGES, VersionOutput

    invocation.print(VersionOutput(__version__, INTERNAL_SCHEMA_VERSION, LANGUAGES), ())


@json_option
def list_profiles(invocation: Invocation) -> None:
    from omnigraph.cli.printing.reports import ListedProfile

    config, active = invocation.config, active_profile_name()
    rows, lines = [], []
    width = max(map(len, config.profiles), default=0)
    for name, profile in sorted(config.profiles.items()):
        kind, target = ("invalid", None) if profile.flaw is not None else profile.binding
        row = ListedProfile(
            name=name,
            binding=", ".join(f"{kind}: {target}" for kind, target in profile.bindings),
            scope_kind=kind,
            target=target,
            valid=profile.flaw is None,
            error=profile.flaw,
            default_graph=profile.default_graph,
            active=name == active,
        )
        rows.append(row)
        graph = f" (graph {row.default_graph})" if row.default_graph else ""
        described = row.binding + graph if row.valid else f"invalid: {row.error}"
        lines.append(f"{'*' if row.active else ' '} {name:<{width}}  {described}")
    invocation.print(rows, lines or [f"no profiles in {config.path}"])


@click.argument("name", required=False, help="The profile; the active one if omitted.")
@json_option
def show_profile(invocation: Invocation, name: str | None) -> None:
    from msgspec import structs

    from omnigraph.cli.printing.reports import ShownProfile

    config, name = invocation.config, name or active_profile_name()
    defaults = config.defaults
    if name is not None:
        profile = config.profile(name)
        (kind, target), graph = profile.binding, profile.default_graph
    else:
        name, graph = "(defaults)", defaults.default_graph
        bound = [("server", defaults.server), ("store", defaults.store)]
        kind, target = next(((k, t) for k, t in bound if t is not None), ("none", ""))
    # The endpoint is where the scope really points: the URL of a server, the root of a cluster, the storage itself.
    endpoint: str | None = target or None
    if kind == "server":
        endpoint = config.servers.get(target, target if "://" in target else None)
    elif kind == "cluster":
        endpoint = config.clusters.get(target, target)
    shown = ShownProfile(
        name=name,
        scope_kind=kind,
        target=target or None,
        endpoint=endpoint,
        default_graph=graph,
        output_format=defaults.output,
    )
    facts = structs.asdict(shown).items()
    invocation.print(shown, [f"{key}: {value}" for key, value in facts if value is not None])


name_argument = click.argument("name", help="The server, as the configuration calls it.")


@name_argument
@click.option("--token", help="The token; else one line of stdin.", metavar="TOKEN")
@json_option
def login(invocation: Invocation, name: str, token: str | None) -> None:
    from omnigraph.cli.printing.reports import LoggedIn

    if token is None and sys.stdin.isatty():
        from getpass import getpass

        token = getpass("token: ", stream=sys.stderr)
    token = (sys.stdin.readline() if token is None else token).strip()
    if not token:
        raise BadRequestError("no token provided; give --token, or write it to stdin")
    config = invocation.config
    path = store_token(name, token)
    declared = name in config.servers
    if not declared:
        print_note(f"no server is called '{name}' in {config.path}; declare it there to use the token")
    invocation.print(LoggedIn(name, str(path), declared), [f"stored credential for '{name}' in {path}"])


@name_argument
@json_option
def logout(invocation: Invocation, name: str) -> None:
    from omnigraph.cli.printing.reports import LoggedOut

    path = forget_token(name)
    invocation.print(LoggedOut(name, str(path)), [f"removed credential for '{name}' from {path}"])


@json_option
def list_graphs(invocation: Invocation) -> None:
    from omnigraph.api.service.cluster import GraphList

    scope = invocation.scope()
    assert isinstance(scope, ServerScope), "the resolution lets a served command have nothing else"
    with open_served(scope, invocation.config) as server:
        graphs = server.list_graphs()
    invocation.print(GraphList(tuple(graphs)), [f"{graph.graph_id}\t{graph.uri}" for graph in graphs])


@json_option
def clear_cache(invocation: Invocation) -> None:
    from omnigraph.cli.printing.reports import CacheCleared
    from omnigraph.storage.disk.disk_cache import DiskCache, disk_cache_settings

    settings = disk_cache_settings(os.environ, {})
    if settings is None:
        invocation.print(CacheCleared(None, 0), ["the cache is off"])
        return
    cleared = CacheCleared(str(settings.directory), DiskCache(settings).clear())
    invocation.print(cleared, [f"deleted {cleared.bytes:,} bytes in {cleared.directory}"])
