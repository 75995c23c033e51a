"""Table work on many processes: executors write files that nobody sees, and the driver commits them.

Spark executors call the functions with a `TableAddress`, and everything they return is JSON. The driver calls
`FragmentStaging`, which makes detached versions of it. An executor never commits, and no version names the file of a
process that died. `pinned_dataset` opens a Lance dataset of the user as an input; it is never written.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import lance
import msgspec
import pyarrow as pa
from lance import FragmentMetadata, Index, LanceOperation
from lance.bitmap import Bitmap
from lance.fragment import write_fragments
from lance.optimize import Compaction, CompactionTask

from omnigraph.errors import BadRequestError
from omnigraph.storage.local_disk import reason_of
from omnigraph.storage.location import Location, TableAddress
from omnigraph.storage.models import ChangeCounts, TableState
from omnigraph.storage.tables.indexes import TEXT_INDEX_KIND, IndexNeed, IndexSpec, create_segment
from omnigraph.storage.tables.lance_errors import translate_errors
from omnigraph.storage.tables.lance_metadata import finished_rewrites
from omnigraph.storage.tables.rows import ROW_ADDRESS, Table
from omnigraph.storage.tables.staging import RewrittenFragment, StagedTable, Staging, rewrite_fragment, write_options


def _open(address: TableAddress) -> Any:
    with translate_errors(f"can't open {address.uri}"):
        return lance.dataset(address.uri, version=int(address.version), storage_options=dict(address.options) or None)


@dataclass(frozen=True, slots=True)
class FragmentSummary:
    """A fragment as planning needs it: which one, how many rows it shows, and the first data file that it owns."""

    id: int
    rows: int
    file: str


def fragments_of(table: Table) -> list[FragmentSummary]:
    return [FragmentSummary(f.fragment_id, f.metadata.num_rows, f.metadata.files[0].path) for f in table._fragments()]


def fragment_descriptions(table: Table) -> dict[int, str]:
    """Fragments by id, as the JSON of all their files: equal texts hold equal rows."""
    return {f.fragment_id: json.dumps(f.metadata.to_json()) for f in table._fragments()}


# On executors


def scan_fragments(
    address: TableAddress,
    fragment_ids: Sequence[int],
    columns: Sequence[str],
    *,
    filter: str | None = None,
    limit: int | None = None,
    addresses: str | None = None,
    blobs_as_bytes: bool = False,
    batch_rows: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Rows of some fragments; `addresses` names a column for their addresses: fragment above, offset below."""
    dataset = _open(address)
    with translate_errors(f"reading {address.uri}"):
        scanner = dataset.scanner(
            columns=list(columns),
            filter=filter,
            limit=limit,
            fragments=[dataset.get_fragment(i) for i in fragment_ids],
            with_row_address=addresses is not None,
            batch_size=batch_rows,
            blob_handling="all_binary" if blobs_as_bytes else None,
        )
        for batch in scanner.to_batches():
            if addresses is not None:
                row_addresses = batch.column(ROW_ADDRESS).view(pa.int64())
                batch = batch.drop_columns([ROW_ADDRESS]).append_column(addresses, row_addresses)
            yield batch


def write_new_fragments(address: TableAddress, rows: pa.Table, schema: pa.Schema, *, replaces: bool) -> list[str]:
    """Data files for these rows, and the fragments that describe them, as JSON. No version names them yet."""
    with translate_errors(f"writing {address.uri}"):
        written = write_fragments(
            rows.combine_chunks(),  # many small chunks take Lance twice as long
            _open(address),
            schema=schema,
            mode="overwrite" if replaces else "append",
            **write_options(dict(address.options) or None),
        )
    return [json.dumps(fragment.to_json()) for fragment in written]


def delete_rows(address: TableAddress, fragment_id: int, offsets: Sequence[int]) -> str | None:
    """A fragment without the rows at these offsets, as JSON; None when it would be empty."""
    with translate_errors(f"writing {address.uri}"):
        left = _open(address).get_fragment(fragment_id).delete_rows(offsets)
    return None if left is None else json.dumps(left.to_json())


def rewrite_column(
    address: TableAddress,
    fragment_id: int,
    target: str,
    columns: Sequence[str],
    filter: str,
    compute: Callable[[pa.Table, pa.DataType], pa.Array],
) -> str | None:
    """A fragment with new values of one column for the rows of a filter, as JSON; None when no row matches. `compute`
    gets a few thousand rows of `columns` at a time, and the type of the column. The new values are held until the file
    is written."""
    dataset = _open(address)
    with translate_errors(f"rewriting {target} of {address.uri}"):
        fragment = dataset.get_fragment(fragment_id)
    rewritten = rewrite_fragment(dataset, fragment, target, columns, filter, compute)
    if rewritten is None:
        return None
    described = {
        "fragment": rewritten.fragment.to_json(),
        "fields": rewritten.fields,
        "rows": rewritten.rows,
        "offsets": base64.b64encode(rewritten.offsets).decode(),
    }
    return msgspec.json.encode(described).decode()


def build_index_segment(address: TableAddress, spec: IndexSpec, fragment_ids: Sequence[int]) -> str:
    """One segment of an index over some fragments, as JSON; an empty text when there is none, as `create_segment`."""
    with translate_errors(f"indexing {address.uri}"):
        segment = create_segment(_open(address), spec, fragment_ids)
    return "" if segment is None else msgspec.json.encode(segment, enc_hook=list).decode()


def run_compaction(address: TableAddress, task: str) -> str:
    """One planned rewrite, as the JSON of its result."""
    with translate_errors(f"compacting {address.uri}"):
        return str(CompactionTask.from_json(task).execute(_open(address)).json())  # type: ignore[attr-defined]


# On the driver


class FragmentStaging(Staging):
    """Staged versions out of fragments that other processes wrote."""

    def add_fragments(self, base: TableState, fragments: Sequence[str], *, replaces: bool = False) -> StagedTable:
        """The base with these fragments behind its own, in this order; or these alone when they replace it."""
        table = self._reader.open(base)
        written = [FragmentMetadata.from_json(text) for text in fragments]
        operation = LanceOperation.Overwrite(table.schema, written) if replaces else LanceOperation.Append(written)
        state = self._commit_data(table, operation)
        deleted = base.rows if replaces else 0
        return StagedTable(state, ChangeCounts(inserted=state.rows - base.rows + deleted, deleted=deleted))

    def without_rows(self, base: TableState, remaining: Mapping[int, str | None]) -> StagedTable:
        """The base with some fragments as `delete_rows` left them; None drops the fragment."""
        if not remaining:
            return StagedTable(base)
        changed = [FragmentMetadata.from_json(text) for text in remaining.values() if text is not None]
        emptied = [number for number, text in remaining.items() if text is None]
        # The predicate is a note in the transaction; the fragments say what is gone.
        return self.apply(base, LanceOperation.Delete(changed, emptied, "rows by place"))

    def add_rewritten(self, base: TableState, rewritten: Iterable[str]) -> StagedTable:
        """The base with fragments as `rewrite_column` left them."""
        fragments = []
        for each in map(json.loads, rewritten):
            fragment = FragmentMetadata.from_json(json.dumps(each["fragment"]))
            offsets = base64.b64decode(each["offsets"])
            fragments.append(RewrittenFragment(fragment, each["fields"], each["rows"], offsets))
        return self.with_rewritten_columns(base, fragments)

    def add_indexes(self, base: TableState, built: Iterable[tuple[IndexSpec, IndexNeed, list[str]]]) -> StagedTable:
        """The base with the segments that executors built for what its indexes lacked, on this very version."""
        table = self._reader.open(base)
        added: list[Index] = []
        removed: list[Index] = []
        for spec, need, texts in built:
            segments = [msgspec.json.decode(text, type=Index, dec_hook=lambda _, ids: Bitmap(ids)) for text in texts]
            if spec.kind == TEXT_INDEX_KIND:
                # Text segments can be searched only after this step, even a single one.
                with table.writing("indexing"):
                    segments = [copy(table._dataset).merge_existing_index_segments(segments)]
            added += segments
            removed += need.replaced
        return self.apply(base, LanceOperation.CreateIndex(added, removed)) if added else StagedTable(base)

    def plan_compaction(self, base: TableState, target_rows: int) -> list[str]:
        """Rewrites that would leave fragments of about `target_rows`, as JSON tasks."""
        table = self._reader.open(base)
        with table.writing("compacting"):
            plan = Compaction.plan(table._dataset, options={"target_rows_per_fragment": target_rows})
        return [task.json() for task in plan.tasks]  # type: ignore[attr-defined]

    def apply_compaction(self, base: TableState, results: Sequence[str]) -> StagedTable:
        """The base with every planned rewrite in place."""
        rewrites = finished_rewrites(self._reader.open(base), results)
        groups = [LanceOperation.RewriteGroup(*rewrite) for rewrite in rewrites]
        return self.apply(base, LanceOperation.Rewrite(groups, [])) if groups else StagedTable(base)


@dataclass(frozen=True, slots=True)
class PinnedDataset:
    """One version of a dataset. `digest` names its files: a dataset made anew at the same place has another."""

    uri: str
    version: str
    options: Mapping[str, str] = field(repr=False)
    schema: pa.Schema
    fragments: tuple[FragmentSummary, ...]
    digest: str


def pinned_dataset(uri: str, version: int | None = None, options: Mapping[str, str] | None = None) -> PinnedDataset:
    """The dataset at a path or URI, at `version` or the newest there is. `options` add to those of the environment."""
    location = Location.parse(uri)
    store = {**location.options, **(options or {})}
    try:
        dataset = lance.dataset(location.uri, version=version, storage_options=store or None)
    except (OSError, ValueError) as error:
        which = "" if version is None else f" at version {version}"
        raise BadRequestError(f"can't open the Lance dataset '{uri}'{which}: {reason_of(error)}") from None
    fragments = [fragment.metadata for fragment in dataset.get_fragments()]
    named = json.dumps([location.uri, dataset.version, [fragment.to_json() for fragment in fragments]])
    return PinnedDataset(
        location.uri,
        str(dataset.version),
        store,
        dataset.schema,
        tuple(FragmentSummary(f.id, f.num_rows, f.files[0].path if f.files else "") for f in fragments),
        hashlib.sha256(named.encode()).hexdigest(),
    )
