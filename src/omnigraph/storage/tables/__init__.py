"""Lance tables. Only this package calls pylance or holds an object of its making.

Reading goes through `Table`, a view of one immutable version (`rows`); writing through `Staging`, whose every method
returns a *detached* version that belongs to no lineage and that nobody sees until a log entry names it. The attached
HEAD of a dataset always stays at its empty version 1.
"""

from omnigraph.storage.tables.reader import TableReader
from omnigraph.storage.tables.rows import Table
from omnigraph.storage.tables.staging import StagedTable, Staging

__all__ = ["StagedTable", "Staging", "Table", "TableReader"]
