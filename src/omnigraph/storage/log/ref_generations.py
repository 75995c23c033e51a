"""Generations of branch names: which one is current, and how `a` and `a/b` are kept from existing at the same time.

`Branches` calls this. A name goes through numbered generations, each an immutable object (`refs/<name>/<number>.json`)
created if absent and never rewritten or removed. One whose content is `path` holds the name as a path: branches are, or
were, beneath it. Earlier versions wrote such a generation without content, so an empty one is damage only if no name
beneath was ever taken.

Creating `a/b` needs a generation of `a` that is a path, and many branches share one. So creating `a` over such a
generation takes two steps, and either side can stop the other:

* `a` claims the generation after the path, then looks for live branches beneath, then confirms its claim (`.verdict`,
  created if absent with content).
* `a/b` takes its own generation, writing down which path it relies on, then looks for a claim after that path. It voids
  a claim that is not confirmed yet (the same `.verdict`, created empty), and the claim has become a path.

If `a` is confirmed, no live branch was beneath when it looked, and every branch beneath that came later finds the
confirmation: it never existed. A reader that resolves such a branch makes the same check, so nobody writes to one.

Generations also carry the idempotency keys of requests: a ref names the key that made it, its tombstone the key that
ended it, and each later generation the recent keys before it. So a repeated request finds what its first try did, even
if others have deleted the branch or made it again since.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import unquote

from omnigraph.errors import IdempotencyKeyReusedError, IntegrityError
from omnigraph.storage.cache import RecentlyUsed
from omnigraph.storage.identifiers import path_ancestors, quoted_branch
from omnigraph.storage.log.log import GraphLog
from omnigraph.storage.models import IDEMPOTENCY_WINDOW, BranchRef, KeyUse, Tombstone, decode
from omnigraph.storage.objects import Objects

REFS: Final = "__manifest/refs"
_CONFIRMED: Final = b"confirmed"
_CLAIMS: Final = 2
_PATH: Final = b"path"
"""The content of a generation that only holds a path. Every ref is longer, so that a listing tells the two apart."""

_BLANK: Final = (
    "the ref of a branch is empty; put it back from a backup. If it never was a branch, because an earlier version of "
    "OmniGraph died while it created one beneath this name, remove the file"
)

REMEMBERED_BRANCHES: Final = 1 << 14
"""How many generations a handle keeps in memory once they were read."""


@dataclass(slots=True)
class RefGeneration:
    """One generation of a name, as a listing shows it. `empty` when it has no ref, `blank` when it has no content at
    all, `contested` when the generation before it is a path, `confirmed` when its claim was decided."""

    name: str
    number: int
    empty: bool
    blank: bool = False
    contested: bool = False
    confirmed: bool | None = None
    deleting: bool = False
    deleted_at: datetime | None = None

    @property
    def is_path(self) -> bool:
        return self.empty or (self.contested and self.confirmed is False)

    @property
    def is_pending(self) -> bool:
        """A claim over a path that is neither confirmed nor void: its writer is at work, or died."""
        return self.contested and not self.empty and self.confirmed is None

    @property
    def may_live(self) -> bool:
        """Whether the branch exists unless its log says that it was deleted."""
        return not (self.is_path or self.is_pending or self.deleted_at is not None)


class RefGenerations:
    """The generations of every name of one graph. Safe to share between threads."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._read: RecentlyUsed[str, BranchRef] = RecentlyUsed(REMEMBERED_BRANCHES)
        self._resolved: RecentlyUsed[str, bool] = RecentlyUsed(REMEMBERED_BRANCHES)

    # Reading

    def of(self, name: str) -> list[RefGeneration]:
        """All generations of one name, oldest first."""
        return self.list_all(f"{REFS}/{quoted_branch(name)}").get(name, [])

    def newest(self, name: str) -> RefGeneration | None:
        return next(reversed(self.of(name)), None)

    def list_all(self, prefix: str = REFS) -> dict[str, list[RefGeneration]]:
        """Every generation of every name below a prefix. In path order `<generation>.json` precedes its marks."""
        listing: dict[str, list[RefGeneration]] = {}
        for stored in self._objects.below(prefix):
            quoted, _, leaf = stored.path.removeprefix(f"{REFS}/").partition("/")
            number, _, mark = leaf.partition(".json")
            if not number.isdigit():
                continue
            generations = listing.setdefault(unquote(quoted), [])
            newest = generations[-1] if generations else None
            if not mark:
                contested = newest is not None and newest.is_path
                empty, blank = stored.size <= len(_PATH), not stored.size
                generations.append(RefGeneration(unquote(quoted), int(number), empty, blank, contested))
            elif newest is not None and newest.number == int(number):
                match mark:
                    case ".deleting":
                        newest.deleting = True
                    case ".deleted":
                        newest.deleted_at = stored.modified
                    case ".verdict":
                        newest.confirmed = stored.size > 0
        return listing

    def ref(self, generation: RefGeneration | None) -> BranchRef | None:
        """The ref of a generation; None for one that is not there or only holds a path."""
        return None if generation is None or generation.is_path else self.read(generation.name, generation.number)

    def read(self, name: str, number: int) -> BranchRef | None:
        """The ref of a generation, which never changes; None for a generation that only holds a path."""
        path = generation_path(name, number)
        if (ref := self._read.get(path)) is not None:
            return ref
        data = self._objects.get(path)
        ref = decode(path, data, BranchRef) if data and data != _PATH else None
        if ref is not None:
            self._read[path] = ref
        return ref

    def find_damage(self, listing: dict[str, list[RefGeneration]]) -> list[tuple[str, IntegrityError]]:
        """Names whose ref lost its content, each with the error that says so, given every generation of every name."""
        paths = {path for name in listing for path in path_ancestors(name)}
        return [
            (name, IntegrityError(generation_path(name, generation.number), _BLANK))
            for name, generations in listing.items()
            for generation in generations
            if generation.blank and name not in paths
        ]

    def is_overridden(self, generation: RefGeneration, listing: dict[str, list[RefGeneration]]) -> bool:
        """Whether a listing shows that a branch never existed, because a part of its path became a branch first."""
        above = {path: listing[path] for path in path_ancestors(generation.name) if path in listing}
        if not any(_has_confirmed_claim(generations, 0) for generations in above.values()):
            return False
        ref = self.ref(generation)
        return ref is not None and any(
            _has_confirmed_claim(above[path], held) for path, held in ref.beneath.items() if path in above
        )

    # Writing

    def create(self, name: str, number: int, data: bytes = _PATH) -> bool:
        """Take a generation of a name for a ref or for a path, if it is free. False may mean that an earlier try of
        ours took it."""
        return self._create(generation_path(name, number), data)

    def mark(self, name: str, number: int, mark: str) -> None:
        """Note how far a deletion is. It only saves looks into the log."""
        self._create(f"{generation_path(name, number)}.{mark}", b"")

    def confirm(self, generation: RefGeneration) -> bool:
        """Make a claim over a path a branch. False when somebody beneath the path was faster."""
        self._create(_claim_result_path(generation), _CONFIRMED)
        return self._objects.get(_claim_result_path(generation)) == _CONFIRMED

    def void(self, generation: RefGeneration) -> None:
        """Turn a claim that is not confirmed into a path. Without effect on one that is."""
        self._create(_claim_result_path(generation), b"")

    def make_durable(self, generation: RefGeneration) -> None:
        """Make sure that a generation which was read, and what became of its claim, outlast a power cut."""
        self._objects.confirm(generation_path(generation.name, generation.number))
        if generation.confirmed is not None:
            self._objects.confirm(_claim_result_path(generation))

    def resolve_claims(self, ref: BranchRef) -> bool:
        """Whether a branch beneath a path exists, whatever becomes of claims to its path. One look per handle. Once no
        claim on the path can be confirmed any more, every later one sees the branch."""
        if self._resolved.get(ref.branch_id):
            return True
        for path, held in ref.beneath.items():
            if self._objects.exists(generation_path(path, held + 1)):
                for generation in self.of(path):
                    if generation.number > held and generation.is_pending:
                        self.void(generation)
                if _has_confirmed_claim(self.of(path), held):
                    return False
        self._resolved[ref.branch_id] = True
        return True

    def _create(self, path: str, data: bytes) -> bool:
        # Asking again finds what was made without an answer, and the caller recognises its own.
        return self._objects.claim(path, data, _CLAIMS)


def generation_path(name: str, number: int) -> str:
    return f"{REFS}/{quoted_branch(name)}/{number:06d}.json"


def _claim_result_path(generation: RefGeneration) -> str:
    return f"{generation_path(generation.name, generation.number)}.verdict"


def _has_confirmed_claim(generations: list[RefGeneration], held: int) -> bool:
    """Whether a claim over a path was confirmed after a branch relied on generation `held` of it."""
    return any(generation.number > held and generation.contested and generation.confirmed for generation in generations)


class BranchKeys:
    """The idempotency keys of the branch names of one graph."""

    def __init__(self, generations: RefGenerations, log: GraphLog) -> None:
        self._generations = generations
        self._log = log

    def of(self, generations: Sequence[RefGeneration]) -> tuple[KeyUse, ...]:
        """The recent keys of a name, oldest first, given all its generations. Only a deleted branch costs a look at
        the end of its log."""
        if (written := self._newest_written(generations)) is None:
            return ()
        generation, ref, end = written
        # A claim that lost its name to another branch made nothing, and its key may still do so.
        has_lived = end is not None or (generation.may_live and self._generations.resolve_claims(ref))
        uses = (*ref.earlier_keys, ref.key if has_lived else None, None if end is None else end.key)
        return tuple(use for use in uses if use is not None)[-IDEMPOTENCY_WINDOW:]

    def earlier_use(self, generations: Sequence[RefGeneration], wanted: KeyUse | None) -> KeyUse | None:
        """The earlier use of the same request's key on a name, given all its generations."""
        use = None if wanted is None else earlier_use(self.of(generations), wanted)
        if use is not None:
            self.confirm(generations)
        return use

    def confirm(self, generations: Sequence[RefGeneration]) -> None:
        """Make the objects that the keys of a name were read from durable, before a repeat relies on them."""
        if (written := self._newest_written(generations)) is not None:
            generation, _, end = written
            self._generations.make_durable(generation)
            if end is not None:
                self._log.confirm(end.branch_id, end.version)

    def _newest_written(
        self, generations: Sequence[RefGeneration]
    ) -> tuple[RefGeneration, BranchRef, Tombstone | None] | None:
        """The newest generation with its ref and its end. A path has no content, so it carries no keys; the generation
        before it does."""
        generation = next((generation for generation in reversed(generations) if not generation.empty), None)
        ref = None if generation is None else self._generations.read(generation.name, generation.number)
        if generation is None or ref is None:
            return None
        newest = self._log.newest(ref) if generation.deleting else None
        return generation, ref, newest if isinstance(newest, Tombstone) else None


def earlier_use(keys: Iterable[KeyUse | None], wanted: KeyUse | None) -> KeyUse | None:
    """The earlier use of a key. IdempotencyKeyReusedError when it was used for another request."""
    if wanted is None:
        return None
    use = next((use for use in keys if use is not None and use.key == wanted.key), None)
    if use is not None and use.request != wanted.request:
        raise IdempotencyKeyReusedError(wanted.key)
    return use
