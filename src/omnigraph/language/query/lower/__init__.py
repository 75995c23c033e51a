"""Lowering: from resolved queries to plans. `compile` calls `read.lower_read` and `writes.lower_writes`."""
