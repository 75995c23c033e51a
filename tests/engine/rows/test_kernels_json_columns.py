"""Blocks of graph records that are read as columns: the same rows and the same errors as record by record."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.api.governance import Limits
from omnigraph.engine.rows.kernels.decoder import decode, decode_collecting, read_ahead
from omnigraph.engine.rows.kernels.ids import new_ulids
from omnigraph.engine.rows.kernels.json_columns import JsonColumns
from omnigraph.engine.rows.kernels.ndjson import LineChunk, Meter, line_chunks
from omnigraph.engine.rows.kernels.typed_rows import DecodedInput, RecordForm, first_in_stage_order
from omnigraph.errors import ConstraintError, ResourceLimitError
from omnigraph.language.catalog import Catalog
from omnigraph.language.schema.compile import accept_schema

SCHEMA = """
node Person {
  slug: String @key
  name: String?
  age: I32?
  big: U64?
  pay: F64?
  narrow: F32?
  on: Bool = true
  born: Date?
  seen: DateTime?
  face: Vector(2)?
  mood: enum(kind, cold)?
  tags: [String]?
  marks: [F64]?
  days: [Date]?
  @range(age, 0..200)
  @check(slug, "^p")
}
node Day { day: Date @key }
node Note { text: String  scan: Blob? }
interface Named { title: String }
node Song implements Named { title: String @key }
node Film implements Named { title: String @key }
edge Knows: Person -> Person { since: Date? }
edge On: Person -> Day
edge Likes: Person -> Named { id: String? }
"""
CATALOG = accept_schema(SCHEMA)
TYPES = {type_.type_key: type_ for type_ in (*CATALOG.nodes.values(), *CATALOG.edges.values())}
FILLER = 400
"""Records around the one in question: more than fit in a block that is read one by one."""


def person(number: int, **data: object) -> str:
    return json.dumps({"type": "Person", "data": {"slug": f"p{number:05d}", "name": "Ines", "age": 41, **data}})


def knows(number: int) -> str:
    return json.dumps({"edge": "Knows", "from": f"p{number:05d}", "to": "p00000", "data": {"since": "2020-01-31"}})


def text_of(*records: str) -> bytes:
    return "\n".join(records).encode(errors="surrogatepass") + b"\n"


def chunk_of(data: bytes) -> LineChunk:
    [chunk] = line_chunks(data, Meter(Limits()))
    return chunk


def columns(data: bytes, form: RecordForm = RecordForm.WHOLE, catalog: Catalog = CATALOG) -> bool:
    """Whether a block is read as columns."""
    return JsonColumns(catalog, form, new_ulids).read(chunk_of(data)) is not None


def outcome(decoded: DecodedInput) -> dict[str, list[object]]:
    """Everything of an input but the ids that were made up."""
    result = {}
    for key, typed in decoded.by_type.items():
        rows = typed.rows.drop_columns(["id"]) if typed.is_generated else typed.rows
        assert rows.schema == typed.rows.schema or typed.is_generated
        # As text: a negative zero is another value than zero.
        present = None if typed.present is None else typed.present.to_pylist()
        result[key] = [repr(rows.to_pylist()), typed.lines.to_pylist(), present]
    return result


def assert_same(data: bytes, form: RecordForm = RecordForm.WHOLE) -> None:
    """In columns and one by one, with threads and without, the outcome is the same."""
    expected = decode_collecting(data, CATALOG, form=form)
    for threads in (1, 3):
        if expected.rejected:
            with pytest.raises(ConstraintError) as raised:
                decode(data, CATALOG, form=form, threads=threads)
            assert str(raised.value) == first_in_stage_order(expected.rejected, TYPES).message()
        else:
            assert outcome(decode(data, CATALOG, form=form, threads=threads)) == outcome(expected)


def test_plain_blocks_are_read_as_columns() -> None:
    more: dict[str, object] = {"seen": "2020-01-01T00:00:00Z", "days": ["2020-01-31", "1969-12-31"]}
    people = text_of(
        *(
            person(i, pay=1.5, tags=["a"] * (i % 3) if i % 5 else None, face=[i, 0.5] if i % 3 else None, **more)
            for i in range(FILLER)
        )
    )
    edges = text_of(*map(knows, range(FILLER)))
    bare = text_of(*(json.dumps({"edge": "Knows", "from": "pa", "to": "pb", "id": f"k{i}"}) for i in range(FILLER)))
    for data in (people, edges, bare):
        assert columns(data)
        assert_same(data)


@pytest.mark.parametrize("form", list(RecordForm))
def test_a_null_and_a_value_that_is_not_there_stay_apart(form: RecordForm) -> None:
    """A default is for a record without the member; an update clears what is null and keeps what is not there."""
    for odd in ({"on": False}, {"on": None}, {"name": None}, {"born": None}, {}):
        assert_same(text_of(*(person(i) for i in range(FILLER)), person(FILLER, **odd)), form)
        assert_same(text_of(*(person(i, **odd) for i in range(FILLER))), form)


def test_escaped_texts_are_columns_and_escaped_names_are_not() -> None:
    names = text_of(*(person(i, name="Inès") for i in range(FILLER)))
    assert b"\\u00e8" in names
    assert columns(names)
    assert_same(names)
    member = names.replace(b'"age": 41', b'"\\u006fn": null', 1)
    assert not columns(member)
    assert_same(member)


ODD_LINES = [
    "",
    "   ",
    "[]",
    "{}",
    '{"type":"Person"}',
    '{"type":"Person","data":null}',
    '{"type":"Person","data":{"slug":"q"}}',
    '{"type":"Person","data":{"slug":"p","age":1.0}}',
    '{"type":"Person","data":{"slug":"p","age":201}}',
    '{"type":"Person","data":{"slug":"p","age":-0}}',
    '{"type":"Person","data":{"slug":"p","age":99999999999}}',
    '{"type":"Person","data":{"slug":"p","age":"1"}}',
    '{"type":"Person","data":{"slug":"p","age":true}}',
    '{"type":"Person","data":{"slug":"p","big":18446744073709551615}}',
    '{"type":"Person","data":{"slug":"p","big":18446744073709551616}}',
    '{"type":"Person","data":{"slug":"p","pay":-0}}',
    '{"type":"Person","data":{"slug":"p","pay":-0.0}}',
    '{"type":"Person","data":{"slug":"p","pay":NaN}}',
    '{"type":"Person","data":{"slug":"p","pay":1e400}}',
    '{"type":"Person","data":{"slug":"p","pay":123456789012345678901234567890}}',
    '{"type":"Person","data":{"slug":"p","narrow":1e39}}',
    '{"type":"Person","data":{"slug":"p","narrow":0.1}}',
    '{"type":"Person","data":{"slug":"p","face":[1,-0]}}',
    '{"type":"Person","data":{"slug":"p","face":[1]}}',
    '{"type":"Person","data":{"slug":"p","face":[1,null]}}',
    '{"type":"Person","data":{"slug":"p","face":null}}',
    '{"type":"Person","data":{"slug":"p","mood":"sad"}}',
    '{"type":"Person","data":{"slug":"p","tags":[]}}',
    '{"type":"Person","data":{"slug":"p","tags":["a",null]}}',
    '{"type":"Person","data":{"slug":"p","tags":[1]}}',
    '{"type":"Person","data":{"slug":"p","tags":"a"}}',
    '{"type":"Person","data":{"slug":"p","tags":[["a"]]}}',
    '{"type":"Person","data":{"slug":"p","marks":[1,-0,2.5]}}',
    '{"type":"Person","data":{"slug":"p","marks":[1,1e999]}}',
    '{"type":"Person","data":{"slug":"p","days":["2020-01-31","2020-02-31"]}}',
    '{"type":"Person","data":{"slug":"p","born":"2020-02-30"}}',
    '{"type":"Person","data":{"slug":"p","born":18000}}',
    '{"type":"Person","data":{"slug":"p","seen":"2020-01-01T00:00"}}',
    '{"type":"Person","data":{"slug":"p","slug":"p"}}',
    '{"type":"Person","data":{"slug":"p","nmae":"x"}}',
    '{"type":"Person","data":{"slug":null}}',
    '{"type":"Person","id":"p","data":{"slug":"p"}}',
    '{"type":"Person","id":"x","data":{"slug":"p"}}',
    '{"type":"Person","id":null,"data":{"slug":"p"}}',
    '{"type":"Person","data":{"slug":"p"}} {"type":"Person","data":{"slug":"p"}}',
    '{"type":"Person","data":{"slug":"p"}',
    '{"type":"Person",\n"data":{"slug":"p"}}',
    '{"type":"Person","data":{"slug":"p"}}\n}\n{',
    '{"type":"Person","data":{"slug":"p"}}\r',
    '{"type":"Person","data":{"slug":"p\\u00e9\\n\\""}}',
    '{"type":"Person","data":{"sl\\u0075g":"p"}}',
    '{"type":"Person","data":{"slug":"p","o\\u006e":null}}',
    '{"type":"Person","data":{"slug":"p\\ud83d\\ude00"}}',
    '{"type":"Person","data":{"slug":"p\\ud83d"}}',
    '{"type":"Person","data":{"slug":"pé"}}',
    '{"type":"Person","data":{"slug":"p\ud800"}}',
    '{"type":"Person","edge":"Knows","data":{"slug":"p"}}',
    '{"type":"Persons","data":{"slug":"p"}}',
    '{"type":"Note","data":{"text":"a","scan":"base64:eA=="}}',
    '{"type":"Day","data":{"day":"2020-01-31"}}',
    '{"edge":"Knows","from":"p1","to":"p2"}',
    '{"edge":"knows","from":"p1","to":"p2"}',
    '{"edge":"Knows","from":1,"to":"p2"}',
    '{"edge":"Knows","from":"p1"}',
    '{"edge":"Knows","from":"p1","to":null}',
    '{"edge":"On","from":"p1","to":"2020-01-31"}',
    '{"edge":"Likes","from":"p1","to":"s"}',
    '{"edge":"Likes","from":"p1","to":"s","to_type":"Song","data":{"id":"x"}}',
    '{"edge":"Likes","from":"p1","to":"s","to_type":null}',
]


@pytest.mark.parametrize("odd", ODD_LINES)
def test_an_odd_line_in_a_block_means_what_it_means_alone(odd: str) -> None:
    before, behind = [person(i) for i in range(FILLER // 2)], [person(i) for i in range(FILLER // 2, FILLER)]
    assert_same(text_of(*before, odd, *behind))
    assert_same(text_of(*[odd] * FILLER))


@pytest.mark.parametrize("odd", [line for line in ODD_LINES if '"edge"' in line])
def test_an_odd_edge_among_edges(odd: str) -> None:
    assert_same(text_of(*map(knows, range(FILLER)), odd))


@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(0, 3 * FILLER - 1), st.sampled_from(ODD_LINES)), max_size=3), st.booleans())
def test_the_first_error_and_the_order_of_rows_do_not_depend_on_blocks(
    odd: list[tuple[int, str]], with_edges: bool
) -> None:
    long = "x" * 600
    records = [knows(i) if with_edges and i % FILLER > FILLER // 2 else person(i, name=long) for i in range(3 * FILLER)]
    for at, line in odd:
        records[at] = line
    data = text_of(*records)
    assert len(list(line_chunks(data, Meter(Limits())))) > 1
    assert_same(data)


def test_results_come_in_the_order_of_their_items_and_errors_behind_them() -> None:
    def items() -> Iterator[int]:
        yield from range(10)
        raise ResourceLimitError("load rows", 10, 11, "less")

    ahead = read_ahead(lambda item: 2 * item, items(), threads=3)
    assert [next(ahead) for _ in range(10)] == [(item, 2 * item) for item in range(10)]
    with pytest.raises(ResourceLimitError):
        next(ahead)


def test_an_endless_input_is_read_no_further_than_a_few_blocks_ahead() -> None:
    read = count()
    ahead = read_ahead(lambda item: item, iter(lambda: next(read), None), threads=2)
    assert [next(ahead)[0] for _ in range(5)] == list(range(5))
    ahead.close()
    assert next(read) <= 8


def test_rows_keep_the_schema_of_their_type() -> None:
    typed = JsonColumns(CATALOG, RecordForm.WHOLE, new_ulids).read(chunk_of(text_of(*map(person, range(FILLER)))))
    assert typed is not None
    assert typed.rows.schema.field("id").type == pa.string()
    assert typed.lines.to_pylist() == list(range(1, FILLER + 1))
