"""Branches: what is asked for and what is told."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct, field


class BranchCreateRequest(Struct, frozen=True, omit_defaults=True):
    """`source` is a branch, or any commit that is still kept."""

    name: str
    source: str | None = field(default=None, name="from")


class BranchCreated(Struct, frozen=True, omit_defaults=True):
    """`replayed` says that an earlier request with the same idempotency key made it, and this one nothing."""

    uri: str
    source: str = field(name="from")
    name: str
    actor_id: str | None
    replayed: bool = False

    WIRE_NAME: ClassVar[str] = "BranchCreateOutput"


class BranchList(Struct, frozen=True):
    """Sorted by name; main stands where its name does."""

    branches: tuple[str, ...]

    WIRE_NAME: ClassVar[str] = "BranchListOutput"


class BranchDeleted(Struct, frozen=True, omit_defaults=True):
    """`replayed` says that an earlier request with the same idempotency key deleted it, and this one nothing."""

    uri: str
    name: str
    actor_id: str | None
    replayed: bool = False

    WIRE_NAME: ClassVar[str] = "BranchDeleteOutput"
