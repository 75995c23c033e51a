"""The entry point of `omnigraph`: builds the commands of the registry, runs one, and turns failures into exit codes.

Importing it must stay cheap, because `--help` and shell completion pay for it: a command is imported when it runs, and
imports what it needs when it runs. Exit codes: 0 success, 1 a failure at run time, 2 wrong usage, 4 a lost
`mutate --if-commit` race, 130 interrupted (Ctrl-C).
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final

import click
from click.exceptions import Exit, NoArgsIsHelpError, NoSuchCommand

from omnigraph import __version__
from omnigraph.api.enums import ReadFormat
from omnigraph.cli import params
from omnigraph.cli.printing.output import describe_fault, print_json, print_json_line, report_failure, show_traces
from omnigraph.cli.registry import COMMANDS, FAMILIES, Capability, Command, check_flags, current_name, legend
from omnigraph.cli.target import Invocation, branch_names, complete_names
from omnigraph.errors import BadRequestError, OmniGraphError
from omnigraph.process import PROCESS

INTERRUPTED: Final = 130

_GIVEN_WITH: Final = {
    "--uri": "the graph is given with --store",
    "--data": "data are given with --data",
    "--query": "a file of queries is given with --query",
}


class RegisteredCommand(click.Command):
    """A command of the registry. It refuses global flags that it would ignore, before it does anything. The graph and
    --json belong to its `Invocation`, and not to the arguments of its function."""

    row: Command

    def invoke(self, ctx: click.Context) -> Any:
        flags = ctx.find_object(params.GlobalFlags) or params.GlobalFlags()
        uri, uri_option, json = (ctx.params.pop(name, None) for name in ("uri", "uri_option", "json"))
        try:
            check_flags(self.row, flags)
            params.at_most_one(("URI", uri), ("--uri", uri_option))
            ctx.obj = Invocation(self.row, flags, uri if uri_option is None else uri_option, json=bool(json))
            return super().invoke(ctx)
        except (click.ClickException, Exit, click.Abort, BrokenPipeError):
            raise
        except Exception as error:
            if json or (self.row.path == "query" and ctx.params.get("format") == ReadFormat.JSON):
                # A pipeline prints an object per line, everything else one object.
                print_error(error, in_lines=self.row.path == "pipeline run")
            raise

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        arguments = [each for each in self.get_params(ctx) if isinstance(each, click.Argument)]
        rows = [each.get_help_record(ctx) for each in arguments if not isinstance(each, params.HiddenArgument)]
        if rows:
            with formatter.section("Arguments"):
                formatter.write_dl(rows)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for option in self.get_params(ctx):
            if isinstance(option, click.Option) and (record := option.get_help_record(ctx)) is not None:
                heading = option.heading if isinstance(option, params.GroupedOption) else "Options"
                sections.setdefault(heading, []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)


class CommandGroup(click.Group):
    """A group that imports a command when it is asked for, and lists all of them by the registry alone."""

    def __init__(self, name: str, rows: Mapping[str, Command | str], **attributes: Any) -> None:
        super().__init__(name, no_args_is_help=True, **attributes)
        self._rows = rows
        """Commands by their name in this group, or the help of a family."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._rows)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands and (row := self._rows.get(cmd_name)) is not None:
            self.add_command(_family(cmd_name, row) if isinstance(row, str) else _command(row), cmd_name)
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        texts = {name: row if isinstance(row, str) else row.summary for name, row in self._rows.items()}
        hidden = {name for name, row in self._rows.items() if isinstance(row, Command) and row.hidden}
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, text in texts.items() if name not in hidden])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except NoSuchCommand as error:
            raise NoSuchCommand(error.command_name, possibilities=self._rows, ctx=ctx) from None


class RootGroup(CommandGroup):
    """`omnigraph` itself, whose options may also be given after the subcommand."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        flags, rest = params.split_global_flags(args)
        command, note = current_name(rest)
        if note is not None and not ctx.resilient_parsing:
            print(f"warning: {note}", file=sys.stderr)
        return super().parse_args(ctx, [*flags, *command])

    def branch_names(self, ctx: click.Context) -> list[str]:
        """The branches that the command line of a context may name."""
        return branch_names(ctx)


def _command(row: Command) -> click.Command:
    module, _, name = row.function.rpartition(".")
    function = getattr(import_module(f"omnigraph.cli.commands.{module}"), name)
    build = click.command(
        row.path.rpartition(" ")[2],
        RegisteredCommand,
        help=row.help,
        short_help=row.summary,
        epilog=row.epilog,
        hidden=row.hidden,
        context_settings={"show_default": True},
    )
    command = build(click.make_pass_decorator(Invocation)(function))
    command.row = row
    if row.capability in (Capability.ANY, Capability.DIRECT):
        with_option = row.path.partition(" ")[0] in ("branch", "commit", "changes", "diff")
        command.params += params.uri_parameters(with_option=with_option)
    return command


def _family(name: str, help: str) -> click.Command:
    rows = {path.partition(" ")[2]: row for path, row in COMMANDS.items() if path.startswith(f"{name} ")}
    return CommandGroup(name, rows, help=help)


_SINGLE = {path: row for path, row in COMMANDS.items() if " " not in path}


@click.command("omnigraph", RootGroup, rows={**_SINGLE, **FAMILIES}, epilog=legend())
@click.option("--as", "actor", help="The actor that a write is recorded for.", metavar="ACTOR")
@click.option("--server", help="A server, by name or URL.", metavar="NAME|URL", shell_complete=complete_names)
@click.option("--graph", help="A graph of a server or a cluster.", metavar="ID")
@click.option(
    "--profile",
    help="A profile of the operator configuration; else OMNIGRAPH_PROFILE.",
    metavar="NAME",
    shell_complete=complete_names,
)
@click.option("--store", type=click.Path(), help="The storage of a graph: a path, file:// or s3://.", metavar="URI")
@click.option(
    "--cluster", help="A cluster, by directory, URI or name.", metavar="DIR|URI|NAME", shell_complete=complete_names
)
@click.option("--yes", is_flag=True, help="Consent to a destructive write on storage that is not local.")
@click.option("--quiet", is_flag=True, help="Do not print where a write goes.")
@click.option("--debug", is_flag=True, help="Print the stack trace of a failure.")
@click.version_option(__version__, "--version", "-v", message="omnigraph %(version)s", help="Print the version.")
@click.pass_context
def app(ctx: click.Context, /, *, debug: bool, **flags: Any) -> None:
    """OmniGraph: a typed property graph on Lance, versioned as a whole like Git.

    These options may also be given after the subcommand.
    """
    show_traces(debug)
    ctx.obj = params.GlobalFlags(**flags)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and leave the process with its exit code."""
    PROCESS.take()
    PROCESS.end_quickly()
    gc.set_threshold(50_000)  # imports make many objects and little garbage
    # A closed stream (`<&-`, `>&-`) reads as empty and swallows what is written; Python leaves None.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    if params.COMPLETION_VARIABLE in os.environ:
        app.main(prog_name="omnigraph", complete_var=params.COMPLETION_VARIABLE)
    try:
        code = run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader is gone (`omnigraph … | head`). Nothing may be written at exit, or Python complains about it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    if code == INTERRUPTED:
        # An interrupted command does not wait for its threads; a commit is complete or does not exist.
        PROCESS.exit_at_once(code)
    PROCESS.exit(code)


def serve() -> None:
    """The entry point of `omnigraph-server`, which is `omnigraph serve`."""
    main(["serve", *sys.argv[1:]])


def run(arguments: list[str]) -> int:
    """Run one command line in this process and return its exit code; messages go to stderr and begin with `Error:`."""
    try:
        with app.make_context("omnigraph", list(arguments)) as ctx:
            app.invoke(ctx)
        return 0
    except Exit as exit:
        return exit.exit_code
    except click.ClickException as error:
        return _report_usage(error, json="--json" in arguments)
    except KeyboardInterrupt:
        print("Error: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as error:
        return report_failure(error)


def print_error(error: Exception, *, in_lines: bool = False) -> None:
    """Print a failure to stdout, for programs. The text for people goes to stderr as always."""
    from omnigraph.api.service.http import ErrorOutput

    failure = error if isinstance(error, OmniGraphError) else BadRequestError(str(error))
    if not isinstance(error, OmniGraphError | params.UsageError):
        failure = OmniGraphError(describe_fault(error))
    (print_json_line if in_lines else print_json)(ErrorOutput.of(failure))


def _report_usage(error: click.ClickException, *, json: bool) -> int:
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    if isinstance(error, NoArgsIsHelpError):
        print(error.format_message(), file=sys.stderr)
        return error.exit_code
    if ctx is not None and isinstance(error, click.NoSuchOption):
        # Options that are kept for old scripts are not suggested.
        hidden = {name for each in ctx.command.params if getattr(each, "hidden", False) for name in each.opts}
        offered = [name for name in error.possibilities or () if name not in hidden]
        error = click.NoSuchOption(error.option_name, possibilities=offered, ctx=ctx)
    message = " ".join(error.format_message().split())
    if ctx is not None and message.startswith("Got unexpected extra argument"):
        # People give a graph or a file as an argument where the command has an option for it.
        options = {name for parameter in ctx.command.params for name in parameter.opts}
        message += next((f"; {hint}" for option, hint in _GIVEN_WITH.items() if option in options), "")
    if json:
        print_error(params.UsageError(message))
    print(f"Error: {message}", file=sys.stderr)
    if ctx is not None:
        print(f"{ctx.get_usage()}\nTry '{ctx.command_path} --help'.", file=sys.stderr)
    return error.exit_code


if __name__ == "__main__":
    main()
