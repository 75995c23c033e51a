"""The catalog: the texts that a ledger names by their digest, stored under it.

A text is stored before a state names it and is never removed, so a state that can be read has its texts. What is read
is hashed again: a text that is not the one that was applied is never used.
"""

from __future__ import annotations

from typing import Final

from omnigraph.cluster.addresses import Address, Kind
from omnigraph.cluster.digests import file_digest
from omnigraph.cluster.ledger import CLUSTER_FOLDER
from omnigraph.engine.object_store import ObjectStore
from omnigraph.errors import IntegrityError, NotFoundError

RESOURCES_FOLDER: Final = f"{CLUSTER_FOLDER}/resources"


def query_path(graph_id: str, name: str, digest: str) -> str:
    return f"{RESOURCES_FOLDER}/query/{graph_id}/{name}/{digest}.gq"


def policy_path(name: str, digest: str) -> str:
    return f"{RESOURCES_FOLDER}/policy/{name}/{digest}.yaml"


def pipeline_path(name: str, digest: str) -> str:
    return f"{RESOURCES_FOLDER}/pipeline/{name}/{digest}.yaml"


def payload_path(address: Address, digest: str) -> str | None:
    """Where the text of a resource is stored; None when its kind has none."""
    match address.kind:
        case Kind.QUERY:
            return query_path(address.graph or "", address.name, digest)
        case Kind.POLICY:
            return policy_path(address.name, digest)
        case Kind.PIPELINE:
            return pipeline_path(address.name, digest)
    return None


class Catalog:
    """The payloads of one cluster. Safe to share between threads."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def read(self, path: str, digest: str) -> bytes:
        """A payload. Raises `NotFoundError` when it is missing, `IntegrityError` when it is another text."""
        data = self._store.read(path)
        if data is None:
            raise NotFoundError(f"{path} is missing; run `omnigraph cluster apply` to store it again")
        if (found := file_digest(data)) != digest:
            raise IntegrityError(path, f"its content has the digest {found}; run `omnigraph cluster apply`")
        return data

    def write(self, path: str, data: bytes) -> str:
        """Store a payload under the path that its digest gives it; the digest."""
        # The name says what has to stand there, so whatever else does is damage, and replacing it is safe.
        if not self._store.create(path, data) and self._store.read(path) != data:
            self._store.replace(path, data)
        return file_digest(data)

    def write_query(self, graph_id: str, name: str, data: bytes) -> str:
        """Store the file of a query; its digest."""
        return self.write(query_path(graph_id, name, file_digest(data)), data)

    def write_pipeline(self, name: str, data: bytes) -> str:
        """Store the file of a pipeline; its digest."""
        return self.write(pipeline_path(name, file_digest(data)), data)

    def write_policy(self, name: str, data: bytes) -> str:
        """Store the file of a policy; its digest."""
        return self.write(policy_path(name, file_digest(data)), data)
