"""The ids in the columns at the ends of edges, tagged with the type of the node where the end is an interface.

Rows hold the stored form everywhere between their decoding and their rendering: two ends are the same node if, and only
if, their stored ids are equal. So rules, comparisons and lookups need no second column. Everything that shows an end
to a user, or joins it with the ids of nodes, comes through here.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.language.catalog import TAG_SIGN, UNTYPED, EdgeEnd, EdgeType, TableType, type_tag

Ids: TypeAlias = "pa.Array | pa.ChunkedArray"

TAG: Final = f"^{TAG_SIGN}[^{TAG_SIGN}]*{TAG_SIGN}"
"""A regular expression for the tag before an id."""
_TAG_OF_TEXT: Final = re.compile(TAG)


class IdForm(NamedTuple):
    """How the column of an end holds the ids of nodes of one type: behind `tag`. Those that begin like a tag themselves
    are behind `signed`, which differs from it only where ids need no tag. A plain column has neither."""

    tag: str = ""
    signed: str = ""

    @classmethod
    def of(cls, end: EdgeEnd, node: str) -> IdForm:
        if end.interface is None:
            return PLAIN
        tag = end.tag_of(node)
        return cls(tag, tag or type_tag(end.interface.base or 0))

    def store(self, ids: Ids) -> Ids:
        """The column of an end for ids of this type."""
        if not self.signed:
            return ids
        tagged = pc.binary_join_element_wise(pa.scalar(self.signed, ids.type), ids, pa.scalar("", ids.type))
        return tagged if self.tag else pc.if_else(pc.starts_with(ids, TAG_SIGN), tagged, ids)

    def read(self, column: Ids) -> Ids:
        """The ids of this type in the column of an end; null where it holds one of another type."""
        if not self.signed:
            return column
        untagged = pc.utf8_slice_codeunits(column, len(self.signed))
        ids = pc.if_else(pc.starts_with(column, self.signed), untagged, pa.scalar(None, column.type))
        return ids if self.tag else pc.if_else(pc.starts_with(column, TAG_SIGN), ids, column)


PLAIN: Final = IdForm()


def stored_id(end: EdgeEnd, node: str, node_id: str) -> str:
    """The id of a node of a type as the column of an end holds it."""
    form = IdForm.of(end, node)
    return (form.signed if node_id.startswith(TAG_SIGN) else form.tag) + node_id


def stored_ids(end: EdgeEnd, node: str, ids: Ids) -> Ids:
    """The same for a whole column."""
    return IdForm.of(end, node).store(ids)


def ids_of_type(end: EdgeEnd, node: str, column: Ids) -> Ids:
    """The ids of nodes of one type in the column of an end; null where it is of another type."""
    return IdForm.of(end, node).read(column)


def plain_ids(end: EdgeEnd, column: Ids) -> Ids:
    """The ids of the nodes in the column of an end, whatever type each has."""
    return column if end.interface is None else pc.replace_substring_regex(column, TAG, "")


def plain_id(end: EdgeEnd, stored: str) -> str:
    return stored if end.interface is None else _TAG_OF_TEXT.sub("", stored)


def type_names(end: EdgeEnd, column: Ids) -> Ids:
    """The names of the types of the nodes in the column of an end."""
    if end.interface is None:
        return pc.if_else(pc.is_valid(column), end.types[0], pa.scalar(None, pa.string()))
    names = pa.nulls(len(column), pa.string())
    for node in end.types:
        names = pc.if_else(pc.is_valid(ids_of_type(end, node, column)), node, names)
    return names


def untyped_ids(column: Ids) -> Ids:
    """The ids whose type is not known yet; null where it is."""
    ids = pc.utf8_slice_codeunits(column, len(UNTYPED))
    return pc.if_else(pc.starts_with(column, UNTYPED), ids, pa.scalar(None, column.type))


def end_of_column(type_: TableType, column: str) -> EdgeEnd | None:
    """The end whose ids a column holds, where they are tagged."""
    if not isinstance(type_, EdgeType) or not type_.has_interface_end:
        return None
    return next((end for end in type_.ends if end.column == column and end.interface is not None), None)


def interface_ends(type_: TableType) -> list[EdgeEnd]:
    """The ends of an edge type that are interfaces."""
    return [end for end in type_.ends if end.interface is not None] if isinstance(type_, EdgeType) else []


def with_plain_ends(type_: TableType, rows: pa.Table, *, types: bool = False) -> pa.Table:
    """Rows as a user sees them: without tags, and with `types` a column behind each tagged one that names the types
    (`src_type`, `dst_type`)."""
    for end in interface_ends(type_):
        index = rows.schema.get_field_index(end.column)
        if index >= 0:
            column = rows.column(index)
            rows = rows.set_column(index, rows.schema.field(index), plain_ids(end, column))
            if types:
                rows = rows.add_column(index + 1, f"{end.column}_type", type_names(end, column))
    return rows
