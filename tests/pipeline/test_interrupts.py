"""Ctrl-C at any point of a run: exit code 130, one line, no JVM left, and a graph that nothing happened to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.pipeline.conftest import QUICK
from tests.pipeline.library import csv, library
from tests.pipeline.test_faults import descendants
from tests.support.processes import REPOSITORY, is_stopped
from tests.support.waiting import GIVE_UP, wait_until

FILE = """\
version: 1
name: nightly
graph: {graph}
spark: {{master: "local[1]", conf: {conf}}}
sources: {{people: {{format: csv, path: people.csv, options: {{header: true}}}}}}
nodes: {{Reader: {{from: people, select: {{name: name, age: age + 1}}}}}}
"""

JAVA_REMARK = "WARNING: Using incubator modules: jdk.incubator.vector\n"
"""Java says so before any logging exists, because Spark asks for the module; no option silences it."""


def javas(pid: int) -> list[int]:
    return [child for child, command in descendants(pid) if "pyspark-shell" in command]


def wait_for(process: subprocess.Popen[str], point: str) -> None:
    """Until Java is being started, or the process has stopped itself because a stage is over."""
    reached = (lambda: javas(process.pid)) if point == "java" else (lambda: is_stopped(process.pid))
    wait_until(lambda: reached() or process.poll() is not None, f"the run gets to '{point}'")


def test_an_interrupted_run_ends_with_one_line_and_without_its_jvm(tmp_path: Path) -> None:
    csv(tmp_path / "people.csv", "name,age", *(f"p{number},{number % 90}" for number in range(500)))
    # While Java starts an interrupt is held back, and comes when the session stands: that is the end of stage "start".
    points = {"java": os.kill, "write": os.killpg}
    graphs = {point: library(tmp_path / point) for point in points}
    started = {}
    for point, graph in graphs.items():
        (tmp_path / f"{point}.yaml").write_text(FILE.format(graph=graph.uri, conf=json.dumps(QUICK)))
        started[point] = subprocess.Popen(
            [sys.executable, "-m", "tests.pipeline.interrupted", point, "pipeline", "run", f"{point}.yaml", "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'src'}"},
            start_new_session=True,
        )
    for point, kill in points.items():
        process = started[point]
        wait_for(process, point)
        java = javas(process.pid)
        kill(process.pid, signal.SIGINT)
        os.kill(process.pid, signal.SIGCONT)
        _, errors = process.communicate(timeout=GIVE_UP)
        # Spark's own daemon may complain of a pipe that closes under it; of ours there is one line, the last.
        ours = errors.removeprefix(JAVA_REMARK).splitlines()
        assert (point, process.returncode, ours[-1]) == (point, 130, "Error: interrupted"), errors
        assert len(ours) == 1 or (ours[0].startswith("Traceback") and "src/omnigraph" not in errors), errors
        assert java
        wait_until(lambda java=java: not any(Path(f"/proc/{pid}").exists() for pid in java), "Java has ended")
        assert graphs[point].snapshot().version == 1
        assert graphs[point].maintenance.verify().clean
