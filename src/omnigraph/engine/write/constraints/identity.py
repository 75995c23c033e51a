"""Ids of a strict insert: none comes in twice, none is stored already.

These end a write with a `KeyConflictError`, after every other rule was checked. A pipeline rejects such rows instead,
with the same sentences.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import KeyConflictError
from omnigraph.language.violations import Sentence


def refuse_repeated_ids(type_key: str, ids: pa.ChunkedArray) -> None:
    """Raise for the first id that occurs more than once."""
    counts = pc.value_counts(ids)
    repeated = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
    if len(repeated):
        raise _conflict(Sentence.REPEATED_ID, type_key, repeated[0].as_py())


def taken_id(type_key: str, entity_id: str) -> KeyConflictError:
    """The error for an id that is stored already."""
    return _conflict(Sentence.TAKEN_ID, type_key, entity_id)


def _conflict(sentence: Sentence, type_key: str, entity_id: str) -> KeyConflictError:
    message = f"{sentence.text(type_key=type_key, entity_id=entity_id)}; nothing was written"
    return KeyConflictError(type_key, entity_id, message=message)
