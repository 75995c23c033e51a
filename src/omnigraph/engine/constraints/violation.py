"""What the rules of the constraint stage find: the entity to blame, if one is, and the sentence that says why.

Loads and mutations raise the first finding with its place in their input; merges report all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from omnigraph.errors import BadRequestError


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule broken by the final image. `where` is the place in the input, `remedy` what its author can do.

    `absent_node` is the type key and id of the node that an edge ends in and that is not there.
    """

    type_key: str
    reason: str
    entity_id: str | None = None
    where: str = ""
    remedy: str = ""
    absent_node: tuple[str, str] | None = None

    def error(self) -> BadRequestError:
        return BadRequestError(f"{self.where}{self.reason}" + (f"; {self.remedy}" if self.remedy else ""))


def refuse(found: Iterator[Violation]) -> None:
    """Raise the first of them, and look no further."""
    for violation in found:
        raise violation.error()
