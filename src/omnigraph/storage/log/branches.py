"""Branches: which names exist, which generation of a name is current, and which commit is its head.

The engine calls `Branches` for every read and write. A generation (`storage.log.ref_generations`) ends with a tombstone
in the branch's log, which is the moment of deletion: writers in flight lose their slot to it. Nothing is ever removed
here, so a stalled deleter can't hurt a later generation of the name.
"""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Self

import msgspec

from omnigraph import errors
from omnigraph.storage import models
from omnigraph.storage.cache import RecentlyUsed
from omnigraph.storage.identifiers import MAIN, checked_branch_name, new_ulid, now_micros, path_ancestors
from omnigraph.storage.location import Location
from omnigraph.storage.log.log import GraphLog
from omnigraph.storage.log.ref_generations import (
    REMEMBERED_BRANCHES,
    BranchKeys,
    RefGeneration,
    RefGenerations,
    earlier_use,
)
from omnigraph.storage.log.tracing import Trace
from omnigraph.storage.log.write_guard import WriteAge, WriteGuard
from omnigraph.storage.log.writer_queue import WriterQueue
from omnigraph.storage.objects import Objects

IDENTITY = "__manifest/graph.json"
_ATTEMPTS = 16
_WORKERS = 16


@dataclass(frozen=True, slots=True)
class BranchHead:
    ref: models.BranchRef
    entry: models.LogEntry


class Branches:
    """The branches of one graph. main's ref comes from the identity object, because every graph has main."""

    def __init__(
        self, objects: Objects, log: GraphLog, identity: models.GraphIdentity, trace: Trace, guard: WriteGuard
    ) -> None:
        self._log = log
        self._guard = guard
        self._main = identity.main
        self._graph_id = identity.graph_id
        self._trace = trace
        self._generations = RefGenerations(objects)
        self._keys = BranchKeys(self._generations, log)
        self._refs: RecentlyUsed[str, models.BranchRef] = RecentlyUsed(REMEMBERED_BRANCHES)

    # Reading

    def head(self, branch: str) -> BranchHead:
        """The current generation of a name and its newest entry. Warm: one request."""
        if branch == MAIN:
            return BranchHead(self._main, self._log.head(self._main))
        ref = self._refs.get(branch)
        if ref is None:
            try:
                checked_branch_name(branch)
            except errors.BadRequestError as error:
                raise errors.BranchNotFoundError(branch, str(error)) from None
            ref = self._generations.read(branch, 1)
        if ref is not None and (entry := self._live_head(ref)) is not None:
            return BranchHead(ref, entry)
        generation = self._generations.newest(branch)
        ref = self._generations.ref(generation) if generation is not None and generation.may_live else None
        if ref is None or (entry := self._live_head(ref)) is None:
            if generation is not None:
                self._refuse_damaged(generation)
            raise errors.BranchNotFoundError(branch, "create it, or list the branches that exist")
        return BranchHead(ref, entry)

    def last_of_deleted(self, branch: str) -> BranchHead | None:
        """The last commit of a deleted branch whose name nobody took since; its log is still there."""
        ref = self._generations.ref(next(reversed(self._generations_of(branch)), None))
        newest = None if ref is None else self._log.newest(ref)
        if ref is None or not isinstance(newest, models.Tombstone):
            return None
        last = self._log.entry(ref.branch_id, newest.version - 1)
        return BranchHead(ref, last) if isinstance(last, models.LogEntry) else None

    def names(self) -> list[str]:
        """Sorted. One listing; only an interrupted deletion costs a look into its log."""
        return sorted([MAIN, *(generation.name for generation in self._live(self._generations.list_all()))])

    def all(self) -> list[models.BranchRef]:
        """The ref of every live branch, main first. A ref that lost its content is an error: the caller decides by
        this list which data nobody needs."""
        listing = self._generations.list_all()
        for _, damage in self._generations.find_damage(listing):
            raise damage
        refs = map(self._generations.ref, self._live(listing))
        return [self._main, *(ref for ref in refs if ref is not None)]

    def deleted_since(self, moment: datetime) -> list[models.BranchRef]:
        """The generations that ended after a moment, and those whose end nobody has noted yet."""
        recent = (g for g in self._list_deletions() if g.deleted_at is None or g.deleted_at >= moment)
        return [ref for ref in map(self._generations.ref, recent) if ref is not None]

    def note_deletions(self) -> None:
        """Finish deletions that died between the tombstone and the note of it, so that they have an age."""
        for generation in self._list_deletions():
            if generation.deleted_at is None and not self._is_live_branch(generation):
                self._generations.mark(generation.name, generation.number, "deleted")

    def _list_deletions(self) -> list[RefGeneration]:
        listed = self._generations.list_all().values()
        return [generation for generations in listed for generation in generations if generation.deleting]

    def damage(self) -> list[tuple[str, errors.IntegrityError]]:
        """Names whose ref lost its content, each with the error that says so."""
        return self._generations.find_damage(self._generations.list_all())

    def _refuse_damaged(self, generation: RefGeneration) -> None:
        """Refuse a generation that lost its content: taking its name again would hide the damage from everybody."""
        if generation.blank:
            for damage in (error for name, error in self.damage() if name == generation.name):
                raise damage

    def _live(self, listing: dict[str, list[RefGeneration]]) -> list[RefGeneration]:
        newest = (generations[-1] for _, generations in sorted(listing.items()))
        return [g for g in newest if self._is_live_branch(g) and not self._generations.is_overridden(g, listing)]

    # Creating

    def new_ref(
        self,
        name: str,
        source: models.BranchRef,
        at: models.LogEntry,
        *,
        actor: str | None = None,
        key: models.KeyUse | None = None,
    ) -> models.BranchRef:
        """The ref of a branch that does not exist yet. Its log may be written before anybody can find it."""
        name = checked_branch_name(name)
        if name == MAIN:
            raise errors.BadRequestError("branch 'main' exists in every graph and can't be created")
        return models.BranchRef(
            format=models.FORMAT_VERSION,
            branch=name,
            branch_id=new_ulid(),
            created_at=now_micros(),
            parent_branch_id=source.branch_id,
            lineage=source.lineage_up_to(at.version),
            created_by=actor,
            key=key,
        )

    def establish(self, ref: models.BranchRef, age: WriteAge) -> models.BranchRef | models.KeyUse:
        """Make the branch of a new ref exist, with the log it has already. ConflictError if the name is taken. When its
        key has made a branch of this name before, nothing is made and that use of the key is returned. `age` is that of
        the write that holds the fork point."""
        self._guard.check()
        paths = [path for path in path_ancestors(ref.branch) if path != MAIN]
        ref = msgspec.structs.replace(ref, beneath={path: self._hold_path(path, ref.branch) for path in paths})
        if ref.fork is not None:
            self._log.confirm(ref.fork.branch_id, ref.fork.version)
        self._trace.reach("branch.create.before")
        age.refuse_overdue()
        try:
            claimed = self._claim(ref)
        except errors.StorageError as error:
            if error.may_have_happened:
                raise errors.CommitOutcomeUnknownError(f"creation of {ref.branch}", str(error)) from error
            raise
        if isinstance(claimed, models.KeyUse):
            return claimed
        ref = claimed
        self._trace.reach("branch.create.claimed")
        if not self._generations.resolve_claims(ref):
            raise errors.ConflictError(
                f"branch '{ref.branch}' can't be created: a part of its path became a branch meanwhile"
            )
        self._trace.reach("branch.create.after")
        self._refs[ref.branch] = ref
        return ref

    def _claim(self, ref: models.BranchRef) -> models.BranchRef | models.KeyUse:
        number, contested = 1, False
        for _ in range(_ATTEMPTS):
            if self._generations.create(ref.branch, number, models.encode(ref)):
                if contested:
                    self._confirm(RefGeneration(ref.branch, number, empty=False, contested=True))
                return ref
            generations = self._generations.of(ref.branch)
            if not generations:
                continue
            generation = generations[-1]
            self._refuse_damaged(generation)
            stored = None if generation.empty else self._generations.read(ref.branch, generation.number)
            if stored is not None and stored.branch_id == ref.branch_id:
                if generation.contested:
                    self._confirm(generation)
                return stored  # our own create, whose response was lost
            if generation.is_pending:
                if stored is not None and earlier_use((stored.key,), ref.key) is not None:
                    self._confirm(generation)
                else:
                    self._generations.void(generation)
                continue
            is_current = self._is_current(generation)
            # Keys are read afterwards: a branch that is gone stays so, and the key that ended it is then among them.
            if (earlier := self._keys.earlier_use(generations, ref.key)) is not None:
                return earlier
            if is_current:
                raise errors.ConflictError(f"branch '{ref.branch}' exists already")
            if generation.is_path:
                self._refuse_beneath(ref.branch)
            number, contested = generation.number + 1, generation.is_path
            ref = msgspec.structs.replace(ref, earlier_keys=self._keys.of(generations))
        raise errors.ConflictError(f"branch '{ref.branch}' is being created and deleted by others; try again")

    def _confirm(self, generation: RefGeneration) -> None:
        """The second step of taking a name that was a path. See `storage.log.ref_generations`."""
        self._trace.reach("branch.claim.after")
        try:
            self._refuse_beneath(generation.name)
        except errors.ConflictError:
            self._generations.void(generation)
            raise
        if not self._generations.confirm(generation):
            raise errors.ConflictError(
                f"branch '{generation.name}' can't be created: a branch beneath its path was created first"
            )

    def _refuse_beneath(self, path: str) -> None:
        if beneath := [name for name in self.names() if name.startswith(f"{path}/")]:
            raise errors.ConflictError(f"branch '{path}' can't be created: '{beneath[0]}' lies beneath its path")

    def _hold_path(self, path: str, for_branch: str) -> int:
        """Hold a name with a generation that is not a branch, so that creating one there meets the branches beneath."""
        number = 1
        for _ in range(_ATTEMPTS):
            if self._generations.create(path, number):
                return number
            generation = self._generations.newest(path)
            if generation is None:
                continue
            self._refuse_damaged(generation)
            if generation.is_path:
                return generation.number
            if generation.is_pending:
                self._generations.void(generation)
            elif self._is_current(generation):
                raise errors.ConflictError(f"branch '{for_branch}' can't be created beneath the live branch '{path}'")
            else:
                number = generation.number + 1
        raise errors.ConflictError(f"branch '{path}' is being created and deleted by others; try again")

    # Deleting

    def delete(self, name: str, *, actor: str | None = None, key: models.KeyUse | None = None) -> models.KeyUse | None:
        """End this generation of the name. Its commits stop resolving; the log stays. When the key has ended a
        generation of this name before, nothing is done and that use of the key is returned."""
        name = name.strip()
        if name == MAIN:
            raise errors.BadRequestError("branch 'main' can't be deleted")
        try:
            return self._delete(name, actor, key)
        except errors.BranchNotFoundError:
            if (earlier := self.earlier_use(name, key)) is None:
                raise
            return earlier

    def earlier_use(self, name: str, key: models.KeyUse | None) -> models.KeyUse | None:
        """The earlier use of this key on a name, if there is one: for a request that can't be carried out now."""
        return None if key is None else self._keys.earlier_use(self._generations_of(name), key)

    def _generations_of(self, name: str) -> list[RefGeneration]:
        """All generations of a name; none for a name that no branch can have."""
        try:
            return self._generations.of(checked_branch_name(name))
        except errors.BadRequestError:
            return []

    def _delete(self, name: str, actor: str | None, key: models.KeyUse | None) -> models.KeyUse | None:
        ref = self.head(name).ref
        if (earlier := earlier_use((*ref.earlier_keys, ref.key), key)) is not None:
            # This generation began after the one that the request was for.
            self._keys.confirm(self._generations.of(name))
            return earlier
        for other in self.all():
            if other.branch.startswith(f"{name}/"):
                raise errors.ConflictError(f"branch '{name}' can't be deleted: '{other.branch}' lies beneath its path")
            if other.branch_id != ref.branch_id and ref.branch_id in {p.branch_id for p in other.lineage} | {
                other.parent_branch_id
            }:
                raise errors.ConflictError(
                    f"branch '{name}' can't be deleted: branch '{other.branch}' still depends on it"
                )
        generation = self._generations.newest(name)
        stored = self._generations.ref(generation)
        if generation is None or stored is None or stored.branch_id != ref.branch_id:
            raise errors.BranchNotFoundError(ref.branch, "it was deleted meanwhile")
        self._generations.mark(name, generation.number, "deleting")
        self._trace.reach("branch.tombstone.before")
        self._publish_tombstone(ref, actor, key)
        self._trace.reach("branch.tombstone.after")
        with contextlib.suppress(errors.StorageError):  # the branch is deleted with the mark or without it
            self._generations.mark(name, generation.number, "deleted")
        self._trace.reach("branch.delete.after")
        self._refs.pop(name)
        return None

    def _publish_tombstone(self, ref: models.BranchRef, actor: str | None, key: models.KeyUse | None) -> None:
        for _ in range(_ATTEMPTS):
            newest = self._log.newest(ref)
            if isinstance(newest, models.Tombstone):
                raise errors.BranchNotFoundError(ref.branch, "it was deleted meanwhile")
            tombstone = models.Tombstone(
                format=models.FORMAT_VERSION,
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
        raise errors.ConflictError(f"branch '{ref.branch}' is being written to; nothing was deleted, try again")

    # Generations

    def _live_head(self, ref: models.BranchRef) -> models.LogEntry | None:
        newest = self._log.newest(ref)
        if isinstance(newest, models.Tombstone) or not self._generations.resolve_claims(ref):
            self._refs.pop(ref.branch)
            return None
        self._refs[ref.branch] = ref
        return newest

    def _is_live_branch(self, generation: RefGeneration) -> bool:
        if not generation.may_live or not generation.deleting:
            return generation.may_live
        ref = self._generations.ref(generation)
        return ref is not None and not isinstance(self._log.newest(ref), models.Tombstone)

    def _is_current(self, generation: RefGeneration) -> bool:
        """As `_is_live_branch`, for a generation that was not listed together with those of its path."""
        ref = self._generations.ref(generation) if self._is_live_branch(generation) else None
        return ref is not None and self._generations.resolve_claims(ref)


class LogRoot:
    """The log and the branches of one graph, without its tables: listing branches loads no Lance."""

    def __init__(self, objects: Objects, identity: models.GraphIdentity, trace: Trace) -> None:
        self.objects = objects
        self.identity = identity
        self.trace = trace
        self.workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="omnigraph")
        self.writer_queue = WriterQueue(objects, self.workers)
        self.guard = WriteGuard(objects, self.workers)
        self.log = GraphLog(objects, self.workers, self.writer_queue, self.guard)
        self.branches = Branches(objects, self.log, identity, trace, self.guard)

    @classmethod
    def open(cls, location: Location, trace: Trace | None = None) -> Self:
        """The graph at a location. Raises `NotFoundError` where there is none."""
        objects = Objects(location)
        data = objects.get(IDENTITY)
        if data is None:
            raise errors.NotFoundError(f"there is no graph at '{location.uri}'; create one with init")
        return cls(objects, models.decode(IDENTITY, data, models.GraphIdentity), trace or Trace())

    def close(self) -> None:
        self.workers.shutdown(wait=True)
