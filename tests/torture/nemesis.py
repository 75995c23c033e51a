"""What happens to the workers: they are killed and stopped, at random moments and at points they chose themselves.

A worker that is stopped, by whomever, goes on after its time; a worker that is dead is born again, and is told in which
operation it died.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from tests.support.processes import Process, is_stopped

PAUSES = (0.01, 0.05, 0.3, 1.2, 2.5, 5.0)


class Victim:
    """A worker's place: the process that has it now, and how many it has had."""

    def __init__(self, name: str, settings: Path, environment: dict[str, str]) -> None:
        self.name = name
        self.life = 0
        self.continue_at: float | None = None
        self.paused = False
        self._settings = settings
        self._environment = environment
        self._heard = b""
        self.process = self._born()

    def _born(self) -> Process:
        self.life += 1
        self.continue_at, self.paused, self._heard = None, False, b""
        unfinished = [json.dumps(self._unfinished())] if self.life > 1 and self._unfinished() else []
        arguments = [str(self._settings), self.name, str(self.life), *unfinished]
        return Process("tests.torture.worker", *arguments, environment=self._environment)

    def _trace(self, life: int) -> Path:
        return self._settings.parent / "trace" / f"{self.name}.{life}.jsonl"

    def _unfinished(self) -> dict[str, Any] | None:
        """The write in which the process before this one died, if it can be repeated under its key."""
        begun: dict[str, Any] | None = None
        for record in records(self._trace(self.life - 1)):
            if "kind" in record and record["kind"] != "look":
                begun = record
            elif begun is not None and record.get("op") == begun["op"]:
                begun = None
        if begun is None or "key" not in begun:
            return None
        return {key: value for key, value in begun.items() if key not in ("began", "trap")}

    def listen(self) -> None:
        """Take what the worker said; a worker that is gone is replaced."""
        while select.select([self.process.stdout], [], [], 0)[0]:
            said = os.read(self.process.stdout.fileno(), 4096)
            if not said:
                self._bury()
                return
            *lines, self._heard = (self._heard + said).split(b"\n")
            for line in lines:
                word, _, rest = line.decode().partition(" ")
                if word == "stopping":
                    self.continue_at = time.monotonic() + float(rest)
                self.paused = self.paused or word == "paused"

    def _bury(self) -> None:
        self.process.wait()
        self.process.stdout.close()
        with self._trace(self.life).open("a") as trace:
            died = {"died": self.process.returncode, "at": time.time(), "said": self.process.errors()[-3000:]}
            trace.write("\n" + json.dumps(died) + "\n")
        self.process = self._born()

    def let_go_on(self) -> None:
        """Continue a process whose time is over, or that was continued before it stopped."""
        if self.continue_at is not None and time.monotonic() < self.continue_at:
            return
        self.continue_at = None
        if is_stopped(self.process.pid):
            os.kill(self.process.pid, signal.SIGCONT)

    def stop_for(self, seconds: float) -> None:
        self.continue_at = time.monotonic() + seconds
        os.kill(self.process.pid, signal.SIGSTOP)

    def tell(self, line: str) -> None:
        """Who is dead does not hear it, and is found dead soon."""
        with contextlib.suppress(BrokenPipeError):
            self.process.tell(line)

    def kill(self) -> None:
        self.process.kill()

    def end(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)
        self.process.kill()
        self.process.wait()


class Nemesis:
    """Acts when `now` has gone on by about `interval` while the workers run; an interval of 0 leaves them alone."""

    def __init__(self, victims: list[Victim], seed: str, interval: float, now: Callable[[], float]) -> None:
        self._victims = victims
        self._chance = Random(f"{seed}/nemesis")
        self._interval = interval
        self._now = now
        self._next = now() + interval
        self.done: Counter[str] = Counter()

    def act(self) -> None:
        for victim in self._victims:
            victim.listen()
            victim.let_go_on()
        if not self._interval or self._now() < self._next:
            return
        self._next = self._now() + self._chance.uniform(0.2, 1.8) * self._interval
        victim = self._chance.choice(self._victims)
        if self._chance.random() < 0.4:
            victim.kill()
            self.done["kill"] += 1
        else:
            victim.stop_for(self._chance.choice(PAUSES))
            self.done["stop"] += 1

    def quiet(self, give_up: float) -> list[str]:
        """Let every worker finish what it does and pause; the names of those that don't."""
        asked = {victim.name: 0 for victim in self._victims}
        until = time.monotonic() + give_up
        while not all(victim.paused for victim in self._victims):
            for victim in self._victims:
                victim.listen()
                victim.let_go_on()
                if asked[victim.name] != victim.life:
                    asked[victim.name] = victim.life
                    victim.tell("pause")
            if time.monotonic() > until:
                return [victim.name for victim in self._victims if not victim.paused]
            time.sleep(0.02)
        return []

    def resume(self) -> None:
        for victim in self._victims:
            victim.paused = False
            victim.tell("go")


def records(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a trace; a killed worker may have left half a line at its end."""
    for line in path.read_bytes().split(b"\n"):
        try:
            yield json.loads(line)
        except ValueError:
            continue
