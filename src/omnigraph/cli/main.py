"""The entry point of `omnigraph`: spells out old commands, runs the new ones, turns failures into exit codes.

Importing it must stay cheap, because `--help` and shell completion pay for it: a command imports what it needs
when it runs. Exit codes: 0 success, 1 a failure at run time, 2 wrong usage.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from omnigraph import __version__
from omnigraph.cli import fmt, lint, schema, version
from omnigraph.cli.deprecated import spelled_out
from omnigraph.errors import OmniGraphError

LEGEND = """\
\b
COMMANDS BY CAPABILITY
  any      data of a graph, served or in storage   (none yet)
  served   needs a server                          (none yet)
  direct   works on storage or on files            lint, schema plan
  control  a cluster and its policies              (none yet)
  local    addresses no graph                      fmt, version
"""

app = typer.Typer(
    name="omnigraph",
    help="OmniGraph: a typed property graph on Lance, versioned as a whole like Git.",
    epilog=LEGEND,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    no_args_is_help=True,
)

app.command("lint")(lint.lint)
app.command("fmt")(fmt.fmt)
app.add_typer(schema.app, name="schema")
app.command("version")(version.version)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"omnigraph {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", "-v", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """OmniGraph: a typed property graph on Lance, versioned as a whole like Git."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and leave the process with its exit code."""
    try:
        code = run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader went away (`omnigraph … | head`). Nothing may be written at exit, or Python complains about it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command line; messages go to stderr and begin with `Error:`."""
    command, note = spelled_out(arguments)
    if note is not None:
        print(f"warning: {note}", file=sys.stderr)
    try:
        outcome = app(command, prog_name="omnigraph", standalone_mode=False)
    except typer.TyperException as error:
        return _report_usage(error)
    except typer.Abort:
        print("Error: aborted", file=sys.stderr)
        return 1
    except OmniGraphError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    # Outside of standalone mode the exit code of `typer.Exit` comes back as the result.
    return outcome if isinstance(outcome, int) else 0


def _report_usage(error: typer.TyperException) -> int:
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        print(context.get_help() if context is not None else error, file=sys.stderr)
        return 2
    described = getattr(error, "format_message", None)
    print(f"Error: {described() if described is not None else error}", file=sys.stderr)
    if context is not None:
        print(f"{context.get_usage()}\nTry '{context.command_path} --help'.", file=sys.stderr)
    return int(getattr(error, "exit_code", 1))


if __name__ == "__main__":
    main()
