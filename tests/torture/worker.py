"""One process that works on the graph at random until it is told to stop, or killed.

    SETTINGS NAME LIFE [UNFINISHED]

SETTINGS is the run's settings file; NAME and LIFE say which of its random choices are this process's; UNFINISHED is the
operation in which the process before it died. What it does is a line of JSON in its trace before it begins, and
another one when it is over. On standard output it says only what the runner has to know at once: `ready`, `paused`,
`stopping SECONDS`.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
import traceback
from pathlib import Path
from random import Random
from typing import Any

from omnigraph import Graph
from omnigraph.errors import OmniGraphError, StorageError
from omnigraph.storage.identifiers import MAIN
from omnigraph.storage.log.tracing import MAINTENANCE_POINTS, NAMING_POINTS, Trace
from tests.support.child import say
from tests.torture.choices import View, choose
from tests.torture.operations import Memory, carry_out, is_expected

WRITING_POINTS = ("stage.all.after", "publish.before", "publish.before", "publish.after")
POINTS = {
    "load": WRITING_POINTS,
    "mutate": WRITING_POINTS,
    "merge": WRITING_POINTS,
    "schema": (*WRITING_POINTS, *MAINTENANCE_POINTS),
    "optimize": WRITING_POINTS,
    "branch": ("branch.create.before", "branch.create.claimed", "branch.create.after", *NAMING_POINTS),
    "unbranch": ("branch.tombstone.before", "branch.tombstone.after", "branch.delete.after"),
    "cleanup": MAINTENANCE_POINTS,
}
KEYED = ("load", "mutate", "merge", "schema", "branch", "unbranch")


class Worker:
    def __init__(self, settings: dict[str, Any], name: str, life: str, unfinished: str = "") -> None:
        self._settings = settings
        self._name = f"{name}.{life}"
        self._chance = Random(f"{settings['seed']}/{self._name}")
        self._log = open(Path(settings["directory"]) / "trace" / f"{self._name}.jsonl", "a", buffering=1)  # noqa: SIM115
        self._trace = Trace()
        self._trace.observer = self._reached
        self._trap: dict[str, Any] | None = None
        self._operation: dict[str, Any] = {}
        self._memory = Memory(settings["grace"])
        self._count = 0
        self._again: dict[str, Any] | None = json.loads(unfinished) if unfinished else None
        self._graph = self._opened()

    def run(self) -> None:
        say("ready")
        while self._go_on():
            self._step()
            time.sleep(self._chance.uniform(0, self._settings["rest"]))

    def _go_on(self) -> bool:
        """Between operations the runner may ask for a pause, or for the end."""
        while select.select([sys.stdin], [], [], 0)[0]:
            line = sys.stdin.readline().strip()
            if line in ("", "stop"):
                return False
            if line == "pause":
                say("paused")
                if sys.stdin.readline().strip() != "go":
                    return False
        return True

    def _step(self) -> None:
        again, self._again = self._again, None
        if again is not None and self._chance.random() < 0.7:
            self._do(self._repeated(again), self._graph)
            return
        if self._chance.random() < 0.1:
            with self._opened() as fresh:
                self._new_operation(fresh)
        else:
            self._new_operation(self._graph)

    def _repeated(self, operation: dict[str, Any]) -> dict[str, Any]:
        """The same call with the same key; now and then another call with that key, which must not be taken for it."""
        repeated = {**operation, "repeats": operation["op"]}
        if operation["kind"] == "load" and self._chance.random() < 0.15:
            other = {"type": "Person", "data": {"name": f"p{self._chance.randrange(16)}", "n": -1}}
            repeated |= {"abuse": True, "args": {"mode": "merge", "records": [other]}}
        return repeated

    def _new_operation(self, graph: Graph) -> None:
        self._count += 1
        number = f"{self._name}-{self._count}"
        view = self._attempt({"op": f"{number}~", "kind": "look", "args": {}}, lambda: View.of(graph, self._chance))
        if view is None:
            return
        operation = choose(self._chance, view, number, self._settings["weights"])
        if operation["kind"] in KEYED and self._chance.random() < 0.4:
            operation["key"] = f"key-{number}"
        if operation["kind"] in POINTS and self._chance.random() < self._settings["traps"]:
            operation["trap"] = self._new_trap(operation["kind"])
        repeatable = operation.get("key") and (
            operation["branch"] == MAIN or "tag" not in operation["args"].get("params", {})
        )
        if self._do(operation, graph) and repeatable and self._chance.random() < 0.3:
            self._again = {key: value for key, value in operation.items() if key != "trap"}

    def _new_trap(self, kind: str) -> dict[str, Any]:
        kills = self._chance.random() < 0.4
        return {
            "point": self._chance.choice(POINTS[kind]),
            "does": "kill" if kills else "stop",
            "seconds": self._chance.choice((0.01, 0.1, 0.5, 1.5, 2.5, 4.0)),
        }

    def _do(self, operation: dict[str, Any], graph: Graph) -> bool:
        """Whether the operation was carried out."""
        if "repeats" in operation:
            self._count += 1
        operation["op"] = f"{self._name}-{self._count}"
        self._write({**operation, "began": time.time()})
        self._operation, self._trap = operation, operation.get("trap")
        told = self._attempt(operation, lambda: carry_out(graph, operation, self._memory))
        self._trap = None
        if told is None:
            return False
        self._write({"op": operation["op"], "outcome": "done", "ended": time.time(), **told})
        return True

    def _attempt(self, operation: dict[str, Any], call: Any) -> Any:
        """What the call gives; None when it fails, and then the trace says how."""
        try:
            return call()
        except OmniGraphError as error:
            unsure = isinstance(error, StorageError)
            outcome = "unknown" if unsure else "refused" if is_expected(operation, error) else "unexpected"
            self._failed(operation, outcome, error)
        except Exception as error:
            self._failed(operation, "raw", error)
        return None

    def _failed(self, operation: dict[str, Any], outcome: str, error: Exception) -> None:
        record = {"op": operation["op"], "outcome": outcome, "ended": time.time()}
        record |= {"error": type(error).__name__, "message": str(error)[:500]}
        if outcome != "refused":
            record["traceback"] = "".join(traceback.format_exception(error))[-4000:]
        if operation["kind"] == "look":
            record = {**operation, "began": record["ended"], **record}
        self._write(record)

    def _reached(self, point: str) -> None:
        trap = self._trap
        if trap is None or trap["point"] != point:
            return
        self._trap = None
        self._write({"trap": point, "in": self._operation["op"], "does": trap["does"], "at": time.time()})
        if trap["does"] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        say("stopping", trap["seconds"])
        os.kill(os.getpid(), signal.SIGSTOP)

    def _write(self, record: dict[str, Any]) -> None:
        self._log.write(json.dumps(record) + "\n")

    def _opened(self) -> Graph:
        return Graph.open(self._settings["uri"], trace=self._trace)


def main(settings: str, *arguments: str) -> None:
    os.nice(10)
    Worker(json.loads(Path(settings).read_text()), *arguments).run()
