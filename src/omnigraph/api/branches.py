"""Branches: what is asked for and what is told."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct, field

from omnigraph.errors import BadRequestError


def branch_name(name: object) -> str:
    """A name as a caller gave it, without the white space around it."""
    if not isinstance(name, str):
        raise BadRequestError(f"the name of a branch is a text, not '{type(name).__name__}'")
    return name.strip()


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

    def __repr__(self) -> str:
        return f"<created branch '{self.name}' from '{self.source}'{', replayed' if self.replayed else ''}>"


class BranchList(Struct, frozen=True):
    """Sorted by name; main stands where its name does."""

    branches: tuple[str, ...]

    WIRE_NAME: ClassVar[str] = "BranchListOutput"


class BranchHead(Struct, frozen=True):
    """The newest commit of a branch. `ahead` counts the commits of its line that main does not have, `behind` those of
    main's line that it does not have."""

    name: str
    graph_commit_id: str
    graph_manifest_version: int
    actor_id: str | None
    created_at: int
    ahead: int
    behind: int


class BranchHeads(Struct, frozen=True):
    """What `omnigraph branch list --verbose` prints."""

    branches: tuple[str, ...]
    heads: tuple[BranchHead, ...]


class BranchDeleted(Struct, frozen=True, omit_defaults=True):
    """`replayed` says that an earlier request with the same idempotency key deleted it, and this one nothing."""

    uri: str
    name: str
    actor_id: str | None
    replayed: bool = False

    WIRE_NAME: ClassVar[str] = "BranchDeleteOutput"

    def __repr__(self) -> str:
        return f"<deleted branch '{self.name}'{', replayed' if self.replayed else ''}>"
