"""Exports: what is asked for and which files were written."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from msgspec import Struct

from omnigraph.api.cell_text import counted
from omnigraph.api.enums import Dates


class ByteWriter(Protocol):
    """Anything that takes bytes: an open binary file, a socket, a buffer."""

    def write(self, data: bytes, /) -> object: ...


class ExportRequest(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The body of an export request. A member that is not known is refused, since it might narrow the export."""

    branch: str | None = None
    type_names: tuple[str, ...] | None = None
    snapshot: str | None = None
    version: int | None = None
    at: datetime | None = None
    dates: Dates | None = None


class ExportedFile(Struct, frozen=True):
    """The file that one type was written to."""

    type_key: str
    path: str
    rows: int

    def __repr__(self) -> str:
        return f"<{counted(self.rows, 'row')} of {self.type_key} in {self.path}>"
