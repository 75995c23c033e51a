"""OmniGraph: a typed property graph on Lance, versioned as a whole like Git."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.10.0"

__all__ = [
    "AllowedBase",
    "AnswerBrokenError",
    "AsyncRemoteGraph",
    "BadRequestError",
    "Branch",
    "BranchNotFoundError",
    "ChangeBaseline",
    "ChangeFeedGapError",
    "ChangePoll",
    "ChangeRecord",
    "ChangeScope",
    "ChangeSet",
    "CleanupReport",
    "CommitChangesPage",
    "CommitHistory",
    "CommitList",
    "CommitOutcomeUnknownError",
    "CommitReceipt",
    "CommitSummary",
    "CompileError",
    "ConflictError",
    "ConstraintError",
    "CsvDialect",
    "DirectAccessError",
    "DocumentEmbedder",
    "Embedder",
    "EmbeddingError",
    "ExportedFile",
    "ExternalBlobPolicy",
    "Graph",
    "GraphApi",
    "IdempotencyKeyReusedError",
    "KeyConflictError",
    "Limits",
    "LoadReceipt",
    "MaintenancePolicy",
    "MaintenanceReport",
    "MergeConflictsError",
    "MergePreview",
    "MergeResult",
    "MutationReceipt",
    "NotFoundError",
    "OmniGraphError",
    "OptimizeReport",
    "PendingProperty",
    "PolicyError",
    "PreconditionFailedError",
    "Queries",
    "Query",
    "QueryLimits",
    "QueryResult",
    "QueryStream",
    "ReadOptions",
    "ReadSetChangedError",
    "RemoteGraph",
    "RemoteSnapshot",
    "RepairReport",
    "Resolutions",
    "ResourceLimitError",
    "Retention",
    "SchemaApplied",
    "SchemaPlan",
    "ServerUnreachableError",
    "Snapshot",
    "StorageError",
    "Verification",
    "WriteOutcomeUnknownError",
    "__version__",
    "connect",
    "connect_async",
    "init",
    "open",
    "queries",
]

if TYPE_CHECKING:
    from omnigraph.api.branches import MergePreview, MergeResult, Resolutions
    from omnigraph.api.governance import Limits, QueryLimits
    from omnigraph.api.graph import Branch, GraphApi
    from omnigraph.api.history import (
        ChangeBaseline,
        ChangePoll,
        ChangeRecord,
        ChangeScope,
        ChangeSet,
        CommitChangesPage,
        CommitHistory,
        CommitList,
        CommitReceipt,
        CommitSummary,
    )
    from omnigraph.api.load import LoadReceipt, MutationReceipt
    from omnigraph.api.maintenance import (
        CleanupReport,
        MaintenancePolicy,
        MaintenanceReport,
        OptimizeReport,
        PendingProperty,
        RepairReport,
        Retention,
        Verification,
    )
    from omnigraph.api.queries import ExportedFile
    from omnigraph.api.schema import SchemaApplied, SchemaPlan
    from omnigraph.client import AsyncRemoteGraph, RemoteGraph, RemoteSnapshot
    from omnigraph.engine.query.read import ReadOptions
    from omnigraph.engine.query.result import QueryResult, QueryStream
    from omnigraph.engine.query.search.embedder import DocumentEmbedder, Embedder
    from omnigraph.engine.rows.kernels.csv_rows import CsvDialect
    from omnigraph.engine.write.external_blobs import AllowedBase, ExternalBlobPolicy
    from omnigraph.errors import (
        AnswerBrokenError,
        BadRequestError,
        BranchNotFoundError,
        ChangeFeedGapError,
        CommitOutcomeUnknownError,
        CompileError,
        ConflictError,
        ConstraintError,
        DirectAccessError,
        EmbeddingError,
        IdempotencyKeyReusedError,
        KeyConflictError,
        MergeConflictsError,
        NotFoundError,
        OmniGraphError,
        PolicyError,
        PreconditionFailedError,
        ReadSetChangedError,
        ResourceLimitError,
        ServerUnreachableError,
        StorageError,
        WriteOutcomeUnknownError,
    )
    from omnigraph.graph import Graph, Snapshot
    from omnigraph.local import init, open
    from omnigraph.remote import connect, connect_async
    from omnigraph.sources import Queries, Query, queries

_HOMES = {
    "api.branches": "MergePreview MergeResult Resolutions",
    "api.governance": "Limits QueryLimits",
    "api.graph": "Branch GraphApi",
    "api.history": "ChangeBaseline ChangePoll ChangeRecord ChangeScope ChangeSet CommitChangesPage CommitHistory "
    "CommitList CommitReceipt CommitSummary",
    "api.load": "LoadReceipt MutationReceipt",
    "api.maintenance": "CleanupReport MaintenancePolicy MaintenanceReport OptimizeReport PendingProperty RepairReport "
    "Retention Verification",
    "api.queries": "ExportedFile",
    "api.schema": "SchemaApplied SchemaPlan",
    "client": "AsyncRemoteGraph RemoteGraph RemoteSnapshot",
    "engine.query.read": "ReadOptions",
    "engine.query.result": "QueryResult QueryStream",
    "engine.query.search.embedder": "DocumentEmbedder Embedder",
    "engine.rows.kernels.csv_rows": "CsvDialect",
    "engine.write.external_blobs": "AllowedBase ExternalBlobPolicy",
    "graph": "Graph Snapshot",
    "local": "init open",
    "remote": "connect connect_async",
    "sources": "Queries Query queries",
}
_HOME_OF = {name: f"omnigraph.{home}" for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Importing the package costs nothing; the engine, and Lance with it, is loaded when first used."""
    home = _HOME_OF.get(name) or ("omnigraph.errors" if name in __all__ else None)
    if home is None:
        raise AttributeError(f"module 'omnigraph' has no attribute '{name}'")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
