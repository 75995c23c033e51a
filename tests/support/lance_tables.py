"""The Lance dataset behind an open table, for tests that look at what Lance did with it."""

from __future__ import annotations

from typing import Any

from omnigraph.storage.tables import Table


def lance_of(table: Table) -> Any:
    """Nobody but `storage.tables` touches it in the product, and no test but through here."""
    return table._dataset
