"""Rows that can be read once, kept so that they can be read again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import IO, Final

from omnigraph.errors import BadRequestError

RECORDS_PER_BLOCK: Final = 8192
_IN_MEMORY: Final = 64 << 20


def scratch_file() -> IO[bytes]:
    """A file without a name, deleted when it is closed."""
    import tempfile

    return tempfile.SpooledTemporaryFile(_IN_MEMORY)


class Spooled:
    """Rows of an iterator, which are gone once read: they are copied, on disk when there are many."""

    def __init__(self, rows: Iterable[object]) -> None:
        self._rest = iter(rows)
        self._copy = scratch_file()
        self._complete = False

    def __iter__(self) -> Iterator[object]:
        if self._complete:
            return self._again()
        return self._once()

    def _once(self) -> Iterator[object]:
        import pickle

        while block := list(islice(self._rest, RECORDS_PER_BLOCK)):
            try:
                pickle.dump(block, self._copy, pickle.HIGHEST_PROTOCOL)
            except (pickle.PicklingError, TypeError, AttributeError) as error:
                raise BadRequestError(
                    f"a row holds something that is not a value: {error}; give a list of dictionaries"
                ) from None
            yield from block
        self._complete = True

    def _again(self) -> Iterator[object]:
        import pickle

        self._copy.seek(0)
        while True:
            try:
                yield from pickle.load(self._copy)
            except EOFError:
                return
