"""Blob cells: which one is meant, and what is known of its value without reading it."""

from __future__ import annotations

from typing import ClassVar, Final, Literal, Protocol

from msgspec import Struct, field

from omnigraph.errors import BadRequestError

LONGEST_READ: Final = 4 << 20
"""How many bytes of a value can be asked for at a time."""


class BlobCell(Struct, frozen=True):
    """Which cell: an entity by kind, type and id, and one of its properties."""

    kind: str = field(name="entity")
    type: str
    id: str
    property: str

    WIRE_NAME: ClassVar[str] = "BlobSelector"


class BlobTarget(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a cell was read: what was asked for, and the commit that this meant."""

    branch: str | None = None
    snapshot: str | None = None
    resolved_snapshot: str


class BlobDescription(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A managed value has a size and a tag; an external one is a reference that is never opened."""

    selector: BlobCell
    kind: Literal["managed", "external"]
    size: int | None = None
    etag: str | None = None
    uri: str | None = None
    target: BlobTarget

    def not_downloaded(self) -> BadRequestError:
        """Why the bytes of an external value can't be had."""
        return BadRequestError(
            f"external Blob is not downloaded; URI: {self.uri}; see its reference with blob stat --json"
        )


class BlobValue(Protocol):
    """A blob cell that was found: its description, and its bytes when the graph owns them."""

    @property
    def description(self) -> BlobDescription: ...

    def read(self) -> bytes:
        """The whole value."""
        ...

    def read_range(self, start: int, end: int) -> bytes:
        """The bytes from `start` up to, not including, `end`. At most 4 MiB at a time."""
        ...
