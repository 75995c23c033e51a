"""Which changes a caller asks for: kinds, types and operations. Shared by diffs, commit changes, feed and baselines.

A scope is a set of conditions, so order and duplicates do not matter, and naming everything is naming nothing. It
selects what is shown; it never changes which commits are walked.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from omnigraph.errors import BadRequestError

KINDS = ("edge", "node")


class Operation(StrEnum):
    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class ChangeScope:
    """An absent dimension (empty) lets everything through. `types` are bare type names."""

    kinds: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    ops: frozenset[Operation] = frozenset()

    @classmethod
    def of(
        cls,
        *,
        kinds: Iterable[str] | None = None,
        types: Iterable[str] | None = None,
        ops: Iterable[str] | None = None,
    ) -> ChangeScope:
        """A scope from what a caller wrote; unknown kinds and operations are refused."""
        chosen_kinds = _known("kind", kinds or (), KINDS)
        chosen_ops = frozenset(Operation(op) for op in _known("operation", ops or (), tuple(Operation)))
        return cls(
            kinds=frozenset() if len(chosen_kinds) == len(KINDS) else chosen_kinds,
            types=frozenset(types or ()),
            ops=frozenset() if len(chosen_ops) == len(Operation) else chosen_ops,
        )

    def selects_type(self, kind: str, name: str) -> bool:
        return (not self.kinds or kind in self.kinds) and (not self.types or name in self.types)

    def selects_op(self, op: Operation) -> bool:
        return not self.ops or op in self.ops

    @property
    def digest(self) -> str:
        """Equal for equal scopes; short enough to be bound into a token."""
        parts = [sorted(self.kinds), sorted(self.types), sorted(self.ops)]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


EVERYTHING = ChangeScope()


def _known(what: str, given: Iterable[str], known: Collection[str]) -> frozenset[str]:
    chosen = frozenset(str(item) for item in given)
    if strangers := sorted(chosen - set(known)):
        raise BadRequestError(f"unknown {what} '{strangers[0]}'; use one of: {', '.join(sorted(known))}")
    return chosen
