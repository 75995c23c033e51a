"""`omnigraph login` and `logout`: the token that is kept for a server."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from omnigraph.cli.credentials import forget_token, store_token
from omnigraph.cli.operator_config import load_config
from omnigraph.cli.options import Json
from omnigraph.cli.output import print_json, print_lines, print_note
from omnigraph.errors import BadRequestError

Name = Annotated[str, typer.Argument(help="The server, as the configuration calls it.", metavar="NAME")]


def login(
    name: Name,
    token: Annotated[
        str | None, typer.Option("--token", help="The token; else one line of stdin.", metavar="TOKEN")
    ] = None,
    json: Json = False,
) -> None:
    """Keep the token for a server, in a file that only you may open."""
    given = (_asked_for() if token is None else token).strip()
    if not given:
        raise BadRequestError("no token provided; give --token, or write it to stdin")
    config = load_config()
    path = store_token(name, given)
    declared = name in config.servers
    if not declared:
        print_note(f"no server is called '{name}' in {config.path}; declare it there to use the token")
    if json:
        from omnigraph.cli.reports import LoggedIn

        print_json(LoggedIn(name, str(path), declared))
    else:
        print_lines([f"stored credential for '{name}' in {path}"])


def logout(name: Name, json: Json = False) -> None:
    """Keep no token for a server any more."""
    path = forget_token(name)
    if json:
        from omnigraph.cli.reports import LoggedOut

        print_json(LoggedOut(name, str(path)))
    else:
        print_lines([f"removed credential for '{name}' from {path}"])


def _asked_for() -> str:
    """One line, which a terminal does not show."""
    if sys.stdin.isatty():
        from getpass import getpass

        return getpass("token: ", stream=sys.stderr)
    return sys.stdin.readline()
