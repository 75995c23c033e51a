"""A state that a write builds on without having written it: the source of a merge, the fork point of a branch.

Its table versions go into an entry of another branch, so they must not be deleted before that entry stands. What a
named branch has had as its own history is kept while it lives and for the grace period after its deletion. Main's
past is not, so a place on main is pinned first and looked at afterwards (docs/dev/protocol.md).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from omnigraph.engine.history import log_walk
from omnigraph.storage.identifiers import MAIN
from omnigraph.storage.log.write_age import WriteAge
from omnigraph.storage.models import BranchRef, LogEntry
from omnigraph.storage.root import GraphRoot


@dataclass(frozen=True, slots=True)
class HeldSource:
    """A commit on the line of a live branch. No cleanup takes its data while the block that holds it runs."""

    ref: BranchRef
    entry: LogEntry
    age: WriteAge = field(default_factory=WriteAge.beginning_now, compare=False)


@contextlib.contextmanager
def held_source(root: GraphRoot, source: str) -> Iterator[HeldSource]:
    """The head of a branch, or a commit that a live branch has, held for the time of the block."""
    source = source.strip()
    if source == MAIN:
        known = root.log.last_known(root.identity.main) or root.branches.head(MAIN).entry
        with root.pins.hold(known.version):
            head = root.branches.head(MAIN)
            yield HeldSource(head.ref, head.entry)
    elif not log_walk.could_be_commit(source):
        head = root.branches.head(source)
        yield HeldSource(head.ref, head.entry)
    else:
        located = log_walk.find(root, source)
        entry = located.entry
        if entry.branch_id != root.identity.main.branch_id:
            yield HeldSource(located.ref, entry)
        else:
            with root.pins.hold(entry.version, entry.version):
                root.reclaims.refuse(entry)
                yield HeldSource(located.ref, entry)
