"""The entry point of `omnigraph`: spells out old commands, runs the new ones, turns failures into exit codes.

Importing it must stay cheap, because `--help` and shell completion pay for it: a command is imported when it is run,
and imports what it needs when it runs. Exit codes: 0 success, 1 a failure at run time, 2 wrong usage, 4 a lost
`mutate --if-commit` race, 130 interrupted (Ctrl-C).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

import typer

from omnigraph import __version__
from omnigraph.api.enums import ReadFormat
from omnigraph.cli.command_tree import CommandGroup, PlainCommand, command, function_at, group, root, summary_of
from omnigraph.cli.completion.scripts import VARIABLE
from omnigraph.cli.interrupts import INTERRUPTED, MESSAGE, raise_in_commands
from omnigraph.cli.limit_flags import KEY, LimitFlags
from omnigraph.cli.params import GlobalFlags, UsageError, hoisted, path_of
from omnigraph.cli.printing.output import described, print_json, print_json_line, show_traces, tell
from omnigraph.cli.quick_start import collect_rarely, leave, leave_pandas_out
from omnigraph.cli.registry import COMMANDS, FAMILIES, HIDDEN, SUMMARIES, check_flags, flags_line, legend, spelled_out
from omnigraph.cli.wrong_usage import explained
from omnigraph.errors import BadRequestError, OmniGraphError


class GuardedCommand(PlainCommand):
    """A command that refuses global flags it would ignore, before it does anything."""

    def invoke(self, ctx: Any) -> Any:
        try:
            check_flags(path_of(ctx), ctx.find_object(GlobalFlags) or GlobalFlags())
            return super().invoke(ctx)
        except (typer.TyperException, typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except Exception as error:
            if ctx.params.get("json") or (ctx.info_name == "query" and ctx.params.get("format") == ReadFormat.JSON):
                # A pipeline prints an object per line, everything else one object.
                print_error(error, in_lines=path_of(ctx) == "pipeline run")
            raise


class ServeCommand(GuardedCommand):
    """`serve` has a flag per limit of a server, under headings of their own."""

    _limits = LimitFlags()

    def get_params(self, ctx: Any) -> list[Any]:
        *own, help_option = super().get_params(ctx)
        return [*own, *self._limits.parameters, help_option]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        for heading, parameters in {"Options": super().get_params(ctx), **self._limits.groups}.items():
            with formatter.section(heading):
                formatter.write_dl([record for p in parameters if (record := p.get_help_record(ctx)) is not None])

    def invoke(self, ctx: Any) -> Any:
        ctx.meta[KEY] = {p.name: ctx.params.pop(p.name, None) for p in self._limits.parameters}
        return super().invoke(ctx)


COMMAND_CLASSES: dict[str, type[GuardedCommand]] = {"serve": ServeCommand}


def print_error(error: Exception, *, in_lines: bool = False) -> None:
    """The failure on stdout, for programs. The text for people goes to stderr as always."""
    from omnigraph.api.service.http import ErrorOutput

    failure = error if isinstance(error, OmniGraphError) else BadRequestError(str(error))
    if not isinstance(error, OmniGraphError | UsageError):
        failure = OmniGraphError(described(error))
    (print_json_line if in_lines else print_json)(ErrorOutput.of(failure))


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"omnigraph {__version__}")
        raise typer.Exit


def _root(
    ctx: typer.Context,
    actor: Annotated[
        str | None, typer.Option("--as", help="The actor that a write is recorded for.", metavar="ACTOR")
    ] = None,
    server: Annotated[
        str | None, typer.Option("--server", help="A server, by name or URL.", metavar="NAME|URL")
    ] = None,
    graph: Annotated[
        str | None, typer.Option("--graph", help="A graph of a server or a cluster.", metavar="ID")
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile", help="A scope of the operator configuration; else OMNIGRAPH_PROFILE.", metavar="NAME"
        ),
    ] = None,
    store: Annotated[
        str | None, typer.Option("--store", help="A graph's storage: a path, file:// or s3://.", metavar="URI")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="A cluster, by directory, URI or name.", metavar="DIR|URI|NAME")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Consent to a destructive write elsewhere.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not say where a write goes.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where a failure comes from.")] = False,
    version: Annotated[
        bool, typer.Option("--version", "-v", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """OmniGraph: a typed property graph on Lance, versioned as a whole like Git.

    The options below may also stand behind the subcommand.
    """
    show_traces(debug)
    ctx.obj = GlobalFlags(actor, server, graph, profile, store, cluster, yes, quiet)


def _built() -> CommandGroup:
    single = {path: _maker(path) for path in COMMANDS if " " not in path}
    families = {name: partial(_family, name) for name in FAMILIES}
    summaries = {name: text for name, text in SUMMARIES.items() if name in COMMANDS}
    app = group("omnigraph", {**single, **families}, lambda: {**summaries, **FAMILIES}, epilog=legend())
    return root(_root, app)


def _family(name: str) -> CommandGroup:
    """A family stays one, however few commands it has."""
    paths = {path.partition(" ")[2]: path for path in COMMANDS if path.startswith(f"{name} ")}
    makers = {second: _maker(path) for second, path in paths.items()}
    return group(
        name,
        makers,
        lambda: {second: summary_of(function_at(COMMANDS[path])) for second, path in paths.items()},
        help=FAMILIES[name],
    )


def _maker(path: str) -> Callable[[], Any]:
    return lambda: _command(path)


def _command(path: str) -> Any:
    from omnigraph.cli.registry import examples_block

    name = path.rpartition(" ")[2]
    cls = COMMAND_CLASSES.get(path, GuardedCommand)
    epilog = "\n\n".join(filter(None, (examples_block(path), flags_line(path))))
    return command(name, function_at(COMMANDS[path]), cls, epilog=epilog, hidden=path in HIDDEN)


app = _built()


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and leave the process with its exit code."""
    leave_pandas_out()
    collect_rarely()
    _open_closed_streams()
    arguments = list(sys.argv[1:] if argv is None else argv)
    raise_in_commands()
    try:
        code = complete(arguments) if VARIABLE in os.environ else run(arguments)
        # Nothing is left to interrupt but the end of the process, which would answer with a stack trace.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader went away (`omnigraph … | head`). Nothing may be written at exit, or Python complains about it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    # Whoever interrupts does not wait for work that goes on in threads; a commit is whole or is not there.
    leave(code, wait=code != INTERRUPTED)


def _open_closed_streams() -> None:
    """A stream that was closed (`<&-`, `>&-`) reads as empty and swallows what is written; Python leaves None."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def complete(words: list[str]) -> int:
    """Answer a shell that asks what may stand at its cursor. It can do nothing with an error, nor can who types."""
    from omnigraph.cli.completion.answers import answer

    with suppress(Exception):
        for line in answer(app, words, int(os.environ[VARIABLE])):
            print(line)
    return 0


def run(arguments: list[str]) -> int:
    """Run one command line; messages go to stderr and begin with `Error:`."""
    global_flags, rest = hoisted(arguments)
    command, note = spelled_out(rest)
    if note is not None:
        print(f"warning: {note}", file=sys.stderr)
    try:
        outcome = app([*global_flags, *command], prog_name="omnigraph", standalone_mode=False)
    except typer.TyperException as error:
        return _report_usage(error, json="--json" in command)
    except typer.Abort:
        print("Error: aborted", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        outcome = INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as error:
        return tell(error)
    # Outside of standalone mode the exit code of `typer.Exit` comes back as the result; an interrupt is made one.
    if outcome == INTERRUPTED:
        print(MESSAGE, file=sys.stderr)
    return outcome if isinstance(outcome, int) else 0


def _report_usage(error: typer.TyperException, *, json: bool) -> int:
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        print(context.get_help() if context is not None else error, file=sys.stderr)
        return 2
    message = explained(error)
    if json:
        print_error(UsageError(message))
    print(f"Error: {message}", file=sys.stderr)
    if context is not None:
        print(f"{context.get_usage()}\nTry '{context.command_path} --help'.", file=sys.stderr)
    return int(getattr(error, "exit_code", 1))


if __name__ == "__main__":
    main()
