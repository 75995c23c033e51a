"""Errors of Lance, panics included, as errors of OmniGraph that name what is damaged.

Every call of this package that reads or writes goes through here, by `Table.reading`, `Table.writing` or
`translate_errors`. Lance reports text that does not even name a damaged file, so the store is looked at instead: a
version without its manifest was reclaimed, and a file that is missing or shorter than the manifest says is damaged. An
error that neither explains is passed on as it came.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

import pyarrow as pa

from omnigraph.errors import (
    IntegrityError,
    OmniGraphError,
    StorageError,
    StorageErrorKind,
)
from omnigraph.storage.local_disk import reason_of, storage_failure
from omnigraph.storage.location import Location
from omnigraph.storage.models import TableState, manifest_name, manifest_path, reclaimed_error
from omnigraph.storage.objects import Objects

LANCE_ERRORS: Final = (OSError, ValueError, RuntimeError, pa.ArrowException)

_REMOTE: Final = re.compile(r"Generic (S3|GCS|MicrosoftAzure) error|HTTP error|error sending request")
_MISSING: Final = re.compile(r"not found", re.IGNORECASE)
_UNFIT_FILE: Final = "does not appear to be a Lance file"
_OUR_MISTAKE: Final = "Invalid user input"
_CONTRADICTION: Final = re.compile(r"Encountered internal error|failed to decode|/rust/lance-(encoding|file|table)/")
"""How Lance calls stored bytes that contradict each other, and the parts of it that only ever see stored bytes."""


@contextmanager
def translate_errors(
    doing: str,
    location: Location | None = None,
    state: TableState | None = None,
    dataset: Any = None,
    *,
    only_reads: bool = True,
) -> Iterator[None]:
    """Lance at work on a table version. Without a state there is only the error itself to judge by."""
    try:
        yield
    except BaseException as error:
        # A damaged type in a schema surfaces in Python code of Lance.
        if not isinstance(error, (*LANCE_ERRORS, TypeError)) and not is_panic(error):
            raise
        explained = _explain(doing, error, location, state, dataset)
        if explained is None and _speaks_of_files(error, state):
            # The store shows nothing wrong. What was only read has wrong content then; a write may fail otherwise.
            if state is not None and only_reads:
                reason = f"version {state.version} can't be read ({reason_of(error)}): a file of it has been changed"
                explained = IntegrityError(state.path, reason)
            else:
                explained = StorageError(StorageErrorKind.PERMANENT, f"{doing}: {reason_of(error)}")
        if explained is None:
            raise
        raise explained from error


def is_panic(error: BaseException) -> bool:
    """Lance panics on some damaged files: not an Exception, and of a class that can't be imported."""
    return type(error).__name__ == "PanicException"


def _explain(
    doing: str, error: BaseException, location: Location | None, state: TableState | None, dataset: Any
) -> OmniGraphError | None:
    failure = storage_failure(doing, error)
    if failure is not None and failure.kind is not StorageErrorKind.NOT_FOUND:
        return failure
    if _REMOTE.search(str(error)) and not _MISSING.search(str(error)):
        return StorageError(StorageErrorKind.TRANSIENT, f"{doing}: {reason_of(error)}")
    if location is None or state is None:
        return failure
    # The files of a version show whether it is gone, or one of them is damaged.
    try:
        sizes_by_name = stored_files(Objects(location), state)
        if f"_versions/{manifest_name(state.number)}" not in sizes_by_name:
            return reclaimed_error(state)
        if dataset is None:
            return IntegrityError(manifest_path(state), f"the manifest of a table can't be read ({reason_of(error)})")
        damaged = next(damaged_files(state, dataset, sizes_by_name), None)
    except OmniGraphError as silence:
        return silence  # the store that failed does not say why either
    return None if damaged is None else IntegrityError(f"{state.path}/{damaged[0]}", damaged[1])


def _speaks_of_files(error: BaseException, state: TableState | None) -> bool:
    """Whether an error comes from stored bytes. A filter or a column that does not exist is our own mistake."""
    text = str(error)
    if isinstance(error, pa.ArrowInvalid) or is_panic(error) or _UNFIT_FILE in text or _CONTRADICTION.search(text):
        return True
    if state is not None and state.path.rsplit("/", 1)[-1] in text and _MISSING.search(text):
        return True
    return isinstance(error, OSError) and not text.startswith(_OUR_MISTAKE)


def stored_files(objects: Objects, state: TableState) -> dict[str, int]:
    """The size of every file below a table folder, by its name there."""
    return {o.path.removeprefix(f"{state.path}/"): o.size for o in objects.below(state.path)}


def damaged_files(state: TableState, dataset: Any, sizes_by_name: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """The files of a version that are missing or have another size than its manifest says, each with what is wrong."""
    expected: dict[str, int | None] = {}
    for fragment in dataset.get_fragments():
        expected |= {f"data/{file.path}": file.file_size_bytes for file in fragment.metadata.files}
        if (deletions := fragment.deletion_file()) is not None:
            expected[deletions] = None
    sizes = dict(sizes_by_name)
    for name, held in sizes_by_name.items():
        if name.startswith("_indices/"):
            folder = name[: name.index("/", len("_indices/")) + 1]
            sizes[folder] = sizes.get(folder, 0) + held
    # What the indexes are is itself read from the store; the caller of a failure has that error already.
    with suppress(OmniGraphError, *LANCE_ERRORS), translate_errors("describing indexes"):
        segments = [segment for index in dataset.describe_indices() for segment in index.segments]
        expected |= {f"_indices/{segment.uuid}/": segment.size_bytes for segment in segments}
    for name, size in sorted(expected.items()):
        stored_size = sizes.get(name)
        if stored_size is None:
            yield name, f"is missing, and version {state.version} of its table needs it"
        elif stored_size < (size or 1):
            yield name, f"is cut short: {stored_size} bytes of {size or 'a few more'} are left"
        elif size is not None and stored_size > size and name.startswith("data/"):
            yield name, f"was changed: it has {stored_size} bytes, and had {size}"


def attached_version(name: str) -> int | None:
    """The number of the attached version whose manifest a file is, relative to the table; None for any other file."""
    leaf = name.removeprefix("_versions/").removesuffix(".manifest")
    return (1 << 64) - 1 - int(leaf) if name == f"_versions/{leaf}.manifest" and leaf.isdigit() else None
