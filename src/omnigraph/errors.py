"""The one error family of OmniGraph.

Every failure that a caller can meet derives from `OmniGraphError` and has machine-readable fields beside its message:
the public attributes that its `__init__` sets. The command line, HTTP and MCP translate errors by class and never parse
texts; `omnigraph.api.service.http` derives the wire form of any class and builds the same error from it again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar


class ErrorCode(StrEnum):
    """The coarse class of a failure on the wire. Some statuses (410, 412, 424, 499, 503) have none."""

    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    BAD_REQUEST = "bad_request"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    CONFLICT = "conflict"
    TOO_MANY_REQUESTS = "too_many_requests"
    INTERNAL = "internal"


_CODES = dict.fromkeys((400, 408, 413, 415, 416, 421, 422), ErrorCode.BAD_REQUEST) | {
    401: ErrorCode.UNAUTHORIZED,
    403: ErrorCode.FORBIDDEN,
    404: ErrorCode.NOT_FOUND,
    405: ErrorCode.METHOD_NOT_ALLOWED,
    409: ErrorCode.CONFLICT,
    429: ErrorCode.TOO_MANY_REQUESTS,
    500: ErrorCode.INTERNAL,
}
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")


class OmniGraphError(Exception):
    """Root of the family. `str(error)` is a complete sentence for a person."""

    http_status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1

    def __init_subclass__(cls, *, http_status: int | None = None) -> None:
        super().__init_subclass__()
        if http_status is not None:
            cls.http_status = http_status

    @property
    def message(self) -> str:
        return str(self)

    @classmethod
    def error_code(cls) -> ErrorCode | None:
        return _CODES.get(cls.http_status)

    @classmethod
    def error_type(cls) -> str:
        """The stable name of the class on the wire, such as `branch_not_found`."""
        return _WORD.sub("_", cls.__name__.removesuffix("Error")).lower()

    @property
    def fields(self) -> dict[str, Any]:
        """The public attributes by name."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}


class BadRequestError(OmniGraphError, http_status=400):
    """The caller asked for something malformed or against a constraint; repeating it can't help."""


class RequestShapeError(BadRequestError, http_status=422):
    """A request that is well-formed JSON but does not have the required shape."""


class DirectAccessError(BadRequestError):
    """An operation that works on storage was called on a remote graph."""

    def __init__(self, operation: str) -> None:
        super().__init__(f"{operation} needs direct storage access: open the graph's own URI with omnigraph.open")
        self.operation = operation


class UnsupportedMediaTypeError(BadRequestError, http_status=415):
    """A body in a format that the operation does not read."""


class HostNotAllowedError(BadRequestError, http_status=421):
    """A server without tokens was called by a host name that is not its own."""

    def __init__(self, host: str) -> None:
        super().__init__(
            f"'{host}' is not a name of this server, which has no tokens: call it by its address or as localhost, "
            f"or start it with --allowed-host NAME"
        )
        self.host = host


class RequestTimeoutError(BadRequestError, http_status=408):
    """A request whose body came too slowly."""


class ConstraintRule(StrEnum):
    """Which rule a `ConstraintError` is about. The texts are part of the contract."""

    RECORD = "record"
    """The record can't be read, or its type is not in the schema."""
    FIELD = "field"
    """The record has a member that its type does not have."""
    TYPE = "type"
    """The value is not of the property's type."""
    REQUIRED = "required"
    """A value is missing where the schema wants one."""
    KEY = "key"
    """The input lists a key twice, or an id contradicts the key of its node."""
    RANGE = "range"
    CHECK = "check"
    ENUM = "enum"
    UNIQUE = "unique"
    ENDPOINT = "endpoint"
    """An edge ends in a node that does not exist, or would no longer exist."""
    CARDINALITY = "cardinality"
    ID = "id"
    """The id is stored already or comes in twice. Writes that end at the first one raise `KeyConflictError`."""
    BLOB = "blob"
    """An external blob is not admitted. Writes that end at the first one raise `ExternalBlobPolicyError`."""
    FINITE = "finite"
    """A stored number is not finite, which the export form has no way to write."""


class ConstraintError(BadRequestError):
    """Data that a rule of the schema forbids. Nothing was written.

    `line` is the position of the record in its input: the line or record of a load, the row of a file or frame, the
    statement of a mutation. `property` is None where a rule spans several, `entity_id` where no single entity broke
    the rule or none has an id yet.
    """

    def __init__(
        self,
        rule: ConstraintRule,
        type_key: str | None = None,
        property: str | None = None,
        entity_id: str | None = None,
        line: int | None = None,
        *,
        message: str,
    ) -> None:
        super().__init__(message)
        self.rule, self.type_key, self.property, self.entity_id = rule, type_key, property, entity_id
        self.line = line


class RowsRejectedError(ConstraintError):
    """A pipeline found more invalid rows than it may leave out. Nothing was written.

    The fields of a `ConstraintError` describe the first of them. `samples` are the first few, ready to be shown;
    `total` counts rows of the input, `allowed` how many the run might have left out.
    """

    def __init__(
        self,
        total: int,
        samples: Sequence[str],
        allowed: int = 0,
        *,
        rule: ConstraintRule,
        type_key: str | None = None,
        property: str | None = None,
        entity_id: str | None = None,
        line: int | None = None,
    ) -> None:
        limit = f", {allowed} are allowed" if allowed else ""
        rows = "1 row was" if total == 1 else f"{total} rows were"
        message = "\n  ".join([f"{rows} rejected{limit}; nothing was written:", *samples])
        super().__init__(rule, type_key, property, entity_id, line, message=message)
        self.total, self.samples, self.allowed = total, tuple(samples), allowed


class EvaluationRule(StrEnum):
    """Which rule an `EvaluationError` is about. The texts are part of the contract."""

    ARITHMETIC_OVERFLOW = "arithmetic_overflow"
    """A result, or a number that enters a calculation, is outside of its type."""
    DIVISION_BY_ZERO = "division_by_zero"
    """An integer was divided by zero."""
    BAD_ARGUMENT = "bad_argument"
    """A function can't take the value of an argument."""
    INVALID_PATTERN = "invalid_pattern"
    """A text is not a regular expression."""
    AMBIGUOUS_WRITE = "ambiguous_write"
    """Two rows give one entity different values."""


class EvaluationError(BadRequestError):
    """A value of a query that can't be calculated from the data at hand. Nothing was written.

    `expression` is the part of the query as text. `type_name` and `entity_id` name the entity of an `ambiguous_write`.
    """

    def __init__(
        self,
        rule: EvaluationRule,
        expression: str,
        type_name: str | None = None,
        entity_id: str | None = None,
        *,
        message: str,
    ) -> None:
        super().__init__(f"{message}, in `{expression}`" if expression else message)
        self.rule, self.expression = rule, expression
        self.type_name, self.entity_id = type_name, entity_id


class NotFoundError(OmniGraphError, http_status=404):
    """Something that the caller named does not exist."""


class BranchNotFoundError(NotFoundError):
    """A branch that does not exist, or no longer exists."""

    def __init__(self, branch: str, hint: str = "") -> None:
        super().__init__(f"branch '{branch}' not found" + (f"; {hint}" if hint else ""))
        self.branch = branch


class EntityNotFoundError(NotFoundError):
    """A node or an edge that does not exist in the state that was read."""

    def __init__(self, type_name: str, entity_id: str) -> None:
        super().__init__(f"there is no {type_name} with the id '{entity_id}'")
        self.type_name, self.entity_id = type_name, entity_id


class HistoricalVersionReclaimedError(NotFoundError, http_status=410):
    """A commit is known, but cleanup has reclaimed table data that it names."""

    def __init__(self, dataset_version_id: str, message: str) -> None:
        super().__init__(message)
        self.dataset_version_id = dataset_version_id


class ConflictError(OmniGraphError, http_status=409):
    """The request conflicts with the state of the graph; nothing was written."""


class AlreadyInitializedError(ConflictError):
    """A location that holds a graph already."""

    def __init__(self, uri: str, message: str | None = None) -> None:
        super().__init__(message or f"'{uri}' already holds a graph; open it, or choose an empty location")
        self.uri = uri


class ReadSetChangedError(ConflictError):
    """The branch moved under a strict write. Nothing was changed; the caller decides whether to run it again."""

    def __init__(self, member: str, expected: str, actual: str) -> None:
        super().__init__(
            f"{member} changed while the write was prepared (expected {expected}, found {actual}); "
            "nothing was written, read the new state and try again"
        )
        self.member, self.expected, self.actual = member, expected, actual


class WriteExpiredError(ConflictError):
    """A write took so long that cleanup may have taken what it staged for garbage. Nothing was written."""

    def __init__(self, days: float, allowed: float) -> None:
        super().__init__(
            f"the write began {days:.1f} days ago and may take {allowed:.1f}, or this machine's clock was turned; "
            "nothing was written, run it again"
        )
        self.days, self.allowed = days, allowed


class ClockSkewError(ConflictError):
    """This machine's clock is too far from the store's for a commit to carry its time. Nothing was written."""

    def __init__(self, clock: str, store: str, tolerance_seconds: float) -> None:
        super().__init__(
            f"nothing was written: this machine's clock says {clock} and the store's {store}, more than "
            f"{tolerance_seconds / 60:g} minutes apart; set the clock that is wrong (timedatectl set-ntp true) and "
            "write again"
        )
        self.clock, self.store, self.tolerance_seconds = clock, store, tolerance_seconds


class IdempotencyKeyReusedError(ConflictError):
    """An idempotency key came back with another request than the one that first used it. Nothing was written.

    `commit_id` is None where that request made or deleted a branch.
    """

    def __init__(self, key: str, commit_id: str | None = None) -> None:
        made = "" if commit_id is None else f", which made commit {commit_id}"
        use = f"idempotency key '{key}' was used for another request{made}"
        super().__init__(f"{use}; nothing was written, choose another key")
        self.key, self.commit_id = key, commit_id


class KeyConflictError(ConflictError):
    """A strict insert met an id that exists already, or that its own input repeats."""

    def __init__(self, type_key: str, entity_id: str | None = None, *, message: str | None = None) -> None:
        named = f" '{entity_id}'" if entity_id is not None else ""
        super().__init__(message or f"{type_key} already holds the id{named}; nothing was written")
        self.type_key, self.entity_id = type_key, entity_id


class MergeConflictsError(ConflictError):
    """Two branches that can't be merged as they are. The target is untouched.

    `conflicts` lists every one as an `omnigraph.api.branches.MergeConflict`.
    """

    _PREVIEWED: ClassVar[int] = 3

    def __init__(self, source: str, target: str, conflicts: Sequence[Any]) -> None:
        shown = "; ".join(conflict.message for conflict in conflicts[: self._PREVIEWED])
        more = f"; and {len(conflicts) - self._PREVIEWED} more" if len(conflicts) > self._PREVIEWED else ""
        counted = f"{len(conflicts)} conflict{'' if len(conflicts) == 1 else 's'}"
        super().__init__(f"can't merge '{source}' into '{target}', {counted}: {shown}{more}")
        self.source, self.target, self.conflicts = source, target, tuple(conflicts)


class PreconditionFailedError(OmniGraphError, http_status=412):
    """A branch is not at the commit that a conditional write expects; nothing was written."""

    exit_code = 4

    def __init__(self, branch: str, expected: str, actual: str | None) -> None:
        position = f"branch '{branch}' is at commit {actual or 'none'}"
        super().__init__(f"{position}, not at {expected} as expected; nothing was written")
        self.branch, self.expected, self.actual = branch, expected, actual


class ResourceLimitError(OmniGraphError, http_status=413):
    """A limit was exceeded; always raised before any effect."""

    def __init__(self, resource: str, limit: int, actual: int, remedy: str = "") -> None:
        message = f"resource limit exceeded for {resource}: actual {actual}, limit {limit}"
        super().__init__(message + (f"; {remedy}" if remedy else ""))
        self.resource, self.limit, self.actual = resource, limit, actual


class TooManyRequestsError(OmniGraphError, http_status=429):
    """An actor has too many requests under way; the same request may succeed after `retry_after` seconds."""

    def __init__(self, message: str, retry_after: int = 60) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class UnavailableError(OmniGraphError, http_status=503):
    """The server can't take the request now; the same request may succeed after `retry_after` seconds."""

    def __init__(self, message: str, retry_after: int = 5) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ServerUnreachableError(OmniGraphError, http_status=503):
    """A server that could not be reached, or did not answer in time. Nothing was changed."""

    def __init__(self, url: str, cause: str) -> None:
        super().__init__(f"can't reach {url}: {cause}")
        self.url, self.cause = url, cause


class AnswerBrokenError(OmniGraphError, http_status=502):
    """A response that broke off. The part that arrived is never returned as if it were the whole."""

    def __init__(self, received: int, cause: str) -> None:
        super().__init__(f"the answer broke off after {received} bytes: {cause}")
        self.received, self.cause = received, cause


class WriteOutcomeUnknownError(OmniGraphError, http_status=504):
    """A write was sent to a server and its response never came: only the server knows whether it happened.

    Repeating it with the same `idempotency_key` is safe. Without a key, check first whether it happened.
    """

    def __init__(self, operation: str, idempotency_key: str | None, cause: str) -> None:
        remedy = "look whether it happened before you repeat it"
        if idempotency_key is not None:
            remedy = f"repeat it with the same idempotency key, '{idempotency_key}'"
        unknown = f"the answer to '{operation}' never came, so whether it happened is not known"
        super().__init__(f"{unknown}: {cause}; {remedy}")
        self.operation, self.idempotency_key, self.cause = operation, idempotency_key, cause


class UnexpectedAnswerError(OmniGraphError, http_status=502):
    """A response that does not come from an OmniGraph server, but from a proxy or another service."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"server returned {status}: {body}")
        self.status, self.body = status, body


class QueryCancelledError(OmniGraphError, http_status=499):
    """A read was stopped by its caller, or exceeded its time limit. Nothing was changed."""

    def __init__(self, reason: str = "the query was cancelled") -> None:
        super().__init__(reason)


class ChangeCursorRejectedError(BadRequestError):
    """A page token or feed cursor that does not belong to the request it came with."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"change cursor rejected: {reason}")
        self.reason = reason


class ChangeFeedGapError(OmniGraphError, http_status=410):
    """History that a diff or feed needs was reclaimed. A consumer starts again from a new baseline."""

    def __init__(self, first_unreadable_commit_id: str, cursor: str | None = None) -> None:
        super().__init__(
            f"the changes of commit {first_unreadable_commit_id} can't be read any more: cleanup reclaimed its data; "
            "take a new baseline"
        )
        self.first_unreadable_commit_id, self.cursor = first_unreadable_commit_id, cursor


class CommitHasNoParentError(ConflictError):
    """The first commit of a graph has no parent to compare it with."""

    reason: ClassVar[str] = "parentless_commit"

    def __init__(self, graph_commit_id: str) -> None:
        super().__init__(
            f"commit {graph_commit_id} is the first of the graph and changes nothing that was there before"
        )
        self.graph_commit_id = graph_commit_id


class ChangeSchemaBoundaryError(ConflictError):
    """A commit that changed the schema of a type that a Spark stream reads.

    Feeds go on over such a commit with a `SchemaChange`. Servers before 0.10 end them with this error.
    """

    reason: ClassVar[str] = "schema_boundary"

    def __init__(self, graph_commit_id: str, type_name: str, remedy: str | None = None) -> None:
        if remedy is None:
            remedy = f"take a new baseline, or start after:{graph_commit_id} once the consumer has migrated"
        super().__init__(f"commit {graph_commit_id} changed the schema of {type_name}; {remedy}")
        self.graph_commit_id, self.type_name = graph_commit_id, type_name


class ExternalBlobPolicyError(BadRequestError):
    """An external blob reference that the handle's policy does not admit. `uri` never carries credentials."""

    def __init__(self, uri: str, reason: str) -> None:
        super().__init__(f"external blob '{uri}' is not admitted: {reason}")
        self.uri, self.reason = uri, reason


class ExternalBlobSourceError(OmniGraphError, http_status=424):
    """An admitted external object that is missing or can't be read."""

    def __init__(self, uri: str, reason: str) -> None:
        super().__init__(f"external blob '{uri}' can't be read: {reason}")
        self.uri, self.reason = uri, reason


class BlobRangeError(OmniGraphError, http_status=416):
    """A byte range that the blob does not have."""

    def __init__(self, start: int, end: int, length: int) -> None:
        super().__init__(f"the range {start}..{end} does not lie within a blob of {length} bytes")
        self.start, self.end, self.length = start, end, length


class BlobIntegrityError(OmniGraphError):
    """Stored data contradicts the catalog. It is never repaired by guessing."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the stored blob can't be trusted: {reason}")
        self.reason = reason


class UnauthorizedError(OmniGraphError, http_status=401):
    """A request without a token where one is required, or with an unknown token."""


class PolicyError(OmniGraphError, http_status=403):
    """The policy does not allow the operation. `reasons` explain why, to callers who may read the policy."""

    reasons: tuple[str, ...] = ()

    def __init__(self, message: str, reasons: Sequence[str] = ()) -> None:
        super().__init__(message)
        if reasons:
            self.reasons = tuple(reasons)


class PolicyEvaluationError(OmniGraphError):
    """A policy that can't be evaluated. Nothing was decided and nothing was done."""

    def __init__(self, details: Sequence[str]) -> None:
        super().__init__(f"policy: policy evaluation failed: {'; '.join(details)}")
        self.details = tuple(details)


class BootRefusedError(OmniGraphError):
    """A server can't start; `messages` hold every reason. Nothing is served."""

    def __init__(self, messages: Sequence[str]) -> None:
        super().__init__("\n".join(messages))
        self.messages = tuple(messages)


class StorageErrorKind(StrEnum):
    """After `transient` and `unknown` the operation may have happened; after every other kind it did not."""

    TRANSIENT = "transient"
    CONFIGURATION = "configuration"
    FULL = "storage_full"
    NOT_FOUND = "not_found"
    PRECONDITION = "precondition"
    PERMANENT = "permanent"
    UNKNOWN = "unknown"


class StorageError(OmniGraphError):
    """The store failed. `transient` alone never authorises a retry: the operation may have happened."""

    def __init__(self, kind: StorageErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind

    @property
    def may_have_happened(self) -> bool:
        """Whether only the store knows if the operation took effect. Ask the store; never guess."""
        return self.kind in (StorageErrorKind.TRANSIENT, StorageErrorKind.UNKNOWN)


class CommitOutcomeUnknownError(StorageError):
    """The store stopped responding during a publish: only the store knows whether the commit exists.

    Repeating the write with the same idempotency key is safe, and so is a later lookup of the commit id.
    """

    def __init__(self, commit_id: str, cause: str) -> None:
        super().__init__(
            StorageErrorKind.UNKNOWN,
            f"the store did not confirm commit {commit_id} ({cause}); look the commit up, "
            "or repeat the write with the same idempotency key",
        )
        self.commit_id = commit_id


class IntegrityError(OmniGraphError):
    """A persisted object contradicts the format. It is never repaired by guessing."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason


class FormatVersionError(OmniGraphError, http_status=409):
    """The graph was written by a version of OmniGraph that this one can't read."""

    def __init__(self, path: str, found: int, supported: int) -> None:
        remedy = "export it with the omnigraph version that wrote it, then init and load it with this one"
        if found > supported:
            remedy = "upgrade omnigraph first"
        super().__init__(f"{path} has storage format {found}, this omnigraph reads format {supported}: {remedy}")
        self.path, self.found, self.supported = path, found, supported


class EmbeddingError(OmniGraphError):
    """A text could not be turned into a vector: no provider, no key, no answer, or an unusable one."""


@dataclass(frozen=True, slots=True)
class Span:
    """A position in a source text: 1-based line and column, and the byte range."""

    line: int
    column: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding of a compiler, complete enough to be shown without the source."""

    code: str
    message: str
    span: Span | None = None
    source_line: str | None = None
    suggestion: str | None = None
    path: str | None = None

    def render(self) -> str:
        """`path:line:column: code: message`, the offending line with a caret under it, and the suggestion."""
        where = f"{self.path or '<input>'}:" + (f"{self.span.line}:{self.span.column}:" if self.span else "")
        lines = [f"{where} {self.code}: {self.message}"]
        if self.span is not None and self.source_line is not None:
            # Tabs are kept in the padding so that the caret is under its column in any terminal.
            before = self.source_line[: self.span.column - 1]
            padding = "".join(c if c == "\t" else " " for c in before)
            room = max(1, len(self.source_line) - len(before))
            width = max(1, min(self.span.end - self.span.start, room))
            lines += [f"  {self.source_line}", f"  {padding}{'^' * width}"]
        if self.suggestion:
            lines.append(f"  help: {self.suggestion}")
        return "\n".join(lines)


class CompileError(BadRequestError):
    """A schema or query that does not parse or typecheck. Carries every finding, in source order."""

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        if not diagnostics:
            raise ValueError("a compile error needs at least one diagnostic")
        super().__init__("\n".join(d.render() for d in diagnostics))
        self.diagnostics = tuple(diagnostics)

    @property
    def code(self) -> str:
        """The code of the first finding, such as `T3`."""
        return self.diagnostics[0].code

    @property
    def span(self) -> Span | None:
        """The position of the first finding, if it has one."""
        return self.diagnostics[0].span
