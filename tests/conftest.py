"""Shared servers and locations. A test that takes `place` runs on local disk and on S3."""

from __future__ import annotations

import gc
import itertools
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.cpu import CpuTable
from tests.support.s3 import ACCESS, S3Server, ensure_bucket

BUCKET = "omnigraph-tests"
MOST_OF_A_VALUE = 100

# Lance divides the building of an index of trigrams among many workers, each of which costs the same for five rows as
# for a million: some 2 CPU seconds an index. It reads this once, before the first; started processes inherit it.
os.environ.setdefault("LANCE_NGRAM_NUM_PARTITIONS", "1")

# Every process that imports NumPy starts a thread a core for algebra that nobody does here.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Tests that count requests begin with nothing on this machine; those of the cache name a directory of their own.
os.environ["OMNIGRAPH_DISK_CACHE"] = "off"

# How long an example takes says how busy the machine is.
settings.register_profile("omnigraph", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("omnigraph")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu", nargs="?", type=int, const=60, metavar="N", help="show the N dearest tests by CPU time")


def pytest_configure(config: pytest.Config) -> None:
    if (rows := config.getoption("--cpu")) is not None:
        config.pluginmanager.register(CpuTable(rows), "cpu-table")


def pytest_collection_finish() -> None:
    """The garbage collector would visit all modules and tests again and again."""
    gc.collect()
    gc.freeze()


_directories = itertools.count()


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """A directory whose path no other test gets: pytest gives the name of one that it has removed to the next test,
    and a graph that was left open may write a hint into it once more."""
    directory = tmp_path / str(next(_directories))
    directory.mkdir()
    return directory


@dataclass(frozen=True)
class Place:
    """A fresh root for a graph, and what another process needs in its environment to reach it."""

    uri: str
    environment: dict[str, str]


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """The S3 protocol server whose requests can be counted, delayed and broken."""
    server = S3Server()
    server.create_bucket(BUCKET)
    yield server
    server.close()


@pytest.fixture
def s3_place(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Place:
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    # A bucket of its own: the server walks all keys of a bucket to list a few.
    bucket = f"{BUCKET}-{uuid.uuid4().hex[:12]}"
    s3_server.create_bucket(bucket)
    return Place(f"s3://{bucket}/graph", s3_server.environment)


@pytest.fixture
def local_place(tmp_path: Path) -> Place:
    return Place(str(tmp_path / "graph"), {})


@pytest.fixture(scope="session")
def given_s3() -> dict[str, str] | None:
    """How to reach the server of OMNIGRAPH_TEST_S3_ENDPOINT, with its bucket made; None when none is given."""
    endpoint = os.environ.get("OMNIGRAPH_TEST_S3_ENDPOINT")
    if endpoint is None:
        return None
    environment = {
        **{name: os.environ.get(name, value) for name, value in ACCESS.items()},
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_S3_FORCE_PATH_STYLE": "true",
    }
    ensure_bucket(environment, _given_bucket())
    return environment


def _given_bucket() -> str:
    return os.environ.get("OMNIGRAPH_TEST_S3_BUCKET", BUCKET)


@pytest.fixture
def remote_place(
    request: pytest.FixtureRequest, given_s3: dict[str, str] | None, monkeypatch: pytest.MonkeyPatch
) -> Place:
    """S3 for tests that don't look at its requests: the server that is given, else moto's."""
    if given_s3 is None:
        return request.getfixturevalue("s3_place")
    for name, value in given_s3.items():
        monkeypatch.setenv(name, value)
    return Place(f"s3://{_given_bucket()}/{uuid.uuid4().hex}/graph", given_s3)


@pytest.fixture(params=["local", "s3"])
def place(request: pytest.FixtureRequest) -> Place:
    """Local disk, then S3."""
    return request.getfixturevalue("local_place" if request.param == "local" else "remote_place")


def pytest_make_parametrize_id(val: object) -> str | None:
    """Some values are megabytes, and the name of a test goes from process to process."""
    if isinstance(val, str | bytes) and len(val) > MOST_OF_A_VALUE:
        return f"{val[:MOST_OF_A_VALUE]!r} of {len(val)}"
    return None


LONG = ("test_crash", "test_concurrency", "test_interrupts", "test_connect", "test_docs", "test_smoke")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What uses Spark stays in one worker, because starting and warming up a JVM costs more than any test. What takes
    long goes first: started last, it would keep the other workers waiting."""
    for item in items:
        if _uses_spark(item):
            item.add_marker(pytest.mark.xdist_group("spark"))
    items.sort(key=lambda item: not (_uses_spark(item) or item.path.stem.startswith(LONG)))


def _uses_spark(item: pytest.Item) -> bool:
    return "spark" in getattr(item, "fixturenames", ())
