"""What a version says of its rows stays small, however many commits they came from, and stays true."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.storage.creation import create_root
from omnigraph.storage.location import Location
from omnigraph.storage.models import TableState, manifest_name
from omnigraph.storage.root import GraphRoot
from omnigraph.storage.tables.lance_metadata import condense_row_versions
from tests.support.lance_tables import lance_of

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])


@pytest.fixture
def root(tmp_path: Path) -> GraphRoot:
    return create_root(Location.parse(tmp_path / "graph"), {"node:T": SCHEMA})


def rows(*pairs: tuple[str, int]) -> pa.Table:
    return pa.table({"id": [i for i, _ in pairs], "n": [n for _, n in pairs]}, schema=SCHEMA)


def manifest_bytes(root: GraphRoot, state: TableState) -> int:
    return (root.location.local_root / state.path / "_versions" / manifest_name(state.number)).stat().st_size


def updated_rows(root: GraphRoot, state: TableState) -> set[str]:
    """By Lance's own reading of what the version says."""
    columns = ["id", "_row_created_at_version", "_row_last_updated_at_version"]
    read = lance_of(root.reader.open(state)).scanner(columns=columns).to_table().to_pylist()
    return {row["id"] for row in read if row[columns[1]] != row[columns[2]]}


def test_a_manifest_does_not_grow_with_the_commits_behind_its_rows(root: GraphRoot) -> None:
    state = root.log.head(root.identity.main).tables["node:T"]
    sizes = []
    for i in range(60):
        state = root.staging.append(state, rows((f"r{i}", i))).state
        sizes.append(manifest_bytes(root, state))
    assert max(sizes[30:]) <= max(sizes[:30]) + 64


def test_it_stays_known_which_rows_were_updated(root: GraphRoot) -> None:
    """Inserts, updates, deletes, folds and compactions in any order."""
    state = root.log.head(root.identity.main).tables["node:T"]
    chosen = random.Random(7)
    alive: dict[str, bool] = {}
    for i in range(90):
        some = chosen.sample(sorted(alive), min(len(alive), chosen.randrange(1, 4))) if alive else []
        match chosen.choice("iiiuuudc"):
            case "u" if some:
                state = root.staging.upsert(state, rows(*((name, i) for name in some))).state
                alive |= dict.fromkeys(some, True)
            case "d" if some:
                state = root.staging.delete(state, some[:1]).state
                del alive[some[0]]
            case "c" if alive:
                fragments = [f.fragment_id for f in lance_of(root.reader.open(state)).get_fragments()]
                state = root.staging.compact(state, fragments).state
            case _:
                state = root.staging.append(state, rows((f"r{i}", i), (f"s{i}", i))).state
                alive |= {f"r{i}": False, f"s{i}": False}
        assert updated_rows(root, state) == {name for name, updated in alive.items() if updated}


@pytest.mark.parametrize(
    "meta",
    [
        None,
        {"external": {"path": "x", "offset": 0, "size": 1}},
        {"inline": []},
        {"inline": [10, 4, 10, 2]},
        {"inline": [10, 8, 10, 4, 18, 2, 16, 1, 16, 2]},
        {"inline": [10, 8, 10, 4, 10, 2, 16, 9, 16, 2]},
    ],
)
def test_what_is_written_in_another_way_is_left_alone(meta: object) -> None:
    fragment = {"physical_rows": 1, "created_at_version_meta": meta, "last_updated_at_version_meta": meta}
    assert condense_row_versions(fragment) == fragment
