"""Checks of the storage that a command line addresses, and of the graph in it.

Probes write one small object and remove it. Nothing else is written, and a place that is not there is not made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from time import perf_counter

from omnigraph.api.cell_text import counted
from omnigraph.cli.reports import Check, Health
from omnigraph.cli.scope import ClusterScope
from omnigraph.errors import OmniGraphError
from omnigraph.storage.identifiers import new_ulid
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Objects
from omnigraph.storage.probe import probe_create_if_absent, store_time

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
        graphs = [applied.graph_uri(graph_id) for graph_id in applied.chosen_graphs(scope.graph)]
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
