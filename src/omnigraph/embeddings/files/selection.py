"""Which records are meant: by type, and by the values of their fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from omnigraph.embeddings.files.records import Record, rendered
from omnigraph.errors import BadRequestError


class EmbedMode(StrEnum):
    """What happens to the records that are selected."""

    FILL_MISSING = "fill_missing"
    REEMBED_SELECTED = "reembed_selected"
    REEMBED_ALL = "reembed_all"
    CLEAN = "clean"


@dataclass(frozen=True, slots=True)
class Selector:
    """`Type:field=value`, or `field=value` for any type."""

    type: str | None
    field: str
    value: str

    @classmethod
    def of(cls, text: str) -> Selector:
        left, equals, value = text.partition("=")
        if not equals:
            raise BadRequestError(f"selector must be field=value or Type:field=value, not '{text}'")
        type_name, colon, field = left.partition(":")
        if not colon:
            type_name, field = "", left
        if not field.strip():
            raise BadRequestError(f"selector field cannot be empty, as in '{text}'")
        return cls(type_name.strip() or None, field.strip(), value.strip())

    def matches(self, record: Record) -> bool:
        if self.type is not None and self.type != record.type:
            return False
        held = record.data.get(self.field)
        return held is not None and rendered(held) == self.value


@dataclass(frozen=True, slots=True)
class Selection:
    """Types and selectors; any of either is enough, and none of them means every entity."""

    types: Sequence[str] = ()
    selectors: Sequence[Selector] = ()

    def holds(self, record: Record) -> bool:
        if record.type is None or (self.types and record.type not in self.types):
            return False
        return not self.selectors or any(selector.matches(record) for selector in self.selectors)

    def mode(self, *, clean: bool, reembed_all: bool) -> EmbedMode:
        """What the flags come to: choosing records by their values means that they are to be embedded again."""
        if clean:
            return EmbedMode.CLEAN
        if reembed_all:
            return EmbedMode.REEMBED_ALL
        return EmbedMode.REEMBED_SELECTED if self.selectors else EmbedMode.FILL_MISSING
