"""Whose schema a merged graph has.

A schema that one side changed is taken, and the other side's rows are carried into it. Two different changes are a
conflict that names every declaration that differs; rows are not looked at then.
"""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.api.branches import MergeConflict
from omnigraph.api.enums import ConflictKind, Side
from omnigraph.engine.history.merge.resolution import conflict
from omnigraph.engine.snapshot import Snapshot
from omnigraph.language.catalog import AnyType, Catalog


def schema_side(base: Snapshot, source: Snapshot, target: Snapshot) -> Side | list[MergeConflict]:
    """The side whose schema is taken, or why neither can be."""
    digest = source.entry.schema
    if digest == target.entry.schema:
        return _same_lifetimes(source, target) or Side.OURS
    if digest == base.entry.schema:
        return Side.OURS
    if target.entry.schema == base.entry.schema:
        return Side.THEIRS
    differing = list(_differing(source, target))
    if differing:
        return differing
    lifetimes = _same_lifetimes(source, target)
    # Equal declarations whose comments or spent identities differ: the one that has spent more knows them all.
    newer = Side.THEIRS if source.catalog.next_id > target.catalog.next_id else Side.OURS
    return lifetimes or newer


def _same_lifetimes(source: Snapshot, target: Snapshot) -> list[MergeConflict]:
    """A type that both sides created is two types of one name, each with its own entities."""
    found = []
    for type_key in sorted(source.entry.tables.keys() & target.entry.tables.keys()):
        if source.entry.tables[type_key].table_id != target.entry.tables[type_key].table_id:
            message = f"{type_key} was created on '{source.branch}' and on '{target.branch}' independently"
            found.append(conflict(ConflictKind.SCHEMA_DIVERGENCE, type_key, None, message))
    return found


def _differing(source: Snapshot, target: Snapshot) -> Iterator[MergeConflict]:
    theirs, ours = _declarations(source.catalog), _declarations(target.catalog)
    for type_key in sorted(theirs.keys() | ours.keys()):
        mine, other = ours.get(type_key), theirs.get(type_key)
        if mine == other:
            continue
        if mine is None or other is None:
            only = source.branch if mine is None else target.branch
            message = f"{type_key} is declared on '{only}' only, and both branches changed the schema"
        else:
            parts = ", ".join(_differing_parts(mine, other)) or "its declaration"
            message = f"{type_key} is declared differently on '{source.branch}' and '{target.branch}': {parts}"
        yield conflict(ConflictKind.SCHEMA_DIVERGENCE, type_key, None, message)


def _declarations(catalog: Catalog) -> dict[str, AnyType]:
    return {f"{type_.kind}:{type_.name}": type_ for type_ in catalog.types()}


def _differing_parts(mine: AnyType, other: AnyType) -> Iterator[str]:
    for name in sorted(mine.properties.keys() | other.properties.keys()):
        if mine.properties.get(name) != other.properties.get(name):
            yield f"property '{name}'"
