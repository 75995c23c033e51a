"""Checks of the storage that a command line addresses, and of the graph in it.

Probes write one small object and remove it. Nothing else is written, and a place that is not there is not made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from time import perf_counter

from omnigraph.cli.reports import Check
from omnigraph.errors import OmniGraphError
from omnigraph.storage.identifiers import new_ulid
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Objects
from omnigraph.storage.probe import probe_create_if_absent, store_time

TOLERATED_SECONDS = 5.0


def storage_checks(uri: str) -> Iterator[Check]:
    """Whether commits are safe there, how far its clock is from ours, and whether the graph in it opens."""
    try:
        location = Location.parse(uri)
        objects = Objects(_existing(location))
        has_graph = objects.location == location and objects.exists("__manifest/graph.json")
        path = f"{'__manifest/probe-' if has_graph else '.omnigraph-probe-'}{new_ulid()}"
        began = perf_counter()
        probe_create_if_absent(objects, path)
        took = (perf_counter() - began) * 1000
        yield Check.fine("store", f"{objects.location.uri}: create-if-absent works ({took:.0f} ms for four requests)")
        before = datetime.now(UTC)
        yield clock_check(store_time(objects, path), before)
    except OmniGraphError as error:
        yield Check.broken("store", str(error), "check the address, its credentials (AWS_* for s3://) and permissions")
        return
    if has_graph:
        yield _graph_check(uri)
    else:
        yield Check.fine("graph", f"none at {uri} yet", f"omnigraph init --schema FILE {uri} makes one")


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
            return Check.fine("graph", f"opens; main is at version {graph.version_of()}, {len(branches)} branches")
    except OmniGraphError as error:
        return Check.broken("graph", str(error), f"omnigraph repair {uri} explains damage")
