"""Objects that belong to the caller: how large they are, and their bytes. Never written, never deleted.

Called by blob ingress for URIs that a policy has admitted. It trusts the URI it is given; admission is not its job.
"""

from __future__ import annotations

import threading
from typing import Final
from urllib.parse import unquote, urlsplit

import obstore
from obstore import exceptions as oops
from obstore.store import ObjectStore

from omnigraph.errors import ExternalBlobSourceError
from omnigraph.storage.cache import RecentlyUsed
from omnigraph.storage.location import Location

_REMEMBERED_BUCKETS: Final = 64


class ExternalObjects:
    """Readers of external objects, one store client per bucket. Safe to share between threads.

    Objects in a store of the graph's kind are reached with the graph's options.
    """

    def __init__(self, graph: Location | None = None) -> None:
        self._graph = graph
        self._stores: RecentlyUsed[str, ObjectStore] = RecentlyUsed(_REMEMBERED_BUCKETS)
        self._lock = threading.Lock()

    def size(self, uri: str) -> int:
        store, path = self._locate(uri)
        try:
            return int(obstore.head(store, path)["size"])
        except (oops.BaseError, OSError) as error:
            raise _unreadable(uri, error) from None

    def read(self, uri: str) -> bytes:
        store, path = self._locate(uri)
        try:
            return bytes(obstore.get(store, path).bytes())
        except (oops.BaseError, OSError) as error:
            raise _unreadable(uri, error) from None

    def _locate(self, uri: str) -> tuple[ObjectStore, str]:
        parts = urlsplit(uri)
        root = f"{parts.scheme}://{parts.netloc}" if parts.scheme == "s3" else "/"
        with self._lock:
            store = self._stores.get(root)
            if store is None:
                location = Location.parse(root) if self._graph is None else self._graph.beside(root)
                store = self._stores[root] = location.open_store()
        return store, unquote(parts.path).lstrip("/")


def _unreadable(uri: str, error: Exception) -> ExternalBlobSourceError:
    missing = isinstance(error, FileNotFoundError | oops.NotFoundError)
    return ExternalBlobSourceError(
        uri, "it does not exist" if missing else f"the store refused it ({type(error).__name__})"
    )
