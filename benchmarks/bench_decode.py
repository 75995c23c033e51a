"""Decoding speed of the row kernels on one core, beside Arrow's own JSON reader on the same bytes.

    python benchmarks/bench_decode.py [--rows N] [--json]

Arrow's reader is the yardstick, not an equal: it takes one shape of object, checks no member twice, derives no ids
and knows no constraints. Times are CPU seconds of this process, best of several runs, so that a busy machine does
not decide; the ratio is decode rows/s over reader rows/s.
"""

from __future__ import annotations

import argparse
import io
import json
import time
from collections.abc import Callable

import pyarrow.json

from omnigraph.engine.rows.kernels.decoder import decode, decode_collecting
from omnigraph.language.catalog import Catalog
from omnigraph.language.schema.compile import accept_schema

SCHEMA = """
node Person {
  badge: String @key
  name: String
  level: enum(junior, senior)?
  hired: Date?
  pay: F64?
  @range(pay, 0..500000)
}
node Article { slug: String @key  body: String  seen: DateTime? }
node Shelf { room: U32  label: String  size: I64?  @key(room, label) }
node Chunk { name: String @key  vec: Vector(128) }
edge Knows: Person -> Person { since: DateTime?  weight: F32? }
"""

RUNS = 5


def person(i: int) -> dict[str, object]:
    data = {"badge": f"k{i}", "name": f"Name {i}", "level": "junior", "hired": "2031-05-04", "pay": i % 1000 * 1.5}
    return {"type": "Person", "data": data}


def knows(i: int) -> dict[str, object]:
    data = {"since": "2031-05-04T10:00:00Z", "weight": 0.5}
    return {"edge": "Knows", "from": f"k{i}", "to": f"k{i // 2}", "data": data}


def article(i: int) -> dict[str, object]:
    body = f'A paragraph with "quotes", a \\ and\nline breaks, number {i}. ' * 8
    return {"type": "Article", "data": {"slug": f"a-{i}", "body": body, "seen": "2031-05-04T10:00:00.125Z"}}


def shelf(i: int) -> dict[str, object]:
    return {"type": "Shelf", "data": {"room": i % 97, "label": f"shelf {i}", "size": i if i % 3 else None}}


def chunk(i: int) -> dict[str, object]:
    return {"type": "Chunk", "data": {"name": f"c{i}", "vec": [(i * 31 + j * 17) % 1000 / 7 for j in range(128)]}}


# Heavier rows are fewer, so that every case reads a comparable amount of text.
CASES: dict[str, tuple[Callable[[int], dict[str, object]], int]] = {
    "simple nodes": (person, 1),
    "edges, minted ids": (knows, 1),
    "composite keys, sparse": (shelf, 1),
    "escaped text, 0.6 KB": (article, 4),
    "vectors of 128": (chunk, 20),
}


def best_seconds(work: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(RUNS):
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return best


def measure(name: str, data: bytes, rows: int, work: Callable[[], object]) -> dict[str, object]:
    one_thread = pyarrow.json.ReadOptions(use_threads=False, block_size=1 << 24)
    peer = best_seconds(lambda: pyarrow.json.read_json(io.BytesIO(data), read_options=one_thread))
    ours = best_seconds(work)
    return {
        "case": name,
        "bytes_per_row": round(len(data) / rows),
        "rows_per_second": round(rows / ours),
        "megabytes_per_second": round(len(data) / ours / 1e6, 1),
        "arrow_rows_per_second": round(rows / peer),
        "ratio_to_arrow": round(peer / ours, 2),
    }


def measure_all(catalog: Catalog, rows: int) -> list[dict[str, object]]:
    results = []
    for name, (record, share) in CASES.items():
        count = max(rows // share, 1)
        data = "\n".join(json.dumps(record(i), separators=(",", ":")) for i in range(count)).encode()
        assert sum(len(typed) for typed in decode(data, catalog).by_type.values()) == count
        results.append(measure(name, data, count, lambda data=data: decode(data, catalog)))
    # A line in a hundred repeats a member: the blocks they stand in are proven line by line.
    texts = [json.dumps(person(i), separators=(",", ":")) for i in range(rows)]
    dirty = [text.replace("{", '{"type":"Person",', 1) if i % 100 == 0 else text for i, text in enumerate(texts)]
    data = "\n".join(dirty).encode()
    assert len(decode_collecting(data, catalog).rejected) == len(range(0, rows, 100))
    clean = "\n".join(texts).encode()
    result = measure("1% bad rows, collected", clean, rows, lambda: decode_collecting(data, catalog))
    return [*results, result]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    results = measure_all(accept_schema(SCHEMA), arguments.rows)
    if arguments.json:
        print(json.dumps(results, indent=2))
        return
    print(f"{'case':<24}{'B/row':>8}{'rows/s':>12}{'MB/s':>9}{'Arrow rows/s':>15}{'ratio':>8}")
    for result in results:
        print("{case:<24}{bytes_per_row:>8}{rows_per_second:>12,}{megabytes_per_second:>9}"
              "{arrow_rows_per_second:>15,}{ratio_to_arrow:>8}".format(**result))  # fmt: skip


if __name__ == "__main__":
    main()
