"""Values of options and arguments, made from their texts without pydantic.

Typer builds a pydantic validator per parameter, which takes longer than a whole `omnigraph --help` may. The types that
our commands declare need no more than this module; a parameter of any other type keeps Typer's way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

import typer
from typer._coercion import RuntimeParam


@dataclass(frozen=True)
class PlainValue(RuntimeParam):
    """Turns the texts of one parameter into its type, which is that of its items when it may be repeated."""

    read: Callable[[str], Any]

    def _coerce_value(self, value: Any, param: Any, ctx: Any) -> Any:
        try:
            if param.multiple or param.nargs == -1:
                return [self._one(each) for each in value]
            return self._one(value)
        except ValueError as error:
            raise typer.BadParameter(str(error), ctx=ctx, param=param) from None

    def _one(self, value: Any) -> Any:
        # A default is of the type already.
        return self.read(value) if type(value) is str else value


def read_plainly(parameters: list[Any]) -> list[Any]:
    """The same parameters, every one of a known type with its reader."""
    for parameter in parameters:
        if parameter._runtime_param is not None:
            continue
        described = parameter.type_descriptor
        item = get_args(described.annotation)[0] if get_origin(described.annotation) is list else described.annotation
        reader = _reader(item, described.parameter_info)
        if reader is not None:
            parameter._runtime_param = PlainValue(described.parameter_info, described.annotation, reader)
    return parameters


def _reader(kind: Any, declared: Any) -> Callable[[str], Any] | None:
    if kind in (str, Path, bool):  # a flag has no text
        return kind  # type: ignore[no-any-return]
    if kind in (int, float):
        return lambda text: _within(_number(kind, text), declared.min, declared.max)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return lambda text: _choice(kind, text)
    return None


def _number(kind: type[int] | type[float], text: str) -> int | float:
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a {'whole ' if kind is int else ''}number.") from None


def _within(number: int | float, least: float | None, most: float | None) -> int | float:
    # Written so that a value that compares with nothing (nan) is out of every range.
    if least is not None and not number >= least:
        raise ValueError(f"{number} is less than {least:g}.")
    if most is not None and not number <= most:
        raise ValueError(f"{number} is more than {most:g}.")
    return number


def _choice(kind: type[Enum], text: str) -> Enum:
    try:
        return kind(text)
    except ValueError:
        offered = ", ".join(repr(str(member.value)) for member in kind)
        raise ValueError(f"{text!r} is not one of {offered}.") from None
