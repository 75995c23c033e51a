"""Branches: which names live, which incarnation each one is, and where its head stands.

A name goes through numbered lives, each one immutable object (`refs/<name>/<life>.json`) created if absent and never
rewritten or deleted. A life ends with a tombstone in the branch's log, which is the moment of deletion: writers in
flight lose their slot to it. Since nothing is ever removed here, a stalled deleter can't hurt a later life of the
name, and an interrupted deletion is complete as soon as the tombstone stands.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from datetime import datetime

from omnigraph.errors import BadRequestError, BranchNotFoundError, ConflictError, StorageError
from omnigraph.storage.identifiers import (
    MAIN,
    checked_branch_name,
    new_ulid,
    now_micros,
    path_ancestors,
    quoted_branch,
    unquoted_branch,
)
from omnigraph.storage.log import GraphLog
from omnigraph.storage.models import FORMAT_VERSION, BranchRef, LogEntry, Tombstone, decode, encode
from omnigraph.storage.objects import Objects
from omnigraph.storage.tracing import Trace

_REFS = "__manifest/refs"
_ATTEMPTS = 16
_CLAIMS = 2


@dataclass(slots=True)
class _Life:
    """What a listing shows of the newest life of a name."""

    number: int
    is_path: bool
    deleting: bool = False
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class BranchHead:
    ref: BranchRef
    entry: LogEntry


class Branches:
    """The branches of one graph. main's ref comes from the identity object: a graph without main is no graph."""

    def __init__(self, objects: Objects, log: GraphLog, main: BranchRef, graph_id: str, trace: Trace) -> None:
        self._objects = objects
        self._log = log
        self._main = main
        self._graph_id = graph_id
        self._trace = trace
        self._refs: dict[str, BranchRef] = {}
        self._lives_read: dict[str, BranchRef] = {}
        self._lock = threading.Lock()

    # Reading

    def head(self, branch: str) -> BranchHead:
        """The live incarnation of a name and its newest entry. Warm: one request."""
        if branch == MAIN:
            return BranchHead(self._main, self._log.head(self._main))
        with self._lock:
            ref = self._refs.get(branch)
        if ref is None:
            ref = self._read_life(branch, 1)
            if ref is None and self._life_of(branch) is None:
                raise BranchNotFoundError(branch, "create it, or list the branches that exist")
        if ref is not None and (entry := self._live_head(ref)) is not None:
            return BranchHead(ref, entry)
        life = self._life_of(branch)
        ref = None if life is None or life.is_path or life.deleted else self._read_life(branch, life.number)
        if ref is None or (entry := self._live_head(ref)) is None:
            raise BranchNotFoundError(branch, "create it, or list the branches that exist")
        return BranchHead(ref, entry)

    def names(self) -> list[str]:
        """main first, the rest sorted. One listing; only an interrupted deletion costs a look into its log."""
        return [MAIN, *self._live()]

    def all(self) -> list[BranchRef]:
        """The ref of every live branch, main first."""
        refs = [self._read_life(name, life.number) for name, life in self._live().items()]
        return [self._main, *(ref for ref in refs if ref is not None)]

    def deleted_since(self, moment: datetime) -> list[BranchRef]:
        """The lives that ended, or began to end, after a moment."""
        marks = [o.path for o in self._objects.below(_REFS) if o.path.endswith(".deleting") and o.modified >= moment]
        lives = [path.removesuffix(".deleting").removeprefix(f"{_REFS}/").partition("/") for path in marks]
        refs = [self._read_life(unquoted_branch(q), int(leaf.removesuffix(".json"))) for q, _, leaf in lives]
        return [ref for ref in refs if ref is not None]

    def _live(self) -> dict[str, _Life]:
        return {name: life for name, life in sorted(self._lives(_REFS).items()) if self._is_live_branch(name, life)}

    # Creating

    def create(self, name: str, source: BranchRef, at: LogEntry, *, actor: str | None = None) -> BranchRef:
        """A new branch whose head is `at`, an entry in the history of `source`. One object for a new name."""
        return self.establish(self.draft(name, source, at, actor=actor))

    def draft(self, name: str, source: BranchRef, at: LogEntry, *, actor: str | None = None) -> BranchRef:
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
        )

    def establish(self, ref: BranchRef) -> BranchRef:
        """Make a drafted branch exist, with whatever its log holds already. ConflictError if the name lives."""
        for ancestor in path_ancestors(ref.branch):
            if ancestor != MAIN:
                self._hold_path(ancestor, ref.branch)
        if ref.fork is not None:
            self._log.confirm(ref.fork.branch_id, ref.fork.version)
        self._trace.reached("branch.create.before")
        self._claim(ref)
        self._trace.reached("branch.create.after")
        with self._lock:
            self._refs[ref.branch] = ref
        return ref

    def _claim(self, ref: BranchRef) -> None:
        number = 1
        for _ in range(_ATTEMPTS):
            if self._create_life(ref.branch, number, encode(ref)):
                return
            life = self._life_of(ref.branch)
            if life is None:
                continue
            standing = None if life.is_path else self._read_life(ref.branch, life.number)
            if standing is not None and standing.branch_id == ref.branch_id:
                return  # our own create, whose response was lost
            if self._is_live_branch(ref.branch, life):
                raise ConflictError(f"branch '{ref.branch}' exists already")
            if life.is_path and (beneath := [n for n in self.names() if n.startswith(f"{ref.branch}/")]):
                raise ConflictError(f"branch '{ref.branch}' can't be created: '{beneath[0]}' lies beneath its path")
            number = life.number + 1
        raise ConflictError(f"branch '{ref.branch}' is being created and deleted by others; try again")

    def _hold_path(self, path: str, for_branch: str) -> None:
        """Take a life of the name `path` while branches lie beneath it, so that creating it collides by itself."""
        number = 1
        for _ in range(_ATTEMPTS):
            if self._create_life(path, number, b""):
                return
            life = self._life_of(path)
            if life is not None and life.is_path:
                return
            if life is not None and self._is_live_branch(path, life):
                raise ConflictError(f"branch '{for_branch}' can't be created beneath the live branch '{path}'")
            number = life.number + 1 if life is not None else 1
        raise ConflictError(f"branch '{path}' is being created and deleted by others; try again")

    # Deleting

    def delete(self, name: str, *, actor: str | None = None) -> BranchRef:
        """End this life of the name. Its commits stop resolving; the log stays until cleanup sweeps it."""
        name = name.strip()
        if name == MAIN:
            raise BadRequestError("branch 'main' can't be deleted")
        ref = self.head(name).ref
        for other in self.all():
            if other.branch.startswith(f"{name}/"):
                raise ConflictError(f"branch '{name}' can't be deleted: '{other.branch}' lies beneath its path")
            if other.branch_id != ref.branch_id and ref.branch_id in {p.branch_id for p in other.lineage} | {
                other.parent_branch_id
            }:
                raise ConflictError(f"branch '{name}' can't be deleted: branch '{other.branch}' still depends on it")
        number = self._number_of(ref)
        self._objects.create(f"{_life_path(name, number)}.deleting", b"")
        self._trace.reached("branch.tombstone.before")
        self._bury(ref, actor)
        self._trace.reached("branch.tombstone.after")
        with contextlib.suppress(StorageError):  # the tombstone stands: the branch is deleted, with the mark or without
            self._objects.create(f"{_life_path(name, number)}.deleted", b"")
        self._trace.reached("branch.delete.after")
        with self._lock:
            self._refs.pop(name, None)
        return ref

    def _bury(self, ref: BranchRef, actor: str | None) -> None:
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
            )
            if self._log.publish(tombstone) == tombstone:
                return
        raise ConflictError(f"branch '{ref.branch}' is being written to; nothing was deleted, try again")

    # Lives

    def _live_head(self, ref: BranchRef) -> LogEntry | None:
        newest = self._log.newest(ref)
        with self._lock:
            if isinstance(newest, Tombstone):
                self._refs.pop(ref.branch, None)
                return None
            self._refs[ref.branch] = ref
        return newest

    def _is_live_branch(self, name: str, life: _Life) -> bool:
        if life.is_path or life.deleted:
            return False
        if not life.deleting:
            return True
        ref = self._read_life(name, life.number)
        return ref is not None and not isinstance(self._log.newest(ref), Tombstone)

    def _number_of(self, ref: BranchRef) -> int:
        life = self._life_of(ref.branch)
        standing = None if life is None or life.is_path else self._read_life(ref.branch, life.number)
        if life is None or standing is None or standing.branch_id != ref.branch_id:
            raise BranchNotFoundError(ref.branch, "it was deleted meanwhile")
        return life.number

    def _life_of(self, name: str) -> _Life | None:
        return self._lives(f"{_REFS}/{quoted_branch(name)}").get(name)

    def _lives(self, prefix: str) -> dict[str, _Life]:
        """The newest life of every name below a prefix. In path order `<life>.json` precedes its marks."""
        lives: dict[str, _Life] = {}
        for stored in self._objects.below(prefix):
            quoted, _, leaf = stored.path.removeprefix(f"{_REFS}/").partition("/")
            number_text, _, mark = leaf.partition(".json")
            if not number_text.isdigit():
                continue
            name, number = unquoted_branch(quoted), int(number_text)
            life = lives.get(name)
            if life is None or number > life.number:
                life = lives[name] = _Life(number, is_path=stored.size == 0)
            life.deleting = life.deleting or mark == ".deleting"
            life.deleted = life.deleted or mark == ".deleted"
        return lives

    def _read_life(self, name: str, number: int) -> BranchRef | None:
        """A life never changes once written, so it is fetched once. None for a life that only holds a path."""
        path = _life_path(name, number)
        if (known := self._lives_read.get(path)) is not None:
            return known
        data = self._objects.get(path)
        ref = decode(path, data, BranchRef) if data else None
        if ref is not None:
            self._lives_read[path] = ref
        return ref

    def _create_life(self, name: str, number: int, data: bytes) -> bool:
        # Asking again finds a life that was made without an answer, and the caller recognises its own.
        return self._objects.claim(_life_path(name, number), data, _CLAIMS)


def _life_path(name: str, number: int) -> str:
    return f"{_REFS}/{quoted_branch(name)}/{number:06d}.json"
