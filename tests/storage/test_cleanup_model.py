"""The protocol between cleanup and whoever builds on main's past, checked in every interleaving of a small model.

Main is a row of versions, each with data of its own. Processes take one step at a time: a writer that moves the head,
a branch made from the head, a branch made from an old commit, and two cleanups that keep the head only. Every state
that any order of steps can reach is visited; in none of them may a branch or the head name data that is gone. Each rule
of the protocol is then left out in turn, and the model must find what goes wrong without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

Pin = tuple[str, int, int]
"""Owner, first and last version; 0 for the last means up to the head."""

Branch = tuple[str, int]
"""Name, and the version it was made from."""

Record = tuple[str, int]
"""Owner, and the version below which everything is released."""


class World(NamedTuple):
    """The store."""

    head: int
    data: frozenset[int]
    branches: frozenset[Branch] = frozenset()
    pins: frozenset[Pin] = frozenset()
    records: frozenset[Record] = frozenset()
    taken: frozenset[Record] = frozenset()

    @property
    def broken(self) -> bool:
        return not self.named <= self.data

    @property
    def named(self) -> frozenset[int]:
        return frozenset({self.head, *(version for _, version in self.branches)})


Local = tuple[object, ...]
Step = tuple[World, Local | None]
Process = Callable[[World, Local], Iterator[Step]]
"""One step of a process from its local state, whose first part is where it stands; None when it is through."""


def writer(world: World, local: Local) -> Iterator[Step]:
    yield world._replace(head=2, data=world.data | {2}), None


def fork_of_head(name: str, *, pins: bool = True) -> Process:
    def step(world: World, local: Local) -> Iterator[Step]:
        mine = (name, 1, 0)
        match local:
            case ("start",):
                yield (world._replace(pins=world.pins | {mine}) if pins else world), ("pinned",)
            case ("pinned",):
                yield world, ("read", world.head)
            case ("read", int(version)):
                yield world._replace(branches=world.branches | {(name, version)}), ("made",)
            case ("made",):
                yield world._replace(pins=world.pins - {mine}), None

    return step


def fork_of_commit(name: str, version: int, *, looks_for_records: bool = True) -> Process:
    mine = (name, version, version)

    def step(world: World, local: Local) -> Iterator[Step]:
        released = world._replace(pins=world.pins - {mine})
        match local:
            case ("start",):
                yield world._replace(pins=world.pins | {mine}), ("pinned",)
            case ("pinned",):
                going = looks_for_records and any(version < below for _, below in world.records)
                yield (released, None) if going else (world, ("no record",))
            case ("no record",):
                yield (world, ("there",)) if version in world.data else (released, None)
            case ("there",):
                yield world._replace(branches=world.branches | {(name, version)}), ("made",)
            case ("made",):
                yield released, None

    return step


def deletion_of(name: str) -> Process:
    def step(world: World, local: Local) -> Iterator[Step]:
        if any(branch == name for branch, _ in world.branches):
            yield world._replace(branches=frozenset(b for b in world.branches if b[0] != name)), None

    return step


def cleanup(
    name: str,
    *,
    looks_again: bool = True,
    pins_first: bool = True,
    finishes_others: bool = True,
    owns_its_record: bool = True,
    minds_pins: bool = True,
    takes_over: bool = True,
) -> Process:
    def pinned(world: World, seen: frozenset[Pin]) -> frozenset[int]:
        return frozenset(v for _, first, last in seen for v in range(first, (last or world.head) + 1))

    def unpinned(records: frozenset[Record], seen: frozenset[Pin]) -> frozenset[Record]:
        """The records of others that this cleanup finishes completely."""
        if not minds_pins:
            return records
        return frozenset(r for r in records if not any(first < r[1] for _, first, _ in seen))

    def step(world: World, local: Local) -> Iterator[Step]:
        match local:
            case ("start",):
                yield world, ("records seen", world.records)
            case ("records seen", frozenset() as unfinished):
                taken = world.taken | unfinished if takes_over else world.taken
                yield world._replace(taken=taken), ("taken over", unfinished)
            case ("taken over", unfinished):
                yield world, ("listed", unfinished, world.data)
            case ("listed", unfinished, listed):
                yield world, ("pins seen", unfinished, listed, world.pins)
            case ("pins seen", frozenset() as unfinished, frozenset() as listed, frozenset() as seen):
                kept = world.named | pinned(world, seen)
                below = max([world.head, *(b for _, b in unfinished)])
                doomed = frozenset(v for v in listed if v < below) - kept
                finished = unpinned(unfinished, seen)
                yield world, ("marked", finished, doomed, world.head)
            case ("marked", finished, doomed, int(below)):
                mine = (name, below)
                yield world._replace(records=world.records | {mine}), ("recorded", finished, doomed, mine)
            case ("recorded", finished, doomed, mine):
                if not looks_again:
                    yield world, ("looked", finished, doomed, mine)
                elif pins_first:
                    yield world, ("pins again", finished, doomed, mine, world.pins)
                else:
                    yield world, ("branches again", finished, doomed, mine, world.named)
            case ("pins again", frozenset() as finished, frozenset() as doomed, mine, frozenset() as seen):
                kept = world.named | pinned(world, seen)
                yield world, ("looked", unpinned(finished, seen), doomed - kept, mine)
            case ("branches again", frozenset() as finished, frozenset() as doomed, mine, frozenset() as seen):
                kept = seen | pinned(world, world.pins)
                yield world, ("looked", unpinned(finished, world.pins), doomed - kept, mine)
            case ("looked", finished, doomed, mine):
                gone = owns_its_record and mine not in world.records - world.taken
                yield (world, None) if gone else (world, ("deleting", finished, doomed, mine))
            case ("deleting", frozenset() as finished, frozenset() as doomed, mine):
                for version in doomed:
                    following = ("deleting", finished, doomed - {version}, mine)
                    yield world._replace(data=world.data - {version}), following
                if not doomed:
                    yield world._replace(records=world.records - finished - {mine}), None

    def naive(world: World, local: Local) -> Iterator[Step]:
        """As `step`, but records of others are only removed, as if whoever wrote them were surely dead."""
        for after, following in step(world, local):
            if following is not None and following[0] == "records seen":
                yield after._replace(records=frozenset()), ("records seen", frozenset())
            else:
                yield after, following

    return step if finishes_others else naive


def explore(processes: dict[str, Process]) -> tuple[int, list[str] | None]:
    """How many states there are, and the steps to one that is broken."""
    began = tuple((name, ("start",)) for name in processes)
    first = (World(1, frozenset({1})) if "writer" in processes else World(2, frozenset({1, 2})), began)
    known: dict[object, tuple[object, str] | None] = {first: None}
    agenda: list[tuple[World, tuple[tuple[str, Local | None], ...]]] = [first]
    while agenda:
        state = agenda.pop()
        world, locals_ = state
        if world.broken:
            return len(known), _way_to(state, known)
        for index, (name, local) in enumerate(locals_):
            if local is None:
                continue
            for after, following in processes[name](world, local):
                moved = (*locals_[:index], (name, following), *locals_[index + 1 :])
                if (after, moved) not in known:
                    known[after, moved] = state, f"{name}: {local[0]}"
                    agenda.append((after, moved))
    return len(known), None


def _way_to(state: object, known: dict[object, tuple[object, str] | None]) -> list[str]:
    way: list[str] = []
    while (came := known[state]) is not None:
        state, step = came
        way.append(step)
    return way[::-1]


def around_the_head(
    first: Process | None = None, second: Process | None = None, head: Process | None = None, old: Process | None = None
) -> dict[str, Process]:
    return {
        "writer": writer,
        "first cleanup": first or cleanup("c1"),
        "second cleanup": second or cleanup("c2"),
        "fork of the head": head or fork_of_head("h"),
        "fork of version 1": old or fork_of_commit("o", 1),
    }


def around_an_old_commit(first: Process | None = None, second: Process | None = None) -> dict[str, Process]:
    return {
        "first cleanup": first or cleanup("c1"),
        "second cleanup": second or cleanup("c2"),
        "fork of version 1": fork_of_commit("o", 1),
        "its deletion": deletion_of("o"),
        "another fork of version 1": fork_of_commit("p", 1),
    }


@pytest.mark.parametrize("processes", [around_the_head(), around_an_old_commit()], ids=["head", "old commit"])
def test_nothing_that_is_named_is_ever_gone(processes: dict[str, Process]) -> None:
    states, way = explore(processes)
    assert way is None, way
    assert states > 10_000, "the model has lost its processes"


@pytest.mark.parametrize(
    "processes",
    [
        pytest.param(around_the_head(head=fork_of_head("h", pins=False)), id="a fork of the head that does not pin it"),
        pytest.param(around_the_head(old=fork_of_commit("o", 1, looks_for_records=False)), id="no look for records"),
        pytest.param(around_the_head(cleanup("c1", looks_again=False)), id="a cleanup that does not look again"),
        pytest.param(around_the_head(cleanup("c1", pins_first=False)), id="pins read after branches"),
        pytest.param(around_the_head(second=cleanup("c2", finishes_others=False)), id="records of others only removed"),
        pytest.param(around_the_head(second=cleanup("c2", minds_pins=False)), id="a record closed that pins kept open"),
        pytest.param(around_an_old_commit(second=cleanup("c2", takes_over=False)), id="records not taken over first"),
        pytest.param(around_an_old_commit(cleanup("c1", owns_its_record=False)), id="a cleanup without its record"),
    ],
)
def test_every_rule_is_needed(processes: dict[str, Process]) -> None:
    assert explore(processes)[1] is not None
