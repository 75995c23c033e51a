"""Value constraints: `@range`, then `@check`, then enum membership, each judged on one row alone."""

from __future__ import annotations

from omnigraph.engine.kernels.rows import RejectedRow, TypedRows


def check_values(rows: TypedRows) -> list[RejectedRow]:
    """Every violation of a type's value constraints, in rule order and then row order; empty when all hold."""
    raise NotImplementedError
