"""A file takes the place of another one completely, or not at all."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from omnigraph.cli.inputs import replace_locked
from omnigraph.errors import BadRequestError
from tests.support.waiting import wait_until


def leavings(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_the_new_file_is_there_when_the_block_has_ended(tmp_path: Path) -> None:
    place = tmp_path / "out"
    place.write_text("old")
    with replace_locked(place) as file:
        file.write(b"new")
        assert place.read_text() == "old"
    assert place.read_text() == "new"
    assert leavings(tmp_path) == {"out", "out.lock"}


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    place = tmp_path / "out"
    place.write_text("old")
    with pytest.raises(ZeroDivisionError), replace_locked(place) as file:
        file.write(b"%d" % (1 // 0))
    assert place.read_text() == "old"
    assert leavings(tmp_path) == {"out", "out.lock"}


def somebody_waits_for_a_lock_on(file: Path) -> bool:
    """Linux lists who holds a lock, and with an arrow who waits for it."""
    locks = Path("/proc/locks").read_text().splitlines()
    return any(f":{file.stat().st_ino} " in line and "->" in line for line in locks)


@pytest.mark.skipif(sys.platform != "linux", reason="waiting for a lock is seen in /proc")
def test_installers_take_turns(tmp_path: Path) -> None:
    place, inside, order = tmp_path / "out", threading.Event(), list[str]()

    def second() -> None:
        inside.wait()
        with replace_locked(place) as file:
            order.append("second")
            file.write(b"second")

    thread = threading.Thread(target=second)
    thread.start()
    with replace_locked(place) as file:
        inside.set()
        file.write(b"first")
        wait_until(lambda: somebody_waits_for_a_lock_on(tmp_path / "out.lock"), "the second one waits")
        order.append("first")
    thread.join()
    assert (order, place.read_text()) == (["first", "second"], "second")


def test_a_directory_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(BadRequestError, match="can't write to"), replace_locked(tmp_path / "no" / "out"):
        pass
