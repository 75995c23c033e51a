"""Pipelines over Spark Connect, where no driver JVM is in reach of Python, and what keeps them able to."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

from tests.engine.stored import rows
from tests.pipeline.library import book, edge, library, ndjson, reader
from tests.support.processes import REPOSITORY
from tests.support.waiting import GIVE_UP
from tests.test_architecture import SOURCE

CLASSIC_ONLY = {"sparkContext", "_sc", "_jvm", "_jdf", "_jsparkSession", "rdd", "toDF", "accumulator"}


def test_pipelines_use_nothing_that_connect_lacks() -> None:
    strays = [
        f"{path.name}: {node.attr}"
        for path in sorted((SOURCE / "pipeline").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in CLASSIC_ONLY
    ]
    # The address of the UI is asked for, and does without an answer.
    assert strays == ["session.py: sparkContext"]


def test_a_run_over_connect_takes_and_refuses_like_any_other(tmp_path: Path) -> None:
    graph = library(tmp_path / "graph")
    graph.load(json.dumps(reader("ann", age=1)), mode="append")
    given = [reader("ann", age=2), reader("bob"), reader("cid", age=200), book("1")]
    likes = [edge("Likes", "ann", "1"), edge("Likes", "cid", "1")]
    ndjson(tmp_path / "in/a.ndjson", [*given, *likes])
    search = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "src"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "tests.pipeline.connecting", graph.uri, str(tmp_path / "in")]
    # The process has to end by itself: a connection that a run leaves open would hold it up for minutes.
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": search},
        check=False,
        timeout=GIVE_UP,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["session"] == "pyspark.sql.connect.session"
    assert (told["report"]["rejected"], told["report"]["version"], told["read"]) == (2, 3, 2)
    assert {name: row["age"] for name, row in rows(graph, "node:Reader").items()} == {"ann": 2, "bob": None}
    assert [e["src"] for e in rows(graph, "edge:Likes").values()] == ["ann"]
