"""New values of one column, made fragment by fragment on executors: the other columns stay in the files they are in."""

from __future__ import annotations

from omnigraph.engine.bulk.remote_table import RemoteTable
from omnigraph.engine.write.publish import WriteTxn
from omnigraph.storage.tables import StagedTable
from omnigraph.storage.tables.fragments import FragmentStaging, fragment_descriptions


class ColumnRewrite:
    """One type of a captured head whose fragments get new values.

    What became of a fragment is remembered by all that it consists of, so it is good for any later head that still has
    that fragment: `done` is handed from attempt to attempt.
    """

    def __init__(self, txn: WriteTxn, type_key: str, done: dict[str, str | None]) -> None:
        self._root = txn.root
        self._state = txn.state(type_key)
        self._described = fragment_descriptions(txn.root.reader.open(self._state))
        self._done = done
        self.table = RemoteTable.of(txn.resources, self._state)

    def undone(self) -> list[int]:
        """Fragments that still have to be looked at."""
        return [number for number, text in self._described.items() if text not in self._done]

    def note(self, fragment_id: int, rewritten: str | None) -> None:
        """What `RemoteTable.with_column` made of a fragment."""
        self._done[self._described[fragment_id]] = rewritten

    def staged(self) -> StagedTable | None:
        """The version with the new values; None when no row got one."""
        found = [text for each in self._described.values() if (text := self._done[each]) is not None]
        if not found:
            return None
        return FragmentStaging(self._root.reader, self._root.trace).with_rewritten_columns(self._state, found)
