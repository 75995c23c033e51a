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


_FOLDERS_AND_ENDINGS: Final = {
    Kind.QUERY: ("query", "gq"),
    Kind.POLICY: ("policy", "yaml"),
    Kind.PIPELINE: ("pipeline", "yaml"),
}


def payload_path(resource: str, digest: str) -> str | None:
    """The path of a resource's payload; None when its kind has none."""
    address = Address.parse(resource)
    if address is None or address.kind not in _FOLDERS_AND_ENDINGS:
        return None
    folder, ending = _FOLDERS_AND_ENDINGS[address.kind]
    within = f"{address.graph}/" if address.graph is not None else ""
    return f"{RESOURCES_FOLDER}/{folder}/{within}{address.name}/{digest}.{ending}"


class PayloadStore:
    """The payloads of one cluster. Safe to share between threads."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def read(self, resource: str, digest: str) -> bytes:
        """A payload. Raises `NotFoundError` when it is missing, `IntegrityError` when its digest differs."""
        path = payload_path(resource, digest)
        data = self._objects.get(path) if path is not None else None
        if data is None:
            raise NotFoundError(f"{path} is missing; run `omnigraph cluster apply` to store it again")
        if (data_digest := file_digest(data)) != digest:
            raise IntegrityError(str(path), f"its content has the digest {data_digest}; run `omnigraph cluster apply`")
        return data

    def write(self, resource: str, data: bytes) -> str:
        """Store the payload of a resource under its digest; returns the digest."""
        digest = file_digest(data)
        path = payload_path(resource, digest)
        assert path is not None, "only files of queries, policies and pipelines are stored"
        # The name determines the content, so any other content is damage, and replacing it is safe.
        if not self._objects.claim(path, data) and self._objects.get(path) != data:
            self._objects.put(path, data, durable=True)
        return digest


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
        digest = resources[address].digest
        path = payload_path(address, digest)
        if path is None:
            return None
        try:
            catalog.read(address, digest)
        except NotFoundError:
            return DamagedPayload(address, Damage.MISSING, f"{path} is missing")
        except IntegrityError:
            return DamagedPayload(address, Damage.MISMATCH, f"{path} is not the applied text")
        except StorageError as problem:
            return DamagedPayload(address, Damage.READ_ERROR, str(problem))
        return None

    with ThreadPoolExecutor(_READS_AT_ONCE, thread_name_prefix="omnigraph-catalog") as readers:
        checks = readers.map(look, sorted(resources))
        return [damaged for damaged in checks if damaged is not None]
