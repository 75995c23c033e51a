"""Vectors that are computed from a text of the same row: where they are missing, and rows with them filled in.

A type whose vectors are computed has to be read as if they could be left out; what is still missing afterwards is
refused by whoever computes them. Loads and mutations do so in process, runs of a pipeline on executors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.language.catalog import Catalog, NodeType, Property, TableType

Type = TypeVar("Type", bound=TableType)


def fillable(type_: Type, is_computed: Callable[[Property], bool]) -> Type:
    """The type with those vectors nullable that will be computed."""
    if not any(is_computed(prop) and not prop.type.nullable for prop in type_.property_list):
        return type_
    properties = tuple(
        msgspec.structs.replace(prop, type=prop.type.as_nullable()) if is_computed(prop) else prop
        for prop in type_.property_list
    )
    return msgspec.structs.replace(type_, property_list=properties)


def fillable_catalog(catalog: Catalog, is_computed: Callable[[NodeType, Property], bool]) -> Catalog:
    """The catalog with such types."""
    nodes = {name: fillable(node, partial(is_computed, node)) for name, node in catalog.nodes.items()}
    if all(nodes[name] is node for name, node in catalog.nodes.items()):
        return catalog
    return msgspec.structs.replace(catalog, nodes=nodes)


def without_vector(rows: pa.Table, source: str, target: str) -> NDArray[np.bool_]:
    """Which rows have a text and no vector. Blanks are no text: providers refuse them."""
    texts = rows.column(source)
    has_text = pc.fill_null(pc.not_equal(pc.utf8_trim_whitespace(texts), ""), False)
    wanted: NDArray[np.bool_] = pc.and_(pc.is_null(rows.column(target)), has_text).to_numpy()
    return wanted


def with_vectors(rows: pa.Table, target: str, where: NDArray[np.bool_], vectors: NDArray[np.float32]) -> pa.Table:
    """The rows with a vector each at those places, and all others as they were."""
    index = rows.column_names.index(target)
    field = rows.schema.field(index)
    column = rows.column(index).combine_chunks()
    present = column.is_valid().to_numpy(zero_copy_only=False)
    filled = np.zeros((rows.num_rows, vectors.shape[1]), np.float32)
    if present.any():
        kept = column.filter(pa.array(present)).flatten().to_numpy(zero_copy_only=False)
        filled[present] = kept.reshape(-1, vectors.shape[1])
    filled[where] = vectors
    cells = vector_cells(filled, field.type, pa.array(~(present | where)))
    return rows.set_column(index, field, cells)


def vector_cells(vectors: NDArray[np.float32], type_: pa.DataType, missing: pa.Array | None = None) -> pa.Array:
    """A cell per vector, null where it is missing."""
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), type=type_, mask=missing)
