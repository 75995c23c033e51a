"""Objects of the caller: external blobs by size and bytes, and input files in pieces. Never written, never deleted.

Blob ingress calls it for URIs that a policy has admitted, and `load` for inputs; it trusts the URI. A store of the
graph's kind is opened with the graph's own options, so data beside a graph needs no settings; any other store is opened
with the options of the environment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import obstore
from obstore import exceptions as oops
from obstore.store import ObjectStore

from omnigraph.errors import ExternalBlobSourceError, NotFoundError, StorageError, StorageErrorKind
from omnigraph.storage.cache import RecentlyUsed
from omnigraph.storage.local_disk import reason_of, storage_failure
from omnigraph.storage.location import Location

_REMEMBERED_BUCKETS: Final = 64


class ExternalObjects:
    """Readers of external objects, one store client per bucket. Safe to share between threads. Objects in a store of
    the graph's kind are reached with the graph's options."""

    def __init__(self, graph: Location | None = None) -> None:
        self._graph = graph
        self._stores: RecentlyUsed[str, ObjectStore] = RecentlyUsed(_REMEMBERED_BUCKETS)

    def size(self, uri: str) -> int:
        return int(self._ask(uri, lambda store, path: obstore.head(store, path)["size"]))

    def read(self, uri: str) -> bytes:
        return bytes(self._ask(uri, lambda store, path: obstore.get(store, path).bytes()))

    def _ask(self, uri: str, request: Callable[[ObjectStore, str], Any]) -> Any:
        parts = urlsplit(uri)
        root = f"{parts.scheme}://{parts.netloc}" if parts.scheme == "s3" else "/"
        if (store := self._stores.get(root)) is None:
            location = Location.parse(root) if self._graph is None else self._graph.beside(root)
            store = self._stores[root] = location.open_store()
        try:
            return request(store, unquote(parts.path).lstrip("/"))
        except (FileNotFoundError, oops.NotFoundError):
            raise ExternalBlobSourceError(uri, "it does not exist") from None
        except (oops.BaseError, OSError) as error:
            raise ExternalBlobSourceError(uri, f"the store refused it ({type(error).__name__})") from None


_PIECE_BYTES = 4 << 20


def object_pieces(uri: str, graph: Location) -> Iterator[bytes]:
    """The bytes of an object in pieces. `graph` is where the graph lies that they are loaded into."""
    location = graph.beside(uri)
    bucket = replace(location, uri=f"{location.scheme}://{location.bucket}", prefix="")
    try:
        response = obstore.get(bucket.open_store(), location.prefix)
        for piece in response.stream(min_chunk_size=_PIECE_BYTES):
            yield bytes(piece)
    except (FileNotFoundError, oops.NotFoundError):
        raise NotFoundError(f"'{uri}' does not exist") from None
    except (oops.BaseError, OSError) as error:
        failure = storage_failure(f"reading '{uri}'", error)
        raise failure or StorageError(StorageErrorKind.UNKNOWN, f"reading '{uri}': {reason_of(error)}") from error
