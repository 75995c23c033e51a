"""Which inputs are the same: what is in them decides; names and times only save the work of looking."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from omnigraph.pipeline import Pipeline, read_pipeline, run
from omnigraph.pipeline.sources.fingerprints import DigestCache, Digests
from omnigraph.pipeline.sources.input_files import InputFile, Listing
from tests.pipeline.library import book, csv, library, ndjson, reader

PIPELINE = """
version: 1
mode: append
sources:
  likes: {format: csv, path: "likes*.csv", options: {header: true}}
  more: {format: csv, path: "more", options: {header: true, recursiveFileLookup: true}}
edges: {Likes: {from: likes, src: who, dst: isbn}}
"""


def test_a_run_over_the_same_contents_is_done_once_whatever_the_files_are_called(
    tmp_path: Path, spark: SparkSession
) -> None:
    graph = library(tmp_path / "graph")
    ndjson(tmp_path / "nodes.ndjson", [reader("ann"), book("1"), book("2")])
    graph.load((tmp_path / "nodes.ndjson").read_text(), mode="append")
    file = csv(tmp_path / "likes.csv", "who,isbn", "ann,1")
    deep = csv(tmp_path / "more/deep/a.csv", "x", "1")
    pipeline = read_pipeline(PIPELINE, path="p.yaml", directory=str(tmp_path))

    def once(changed: Pipeline = pipeline) -> bool:
        return not run(changed, graph=graph, spark=spark).replayed

    assert once()
    os.utime(file, ns=(1, 1))
    file.rename(tmp_path / "likes of yesterday.csv")
    assert not once()
    assert graph.snapshot().count("edge:Likes") == 1
    csv(tmp_path / "likes.csv", "who,isbn", "ann,2")
    assert once()
    csv(deep, "x", "2")
    assert once()
    options = {**pipeline.sources["likes"].options, "nullValue": "-"}
    sources = {**pipeline.sources, "likes": replace(pipeline.sources["likes"], options=options)}
    assert once(replace(pipeline, sources=sources))


def listing(*files: Path) -> Listing:
    return Listing(tuple(InputFile(f"file:{f}", f.stat().st_size, f.stat().st_mtime) for f in files))


def test_contents_are_hashed_again_unless_nothing_can_have_changed(tmp_path: Path, spark: SparkSession) -> None:
    cache = DigestCache(tmp_path / "cache/digests.sqlite")
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"1" * 1_000)
    two.write_bytes(b"2" * 5_000)

    def look(*files: Path, settled: float = -1.0) -> tuple[str, int]:
        digests = Digests(spark, cache, settled_seconds=settled)
        return digests.fingerprint(listing(*files)), digests.hashed_bytes

    # Times of the last minute prove nothing: another content of the same size may have the same.
    first, hashed = look(one, two, settled=60.0)
    assert (look(two, one, settled=60.0), hashed) == ((first, 6_000), 6_000)
    assert look(one, two) == (first, 6_000)
    assert look(one, two) == (first, 0)
    stat = one.stat()
    one.write_bytes(b"3" * 1_000)
    os.utime(one, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    other, hashed = look(one, two)
    assert (other != first, hashed) == (True, 1_000)
    assert look(one) != look(two)
    moved = two.rename(tmp_path / "moved")
    assert look(one, moved) == (other, 5_000)
    assert Digests(spark).fingerprint(listing(one, moved), names=True) != other

    (tmp_path / "cache/digests.sqlite").write_bytes(b"no database")
    assert look(one, moved) == (other, 6_000)


def test_large_contents_are_hashed_by_tasks_with_the_same_result(tmp_path: Path, spark: SparkSession) -> None:
    small = [tmp_path / name for name in "abc"]
    for number, file in enumerate(small):
        file.write_bytes(bytes([number]) * (3 << 20))
    together, alone = Digests(spark), Digests(spark)
    assert together.of(listing(*small).files) == [alone.of(listing(file).files)[0] for file in small]
    assert together.hashed_bytes == alone.hashed_bytes == 9 << 20
