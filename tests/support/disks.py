"""Disks that misbehave, for real: a small one that fills up, one whose system calls fail, one that loses its power.

The system calls are those of this process (`os.fsync` and friends), which is where a graph meets its disk; nothing of
OmniGraph is replaced.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


class SmallDisk:
    """A file system of its own, a few megabytes large."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._filler = root / "filler"

    def fill(self) -> None:
        """Use up every byte that is left."""
        descriptor = os.open(self._filler, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            for size in (1 << 16, 1 << 12, 1):
                with suppress(OSError):
                    while True:
                        os.write(descriptor, bytes(size))
        finally:
            os.close(descriptor)

    def free(self, size: int | None = None) -> None:
        """Give some bytes back, or all."""
        os.truncate(self._filler, 0 if size is None else max(0, self._filler.stat().st_size - size))

    def remount(self, *options: str) -> None:
        subprocess.run(["mount", "-o", ",".join(("remount", *options)), self.root], check=True)


@contextmanager
def small_disk(at: Path, size: str = "2m") -> Iterator[SmallDisk]:
    """Mount one. Where that is not permitted the test is skipped, and says so."""
    at.mkdir(parents=True, exist_ok=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", at], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a real full disk needs the right to mount one: {mounted.stderr.strip()}")
    try:
        yield SmallDisk(at)
    finally:
        subprocess.run(["umount", "-l", at], check=True)


def path_of(descriptor: int) -> str:
    return os.readlink(f"/proc/self/fd/{descriptor}")


class FailingCalls:
    """Lets system calls fail that a rule picks by name and path, a number of times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._rules: list[list[object]] = []
        for name in ("fsync", "write"):
            monkeypatch.setattr(os, name, self._watched(name, getattr(os, name), lambda fd, *_: path_of(fd)))
        monkeypatch.setattr(os, "link", self._watched("link", os.link, lambda _, target: str(target)))

    def fail(self, call: str, number: int, path: Callable[[str], bool], times: int = 1_000) -> None:
        """Calls named `call` on a path that fits fail with an error number, before they do anything."""
        self._rules.append([call, number, path, times])

    def heal(self) -> None:
        self._rules.clear()

    def _watched(self, name: str, call: Callable[..., object], path: Callable[..., str]) -> Callable[..., object]:
        def watched(*arguments: object) -> object:
            for rule in self._rules:
                wanted, number, fits, left = rule
                if wanted == name and left and fits(path(*arguments)):  # type: ignore[operator]
                    rule[3] -= 1  # type: ignore[operator]
                    raise OSError(number, os.strerror(number), path(*arguments))  # type: ignore[arg-type]
            return call(*arguments)

        return watched


class PowerCuts:
    """Watches the flushes and links below a directory, and at each of them shows what a power cut could leave.

    Content is lost that was never flushed: the file is empty then. Names that were made since their directory was
    flushed may be there (`names kept`) or not (`names lost`): `survivors` are both. What stood when the watch began is
    safe.
    """

    def __init__(self, root: Path, into: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self._into = root, into
        self._contents = {entry.stat().st_ino for entry in self._files()}
        self._names = {str(path) for path in root.rglob("*")}
        self.survivors: list[tuple[str, Path]] = []
        self._lock = threading.RLock()
        self._fsync, self._link = os.fsync, os.link
        monkeypatch.setattr(os, "fsync", self._watch_fsync)
        monkeypatch.setattr(os, "link", self._watch_link)

    def cut(self, moment: str) -> None:
        """The power goes off now."""
        with self._lock:
            self._cut(moment)

    def _cut(self, moment: str) -> None:
        for outcome in ("names kept", "names lost"):
            copy = self._into / str(len(self.survivors))
            self._survive(copy, names_kept=outcome == "names kept")
            self.survivors.append((f"{moment}, {outcome}", copy))

    def _files(self) -> Iterator[Path]:
        return (path for path in self.root.rglob("*") if path.is_file())

    def _survive(self, copy: Path, *, names_kept: bool) -> None:
        copy.mkdir(parents=True)
        for path in sorted(self.root.rglob("*")):
            target = copy / path.relative_to(self.root)
            if not (names_kept or str(path) in self._names) or not target.parent.is_dir():
                continue
            try:
                if path.is_dir():
                    target.mkdir()
                elif path.stat().st_ino in self._contents:
                    shutil.copyfile(path, target)
                else:
                    target.touch()
            except FileNotFoundError:
                continue  # a temporary file of a thread that goes on meanwhile

    def _watch_fsync(self, descriptor: int) -> None:
        path = Path(path_of(descriptor))
        if self.root not in (path, *path.parents):
            self._fsync(descriptor)
            return
        with self._lock:
            self.cut(f"before the flush of {path.relative_to(self.root)}")
            self._fsync(descriptor)
            if path.is_dir():
                self._names |= {str(child) for child in path.iterdir()}
            else:
                self._contents.add(os.fstat(descriptor).st_ino)

    def _watch_link(self, source: str, target: str) -> None:
        with self._lock:
            self.cut(f"before the link of {Path(target).name}")
            self._link(source, target)
            self.cut(f"after the link of {Path(target).name}")
