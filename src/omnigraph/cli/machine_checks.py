"""Checks of this machine: Python, packages, Java for Spark, the operator's files, caches and the terminal.

A check looks and never changes anything. It says what it found, and where that is not good, what to do about it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from omnigraph.cli.config import load_config, operator_directory
from omnigraph.cli.printing.reports import Check
from omnigraph.errors import OmniGraphError

LOWEST_PYTHON = (3, 11)
LOWEST_JAVA = 17
NEEDED = ("pylance", "pyarrow", "numpy", "obstore", "lark", "msgspec", "typer", "rich", "pyyaml")
EXTRAS = {"spark": "pyspark", "server": "starlette", "mcp": "mcp"}
LITTLE_SPACE = 1 << 30
LARGE_CACHE = 10 << 30


def machine_checks(environment: Mapping[str, str]) -> Iterator[Check]:
    yield python_check(sys.version_info[:3])
    yield packages_check(_installed)
    yield extras_check(_installed)
    yield java_check(environment, needed=_installed("pyspark") is not None)
    yield config_check()
    yield credentials_check(operator_directory() / "credentials")
    yield space_check(Path(tempfile.gettempdir()))
    yield caches_check(environment)
    yield text_check(sys.stdout.encoding)


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def python_check(running: tuple[int, ...]) -> Check:
    said = ".".join(map(str, running))
    if running < LOWEST_PYTHON:
        return Check.broken("python", f"this is Python {said}", "install Python 3.11 or newer")
    return Check.fine("python", said)


def packages_check(installed: Callable[[str], str | None]) -> Check:
    found = {name: installed(name) for name in NEEDED}
    missing = [name for name, number in found.items() if number is None]
    if missing:
        return Check.broken("packages", f"missing: {', '.join(missing)}", "pip install --upgrade omnigraph")
    lance = found["pylance"] or ""
    if not lance.startswith("14."):
        return Check.broken("packages", f"pylance is {lance}", "pip install 'pylance>=14,<15'")
    return Check.fine("packages", ", ".join(f"{name} {number}" for name, number in found.items()))


def extras_check(installed: Callable[[str], str | None]) -> Check:
    """What is not there is no fault: most people need one of them."""
    have = [f"{extra} ({package} {installed(package)})" for extra, package in EXTRAS.items() if installed(package)]
    lack = [extra for extra, package in EXTRAS.items() if not installed(package)]
    told = "; ".join(filter(None, (", ".join(have), f"not installed: {', '.join(lack)}" if lack else "")))
    return Check.fine("extras", told, f"pip install 'omnigraph[{','.join(lack)}]' adds them" if lack else None)


def java_check(environment: Mapping[str, str], *, needed: bool) -> Check:
    """Spark finds Java by JAVA_HOME, else by PATH."""
    home = environment.get("JAVA_HOME", "").strip()
    java = f"{home}/bin/java" if home else shutil.which("java", path=environment.get("PATH"))
    number = java_version(java) if java else None
    package = f"openjdk-{LOWEST_JAVA}-jre-headless"
    remedy = f"install Java {LOWEST_JAVA} or newer (Debian: apt install {package}), or set JAVA_HOME"
    if number is not None and number >= LOWEST_JAVA:
        return Check.fine("java", f"{number}, {java}")
    found = f"{java} is Java {number}" if number is not None else f"JAVA_HOME is '{home}'" if home else "not found"
    if not needed:
        return Check.fine("java", f"{found}; only Spark needs it, and pyspark is not installed")
    return Check.doubtful("java", f"{found}; pipelines and other work on Spark can't start", remedy)


def java_version(java: str) -> int | None:
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    except OSError:
        return None
    found = re.search(r'version "(\d+)(?:\.(\d+))?', said)
    if found is None:
        return None
    return int(found[2] or 0) if found[1] == "1" else int(found[1])


def config_check() -> Check:
    try:
        config = load_config()
    except OmniGraphError as error:
        return Check.broken("config", str(error), "correct the file; docs/user/cli.md lists its keys")
    if not config.path.exists():
        return Check.fine("config", f"none ({config.path})")
    broken = [profile.flaw for profile in config.profiles.values() if profile.flaw is not None]
    if broken:
        return Check.doubtful("config", broken[0], f"correct {config.path}")
    told = f"{config.path}: {len(config.profiles)} profiles, {len(config.servers)} servers"
    return Check.fine("config", told)


def credentials_check(file: Path) -> Check:
    try:
        mode = file.stat().st_mode & 0o777
    except FileNotFoundError:
        return Check.fine("credentials", f"none ({file})")
    except OSError as error:
        return Check.broken("credentials", f"can't look at {file}: {error.strerror}", f"check who owns {file.parent}")
    if os.name == "posix" and mode & 0o077:
        return Check.broken("credentials", f"others may read {file} (mode {mode:o})", f"chmod 600 {file}")
    return Check.fine("credentials", str(file))


def space_check(directory: Path) -> Check:
    free = shutil.disk_usage(directory).free
    told = f"{_size(free)} free in {directory}"
    if free < LITTLE_SPACE:
        return Check.doubtful("space", told, "free some, or set TMPDIR to a larger disk")
    return Check.fine("space", told)


def caches_check(environment: Mapping[str, str]) -> Check:
    """Directories of derived data: they may be deleted at any time."""
    from omnigraph.embeddings.vector_store import shared_store

    vectors = shared_store(environment)
    places = [operator_directory() / "cache", *([vectors.path] if vectors is not None else [])]
    sizes = {place: _size_below(place) for place in places if place.exists()}
    if not sizes:
        return Check.fine("caches", "none")
    told = ", ".join(f"{place} {_size(size)}" for place, size in sizes.items())
    if sum(sizes.values()) > LARGE_CACHE:
        return Check.doubtful("caches", told, "delete what is too large; it is made again when it is needed")
    return Check.fine("caches", told)


def text_check(encoding: str | None) -> Check:
    name = (encoding or "").lower().replace("-", "")
    if name != "utf8":
        return Check.doubtful(
            "text", f"stdout is {encoding or 'closed'}, not UTF-8", "set PYTHONUTF8=1, or LANG=C.UTF-8"
        )
    return Check.fine("text", "UTF-8")


def _size_below(place: Path) -> int:
    if place.is_file():
        return place.stat().st_size
    return sum(file.stat().st_size for file in place.rglob("*") if file.is_file())


def _size(count: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count} {unit}"
        count //= 1024
    return f"{count:,} GiB"
