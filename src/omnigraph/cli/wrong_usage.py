"""What the parser says of a command line it can't read, in one line, with a hint where the mistake is a common one."""

from __future__ import annotations

from typing import Any, Final

_GIVEN_WITH: Final = {
    "--uri": "the graph is given with --store",
    "--data": "data are given with --data",
    "--query": "a file of queries is given with --query",
}


def explained(error: Any) -> str:
    """The message of the parser on one line. What is only kept for old scripts is not suggested."""
    command = getattr(getattr(error, "ctx", None), "command", None)
    parameters = getattr(command, "params", [])
    if getattr(error, "possibilities", None):
        hidden = {name for each in parameters if getattr(each, "hidden", False) for name in each.opts}
        error.possibilities = [name for name in error.possibilities if name not in hidden]
    told = getattr(error, "format_message", None)
    message = " ".join(str(told() if told is not None else error).split())
    return message + (_where_it_goes(parameters) if message.startswith("Got unexpected extra argument") else "")


def _where_it_goes(parameters: list[Any]) -> str:
    """People give a graph or a file as an argument where the command has an option for it."""
    options = {name for each in parameters for name in each.opts}
    return next((f"; {hint}" for option, hint in _GIVEN_WITH.items() if option in options), "")
