"""The publish machine: the only place where a prepared write becomes a commit.

A write captures a head once (`WriteTxn`), stages tables against that snapshot only, and declares its staged versions
and its read set (`PublishPlan`). Publishing takes the next slot of the branch's log. When another writer took it:

1. nothing the plan touched or relied on has changed -> the same staged versions go into the next slot;
2. the write can be prepared again -> it is, completely, against the new head;
3. otherwise the caller gets a structured conflict, and nothing has happened.

A writer that keeps losing waits in the queue of the branch (`storage.log.writer_queue`). `HeldSource` protects a state
that a write builds on without having written it, such as a merge source: a version of main's past is pinned first and
looked at afterwards (docs/dev/protocol.md).
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from omnigraph.api.commits import CommitReceipt
from omnigraph.engine.history import log_walk
from omnigraph.engine.resources import Resources
from omnigraph.engine.snapshot import Snapshot
from omnigraph.errors import (
    BranchNotFoundError,
    HistoricalVersionReclaimedError,
    IdempotencyKeyReusedError,
    PreconditionFailedError,
    ReadSetChangedError,
)
from omnigraph.language.query.row_filter import UNRESTRICTED
from omnigraph.storage import models
from omnigraph.storage.identifiers import MAIN, new_commit_id, now_micros, version_in
from omnigraph.storage.log.write_guard import WriteAge
from omnigraph.storage.log.writer_queue import QueueTicket
from omnigraph.storage.root import GraphRoot

if TYPE_CHECKING:
    import pyarrow as pa

    from omnigraph.storage.tables.staging import StagedTable

RETRY_SECONDS = 60.0
"""How long a write that can be prepared again keeps trying. A budget of time and not of attempts: each loss means
that somebody else succeeded, and the slowest of many writers must get its turn."""

LOSSES_BEFORE_QUEUE = 3
"""A chance meeting is settled by trying again. A writer that keeps losing has company, and queues."""


@dataclass(frozen=True, slots=True)
class Intent:
    """What is known of a write before it looks at the graph, stable over every retry. `request_digest` says what was
    asked for: it distinguishes a repeat from another request under the same idempotency key."""

    kind: str
    actor: str | None = None
    message: str | None = None
    idempotency_key: str | None = None
    request_digest: str | None = None
    expected_head: str | None = None
    details: Mapping[str, str] = field(default_factory=dict)
    authored_at: int = field(default_factory=now_micros)


@dataclass(frozen=True, slots=True)
class WriteTxn:
    """One attempt's view of the graph: the captured head, and nothing newer."""

    resources: Resources
    ref: models.BranchRef
    base: models.LogEntry
    intent: Intent
    began: float = field(default_factory=time.monotonic, compare=False)
    age: WriteAge = field(default_factory=WriteAge, compare=False)

    @property
    def root(self) -> GraphRoot:
        return self.resources.root

    @property
    def snapshot(self) -> Snapshot:
        """The whole head: rules of the schema hold for all rows, visible or not."""
        return Snapshot(self.resources, self.ref.branch, self.base, UNRESTRICTED)

    def state(self, type_key: str) -> models.TableState:
        return self.snapshot.table(type_key).state

    def stage(self, jobs: Mapping[str, Callable[[models.TableState], StagedTable]]) -> dict[str, StagedTable]:
        """Run one staging job per table, all in parallel, each on the table's version in the captured head."""
        self.root.guard.begin()
        self.root.trace.reach("stage.before")
        futures = {key: self.root.workers.submit(job, self.state(key)) for key, job in jobs.items()}
        staged = {key: future.result() for key, future in futures.items()}
        self.root.trace.reach("stage.all.after")
        return staged


@dataclass(frozen=True, slots=True)
class ReadSet:
    """What a plan's validity rests on, beyond the tables it writes.

    `tables` were read as a whole; of `present` only the named ids matter, each once, so an unrelated change of the same
    table does not invalidate the plan. `everything` is for plans that read the whole graph.
    """

    tables: frozenset[str] = frozenset()
    present: Mapping[str, frozenset[str] | pa.Array] = field(default_factory=dict)
    everything: bool = False


@dataclass(frozen=True, slots=True)
class PublishPlan:
    """What a write made of the captured head.

    A strict plan is never prepared again: it rests on what its author saw, so a change of that is the author's to
    judge. `details` are recorded in the commit beside those of the intent. `held_since` is for plans that name versions
    of another branch, which are held for as long as a write may take.
    """

    staged: Mapping[str, StagedTable]
    read_set: ReadSet = field(default_factory=ReadSet)
    added: Mapping[str, models.TableState] = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()
    schema: str | None = None
    merged: models.ParentLink | None = None
    strict: bool = False
    details: Mapping[str, str] = field(default_factory=dict)
    held_since: WriteAge | None = None


@dataclass(frozen=True, slots=True)
class PublishedCommit:
    """Where a write ended up. `replayed` when an earlier write with the same idempotency key had done it already."""

    branch: str
    entry: models.LogEntry
    replayed: bool = False

    @property
    def commit_id(self) -> str:
        return self.entry.commit.id

    @property
    def version(self) -> int:
        return self.entry.version


def receipt_of(entry: models.LogEntry) -> CommitReceipt:
    """A commit as it is shown to others."""
    parents = [parent.commit_id for parent in entry.commit.parents]
    return CommitReceipt(
        graph_commit_id=entry.commit.id,
        graph_branch=None if entry.branch == MAIN else entry.branch,
        graph_manifest_version=entry.version,
        parent_commit_id=parents[0] if parents else None,
        merged_parent_commit_id=parents[1] if len(parents) > 1 else None,
        actor_id=entry.commit.actor,
        created_at=entry.commit.authored_at,
    )


Prepare = Callable[[WriteTxn], PublishPlan]


def begin(resources: Resources, branch: str, intent: Intent) -> WriteTxn:
    """Capture the head: the only head resolution of an attempt."""
    head = resources.root.branches.head(branch)
    return WriteTxn(resources, head.ref, head.entry, intent)


def begin_repeat(resources: Resources, branch: str, intent: Intent) -> WriteTxn | None:
    """The last commit of a branch that was deleted, for a write whose key it may remember. Nothing can be published
    there."""
    ended = None if intent.idempotency_key is None else resources.root.branches.last_of_deleted(branch)
    return None if ended is None else WriteTxn(resources, ended.ref, ended.entry, intent)


def refuse_other_head(txn: WriteTxn) -> None:
    """A conditional write is for one head only. Look for the write's own earlier commit first: it moved the head."""
    expected, head = txn.intent.expected_head, txn.base.commit.id
    if expected is not None and expected != head:
        raise PreconditionFailedError(txn.ref.branch, expected, head)


@dataclass(frozen=True, slots=True)
class EarlierWrite:
    """The commit that an earlier write with the same idempotency key made."""

    key: models.IdempotencyRecord
    entry: models.LogEntry

    def answer(self, txn: WriteTxn, request_digest: str | None) -> PublishedCommit:
        """The commit, for the same request.

        IdempotencyKeyReusedError when the earlier write was asked for something else, or by somebody else where rules
        say who sees what: a receipt counts what its author saw, and what an author sees decides what a write does.
        """
        author, actor = self.entry.commit.actor, txn.intent.actor
        foreign = txn.resources.gate is not None and actor is not None and author != actor
        if foreign or self.key.request not in (None, request_digest):
            raise self.other_request()
        txn.root.log.confirm(self.entry.branch_id, self.entry.version)
        return PublishedCommit(txn.ref.branch, self.entry, replayed=True)

    def other_request(self) -> IdempotencyKeyReusedError:
        return IdempotencyKeyReusedError(self.key.key, self.key.commit_id)


def earlier_write(txn: WriteTxn) -> EarlierWrite | None:
    """What was written under the idempotency key of this write, if the captured head remembers it."""
    key = txn.intent.idempotency_key
    record = txn.base.with_key(key) if key is not None else None
    if record is None:
        return None
    address = txn.ref.locate(record.version)
    entry = txn.root.log.entry(address.branch_id, address.version)
    if not isinstance(entry, models.LogEntry) or entry.commit.id != record.commit_id:
        return None  # the key was used on a line of history that this branch does not share
    return EarlierWrite(record, entry)


def already_published(txn: WriteTxn) -> PublishedCommit | None:
    """The commit that an earlier write with this idempotency key made; see `EarlierWrite.answer`."""
    earlier = earlier_write(txn)
    return None if earlier is None else earlier.answer(txn, txn.intent.request_digest)


def commit(
    resources: Resources,
    branch: str,
    prepare: Callable[[WriteTxn], PublishPlan | None],
    intent: Intent,
    *,
    strict: bool,
) -> PublishedCommit | None:
    """One write from head to commit; None when `prepare` found nothing to do."""
    with QueueTicket(resources.root.writer_queue, branch) as ticket:
        if ticket.is_contended:
            ticket.wait(time.monotonic() + RETRY_SECONDS)
        try:
            txn = begin(resources, branch, intent)
        except BranchNotFoundError:
            repeat = begin_repeat(resources, branch, intent)
            if repeat is None or (done := already_published(repeat)) is None:
                raise
            return done
        if (done := already_published(txn)) is not None:
            return done
        refuse_other_head(txn)
        try:
            plan = prepare(txn)
        except HistoricalVersionReclaimedError:
            captured, txn = txn, begin(resources, branch, intent)
            if txn.base.commit.id == captured.base.commit.id:
                raise
            if (done := already_published(txn)) is not None:
                return done
            refuse_other_head(txn)
            # The branch moved on and a cleanup released the captured head; nothing was staged that could be lost.
            plan = prepare(txn)
        if plan is None:
            return None
        return _publish(txn, plan, None if strict else prepare, ticket)


def publish(txn: WriteTxn, plan: PublishPlan, prepare_again: Prepare | None = None) -> PublishedCommit:
    """Make the plan visible, or raise with nothing changed. Strict unless the write can be prepared again."""
    with QueueTicket(txn.root.writer_queue, txn.ref.branch) as ticket:
        published = _publish(txn, plan, prepare_again, ticket)
    if published is None:
        raise AssertionError("a plan that is made again is a plan")
    return published


def _publish(
    txn: WriteTxn,
    plan: PublishPlan,
    prepare_again: Callable[[WriteTxn], PublishPlan | None] | None,
    ticket: QueueTicket,
) -> PublishedCommit | None:
    """None when another writer was faster, and nothing is left to do on its head."""
    root, head, began = txn.root, txn.base, txn.began
    give_up_at = time.monotonic() + RETRY_SECONDS
    for attempt in itertools.count(1):
        entry = _next_entry(txn, plan, head)
        root.trace.reach("publish.before")
        (plan.held_since or txn.age).refuse_overdue()
        standing = root.log.publish(entry)
        won = isinstance(standing, models.LogEntry) and standing.commit.id == entry.commit.id
        ticket.record_attempt(time.monotonic() - began)
        if won:
            root.trace.reach("publish.after")
            return PublishedCommit(txn.ref.branch, entry)
        if attempt >= LOSSES_BEFORE_QUEUE:
            ticket.saw_others()
            ticket.wait(give_up_at)
        moved = begin(txn.resources, txn.ref.branch, txn.intent)
        if moved.ref.branch_id != txn.ref.branch_id:
            # Another branch of the same name is not the branch the caller wrote to.
            raise BranchNotFoundError(txn.ref.branch, "it was deleted, and a new branch has its name")
        began = moved.began
        if (done := already_published(moved)) is not None:
            return done
        refuse_other_head(moved)
        if _still_holds(plan, txn, moved.base):
            head = moved.base
        elif plan.strict or prepare_again is None or time.monotonic() > give_up_at:
            ticket.saw_others()  # the caller may try again, and should not lose again
            head_name = f"graph_head:{txn.ref.branch}"
            raise ReadSetChangedError(head_name, txn.base.commit.id, moved.base.commit.id)
        else:
            txn, head = moved, moved.base
            if (again := prepare_again(txn)) is None:
                return None
            plan = again
    raise AssertionError("unreachable")


def _still_holds(plan: PublishPlan, txn: WriteTxn, head: models.LogEntry) -> bool:
    """Whether the plan, made for its base, is just as valid on `head`."""
    base = txn.base
    if plan.read_set.everything or base.schema != head.schema:
        return False
    whole = {*plan.staged, *plan.dropped, *plan.read_set.tables}
    if plan.added.keys() & head.tables.keys() or any(base.tables.get(k) != head.tables.get(k) for k in whole):
        return False
    for type_key, ids in plan.read_set.present.items():
        state = head.tables.get(type_key)
        if state == base.tables.get(type_key):
            continue
        if state is None or txn.root.reader.open(state).rows_among("id", ids, ["id"]).num_rows != len(ids):
            return False
    return True


def _next_entry(txn: WriteTxn, plan: PublishPlan, head: models.LogEntry) -> models.LogEntry:
    intent, version = txn.intent, head.version + 1
    commit_id = new_commit_id(version)
    tables = {k: v for k, v in head.tables.items() if k not in plan.dropped}
    tables |= {**plan.added, **{k: s.state for k, s in plan.staged.items()}}
    keys = head.recent_keys
    if intent.idempotency_key is not None:
        used = models.IdempotencyRecord(intent.idempotency_key, commit_id, version, intent.request_digest)
        keys = (*keys, used)[-models.IDEMPOTENCY_WINDOW :]
    return models.LogEntry(
        format=models.FORMAT_VERSION,
        graph_id=txn.root.identity.graph_id,
        branch=txn.ref.branch,
        branch_id=txn.ref.branch_id,
        version=version,
        commit=models.Commit(
            id=commit_id,
            kind=intent.kind,
            parents=(head.link, *((plan.merged,) if plan.merged else ())),
            authored_at=intent.authored_at,
            published_at=_time_after(txn, plan, head),
            actor=intent.actor,
            message=intent.message,
            changes={k: s.changes for k, s in sorted(plan.staged.items())},
            details={**intent.details, **plan.details},
        ),
        schema=plan.schema or head.schema,
        tables=tables,
        recent_keys=keys,
        table_versions=head.table_versions_of_next(tables),
    )


def _time_after(txn: WriteTxn, plan: PublishPlan, head: models.LogEntry) -> int:
    """Now, but later than every parent: clocks differ between machines, while time travel needs a branch's times in
    the order of its versions, and the search for a merge base needs ancestors to be older."""
    times = [head.commit.published_at]
    if plan.merged is not None:
        merged = txn.root.log.entry(plan.merged.branch_id, plan.merged.version)
        times += [merged.commit.published_at] if isinstance(merged, models.LogEntry) else []
    return max(now_micros(), max(times) + 1)


@dataclass(frozen=True, slots=True)
class HeldSource:
    """A commit on the line of a live branch. No cleanup takes its data while the block that holds it runs."""

    ref: models.BranchRef
    entry: models.LogEntry
    age: WriteAge = field(default_factory=WriteAge, compare=False)


@contextlib.contextmanager
def held_source(root: GraphRoot, source: str) -> Iterator[HeldSource]:
    """The head of a branch, or a commit that a live branch has, held for the time of the block."""
    source = source.strip()
    if source == MAIN:
        newest = root.log.last_known(root.identity.main) or root.branches.head(MAIN).entry
        with root.pins.hold(newest.version):
            head = root.branches.head(MAIN)
            yield HeldSource(head.ref, head.entry)
    elif version_in(source) is None:
        head = root.branches.head(source)
        yield HeldSource(head.ref, head.entry)
    else:
        ref, entry = log_walk.find(root, source)
        if entry.branch_id != root.identity.main.branch_id:
            yield HeldSource(ref, entry)
        else:
            with root.pins.hold(entry.version, entry.version):
                root.cleanup_journal.refuse(entry)
                yield HeldSource(ref, entry)
