"""Keys that meet: hashes never separate equals, buckets are whole, and every answer is the one a person would count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from omnigraph import Graph
from omnigraph.engine.bulk.executor import PLACE
from omnigraph.pipeline.checks import candidate_keys as exchanging
from omnigraph.pipeline.checks import id_lookup as ends_of_edges
from omnigraph.pipeline.checks import id_lookup as matching
from omnigraph.pipeline.checks.candidate_keys import HASH, Lane, candidate_keys, exchange
from omnigraph.pipeline.checks.id_lookup import REPEAT, REPLACED, TAKEN, KnownIds, met_ids, unknown
from omnigraph.pipeline.spark.table_frames import TableScan
from omnigraph.pipeline.spark.type_reader import type_scan
from omnigraph.storage.tables.memory.key_hashes import buckets_of, every_hash, frequent_hashes, key_hashes

texts = st.text(max_size=40)
SCALARS = {
    pa.string(): texts,
    pa.int64(): st.integers(-(1 << 63), (1 << 63) - 1),
    pa.int32(): st.integers(-(1 << 31), (1 << 31) - 1),
    pa.uint64(): st.integers(0, (1 << 64) - 1),
    pa.float64(): st.floats(),
    pa.float32(): st.floats(width=32),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(UTC)),
    pa.decimal128(20, 0): st.integers(0, (1 << 64) - 1),
}


@given(st.data(), st.sampled_from(list(SCALARS)))
def test_equal_keys_have_equal_hashes_wherever_they_stand(data: st.DataObject, type_: pa.DataType) -> None:
    values = data.draw(st.lists(SCALARS[type_], min_size=1, max_size=30))
    column = pa.array(values, type_)
    order = data.draw(st.permutations(range(len(values))))
    shuffled = pa.concat_arrays([column.slice(0, 1), column.take(pa.array(order))]).slice(1)
    assert (key_hashes([column])[order] == key_hashes([shuffled])).all()


def test_keys_that_compare_equal_have_equal_hashes() -> None:
    zeros = key_hashes([pa.array([0.0, -0.0])])
    assert zeros[0] == zeros[1]
    nan = key_hashes([pa.array([float("nan"), -float("nan")])])
    assert nan[0] == nan[1]


def test_different_keys_rarely_share_a_hash() -> None:
    count = 50_000
    columns = [
        pa.array([f"p{n:09d}" for n in range(count)]),
        pa.array([f"https://example.org/a/rather/long/path/{n}/index.html" for n in range(count)]),
        pa.array(np.arange(count)),
        pa.array(np.arange(count) / 7),
        pa.array([date.fromordinal(1 + n) for n in range(count)]),
        pa.array([datetime.fromtimestamp(n, UTC) for n in range(count)]),
    ]
    for column in columns:
        hashes = key_hashes([column])
        assert len(np.unique(hashes)) == count
        fullest = np.bincount(buckets_of(hashes, 100), minlength=100)
        assert fullest.max() < 1.3 * count / 100, column.type
    swapped = key_hashes([pa.array(["a", "b"]), pa.array(["b", "a"])])
    assert swapped[0] != swapped[1]


@given(st.lists(st.integers(0, 8)), st.integers(1, 4))
def test_crowded_hashes_are_those_that_occur_too_often(values: list[int], most: int) -> None:
    counted = Counter(values)
    assert frequent_hashes(np.array(values, np.uint64), most).tolist() == sorted(
        v for v in counted if counted[v] > most
    )


@given(st.lists(st.integers(0, (1 << 64) - 1)), st.integers(1, 1 << 16))
def test_hashes_in_order_are_buckets_in_order(values: list[int], count: int) -> None:
    buckets = buckets_of(np.sort(np.array(values, np.uint64)), count)
    assert (np.diff(buckets.astype(np.int64)) >= 0).all()
    assert all(bucket < count for bucket in buckets.tolist())


small_ids = st.lists(st.sampled_from("abcdef"), max_size=12)


@given(small_ids, st.sets(st.sampled_from("abcdef")), st.booleans())
def test_rows_that_meet_get_the_role_a_person_would_give_them(new: list[str], stored: set[str], last: bool) -> None:
    met = met_ids(_rows(new, 0), _rows(sorted(stored), 1_000), keep_last=last)
    expected = {}
    for at, name in enumerate(new):
        others = [n for n, other in enumerate(new) if other == name]
        if at != others[-1 if last else 0]:
            expected[at] = (name, REPEAT)
        elif name in stored:
            expected[at] = (name, TAKEN)
    expected |= {1_000 + at: (name, REPLACED) for at, name in enumerate(sorted(stored)) if name in new}
    assert {row[PLACE]: (row["id"], row["role"]) for row in met.to_pylist()} == expected


def _rows(ids: list[str], first: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.string()), PLACE: pa.array(range(first, first + len(ids)), pa.int64())})


def _hashes_of(ids: Iterable[str]) -> set[int]:
    return set(key_hashes([pa.array(sorted(ids), pa.string())]).tolist())


@given(st.lists(small_ids, max_size=3), st.lists(small_ids, max_size=3))
def test_a_value_is_unknown_when_it_is_no_id(known: list[list[str]], values: list[list[str]]) -> None:
    ids, chunks = ([pa.array(part, pa.string()) for part in parts] for parts in (known, values))
    lost = _hashes_of(set(chain(*values)) - set(chain(*known)))
    assert set(every_hash(KnownIds(ids).find_missing(chunks)).tolist()) == lost
    together = unknown(pa.chunked_array(chunks, pa.string()), pa.concat_arrays([pa.array([], pa.string()), *ids]))
    assert set(together.tolist()) == lost


def test_many_ids_are_looked_up_in_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "_LEAST_WAITING", 1 << 16)
    known = KnownIds([pa.array([f"id {n}" for n in range(part, 100_000, 3)]) for part in range(3)])
    rounds = list(known.find_missing(pa.array([f"id {n}" for n in range(0, 110_000, step)]) for step in (1, 2, 5, 1)))
    assert len(rounds) > 4, "several buckets, several times"
    assert set(every_hash(rounds).tolist()) == _hashes_of(f"id {n}" for n in range(100_000, 110_000))


def test_both_ways_of_looking_for_ends_find_the_same(spark: SparkSession, tmp_path: Path) -> None:
    schema = "node Person { name: String @key }\nnode Place { name: String @key }\nedge Visits: Person -> Place {}"
    with Graph.init(f"{tmp_path}/graph", schema) as graph:
        for part in range(2):
            names = range(part, 40, 2)
            people = [f'{{"type":"Person","data":{{"name":"p{n}"}}}}' for n in names]
            places = [f'{{"type":"Place","data":{{"name":"q{n}"}}}}' for n in names]
            visits = [f'{{"edge":"Visits","from":"p{n}","to":"q{n}"}}' for n in names]
            graph.load("\n".join([*people, *places, *visits]), mode="append")
        state = graph.snapshot()

        def scan(name: str, columns: list[str], fragments: slice) -> TableScan:
            whole = type_scan(state, state.catalog.type_named(name), columns)
            return replace(whole, table=replace(whole.table, fragments=whole.table.fragments[fragments]))

        edges = scan("Visits", ["src", "dst"], slice(None))
        ends = {"src": "Person", "dst": "Place"}
        # Half of the people are left out, and one of two scans of places finds nothing.
        nodes = {
            "Person": [scan("Person", ["id"], slice(1))],
            "Place": [scan("Place", ["id"], slice(None)), scan("Place", ["id"], slice(0))],
        }
        ways = [
            ends_of_edges._missing_by_lookup(spark, edges, edges.groups(1), ends, nodes),
            ends_of_edges._missing_by_exchange(spark, edges, ends, nodes),
            ends_of_edges.missing_endpoints(spark, edges, ends, nodes),
        ]
        found = candidate_keys(ways)
    assert [set(each.tolist()) for each in found if each is not None] == [
        _hashes_of(f"p{n}" for n in range(1, 40, 2))
    ] * 3


def test_a_bucket_has_all_rows_of_its_keys(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Graph.init(f"{tmp_path}/graph", "node Thing { name: String?  n: I64 }") as graph:
        for part in range(3):
            lines = [f'{{"type":"Thing","data":{{"name":"k{n % 500}","n":{n}}}}}' for n in range(part, 3_000, 3)]
            nameless = '{"type":"Thing","data":{"n":0}}'
            graph.load("\n".join([*lines, nameless]), mode="append")
        state = graph.snapshot()
        scan = type_scan(state, state.catalog.type_named("Thing"), ["name"])
        monkeypatch.setattr(exchanging, "_ROWS_PER_BUCKET", 64)
        monkeypatch.setattr(exchanging, "_BUCKETS_PER_TASK", 5)

        def counted(rows: Mapping[str, pa.Table]) -> Iterator[pa.RecordBatch]:
            hashes = set(rows["hashes"].column(HASH).to_pylist())
            for name, times in Counter(rows["rows"].column("name").to_pylist()).items():
                known = int(key_hashes([pa.array([name])])[0]) in hashes
                yield pa.record_batch({"name": [name], "times": [times], "hashed": [known]})

        lanes = [Lane("rows", scan, ("name",)), Lane("hashes", scan, ("name",), hashed=True)]
        schema = pa.schema([("name", pa.string()), ("times", pa.int64()), ("hashed", pa.bool_())])
        found = exchange(spark, lanes, counted, schema).collect()
    assert sorted((row["name"], row["times"], row["hashed"]) for row in found) == sorted(
        (f"k{n}", 6, True) for n in range(500)
    )
