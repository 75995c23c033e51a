"""A dataset that reads from a local copy, and from the store what the copy can't give.

Another process may remove a file of the copy at any moment, to make room. Then the read is done again on the store,
with the same result: both are the same immutable version. Only `Table` and its package see the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, TypeVar

import pyarrow as pa

from omnigraph.errors import StorageError, StorageErrorKind
from omnigraph.storage.tables.lance_errors import LANCE_ERRORS, is_panic

Result = TypeVar("Result")

_NO_REQUESTS: Final = SimpleNamespace(read_iops=0, write_iops=0)


class CopiedDataset:
    """As far as reading goes, a Lance dataset. What is not here (schema, version, fragments) is metadata, which is in
    memory; its address is that of the store, for readers of single files."""

    def __init__(
        self,
        local: Any,
        folder: Path,
        uri: str,
        storage_options: dict[str, str] | None,
        remote: Callable[[], Any],
        give_up: Callable[[], None],
    ) -> None:
        self.folder = folder
        self.uri = uri
        self._local = local
        self._storage_options = storage_options
        self._open_remote = remote
        self._give_up = give_up
        self._remote: Any = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python asks of an object that is being copied, before it has anything
            raise AttributeError(name)
        return getattr(self._local, name)

    def latest_storage_options(self) -> dict[str, str] | None:
        return self._storage_options

    def io_stats_snapshot(self) -> Any:
        return _NO_REQUESTS if self._remote is None else self._remote.io_stats_snapshot()

    def scanner(self, **options: Any) -> CopiedScanner:
        return CopiedScanner(self, options)

    def get_fragment(self, number: int) -> CopiedFragment:
        return CopiedFragment(self, number)

    def count_rows(self, **options: Any) -> int:
        return self.read(lambda dataset: int(dataset.count_rows(**options)))

    def describe_indices(self) -> Any:
        return self.read(lambda dataset: dataset.describe_indices())

    def _take_rows(self, row_ids: Any, columns: Any) -> pa.Table:
        return self.read(lambda dataset: dataset._take_rows(row_ids, columns=columns))

    def read(self, read: Callable[[Any], Result]) -> Result:
        """From the copy if it can be, else from the store. An error of the store is the caller's: the copy may well be
        whole, and the question wrong."""
        if self._remote is None:
            try:
                return read(self._local)
            except BaseException as error:
                if not _is_of_lance(error):
                    raise
                result = read(self._open_remote())
                self.leave_copy()
                return result
        return read(self._remote)

    @property
    def has_left_copy(self) -> bool:
        return self._remote is not None

    def leave_copy(self) -> None:
        """Read from the store from now on: the copy has lost a file."""
        self._remote = self._open_remote()
        self._give_up()


def _is_of_lance(error: BaseException) -> bool:
    return isinstance(error, LANCE_ERRORS) or is_panic(error)


class CopiedFragment:
    """A fragment of one or the other. Its metadata is in memory."""

    def __init__(self, dataset: CopiedDataset, number: int) -> None:
        self._dataset = dataset
        self._number = number

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset._local.get_fragment(self._number), name)

    def take(self, offsets: Any, columns: Any) -> pa.Table:
        return self._dataset.read(lambda dataset: dataset.get_fragment(self._number).take(offsets, columns=columns))


class CopiedScanner:
    """A scan of one or the other."""

    def __init__(self, dataset: CopiedDataset, options: dict[str, Any]) -> None:
        self._dataset = dataset
        self._options = options

    def to_table(self) -> pa.Table:
        return self._dataset.read(lambda dataset: self._scanner(dataset).to_table())

    def to_reader(self) -> pa.RecordBatchReader:
        """Batches as they are read. The first one decides where they come from."""
        reader, first = self._dataset.read(self._begin)
        return pa.RecordBatchReader.from_batches(reader.schema, self._batches(reader, first))

    def _begin(self, dataset: Any) -> tuple[pa.RecordBatchReader, pa.RecordBatch | None]:
        reader = self._scanner(dataset).to_reader()
        return reader, next(iter(reader), None)

    def _batches(self, reader: pa.RecordBatchReader, first: pa.RecordBatch | None) -> Iterator[pa.RecordBatch]:
        if first is None:
            return
        yield first
        try:
            yield from reader
        except BaseException as error:
            if not _is_of_lance(error):
                raise
            # Some rows have left already; a new scan might give them in another order.
            self._dataset.leave_copy()
            text = f"a file of the local copy of {self._dataset.uri} went away while it was read; repeat the read"
            raise StorageError(StorageErrorKind.TRANSIENT, text) from error

    def _scanner(self, dataset: Any) -> Any:
        options = dict(self._options)
        if options.get("fragments") is not None:
            # A fragment reads from the dataset that it came from.
            options["fragments"] = [dataset.get_fragment(each.fragment_id) for each in options["fragments"]]
        return dataset.scanner(**options)
