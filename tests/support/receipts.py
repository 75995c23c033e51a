"""Receipts of writes that are repeated."""

from __future__ import annotations

from typing import TypeVar

from msgspec import Struct, structs

Receipt = TypeVar("Receipt", bound=Struct)


def replayed(first: Receipt) -> Receipt:
    """What a repeat of the same request is told: the first receipt, and that it is one of the past."""
    return structs.replace(first, replayed=True)
