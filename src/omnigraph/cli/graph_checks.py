"""Checks of the storage that a command line addresses, and of the graph in it.

Probes write one small object and remove it. Nothing else is written, and a place that is not there is not made.

Checks of the server that a command line addresses: that it answers, and that it lets this operator in.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from time import perf_counter
from typing import Final
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from omnigraph.api.values import counted
from omnigraph.cli.config import OperatorConfig
from omnigraph.cli.printing.reports import Check, Health
from omnigraph.cli.target import ClusterScope, ServerScope, open_served
from omnigraph.errors import OmniGraphError, PolicyError, UnauthorizedError
from omnigraph.storage.identifiers import new_ulid
from omnigraph.storage.location import Location
from omnigraph.storage.log.write_guard import probe_create_if_absent, store_time
from omnigraph.storage.objects import Objects

TOLERATED_SECONDS = 5.0
_GRAPH = "__manifest/graph.json"


def storage_checks(uri: str) -> Iterator[Check]:
    """Whether commits are safe there, how far its clock is from ours, and whether the graph in it opens."""
    store, *clock = _place_checks(uri)
    yield from (store, *clock)
    if store.status is Health.BROKEN:
        return
    location = Location.parse(uri)
    if _existing(location) == location and Objects(location).exists(_GRAPH):
        yield _graph_check(uri)
    else:
        yield Check.fine("graph", f"none at {uri} yet", f"omnigraph init --schema FILE --store {uri} makes one")


def cluster_checks(scope: ClusterScope) -> Iterator[Check]:
    """The same of a cluster's storage, and of the graph that is named or of every one that was applied."""
    from omnigraph.cluster.ledger.ledger import read_applied

    try:
        applied = read_applied(scope.root)
        graphs = [applied.graph_uri(graph_id) for graph_id in applied.select_graphs(scope.graph)]
    except OmniGraphError as error:
        remedy = "check the address; `omnigraph cluster status` tells what is applied"
        yield Check.broken("cluster", str(error).removeprefix("ERROR "), remedy)
        return
    yield Check.fine("cluster", f"{scope.root}: {counted(len(graphs), 'graph')}")
    for number, uri in enumerate(graphs):
        yield from _place_checks(uri) if number == 0 else ()
        yield _graph_check(uri)


def _place_checks(uri: str) -> list[Check]:
    """One small object is created, created again in vain, read and removed."""
    try:
        location = Location.parse(uri)
        objects = Objects(_existing(location))
        has_graph = objects.location == location and objects.exists(_GRAPH)
        path = f"{'__manifest/probe-' if has_graph else '.omnigraph-probe-'}{new_ulid()}"
        began = perf_counter()
        probe_create_if_absent(objects, path)
        took = (perf_counter() - began) * 1000
        found = f"{objects.location.uri}: create-if-absent works ({took:.0f} ms for four requests)"
        before = datetime.now(UTC)
        return [Check.fine("store", found), clock_check(store_time(objects, path), before)]
    except OmniGraphError as error:
        remedy = "check the address, its credentials (AWS_* for s3://) and permissions"
        return [Check.broken("store", str(error), remedy)]


def _existing(location: Location) -> Location:
    """The location, or the nearest directory above it that is there: where a graph would be made."""
    if not location.is_local:
        return location
    root = location.local_root
    nearest = next((place for place in (root, *root.parents) if place.is_dir()), root)
    return location if nearest == root else replace(location, uri=str(nearest), prefix=str(nearest))


def clock_check(theirs: datetime, ours: datetime) -> Check:
    """Commits carry this machine's time, and cleanup goes by the store's: both should be the same."""
    ahead = (ours - theirs).total_seconds()
    if abs(ahead) > TOLERATED_SECONDS:
        told = f"this machine is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the store"
        return Check.broken("clock", told, "let the clock be set by NTP (timedatectl set-ntp true)")
    return Check.fine("clock", "within seconds of the store's")


def _graph_check(uri: str) -> Check:
    import omnigraph

    try:
        with omnigraph.open(uri) as graph:
            branches = graph.list_branches()
            return Check.fine(
                "graph",
                f"opens; main is at version {graph.version_of()}, {counted(len(branches), 'branch', 'branches')}",
            )
    except OmniGraphError as error:
        return Check.broken("graph", str(error), f"omnigraph repair --store {uri} explains damage")


_WAIT_SECONDS: Final = 10


def server_checks(scope: ServerScope, config: OperatorConfig) -> Iterator[Check]:
    """Whether a server answers, which version it is, what time it has, and what the token of this machine opens."""
    base = scope.url.partition("/graphs/")[0].rstrip("/")
    before = datetime.now(UTC)
    try:
        with urlopen(f"{base}/healthz", timeout=_WAIT_SECONDS) as answer:
            health = json.loads(answer.read())
            date = answer.headers.get("Date")
    except HTTPError as error:
        yield Check.broken("server", f"{base} answers with {error.code}", "check the URL: is it an OmniGraph server?")
        return
    except (URLError, OSError, ValueError) as error:
        told = f"{base} does not answer: {getattr(error, 'reason', error)}"
        yield Check.broken("server", told, "check the URL, the network, and that the server is running")
        return
    yield Check.fine("server", f"{base} answers: {json.dumps(health)}")
    if date is not None:
        yield clock_check(parsedate_to_datetime(date), before)
    yield _access_check(scope, config)


def _access_check(scope: ServerScope, config: OperatorConfig) -> Check:
    names_graph = scope.graph is not None or scope.names_graph
    try:
        with open_served(scope, config, _WAIT_SECONDS) as graph:
            if names_graph:
                return Check.fine("access", f"the graph opens; main is at version {graph.version_of()}")
            ids = [each.graph_id for each in graph.list_graphs()]
            return Check.fine("access", f"{counted(len(ids), 'graph')}: {', '.join(ids)}")
    except UnauthorizedError as error:
        remedy = (
            "omnigraph login NAME keeps a token for a server of the configuration; OMNIGRAPH_BEARER_TOKEN is for all"
        )
        return Check.broken("access", str(error), remedy)
    except PolicyError as error:
        if not names_graph:
            return Check.fine("access", "the server knows who asks, and lists no graphs for them")
        return Check.doubtful("access", str(error), "ask whoever keeps the rules of the graph")
    except OmniGraphError as error:
        return Check.broken("access", str(error), "check the name of the graph; `omnigraph graphs list` shows them")
