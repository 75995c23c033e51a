"""Loads: an input of graph records becomes one commit, or nothing.

`Graph.load` and its siblings call `load`. The row kernels decode the input, the constraint stage checks it as a whole
against one pinned head, and the publish machine makes the commit; a target branch that does not exist yet is created
together with the commit, never before it.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from os import PathLike
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.api.enums import Grammar, LoadMode, PolicyAction
from omnigraph.api.load import LoadReceipt, TypeLoaded, encode_piece, file_pieces, require_records
from omnigraph.engine.blobs import admit_blobs
from omnigraph.engine.rows.columns import fillable_catalog, rows_schema
from omnigraph.engine.rows.kernels.csv_rows import CsvDialect
from omnigraph.engine.rows.kernels.decoder import decode, decode_rows
from omnigraph.engine.rows.kernels.ids import new_ulids
from omnigraph.engine.rows.kernels.typed_rows import (
    DecodedInput,
    LostValues,
    RecordForm,
    TypedRows,
    first_in_stage_order,
)
from omnigraph.engine.rows.stored_rows import (
    FilledRows,
    StoredMatch,
    fill_partial,
    join_repeated,
    match_stored,
    read_visible,
    unknown_entity,
)
from omnigraph.engine.snapshot import Snapshot
from omnigraph.engine.workspace import Workspace
from omnigraph.engine.write import publish
from omnigraph.engine.write.author_visibility import AuthorVisibility
from omnigraph.engine.write.change import GraphChange, Origin, RequestDigest, TypeChange, WrittenRows
from omnigraph.engine.write.constraints import (
    FinalImage,
    check_constraints,
    find_end_types,
    has_untyped_ends,
    refuse_repeated_ids,
    taken_id,
)
from omnigraph.engine.write.embedding import OnWriteVectors
from omnigraph.engine.write.publish import receipt_of
from omnigraph.engine.write.row_input import RowInput, row_input
from omnigraph.errors import BadRequestError, BranchNotFoundError, ConflictError
from omnigraph.language.catalog import Catalog, EdgeType, NodeType
from omnigraph.language.query.row_filter import UNRESTRICTED
from omnigraph.storage.location import Location
from omnigraph.storage.tables.rows import WIDE_COLUMNS

HOW_TO_CREATE = "pass `from` to create it"
"""What is said of a branch that a load finds missing."""
_RECEIPT = "load"
_PIECE_BYTES = 1 << 20
_DECODERS = min(4, os.cpu_count() or 1)
"""How many threads type the records of a load."""


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """Everything a caller says about a load. The input is read again when the schema changed meanwhile."""

    input: Callable[[], bytes | Iterable[bytes]] | RowInput
    mode: LoadMode
    branch: str
    base: str | None = None
    actor: str | None = None
    idempotency_key: str | None = None
    grammar: Grammar = Grammar.STRICT
    embed: bool = False
    """Compute every `@embed` vector that is missing, and not only those that the schema declares `on_write`."""


def load_mode(mode: str) -> LoadMode:
    try:
        return LoadMode(mode)
    except ValueError:
        modes = ", ".join(LoadMode)
        raise BadRequestError(f"unknown load mode '{mode}'; use one of: {modes}") from None


def load_input(
    data: Any, type_name: str | None, *, format: str | None, csv: CsvDialect | None, graph: Location
) -> Callable[[], bytes | Iterable[bytes]] | RowInput:
    """What a caller gave to be loaded: rows of a type, or graph records when no type is named."""
    if type_name is not None:
        return row_input(data, type_name, format=format, csv=csv, graph=graph)
    if format is not None or csv is not None:
        raise BadRequestError("format and csv are for rows of one type: name it with type=")
    return record_input(data)


def record_input(data: Any) -> Callable[[], bytes | Iterable[bytes]]:
    """Graph records as a caller gave them. A file, text and bytes can be read any number of times, an iterator once."""
    require_records(data)
    if isinstance(data, PathLike):
        return lambda: file_pieces(data, _PIECE_BYTES)
    if isinstance(data, str | bytes | bytearray | memoryview):
        whole = encode_piece(data)
        return lambda: whole
    pieces: list[Iterable[str | bytes]] = [data]

    def open_once() -> Iterator[bytes]:
        if not pieces:
            raise ConflictError("the schema changed while an iterator was being loaded; nothing was written, try again")
        return map(encode_piece, pieces.pop())

    return open_once


def load(workspace: Workspace, request: LoadRequest) -> LoadReceipt:
    """Run a load to its commit. Append, merge and update follow a moving branch, overwrite reports the conflict."""
    if request.mode is LoadMode.UPDATE and request.grammar is Grammar.LENIENT:
        raise BadRequestError(
            "the mode update takes strict records only: the lenient grammar makes null of a value of a wrong type, "
            "which would clear what is stored"
        )
    workspace.require(request.actor, PolicyAction.CHANGE, request.branch.strip())
    attempt = _Load(workspace, request, OnWriteVectors(workspace.embedder, workspace.limits, request.embed))
    published = attempt.to_commit()
    if published is None:
        nothing = DecodedInput({}, lost=LostValues() if request.grammar is Grammar.LENIENT else None)
        unwritten = attempt.unchanged or attempt.details(nothing, {})
        return _receipt(unwritten, branch=request.branch.strip(), actor_id=request.actor, commit=None)
    details = published.entry.commit.details.get(_RECEIPT)
    if details is None:
        raise ConflictError("this idempotency key belongs to a write that is not a load; choose another key")
    commit, replayed = receipt_of(published.entry), published.replayed
    return _receipt(json.loads(details), branch=published.branch, commit=commit, replayed=replayed)


def publish_load(workspace: Workspace, request: LoadRequest) -> publish.PublishedCommit | None:
    """The commit of a load whose author may write; None where nothing changes."""
    return _Load(workspace, request, OnWriteVectors(workspace.embedder, workspace.limits, request.embed)).to_commit()


def _receipt(details: dict[str, Any], **rest: Any) -> LoadReceipt:
    mode, counts = LoadMode(details.pop("mode")), details.pop("counts", {})
    nodes, edges = (
        [
            msgspec.convert({"name": name, "entities_loaded": loaded, **counts.get(f"{kind}:{name}", {})}, TypeLoaded)
            for name, loaded in details.pop(f"{kind}s").items()
        ]
        for kind in ("node", "edge")
    )
    return LoadReceipt.of(nodes=nodes, edges=edges, mode=mode, **details, **rest)


@dataclass
class _Load:
    """One load over all its attempts. The input is decoded once per schema it meets."""

    workspace: Workspace
    request: LoadRequest
    vectors: OnWriteVectors
    creates_branch: bool = False
    unchanged: dict[str, Any] | None = None
    """The receipt of an attempt that found nothing to change."""
    _decoded: dict[str, DecodedInput] = field(default_factory=dict)
    _digest: str | None = None

    def to_commit(self) -> publish.PublishedCommit | None:
        """Run it, again whenever it needs vectors."""
        return self.vectors.compute_for(self.run)

    def run(self) -> publish.PublishedCommit | None:
        workspace, branch = self.workspace, self.request.branch
        try:
            captured = workspace.begin(branch, self.intent())
            if (done := self._earlier_commit(captured)) is not None:
                return done
            # Decoding is most of the work of a large load and needs only the schema, so no other writer waits for it.
            self.read_input(captured.snapshot)
            return workspace.commit(branch, self.prepare, self.intent())
        except BranchNotFoundError:
            ended = publish.begin_repeat(workspace, branch.strip(), self.intent())
            if ended is not None and (done := self._earlier_commit(ended)) is not None:
                return done
            if self.request.base is None:
                raise BranchNotFoundError(branch.strip(), HOW_TO_CREATE) from None
            return self._run_on_new_branch(self.request.base)

    def _run_on_new_branch(self, base: str) -> publish.PublishedCommit | None:
        workspace, branch = self.workspace, self.request.branch
        workspace.require(self.request.actor, PolicyAction.BRANCH_CREATE, base.strip(), branch.strip())
        self.read_input(workspace.state_of(base))
        try:
            creating = replace(self, creates_branch=True)
            published = workspace.commit_on_new_branch(branch, base, creating.prepare, self.intent())
            self.creates_branch, self.unchanged = True, creating.unchanged
            return published
        except ConflictError:
            if branch.strip() not in workspace.root.branches.names():
                raise
            # Another writer created the branch meanwhile, so it is an existing target and the base does not matter.
            return workspace.commit(branch, self.prepare, self.intent())

    def _earlier_commit(self, txn: publish.WriteTxn) -> publish.PublishedCommit | None:
        earlier = publish.earlier_write(txn)
        return None if earlier is None else earlier.answer(txn, self._digest_of_repeat(txn, earlier))

    def intent(self) -> publish.Intent:
        """Call it when the input has been read: the digest of a load is that of its input."""
        key = self.request.idempotency_key
        return publish.Intent(kind="load", actor=self.request.actor, idempotency_key=key, request_digest=self._digest)

    def _digest_of_repeat(self, txn: publish.WriteTxn, earlier: publish.EarlierWrite) -> str:
        """The digest of the input, whatever became of the schema since the earlier write. Rows are known by their typed
        values, so they are typed by the schema of that commit, which took them."""
        if not isinstance(self.request.input, RowInput):
            digest = self._new_digest()
            pieces = digest.watch(self.request.input())
            if not isinstance(pieces, bytes):
                deque(pieces, maxlen=0)
            return digest.text
        try:
            self.read_input(Snapshot(txn.resources, txn.ref.branch, earlier.entry, UNRESTRICTED))
        except BadRequestError as error:
            raise earlier.other_request() from error
        return self._digest or ""

    def prepare(self, txn: publish.WriteTxn) -> publish.PublishPlan | None:
        """The plan; None where there is nothing to load. An overwrite by no rows of a type empties it."""
        decoded = self.read_input(txn.snapshot)
        if not decoded.by_type:
            return None
        mode = self.request.mode
        decoded, nodes_read = self._find_end_types(txn, decoded)
        visibility = AuthorVisibility(txn)
        filled: dict[str, FilledRows] = {}
        if mode is LoadMode.UPDATE:
            filled = self._fill(txn, decoded, visibility)
            change = GraphChange({key: self._patch(rows) for key, rows in filled.items()})
        else:
            change = GraphChange({key: self._type_change(typed) for key, typed in decoded.by_type.items()})
            visibility.refuse_partial_rows([each.type for each in change.by_type.values()])
        order = [change.by_type[key] for key in sorted(change.by_type)]
        visibility.refuse_invisible(change)
        with visibility.redact_conflicts():
            read_set = check_constraints(FinalImage(txn, change), order)
        read_set = replace(read_set, tables=read_set.tables | (nodes_read - change.by_type.keys()))
        if mode in (LoadMode.APPEND, LoadMode.OVERWRITE):
            for key, typed in decoded.by_type.items():
                if not typed.type.key:  # a repeated key broke a rule before
                    refuse_repeated_ids(key, typed.given_ids())
        change = admit_blobs(txn.resources, change)
        if mode is LoadMode.APPEND:
            _refuse_existing_ids(txn, decoded)
        change = self.vectors.fill(change, txn.snapshot.catalog)
        changed, written = self._without_unchanged(txn, change, decoded, filled)
        details = self.details(decoded, written)
        if not changed.by_type:
            self.unchanged = details
            return None
        staged = txn.stage(changed.staging_jobs(txn.root.staging))
        # Rows of the other types are stored as they are: that is relied on.
        unchanged = change.by_type.keys() - changed.by_type.keys()
        return publish.PublishPlan(
            staged=staged,
            read_set=replace(read_set, tables=read_set.tables | unchanged),
            strict=mode is LoadMode.OVERWRITE,
            details={_RECEIPT: json.dumps(details)},
        )

    def _fill(
        self, txn: publish.WriteTxn, decoded: DecodedInput, visibility: AuthorVisibility
    ) -> dict[str, FilledRows]:
        """Partial rows as the author sees what is stored of them, or an error for the first that names no entity."""

        def fill(typed: TypedRows) -> FilledRows:
            is_visible = None if visibility.is_unrestricted else partial(visibility.visible_rows, typed.type)
            table = txn.root.reader.open(txn.state(typed.type_key))
            read = partial(read_visible, table, self.workspace.limits, is_visible)
            # Row filters may look at any column, and rows of very many columns are written whole.
            whole = is_visible is not None or len(rows_schema(typed.type).names) > WIDE_COLUMNS
            return fill_partial(read, join_repeated(typed), self.vectors.is_computed, whole=whole)

        for typed in decoded.by_type.values():
            present = typed.present or pa.table({})
            columns = [name for name in present.column_names if pc.any(present.column(name), min_count=0).as_py()]
            visibility.refuse_masked_columns(typed.type, columns)
        filled = dict(zip(decoded.by_type, txn.root.workers.map(fill, decoded.by_type.values()), strict=True))
        rejected = [row for each in filled.values() for row in each.broken]
        rejected += [unknown_entity(each.unknown, 0) for each in filled.values() if len(each.unknown)]
        if rejected:
            raise first_in_stage_order(rejected, {key: typed.type for key, typed in decoded.by_type.items()}).error(
                self._unit
            )
        return filled

    def _patch(self, filled: FilledRows) -> TypeChange:
        typed = filled.typed
        return TypeChange(
            typed.type,
            typed.rows,
            kept=filled.kept_blobs(),
            kept_ends=filled.kept_ends(),
            origin=Origin(self._unit, typed.lines),
            columns=filled.written,
            whole=len(rows_schema(typed.type).names) > WIDE_COLUMNS,
        )

    def _without_unchanged(
        self, txn: publish.WriteTxn, change: GraphChange, decoded: DecodedInput, filled: Mapping[str, FilledRows]
    ) -> tuple[GraphChange, dict[str, WrittenRows]]:
        """The change without rows that are stored as they are, and what the rows of each type do."""

        def compare(key: str) -> tuple[TypeChange, WrittenRows]:
            table, each = txn.root.reader.open(txn.state(key)), change.by_type[key]
            count = each.rows.num_rows
            if key in filled:
                equal = filled[key].equal_mask(table, each.rows)
                return each.filter(~equal), WrittenRows(updated=int((~equal).sum()), unchanged=int(equal.sum()))
            if each.fresh:
                return each, WrittenRows(inserted=count)
            present = decoded.by_type[key].last_of_each().present if self.request.mode is LoadMode.MERGE else None
            match = match_stored(table, each.type, each.rows, present)
            return _changed_rows(each, match, stored=table.state.rows)

        keys = sorted(change.by_type)
        compared = dict(zip(keys, txn.root.workers.map(compare, keys), strict=True))
        changed = {
            key: replace(each, counts=written.changes)
            for key, (each, written) in compared.items()
            if each.rows.num_rows or written.deleted
        }
        return GraphChange(changed), {key: written for key, (_, written) in compared.items()}

    @property
    def _unit(self) -> str:
        """The beginning of the name of a row, before its number."""
        source = self.request.input
        return source.place if isinstance(source, RowInput) else self.request.grammar.unit

    @property
    def _form(self) -> RecordForm:
        forms = {LoadMode.UPDATE: RecordForm.PARTIAL, LoadMode.MERGE: RecordForm.NOTED}
        return forms.get(self.request.mode, RecordForm.WHOLE)

    def _find_end_types(self, txn: publish.WriteTxn, decoded: DecodedInput) -> tuple[DecodedInput, frozenset[str]]:
        """The input with the types of all ends, and the tables that were read for it."""
        if not any(map(has_untyped_ends, decoded.by_type.values())):
            return decoded, frozenset()
        # An update makes no nodes: it is an error if one that it names is not stored.
        is_update = self.request.mode is LoadMode.UPDATE
        nodes = [each for each in decoded.by_type.values() if isinstance(each.type, NodeType) and not is_update]
        image = FinalImage(txn, GraphChange.of(*(self._type_change(typed) for typed in nodes)))
        by_type = {key: find_end_types(typed, image, self._unit) for key, typed in decoded.by_type.items()}
        return DecodedInput(by_type, decoded.rejected, decoded.lost), image.read_set().tables

    def read_input(self, snapshot: Snapshot) -> DecodedInput:
        """The input typed by the schema of a snapshot."""
        schema = snapshot.entry.schema
        if schema not in self._decoded:
            catalog = fillable_catalog(snapshot.catalog, lambda _, prop: self.vectors.is_computed(prop))
            self._decoded[schema] = self._decode(catalog)
        return self._decoded[schema]

    def _decode(self, catalog: Catalog) -> DecodedInput:
        request, limits = self.request, self.workspace.limits
        digest = None if request.idempotency_key is None else self._new_digest()
        if isinstance(request.input, RowInput):
            rows, type_ = request.input, catalog.type_named(request.input.type_name)
            decoded = decode_rows(
                type_, rows.blocks(limits), catalog, rows.place, limits, new_ulids, rows.file, self._form
            )
            if request.mode is not LoadMode.OVERWRITE and not any(map(len, decoded.by_type.values())):
                decoded = DecodedInput({})  # no rows say nothing, unless they are to be all there is
            if digest is not None:
                for typed in decoded.by_type.values():
                    digest.add_rows(typed.rows, typed.generated)
                    if typed.present is not None and self._form is RecordForm.PARTIAL:
                        digest.add_presence(typed.present)
        else:
            data = request.input()
            if digest is not None:
                data = digest.watch(data)
            decoded = decode(data, catalog, request.grammar, limits=limits, form=self._form, threads=_DECODERS)
        if digest is not None:
            self._digest = digest.text
        return decoded

    def _new_digest(self) -> RequestDigest:
        """The digest of everything that was asked for but the input, which is added as it is read."""
        request = self.request
        what = ("rows", request.input.type_name) if isinstance(request.input, RowInput) else (request.grammar.name,)
        return RequestDigest("load", request.branch.strip(), request.mode, *what, *(["embed"] if request.embed else []))

    def _type_change(self, typed: TypedRows) -> TypeChange:
        final = typed if typed.type.key else typed.last_of_each()
        mode = self.request.mode
        fresh = mode is LoadMode.APPEND or (mode is LoadMode.MERGE and final.is_generated)
        replaces = mode is LoadMode.OVERWRITE
        origin = Origin(self._unit, final.lines)
        return TypeChange(typed.type, final.rows, replaces=replaces, fresh=fresh, origin=origin)

    def details(self, decoded: DecodedInput, written: Mapping[str, WrittenRows]) -> dict[str, Any]:
        """The receipt as the commit records it."""
        loaded = [(typed.type, len(typed)) for typed in decoded.by_type.values()]
        details: dict[str, Any] = {
            "base_branch": self.request.base,
            "branch_created": self.creates_branch,
            "mode": self.request.mode.value,
            "nodes": {t.name: count for t, count in loaded if isinstance(t, NodeType)},
            "edges": {t.name: count for t, count in loaded if isinstance(t, EdgeType)},
            "counts": {key: asdict(rows) for key, rows in written.items()},
        }
        if decoded.lost is not None:
            details |= {"values_nulled": decoded.lost.nulled, "values_dropped": decoded.lost.dropped}
        return details


def _changed_rows(change: TypeChange, match: StoredMatch, *, stored: int) -> tuple[TypeChange, WrittenRows]:
    """What is left to write of the rows of a merge or an overwrite, and what they do."""
    inserted, unchanged = int((~match.is_stored).sum()), int(match.is_equal.sum())
    updated = len(match.is_stored) - inserted - unchanged
    nulled = tuple(sorted(match.nulled))
    if change.replaces:
        written = WrittenRows(inserted, updated, unchanged, deleted=stored - updated - unchanged)
        is_same = not (written.inserted or written.updated or written.deleted)
        return (change.filter(~match.is_equal) if is_same else change), written
    left = change if not unchanged else change.filter(~match.is_equal)
    return replace(left, fresh=inserted == len(match.is_stored)), WrittenRows(inserted, updated, unchanged, 0, nulled)


def _refuse_existing_ids(txn: publish.WriteTxn, decoded: DecodedInput) -> None:
    """Append is a strict insert. Ids that this load generated are new by construction."""
    snapshot = txn.snapshot

    def stored_ids(key: str) -> pa.Array:
        return snapshot.table(key).ids_among(decoded.by_type[key].given_ids())

    keys = sorted(decoded.by_type)
    for key, existing in zip(keys, txn.root.workers.map(stored_ids, keys), strict=True):
        if len(existing):
            raise taken_id(key, pc.min(existing).as_py())
