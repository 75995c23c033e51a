"""Errors of the data source on their way through Spark, which keeps nothing of an exception but its text.

`df.write.format("omnigraph")` runs in processes of Spark and fails with Spark's own error. A writer adds the fields of
its error to the text, as a note, and `error_behind` makes the same error of it where the DataFrame is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from omnigraph.errors import ConstraintError, ConstraintRule, KeyConflictError, OmniGraphError

_MARK: Final = "omnigraph error: "
_CONSTRAINT: Final = ("type_key", "property", "entity_id", "line")
_KEY: Final = ("type_key", "entity_id")


@contextmanager
def noting_fields() -> Iterator[None]:
    """Errors that have fields a caller may want are raised with these in a note."""
    try:
        yield
    except ConstraintError as error:
        fields = {name: getattr(error, name) for name in _CONSTRAINT}
        error.add_note(_note({"rule": error.rule.value, "message": str(error), **fields}))
        raise
    except KeyConflictError as error:
        error.add_note(_note({"message": str(error), **{name: getattr(error, name) for name in _KEY}}))
        raise


def _note(fields: dict[str, Any]) -> str:
    return _MARK + json.dumps(fields)


def error_behind(error: BaseException) -> OmniGraphError | None:
    """The `ConstraintError` or `KeyConflictError` that made Spark fail; None when Spark failed for another reason."""
    for line in str(error).splitlines():
        if line.startswith(_MARK):
            fields = json.loads(line.removeprefix(_MARK))
            if "rule" in fields:
                return ConstraintError(ConstraintRule(fields.pop("rule")), **fields)
            return KeyConflictError(**fields)
    return None
