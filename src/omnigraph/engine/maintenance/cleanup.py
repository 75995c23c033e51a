"""Cleanup: mark what every retained snapshot names, sweep the rest. Only here is published table data deleted.

Roots are the head and the whole private history of every live branch, the commits those build on, the part of main's
history that the policy retains, what writes in flight have pinned, and branches deleted within the grace period. A file
goes when no root names it and no write in flight can come to need it. Log entries are never touched, so a reclaimed
commit is still known by its id and reading it raises HistoricalVersionReclaimedError. A failure in one table leaves
the others alone, and a cleanup that was interrupted is finished by the next one. How this and a concurrent publish
keep out of each other's way is in docs/dev/protocol.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from omnigraph.api.maintenance import GRACE, CleanupReport, Retention, TableCleaned
from omnigraph.engine.history import log_walk
from omnigraph.engine.observers import Progress, Tally
from omnigraph.engine.workspace import Workspace
from omnigraph.errors import (
    ConflictError,
    HistoricalVersionReclaimedError,
    NotFoundError,
    OmniGraphError,
    StorageError,
    StorageErrorKind,
)
from omnigraph.storage.identifiers import MAIN, now_micros
from omnigraph.storage.log.branches import BranchHead
from omnigraph.storage.log.cleanup_journal import Pin
from omnigraph.storage.models import BranchRef, LogEntry, TableState, Tombstone, manifest_name
from omnigraph.storage.objects import DELETED_AT_ONCE
from omnigraph.storage.root import GraphRoot
from omnigraph.storage.tables.files import FileKind, TableFile, deletable_files, leaf_folders, table_file
from omnigraph.storage.tables.lance_errors import attached_version

_ENTRIES_AT_ONCE: Final = 256
_CLOCK_TOLERANCE: Final = timedelta(hours=1)
"""A shorter grace period than this says nothing about how far two clocks may be apart."""


def cleanup(
    workspace: Workspace,
    retention: Retention,
    *,
    grace: timedelta = GRACE,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> CleanupReport:
    """Delete what no retained snapshot needs; a dry run only counts it."""
    rows = _Cleanup(workspace.root, retention, grace, dry_run=dry_run, progress=progress).run()
    older_than = None if retention.older_than is None else int(retention.older_than.total_seconds())
    return CleanupReport(workspace.uri, retention.keep_versions, older_than, rows, dry_run)


def purge_history(workspace: Workspace, folders: Collection[str], *, before: LogEntry | None = None) -> CleanupReport:
    """Delete main's past of some tables at once: what a hard drop promises. Other live branches keep theirs. With
    `before`, only what was past when that commit was made: for a drop that may not have come to its purge."""
    purge = _Cleanup(workspace.root, Retention(keep_versions=1), GRACE, folders)
    if before is not None:
        main = workspace.root.branches.head(MAIN)
        purge.first_kept = log_walk.at_time(workspace.root, main, before.commit.published_at).version
    return CleanupReport(workspace.uri, 1, None, purge.run())


@dataclass
class _Roots:
    """Table versions by folder: those that must stay, and those that were published and need not."""

    kept: dict[str, dict[str, TableState]] = field(default_factory=dict)
    superseded: dict[str, dict[str, TableState]] = field(default_factory=dict)
    heads: dict[tuple[str, str], TableState] = field(default_factory=dict)
    type_keys: dict[str, str] = field(default_factory=dict)
    pins: list[Pin] = field(default_factory=list)

    def add(self, entry: LogEntry, released: Set[str] = frozenset()) -> None:
        """Keep the tables of an entry, except for those in released folders."""
        for type_key, state in entry.tables.items():
            versions = self.superseded if state.path in released else self.kept
            versions.setdefault(state.path, {})[state.version] = state
            self.type_keys.setdefault(state.path, type_key)


@dataclass
class _Table:
    """One table folder on its way through a cleanup."""

    folder: str
    files: list[TableFile] = field(default_factory=list)
    doomed: list[TableFile] = field(default_factory=list)
    error: str | None = None
    removed_bytes: int = 0
    removed_versions: int = 0


@dataclass
class _Cleanup:
    """One cleanup, of all tables or of some folders."""

    root: GraphRoot
    retention: Retention
    grace: timedelta
    folders: Collection[str] | None = None
    dry_run: bool = False
    progress: Progress | None = None

    def __post_init__(self) -> None:
        root = self.root
        self.now = _own_time() if self.dry_run else self._store_time()
        # What an earlier cleanup wrote down it may still delete, even if it looks dead; so this one finishes it.
        self.unfinished = root.cleanup_journal.records() if self.dry_run else root.cleanup_journal.take_over()
        self.first_kept = first_retained(root, root.branches.head(MAIN), self.retention, self.now)

    def run(self) -> tuple[TableCleaned, ...]:
        tables = [_Table(folder) for folder in self.root.table_folders() if self._reclaimed_below(folder) > 0]
        # Files are listed before heads are read: what was published in between is then known to be needed.
        self._each(tables, self._list, "listing tables")
        roots = self._roots()
        try:
            list(self.root.workers.map(self.root.reader.open, roots.heads.values()))
        except OmniGraphError as error:
            raise ConflictError(f"nothing was removed: the head of a live branch can't be opened ({error})") from error
        self._each(tables, lambda table: self._doom(table, roots), "marking tables")
        if not self.dry_run and (self.unfinished or any(t.doomed for t in tables)):
            self._sweep(tables, roots)
        if not self.dry_run:
            self.root.objects.remove_unfinished(self.now - self.grace)
        return self._rows(tables, roots)

    def _reclaimed_below(self, folder: str) -> int:
        """The version of main below which this cleanup, or one that it finishes, releases a table; 0 if neither."""
        released = [record.below for record in self.unfinished if record.folder in (None, folder)]
        if self.folders is None or folder in self.folders:
            released.append(self.first_kept)
        return max(released, default=0)

    def _store_time(self) -> datetime:
        """Ages are those of stored objects, so the time is the store's. A clock that is far from it is a mistake
        somewhere, and what is deleted can't be brought back."""
        try:
            theirs = self.root.cleanup_journal.store_time()
        except StorageError as error:
            if error.kind is not StorageErrorKind.FULL:
                raise
            self.root.drop_derived_files()  # they can be derived again, and a cleanup has to write a few names
            theirs = self.root.cleanup_journal.store_time()
        ours = _own_time()
        if abs(theirs - ours) > max(self.grace, _CLOCK_TOLERANCE):
            raise ConflictError(
                f"nothing was removed: this machine's clock says {ours:%Y-%m-%d %H:%M} and the store's "
                f"{theirs:%Y-%m-%d %H:%M} (UTC); set the clock that is wrong and run cleanup again"
            )
        return theirs

    def _roots(self) -> _Roots:
        """Pins are read before branches: a writer that removed its pin meanwhile has published, and is found there."""
        roots = _Roots()
        try:
            pins = self.root.pins.all()
            # A write that pinned something longer ago than the grace period refuses to publish.
            expired = [pin for pin in pins if pin.since < self.now - GRACE]
            if expired and not self.dry_run:
                self.root.pins.forget(expired)
            roots.pins = [pin for pin in pins if pin not in expired]
            refs = self.root.branches.all()
            live = {ref.branch_id for ref in refs}
            for ref in refs:
                newest = self.root.log.newest(ref)
                if isinstance(newest, Tombstone):
                    continue  # deleted since it was listed, so it is among the recently deleted
                roots.add(newest)
                roots.heads |= {(state.path, state.version): state for state in newest.tables.values()}
                if ref.branch == MAIN:
                    self._keep_main(BranchHead(ref, newest), roots)
                else:
                    self._keep_private_history(ref, newest, live, roots)
            for ref in self.root.branches.deleted_since(self.now - self.grace):
                newest = self.root.log.newest(ref)
                if isinstance(newest, Tombstone):  # else it lives after all
                    address = ref.locate(newest.version - 1)
                    last = self.root.log.entry(address.branch_id, address.version)
                    if isinstance(last, LogEntry):
                        self._keep_private_history(ref, last, live, roots)
        except OmniGraphError as error:
            raise ConflictError(f"nothing was removed: a branch can't be read ({error})") from error
        return roots

    def _keep_main(self, main: BranchHead, roots: _Roots) -> None:
        head = main.entry.version
        # Files of versions before `recent` are older than any write in flight; for later ones the manifest has to say
        # which they are. What an earlier cleanup released is finished whatever its age.
        recent = 1 if self.unfinished else _version_at(self.root, main, self.now - self.grace)
        for entry in self._entries(main.ref, range(min(recent, self.first_kept), head + 1)):
            roots.add(entry, {s.path for s in entry.tables.values() if entry.version < self._reclaimed_below(s.path)})
        for pin in roots.pins:
            for entry in self._entries(main.ref, range(max(1, pin.first), min(head, pin.last or head) + 1)):
                roots.add(entry)

    def _keep_private_history(self, ref: BranchRef, head: LogEntry, live: Set[str], roots: _Roots) -> None:
        """Everything of a branch's own, also what it inherited from branches that are gone, and every commit it was
        built on: a merge may need that as its base."""
        links = [(ref.fork.branch_id, ref.fork.version)] if ref.fork is not None else []
        inherited_up_to = 0
        for point in ref.lineage:
            if point.branch_id not in live:
                for entry in self._entries(ref, range(inherited_up_to + 1, point.version + 1)):
                    roots.add(entry)
            inherited_up_to = point.version
        for entry in self._entries(ref, range(ref.first_own_version, head.version + 1)):
            roots.add(entry)
            links += [(p.branch_id, p.version) for p in entry.commit.parents if p.branch_id != ref.branch_id]
        for parent in self.root.log.entries(dict.fromkeys(links)):
            if isinstance(parent, LogEntry):
                roots.add(parent)

    def _entries(self, ref: BranchRef, versions: range) -> Iterable[LogEntry]:
        for start in range(0, len(versions), _ENTRIES_AT_ONCE):
            yield from log_walk.at_versions(self.root, ref, list(versions[start : start + _ENTRIES_AT_ONCE]))

    def _list(self, table: _Table) -> None:
        table.files = [table_file(table.folder, stored) for stored in self.root.objects.below(table.folder)]

    def _doom(self, table: _Table, roots: _Roots) -> None:
        standing = {file.named for file in table.files}
        kept = roots.kept.get(table.folder, {})
        # Of those that went in an earlier cleanup there is nothing left to look at, and they only become more.
        superseded = {
            version: state
            for version, state in roots.superseded.get(table.folder, {}).items()
            if version not in kept and f"_versions/{manifest_name(state.number)}" in standing
        }
        # Attached versions beyond the first were made by another tool: theirs are not ours to delete.
        attached = (attached_version(file.named) for file in table.files)
        foreign = [
            TableState(table_id=table.folder, path=table.folder, version=str(number), rows=0, fragments=0)
            for number in attached
            if number is not None and number > 1
        ]
        table.doomed = deletable_files(
            table.files,
            self._named_files([*kept.values(), *foreign], standing),
            superseded=self._named_files(superseded.values(), standing),
            staged_before=self.now - self.grace,
            abandoned=not kept,
        )

    def _named_files(self, states: Iterable[TableState], standing: Collection[str]) -> set[str]:
        """Every file that these versions name. A version without a manifest was reclaimed before and names none."""
        named: set[str] = set()
        for state in states:
            try:
                named |= self.root.reader.open(state).files()
            except HistoricalVersionReclaimedError:
                manifest = f"_versions/{manifest_name(state.number)}"
                # Another cleanup may have deleted it since the files were listed.
                if manifest in standing and self.root.objects.exists(f"{state.path}/{manifest}"):
                    raise
        return named

    def _sweep(self, tables: list[_Table], roots: _Roots) -> None:
        records = self.root.cleanup_journal.open(self.first_kept, self.folders)
        self.root.trace.reach("cleanup.record.after")
        # A writer that pinned, forked or published since the first look is found now; nothing has been deleted yet.
        later = self._roots()

        def rescue(table: _Table) -> None:
            kept = roots.kept.get(table.folder, {})
            fresh = [s for version, s in later.kept.get(table.folder, {}).items() if version not in kept]
            if fresh:
                named = self._named_files(fresh, {file.named for file in table.files})
                table.doomed = [file for file in table.doomed if file.named not in named]

        self._each(tables, rescue, "looking again")
        self.root.trace.reach("cleanup.look.after")
        if not self.root.cleanup_journal.are_ours(records):
            return  # another cleanup finishes this one; what it has finished may be in use again
        removed = Tally(self.progress, "removing files", sum(len(table.doomed) for table in tables))
        self._each(tables, lambda table: self._delete(table, removed))
        self.root.branches.note_deletions()
        if all(table.error is None for table in tables):
            # What a pin kept may still be deleted by the writer of the record, so the record stays.
            pins = [*roots.pins, *later.pins]
            done = [record for record in self.unfinished if not any(pin.first < record.below for pin in pins)]
            self.root.cleanup_journal.close([*records, *done])
        self.root.trace.reach("cleanup.after")

    def _delete(self, table: _Table, removed: Tally) -> None:
        # Manifests go first, so that a version with a manifest is whole.
        for is_manifest in (True, False):
            files = [file for file in table.doomed if (file.kind is FileKind.MANIFEST) is is_manifest]
            for start in range(0, len(files), DELETED_AT_ONCE):
                batch = files[start : start + DELETED_AT_ONCE]
                self.root.objects.delete_all([file.stored.path for file in batch])
                table.removed_bytes += sum(file.stored.size for file in batch)
                table.removed_versions += sum(file.kind is FileKind.MANIFEST for file in batch)
                removed.add(len(batch))
            self.root.trace.reach("cleanup.delete.after")
        self.root.remove_empty_folders(leaf_folders(table.doomed))

    def _each(self, tables: list[_Table], step: Callable[[_Table], None], called: str | None = None) -> None:
        """One step for every table at once; a named step reports its progress. A table that fails is left as it is,
        with the reason, and does not stop the others."""
        tally = Tally(None if called is None else self.progress, called or "", len(tables))

        def run(table: _Table) -> None:
            if table.error is None:
                try:
                    step(table)
                except OmniGraphError as error:
                    table.error, table.doomed = str(error), []
            tally.add()

        list(self.root.workers.map(run, tables))

    def _rows(self, tables: list[_Table], roots: _Roots) -> tuple[TableCleaned, ...]:
        rows = []
        for table in tables:
            size, versions = table.removed_bytes, table.removed_versions
            if self.dry_run:
                size = sum(file.stored.size for file in table.doomed)
                versions = sum(file.kind is FileKind.MANIFEST for file in table.doomed)
            if table.folder in roots.kept or size or table.error:
                name = roots.type_keys.get(table.folder, table.folder)
                rows.append(TableCleaned(name, size, versions, table.error))
        return tuple(sorted(rows, key=lambda row: row.type_key))


def _own_time() -> datetime:
    return datetime.fromtimestamp(now_micros() / 1_000_000, UTC)


def first_retained(root: GraphRoot, main: BranchHead, retention: Retention, now: datetime) -> int:
    """The oldest version that a policy retains: a state that could be read at any retained moment is retained."""
    starts = []
    if retention.keep_versions is not None:
        starts.append(max(1, main.entry.version - max(1, retention.keep_versions) + 1))
    if retention.older_than is not None:
        starts.append(_version_at(root, main, now - retention.older_than))
    return min(starts)


def _version_at(root: GraphRoot, main: BranchHead, moment: datetime) -> int:
    """The version of main that was current at a moment; 1 when the graph is younger."""
    try:
        return log_walk.at_time(root, main, round(moment.timestamp() * 1_000_000)).version
    except NotFoundError:
        return 1
