"""The payloads that a state names, verified: read again and hashed, all at once."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import Final, NamedTuple

from omnigraph.cluster.addresses import Address
from omnigraph.cluster.catalog import Catalog, payload_path
from omnigraph.cluster.diagnostics import Diagnostic, error, warning
from omnigraph.cluster.state import Resource
from omnigraph.errors import IntegrityError, NotFoundError, StorageError

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


def damaged_payloads(catalog: Catalog, resources: Mapping[str, Resource]) -> list[DamagedPayload]:
    """What is wrong with the payloads of these resources, sorted by address. One read for each that has one."""

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
            return DamagedPayload(address, Damage.MISMATCH, f"{path} holds another text than was applied")
        except StorageError as problem:
            return DamagedPayload(address, Damage.READ_ERROR, str(problem))
        return None

    with ThreadPoolExecutor(_READS_AT_ONCE, thread_name_prefix="omnigraph-catalog") as readers:
        found = readers.map(look, sorted(resources))
        return [damaged for damaged in found if damaged is not None]
