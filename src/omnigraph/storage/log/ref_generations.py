"""The lives of branch names: who has a name now, and how `a` and `a/b` are kept from living at the same time.

A name goes through numbered lives, each one immutable object (`refs/<name>/<life>.json`) created if absent and never
rewritten or removed. A life that says only `path` holds the name as a path: branches lie, or lay, beneath it. Earlier
versions wrote such a life without content, so an empty one is damage only if no name beneath was ever taken.

Creating `a/b` needs a life of `a` that is a path, and many branches share one. So creating `a` over such a life takes
two steps, and either side can stop the other:

* `a` claims the life behind the path, then looks for live branches beneath, then confirms its claim (`.verdict`,
  created if absent with content).
* `a/b` takes its own life, writing down which path it relies on, then looks for a claim behind that path. A claim that
  is not confirmed yet it voids (the same `.verdict`, created empty), and the claim has become a path.

If `a` is confirmed, no live branch was beneath when it looked, and every branch beneath that came later finds the
verdict: it never lived. A reader that resolves such a branch makes the same check, so nobody writes to one.

The keys of requests that created and deleted branches, kept with the lives of their names.

The ref of a life names the key that made it, its tombstone the key that ended it, and each later life carries the
recent ones before it. So whoever has the newest life of a name has them all, and a repeat finds what its first try did
even if others have deleted the branch or made it again since.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from omnigraph.errors import IdempotencyKeyReusedError, IntegrityError
from omnigraph.storage.cache import RecentlyUsed
from omnigraph.storage.identifiers import path_ancestors, quoted_branch, unquoted_branch
from omnigraph.storage.log.log import GraphLog
from omnigraph.storage.models import IDEMPOTENCY_WINDOW, BranchRef, KeyUse, Tombstone, decode
from omnigraph.storage.objects import Objects

REFS: Final = "__manifest/refs"
_CONFIRMED: Final = b"confirmed"
_CLAIMS: Final = 2
_PATH: Final = b"path"
"""What a life says that only holds a path. Every ref is longer, so that a listing tells the two apart."""

_BLANK: Final = (
    "the ref of a branch is empty; put it back from a backup. If it never was a branch, because an earlier version of "
    "OmniGraph died while it created one beneath this name, remove the file"
)

REMEMBERED_BRANCHES: Final = 1 << 14
"""Of how many lives a handle remembers what it read."""


@dataclass(slots=True)
class RefGeneration:
    """What a listing shows of one life of a name. `empty` when it has no ref, `blank` when it has no content at all,
    `contested` when the life before it is a path."""

    name: str
    number: int
    empty: bool
    blank: bool = False
    contested: bool = False
    verdict: bool | None = None
    deleting: bool = False
    deleted_at: datetime | None = None

    @property
    def is_path(self) -> bool:
        return self.empty or (self.contested and self.verdict is False)

    @property
    def is_pending(self) -> bool:
        """A claim over a path that is neither confirmed nor void: its writer is at work, or died."""
        return self.contested and not self.empty and self.verdict is None

    @property
    def may_live(self) -> bool:
        """Whether only the log can still say that this branch is gone."""
        return not (self.is_path or self.is_pending or self.deleted_at is not None)


class RefGenerations:
    """The lives of every name of one graph. Safe to share between threads."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._read: RecentlyUsed[str, BranchRef] = RecentlyUsed(REMEMBERED_BRANCHES)
        self._settled: RecentlyUsed[str, bool] = RecentlyUsed(REMEMBERED_BRANCHES)

    # Reading

    def of(self, name: str) -> list[RefGeneration]:
        """All lives of one name, oldest first."""
        return self.listed(f"{REFS}/{quoted_branch(name)}").get(name, [])

    def newest(self, name: str) -> RefGeneration | None:
        return next(reversed(self.of(name)), None)

    def listed(self, prefix: str = REFS) -> dict[str, list[RefGeneration]]:
        """Every life of every name below a prefix. In path order `<life>.json` precedes its marks."""
        found: dict[str, list[RefGeneration]] = {}
        for stored in self._objects.below(prefix):
            quoted, _, leaf = stored.path.removeprefix(f"{REFS}/").partition("/")
            number, _, mark = leaf.partition(".json")
            if not number.isdigit():
                continue
            lives = found.setdefault(unquoted_branch(quoted), [])
            if not mark:
                contested = bool(lives) and lives[-1].is_path
                empty, blank = stored.size <= len(_PATH), not stored.size
                lives.append(RefGeneration(unquoted_branch(quoted), int(number), empty, blank, contested))
            elif lives and lives[-1].number == int(number):
                _mark(lives[-1], mark, stored.size, stored.modified)
        return found

    def read(self, name: str, number: int) -> BranchRef | None:
        """A life never changes once written, so it is remembered. None for a life that only holds a path."""
        path = generation_path(name, number)
        if (known := self._read.get(path)) is not None:
            return known
        data = self._objects.get(path)
        ref = decode(path, data, BranchRef) if data and data != _PATH else None
        if ref is not None:
            self._read[path] = ref
        return ref

    def damaged(self, found: dict[str, list[RefGeneration]]) -> list[tuple[str, IntegrityError]]:
        """Names whose ref lost its content, each with the error that says so, given every life of every name."""
        paths = {path for name in found for path in path_ancestors(name)}
        return [
            (name, IntegrityError(generation_path(name, life.number), _BLANK))
            for name, lives in found.items()
            for life in lives
            if life.blank and name not in paths
        ]

    def overridden(self, life: RefGeneration, found: dict[str, list[RefGeneration]]) -> bool:
        """Whether a listing shows that a branch never lived, because a part of its path became a branch first."""
        above = {path: found[path] for path in path_ancestors(life.name) if path in found}
        if not any(_confirmed_behind(lives, 0) for lives in above.values()):
            return False
        ref = self.read(life.name, life.number)
        return ref is not None and any(
            _confirmed_behind(above[path], held) for path, held in ref.beneath.items() if path in above
        )

    # Writing

    def create(self, name: str, number: int, data: bytes) -> bool:
        """Take a life of a name, if it is free. False may mean that an earlier try of ours took it."""
        return self._create(generation_path(name, number), data)

    def hold(self, name: str, number: int) -> bool:
        """Take a life of a name for a path, if it is free."""
        return self._create(generation_path(name, number), _PATH)

    def mark(self, name: str, number: int, mark: str) -> None:
        """Note how far a deletion is. It only saves looks into the log."""
        self._create(f"{generation_path(name, number)}.{mark}", b"")

    def confirm(self, life: RefGeneration) -> bool:
        """Make a claim over a path a branch. False when somebody beneath the path was faster."""
        self._create(_verdict_path(life), _CONFIRMED)
        return self._objects.get(_verdict_path(life)) == _CONFIRMED

    def void(self, life: RefGeneration) -> None:
        """Turn a claim that is not confirmed into a path. Without effect on one that is."""
        self._create(_verdict_path(life), b"")

    def make_durable(self, life: RefGeneration) -> None:
        """Make sure that a life which was read, and what became of its claim, outlast a power cut."""
        self._objects.confirm(generation_path(life.name, life.number))
        if life.verdict is not None:
            self._objects.confirm(_verdict_path(life))

    def settle(self, ref: BranchRef) -> bool:
        """Whether a branch beneath a path lives, whatever becomes of claims to its path. One look per handle.

        Once no claim behind the path stands that could still be confirmed, every later one sees the branch.
        """
        if self._settled.get(ref.branch_id):
            return True
        for path, held in ref.beneath.items():
            if self._objects.exists(generation_path(path, held + 1)) and not self._settle_behind(path, held):
                return False
        self._settled[ref.branch_id] = True
        return True

    def _settle_behind(self, path: str, held: int) -> bool:
        for life in self.of(path):
            if life.number > held and life.is_pending:
                self.void(life)
        return not _confirmed_behind(self.of(path), held)

    def _create(self, path: str, data: bytes) -> bool:
        # Asking again finds what was made without an answer, and the caller recognises its own.
        return self._objects.claim(path, data, _CLAIMS)


def generation_path(name: str, number: int) -> str:
    return f"{REFS}/{quoted_branch(name)}/{number:06d}.json"


def _verdict_path(life: RefGeneration) -> str:
    return f"{generation_path(life.name, life.number)}.verdict"


def _mark(life: RefGeneration, mark: str, size: int, modified: datetime) -> None:
    match mark:
        case ".deleting":
            life.deleting = True
        case ".deleted":
            life.deleted_at = modified
        case ".verdict":
            life.verdict = size > 0


def _confirmed_behind(lives: list[RefGeneration], held: int) -> bool:
    """Whether a claim over a path was confirmed after a branch relied on life `held` of it."""
    return any(life.number > held and life.contested and life.verdict for life in lives)


class BranchKeys:
    """What keys did to the names of one graph."""

    def __init__(self, lives: RefGenerations, log: GraphLog) -> None:
        self._lives = lives
        self._log = log

    def of(self, lives: Sequence[RefGeneration]) -> tuple[KeyUse, ...]:
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

    def earlier_use(self, lives: Sequence[RefGeneration], wanted: KeyUse | None) -> KeyUse | None:
        """What the same request did to a name before, given all its lives."""
        use = None if wanted is None else earlier_use(self.of(lives), wanted)
        if use is not None:
            self.confirm(lives)
        return use

    def confirm(self, lives: Sequence[RefGeneration]) -> None:
        """Make sure that what the keys of a name were read from is durable, before a repeat is told of it."""
        life, ref = self._newest_written(lives)
        if life is None or ref is None:
            return
        self._lives.make_durable(life)
        if (end := self._end(life, ref)) is not None:
            self._log.confirm(end.branch_id, end.version)

    def _newest_written(self, lives: Sequence[RefGeneration]) -> tuple[RefGeneration | None, BranchRef | None]:
        """A path has no content, so it carries no keys; the life before it does."""
        life = next((life for life in reversed(lives) if not life.empty), None)
        return life, None if life is None else self._lives.read(life.name, life.number)

    def _end(self, life: RefGeneration, ref: BranchRef) -> Tombstone | None:
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
