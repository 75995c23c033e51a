"""The demo: a small library graph, loaded, searched, branched, merged, and what all of it cost the store.

./dev demo
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.table import Table

import omnigraph
from omnigraph import Graph
from omnigraph.storage.models import ChangeCounts

console = Console(highlight=False)

SCHEMA = """
node Author { slug: String @key  name: String  born: Date? }
node Book {
    isbn: String @key
    title: String @index
    blurb: String? @index
    pages: I32? @index
    vec: Vector(8)? @index
}
node Reader { card: String @key  name: String }
edge Wrote: Author -> Book { year: I32? }
edge Borrowed: Reader -> Book @card(0..5)
edge Follows: Reader -> Reader
"""

QUERIES = """
query circle($card: String) {
    match {
        $me: Reader { card: $card }
        $me follows{1,2} $friend
        $friend borrowed $book
        not { $me borrowed $book }
    }
    return { $book.title as title, count($friend) as readers }
    order { readers desc, title }
    limit 5
}
query similar($v: Vector(8), $pages: I32) {
    match { $b: Book  $b.pages < $pages  $a wrote $b }
    return { $b.title as title, $a.name as author, nearest($b.vec, $v) as distance }
    order { nearest($b.vec, $v) }
    limit 3
}
query hybrid($v: Vector(8), $words: String) {
    match { $b: Book }
    return { $b.title as title, $b.blurb as blurb }
    order { rrf(nearest($b.vec, $v), bm25($b.blurb, $words)) }
    limit 3
}
query retitle($isbn: String, $title: String) { update Book set { title: $title } where isbn = $isbn }
query lend($card: String, $isbn: String) { insert Borrowed { from: $card, to: $isbn } }
"""

SUBJECTS = ["ocean", "moon", "library", "robot", "city", "garden", "war", "river"]
KINDS = ["quiet history", "strange tale", "long letter", "field guide", "last song", "short map"]
AUTHORS, BOOKS, READERS = 40, 600, 300


def records() -> Iterator[str]:
    """A few thousand records, the same every time. A book's vector leans towards its subject."""
    chance = random.Random(7)
    for i in range(AUTHORS):
        yield node("Author", slug=f"a{i}", name=f"Author {i}", born=f"{1900 + i}-01-15")
    for i in range(BOOKS):
        subject = i % len(SUBJECTS)
        vector = [round(chance.uniform(0, 0.3) + (d == subject), 4) for d in range(len(SUBJECTS))]
        title = f"The {SUBJECTS[subject].title()} No. {i}"
        blurb = f"A {chance.choice(KINDS)} of the {SUBJECTS[subject]}"
        yield node("Book", isbn=f"b{i}", title=title, blurb=blurb, pages=chance.randint(80, 900), vec=vector)
        yield edge("Wrote", f"a{chance.randrange(AUTHORS)}", f"b{i}", year=chance.randint(1950, 2020))
    for i in range(READERS):
        yield node("Reader", card=f"r{i}", name=f"Reader {i}")
        for book in chance.sample(range(BOOKS), chance.randint(0, 4)):
            yield edge("Borrowed", f"r{i}", f"b{book}")
        for friend in chance.sample(range(READERS), 3):
            yield edge("Follows", f"r{i}", f"r{friend}")


def node(type_name: str, **data: object) -> str:
    return json.dumps({"type": type_name, "data": data}) + "\n"


def edge(type_name: str, source: str, target: str, **data: object) -> str:
    return json.dumps({"edge": type_name, "from": source, "to": target, "data": data}) + "\n"


class Steps:
    """Times each step and counts the control requests it sent."""

    def __init__(self, graph: Graph) -> None:
        self._objects = graph.root.objects
        self.table = Table("step", "time", "control requests", title="What it took", title_justify="left")

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        before, started = self._objects.counts, time.perf_counter()
        yield
        spent = {kind: count - before.get(kind, 0) for kind, count in self._objects.counts.items()}
        shown = "  ".join(f"{count} {kind}" for kind, count in spent.items() if count)
        self.table.add_row(title, f"{(time.perf_counter() - started) * 1e3:.0f} ms", shown or "-")


def show(title: str, rows: list[dict[str, object]]) -> None:
    table = Table(*(rows[0] if rows else ["nothing"]), title=title, title_justify="left")
    for row in rows:
        table.add_row(*(f"{v:.3f}" if isinstance(v, float) else str(v) for v in row.values()))
    console.print(table)


def counted(counts: ChangeCounts) -> str:
    signs = (("+", counts.inserted), ("~", counts.updated), ("-", counts.deleted))
    return " ".join(f"{sign}{number}" for sign, number in signs if number)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        graph = omnigraph.init(f"{directory}/library.omni", SCHEMA)
        steps = Steps(graph)
        console.print(f"[bold]A new graph[/] with {', '.join(graph.snapshot().types())}\n")

        with steps.step("load everything in one commit"):
            loaded = graph.load(records(), mode="append", actor="demo")
        with steps.step("compact and build the declared indexes"):
            graph.optimize()
        console.print(f"Loaded {loaded.total_entities} entities as commit {loaded.commit.graph_commit_id}\n")

        moonlike = [0.0, 1.0, 0, 0, 0, 0, 0, 0]
        with steps.step("traversal with negation and aggregate"):
            circle = graph.query(QUERIES, "circle", {"card": "r7"}).rows()
        show("What the circle of reader r7 reads, and r7 has not", circle)
        with steps.step("filtered vector search and a join"):
            similar = graph.query(QUERIES, "similar", {"v": moonlike, "pages": 200}).rows()
        show("Nearest to 'moon', under 200 pages", similar)
        with steps.step("hybrid search"):
            hybrid = graph.query(QUERIES, "hybrid", {"v": moonlike, "words": "letters"}).rows()
        show("'moon' by vector and 'letters' by text, fused", hybrid)

        with steps.step("create a branch"):
            graph.create_branch("review/titles")
        with steps.step("a mutation on the branch"):
            graph.mutate(QUERIES, "retitle", {"isbn": "b1", "title": "Moon Tales"}, branch="review/titles", actor="ada")
        with steps.step("a mutation on main"):
            graph.mutate(QUERIES, "lend", {"card": "r0", "isbn": "b1"}, actor="bob")
        with steps.step("compare the two"):
            changes = graph.diff("main", "review/titles").changes
        listed = ", ".join(f"{change.op} {change.kind} {change.type_name}" for change in changes)
        console.print(f"\nFrom main to the branch: {listed}")
        with steps.step("merge and delete the branch"):
            merged = graph.merge("review/titles", delete_branch=True, actor="ada")
        console.print(f"Merged review/titles into main: {merged.outcome}\n")

        history = Table("version", "kind", "actor", "changes", title="History of main", title_justify="left")
        for entry in graph.list_commits().commits:
            listed = ", ".join(f"{key} {counted(c)}" for key, c in entry.commit.changes.items() if counted(c))
            history.add_row(str(entry.version), entry.commit.kind, entry.commit.actor or "", listed)
        console.print(history)
        before = graph.entity("node:Book", "b1"), graph.entity_at("node:Book", "b1", 2)
        now, then = (book["title"] if book else None for book in before)
        console.print(f"Book b1 is '{now}' now and was '{then}' at version 2\n")
        console.print(steps.table)

        report = graph.verify()
        state = "clean" if report.clean else f"{len(report.problems)} problems"
        checked = f"{report.branches} branches, {report.tables} table versions, {report.files} files"
        console.print(f"Verified {checked}: {state}")
        graph.close()


if __name__ == "__main__":
    main()
