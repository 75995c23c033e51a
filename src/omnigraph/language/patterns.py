"""Whether a text is a regular expression that rows can be checked with.

Rows are checked by Arrow, so its dialect (RE2) decides, and nobody else's. Arrow is imported only when a schema has
such a rule: a command that reads a schema without one starts without it.
"""

from __future__ import annotations


def pattern_problem(pattern: str) -> str | None:
    """Why a `@check` pattern can't be used, or None."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except (pa.ArrowInvalid, UnicodeEncodeError) as error:
        return str(error).removeprefix("Invalid regular expression: ")
    return None
