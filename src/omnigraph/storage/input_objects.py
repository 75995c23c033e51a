"""Objects that a caller wants loaded: their bytes, from a bucket that may be another than the graph's.

A store of the graph's kind is opened with the graph's own options, so data beside a graph need no settings of their
own; any other is opened with what the environment says. Nothing here is written or deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import obstore
from obstore import exceptions as oops

from omnigraph.errors import NotFoundError, StorageError, StorageErrorKind
from omnigraph.storage.location import Location
from omnigraph.storage.store_errors import reason_of, storage_failure

_PIECE_BYTES = 4 << 20


def object_pieces(uri: str, graph: Location) -> Iterator[bytes]:
    """The bytes of an object in pieces. `graph` is where the graph lies that they are loaded into."""
    location = graph.beside(uri)
    bucket = replace(location, uri=f"{location.scheme}://{location.bucket}", prefix="")
    try:
        found = obstore.get(bucket.open_store(), location.prefix)
        for piece in found.stream(min_chunk_size=_PIECE_BYTES):
            yield bytes(piece)
    except (FileNotFoundError, oops.NotFoundError):
        raise NotFoundError(f"'{uri}' does not exist") from None
    except (oops.BaseError, OSError) as error:
        failure = storage_failure(f"reading '{uri}'", error)
        raise failure or StorageError(StorageErrorKind.UNKNOWN, f"reading '{uri}': {reason_of(error)}") from error
