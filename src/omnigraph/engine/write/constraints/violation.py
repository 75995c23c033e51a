"""What the constraint stage finds: the rule, the entity that breaks it where there is one, and the sentence.

Loads and mutations raise the first violation with its place in their input; merges report all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from omnigraph.engine.write.change import TypeChange
from omnigraph.errors import ConstraintError
from omnigraph.language.violations import Sentence


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule broken by the final image. `row` is the row of `change` that breaks it, where one does.

    `absent_node` is the type key and id of the node that an edge ends in and that does not exist. `members` are the
    properties of a rule over several.
    """

    sentence: Sentence
    type_key: str
    reason: str
    property: str | None = None
    entity_id: str | None = None
    change: TypeChange | None = None
    row: int | None = None
    remedy: str = ""
    absent_node: tuple[str, str] | None = None
    members: tuple[str, ...] = ()

    def error(self) -> ConstraintError:
        where, line = "", None
        if self.change is not None and self.row is not None:
            where, line = self.change.where(self.row), self.change.line(self.row)
        message = f"{where}{self.reason}" + (f"; {self.remedy}" if self.remedy else "")
        return ConstraintError(self.sentence.rule, self.type_key, self.property, self.entity_id, line, message=message)


def refuse(found: Iterator[Violation]) -> None:
    """Raise the first violation, and look no further."""
    for violation in found:
        raise violation.error()
