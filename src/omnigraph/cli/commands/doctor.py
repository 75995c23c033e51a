"""The `doctor` command: check this machine and the addressed graph, and suggest how to fix problems.

A check never changes anything, with one exception: on storage it writes one small object and removes it, because
commits rely on the store to refuse an object that exists.
"""

from __future__ import annotations

import json as json_text
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from click.exceptions import Exit

from omnigraph import __version__
from omnigraph.api.values import count_noun
from omnigraph.cli.config import OperatorConfig, active_profile_name, load_config
from omnigraph.cli.params import json_option
from omnigraph.cli.printing.output import style_by
from omnigraph.cli.printing.reports import Check, DoctorReport, Health
from omnigraph.cli.target import ClusterScope, Invocation, ServerScope, open_served
from omnigraph.errors import OmniGraphError, PolicyError, UnauthorizedError

if TYPE_CHECKING:
    from omnigraph.storage.location import Location

LOWEST_PYTHON: Final = (3, 11)
LOWEST_JAVA: Final = 17
NEEDED: Final = ("pylance", "pyarrow", "numpy", "obstore", "lark", "msgspec", "click", "rich", "pyyaml")
_GRAPH: Final = "__manifest/graph.json"
_WAIT_SECONDS: Final = 10


@json_option
def doctor(invocation: Invocation) -> None:
    checks = [
        check_python(sys.version_info[:3]),
        check_packages(_installed_version),
        check_java(os.environ, needed=_installed_version("pyspark") is not None),
        check_disk_cache(os.environ),
        check_config(),
    ]
    if checks[-1].status is not Health.BROKEN:
        checks += _check_target(invocation)
    report = DoctorReport(all(check.status is not Health.BROKEN for check in checks), __version__, tuple(checks))
    invocation.print(report, _lines(report), _style)
    raise Exit(0 if report.ok else 1)


def _lines(report: DoctorReport) -> Iterator[str]:
    for check in report.checks:
        yield f"{check.status:<8} {check.name:<12} {check.found}"
        if check.remedy is not None:
            yield f"{'':21} → {check.remedy}"
    health = Counter(check.status for check in report.checks)
    problems = f"{health[Health.BROKEN]} broken, {count_noun(health[Health.WARNING], 'warning')}"
    in_order = health[Health.OK] == len(report.checks)
    yield f"omnigraph {report.version}: {'everything is in order' if in_order else problems}"


_style = style_by({"ok ": "green", "warning ": "yellow", "broken ": "bold red", " ": "dim"})


# ---- this machine


def check_python(running: tuple[int, ...]) -> Check:
    number = ".".join(map(str, running))
    if running < LOWEST_PYTHON:
        return Check("python", Health.BROKEN, f"this is Python {number}", "install Python 3.11 or newer")
    return Check("python", Health.OK, number)


def _installed_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def check_packages(version_of: Callable[[str], str | None]) -> Check:
    versions = {name: version_of(name) for name in NEEDED}
    missing = [name for name, number in versions.items() if number is None]
    if missing:
        return Check("packages", Health.BROKEN, f"missing: {', '.join(missing)}", "pip install --upgrade omnigraph")
    lance = versions["pylance"] or ""
    if not lance.startswith("14."):
        return Check("packages", Health.BROKEN, f"pylance is {lance}", "pip install 'pylance>=14,<15'")
    return Check("packages", Health.OK, ", ".join(f"{name} {number}" for name, number in versions.items()))


def check_java(environment: Mapping[str, str], *, needed: bool) -> Check:
    """Spark finds Java by JAVA_HOME, else by PATH."""
    home = environment.get("JAVA_HOME", "").strip()
    java = f"{home}/bin/java" if home else shutil.which("java", path=environment.get("PATH"))
    number = _java_version(java) if java else None
    if number is not None and number >= LOWEST_JAVA:
        return Check("java", Health.OK, f"{number}, {java}")
    state = f"{java} is Java {number}" if number is not None else f"JAVA_HOME is '{home}'" if home else "not found"
    if not needed:
        return Check("java", Health.OK, f"{state}; only Spark needs it, and pyspark is not installed")
    package = f"openjdk-{LOWEST_JAVA}-jre-headless"
    remedy = f"install Java {LOWEST_JAVA} or newer (Debian: apt install {package}), or set JAVA_HOME"
    return Check("java", Health.WARNING, f"{state}; pipelines and other work on Spark can't start", remedy)


def _java_version(java: str) -> int | None:
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    except OSError:
        return None
    match = re.search(r'version "(\d+)(?:\.(\d+))?', output)
    if match is None:
        return None
    return int(match[2] or 0) if match[1] == "1" else int(match[1])


def check_disk_cache(environment: Mapping[str, str]) -> Check:
    """How full the cache of remote graphs is."""
    from omnigraph.storage.disk.disk_cache import VARIABLE, DiskCache, disk_cache_settings

    try:
        settings = disk_cache_settings(environment, {})
    except OmniGraphError as error:
        return Check("cache", Health.BROKEN, str(error), f"{VARIABLE}=off switches it off")
    if settings is None:
        return Check("cache", Health.OK, "off: files of remote graphs are read from their store every time")
    nearest = next(path for path in (settings.directory, *settings.directory.parents) if path.exists())
    if not os.access(nearest, os.W_OK | os.X_OK):
        text = f"{settings.directory} can't be written: files of remote graphs are read from their store every time"
        return Check("cache", Health.WARNING, text, f"name a directory of yours as {VARIABLE}, or 'off'")
    held = DiskCache(settings).held_bytes()
    return Check("cache", Health.OK, f"{_mib(held)} of {_mib(settings.limit)} in {settings.directory}")


def _mib(nbytes: int) -> str:
    return f"{nbytes / (1 << 20):,.0f} MiB"


def check_config() -> Check:
    try:
        config = load_config()
    except OmniGraphError as error:
        return Check("config", Health.BROKEN, str(error), "correct the file; docs/user/cli.md lists its keys")
    if not config.path.exists():
        return Check("config", Health.OK, f"none ({config.path})")
    flaw = next((profile.flaw for profile in config.profiles.values() if profile.flaw is not None), None)
    if flaw is not None:
        return Check("config", Health.WARNING, flaw, f"correct {config.path}")
    return Check("config", Health.OK, f"{config.path}: {len(config.profiles)} profiles, {len(config.servers)} servers")


# ---- the graph that the command line addresses


def _check_target(invocation: Invocation) -> Iterator[Check]:
    config = invocation.config
    defaults = (config.defaults.server, config.defaults.store, active_profile_name())
    if invocation.uri is None and not any(invocation.flags.addresses()) and not any(defaults):
        return
    scope = invocation.scope(of_any_kind=True)
    if isinstance(scope, ServerScope):
        yield from _check_server(scope, config)
    elif isinstance(scope, ClusterScope):
        yield from _check_cluster(scope)
    else:
        yield from _check_storage(scope.uri)


def _check_storage(uri: str) -> Iterator[Check]:
    from omnigraph.storage.location import Location
    from omnigraph.storage.objects import Objects

    yield (store := _check_store(uri))
    if store.status is Health.BROKEN:
        return
    location = Location.parse(uri)
    if _nearest_existing(location) == location and Objects(location).exists(_GRAPH):
        yield _check_graph(uri)
    else:
        yield Check("graph", Health.OK, f"none at {uri} yet", f"omnigraph init --schema FILE --store {uri} makes one")


def _check_cluster(scope: ClusterScope) -> Iterator[Check]:
    """The storage of a cluster, and the named graph or every applied one."""
    from omnigraph.cluster.state_ledger import read_applied

    try:
        applied = read_applied(scope.root)
        graphs = [applied.graph_uri(graph_id) for graph_id in applied.select_graphs(scope.graph)]
    except OmniGraphError as error:
        remedy = "check the address; `omnigraph cluster status` shows the applied resources"
        yield Check("cluster", Health.BROKEN, str(error).removeprefix("ERROR "), remedy)
        return
    yield Check("cluster", Health.OK, f"{scope.root}: {count_noun(len(graphs), 'graph')}")
    yield from map(_check_store, graphs[:1])
    yield from map(_check_graph, graphs)


def _check_store(uri: str) -> Check:
    """Create one small object, try in vain to create it again, read it and remove it."""
    from omnigraph.storage.identifiers import new_ulid
    from omnigraph.storage.location import Location
    from omnigraph.storage.log.write_guard import probe_create_if_absent
    from omnigraph.storage.objects import Objects

    try:
        location = Location.parse(uri)
        objects = Objects(_nearest_existing(location))
        has_graph = objects.location == location and objects.exists(_GRAPH)
        probe_create_if_absent(objects, f"{'__manifest/probe-' if has_graph else '.omnigraph-probe-'}{new_ulid()}")
        return Check("store", Health.OK, f"{objects.location.uri}: create-if-absent works")
    except OmniGraphError as error:
        remedy = "check the address, its credentials (AWS_* for s3://) and permissions"
        return Check("store", Health.BROKEN, str(error), remedy)


def _nearest_existing(location: Location) -> Location:
    """The location, or the nearest directory above it that exists: a graph would be made there."""
    if not location.is_local:
        return location
    root = location.local_root
    nearest = next((directory for directory in (root, *root.parents) if directory.is_dir()), root)
    return location if nearest == root else replace(location, uri=str(nearest), prefix=str(nearest))


def _check_graph(uri: str) -> Check:
    import omnigraph

    try:
        with omnigraph.open(uri) as graph:
            branches = count_noun(len(graph.list_branches()), "branch", "branches")
            return Check("graph", Health.OK, f"opens; main is at version {graph.version_of()}, {branches}")
    except OmniGraphError as error:
        return Check("graph", Health.BROKEN, str(error), f"omnigraph repair --store {uri} explains damage")


def _check_server(scope: ServerScope, config: OperatorConfig) -> Iterator[Check]:
    base = scope.uri.partition("/graphs/")[0].rstrip("/")
    try:
        with urlopen(f"{base}/healthz", timeout=_WAIT_SECONDS) as response:
            health = json_text.loads(response.read())
    except HTTPError as error:
        remedy = "check the URL: is it an OmniGraph server?"
        yield Check("server", Health.BROKEN, f"{base} answers with {error.code}", remedy)
        return
    except (URLError, OSError, ValueError) as error:
        message = f"{base} does not answer: {getattr(error, 'reason', error)}"
        yield Check("server", Health.BROKEN, message, "check the URL, the network, and that the server is running")
        return
    yield Check("server", Health.OK, f"{base} answers: {json_text.dumps(health)}")
    yield _check_access(scope, config)


def _check_access(scope: ServerScope, config: OperatorConfig) -> Check:
    try:
        with open_served(scope, config, _WAIT_SECONDS) as graph:
            if scope.names_graph:
                return Check("access", Health.OK, f"the graph opens; main is at version {graph.version_of()}")
            ids = [each.graph_id for each in graph.list_graphs()]
            return Check("access", Health.OK, f"{count_noun(len(ids), 'graph')}: {', '.join(ids)}")
    except UnauthorizedError as error:
        remedy = "store a token with `omnigraph login NAME`, or set OMNIGRAPH_BEARER_TOKEN"
        return Check("access", Health.BROKEN, str(error), remedy)
    except PolicyError as error:
        if not scope.names_graph:
            return Check("access", Health.OK, "the server accepts the token and lists no graphs for it")
        return Check("access", Health.WARNING, str(error), "ask the maintainer of the graph's policy")
    except OmniGraphError as error:
        remedy = "check the name of the graph; `omnigraph graphs list` shows them"
        return Check("access", Health.BROKEN, str(error), remedy)
