"""Branches: which names live, which incarnation each one is, and where its head stands.

A name goes through numbered lives (`storage.log.branch_lives`), and a life ends with a tombstone in the branch's log,
which is the moment of deletion: writers in flight lose their slot to it. Since nothing is ever removed here, a stalled
deleter can't hurt a later life of the name, and an interrupted deletion is complete as soon as the tombstone stands.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from datetime import datetime

import msgspec

from omnigraph.errors import (
    BadRequestError,
    BranchNotFoundError,
    CommitOutcomeUnknownError,
    ConflictError,
    IntegrityError,
    StorageError,
)
from omnigraph.storage.cache import RecentlyUsed
from omnigraph.storage.identifiers import (
    MAIN,
    checked_branch_name,
    new_ulid,
    now_micros,
    path_ancestors,
)
from omnigraph.storage.log.log import GraphLog
from omnigraph.storage.log.ref_generations import (
    REMEMBERED_BRANCHES,
    BranchKeys,
    RefGeneration,
    RefGenerations,
    earlier_use,
)
from omnigraph.storage.log.write_guard import WriteAge, WriteGuard
from omnigraph.storage.models import FORMAT_VERSION, BranchRef, KeyUse, LogEntry, Tombstone, encode
from omnigraph.storage.objects import Objects
from omnigraph.storage.tracing import Trace

_ATTEMPTS = 16


@dataclass(frozen=True, slots=True)
class BranchHead:
    ref: BranchRef
    entry: LogEntry


class Branches:
    """The branches of one graph. main's ref comes from the identity object: a graph without main is no graph."""

    def __init__(
        self, objects: Objects, log: GraphLog, main: BranchRef, graph_id: str, trace: Trace, guard: WriteGuard
    ) -> None:
        self._log = log
        self._guard = guard
        self._main = main
        self._graph_id = graph_id
        self._trace = trace
        self._lives = RefGenerations(objects)
        self._keys = BranchKeys(self._lives, log)
        self._refs: RecentlyUsed[str, BranchRef] = RecentlyUsed(REMEMBERED_BRANCHES)
        self._lock = threading.Lock()

    # Reading

    def head(self, branch: str) -> BranchHead:
        """The live incarnation of a name and its newest entry. Warm: one request."""
        if branch == MAIN:
            return BranchHead(self._main, self._log.head(self._main))
        with self._lock:
            ref = self._refs.get(branch)
        if ref is None:
            try:
                checked_branch_name(branch)
            except BadRequestError as error:
                raise BranchNotFoundError(branch, str(error)) from None
            ref = self._lives.read(branch, 1)
            if ref is None and self._lives.newest(branch) is None:
                raise BranchNotFoundError(branch, "create it, or list the branches that exist")
        if ref is not None and (entry := self._live_head(ref)) is not None:
            return BranchHead(ref, entry)
        life = self._lives.newest(branch)
        ref = self._lives.read(branch, life.number) if life is not None and life.may_live else None
        if ref is None or (entry := self._live_head(ref)) is None:
            if life is not None:
                self._refuse_damaged(life)
            raise BranchNotFoundError(branch, "create it, or list the branches that exist")
        return BranchHead(ref, entry)

    def last_of_deleted(self, branch: str) -> BranchHead | None:
        """The last commit of a branch that was deleted, and whose name nobody took since: logs outlive branches."""
        life = next(reversed(self._lives_of(branch)), None)
        ref = None if life is None or life.is_path else self._lives.read(life.name, life.number)
        newest = None if ref is None else self._log.newest(ref)
        if ref is None or not isinstance(newest, Tombstone):
            return None
        last = self._log.entry(ref.branch_id, newest.version - 1)
        return BranchHead(ref, last) if isinstance(last, LogEntry) else None

    def names(self) -> list[str]:
        """Sorted. One listing; only an interrupted deletion costs a look into its log."""
        return sorted([MAIN, *(life.name for life in self._live(self._lives.listed()))])

    def all(self) -> list[BranchRef]:
        """The ref of every live branch, main first. A ref that lost its content is an error: who asks for all of them
        decides what nobody needs."""
        found = self._lives.listed()
        for _, damage in self._lives.damaged(found):
            raise damage
        refs = [self._lives.read(life.name, life.number) for life in self._live(found)]
        return [self._main, *(ref for ref in refs if ref is not None)]

    def deleted_since(self, moment: datetime) -> list[BranchRef]:
        """The lives that ended after a moment, and those whose end nobody has noted yet."""
        ending = [life for lives in self._lives.listed().values() for life in lives if life.deleting]
        recent = [life for life in ending if life.deleted_at is None or life.deleted_at >= moment]
        refs = [self._lives.read(life.name, life.number) for life in recent]
        return [ref for ref in refs if ref is not None]

    def note_deletions(self) -> None:
        """Finish deletions that died between the tombstone and the note of it, so that they have an age."""
        for lives in self._lives.listed().values():
            for life in lives:
                if life.deleting and life.deleted_at is None and not self._is_live_branch(life):
                    self._lives.mark(life.name, life.number, "deleted")

    def damage(self) -> list[tuple[str, IntegrityError]]:
        """Names whose ref lost its content, each with the error that says so."""
        return self._lives.damaged(self._lives.listed())

    def _refuse_damaged(self, life: RefGeneration) -> None:
        """Refuse a life that lost its content. A name that is taken again, or beneath, would hide the damage for good,
        and cleanup would take what only that ref named."""
        if life.blank:
            for damage in (error for name, error in self.damage() if name == life.name):
                raise damage

    def _live(self, found: dict[str, list[RefGeneration]]) -> list[RefGeneration]:
        newest = (lives[-1] for _, lives in sorted(found.items()))
        return [life for life in newest if self._is_live_branch(life) and not self._lives.overridden(life, found)]

    # Creating

    def new_ref(
        self,
        name: str,
        source: BranchRef,
        at: LogEntry,
        *,
        actor: str | None = None,
        key: KeyUse | None = None,
    ) -> BranchRef:
        """The ref of a branch that does not exist yet. Its log may be written before anybody can find it."""
        name = checked_branch_name(name)
        if name == MAIN:
            raise BadRequestError("branch 'main' exists in every graph and can't be created")
        return BranchRef(
            format=FORMAT_VERSION,
            branch=name,
            branch_id=new_ulid(),
            created_at=now_micros(),
            parent_branch_id=source.branch_id,
            lineage=source.lineage_up_to(at.version),
            created_by=actor,
            key=key,
        )

    def establish(self, ref: BranchRef, held_since: WriteAge) -> BranchRef | KeyUse:
        """Make a drafted branch exist, with whatever its log holds already. ConflictError if the name lives.

        When its key has made a branch of this name before, nothing is made, and that use of the key is told.
        `held_since` is the age of the write that holds the fork point.
        """
        self._guard.check()
        paths = [path for path in path_ancestors(ref.branch) if path != MAIN]
        ref = msgspec.structs.replace(ref, beneath={path: self._hold_path(path, ref.branch) for path in paths})
        if ref.fork is not None:
            self._log.confirm(ref.fork.branch_id, ref.fork.version)
        self._trace.reach("branch.create.before")
        held_since.refuse_overdue()
        try:
            claimed = self._claim(ref)
        except StorageError as error:
            if error.may_have_happened:
                raise CommitOutcomeUnknownError(f"creation of {ref.branch}", str(error)) from error
            raise
        if isinstance(claimed, KeyUse):
            return claimed
        ref = claimed
        self._trace.reach("branch.create.claimed")
        if not self._lives.settle(ref):
            raise ConflictError(f"branch '{ref.branch}' can't be created: a part of its path became a branch meanwhile")
        self._trace.reach("branch.create.after")
        with self._lock:
            self._refs[ref.branch] = ref
        return ref

    def _claim(self, ref: BranchRef) -> BranchRef | KeyUse:
        number, contested = 1, False
        for _ in range(_ATTEMPTS):
            if self._lives.create(ref.branch, number, encode(ref)):
                if contested:
                    self._confirm(RefGeneration(ref.branch, number, empty=False, contested=True))
                return ref
            lives = self._lives.of(ref.branch)
            if not lives:
                continue
            life = lives[-1]
            self._refuse_damaged(life)
            standing = None if life.empty else self._lives.read(ref.branch, life.number)
            if standing is not None and standing.branch_id == ref.branch_id:
                if life.contested:
                    self._confirm(life)
                return standing  # our own create, whose response was lost
            if life.is_pending:
                if standing is not None and earlier_use((standing.key,), ref.key) is not None:
                    self._confirm(life)
                else:
                    self._lives.void(life)
                continue
            lives_on = self._lives_on(life)
            # Keys are read afterwards: a branch that is gone stays so, and the key that ended it is then among them.
            if (earlier := self._keys.earlier_use(lives, ref.key)) is not None:
                return earlier
            if lives_on:
                raise ConflictError(f"branch '{ref.branch}' exists already")
            if life.is_path:
                self._refuse_beneath(ref.branch)
            number, contested = life.number + 1, life.is_path
            ref = msgspec.structs.replace(ref, earlier_keys=self._keys.of(lives))
        raise ConflictError(f"branch '{ref.branch}' is being created and deleted by others; try again")

    def _confirm(self, life: RefGeneration) -> None:
        """The second step of taking a name that was a path. See `storage.log.branch_lives`."""
        self._trace.reach("branch.claim.after")
        try:
            self._refuse_beneath(life.name)
        except ConflictError:
            self._lives.void(life)
            raise
        if not self._lives.confirm(life):
            raise ConflictError(f"branch '{life.name}' can't be created: a branch beneath its path was created first")

    def _refuse_beneath(self, path: str) -> None:
        if beneath := [name for name in self.names() if name.startswith(f"{path}/")]:
            raise ConflictError(f"branch '{path}' can't be created: '{beneath[0]}' lies beneath its path")

    def _hold_path(self, path: str, for_branch: str) -> int:
        """A life of the name `path` that is no branch, so that creating one there meets the branches beneath."""
        number = 1
        for _ in range(_ATTEMPTS):
            if self._lives.hold(path, number):
                return number
            life = self._lives.newest(path)
            if life is None:
                continue
            self._refuse_damaged(life)
            if life.is_path:
                return life.number
            if life.is_pending:
                self._lives.void(life)
            elif self._lives_on(life):
                raise ConflictError(f"branch '{for_branch}' can't be created beneath the live branch '{path}'")
            else:
                number = life.number + 1
        raise ConflictError(f"branch '{path}' is being created and deleted by others; try again")

    # Deleting

    def delete(self, name: str, *, actor: str | None = None, key: KeyUse | None = None) -> KeyUse | None:
        """End this life of the name. Its commits stop resolving; the log stays.

        When the key has ended a life of this name before, nothing is done, and that use of the key is told.
        """
        name = name.strip()
        if name == MAIN:
            raise BadRequestError("branch 'main' can't be deleted")
        try:
            return self._delete(name, actor, key)
        except BranchNotFoundError:
            if (earlier := self.earlier_use(name, key)) is None:
                raise
            return earlier

    def earlier_use(self, name: str, key: KeyUse | None) -> KeyUse | None:
        """What this key did to the lives of a name before, if it did: for a request that can't be carried out now."""
        return None if key is None else self._keys.earlier_use(self._lives_of(name), key)

    def _lives_of(self, name: str) -> list[RefGeneration]:
        """All lives of a name; none of one that no branch can have."""
        try:
            return self._lives.of(checked_branch_name(name))
        except BadRequestError:
            return []

    def _delete(self, name: str, actor: str | None, key: KeyUse | None) -> KeyUse | None:
        ref = self.head(name).ref
        if (earlier := earlier_use((*ref.earlier_keys, ref.key), key)) is not None:
            # This life began after the one that the request was for.
            self._keys.confirm(self._lives.of(name))
            return earlier
        for other in self.all():
            if other.branch.startswith(f"{name}/"):
                raise ConflictError(f"branch '{name}' can't be deleted: '{other.branch}' lies beneath its path")
            if other.branch_id != ref.branch_id and ref.branch_id in {p.branch_id for p in other.lineage} | {
                other.parent_branch_id
            }:
                raise ConflictError(f"branch '{name}' can't be deleted: branch '{other.branch}' still depends on it")
        number = self._number_of(ref)
        self._lives.mark(name, number, "deleting")
        self._trace.reach("branch.tombstone.before")
        self._bury(ref, actor, key)
        self._trace.reach("branch.tombstone.after")
        with contextlib.suppress(StorageError):  # the tombstone stands: the branch is deleted, with the mark or without
            self._lives.mark(name, number, "deleted")
        self._trace.reach("branch.delete.after")
        with self._lock:
            self._refs.pop(name)
        return None

    def _bury(self, ref: BranchRef, actor: str | None, key: KeyUse | None) -> None:
        for _ in range(_ATTEMPTS):
            newest = self._log.newest(ref)
            if isinstance(newest, Tombstone):
                raise BranchNotFoundError(ref.branch, "it was deleted meanwhile")
            tombstone = Tombstone(
                format=FORMAT_VERSION,
                graph_id=self._graph_id,
                branch=ref.branch,
                branch_id=ref.branch_id,
                version=newest.version + 1,
                deleted_at=now_micros(),
                deleted_by=actor,
                key=key,
            )
            if self._log.publish(tombstone) == tombstone:
                return
        raise ConflictError(f"branch '{ref.branch}' is being written to; nothing was deleted, try again")

    # Lives

    def _live_head(self, ref: BranchRef) -> LogEntry | None:
        newest = self._log.newest(ref)
        lives = not isinstance(newest, Tombstone) and self._lives.settle(ref)
        with self._lock:
            if isinstance(newest, Tombstone) or not lives:
                self._refs.pop(ref.branch)
                return None
            self._refs[ref.branch] = ref
        return newest

    def _is_live_branch(self, life: RefGeneration) -> bool:
        if not life.may_live or not life.deleting:
            return life.may_live
        ref = self._lives.read(life.name, life.number)
        return ref is not None and not isinstance(self._log.newest(ref), Tombstone)

    def _lives_on(self, life: RefGeneration) -> bool:
        """As `_is_live_branch`, for a life that was not listed together with those of its path."""
        ref = self._lives.read(life.name, life.number) if self._is_live_branch(life) else None
        return ref is not None and self._lives.settle(ref)

    def _number_of(self, ref: BranchRef) -> int:
        life = self._lives.newest(ref.branch)
        standing = None if life is None or life.is_path else self._lives.read(ref.branch, life.number)
        if life is None or standing is None or standing.branch_id != ref.branch_id:
            raise BranchNotFoundError(ref.branch, "it was deleted meanwhile")
        return life.number
