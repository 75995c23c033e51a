"""Wrong usage that only shows when arguments are seen together: flags that exclude each other, one that is missing."""

from __future__ import annotations


class UsageError(Exception):
    """The command line makes no sense, whatever the graph holds. Exit code 2."""


def at_most_one(*given: tuple[str, object]) -> None:
    """Refuse more than one of these flags. A flag is given when its value is neither None nor False."""
    named = [name for name, value in given if value is not None and value is not False]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} are mutually exclusive; give one of them")
