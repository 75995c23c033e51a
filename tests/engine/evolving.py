"""Changing the schema of a branch as one commit, with the least that such a commit needs: for tests of history.

New types get a table, new properties a null column, dropped ones disappear from the catalog only.
"""

from __future__ import annotations

from omnigraph import Graph
from omnigraph.engine.rows.columns import table_field, table_schema
from omnigraph.engine.write.publish import Intent, PublishPlan, ReadSet, WriteTxn
from omnigraph.language.schema.migration import evolve
from omnigraph.storage.models import TableState
from omnigraph.storage.tables.staging import StagedTable, TableColumn


def change_schema(graph: Graph, branch: str, schema: str) -> None:
    def prepare(txn: WriteTxn) -> PublishPlan:
        old = txn.snapshot.catalog
        new = evolve(old, schema, allow_data_loss=True).catalog
        known = {type_.id: type_ for type_ in old.types()}
        staged: dict[str, StagedTable] = {}
        added: dict[str, TableState] = {}
        for type_ in (*new.nodes.values(), *new.edges.values()):
            before = known.get(type_.id)
            if before is None:
                added[type_.type_key] = txn.root.create_table(type_.type_key, table_schema(type_))
                continue
            state = txn.base.tables[f"{before.kind}:{before.name}"]
            columns = {prop.column for prop in before.property_list}
            stored = [TableColumn(field) for field in txn.root.reader.open(state).schema]
            fresh = [TableColumn(table_field(prop)) for prop in type_.property_list if prop.column not in columns]
            staged[type_.type_key] = txn.root.staging.reshape(state, [*stored, *fresh]) if fresh else StagedTable(state)
        kept = staged.keys() | added.keys()
        return PublishPlan(
            staged=staged,
            added=added,
            dropped=frozenset(txn.base.tables.keys() - kept),
            read_set=ReadSet(everything=True),
            schema=txn.root.accept_schema(schema, new.to_json()),
            strict=True,
        )

    graph._workspace.commit(branch, prepare, Intent(kind="schema_apply"), strict=True)
