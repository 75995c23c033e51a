"""The keys of requests that created and deleted branches, kept with the lives of their names.

The ref of a life names the key that made it, its tombstone the key that ended it, and each later life carries the
recent ones before it. So whoever has the newest life of a name has them all, and a repeat finds what its first try did
even if others have deleted the branch or made it again since.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from omnigraph.errors import IdempotencyKeyReusedError
from omnigraph.storage.log.branch_lives import Life, Lives
from omnigraph.storage.log.log import GraphLog
from omnigraph.storage.models import IDEMPOTENCY_WINDOW, BranchRef, KeyUse, Tombstone


class BranchKeys:
    """What keys did to the names of one graph."""

    def __init__(self, lives: Lives, log: GraphLog) -> None:
        self._lives = lives
        self._log = log

    def of(self, lives: Sequence[Life]) -> tuple[KeyUse, ...]:
        """The recent keys of a name, oldest first, given all its lives. Of a branch that nobody deletes this costs
        nothing beyond its ref; of one that is gone, a look at the end of its log."""
        life, ref = self._newest_written(lives)
        if life is None or ref is None:
            return ()
        end = self._end(life, ref)
        # A claim that lost its name to another branch made nothing, and its key may still do so.
        has_lived = end is not None or (life.may_live and self._lives.settle(ref))
        uses = (*ref.earlier_keys, ref.key if has_lived else None, None if end is None else end.key)
        return tuple(use for use in uses if use is not None)[-IDEMPOTENCY_WINDOW:]

    def earlier_use(self, lives: Sequence[Life], wanted: KeyUse | None) -> KeyUse | None:
        """What the same request did to a name before, given all its lives."""
        use = None if wanted is None else earlier_use(self.of(lives), wanted)
        if use is not None:
            self.confirm(lives)
        return use

    def confirm(self, lives: Sequence[Life]) -> None:
        """Make sure that what the keys of a name were read from is durable, before a repeat is told of it."""
        life, ref = self._newest_written(lives)
        if life is None or ref is None:
            return
        self._lives.make_durable(life)
        if (end := self._end(life, ref)) is not None:
            self._log.confirm(end.branch_id, end.version)

    def _newest_written(self, lives: Sequence[Life]) -> tuple[Life | None, BranchRef | None]:
        """A path has no content, so it carries no keys; the life before it does."""
        life = next((life for life in reversed(lives) if not life.empty), None)
        return life, None if life is None else self._lives.read(life.name, life.number)

    def _end(self, life: Life, ref: BranchRef) -> Tombstone | None:
        newest = self._log.newest(ref) if life.deleting else None
        return newest if isinstance(newest, Tombstone) else None


def earlier_use(keys: Iterable[KeyUse | None], wanted: KeyUse | None) -> KeyUse | None:
    """What the same request did before. IdempotencyKeyReusedError when its key was used for another one."""
    if wanted is None:
        return None
    use = next((use for use in keys if use is not None and use.key == wanted.key), None)
    if use is not None and use.request != wanted.request:
        raise IdempotencyKeyReusedError(wanted.key)
    return use
