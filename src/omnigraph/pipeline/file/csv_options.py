"""The options of a CSV source. Spark's names for them count where RFC 4180 leaves a choice.

What would make another format of it, or has no meaning here, is refused before a run begins: an option that is
silently ignored loads other values than its author wants.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from omnigraph.engine.rows.kernels.csv_rows import CsvDialect
from omnigraph.errors import BadRequestError
from omnigraph.language.source import did_you_mean
from omnigraph.pipeline.sources.input_files import LISTING_OPTIONS

_DELIMITER: Final = ("sep", "delimiter")
_ENCODING: Final = ("encoding", "charset")
_OURS: Final = (*_DELIMITER, *_ENCODING, "quote", "header", "nullValue")
# Options of Spark that can only say what is so already.
_FIXED: Final[dict[str, tuple[str, ...]]] = {
    "multiLine": ("true", "false"),
    "enforceSchema": ("true", "false"),
    "inferSchema": ("false",),
    "mode": ("permissive",),
    "lineSep": ("\n", "\r\n", "\r"),
    "ignoreLeadingWhiteSpace": ("false",),
    "ignoreTrailingWhiteSpace": ("false",),
}
_REMEDIES: Final = {
    "inferSchema": "values are texts and are converted to the types of the properties; use `cast` where SQL needs it",
    "mode": "quality.on_error says what becomes of bad rows",
    "escape": "a quote within a quoted value is written twice",
    "ignoreLeadingWhiteSpace": "use `ltrim` in the mapping",
    "ignoreTrailingWhiteSpace": "use `rtrim` in the mapping",
    "lineSep": "a record ends with a line",
}


def csv_dialect(options: Mapping[str, str]) -> CsvDialect:
    """How the files of a source are written, or a BadRequestError for an option that can't be honoured."""
    spelled = {name.lower(): name for name in (*_OURS, *_FIXED, *LISTING_OPTIONS, "escape")}
    given: dict[str, str] = {}
    for option, value in options.items():
        name = spelled.get(option.lower())
        if name is None:
            hint = did_you_mean(option, [*_OURS, *LISTING_OPTIONS]) or f"there are {', '.join(_OURS)}"
            raise BadRequestError(f"a CSV source has no option '{option}'; {hint}")
        if name in _FIXED and value.lower() not in _FIXED[name]:
            raise BadRequestError(f"a CSV source can't have {option}: {value!r}; {_REMEDIES[name]}")
        given[name] = value
    quote = given.get("quote", '"')
    if (escape := given.get("escape", quote)) != quote:
        raise BadRequestError(f"a CSV source can't have escape: {escape!r}; {_REMEDIES['escape']}")
    if (header := given.get("header", "true").lower()) not in ("true", "false"):
        raise BadRequestError(f"the CSV option header must be true or false, not '{header}'")
    dialect = CsvDialect(
        delimiter=_either(given, _DELIMITER, ","),
        quote=None if quote in ("", "\0") else quote,
        header=header == "true",
        encoding=_either(given, _ENCODING, "utf-8"),
        null=given.get("nullValue"),
    )
    dialect.check()
    return dialect


def _either(given: Mapping[str, str], names: tuple[str, str], default: str) -> str:
    values = {given[name] for name in names if name in given}
    if len(values) > 1:
        raise BadRequestError(f"the CSV options {names[0]} and {names[1]} mean the same and differ")
    return next(iter(values), default).replace("\\t", "\t")
