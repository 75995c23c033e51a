"""A later state of a cluster, built beside the one that is served: what is shared, what is closed, what refuses."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph
from omnigraph.cluster.payloads import PayloadStore, payload_path
from omnigraph.cluster.resources import graph_address
from omnigraph.cluster.state import Resource, ResourceStatus, StatusKind, file_digest
from omnigraph.errors import BootRefusedError
from omnigraph.policy.gate import WITHOUT_RULES
from omnigraph.server.catalog import RuntimeState, Serving
from omnigraph.server.loader import boot, renew
from omnigraph.server.reload import Follower, ServingSets
from omnigraph.server.settings import Settings
from tests.server.test_boot import TOKEN, Opened, Rules, bound, load_rules, settings
from tests.support.clusters import QUERIES, SCHEMA, Cluster, make_cluster
from tests.support.waiting import wait_until

MORE = QUERIES.replace("query find", "query again")
GONE = ("graph.lab", "schema.lab", "query.lab.find", "query.lab.add")


class Site:
    """A server's worth of states over a cluster, without the HTTP."""

    def __init__(self, cluster: Cluster, environment: dict[str, str] | None = None, **members: object) -> None:
        self.cluster = cluster
        self.opened = Opened()
        self.settings: Settings = settings(cluster, **members)
        self.environment = environment or {}
        serving, tokens = boot(self.settings, self.opened, self.environment, load_policy=load_rules)
        self.has_tokens = bool(tokens)
        self.states = ServingSets(serving)

    @property
    def serving(self) -> Serving:
        return self.states.serving

    def renew(self) -> Serving:
        """What the newest revision says to serve."""
        revision = self.cluster.newest.revision
        return renew(self.serving, self.has_tokens, self.settings, self.opened, self.environment, revision, load_rules)

    def refused(self) -> str:
        before, still_open = self.serving, self.opened.left_open
        with pytest.raises(BootRefusedError) as error:
            self.renew()
        assert self.serving is before
        assert self.opened.left_open == still_open
        assert [served.graph.snapshot().branch for served in before.graphs.values()] == ["main"] * len(before.graphs)
        return str(error.value)


@pytest.fixture
def site(cluster: Cluster) -> Iterator[Site]:
    site = Site(cluster)
    yield site
    site.states.close()
    assert site.opened.left_open == []


def store_query(cluster: Cluster, name: str, text: str, graph_id: str = "kb") -> None:
    digest = PayloadStore(cluster.objects).write(f"query.{graph_id}.{name}", text.encode())
    cluster.record(lambda resources: resources.update({f"query.{graph_id}.{name}": Resource(digest=digest)}))


def remove(cluster: Cluster, *addresses: str) -> None:
    cluster.record(lambda resources: [resources.pop(address) for address in addresses] and None)


def add_graph(cluster: Cluster, graph_id: str, *, init: bool = True) -> None:
    if init:
        omnigraph.init(cluster.graph_uri(graph_id), SCHEMA).close()
    resources = {
        f"schema.{graph_id}": Resource(digest=file_digest(SCHEMA.encode())),
        f"graph.{graph_id}": Resource(digest="0" * 64),
    }
    cluster.record(lambda known: known.update(resources))


# -- what is shared


def test_graphs_that_have_not_changed_are_the_same_ones(site: Site) -> None:
    before = site.serving
    store_query(site.cluster, "again", MORE)
    after = site.renew()
    assert (before.revision, after.revision) == (1, 2)
    assert after.graphs["lab"] is before.graphs["lab"]
    assert after.graphs["kb"].opened is before.graphs["kb"].opened
    assert list(after.graphs["kb"].queries) == ["add", "again", "find"]
    assert list(before.graphs["kb"].queries) == ["add", "find"]


def test_a_graph_that_was_made_again_is_another_one(site: Site) -> None:
    shutil.rmtree(site.cluster.graph_uri("lab"))
    omnigraph.init(site.cluster.graph_uri("lab"), SCHEMA).close()
    site.cluster.record(lambda resources: None)
    before, after = site.serving, site.renew()
    assert after.graphs["lab"].opened is not before.graphs["lab"].opened
    assert after.graphs["kb"] is before.graphs["kb"]
    site.states.replace(after)


def test_a_new_graph_is_opened_and_one_that_fails_is_quarantined(site: Site) -> None:
    add_graph(site.cluster, "new")
    add_graph(site.cluster, "none", init=False)
    after = site.renew()
    assert sorted(after.graphs) == ["kb", "lab", "new"]
    assert list(after.quarantined) == ["none"]
    site.states.replace(after)


def test_the_storage_root_stays_what_it_was(site: Site, tmp_path: Path) -> None:
    """The configuration may be edited while a server runs; what it serves is followed where it is."""
    elsewhere = make_cluster(tmp_path / "other", {"kb": SCHEMA}, init=False)
    Path(site.cluster.root, "cluster.yaml").write_text(f"version: 1\nstorage: {elsewhere.root}\n")
    store_query(site.cluster, "again", MORE)
    assert "again" in site.renew().graphs["kb"].queries


# -- rules


def test_rules_come_and_go_with_the_graph_left_open(cluster: Cluster) -> None:
    site = Site(cluster, TOKEN)
    assert site.serving.state is RuntimeState.DEFAULT_DENY
    bound(cluster, main=("read", ("graph.kb",)), top=("graph_list", ("cluster",)))
    ruled = site.renew()
    assert ruled.state is RuntimeState.POLICY_ENABLED
    assert isinstance(ruled.gate, Rules)
    gate = ruled.graphs["kb"].graph._workspace.gate
    assert isinstance(gate, Rules)
    assert ruled.graphs["kb"].opened is site.serving.graphs["kb"].opened
    site.states.replace(ruled)
    remove(cluster, "policy.main", "policy.top")
    free = site.renew()
    assert free.state is RuntimeState.DEFAULT_DENY
    assert free.graphs["kb"].graph._workspace.gate is WITHOUT_RULES
    site.states.replace(free)
    site.states.close()
    assert site.opened.left_open == []


# -- what refuses, with everything as it was


def test_a_query_that_does_not_fit_refuses_the_whole_state(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    store_query(site.cluster, "torn", "query torn() { match { $p: Nobody } return { $p.name } }\n")
    add_graph(site.cluster, "new")
    refusal = site.refused()
    assert "graph 'kb' is served now, and would not be" in refusal
    assert "Nobody" in refusal
    assert "quarantined" not in caplog.text, "it is still served"


def test_a_graph_in_doubt_refuses_it(site: Site) -> None:
    doubt = {graph_address("lab"): ResourceStatus(StatusKind.ERROR, ("actual_applied_state_pending",))}
    site.cluster.record(lambda resources: None, resource_statuses=doubt)
    assert "graph 'lab' is served now, and would not be: the last apply left it pending" in site.refused()


def test_a_payload_that_is_missing_refuses_it(site: Site) -> None:
    store_query(site.cluster, "again", MORE)
    digest = site.cluster.newest.state.resources["query.kb.again"].digest
    Path(site.cluster.root, payload_path("query.kb.again", digest)).unlink()
    assert "catalog_payload_missing query.kb.again" in site.refused()


def test_rules_without_tokens_refuse_it(site: Site) -> None:
    bound(site.cluster, main=("read", ("graph.kb",)))
    assert "every request would 401" in site.refused()


def test_rules_that_do_not_load_refuse_it(cluster: Cluster) -> None:
    site = Site(cluster, TOKEN)
    bound(cluster, main=("broken", ("graph.kb",)))
    assert "policy 'main': does not parse" in site.refused()
    site.states.close()


def test_a_strict_server_takes_every_graph_or_none(cluster: Cluster) -> None:
    site = Site(cluster, require_all_graphs=True)
    add_graph(cluster, "none", init=False)
    assert "strict" in site.refused()
    site.states.close()
    assert site.opened.left_open == []


# -- who still uses what


def test_a_graph_is_closed_when_nobody_uses_it_any_more(site: Site) -> None:
    lab = site.cluster.graph_uri("lab")
    first, second = site.states.hold(), site.states.hold()
    remove(site.cluster, *GONE)
    site.states.replace(site.renew())
    assert list(site.serving.graphs) == ["kb"]
    work = second.hold()  # a thread that outlives its request
    for held in (first, second):
        assert held.serving.graph("lab").graph.snapshot().branch == "main"
        held.release()
    assert lab in site.opened.left_open
    work.release()
    wait_until(lambda: lab not in site.opened.left_open, "the graph that is gone was closed")
    assert site.cluster.graph_uri("kb") in site.opened.left_open


def test_a_graph_that_comes_back_is_opened_anew_while_the_old_one_is_used(site: Site) -> None:
    held = site.states.hold()
    state = site.cluster.newest.state.resources
    remove(site.cluster, *GONE)
    site.states.replace(site.renew())
    site.cluster.record(lambda resources: resources.update({address: state[address] for address in GONE}))
    site.states.replace(site.renew())
    assert site.serving.graph("lab").opened is not held.serving.graph("lab").opened
    held.release()
    lab = site.cluster.graph_uri("lab")
    wait_until(lambda: site.opened.closed.count(lab) == 1, "the old one was closed")
    assert site.serving.graph("lab").graph.snapshot().branch == "main"


def test_those_who_wait_are_told_once_also_if_they_come_late(site: Site) -> None:
    told: list[str] = []
    held = site.states.hold()
    held.when_replaced(lambda: told.append("early"))
    store_query(site.cluster, "again", MORE)
    site.states.replace(site.renew())
    held.when_replaced(lambda: told.append("late"))
    store_query(site.cluster, "once", QUERIES.replace("query find", "query once"))
    site.states.replace(site.renew())
    held.release()
    assert told == ["early", "late"]


def test_a_revision_that_changes_nothing_disturbs_nobody(site: Site) -> None:
    told: list[int | None] = []
    held = site.states.hold()
    held.when_replaced(lambda: told.append(site.serving.revision))
    site.cluster.record(lambda resources: None)
    site.states.replace(site.renew())
    assert (site.serving.revision, told) == (2, [])
    store_query(site.cluster, "again", MORE)
    site.states.replace(site.renew())
    assert told == [3]
    held.release()


# -- following


def test_a_ledger_that_can_not_be_read_for_a_while_is_followed_again(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    looks, taken = 0, []

    def newer_than(revision: int) -> int | None:
        nonlocal looks
        looks += 1
        if looks < 3:
            raise OSError(f"the store is away, look {looks}")
        newest = site.cluster.newest.revision
        return newest if newest > revision else None

    follower = Follower(
        site.states, newer_than, lambda _before, _revision: site.renew(), taken.append, print, every=0.001
    )
    store_query(site.cluster, "again", MORE)
    follower.start()
    wait_until(lambda: taken, "the newer state is served")
    follower.stop()
    follower.join()
    assert site.serving is taken[0]
    assert [r.message for r in caplog.records if "ledger" in r.message] == ["the ledger can't be read: OSError"]
    assert "again" in site.serving.graphs["kb"].queries
