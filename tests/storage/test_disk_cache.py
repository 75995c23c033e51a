"""The files of remote graphs on this machine: bounded, shared by processes, and never the reason why a read fails."""

from __future__ import annotations

import os
import resource
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from omnigraph.errors import BadRequestError
from omnigraph.storage.disk.disk_cache import (
    CachedFiles,
    DiskCache,
    DiskCacheSettings,
    disk_cache_settings,
)
from omnigraph.storage.location import Location

LIMIT = 10_000


@pytest.fixture
def settings(tmp_path: Path) -> DiskCacheSettings:
    return DiskCacheSettings(tmp_path / "cache", LIMIT)


@pytest.fixture
def cache(settings: DiskCacheSettings) -> DiskCache:
    return DiskCache(settings)


def fill(cache: DiskCache, name: str, size: int = 1_000, *, used: float | None = None) -> None:
    assert cache.add(name, [b"x" * size], size)
    if used is not None:
        os.utime(cache.directory / name, (used, used))


def test_another_process_finds_a_file(settings: DiskCacheSettings, cache: DiskCache) -> None:
    assert cache.add("g/data/a.lance", [b"abc", b"def"], 6)
    file = DiskCache(settings).find("g/data/a.lance", 6)
    assert file is not None
    assert file.read_bytes() == b"abcdef"


def test_a_file_that_was_cut_short_is_removed(cache: DiskCache) -> None:
    fill(cache, "g/a")
    os.truncate(cache.directory / "g/a", 999)
    assert cache.find("g/a", 1_000) is None
    assert not (cache.directory / "g/a").exists()
    fill(cache, "g/a")


def test_parts_that_end_too_early_are_not_kept(cache: DiskCache) -> None:
    assert not cache.add("g/a", [b"short"], 1_000)
    assert cache.find("g/a", 1_000) is None
    assert cache.held_bytes() == 0
    fill(cache, "g/large", LIMIT)  # no room was lost


def test_the_files_used_longest_ago_make_room(cache: DiskCache) -> None:
    now = time.time()
    for number in range(10):
        fill(cache, f"g/{number}", used=now - 1_000 + number)
    assert cache.find("g/0", 1_000) is not None, "and now it was used"
    fill(cache, "g/new")
    assert cache.held_bytes() <= LIMIT
    assert [n for n in range(10) if (cache.directory / f"g/{n}").exists()] == [0, *range(2, 10)]


def test_a_file_larger_than_the_limit_leaves_the_others_alone(cache: DiskCache) -> None:
    fill(cache, "g/a")
    assert not cache.add("g/large", [b"x" * (LIMIT + 1)], LIMIT + 1)
    assert cache.find("g/a", 1_000) is not None


def test_writers_at_the_same_time_stay_below_the_limit(settings: DiskCacheSettings) -> None:
    """Each with a handle of its own, as processes have. The bytes of unfinished files count."""
    done, most = threading.Event(), [0]

    def watch() -> None:
        while not done.is_set():
            most[0] = max(most[0], DiskCache(settings).held_bytes())

    def write(number: int) -> None:
        DiskCache(settings).add(f"g/{number}", (b"x" * 500 for _ in range(4)), 2_000)

    watcher = threading.Thread(target=watch)
    watcher.start()
    with ThreadPoolExecutor(6) as writers:
        list(writers.map(write, range(60)))
    done.set()
    watcher.join()
    assert 0 < most[0] <= LIMIT
    assert DiskCache(settings).held_bytes() >= LIMIT * 0.7, "and they use it"


def test_files_that_a_dead_process_left_unfinished_go_with_the_next_eviction(cache: DiskCache) -> None:
    fill(cache, "g/a")
    left = cache.directory / "new" / "1-dead"
    left.write_bytes(b"x" * 500)
    os.utime(left, (1, 1))
    for number in range(10):
        fill(cache, f"g/{number}")
    assert not left.exists()


def test_a_lost_count_is_counted_again(cache: DiskCache) -> None:
    for number in range(10):
        fill(cache, f"g/{number}")
    (cache.directory / "held").write_bytes(b"?")
    fill(cache, "g/new")
    assert cache.held_bytes() <= LIMIT


def test_a_directory_that_can_not_be_written_is_as_good_as_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    cache = DiskCache(DiskCacheSettings(tmp_path / "file" / "cache", LIMIT))
    assert not cache.add("g/a", [b"abc"], 3)
    assert cache.find("g/a", 3) is None
    assert cache.read("g/a") is None
    assert cache.held_bytes() == cache.clear() == 0


def test_a_disk_that_takes_no_more_ends_the_caching(cache: DiskCache) -> None:
    fill(cache, "g/a", 100)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, limits[1]))
    try:
        assert not cache.add("g/b", [b"x" * 1_000], 1_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert cache.find("g/a", 100) is not None
    assert cache.held_bytes() == 100


def test_clearing_it_removes_every_file(cache: DiskCache) -> None:
    fill(cache, "g/a")
    fill(cache, "h/b")
    assert cache.clear() == 2_000
    assert cache.held_bytes() == 0
    fill(cache, "g/a")


def test_graphs_share_no_names(cache: DiskCache) -> None:
    """Also a graph and a copy of it, which have the same id."""
    files = [
        CachedFiles(cache, uri, graph) for uri, graph in (("s3://b/g", "1"), ("s3://b/copy", "1"), ("s3://b/g", "2"))
    ]
    assert files[0].add("schemas/a", [b"abc"], 3)
    assert [each.read("schemas/a") for each in files] == [b"abc", None, None]


@pytest.mark.parametrize(
    ("environment", "options", "expected"),
    [
        ({"HOME": "/h"}, {}, ("/h/.cache/omnigraph/store-1", 4096)),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/x"}, {}, ("/x/omnigraph/store-1", 4096)),
        ({"HOME": "/h", "OMNIGRAPH_DISK_CACHE": "/d", "OMNIGRAPH_DISK_CACHE_MIB": "7"}, {}, ("/d/store-1", 7)),
        ({"HOME": "/h", "OMNIGRAPH_DISK_CACHE": "off"}, {"disk_cache": "/o", "disk_cache_mib": 3}, ("/o/store-1", 3)),
        ({"HOME": "/h", "OMNIGRAPH_DISK_CACHE": "off"}, {}, None),
        ({"HOME": "/h"}, {"disk_cache": False}, None),
        ({"HOME": "/h", "OMNIGRAPH_DISK_CACHE_MIB": "0"}, {}, None),
        ({}, {}, None),
    ],
)
def test_options_and_the_environment_say_where_it_is(
    environment: dict[str, str], options: dict[str, object], expected: tuple[str, int] | None
) -> None:
    location = Location.parse("s3://bucket/g", environment, options)
    settings = location.disk_cache
    assert (None if settings is None else (str(settings.directory), settings.limit >> 20)) == expected
    assert "disk_cache" not in location.options


def test_a_local_graph_has_none() -> None:
    assert Location.parse("/graphs/g", {"HOME": "/h"}).disk_cache is None


def test_a_size_that_is_not_a_number_is_refused() -> None:
    with pytest.raises(BadRequestError, match="'4G' is not a size of the disk cache; write mebibytes"):
        disk_cache_settings({"HOME": "/h", "OMNIGRAPH_DISK_CACHE_MIB": "4G"}, {})
