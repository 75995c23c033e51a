"""`GraphCalls`: the operations that a graph has to implement, and the types of their results.

The embedded graph implements them on the engine, the client over HTTP. `omnigraph.api.graph` declares the public
methods once on top of them; no other module should call these directly.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeAlias

from omnigraph.api import maintenance
from omnigraph.api.branches import (
    BranchCreated,
    BranchDeleted,
    MergePreview,
    MergeRequest,
    MergeResult,
    SnapshotListing,
)
from omnigraph.api.enums import Integers
from omnigraph.api.history import (
    ChangeBaseline,
    ChangePoll,
    ChangeRecord,
    ChangeScope,
    CommitChangesPage,
    PollRequest,
    SchemaChange,
)
from omnigraph.api.load import LoadReceipt, MutationReceipt
from omnigraph.api.queries import BlobCell, BlobValue, ByteWriter, ExportedFile, OperatorProfile, ReadPoint
from omnigraph.api.queries import QueryRows as QueryRows
from omnigraph.api.schema import SchemaApplied, SchemaApplyRequest, SchemaPlan, SchemaPlanRequest
from omnigraph.errors import DirectAccessError

LoadInput: TypeAlias = "str | bytes | Iterable[str | bytes]"
"""The text of the records: whole, or in pieces of any size, as an open file yields them."""


class Call(NamedTuple):
    """A query to run: the text, the name of one query in it, and its parameters."""

    source: str
    name: str | None
    params: Mapping[str, Any] | None


class Author(NamedTuple):
    """The actor that a write is recorded for, and the key that makes a repeat of it harmless."""

    actor: str | None = None
    idempotency_key: str | None = None


class LoadOptions(NamedTuple):
    """How `load` reads its input and where the rows go."""

    mode: str
    branch: str
    base: str | None = None
    type: str | None = None
    format: str | None = None
    csv: Any = None
    embed: bool = False


class QueryBatches(Protocol):
    """The rows of one query as Arrow record batches, made as they are read."""

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


class QueryHandle(Protocol):
    """One query of a source, as `omnigraph.queries` gives it."""

    @property
    def name(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def is_mutation(self) -> bool: ...


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Rows = TypeVar("Rows", default=QueryRows, covariant=True)
    Batches = TypeVar("Batches", default=QueryBatches, covariant=True)
    State = TypeVar("State", default="SnapshotApi", covariant=True)
    Blob = TypeVar("Blob", default=BlobValue, covariant=True)
else:  # before Python 3.13, only the type checker knows defaults of type variables
    from typing import TypeVar

    Rows, Batches = TypeVar("Rows", covariant=True), TypeVar("Batches", covariant=True)
    State, Blob = TypeVar("State", covariant=True), TypeVar("Blob", covariant=True)


class StorageCalls:
    """Work on the storage itself: only the embedded graph does it, a server does not do it for its clients."""

    def _export_files(
        self,
        point: ReadPoint,
        types: Collection[str],
        directory: str | Path,
        format: str,
        progress: maintenance.Progress | None,
        force: bool,
    ) -> list[ExportedFile]:
        raise DirectAccessError("export_files")

    def _optimize(
        self, branch: str, types: Collection[str] | None, actor: str | None, progress: maintenance.Progress | None
    ) -> maintenance.OptimizeReport:
        raise DirectAccessError("optimize")

    def _ensure_indices(self, branch: str, actor: str | None) -> list[maintenance.PendingProperty]:
        raise DirectAccessError("ensure_indices")

    def _cleanup(
        self, retention: maintenance.Retention, grace: timedelta, dry_run: bool, progress: maintenance.Progress | None
    ) -> maintenance.CleanupReport:
        raise DirectAccessError("cleanup")

    def _maintain(
        self, policy: maintenance.MaintenancePolicy, branch: str, actor: str | None
    ) -> maintenance.MaintenanceReport:
        raise DirectAccessError("maintain")

    def _verify(self) -> maintenance.Verification:
        raise DirectAccessError("verify")

    def _repair(
        self, confirm: bool, force: bool, actor: str | None, progress: maintenance.Progress | None
    ) -> maintenance.RepairReport:
        raise DirectAccessError("repair")


class GraphCalls(StorageCalls, ABC, Generic[Rows, Batches, State, Blob]):
    """What a graph implements. Reads take the point they read at; the public methods have checked nothing else."""

    @property
    @abstractmethod
    def uri(self) -> str:
        """The address of the graph."""

    @abstractmethod
    def _bind(
        self,
        source: Any,
        name: str | None,
        params: Mapping[str, Any] | None,
        arguments: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> Call:
        """A query with its parameters: `arguments` are keywords, `options` the other keywords of the public method."""

    # Reads
    @abstractmethod
    def _snapshot(self, point: ReadPoint) -> State: ...
    @abstractmethod
    def _query(self, point: ReadPoint, call: Call, options: Any) -> Rows: ...
    @abstractmethod
    def _stream(self, point: ReadPoint, call: Call, options: Any) -> Batches: ...
    @abstractmethod
    def _explain(self, point: ReadPoint, call: Call, options: Any) -> list[str]: ...
    @abstractmethod
    def _profile(self, point: ReadPoint, call: Call, options: Any) -> OperatorProfile: ...
    @abstractmethod
    def _entity(self, point: ReadPoint, type_name: str, entity_id: str) -> dict[str, Any] | None: ...
    @abstractmethod
    def _count(self, point: ReadPoint, type_name: str, filter: str | None) -> int: ...
    @abstractmethod
    def _listing(self, point: ReadPoint) -> SnapshotListing: ...
    @abstractmethod
    def _index_status(self, point: ReadPoint) -> maintenance.IndexListing: ...
    @abstractmethod
    def _schema_text(self, point: ReadPoint) -> str: ...
    @abstractmethod
    def _commit_id(self, point: ReadPoint) -> str: ...
    @abstractmethod
    def _version(self, point: ReadPoint) -> int: ...
    @abstractmethod
    def _blob(self, point: ReadPoint, cell: BlobCell) -> Blob: ...
    @abstractmethod
    def _export(self, point: ReadPoint, types: Collection[str], epoch: bool) -> Iterator[str]: ...
    @abstractmethod
    def _export_to(self, point: ReadPoint, types: Collection[str], epoch: bool, writer: ByteWriter) -> int: ...

    # Writes
    @abstractmethod
    def _mutate(self, call: Call, branch: str | None, if_commit: str | None, author: Author) -> MutationReceipt: ...
    @abstractmethod
    def _load(self, data: Any, options: LoadOptions, author: Author) -> LoadReceipt: ...
    @abstractmethod
    def _load_lenient(self, data: LoadInput, options: LoadOptions, author: Author) -> LoadReceipt: ...
    @abstractmethod
    def _invoke(
        self,
        point: ReadPoint,
        name: str,
        params: Mapping[str, Any] | None,
        if_commit: str | None,
        expect_mutation: bool | None,
        author: Author,
    ) -> Rows | MutationReceipt: ...

    # Branches
    @abstractmethod
    def _find_branch(self, name: str, create: bool, source: str | None, actor: str | None) -> Any: ...
    @abstractmethod
    def _create_branch(self, name: str, source: str | None, author: Author) -> BranchCreated: ...
    @abstractmethod
    def _delete_branch(self, name: str, author: Author) -> BranchDeleted: ...
    @abstractmethod
    def _merge(self, request: MergeRequest) -> MergeResult: ...
    @abstractmethod
    def _preview_merge(self, request: MergeRequest) -> MergePreview: ...

    # Changes
    @abstractmethod
    def _changes_of(self, commit_id: str, scope: ChangeScope) -> Iterator[SchemaChange | ChangeRecord]: ...
    @abstractmethod
    def _changes_page(
        self, commit_id: str, scope: ChangeScope, page_token: str | None, max_changes: int | None, max_bytes: int | None
    ) -> CommitChangesPage: ...
    @abstractmethod
    def _poll(self, request: PollRequest, wait_ms: int | None) -> ChangePoll: ...
    @abstractmethod
    def _follow(self, request: PollRequest) -> Iterator[ChangePoll]: ...
    @abstractmethod
    def _baseline(self, writer: ByteWriter, branch: str, scope: ChangeScope) -> ChangeBaseline: ...

    # Schema
    @abstractmethod
    def _plan_schema(self, request: SchemaPlanRequest) -> SchemaPlan: ...
    @abstractmethod
    def _apply_schema(self, request: SchemaApplyRequest, author: Author) -> SchemaApplied: ...


class Reads(Generic[Rows, Batches]):
    """The reads that a branch and a snapshot share: those of a graph at one point."""

    def _reader(self) -> tuple[GraphCalls[Rows, Batches, Any, Any], ReadPoint]:
        raise NotImplementedError

    def query(
        self,
        /,
        source: str | QueryHandle,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        options: Any = None,
        **parameters: Any,
    ) -> Rows:
        """Run a read query here; see `Graph.query`."""
        graph, point = self._reader()
        return graph._query(point, graph._bind(source, name, params, parameters, {"options": options}), options)

    def stream(
        self,
        /,
        source: str | QueryHandle,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        options: Any = None,
        **parameters: Any,
    ) -> Batches:
        """Like `query`, a batch at a time: for results that should not be in memory at once."""
        graph, point = self._reader()
        return graph._stream(point, graph._bind(source, name, params, parameters, {"options": options}), options)

    def explain(
        self,
        /,
        source: str | QueryHandle,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        **parameters: Any,
    ) -> list[str]:
        """The plan of a read query as lines of an indented tree. The query does not run."""
        graph, point = self._reader()
        return graph._explain(point, graph._bind(source, name, params, parameters, {}), None)

    def profile(
        self,
        /,
        source: str | QueryHandle,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        **parameters: Any,
    ) -> OperatorProfile:
        """Run a read query, drop its rows and report what each operator did."""
        graph, point = self._reader()
        return graph._profile(point, graph._bind(source, name, params, parameters, {}), None)

    def entity(self, type_name: str, entity_id: str) -> dict[str, Any] | None:
        """One node or edge in export form, by its type (`Book`, or `node:Book`) and id; None when it does not exist."""
        graph, point = self._reader()
        return graph._entity(point, type_name, entity_id)

    def count(self, type_name: str, filter: str | None = None) -> int:
        """The number of entities of a type. A filter names stored columns: it needs a local graph and an actor who
        sees all rows."""
        graph, point = self._reader()
        return graph._count(point, type_name, filter)

    def export(self, types: Collection[str] = (), *, epoch: bool = False) -> Iterator[str]:
        """The lines of an export, each with its line end, ready to be loaded. Dates and times are ISO 8601 texts; with
        `epoch`, days and milliseconds since 1970."""
        graph, point = self._reader()
        return graph._export(point, types, epoch)


class SnapshotApi(Reads[Rows, Batches]):
    """A state of the whole graph that never changes: `branch`, `version` and `commit_id` identify it."""

    if TYPE_CHECKING:

        @property
        def branch(self) -> str: ...
        @property
        def version(self) -> int: ...
        @property
        def commit_id(self) -> str: ...

    def listing(self) -> SnapshotListing:
        """The tables of this state with their versions, and how many entities each has."""
        graph, point = self._reader()
        return graph._listing(point)
