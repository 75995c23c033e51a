"""What the graph benchmarks ask of every system. `graph_omnigraph.py`, `graph_cypher.py` and `graph_sql.py` answer.

Every system gets the same people and friendships from the same files, and is used as its authors would have it used.
Users know people by a text key (`slug`), so every question begins with one; behind it each system is free to link rows
by whatever it likes best. All of them commit durably, and all may use every core.
"""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from benchmarks.contest import Contender, NotOfferedError

PEOPLE, KNOWS = "people.parquet", "knows.parquet"
SECONDS_PER_COMMIT = 0.05
"""The pace of whoever writes beside a reader: the same for everybody, and one that everybody can keep."""
THREADS_OF_LOOKUPS = 16

READS: Mapping[str, tuple[str, ...]] = {
    "person": ("k",),
    "mail": ("m",),
    "in_city": ("c", "a"),
    "older": ("a",),
    "count_older": ("a",),
    "cities": (),
    "friends_by_city": (),
    "city_pairs": (),
    "hops1": ("k",),
    "hops2": ("k",),
    "hops3": ("k",),
    "hops4": ("k",),
    "friends": ("k",),
    "paths": (),
    "degrees": (),
    "triangles": (),
    "everybody": (),
}
"""Every read, with its parameters:

person           age and city of a person, by key
mail             key of the people with an address: equality on an indexed text that is not a key
in_city          the ten oldest people of a city who are older than that
older            the ten oldest people who are older than that; ties in the order of keys
count_older      how many people are at least that old
cities           per city, how many people and their average age
friends_by_city  per city, how many friendships lead to its people, and the average age of those who have them
city_pairs       the twenty pairs of cities with the most friendships between them
hops1 ... hops4  how many others a person reaches in one to that many steps
friends          key and age of everybody within two steps
paths            how many pairs of friendships follow each other, in the whole graph
degrees          the ten people to whom most friendships lead
triangles        how often three friendships make a circle
everybody        all properties of all people
"""
IN_ORDER = {"in_city", "older", "city_pairs", "degrees"}
"""The reads whose rows have an order. That of the others is left open."""
WRITES: Mapping[str, tuple[str, ...]] = {"befriend": ("k", "o"), "age": ("k", "a"), "remove": ("k",)}
"""Each a commit of its own: a friendship from `k` to `o`, the age of a person, a person with all its friendships."""

Params = Mapping[str, Any]
Rows = Sequence[Any]


class Session(Protocol):
    """What one thread uses to ask a system."""

    def rows(self, name: str, params: Params) -> Rows:
        """Run one of the system's texts, up to its rows as Python values."""

    def close(self) -> None: ...


class GraphSystem(Contender):
    session: Session

    PROGRAM = ""
    """What a user runs in a new process: `store`, `text`, `name` and `params` are there, and `rows` is the result."""

    @classmethod
    def text(cls, name: str) -> str:
        """A read or a write in the system's language."""
        raise NotImplementedError

    @property
    def data(self) -> Path:
        return self.folder.parent

    # Loading

    def create(self) -> None:
        raise NotImplementedError

    def load_people(self) -> None:
        raise NotImplementedError

    def load_edges(self) -> None:
        """From the keys of the people."""
        raise NotImplementedError

    def load_json_edges(self, file: Path) -> None:
        """The same from lines of JSON, with the members `from` and `to`."""
        raise NotOfferedError("does not load lines of JSON without an extension")

    def build_indexes(self) -> None: ...

    def build(self) -> None:
        self.create()
        self.load_people()
        self.load_edges()
        self.build_indexes()
        self.close()

    # Sessions

    def connect(self) -> None:
        """What all sessions share."""
        raise NotImplementedError

    def disconnect(self) -> None:
        raise NotImplementedError

    def new_session(self) -> Session:
        raise NotImplementedError

    def open(self) -> None:
        self.connect()
        self.session = self.new_session()
        self._more: list[Session] = []

    def close(self) -> None:
        for session in (*self._more, self.session):
            session.close()
        self.disconnect()

    # Reading

    def read(self, name: str, questions: Sequence[Params]) -> list[Rows]:
        return [self.session.rows(name, params) for params in questions]

    def size(self, name: str) -> int:
        """The number of the rows, all of which become Python values."""
        return len(self.session.rows(name, {}))

    def arrow_size(self, name: str) -> int:
        """The number of the rows, which become an Arrow table."""
        raise NotOfferedError("does not give Arrow tables")

    def lookups_of_threads(self, keys: Sequence[Sequence[str]]) -> list[Any]:
        """Each thread looks up people of its own, one after another."""
        if not self._more:
            self._more = [self.new_session() for _ in keys]
            self._pool = ThreadPoolExecutor(len(keys))

        def look_up(session: Session, some: Sequence[str]) -> list[Rows]:
            return [session.rows("person", {"k": key}) for key in some]

        return list(self._pool.map(look_up, self._more, keys))

    # Writing

    def write(self, name: str, changes: Sequence[Params]) -> None:
        """Each as a commit of its own."""
        for params in changes:
            self.session.rows(name, params)

    def insert_people(self, people: Sequence[Params]) -> None:
        """In one transaction."""
        raise NotImplementedError

    def load_new_people(self, people: Sequence[Params]) -> None:
        """In one transaction, by whatever is best for many rows."""
        self.insert_people(people)

    def insert_each(self, people: Sequence[Params]) -> None:
        """Each as a commit of its own."""
        for person in people:
            self.insert_people([person])

    def update_people(self, people: Sequence[Params]) -> None:
        """People who are all there, in one transaction."""
        raise NotImplementedError

    # A writer beside the reader

    def begin_writing(self, edges: Sequence[Params]) -> None:
        """Commit an edge now and then until told to stop. In a process of its own, where a system allows two."""
        spawn = multiprocessing.get_context("spawn")
        self._stop: Any = spawn.Event()
        began = spawn.Event()
        self._writer: Any = spawn.Process(target=_write, args=(type(self), self.folder, edges, began, self._stop))
        self._writer.start()
        began.wait()

    def stop_writing(self) -> None:
        self._stop.set()
        self._writer.join()


class OneProcess(GraphSystem):
    """A system of which one process at a time may have the data open for writing."""

    def begin_writing(self, edges: Sequence[Params]) -> None:
        self._stop = threading.Event()
        self._writer = threading.Thread(target=_write_until, args=(self.new_session(), edges, self._stop))
        self._writer.start()


def _write(system: type[GraphSystem], folder: Path, edges: Sequence[Params], began: Any, stop: Any) -> None:
    writer = system(folder)
    writer.open()
    writer.write("befriend", edges[:1])
    began.set()
    _write_until(writer.session, edges[1:], stop)
    writer.close()


def _write_until(session: Session, edges: Sequence[Params], stop: Any) -> None:
    for edge in edges:
        if stop.wait(SECONDS_PER_COMMIT):
            break
        session.rows("befriend", edge)
    session.close()


def meaning(rows: Any, *, in_order: bool = False) -> Any:
    """Rows of any system in one form: values of dictionaries, floats rounded, sorted unless they have an order."""
    plain = [
        [round(v, 3) if isinstance(v, float) else v for v in (row.values() if isinstance(row, dict) else row)]
        for row in rows
    ]
    return plain if in_order else sorted(plain, key=repr)
