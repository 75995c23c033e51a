"""The flags of `omnigraph serve` that are limits: one per field of `ServerLimits`, made when the command is used.

Making them loads the contract, so every other command goes without. A limit that no flag gives comes from its
environment variable if it has one; a variable that is not a number is reported and the default stands.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import sys
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.main import get_command

from omnigraph.cli.params import UsageError
from omnigraph.cli.values import read_plainly

if TYPE_CHECKING:
    from omnigraph.server.settings import ServerLimits

KEY = "omnigraph.limits"
"""Where a command finds what was given, in `ctx.meta`."""


class LimitFlags:
    """The flags, and how the help shows them."""

    @cached_property
    def parameters(self) -> list[Any]:
        """What the parser takes, one per limit."""
        from omnigraph.server.settings import ServerLimits

        def takes_limits() -> None: ...

        annotations = {field.name: _annotation(field) for field in dataclasses.fields(ServerLimits)}
        keyword = inspect.Parameter.KEYWORD_ONLY
        made = [inspect.Parameter(name, keyword, default=None, annotation=a) for name, a in annotations.items()]
        takes_limits.__signature__ = inspect.Signature(made)  # type: ignore[attr-defined]
        takes_limits.__annotations__ = annotations
        maker = typer.Typer(add_completion=False)
        maker.command()(takes_limits)
        return read_plainly(list(get_command(maker).params))

    @cached_property
    def groups(self) -> dict[str, list[Any]]:
        """The same, under the headings of the help."""
        from omnigraph.server.settings import LimitGroup, ServerLimits

        group_of = {field.name: field.metadata["group"] for field in dataclasses.fields(ServerLimits)}
        return {group: [p for p in self.parameters if group_of[p.name] is group] for group in LimitGroup}


def _annotation(field: dataclasses.Field[Any]) -> Any:
    kind = int if field.type == "int" else float
    environment = field.metadata["environment"]
    asked = f"; else {environment}" if environment else ""
    default = f"{field.default:g}" if kind is float else field.default
    option = typer.Option(
        f"--{field.name.replace('_', '-')}",
        help=f"{field.metadata['meaning']}  [default: {default}{asked}]",
        metavar="N",
        min=field.metadata["least"],
        max=field.metadata["most"],
    )
    return Annotated[kind | None, option]


def limits_of(given: Mapping[str, Any], environment: Mapping[str, str]) -> ServerLimits:
    """The limits: what flags say, else what the environment says, else the defaults."""
    from omnigraph.server.settings import ServerLimits

    chosen = {name: value for name, value in given.items() if value is not None}
    for name, value in chosen.items():
        if not math.isfinite(value):
            raise UsageError(f"--{name.replace('_', '-')} takes a finite number")
    for field in dataclasses.fields(ServerLimits):
        variable = field.metadata["environment"]
        if field.name in chosen or not variable or not (text := environment.get(variable, "").strip()):
            continue
        if text.isascii() and text.isdigit():
            chosen[field.name] = int(text)
        else:
            print(f"warning: {variable} is not a number; {field.default} is used", file=sys.stderr)
    return ServerLimits(**chosen)
