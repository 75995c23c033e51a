"""Where the process of `omnigraph` begins. From here on Ctrl-C is one line and exit code 130, never a stack trace.

What a command line imports takes longer than a person needs to press the keys, so the signal is looked after before
anything else is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.cli.interrupts import end_at_once

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and leave the process with its exit code."""
    end_at_once()
    from omnigraph.cli.main import main as run

    run(argv)
