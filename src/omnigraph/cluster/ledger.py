"""The ledger: one immutable, numbered object per state of a cluster, and the creation of the next one.

`__cluster/state/<revision>.json`. The newest is the state; older ones stay readable. Creating revision N+1 if it is
absent is what makes a change happen, so two writers that began at N can't both succeed, however long either of them
was stopped, and nothing is ever overwritten. The lock of a cluster is a courtesy to people and no part of this.
"""

from __future__ import annotations

import hashlib
import random
import re
import secrets
import time
from dataclasses import dataclass, field
from typing import Final

import msgspec

from omnigraph.cluster.diagnostics import ClusterError
from omnigraph.cluster.state import State, decode_state, encode_state
from omnigraph.engine.object_store import ObjectStore
from omnigraph.errors import FormatVersionError, IntegrityError, NotFoundError, StorageError

CLUSTER_FOLDER: Final = "__cluster"
GRAPHS_FOLDER: Final = "graphs"
STATE_FOLDER: Final = f"{CLUSTER_FOLDER}/state"
_OTHER_FORMAT: Final = f"{CLUSTER_FOLDER}/state.json"
_ATTEMPTS: Final = 5
_REVISION: Final = re.compile(r"([1-9][0-9]{0,17})\.json")
_INSIDE: Final = re.compile(r"(?P<root>.+)/graphs/[A-Za-z_][A-Za-z0-9_-]*(\.[1-9][0-9]*)?\.omni")


def revision_path(revision: int) -> str:
    """Where a revision stands, below the storage root."""
    return f"{STATE_FOLDER}/{revision}.json"


def graph_folder(graph_id: str, generation: int) -> str:
    """Where a graph of a cluster lies, below the storage root. Each generation of an id has a folder of its own, so
    whoever still removes the last one can't touch the next."""
    return f"{GRAPHS_FOLDER}/{graph_id}{f'.{generation}' if generation > 1 else ''}.omni"


def graph_uri(root: str, graph_id: str, generation: int) -> str:
    return f"{root}/{graph_folder(graph_id, generation)}"


def cluster_around(graph: str) -> str | None:
    """The storage root of the cluster that a graph's normal URI lies in, None when it lies in none."""
    inside = _INSIDE.fullmatch(graph)
    if inside is None:
        return None
    try:
        store = ObjectStore.open(inside["root"])
    except NotFoundError:
        return None
    return store.uri if CLUSTER_FOLDER in store.folders() else None


@dataclass(frozen=True, slots=True)
class Recorded:
    """A revision that stands in the ledger."""

    state: State
    text: bytes = field(repr=False)

    @property
    def revision(self) -> int:
        return self.state.state_revision

    @property
    def path(self) -> str:
        return revision_path(self.revision)

    @property
    def state_cas(self) -> str:
        """What tells this state from every other one."""
        return f"sha256:{hashlib.sha256(self.text).hexdigest()}"


class Ledger:
    """The states of one cluster. Safe to share between threads."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def newest(self) -> Recorded | None:
        """The state of the cluster at some moment during this call; None when it has none yet."""
        revisions = self.revisions()
        if revisions:
            return self._stored(revisions[-1])
        if self._read(_OTHER_FORMAT) is not None:
            raise ClusterError.of(
                "unsupported_state_version",
                _OTHER_FORMAT,
                "this ledger was written by another implementation; export its graphs there and load them into a new "
                "cluster",
            )
        return None

    def revision(self, revision: int) -> Recorded | None:
        """One state by its number; None when there is none of that number."""
        data = self._read(revision_path(revision))
        return None if data is None else _decoded(revision, data)

    def revisions(self) -> list[int]:
        """The numbers of all states, oldest first."""
        try:
            names = self._store.names(STATE_FOLDER)
        except StorageError as error:
            raise ClusterError.of("state_read_error", STATE_FOLDER, str(error)) from error
        return sorted(int(found[1]) for found in map(_REVISION.fullmatch, names) if found is not None)

    def create(self, state: State, after: Recorded | None) -> Recorded:
        """Make the next state, which follows the one that the caller has read (None: there was none).

        Its revision and operation id are given here. Raises `state_cas_mismatch`, with nothing written, when another
        writer has made that revision. Raises `state_write_error` when the store failed: whether the state stands then
        is said in the message, and seen by reading the ledger again.
        """
        revision = 1 if after is None else after.revision + 1
        stamped = msgspec.structs.replace(state, state_revision=revision, operation_id=secrets.token_hex(16))
        made = Recorded(stamped, encode_state(stamped))
        standing = self._created(made, is_first=after is None)
        if standing is None:
            return made
        raise _overtaken(after, standing)

    def refuse_overtaken(self, after: Recorded) -> None:
        """Raises `state_cas_mismatch` when another writer has made the next state: what was looked at since may be its
        doing, and is not to be judged by the state before."""
        if (standing := self.revision(after.revision + 1)) is not None:
            raise _overtaken(after, standing)

    def _created(self, made: Recorded, *, is_first: bool) -> Recorded | None:
        """Create a revision. The state of the writer that was faster, None when it is ours that stands."""
        answered = False
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                created = self._store.create(made.path, made.text)
                answered = True
                if created:
                    if is_first:
                        self._prove_create_if_absent(made)
                    return None
                text = self._store.read(made.path)
            except StorageError as error:
                is_open = answered or error.may_have_happened
                doubt = "; whether it stands is open, read the ledger again" if is_open else ""
                raise ClusterError.of("state_write_error", made.path, f"{error}{doubt}") from error
            # An answer can be lost and the request repeated: then the state that stands there is this one.
            if text is not None:
                return None if text == made.text else _decoded(made.revision, text)
            # S3 also says that a name is taken while another writer still tries to take it.
            time.sleep(random.uniform(0, 0.05 * 2**attempt))
        raise ClusterError.of("state_write_error", made.path, "the store says that it is there and that it is not")

    def _prove_create_if_absent(self, made: Recorded) -> None:
        """The one thing asked of a store; a gateway that ignores the condition would lose states silently. Asked once
        in the life of a ledger, with the same bytes, so that a wrong answer harms nobody."""
        if self._store.create(made.path, made.text):
            raise ClusterError.of(
                "state_write_error",
                made.path,
                f"the store of '{self._store.uri}' does not honour create-if-absent; a cluster can't be safe there",
            )

    def _stored(self, revision: int) -> Recorded:
        found = self.revision(revision)
        if found is None:
            path = revision_path(revision)
            raise ClusterError.of("state_read_error", path, "it is listed and can't be read; read the ledger again")
        return found

    def _read(self, path: str) -> bytes | None:
        try:
            return self._store.read(path)
        except StorageError as error:
            raise ClusterError.of("state_read_error", path, str(error)) from error


def _overtaken(after: Recorded | None, standing: Recorded) -> ClusterError:
    expected = "no state" if after is None else f"revision {after.revision} ({after.state_cas})"
    return ClusterError.of(
        "state_cas_mismatch",
        standing.path,
        f"another writer has changed the state since {expected} was read, and made revision {standing.revision} "
        f"({standing.state_cas}); nothing was written, run the command again",
    )


def _decoded(revision: int, data: bytes) -> Recorded:
    path = revision_path(revision)
    try:
        state = decode_state(path, data)
    except FormatVersionError as error:
        raise ClusterError.of("unsupported_state_version", path, str(error)) from None
    except IntegrityError as error:
        raise ClusterError.of("invalid_state_json", path, error.reason) from None
    if state.state_revision != revision:
        raise ClusterError.of("invalid_state_json", path, f"it claims to be revision {state.state_revision}")
    return Recorded(state, data)
