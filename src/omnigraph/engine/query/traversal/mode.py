"""Which way a traversal finds neighbours: chosen by cost, or forced by the environment."""

from __future__ import annotations

import os
from enum import StrEnum

from omnigraph.errors import BadRequestError

MODE_VARIABLE = "OMNIGRAPH_TRAVERSAL_MODE"


class TraversalMode(StrEnum):
    """`INDEXED` looks edges up by their endpoints, `CSR` walks the adjacency arrays; the answers are the same."""

    AUTO = "auto"
    INDEXED = "indexed"
    CSR = "csr"

    @classmethod
    def from_environment(cls) -> TraversalMode:
        text = os.environ.get(MODE_VARIABLE, "").strip().lower()
        try:
            return cls(text) if text else cls.AUTO
        except ValueError:
            raise BadRequestError(f"{MODE_VARIABLE} is '{text}'; set it to indexed, csr or auto") from None
