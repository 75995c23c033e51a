"""A separate process that works on the library graph: writes, tidies, cleans or reads until it is done or killed.

    URI ROLE LABEL COUNT

It prints `ready`, waits for a line, and then prints one flushed line per acknowledged step.
`OMNIGRAPH_KILL_AT=<point>:<n>` makes it kill itself the n-th time it passes a trace point, with a signal nothing can
catch.
"""

from __future__ import annotations

import sys
from datetime import timedelta

from omnigraph import Graph
from omnigraph.errors import HistoricalVersionReclaimedError
from omnigraph.storage.log.write_guard import GRACE
from tests.engine.library import book, content, loan, reader
from tests.support.child import killing_trace, say
from tests.support.waiting import wait_until


def main(uri: str, role: str, label: str, count: str) -> None:
    graph = Graph.open(uri, trace=killing_trace())
    graph.snapshot()
    say("ready")
    sys.stdin.readline()
    for i in range(int(count)):
        STEPS[role](graph, label, i)


def write(graph: Graph, label: str, i: int) -> None:
    """New entities, and every other time a change of one that is there."""
    isbn, card = f"{label}-{i}", f"{label}-r{i}"
    graph.load("\n".join([book(isbn, pages=i), reader(card), loan(card, isbn)]), mode="append")
    say("wrote", isbn, i)
    if i % 2:
        graph.load(book(f"{label}-{i - 1}", pages=1000 + i), mode="merge")
        say("wrote", f"{label}-{i - 1}", 1000 + i)


def tidy(graph: Graph, label: str, i: int) -> None:
    """Optimize; a number as label makes it wait until so many commits were made since the last time."""
    if label.isdigit():
        wait_until(lambda: graph.snapshot().version >= int(label) * (i + 1), "others commit")
    report = graph.maintenance.optimize()
    say("tidied", "none" if report.commit is None else report.commit.version)


def clean(graph: Graph, label: str, i: int) -> None:
    report = graph.maintenance.cleanup(keep_versions=int(label), grace=GRACE)
    errors = [row.error for row in report.datasets if row.error is not None]
    say("cleaned", report.versions_removed, len(errors), *errors[:1])


def clean_all(graph: Graph, label: str, i: int) -> None:
    report = graph.maintenance.cleanup(keep_versions=int(label), grace=timedelta(0))
    say("cleaned", report.versions_removed)


def read(graph: Graph, label: str, i: int) -> None:
    """The newest snapshot, and one that is some commits old: whole, or reclaimed."""
    newest = graph.snapshot()
    for version in (newest.version, max(1, newest.version - 10)):
        try:
            books = content(graph, "node:Book", version=version)
            loans = content(graph, "edge:Borrowed", version=version)
        except HistoricalVersionReclaimedError:
            say("reclaimed", version)
        else:
            missing = [row["dst"] for row in loans.values() if row["dst"] not in books]
            say("read", version, len(missing))


STEPS = {"write": write, "tidy": tidy, "clean": clean, "clean_all": clean_all, "read": read}
