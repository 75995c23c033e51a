"""Every shape that is persisted outside Lance, explicit and versioned.

Decoding checks the format number before anything else, so that a graph of another age is refused with its remedy
and never half understood. A malformed object is an IntegrityError that names the object.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from omnigraph.api.wire import decoder_of
from omnigraph.errors import FormatVersionError, HistoricalVersionReclaimedError, IntegrityError

FORMAT_VERSION = 6
"""The storage format. Also what users see as the internal schema version."""

VECTOR_INDEX_FORMAT = 1
"""The newest form of the record of a vector index."""

IDEMPOTENCY_WINDOW = 64
"""How many keys an entry remembers of its branch, and a life of those before it."""


class ForkPoint(msgspec.Struct, frozen=True):
    """A place in the graph: version `version` of the log of one branch incarnation."""

    branch_id: str
    version: int


class KeyUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """An idempotency key that made or ended a life of a branch name, a digest of what was asked for, and who asked."""

    key: str
    request: str
    actor: str | None = None


class BranchRef(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One life of a branch. `lineage` lists the logs that hold its inherited history, oldest first, each with the
    last version that belongs to this branch; its own log begins one version later. `beneath` says for each part of
    its path which life of that name kept it free of a branch when this one was created. `earlier_keys` are those that
    made and ended earlier lives of the name, oldest first: a repeat of such a request must not touch this life."""

    format: int
    branch: str
    branch_id: str
    created_at: int
    parent_branch_id: str | None = None
    lineage: tuple[ForkPoint, ...] = ()
    created_by: str | None = None
    beneath: dict[str, int] = {}
    key: KeyUse | None = None
    earlier_keys: tuple[KeyUse, ...] = ()

    @property
    def fork(self) -> ForkPoint | None:
        return self.lineage[-1] if self.lineage else None

    @property
    def first_own_version(self) -> int:
        return self.lineage[-1].version + 1 if self.lineage else 1

    def locate(self, version: int) -> ForkPoint:
        """Which log holds `version` of this branch."""
        for point in self.lineage:
            if version <= point.version:
                return ForkPoint(point.branch_id, version)
        return ForkPoint(self.branch_id, version)

    def lineage_up_to(self, version: int) -> tuple[ForkPoint, ...]:
        """The lineage of a branch forked from this one at `version`."""
        inherited = [p for p in self.lineage if p.version < version]
        return (*inherited, self.locate(version))


class GraphIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The root object. Its creation is the moment a graph exists; it carries the ref of main for that reason."""

    format: int
    graph_id: str
    created_at: int
    main: BranchRef


class TableState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A table at one immutable version. The number exceeds 2^53, hence the string.

    `manifest` is the digest of the version's manifest, `deletions` that of the deletion vectors it names, if there are
    any. Versions that were staged on an object store have neither.
    """

    table_id: str
    path: str
    version: str
    rows: int
    fragments: int
    manifest: str | None = None
    deletions: str | None = None

    @property
    def number(self) -> int:
        return int(self.version)


def manifest_name(number: int) -> str:
    """Attached versions are named so that the newest sorts first, detached ones by their number."""
    return f"d{number}.manifest" if number >= 1 << 63 else f"{(1 << 64) - 1 - number:020d}.manifest"


def manifest_path(state: TableState) -> str:
    """The file of a version, which is there for as long as the version is."""
    return f"{state.path}/_versions/{manifest_name(state.number)}"


def reclaimed_error(state: TableState) -> HistoricalVersionReclaimedError:
    return HistoricalVersionReclaimedError(
        state.version,
        f"version {state.version} of table {state.path} is no longer in the store: "
        "it was reclaimed by cleanup or removed by another tool",
    )


class VectorIndexRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was measured of an approximate index of vectors when it was built. Kept in the settings of a table version,
    so every later version has it.

    `partitions` is what the schema asked for, None for nothing; `probes` how many partitions a search looks at.
    `recall` is the share of the ten nearest vectors that a search of `sample` stored vectors got, on the `segments`
    whose ids are listed.
    """

    format: int
    partitions: int | None = None
    declared_probes: int | None = None
    probes: int
    recall: float
    sample: int
    rows: int
    segments: tuple[str, ...]

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str, where: str) -> VectorIndexRecord | None:
        """None for a record of a later release: the index can be searched without it."""
        try:
            if _VERSIONED.decode(text).format > VECTOR_INDEX_FORMAT:
                return None
            return msgspec.json.decode(text, type=cls)
        except msgspec.MsgspecError as error:
            raise IntegrityError(where, f"not the record of an index: {error}") from error


class ChangeCounts(msgspec.Struct, frozen=True, omit_defaults=True):
    inserted: int = 0
    updated: int = 0
    deleted: int = 0


class ParentLink(msgspec.Struct, frozen=True):
    """A parent and where it stands, so that ancestry is walked without a search."""

    commit_id: str
    branch_id: str
    version: int


class Commit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    kind: str
    parents: tuple[ParentLink, ...]
    authored_at: int
    published_at: int
    actor: str | None = None
    message: str | None = None
    changes: dict[str, ChangeCounts] = {}
    details: dict[str, str] = {}


class IdempotencyRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A key, the commit it made, and a digest of what was asked for."""

    key: str
    commit_id: str
    version: int
    request: str | None = None


class LogEntry(msgspec.Struct, frozen=True, kw_only=True, tag="commit", tag_field="entry"):
    """The whole graph at one version of one branch: a snapshot is one GET.

    `table_versions` says in which version of this line of history each table last changed. A table that has not
    changed since entries have this member is absent.
    """

    format: int
    graph_id: str
    branch: str
    branch_id: str
    version: int
    commit: Commit
    schema: str
    tables: dict[str, TableState]
    recent_keys: tuple[IdempotencyRecord, ...] = ()
    table_versions: dict[str, int] = {}

    @property
    def link(self) -> ParentLink:
        return ParentLink(self.commit.id, self.branch_id, self.version)

    def with_key(self, key: str) -> IdempotencyRecord | None:
        return next((r for r in self.recent_keys if r.key == key), None)

    def table_versions_of_next(self, tables: dict[str, TableState]) -> dict[str, int]:
        """The `table_versions` of an entry that follows this one and names these tables.

        A table is known by its folder: a type that was renamed keeps its table, and with it the version.
        """
        before = {state.path: (state.version, self.table_versions.get(key)) for key, state in self.tables.items()}
        versions: dict[str, int] = {}
        for key, state in tables.items():
            version, changed = before.get(state.path, (None, None))
            if version != state.version:
                versions[key] = self.version + 1
            elif changed is not None:
                versions[key] = changed
        return versions


class Tombstone(msgspec.Struct, frozen=True, kw_only=True, tag="tombstone", tag_field="entry", omit_defaults=True):
    """Takes the next slot of a branch's log permanently: the branch is deleted, and writers in flight lose to it."""

    format: int
    graph_id: str
    branch: str
    branch_id: str
    version: int
    deleted_at: int
    deleted_by: str | None = None
    key: KeyUse | None = None


class SchemaDocument(msgspec.Struct, frozen=True, kw_only=True):
    """An accepted schema: its source text and the compiled catalog, opaque to this layer.

    The graph id keeps two inits that race for one root from sharing, and then removing, each other's object.
    """

    format: int
    graph_id: str
    source: str
    catalog: msgspec.Raw


class _Versioned(msgspec.Struct):
    format: int


Model = TypeVar("Model")


def encode(model: msgspec.Struct) -> bytes:
    return msgspec.json.encode(model)


def decode(path: str, data: bytes, shape: type[Model]) -> Model:
    """`shape` may be a union of tagged structs; it is typed as one of them for the caller's sake."""
    try:
        format_version = _VERSIONED.decode(data).format
    except msgspec.DecodeError as error:
        raise IntegrityError(path, f"is not a valid OmniGraph object ({error})") from None
    if format_version != FORMAT_VERSION:
        raise FormatVersionError(path, format_version, FORMAT_VERSION)
    try:
        return decoder_of(shape).decode(data)
    except msgspec.DecodeError as error:
        raise IntegrityError(path, f"is not a valid OmniGraph object ({error})") from None


_VERSIONED: Final = msgspec.json.Decoder(_Versioned)
