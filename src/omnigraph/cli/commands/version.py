"""`omnigraph version`: the version of the program, and of the storage format it writes."""

from __future__ import annotations

from omnigraph import __version__

INTERNAL_SCHEMA_VERSION = 6


def version() -> None:
    """Print the version and the storage format version."""
    print(f"omnigraph {__version__}")
    print(f"internal-schema {INTERNAL_SCHEMA_VERSION}")
