"""What `query` and `mutate` run: the source text, the name in it, and the parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omnigraph.cli.files import read_source
from omnigraph.cli.json_input import json_object
from omnigraph.cli.usage import at_most_one
from omnigraph.errors import BadRequestError


def query_source(name: str | None, file: Path | None, text: str | None, *, kind: str) -> str:
    """The ad-hoc source. Without one, a name means a stored query, which only a server has."""
    at_most_one(("--query", file), ("--query-string", text))
    if text is not None:
        if not text.strip():
            raise BadRequestError("--query-string must not be empty")
        return text
    if file is not None:
        return read_source(file)
    if name is None:
        raise BadRequestError(f"provide a {kind} name, or the {kind} itself with --query <file> or -e '<gq>'")
    raise BadRequestError(
        f"by-name invocation needs a server: '{name}' would be a stored {kind}; "
        "on storage, give the source with --query <file> or -e '<gq>'"
    )


def parameters(text: str | None, file: Path | None) -> dict[str, Any]:
    at_most_one(("--params", text), ("--params-file", file))
    if file is not None:
        text = read_source(file)
    if text is None:
        return {}
    return json_object(text, "--params" if file is None else f"'{file}'", "params must be a JSON object")
