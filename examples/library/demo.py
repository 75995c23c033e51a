"""The demo: files of a city library become a graph on Spark, and the graph is searched, branched, merged, queried.

    ./dev demo                   in a directory that is gone afterwards
    ./dev demo DIRECTORY         in one that stays, to try things in

Everything it does is in this directory: the schema, the queries, the pipeline. The data are made by `generate.py`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from generate import main as generate
from generate import profile_of
from pyspark.sql import SparkSession
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import omnigraph
from omnigraph import Graph
from omnigraph.pipeline import PipelineReport, StageEvent, load_pipeline, start_session

HERE = Path(__file__).resolve().parent
QUERIES = (HERE / "queries.gq").read_text()
READER, BOOK = "C00011", "978-000123"
LOANS_BY_DISTRICT = """
select district, count(*) as loans, count(distinct dst) as books, sum(if(returned is null, 1, 0)) as still_out
from Borrowed join Reader on Reader.id = Borrowed.src
group by district order by loans desc
"""


class Show:
    """Prints what happens, and keeps the time of every step."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.timings: list[dict[str, object]] = []

    def chapter(self, title: str) -> None:
        self.console.print()
        self.console.rule(f"[bold]{title}[/]", align="left", style="dim")

    def say(self, text: str) -> None:
        self.console.print(text, soft_wrap=True)

    def rows(self, title: str, rows: Sequence[Mapping[str, object]]) -> None:
        if title:
            self.say(f"\n{title}")
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for number, name in enumerate(rows[0]):
            numeric = all(isinstance(row[name], int | float) for row in rows)
            # The last column takes what the terminal leaves.
            table.add_column(name, justify="right" if numeric else "left", no_wrap=number < len(rows[0]) - 1)
        for row in rows:
            table.add_row(*map(cell, row.values()))
        self.console.print(table)

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.timings.append({"step": step, "seconds": time.perf_counter() - began})

    def stage(self, event: StageEvent) -> None:
        """A line per stage of the pipeline, as it ends."""
        if event.seconds is not None:
            told = f"{event.stage} {event.detail}".strip()
            self.console.print(f"  [green]✓[/] {told:<40} [dim]{event.seconds:5.1f} s[/]")


def cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) else escape(str(value))


def main(directory: Path, console: Console, spark: SparkSession | None = None) -> None:
    """Run the demo in a directory. A session that is given is used and left running."""
    show = Show(console)
    show.say("[bold]OmniGraph[/]: a typed graph in a lakehouse, filled by Spark, versioned like Git")
    os.environ.setdefault("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
    file = prepare(show, directory)
    if spark is None:
        show.say("[dim]Spark starts …[/]")
        with show.timed("start Spark"):
            session = start_session(load_pipeline(file).spark, "omnigraph demo")
    else:
        session = spark
    with omnigraph.init(directory / "library.omni", (directory / "schema.pg").read_text()) as graph:
        ingest(show, graph, file, session)
        ask(show, graph)
        ask_with_spark_sql(show, graph, session)
        branch_and_merge(show, graph)
        look_back(show, graph)
    if spark is None:
        session.stop()
    show.chapter("What it took")
    show.rows("", show.timings)


def prepare(show: Show, directory: Path) -> Path:
    show.chapter("1. Files of a city library, some rows of them bad")
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("schema.pg", "queries.gq", "library.yaml"):
        shutil.copy(HERE / name, directory)
    with show.timed("write the input files"):
        rows = generate(directory / "data")
    show.rows("", [{"input": path, "rows": count} for path, count in rows.items()])
    return directory / "library.yaml"


def ingest(show: Show, graph: Graph, file: Path, spark: SparkSession) -> None:
    show.chapter("2. One Spark pipeline, one commit")
    with show.timed("the pipeline"):
        report = graph.run_pipeline(file, spark=spark, actor="nightly", progress=show.stage)
    columns = ("read", "accepted", "rejected", "inserted")
    show.rows("", [{"type": t.type_key} | {name: getattr(t, name) for name in columns} for t in report.types])
    rejected(show, report)
    embedded = graph.snapshot().table("node:Book").count("embedding IS NOT NULL")
    show.say(f"{embedded} abstracts were embedded on the way, by the offline mock provider.")
    show.say(f"Commit [bold]{report.commit_id}[/] on {report.branch}, version {report.version}.")
    with show.timed("the same pipeline again"):
        again = graph.run_pipeline(file, spark=spark)
    show.say(f"The same files again: {'recognised, nothing was done' if again.replayed else 'loaded twice!'}.")


def rejected(show: Show, report: PipelineReport) -> None:
    """One rejected row of each kind, out of the quarantine."""
    files = Path(report.quarantine or "").glob("*.json")
    found = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    kinds = {(row["source"], row.get("type"), row["reason"][:16]): row for row in reversed(found)}
    rows = [
        {"file:row": f"{Path(row['file']).name}:{row['row']}", "reason": row["reason"]}
        for row in sorted(kinds.values(), key=lambda row: (row["file"], row["row"]))
    ]
    show.rows(f"{report.rejected} bad rows went to the quarantine, with file, row and reason; one of each kind:", rows)


def ask(show: Show, graph: Graph) -> None:
    show.chapter("3. One query language: traversal, vectors, full text")
    with show.timed("traversal with negation and aggregate"):
        circle = graph.query(QUERIES, "circle", {"card": READER}).rows()
    show.rows(f"What the circle of reader {READER} borrowed and {READER} did not, traversing up to two hops", circle)
    sea = profile_of("the sea", "a long war")
    with show.timed("vector search with filters and a hop"):
        similar = graph.query(QUERIES, "similar", {"profile": sea, "pages": 250, "since": 1950}).rows()
    show.rows("About the sea, and a war; under 250 pages, since 1950; nearest by vector", similar)
    with show.timed("hybrid search"):
        hybrid = graph.query(QUERIES, "hybrid", {"profile": sea, "words": "lighthouse storms"}).rows()
    show.rows("The same subject by vector, 'lighthouse storms' by full text, fused by rank", hybrid)
    (book,) = graph.query(QUERIES, "abstract_of", {"isbn": BOOK}).rows()
    with show.timed("search by a text that is embedded"):
        (found,) = graph.query(QUERIES, "by_text", {"text": book["abstract"]}).rows()
    show.say(f"\nAsked for: [italic]{book['abstract']}[/]")
    show.say(f"nearest embedding: [bold]{found['title']}[/] ({found['isbn']}), distance {cell(found['distance'])}")


def ask_with_spark_sql(show: Show, graph: Graph, spark: SparkSession) -> None:
    show.chapter("4. The same graph in Spark SQL")
    with show.timed("Spark SQL over the graph"):
        graph.register_views(spark)
        rows = [row.asDict() for row in spark.sql(LOANS_BY_DISTRICT).collect()]
    show.rows("Loans by district", rows)


def branch_and_merge(show: Show, graph: Graph) -> None:
    show.chapter("5. A branch, a change, a diff, a merge")
    with show.timed("create a branch"):
        graph.create_branch("review/titles", actor="ada")
    with show.timed("a mutation on the branch"):
        new = {"isbn": BOOK, "title": f"{title_of(graph)} (Second Edition)"}
        graph.mutate(QUERIES, "retitle", new, branch="review/titles", actor="ada")
    with show.timed("diff"):
        changes = graph.diff("main", "review/titles").changes
    titles = [title_of(graph, branch) for branch in ("main", "review/titles")]
    rows = [{"change": f"{c.op} {c.kind} {c.type_name} {c.id}", "title": " → ".join(titles)} for c in changes]
    show.rows("From main to review/titles", rows)
    with show.timed("a mutation on main, meanwhile"):
        graph.mutate(QUERIES, "lend", {"card": READER, "isbn": BOOK, "on": "2026-11-01"}, actor="desk")
    with show.timed("merge, and delete the branch"):
        merged = graph.merge("review/titles", delete_branch=True, actor="ada")
    show.say(f"Meanwhile main got a new loan. Merged review/titles into main: [bold]{merged.outcome}[/].")


def title_of(graph: Graph, branch: str | None = None, version: int | None = None) -> str:
    book = graph.entity("node:Book", BOOK, branch=branch, version=version)
    return str(book["title"]) if book else "not there"


def look_back(show: Show, graph: Graph) -> None:
    show.chapter("6. History and time travel")
    rows = []
    for commit in graph.commit_history().commits:
        changes = (commit.changes or {}).values()
        rows.append(
            {
                "version": commit.version,
                "commit": commit.id,
                "kind": commit.kind,
                "actor": commit.actor_id or "",
                "inserted": sum(counts.inserted for counts in changes),
                "updated": sum(counts.updated for counts in changes),
            }
        )
    show.rows("History of main", rows)
    show.say(f"Book {BOOK} is '{title_of(graph)}' now, and was '{title_of(graph, version=2)}' at version 2.")
    with show.timed("verify every branch and file"):
        checked = graph.maintenance.verify()
    state = "[green]clean[/]" if checked.clean else f"[red]{len(checked.problems)} problems[/]"
    show.say(f"Verified every branch, {checked.tables} table versions and {checked.files} files: {state}.")


def try_more(show: Console, directory: Path) -> None:
    show.print(f"\nIt is all in {directory}. Try more, in `./dev run -- bash`:", soft_wrap=True)
    for command in (
        f"cd {directory}",
        f"""omnigraph query circle --store library.omni --query queries.gq --params '{{"card": "{READER}"}}'""",
        "omnigraph commit list --store library.omni",
        "omnigraph pipeline explain library.yaml",
    ):
        show.print(f"  {command}", soft_wrap=True, markup=False)


if __name__ == "__main__":
    console = Console(highlight=False)
    if len(sys.argv) == 1:
        with tempfile.TemporaryDirectory(prefix="omnigraph-demo-") as temporary:
            main(Path(temporary), console)
    elif (target := Path(sys.argv[1]).resolve() / "library.omni").exists():
        sys.exit(f"{target} is there already; choose another directory")
    else:
        main(target.parent, console)
        try_more(console, target.parent)
