"""Row kernels: bytes or loosely typed Arrow columns in, typed rows and violations out.

Pure functions of their arguments: no store, no snapshot, no global state, so that the in-process loader and Spark
executors run the same code. Rules that span rows (uniqueness, endpoints, cardinality) are checked elsewhere.
"""

from omnigraph.engine.rows.kernels.decoder import decode, decode_collecting
from omnigraph.engine.rows.kernels.records import RecordTyper, type_batch
from omnigraph.engine.rows.kernels.typed_rows import DecodedInput, RejectedRow, Stage, TypedRows, check_values

__all__ = [
    "DecodedInput",
    "RecordTyper",
    "RejectedRow",
    "Stage",
    "TypedRows",
    "check_values",
    "decode",
    "decode_collecting",
    "type_batch",
]
