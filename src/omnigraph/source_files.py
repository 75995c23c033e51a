"""Texts that a program gives as they are or as files: schemas, and rules."""

from __future__ import annotations

import re
from os import PathLike
from pathlib import Path
from typing import Final, NamedTuple

from omnigraph.errors import BadRequestError

_NAME_OF_A_SCHEMA: Final = re.compile(r"[^\n{}]*\.pg\s*")


class GivenSchema(NamedTuple):
    """The text of a schema, and the file that errors name."""

    text: str
    path: str | None = None


def schema_source(schema: str | PathLike[str]) -> GivenSchema:
    """A schema as it is, or that of a file. No text of a schema looks like a name that ends in `.pg`."""
    if isinstance(schema, str) and not _NAME_OF_A_SCHEMA.fullmatch(schema):
        return GivenSchema(schema)
    if not isinstance(schema, str | PathLike):
        raise BadRequestError(f"a schema is a text or the path of a file, not '{type(schema).__name__}'")
    path = Path(schema.rstrip() if isinstance(schema, str) else schema)
    return GivenSchema(read_text(path, "schema"), str(path))


def read_text(path: Path, what: str) -> str:
    """The text of a file; `what` it is shows in messages."""
    try:
        return path.read_text("utf-8-sig")
    except OSError as error:
        raise BadRequestError(f"can't read the {what} '{path}': {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadRequestError(f"the {what} '{path}' is not UTF-8 text (byte {error.start})") from error
    except ValueError as error:
        raise BadRequestError(f"can't read the {what} {str(path)!r}: {error}") from error
