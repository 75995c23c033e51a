"""Payloads: the texts of queries, policies and pipelines, stored under the digest that the ledger records.

A payload is stored before a state names it and is never removed. It is hashed again when it is read: a text that is not
the applied one is never used.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import Final, NamedTuple

from omnigraph.cluster.resources import Address, Diagnostic, Kind, error, warning
from omnigraph.cluster.state import Resource, file_digest
from omnigraph.cluster.storage_root import CLUSTER_FOLDER
from omnigraph.errors import IntegrityError, NotFoundError, StorageError
from omnigraph.storage.objects import Objects

RESOURCES_FOLDER: Final = f"{CLUSTER_FOLDER}/resources"


def query_path(graph_id: str, name: str, digest: str) -> str:
    return f"{RESOURCES_FOLDER}/query/{graph_id}/{name}/{digest}.gq"


def policy_path(name: str, digest: str) -> str:
    return f"{RESOURCES_FOLDER}/policy/{name}/{digest}.yaml"


def pipeline_path(name: str, digest: str) -> str:
    return f"{RESOURCES_FOLDER}/pipeline/{name}/{digest}.yaml"


def payload_path(address: Address, digest: str) -> str | None:
    """The path of a resource's payload; None when its kind has none."""
    match address.kind:
        case Kind.QUERY:
            return query_path(address.graph or "", address.name, digest)
        case Kind.POLICY:
            return policy_path(address.name, digest)
        case Kind.PIPELINE:
            return pipeline_path(address.name, digest)
    return None


class PayloadStore:
    """The payloads of one cluster. Safe to share between threads."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def read(self, path: str, digest: str) -> bytes:
        """A payload. Raises `NotFoundError` when it is missing, `IntegrityError` when its digest differs."""
        data = self._objects.get(path)
        if data is None:
            raise NotFoundError(f"{path} is missing; run `omnigraph cluster apply` to store it again")
        if (found := file_digest(data)) != digest:
            raise IntegrityError(path, f"its content has the digest {found}; run `omnigraph cluster apply`")
        return data

    def write(self, path: str, data: bytes) -> str:
        """Store a payload under the path of its digest; returns the digest."""
        # The name determines the content, so any other content is damage, and replacing it is safe.
        if not self._objects.claim(path, data) and self._objects.get(path) != data:
            self._objects.put(path, data, durable=True)
        return file_digest(data)

    def write_query(self, graph_id: str, name: str, data: bytes) -> str:
        """Store the file of a query; returns its digest."""
        return self.write(query_path(graph_id, name, file_digest(data)), data)

    def write_pipeline(self, name: str, data: bytes) -> str:
        """Store the file of a pipeline; returns its digest."""
        return self.write(pipeline_path(name, file_digest(data)), data)

    def write_policy(self, name: str, data: bytes) -> str:
        """Store the file of a policy; returns its digest."""
        return self.write(policy_path(name, file_digest(data)), data)


_READS_AT_ONCE: Final = 8


class Damage(StrEnum):
    MISSING = "missing"
    MISMATCH = "mismatch"
    READ_ERROR = "read_error"


class DamagedPayload(NamedTuple):
    address: str
    damage: Damage
    reason: str

    def finding(self, remedy: str) -> Diagnostic:
        if self.damage is Damage.READ_ERROR:
            return error("catalog_payload_read_error", self.address, self.reason)
        code = "catalog_payload_missing" if self.damage is Damage.MISSING else "catalog_payload_mismatch"
        return warning(code, self.address, f"{self.reason}; {remedy}")


def damaged_payloads(catalog: PayloadStore, resources: Mapping[str, Resource]) -> list[DamagedPayload]:
    """The damaged payloads of these resources, sorted by address. One read per payload."""

    def look(address: str) -> DamagedPayload | None:
        parsed = Address.parse(address)
        digest = resources[address].digest
        path = payload_path(parsed, digest) if parsed is not None else None
        if path is None:
            return None
        try:
            catalog.read(path, digest)
        except NotFoundError:
            return DamagedPayload(address, Damage.MISSING, f"{path} is missing")
        except IntegrityError:
            return DamagedPayload(address, Damage.MISMATCH, f"{path} is not the applied text")
        except StorageError as problem:
            return DamagedPayload(address, Damage.READ_ERROR, str(problem))
        return None

    with ThreadPoolExecutor(_READS_AT_ONCE, thread_name_prefix="omnigraph-catalog") as readers:
        found = readers.map(look, sorted(resources))
        return [damaged for damaged in found if damaged is not None]
