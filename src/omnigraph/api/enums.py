"""The enums of the contract. They import nothing, so that the command line can offer them as choices at no cost."""

from __future__ import annotations

from enum import StrEnum, nonmember


class EntityKind(StrEnum):
    NODE = "node"
    EDGE = "edge"

    WIRE_NAME = nonmember("EntityKindOutput")


class Operation(StrEnum):
    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"

    WIRE_NAME = nonmember("ChangeOpOutput")


class TypeChange(StrEnum):
    """What a schema change did to a type. Each includes those after it: a type that was changed may be renamed too."""

    ADDED = "added"
    DROPPED = "dropped"
    CHANGED = "changed"
    RENAMED = "renamed"
    RULES = "rules"

    WIRE_NAME = nonmember("TypeChangeOutput")


class MergeOutcome(StrEnum):
    ALREADY_UP_TO_DATE = "already_up_to_date"
    FAST_FORWARD = "fast_forward"
    MERGED = "merged"

    WIRE_NAME = nonmember("BranchMergeOutcome")


class ConflictKind(StrEnum):
    DIVERGENT_INSERT = "divergent_insert"
    DIVERGENT_UPDATE = "divergent_update"
    DELETE_VS_UPDATE = "delete_vs_update"
    ORPHAN_EDGE = "orphan_edge"
    UNIQUE_VIOLATION = "unique_violation"
    CARDINALITY_VIOLATION = "cardinality_violation"
    VALUE_CONSTRAINT_VIOLATION = "value_constraint_violation"
    SCHEMA_DIVERGENCE = "schema_divergence"

    WIRE_NAME = nonmember("MergeConflictKindOutput")


class Side(StrEnum):
    """Whose state an entity gets: the target's or the source's."""

    OURS = "ours"
    THEIRS = "theirs"

    @property
    def other(self) -> Side:
        return Side.THEIRS if self is Side.OURS else Side.OURS


class LoadMode(StrEnum):
    """What a load does with ids that exist: refuse them, replace those entities, change only the properties that are
    there, or replace everything. Only `UPDATE` takes no id that does not exist."""

    APPEND = "append"
    MERGE = "merge"
    UPDATE = "update"
    OVERWRITE = "overwrite"


class Grammar(StrEnum):
    """What a load does with records that do not fit the schema.

    `STRICT` refuses them. `LENIENT`, made for old exports, stores a value of a wrong type as null and leaves out
    members that the type does not have; its receipt counts both.
    """

    STRICT = "strict"
    LENIENT = "lenient"

    WIRE_NAME = nonmember("LoadGrammar")

    @property
    def unit(self) -> str:
        """What a position counts: lines of the input, or records of a stream."""
        return "line" if self is Grammar.STRICT else "record"


class ReadFormat(StrEnum):
    """How rows are written out for people and pipes."""

    TABLE = "table"
    KV = "kv"
    CSV = "csv"
    NDJSON = "ndjson"
    JSONL = "jsonl"
    JSON = "json"


class Dates(StrEnum):
    """How an export writes dates and times: as numbers since 1970, days or milliseconds, or as texts of ISO 8601."""

    EPOCH = "epoch"
    ISO = "iso"


class CellLayout(StrEnum):
    """What happens to a cell that is wider than its column."""

    TRUNCATE = "truncate"
    WRAP = "wrap"


class Integers(StrEnum):
    """How integers beyond 2^53 appear: as numbers, or as decimal texts."""

    NATIVE = "native"
    JS_SAFE = "js-safe"


class CodeLanguage(StrEnum):
    """A language that typed code is generated in."""

    PYTHON = "python"
    TYPESCRIPT = "typescript"


class CodeStyle(StrEnum):
    """What the classes of a generated Python module are."""

    DATACLASS = "dataclass"
    PYDANTIC = "pydantic"


class FileFormat(StrEnum):
    PARQUET = "parquet"
    ARROW = "arrow"
    CSV = "csv"


class Classification(StrEnum):
    """`verified_maintenance` moved the attached head and no content; `suspicious` brought rows the graph lacks."""

    NO_DRIFT = "no_drift"
    VERIFIED_MAINTENANCE = "verified_maintenance"
    SUSPICIOUS = "suspicious"
    UNVERIFIABLE = "unverifiable"


class Action(StrEnum):
    NO_OP = "no_op"
    PREVIEW = "preview"
    HEALED = "healed"
    FORCED = "forced"
    REFUSED = "refused"


class PolicyAction(StrEnum):
    """What rules are about. The names are those of policy files, messages, logs and JSON."""

    READ = "read"
    EXPORT = "export"
    CHANGE = "change"
    SCHEMA_APPLY = "schema_apply"
    BRANCH_CREATE = "branch_create"
    BRANCH_DELETE = "branch_delete"
    BRANCH_MERGE = "branch_merge"
    ADMIN = "admin"
    INVOKE_QUERY = "invoke_query"
    GRAPH_LIST = "graph_list"


class ParamKind(StrEnum):
    """What a parameter of a stored query takes, as a client that knows no schema has to tell them apart."""

    STRING = "string"
    BOOL = "bool"
    INT = "int"
    BIGINT = "bigint"
    FLOAT = "float"
    DATE = "date"
    DATETIME = "datetime"
    BLOB = "blob"
    VECTOR = "vector"
    LIST = "list"


class ChangeDiffRefusalReason(StrEnum):
    """Why a commit has no changes that could be told."""

    PARENTLESS_COMMIT = "parentless_commit"
    SCHEMA_BOUNDARY = "schema_boundary"


class Severity(StrEnum):
    """How bad a finding about a cluster is."""

    ERROR = "error"
    WARNING = "warning"


class ResourceOperation(StrEnum):
    """What happens to a resource of a cluster."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


class ChangeDisposition(StrEnum):
    """What becomes of a change: made, followed from others, left for another way, or held up."""

    APPLIED = "applied"
    DERIVED = "derived"
    DEFERRED = "deferred"
    BLOCKED = "blocked"


class StatusKind(StrEnum):
    """How a resource of a cluster stands."""

    PENDING = "pending"
    PLANNED = "planned"
    APPLYING = "applying"
    APPLIED = "applied"
    DRIFTED = "drifted"
    BLOCKED = "blocked"
    ERROR = "error"
