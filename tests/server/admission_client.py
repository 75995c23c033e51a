"""A process that asks for admission: by command over a pipe, or as often and as fast as it can."""

from __future__ import annotations

from contextlib import AbstractContextManager
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import Synchronized
from typing import Any

from omnigraph.errors import TooManyRequestsError
from omnigraph.server.admission import Admission
from omnigraph.server.board import Board


def obey(board: Board, number: int, cap: int, pipe: Connection) -> None:
    """`enter` and `leave`, answered with whether it was let in."""
    admission = Admission(board, number, cap, 1 << 40)
    held: list[AbstractContextManager[None]] = []
    while (command := pipe.recv()) != "end":
        if command == "leave":
            held.pop().__exit__(None, None, None)
            pipe.send(True)
            continue
        entered = admission.admitted("ada", 1)
        try:
            entered.__enter__()
        except TooManyRequestsError:
            pipe.send(False)
        else:
            held.append(entered)
            pipe.send(True)


def hammer(board: Board, number: int, cap: int, times: int, inside: Synchronized[Any], most: Any) -> None:
    """Go in and out so many times; a witness counts who is inside at the same moment."""
    admission = Admission(board, number, cap, 1 << 40)
    while times:
        try:
            with admission.admitted("ada", 1):
                with inside.get_lock():
                    inside.value += 1
                    most.value = max(most.value, inside.value)
                with inside.get_lock():
                    inside.value -= 1
                times -= 1
        except TooManyRequestsError:
            continue
