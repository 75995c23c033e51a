"""What an apply costs in requests: writes for what changed, reads for what is looked at, and nothing in proportion to
anything else."""

from __future__ import annotations

from collections import Counter as Tally
from pathlib import Path

from tests.support.cluster_files import ClusterFiles, Declared
from tests.support.every_store import WRITES, Counter, watched

SCHEMA = "node A { k: String @key }\n"
QUERY = "query all() { match { $a: A } return { $a.k } }\n"


def described(files: ClusterFiles, count: int, *, changed: int = 0) -> None:
    files.write(
        {
            f"g{number:02}": Declared(SCHEMA if number >= changed else f"// changed\n{SCHEMA}", {"q.gq": QUERY})
            for number in range(count)
        }
    )


def requests(files: ClusterFiles) -> Tally[str]:
    """Of one apply: reads and writes of graphs, and those of the cluster itself."""
    with watched(counter := Counter()):
        assert files.apply().converged
    # A store knows paths from its own root on, so what is not below `__cluster` or `graphs` is of a graph.
    return Tally(
        f"{'cluster' if path.startswith(('__cluster', 'graphs')) else 'graph'} {'write' if kind in WRITES else 'read'}"
        for kind, path in counter.requests
        if not path.startswith("__manifest/hints")
    )


def costs(directory: Path, count: int) -> list[Tally[str]]:
    """Of making so many graphs, of changing nothing, and of changing two of them."""
    files = ClusterFiles(directory)
    described(files, count)
    assert files.import_().ok
    made = requests(files)
    nothing = requests(files)
    described(files, count, changed=2)
    return [made, nothing, requests(files)]


def test_requests_are_linear_and_writes_are_for_what_changed(tmp_path: Path) -> None:
    few, more, many = (costs(tmp_path / str(count), count) for count in (5, 10, 25))
    for small, middle, large in zip(few, more, many, strict=True):
        for kind in {*small, *middle, *large}:
            assert large[kind] - middle[kind] == 3 * (middle[kind] - small[kind]), kind
    made, nothing, changed = few
    assert nothing["graph write"] == 0
    assert nothing["cluster write"] == 2  # the lock, taken and given back
    assert nothing["graph read"] == 5 * 4  # identity, two entries of the log, schema; a hint beside that
    assert changed["graph write"] == many[2]["graph write"] == more[2]["graph write"]
    assert changed["cluster write"] == many[2]["cluster write"] == 3
    assert changed["graph write"] * 5 <= made["graph write"] * 2
