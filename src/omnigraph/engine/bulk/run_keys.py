"""Names of runs: made up for one that has none, and found again in the history of a branch."""

from __future__ import annotations

from omnigraph.engine.write.publish import WriteTxn
from omnigraph.storage.identifiers import new_ulid
from omnigraph.storage.models import IDEMPOTENCY_WINDOW, LogEntry


def new_run_id() -> str:
    """Unique, and later ones sort behind earlier ones."""
    return new_ulid()


def last_number(txn: WriteTxn, prefix: str) -> int | None:
    """The highest number that a run key with this prefix ended in, however many commits came after it.

    Every log entry remembers the last keys of its branch. When those name none with the prefix, the oldest of them
    leads to an entry that remembers older ones. Numbers are committed in order, so the first one found decides.
    """
    entry = txn.base
    while True:
        for record in reversed(entry.recent_keys):
            if record.key.startswith(prefix):
                return int(record.key.removeprefix(prefix))
        if len(entry.recent_keys) < IDEMPOTENCY_WINDOW:
            return None
        place = txn.ref.locate(entry.recent_keys[0].version)
        older = txn.root.log.entry(place.branch_id, place.version)
        if not isinstance(older, LogEntry) or older.commit.id == entry.commit.id:
            return None
        entry = older
