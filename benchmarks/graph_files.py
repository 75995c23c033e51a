"""The people and friendships of the graph benchmarks: the files, and the questions about them.

Scale 1 is 50,000 people with about ten friends each. The same seed makes the same files everywhere.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.graph_systems import KNOWS, PEOPLE, Params

PEOPLE_AT_SCALE_1, FRIENDS, CITIES = 50_000, 10, 200


def slug(number: int) -> str:
    return f"person-{number:08d}"


def mail(number: int) -> str:
    return f"{number * 7919 % 1_000_003}.{number}@example.org"


def make_files(folder: Path, people: int) -> None:
    """Nobody befriends anybody twice, or oneself, so that every system counts the same."""
    drawn = np.random.default_rng(7)
    source, target = (drawn.integers(0, people, people * FRIENDS) for _ in range(2))
    pairs = np.unique(np.stack((source, target), axis=1)[source != target], axis=0)
    pairs = pairs[drawn.permutation(len(pairs))]
    slugs = pa.array([slug(i) for i in range(people)])
    table = {
        "number": pa.array(range(people)),
        "slug": slugs,
        "mail": [mail(i) for i in range(people)],
        "age": pa.array(drawn.integers(1, 99, people), pa.int32()),
        "city": [f"city-{i:03d}" for i in drawn.integers(0, CITIES, people)],
    }
    pq.write_table(pa.table(table), folder / PEOPLE)
    ends = {"source": pairs[:, 0], "target": pairs[:, 1]}
    texts = {f"{name}_slug": slugs.take(pa.array(numbers)) for name, numbers in ends.items()}
    pq.write_table(pa.table({**ends, **texts}), folder / KNOWS)


class Questions:
    """The same ones for everybody, other ones in every round."""

    def __init__(self, folder: Path) -> None:
        self.people = pq.read_metadata(folder / PEOPLE).num_rows
        self.drawn = random.Random(11)
        self._fresh = self.people
        self._files = folder
        self._pairs: np.ndarray[Any, Any] | None = None

    def key(self) -> str:
        return slug(self.drawn.randrange(self.people))

    def keys(self, count: int) -> list[str]:
        return [self.key() for _ in range(count)]

    def some_people(self, count: int) -> list[str]:
        """Keys, each of them once."""
        return [slug(number) for number in self.drawn.sample(range(self.people), count)]

    def params(self, *names: str) -> dict[str, Any]:
        """Values for the parameters of a question: `k` a key, `m` an address, `c` a city, `a` an age."""
        draws: dict[str, Callable[[], Any]] = {
            "k": self.key,
            "m": lambda: mail(self.drawn.randrange(self.people)),
            "c": lambda: f"city-{self.drawn.randrange(CITIES):03d}",
            "a": lambda: self.drawn.randint(30, 60),
        }
        return {name: draws[name]() for name in names}

    def new_edges(self, count: int) -> list[Params]:
        """Friendships that are not there, each of them once."""
        if self._pairs is None:
            knows = pq.read_table(self._files / KNOWS, columns=["source", "target"])
            self._pairs = np.sort(knows["source"].to_numpy() * self.people + knows["target"].to_numpy())
        edges: dict[int, Params] = {}
        while len(edges) < count:
            source, target = self.drawn.randrange(self.people), self.drawn.randrange(self.people)
            pair = source * self.people + target
            at = int(np.searchsorted(self._pairs, pair))
            if source != target and pair not in edges and (at == len(self._pairs) or self._pairs[at] != pair):
                edges[pair] = {"k": slug(source), "o": slug(target)}
        self._pairs = np.union1d(self._pairs, np.array(list(edges), np.int64))
        return list(edges.values())

    def new_people(self, count: int) -> list[dict[str, Any]]:
        """People that are not there, each of them once."""
        numbers = range(self._fresh, self._fresh + count)
        self._fresh += count
        return [{"slug": slug(n), "mail": mail(n), "age": n % 90, "city": f"city-{n % CITIES:03d}"} for n in numbers]

    def changed_people(self, count: int) -> list[dict[str, Any]]:
        """Some of the people, with another age."""
        numbers = self.drawn.sample(range(self.people), min(count, self.people))
        cities = pq.read_table(self._files / PEOPLE, columns=["city"])["city"].take(pa.array(numbers)).to_pylist()
        return [
            {"slug": slug(n), "mail": mail(n), "age": self.drawn.randint(1, 98), "city": city}
            for n, city in zip(numbers, cities, strict=True)
        ]
