"""How a failure is told: one `Error:` line with its notes on stderr; a stack trace only with `--debug`."""

from __future__ import annotations

import sys
import traceback

from omnigraph.cli.usage import UsageError
from omnigraph.errors import OmniGraphError

WRONG_USAGE = 2
_debugging = False


def show_traces(wanted: bool) -> None:
    """Whether failures are told with where they come from."""
    global _debugging
    _debugging = wanted


def tell(error: BaseException) -> int:
    """Say what went wrong; the answer is the exit code for it."""
    if _debugging:
        traceback.print_exception(error)
    if isinstance(error, OmniGraphError | UsageError):
        told = str(error).removeprefix("ERROR ")  # as a finding of a cluster begins
        print("\n".join([f"Error: {told}", *getattr(error, "__notes__", ())]), file=sys.stderr)
        return error.exit_code if isinstance(error, OmniGraphError) else WRONG_USAGE
    hint = "" if _debugging else "; --debug shows where"
    print(f"Error: {described(error)}{hint}", file=sys.stderr)
    return 1


def described(error: BaseException) -> str:
    """An exception that nobody expected, as a sentence."""
    named = f"{type(error).__name__}: {error}".removesuffix(": ")
    return f"this is a fault of omnigraph or its surroundings: {named}"
