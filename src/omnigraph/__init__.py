"""OmniGraph: a typed property graph on Lance, versioned as a whole like Git."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.10.0"

if TYPE_CHECKING:
    from omnigraph.api.branches import MergePreview as MergePreview
    from omnigraph.api.branches import MergeResult as MergeResult
    from omnigraph.api.branches import Resolutions as Resolutions
    from omnigraph.api.commits import CommitHistory as CommitHistory
    from omnigraph.api.commits import CommitList as CommitList
    from omnigraph.api.commits import CommitReceipt as CommitReceipt
    from omnigraph.api.commits import CommitSummary as CommitSummary
    from omnigraph.api.governance import Limits as Limits
    from omnigraph.api.governance import QueryLimits as QueryLimits
    from omnigraph.api.graph import Branch as Branch
    from omnigraph.api.graph import GraphApi as GraphApi
    from omnigraph.api.history import ChangeBaseline as ChangeBaseline
    from omnigraph.api.history import ChangePoll as ChangePoll
    from omnigraph.api.history import ChangeRecord as ChangeRecord
    from omnigraph.api.history import ChangeScope as ChangeScope
    from omnigraph.api.history import ChangeSet as ChangeSet
    from omnigraph.api.history import CommitChangesPage as CommitChangesPage
    from omnigraph.api.history import SchemaChange as SchemaChange
    from omnigraph.api.load import LoadReceipt as LoadReceipt
    from omnigraph.api.load import MutationReceipt as MutationReceipt
    from omnigraph.api.maintenance import CleanupReport as CleanupReport
    from omnigraph.api.maintenance import IndexListing as IndexListing
    from omnigraph.api.maintenance import IndexStatus as IndexStatus
    from omnigraph.api.maintenance import MaintenancePolicy as MaintenancePolicy
    from omnigraph.api.maintenance import MaintenanceReport as MaintenanceReport
    from omnigraph.api.maintenance import OptimizeReport as OptimizeReport
    from omnigraph.api.maintenance import PendingProperty as PendingProperty
    from omnigraph.api.maintenance import RepairReport as RepairReport
    from omnigraph.api.maintenance import Retention as Retention
    from omnigraph.api.maintenance import Verification as Verification
    from omnigraph.api.queries import ExportedFile as ExportedFile
    from omnigraph.api.schema import ProposedType as ProposedType
    from omnigraph.api.schema import SchemaApplied as SchemaApplied
    from omnigraph.api.schema import SchemaPlan as SchemaPlan
    from omnigraph.api.schema import SchemaProposal as SchemaProposal
    from omnigraph.client import AsyncRemoteGraph as AsyncRemoteGraph
    from omnigraph.client import RemoteGraph as RemoteGraph
    from omnigraph.client import RemoteSnapshot as RemoteSnapshot
    from omnigraph.engine.infer.proposal import infer_schema as infer_schema
    from omnigraph.engine.query.read import ReadOptions as ReadOptions
    from omnigraph.engine.query.result import QueryResult as QueryResult
    from omnigraph.engine.query.result import QueryStream as QueryStream
    from omnigraph.engine.query.search.embedder import DocumentEmbedder as DocumentEmbedder
    from omnigraph.engine.query.search.embedder import Embedder as Embedder
    from omnigraph.engine.rows.kernels.csv_rows import CsvDialect as CsvDialect
    from omnigraph.engine.write.external_blobs import AllowedBase as AllowedBase
    from omnigraph.engine.write.external_blobs import ExternalBlobPolicy as ExternalBlobPolicy
    from omnigraph.errors import AnswerBrokenError as AnswerBrokenError
    from omnigraph.errors import BadRequestError as BadRequestError
    from omnigraph.errors import BranchNotFoundError as BranchNotFoundError
    from omnigraph.errors import ChangeFeedGapError as ChangeFeedGapError
    from omnigraph.errors import CommitOutcomeUnknownError as CommitOutcomeUnknownError
    from omnigraph.errors import CompileError as CompileError
    from omnigraph.errors import ConflictError as ConflictError
    from omnigraph.errors import ConstraintError as ConstraintError
    from omnigraph.errors import DirectAccessError as DirectAccessError
    from omnigraph.errors import EmbeddingError as EmbeddingError
    from omnigraph.errors import IdempotencyKeyReusedError as IdempotencyKeyReusedError
    from omnigraph.errors import KeyConflictError as KeyConflictError
    from omnigraph.errors import MergeConflictsError as MergeConflictsError
    from omnigraph.errors import NotFoundError as NotFoundError
    from omnigraph.errors import OmniGraphError as OmniGraphError
    from omnigraph.errors import PolicyError as PolicyError
    from omnigraph.errors import PreconditionFailedError as PreconditionFailedError
    from omnigraph.errors import ReadSetChangedError as ReadSetChangedError
    from omnigraph.errors import ResourceLimitError as ResourceLimitError
    from omnigraph.errors import ServerUnreachableError as ServerUnreachableError
    from omnigraph.errors import StorageError as StorageError
    from omnigraph.errors import WriteOutcomeUnknownError as WriteOutcomeUnknownError
    from omnigraph.graph import Graph as Graph
    from omnigraph.graph import Snapshot as Snapshot
    from omnigraph.local import init as init
    from omnigraph.local import open as open
    from omnigraph.remote import connect as connect
    from omnigraph.remote import connect_async as connect_async
    from omnigraph.sources import Queries as Queries
    from omnigraph.sources import Query as Query
    from omnigraph.sources import queries as queries

_HOMES = {
    "api.branches": "MergePreview MergeResult Resolutions",
    "api.commits": "CommitHistory CommitList CommitReceipt CommitSummary",
    "api.governance": "Limits QueryLimits",
    "api.graph": "Branch GraphApi",
    "api.history": "ChangeBaseline ChangePoll ChangeRecord ChangeScope ChangeSet CommitChangesPage SchemaChange",
    "api.load": "LoadReceipt MutationReceipt",
    "api.maintenance": "CleanupReport IndexListing IndexStatus MaintenancePolicy MaintenanceReport OptimizeReport "
    "PendingProperty RepairReport Retention Verification",
    "api.queries": "ExportedFile",
    "api.schema": "ProposedType SchemaApplied SchemaPlan SchemaProposal",
    "client": "AsyncRemoteGraph RemoteGraph RemoteSnapshot",
    "engine.infer.proposal": "infer_schema",
    "engine.query.read": "ReadOptions",
    "engine.query.result": "QueryResult QueryStream",
    "engine.query.search.embedder": "DocumentEmbedder Embedder",
    "engine.rows.kernels.csv_rows": "CsvDialect",
    "engine.write.external_blobs": "AllowedBase ExternalBlobPolicy",
    "errors": "AnswerBrokenError BadRequestError BranchNotFoundError ChangeFeedGapError CommitOutcomeUnknownError "
    "CompileError ConflictError ConstraintError DirectAccessError EmbeddingError IdempotencyKeyReusedError "
    "KeyConflictError MergeConflictsError NotFoundError OmniGraphError PolicyError PreconditionFailedError "
    "ReadSetChangedError ResourceLimitError ServerUnreachableError StorageError WriteOutcomeUnknownError",
    "graph": "Graph Snapshot",
    "local": "init open",
    "remote": "connect connect_async",
    "sources": "Queries Query queries",
}
_HOME_OF = {name: f"omnigraph.{home}" for home, names in _HOMES.items() for name in names.split()}

__all__ = sorted([*_HOME_OF, "__version__"])


def __getattr__(name: str) -> Any:
    """Importing the package costs nothing; the engine, and Lance with it, is loaded when first used."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'omnigraph' has no attribute '{name}'")
    from omnigraph.process import without_collections

    with without_collections():
        value = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
