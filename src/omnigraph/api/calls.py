"""`GraphCalls`: every call of a graph, wherever it is, under one name. `GraphApi` adds branches, snapshots and areas.

The embedded handle and the remote one implement them; what is said here is said to both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol, Self, TypeAlias, overload

from omnigraph.api import maintenance
from omnigraph.api.branches import (
    NO_RESOLUTIONS,
    BranchCreated,
    BranchDeleted,
    MergePreview,
    MergeResult,
    Resolutions,
    SnapshotListing,
)
from omnigraph.api.enums import Integers
from omnigraph.api.history import (
    ChangeBaseline,
    ChangePoll,
    ChangeRecord,
    ChangeScope,
    ChangeSet,
    CommitChangesPage,
    CommitHistory,
    CommitList,
    CommitSummary,
)
from omnigraph.api.load import LoadReceipt, MutationReceipt
from omnigraph.api.queries import (
    BlobValue,
    ByteWriter,
    ExportedFile,
    OperatorProfile,
    ReadOutput,
    ReadPoint,
    StoredQueries,
)
from omnigraph.api.schema import SchemaApplied, SchemaPlan

LoadInput: TypeAlias = "str | bytes | Iterable[str | bytes]"
"""The text of the records: whole, or in pieces of any size, as an open file yields them."""


class QueryRows(Protocol):
    """The rows of one query, in order, and where they were read."""

    @property
    def query_name(self) -> str: ...
    @property
    def target(self) -> ReadPoint: ...
    @property
    def graph_commit_id(self) -> str: ...
    @property
    def columns(self) -> list[str]: ...
    @property
    def num_rows(self) -> int: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[dict[str, Any]]: ...
    @overload
    def __getitem__(self, at: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, at: slice) -> list[dict[str, Any]]: ...
    def to_dicts(self) -> list[dict[str, Any]]: ...
    def rows(self, integers: Integers = Integers.NATIVE) -> list[dict[str, Any]]: ...
    def read_output(self, integers: Integers = Integers.NATIVE) -> ReadOutput: ...
    def to_arrow(self) -> Any: ...
    def to_pandas(self) -> Any: ...
    def to_polars(self) -> Any: ...


class QueryBatches(Protocol):
    """The rows of one query as Arrow record batches, made as they are asked for."""

    @property
    def query_name(self) -> str: ...
    @property
    def target(self) -> ReadPoint: ...
    @property
    def graph_commit_id(self) -> str: ...
    @property
    def columns(self) -> list[str]: ...
    def __iter__(self) -> Iterator[Any]: ...
    def rows(self, integers: Integers = Integers.NATIVE) -> Iterator[dict[str, Any]]: ...
    def reader(self) -> Any: ...


class SnapshotApi(Protocol):
    """A state that never changes: which one it is, and what can be read of it."""

    @property
    def branch(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def commit_id(self) -> str: ...

    def query(
        self,
        source: Any,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        options: Any = None,
        **parameters: Any,
    ) -> QueryRows: ...

    def stream(
        self,
        source: Any,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        options: Any = None,
        **parameters: Any,
    ) -> QueryBatches: ...

    def explain(
        self, source: Any, name: str | None = None, params: Mapping[str, Any] | None = None, **parameters: Any
    ) -> list[str]: ...

    def profile(
        self, source: Any, name: str | None = None, params: Mapping[str, Any] | None = None, **parameters: Any
    ) -> OperatorProfile: ...

    def entity(self, type_name: str, entity_id: str) -> dict[str, Any] | None: ...
    def count(self, type_name: str, filter: str | None = None) -> int: ...
    def listing(self) -> SnapshotListing: ...
    def export(self, types: Collection[str] = (), *, epoch: bool = False) -> Iterator[str]: ...


class GraphCalls(Protocol):
    """A versioned graph of typed tables. Every read names a branch, or a commit, a version or a moment.

    Parameters of a query are keywords, or a mapping as `params`.
    """

    @property
    def uri(self) -> str: ...
    def _bound(
        self,
        source: Any,
        name: str | None,
        params: Mapping[str, Any] | None,
        given: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> tuple[str, str | None, Mapping[str, Any] | None]: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...

    # Reading

    def snapshot(
        self,
        branch: str | None = None,
        *,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
    ) -> SnapshotApi: ...

    def at(
        self,
        version: int | None = None,
        *,
        snapshot: str | None = None,
        time: datetime | None = None,
        branch: str | None = None,
    ) -> SnapshotApi: ...

    def query(
        self,
        source: str,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
        options: Any = None,
        **parameters: Any,
    ) -> QueryRows: ...

    def stream(
        self,
        source: str,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
        options: Any = None,
        **parameters: Any,
    ) -> QueryBatches: ...

    def explain(
        self,
        source: str,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
        options: Any = None,
        **parameters: Any,
    ) -> list[str]: ...

    def profile(
        self,
        source: str,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
        options: Any = None,
        **parameters: Any,
    ) -> OperatorProfile: ...

    def entity(
        self,
        type_key: str,
        entity_id: str,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
    ) -> dict[str, Any] | None: ...

    def count(
        self,
        type_name: str,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
    ) -> int: ...

    def read_blob(
        self,
        kind: str,
        type: str,
        id: str,
        property: str,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
    ) -> BlobValue: ...

    def export(
        self,
        *,
        branch: str | None = None,
        types: Collection[str] = (),
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
        epoch: bool = False,
    ) -> Iterator[str]: ...

    def export_to(
        self,
        writer: ByteWriter,
        *,
        branch: str | None = None,
        types: Collection[str] = (),
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
        epoch: bool = False,
    ) -> int: ...

    def export_files(
        self,
        directory: str | Path,
        *,
        format: str = "parquet",
        branch: str | None = None,
        types: Collection[str] = (),
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
    ) -> list[ExportedFile]: ...

    # Writing

    def mutate(
        self,
        source: str,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        branch: str | None = None,
        if_commit: str | None = None,
        actor: str | None = None,
        idempotency_key: str | None = None,
        **parameters: Any,
    ) -> MutationReceipt: ...

    def load(
        self,
        data: Any,
        *,
        mode: str,
        type: str | None = None,
        branch: str = "main",
        base: str | None = None,
        format: str | None = None,
        csv: Any = None,
        embed: bool = False,
        actor: str | None = None,
        idempotency_key: str | None = None,
    ) -> LoadReceipt: ...

    def load_lenient(
        self,
        data: LoadInput,
        *,
        mode: str,
        branch: str = "main",
        base: str | None = None,
        actor: str | None = None,
        idempotency_key: str | None = None,
    ) -> LoadReceipt: ...

    # Stored queries

    def stored_queries(self) -> StoredQueries: ...

    def invoke(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
        if_commit: str | None = None,
        expect_mutation: bool | None = None,
        actor: str | None = None,
        idempotency_key: str | None = None,
    ) -> QueryRows | MutationReceipt: ...

    # Branches and history

    def create_branch(
        self,
        name: str,
        *,
        source: str | None = None,
        actor: str | None = None,
        idempotency_key: str | None = None,
    ) -> BranchCreated: ...
    def list_branches(self) -> list[str]: ...
    def delete_branch(
        self, name: str, *, actor: str | None = None, idempotency_key: str | None = None
    ) -> BranchDeleted: ...

    def merge(
        self,
        source: str,
        target: str = "main",
        *,
        delete_branch: bool = False,
        resolutions: Resolutions = NO_RESOLUTIONS,
        actor: str | None = None,
        message: str | None = None,
        idempotency_key: str | None = None,
    ) -> MergeResult: ...

    def preview_merge(
        self, source: str, target: str = "main", *, resolutions: Resolutions = NO_RESOLUTIONS
    ) -> MergePreview: ...

    def listing(
        self,
        branch: str | None = None,
        *,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
    ) -> SnapshotListing: ...

    def resolve_snapshot(
        self, branch: str | None = None, *, version: int | None = None, at: datetime | None = None
    ) -> str: ...
    def version_of(
        self, branch: str | None = None, *, snapshot: str | None = None, at: datetime | None = None
    ) -> int: ...
    def commits(self, branch: str = "main", *, limit: int = 100, before: int | None = None) -> CommitList: ...
    def commit_history(
        self, branch: str = "main", *, limit: int = 100, before: int | None = None, exact: bool = True
    ) -> CommitHistory: ...
    def describe_commit(self, commit_id: str) -> CommitSummary: ...
    def diff(self, before: Any, after: Any, filter: ChangeScope | None = None) -> ChangeSet: ...

    # Changes

    def commit_changes(
        self,
        commit_id: str,
        *,
        scope: ChangeScope | None = None,
        page_token: str | None = None,
        max_changes: int | None = None,
        max_bytes: int | None = None,
    ) -> CommitChangesPage: ...

    def iter_commit_changes(self, commit_id: str, *, scope: ChangeScope | None = None) -> Iterator[ChangeRecord]: ...

    def poll_changes(
        self,
        *,
        branch: str = "main",
        start: str | None = None,
        cursor: str | None = None,
        page_token: str | None = None,
        scope: ChangeScope | None = None,
        max_changes: int | None = None,
        max_bytes: int | None = None,
        max_commits: int | None = None,
        wait_ms: int | None = None,
    ) -> ChangePoll: ...

    def follow(
        self,
        *,
        branch: str = "main",
        start: str | None = None,
        cursor: str | None = None,
        scope: ChangeScope | None = None,
        max_changes: int | None = None,
    ) -> Iterator[ChangePoll]: ...

    def capture_baseline(
        self, writer: ByteWriter, *, branch: str = "main", scope: ChangeScope | None = None
    ) -> ChangeBaseline: ...

    # Schema

    def schema_text(
        self,
        branch: str | None = None,
        *,
        snapshot: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
    ) -> str: ...
    def plan_schema(self, text: str, *, branch: str = "main", allow_data_loss: bool = False) -> SchemaPlan: ...
    def apply_schema(
        self,
        text: str,
        *,
        branch: str = "main",
        allow_data_loss: bool = False,
        actor: str | None = None,
        idempotency_key: str | None = None,
    ) -> SchemaApplied: ...

    # Upkeep

    def ensure_indices(
        self, branch: str | None = None, *, actor: str | None = None
    ) -> list[maintenance.PendingProperty]: ...
    def optimize(
        self,
        branch: str | None = None,
        *,
        types: Collection[str] | None = None,
        actor: str | None = None,
        progress: maintenance.Progress | None = None,
    ) -> maintenance.OptimizeReport: ...
    def cleanup(
        self,
        *,
        keep_versions: int | None = None,
        older_than: timedelta | str | int | None = None,
        grace: timedelta = maintenance.GRACE,
        dry_run: bool = False,
        progress: maintenance.Progress | None = None,
    ) -> maintenance.CleanupReport: ...
    def verify(self) -> maintenance.Verification: ...
    def repair(
        self,
        *,
        confirm: bool = False,
        force: bool = False,
        actor: str | None = None,
        progress: maintenance.Progress | None = None,
    ) -> maintenance.RepairReport: ...
    def maintain(
        self,
        policy: maintenance.MaintenancePolicy = maintenance.DEFAULT_POLICY,
        *,
        branch: str = "main",
        actor: str | None = None,
    ) -> maintenance.MaintenanceReport: ...
