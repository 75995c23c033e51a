"""`omnigraph shell`: a conversation with a graph."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from omnigraph.api.enums import ReadFormat
from omnigraph.cli.invocation import Invocation
from omnigraph.cli.options import Branch, Uri
from omnigraph.cli.output import print_warning
from omnigraph.cli.read_printer import ReadPrinter
from omnigraph.cli.scope import ServerScope
from omnigraph.errors import PolicyError


def shell(
    ctx: typer.Context,
    uri: Uri = None,
    branch: Branch = "main",
    queries: Annotated[
        list[Path] | None,
        typer.Option("--query", help="A .gq file whose queries can be called; may be repeated.", metavar="FILE"),
    ] = None,
    format: Annotated[ReadFormat | None, typer.Option("--format", help="How rows are shown.  [default: table]")] = None,
) -> None:
    """Query and change a graph in a conversation: history, completion, `:help`.

    Mutations are commits on the current branch. Statements may also be piped in; then the exit code is 1 if one failed.
    """
    from omnigraph.cli.shell.session import Session
    from omnigraph.cli.shell.terminal import converse, is_interactive, run_piped

    invocation = Invocation.of(ctx)
    target, graph = invocation.open(uri)
    with graph:
        printer = ReadPrinter.chosen(format, invocation.config.defaults)
        session = Session(graph, printer, invocation.actor_of(target), branch.strip())
        graph.version_of(session.branch)  # a branch that is not there is better known before the first question
        if isinstance(target, ServerScope):
            try:
                session.take_stored_queries()
            except PolicyError as error:
                print_warning(f"the stored queries can't be listed: {error}")
        for file in queries or ():
            session.take_queries(file)
        if is_interactive():
            code = converse(session, f"omnigraph shell → {target.uri} ({target.access}); :help, or Ctrl-D to leave")
        else:
            code = run_piped(session)
    raise typer.Exit(code)
