"""When values are one for groups and `distinct`: a law against keys of Python."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.engine.query.limits import MemoryBudget
from omnigraph.engine.query.operators.grouping import identity_codes, row_codes
from omnigraph.engine.query.properties import Located
from omnigraph.engine.query.value_columns import PATH, REFERENCE, column_type, convert
from omnigraph.errors import ResourceLimitError
from omnigraph.language.catalog import NodeType
from omnigraph.language.query.value_types import F64, I64, EntityType, ListType, NullType, RecordType, list_of

floats = st.none() | st.sampled_from([0.0, -0.0, math.nan, -math.nan, 1.5, math.inf])
texts = st.none() | st.sampled_from(["", "a", "b", "ab"])
references = st.none() | st.fixed_dictionaries({"member": st.integers(0, 1), "row": st.integers(0, 2)})
nodes = st.lists(references.filter(bool), max_size=2)

lists = st.none() | st.lists(texts, max_size=2)
nested = st.none() | st.lists(st.none() | st.lists(floats, max_size=2), max_size=2)
records = st.none() | st.fixed_dictionaries({"a": floats, "b": texts})
vectors = st.none() | st.lists(floats.filter(lambda each: each is not None), min_size=2, max_size=2)

SHAPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "bool": (pa.bool_(), st.none() | st.booleans()),
    "float": (pa.float64(), floats),
    "narrow float": (pa.float32(), floats),
    "text": (pa.string(), texts),
    "list": (pa.list_(pa.string()), lists),
    "wide list": (pa.large_list(pa.large_string()), lists),
    "nested": (pa.list_(pa.list_(pa.float64())), nested),
    "record": (pa.struct([("a", pa.float64()), ("b", pa.string())]), records),
    "entity": (REFERENCE, references),
    "path": (PATH, st.none() | st.fixed_dictionaries({"nodes": nodes, "edges": nodes})),
    "vector": (pa.list_(pa.float32(), 2), vectors),
}


def key(value: Any) -> Any:
    """Equal for what is one value."""
    match value:
        case float():
            return "NaN" if math.isnan(value) else value + 0.0
        case list():
            return ("list", *map(key, value))
        case dict():
            return ("record", *((name, key(value[name])) for name in sorted(value)))
    return value


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(SHAPES)), st.data())
def test_equal_codes_mean_one_value(shape: str, data: st.DataObject) -> None:
    type_, values = SHAPES[shape]
    drawn = data.draw(st.lists(values, min_size=1, max_size=8))
    array = pa.concat_arrays([pa.nulls(1, type_), pa.array(drawn, type_)]).slice(1)
    codes, size = identity_codes(array, MemoryBudget())
    assert ((codes >= 0) & (codes < size)).all()
    keys = list(map(key, drawn))
    for i, one in enumerate(keys):
        assert [bool(each) for each in codes == codes[i]] == [one == other for other in keys]


def test_rows_share_codes_with_their_values() -> None:
    column = Located(pa.array(["a", "b", None]), np.array([1, 1, -1, 2, 0]))
    codes, _ = row_codes(column, 5, MemoryBudget())
    assert codes[0] == codes[1] != codes[4]
    assert codes[2] == codes[3]
    assert list(row_codes(pa.scalar("a"), 3, MemoryBudget()).codes) == [0, 0, 0]
    assert len(row_codes(Located(pa.array([], pa.string()), np.array([], np.int64)), 0, MemoryBudget()).codes) == 0


def test_a_dictionary_counts_as_memory() -> None:
    with pytest.raises(ResourceLimitError):
        identity_codes(pa.array(["x" * 1000] * 100), MemoryBudget(100_000))


# ---- conversion -----------------------------------------------------------------------------------------

AUTHOR, BOOK = (NodeType(name=n, id=i, table_incarnation=1, birth_name=n) for i, n in enumerate(["Author", "Book"], 1))


@pytest.mark.parametrize(
    ("source", "target", "values", "expected"),
    [
        (NullType(), I64.as_nullable(), [None, None], [None, None]),
        (I64, F64, [1, 2**53 + 1], [1.0, 2.0**53]),
        (list_of(I64), list_of(F64), [[1], None, []], [[1.0], None, []]),
        (
            RecordType((("a", I64), ("b", list_of(I64)))), RecordType((("a", F64), ("b", list_of(F64)))),
            [{"a": 1, "b": [2]}, None], [{"a": 1.0, "b": [2.0]}, None],
        ),
        (
            ListType(EntityType((BOOK,))), ListType(EntityType((AUTHOR, BOOK))),
            [[{"member": 0, "row": 7}], None], [[{"member": 1, "row": 7}], None],
        ),
    ],
)  # fmt: skip
def test_values_are_converted_to_a_type_that_holds_them(
    source: Any, target: Any, values: list[Any], expected: list[Any]
) -> None:
    array = pa.concat_arrays([pa.nulls(1, column_type(source)), pa.array(values, column_type(source))]).slice(1)
    converted = convert(array, source, target)
    assert converted.type == column_type(target)
    assert converted.to_pylist() == expected
