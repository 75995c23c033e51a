"""Threads that meet a shape for the first time together. In a process of its own: what is tested for is a crash."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.processes import REPOSITORY

# Each round has structs that nobody has decoded yet. msgspec by itself crashes within a few dozen rounds.
FIRST_MEETINGS = '''
import sys, threading, types
from omnigraph.storage.models import FORMAT_VERSION, decode

SHAPES = """
from __future__ import annotations
import msgspec
class Leaf(msgspec.Struct, frozen=True):
    a: int = 0
    b: str = ""
class Branch(msgspec.Struct, frozen=True):
    leaf: Leaf | None = None
    leaves: dict[str, Leaf] = {}
class Entry(msgspec.Struct, frozen=True, tag="entry", tag_field="kind"):
    format: int
    branches: tuple[Branch, ...] = ()
class Mark(msgspec.Struct, frozen=True, tag="mark", tag_field="kind"):
    format: int
"""
DATA = b'{"kind":"entry","format":%d,"branches":[{"leaf":{"a":1}}]}' % FORMAT_VERSION

sys.setswitchinterval(1e-6)
for number in range(300):
    module = types.ModuleType(f"shapes{number}")
    sys.modules[module.__name__] = module
    exec(SHAPES, module.__dict__)
    together = threading.Barrier(4)
    found = []

    def meet():
        together.wait()
        found.append(decode("x", DATA, module.Entry | module.Mark).branches[0].leaf.a)

    threads = [threading.Thread(target=meet) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [1, 1, 1, 1], found
print("met")
'''


def test_threads_may_decode_a_shape_for_the_first_time_together() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", FIRST_MEETINGS],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src")},
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "met\n"), done.stderr[-2000:]
