"""Deletion files: which rows of a fragment were deleted. Part of the published table format; Lance's API shows none.

A file lists offsets: a few as an Arrow array, thousands as a roaring bitmap in its portable form, which is decoded
here. A file never changes, and what does not add up is refused, because a wrong bit brings a row back.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.errors import IntegrityError
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Objects

Offsets = NDArray[np.uint32]

_COOKIE, _COOKIE_WITH_RUNS = 12_346, 12_347
_FEWEST_WITH_POSITIONS: Final = 4
_LONGEST_ARRAY: Final = 4_096
_BITMAP_BYTES: Final = 8_192


def read_deletions(location: Location, path: str, count: int, local: Path | None = None) -> Offsets:
    """The offsets in a deletion file below the graph's root, ascending. Its manifest says how many there are. `local`
    is a copy of the file, which another process may have removed."""
    content = None
    if local is not None:
        with suppress(OSError):
            content = local.read_bytes()
    if content is None:
        content = Objects(location).get(path)
    if content is None:
        raise IntegrityError(path, "is missing, and a version of its table needs it")
    try:
        offsets = decode_array(content) if path.endswith(".arrow") else decode_bitmap(content)
    except (pa.ArrowException, struct.error, ValueError, IndexError) as error:
        raise IntegrityError(path, f"the list of deleted rows can't be read ({error})") from error
    if len(offsets) != count:
        raise IntegrityError(path, f"lists {len(offsets)} deleted rows, and there were {count}")
    return offsets


def decode_array(content: bytes) -> Offsets:
    file = pa.ipc.open_file(content)
    parts = [file.get_batch(number).column(0).to_numpy() for number in range(file.num_record_batches)]
    return np.sort(np.concatenate(parts))


def decode_bitmap(content: bytes) -> Offsets:
    parts = [np.uint32(key << 16) + low.astype(np.uint32) for key, low in _containers(content)]
    return np.concatenate(parts) if parts else np.empty(0, np.uint32)


def _containers(content: bytes) -> Iterator[tuple[int, NDArray[np.uint16]]]:
    """The values of each container, ascending, without their upper half, which is its key."""
    (cookie,) = struct.unpack_from("<I", content)
    has_runs = cookie & 0xFFFF == _COOKIE_WITH_RUNS
    if has_runs:
        size, at = (cookie >> 16) + 1, 4
        flags = np.unpackbits(np.frombuffer(content, np.uint8, (size + 7) // 8, at), bitorder="little")
        at += (size + 7) // 8
    elif cookie == _COOKIE:
        (size,), at = struct.unpack_from("<I", content, 4), 8
        flags = np.zeros(size, np.uint8)
    else:
        raise ValueError(f"{cookie} is not the beginning of a bitmap")
    heads = np.frombuffer(content, "<u2", 2 * size, at).reshape(size, 2)
    at += 4 * size
    if not has_runs or size >= _FEWEST_WITH_POSITIONS:
        at += 4 * size  # where each container begins; they follow each other
    for (key, last), is_run in zip(heads.tolist(), flags.tolist(), strict=False):
        if is_run:
            (runs,) = struct.unpack_from("<H", content, at)
            pairs = np.frombuffer(content, "<u2", 2 * runs, at + 2).reshape(runs, 2)
            values = [np.arange(start, start + more + 1) for start, more in pairs.tolist()]
            yield key, np.concatenate(values).astype(np.uint16)
            at += 2 + 4 * runs
        elif last < _LONGEST_ARRAY:
            yield key, np.frombuffer(content, "<u2", last + 1, at)
            at += 2 * (last + 1)
        else:
            bits = np.unpackbits(np.frombuffer(content, np.uint8, _BITMAP_BYTES, at), bitorder="little")
            yield key, np.flatnonzero(bits).astype(np.uint16)
            at += _BITMAP_BYTES
