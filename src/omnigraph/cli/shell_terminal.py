"""Where the statements of a session come from: a person at a terminal, or a pipe.

A person has a prompt, a history and completion, and no mistake ends the session. A pipe has none of these, is quiet
about everything but results and errors, and ends with exit code 1 when a statement failed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import perf_counter

from omnigraph.cli.config import operator_directory
from omnigraph.cli.printing.output import report_failure
from omnigraph.cli.shell_session import Leaving, Session, Statement, statements

_REMEMBERED_LINES = 2000
# What ends a word: everything but what names, variables, properties and commands are made of.
_DELIMITERS = " \t\n{}()[],;=<>\"'"


def converse(session: Session, greeting: str) -> int:
    """Talk with a person until they leave."""
    statement = Statement()
    with _line_editing(session, statement):
        print(greeting)
        while True:
            try:
                line = input(session.prompt if statement.is_empty else "…> ".rjust(len(session.prompt)))
                if (whole := statement.take(line)) is not None:
                    _answer(session, whole)
            except KeyboardInterrupt:
                print()
                statement.rest()
            except (EOFError, Leaving):
                return 0


def _answer(session: Session, statement: str) -> None:
    began = perf_counter()
    try:
        session.run(statement)
    except KeyboardInterrupt:
        print("\ncancelled", file=sys.stderr)
        return
    except Leaving:
        raise
    except Exception as error:
        report_failure(error)
        return
    if (seconds := perf_counter() - began) >= 1:
        print(f"{seconds:.1f} s", file=sys.stderr)


def run_piped(session: Session) -> int:
    """Run what stdin holds. A statement that fails does not keep the next ones from running, but is remembered."""
    code = 0
    with suppress(Leaving):
        for statement in statements(sys.stdin):
            try:
                session.run(statement)
            except (Leaving, BrokenPipeError):
                raise
            except Exception as error:
                code = max(code, report_failure(error))
            sys.stdout.flush()
    return code


@contextmanager
def _line_editing(session: Session, statement: Statement) -> Iterator[None]:
    """History, and Tab, where Python was built with them."""
    try:
        import readline
    except ImportError:
        yield
        return
    history = operator_directory() / "shell_history"
    readline.set_history_length(_REMEMBERED_LINES)
    with suppress(OSError):
        readline.read_history_file(history)
    offered: list[str] = []

    def complete(word: str, number: int) -> str | None:
        if number == 0:
            before = readline.get_line_buffer()[: readline.get_begidx()]
            # Whatever goes wrong here must not spoil what is being typed.
            with suppress(Exception):
                offered[:] = session.names.complete(f"{statement.text}\n{before}".lstrip("\n"), word)
        return offered[number] if number < len(offered) else None

    readline.set_completer(complete)
    readline.set_completer_delims(_DELIMITERS)
    libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if libedit else "tab: complete")
    try:
        yield
    finally:
        readline.set_completer(None)
        try:
            history.parent.mkdir(parents=True, exist_ok=True)
            history.touch(mode=0o600)  # queries may hold what others should not see
            readline.write_history_file(history)
        except OSError as error:
            print(f"warning: the history was not kept in '{history}': {error.strerror}", file=sys.stderr)
