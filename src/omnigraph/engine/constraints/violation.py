"""What the rules of the constraint stage find: the entity to blame, if one is, and the sentence that says why.

Loads and mutations raise the first finding with its place in their input; merges report all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from omnigraph.engine.change import TypeChange
from omnigraph.errors import BadRequestError


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule broken by the final image. `row` is set when a row of `change` breaks it."""

    change: TypeChange
    reason: str
    entity_id: str | None = None
    row: int | None = None

    def error(self) -> BadRequestError:
        where = "" if self.row is None else self.change.where(self.row)
        return BadRequestError(f"{where}{self.reason}")


def refuse(found: Iterator[Violation]) -> None:
    """Raise the first of them, and look no further."""
    for violation in found:
        raise violation.error()
