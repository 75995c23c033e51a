"""Checking that a graph is whole: every branch head opens, every file it names exists, every count is right.

Reads only. A graph that was only ever touched through OmniGraph verifies clean at any moment, also right after a
process was killed in the middle of a write; anything reported here was done by something else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from omnigraph.errors import OmniGraphError
from omnigraph.storage.models import LogEntry, TableState
from omnigraph.storage.root import GraphRoot


@dataclass(frozen=True, slots=True)
class Problem:
    """`where` is a branch, or a table as seen from a branch."""

    where: str
    reason: str


@dataclass(frozen=True, slots=True)
class Verification:
    branches: int
    tables: int
    files: int
    problems: tuple[Problem, ...]

    @property
    def clean(self) -> bool:
        return not self.problems


def verify(root: GraphRoot) -> Verification:
    """Every head of every live branch. A table version that several heads share is checked once."""
    problems: list[Problem] = []
    states: dict[tuple[str, str], tuple[str, TableState]] = {}
    names = root.branches.names()
    for name in names:
        try:
            entry = root.branches.head(name).entry
            root.schema(entry.schema)
        except OmniGraphError as error:
            problems.append(Problem(f"branch {name}", str(error)))
            continue
        problems += _lineage_problems(root, name, entry)
        for type_key, state in entry.tables.items():
            states.setdefault((state.path, state.version), (f"{type_key} on branch {name}", state))
    checked = list(root.workers.map(lambda item: check_table(root, *item), states.values()))
    for _, found in checked:
        problems += found
    return Verification(len(names), len(states), sum(count for count, _ in checked), tuple(problems))


def _lineage_problems(root: GraphRoot, branch: str, head: LogEntry) -> Iterable[Problem]:
    for link in head.commit.parents[:1]:
        parent = root.log.entry(link.branch_id, link.version)
        if not isinstance(parent, LogEntry) or parent.commit.id != link.commit_id:
            yield Problem(f"branch {branch}", f"the parent {link.commit_id} of its head is missing from the log")


def check_table(root: GraphRoot, where: str, state: TableState) -> tuple[int, list[Problem]]:
    """How many files a table version names, and what is wrong with it."""
    try:
        table = root.reader.open(state)
        named = table.files()
        standing = {o.path.removeprefix(f"{state.path}/") for o in root.objects.below(state.path)}
        counted = int(table.dataset.count_rows())
    except OmniGraphError as error:
        return 0, [Problem(where, str(error))]
    directories = {name.rsplit("/", 1)[0] + "/" for name in standing}
    missing = sorted(named - standing - directories)
    problems = [Problem(where, f"file {state.path}/{name} is missing") for name in missing]
    if counted != state.rows or table.fragment_count() != state.fragments:
        problems.append(
            Problem(where, f"holds {counted} rows, the log says {state.rows}: the version was replaced by another tool")
        )
    return len(named), problems
