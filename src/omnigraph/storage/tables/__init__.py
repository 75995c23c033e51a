"""Lance tables. Only this package calls pylance or holds an object of its making.

Reading goes through `Table`, a view of one immutable version (`rows`); writing through `Staging`, whose every method
returns a *detached* version that belongs to no lineage and that nobody sees until a log entry names it. The attached
HEAD of a dataset always stays at its empty version 1. A process that only reads never imports `staging`.

Lance imports the parts of Arrow that import pandas, so a process of ours imports those in its own way before.
"""

from omnigraph.process import PROCESS, without_collections

with without_collections():
    PROCESS.import_arrow()
    from omnigraph.storage.tables.reader import TableReader
    from omnigraph.storage.tables.rows import Table

__all__ = ["Table", "TableReader"]
