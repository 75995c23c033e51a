"""A store that fails: never a duplicate commit, never a lost one, never a half answer.

Faults are injected at the S3 server (status codes, lost responses, slowness) and at the object seam (a response lost
after the work was done), because libraries retry on their own in between.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from omnigraph import Graph
from omnigraph.errors import CommitOutcomeUnknownError, ConflictError, StorageError, StorageErrorKind
from tests.conftest import Place
from tests.support.log_entries import get_commit, list_commits
from tests.support.preempt import Preemption
from tests.support.s3 import Fault, S3Server
from tests.support.tables import PEOPLE, append_one, ids, new_graph


class LosesAnswers:
    """The store does the work and its answer never arrives, for the requests a rule picks."""

    def __init__(self, rule: Callable[[str, str], bool], *, times: int = 1, before: bool = False) -> None:
        self.rule, self.left, self.before_work = rule, times, before

    def before(self, kind: str, path: str) -> None:
        if self.before_work:
            self._fail(kind, path)

    def after(self, kind: str, path: str) -> None:
        if not self.before_work:
            self._fail(kind, path)

    def _fail(self, kind: str, path: str) -> None:
        if self.left and self.rule(kind, path):
            self.left -= 1
            raise TimeoutError(f"injected: no answer to {kind} {path}")


def publishes(kind: str, path: str) -> bool:
    return kind == "create" and "/log/" in path


@pytest.mark.parametrize("lost_before_work", [True, False], ids=["request lost", "response lost"])
@pytest.mark.parametrize("times", [1, 3])
def test_a_publish_without_an_answer_commits_exactly_once(place: Place, lost_before_work: bool, times: int) -> None:
    graph = new_graph(place.uri)
    graph._workspace.root.objects.interceptor = LosesAnswers(publishes, times=times, before=lost_before_work)
    published = append_one(graph, "ann")
    graph._workspace.root.objects.interceptor = None
    assert published.version == 2
    assert graph.snapshot().commit_id == published.commit_id
    append_one(graph, "bob")
    fresh = Graph.open(place.uri)
    assert ids(fresh) == ["ann", "bob"]
    assert [e.version for e in list_commits(fresh).commits] == [3, 2, 1]


def test_a_store_that_stays_silent_leaves_the_outcome_open_and_says_so(local_place: Place) -> None:
    graph = new_graph(local_place.uri)
    graph._workspace.root.objects.interceptor = LosesAnswers(publishes, times=100)
    with pytest.raises(CommitOutcomeUnknownError) as unknown:
        append_one(graph, "ann", idempotency_key="once")
    graph._workspace.root.objects.interceptor = None
    # It did happen; the error named the commit, and repeating the write with its key finds it instead of doubling it.
    assert get_commit(graph, unknown.value.commit_id).version == 2
    assert append_one(graph, "ann", idempotency_key="once").replayed
    assert ids(graph) == ["ann"]


@pytest.mark.parametrize("happened", [True, False])
def test_a_branch_that_a_silent_store_made_or_deleted_is_found_by_its_key(local_place: Place, happened: bool) -> None:
    graph = new_graph(local_place.uri)

    def never_answered(write: Callable[[], bool], rule: Callable[[str, str], bool]) -> None:
        graph._workspace.root.objects.interceptor = LosesAnswers(rule, times=100, before=not happened)
        with pytest.raises(CommitOutcomeUnknownError):
            write()
        graph._workspace.root.objects.interceptor = None
        assert write() == happened
        assert write()

    def takes_a_name(kind: str, path: str) -> bool:
        return kind == "create" and "/refs/" in path

    never_answered(lambda: graph.create_branch("side", idempotency_key="made").replayed, takes_a_name)
    assert "side" in graph.list_branches()
    never_answered(lambda: graph.delete_branch("side", idempotency_key="ended").replayed, publishes)
    assert graph.list_branches() == ["main"]


def test_a_publish_repeated_after_success_is_recognised_as_our_own(local_place: Place) -> None:
    graph = new_graph(local_place.uri)
    published = append_one(graph, "ann")
    assert graph._workspace.root.log.publish(published.entry) == published.entry
    assert graph.snapshot().version == 2


@pytest.mark.parametrize("status", [500, 503])
def test_server_errors_are_ridden_out(s3_server: S3Server, s3_place: Place, status: int) -> None:
    """One in five requests fails, and none four times in a row: a request is given up after its fourth failure."""
    graph = new_graph(s3_place.uri)
    chance, tries = random.Random(status), Counter[tuple[str, str]]()

    def fault(method: str, path: str) -> Fault | None:
        tries[method, path] += 1
        return Fault(status) if tries[method, path] % 4 and chance.random() < 0.2 else None

    with s3_server.broken(fault):
        for i in range(10):
            append_one(graph, f"p{i}")
    assert ids(graph) == sorted(f"p{i}" for i in range(10))
    assert graph.snapshot().version == 11
    assert graph.maintenance.verify().clean


def test_responses_lost_on_the_wire_neither_double_nor_lose_commits(s3_server: S3Server, s3_place: Place) -> None:
    graph = new_graph(s3_place.uri)
    chance = random.Random(7)
    acknowledged, in_doubt = [], []
    with s3_server.broken(lambda method, path: Fault() if chance.random() < 0.15 else None):
        for i in range(20):
            try:
                append_one(graph, f"p{i}", idempotency_key=f"k{i}")
                acknowledged.append(f"p{i}")
            except StorageError:
                in_doubt.append(f"p{i}")
    assert acknowledged, "every write failed: the test proves nothing"
    for name in in_doubt:
        append_one(graph, name, idempotency_key=f"k{name[1:]}")
    assert ids(graph) == sorted(f"p{i}" for i in range(20))
    assert graph.snapshot().version == 21
    assert graph.maintenance.verify().clean


def test_a_store_that_is_down_is_a_transient_error_and_changes_nothing(s3_server: S3Server, s3_place: Place) -> None:
    graph = new_graph(s3_place.uri)
    append_one(graph, "ann")
    with s3_server.broken(lambda method, path: Fault(503)), pytest.raises(StorageError) as down:
        append_one(graph, "bob")
    assert down.value.kind is StorageErrorKind.TRANSIENT
    assert ids(graph) == ["ann"]


def test_a_branch_create_without_an_answer_makes_one_branch(place: Place) -> None:
    graph = new_graph(place.uri)
    graph._workspace.root.objects.interceptor = LosesAnswers(lambda kind, path: kind == "create" and "/refs/" in path)
    graph.create_branch("side")
    graph._workspace.root.objects.interceptor = None
    assert graph.snapshot("side").version == 1
    ref = graph._workspace.root.branches.head("side").ref
    assert Graph.open(place.uri)._workspace.root.branches.head("side").ref == ref


def test_an_init_without_an_answer_to_its_claim_succeeds(place: Place) -> None:
    """The claim is asked again and finds itself."""
    from omnigraph.storage import root

    original = root.Objects
    try:

        class Losing(original):  # type: ignore[misc,valid-type]
            def __init__(self, location):  # type: ignore[no-untyped-def]
                super().__init__(location)
                self.interceptor = LosesAnswers(lambda kind, path: kind == "create" and path.endswith("graph.json"))

        root.Objects = Losing  # type: ignore[misc]
        graph = new_graph(place.uri)
    finally:
        root.Objects = original  # type: ignore[misc]
    assert Graph.open(place.uri).id == graph.id


def test_a_failed_init_leaves_nothing_behind(s3_server: S3Server, s3_place: Place) -> None:
    bucket, _, prefix = s3_place.uri.removeprefix("s3://").partition("/")

    def refuse_schema(method: str, path: str) -> Fault | None:
        return Fault(403) if method == "PUT" and "/schemas/" in path else None

    with s3_server.broken(refuse_schema), pytest.raises(StorageError) as refused:
        new_graph(s3_place.uri)
    assert refused.value.kind is StorageErrorKind.CONFIGURATION
    assert "Contents" not in s3_server.client().list_objects_v2(Bucket=bucket, Prefix=prefix)
    assert new_graph(s3_place.uri).maintenance.verify().clean


def test_of_two_racing_inits_one_wins_and_the_other_cleans_up(place: Place) -> None:
    def attempt(_: int) -> str:
        try:
            return new_graph(place.uri).id
        except ConflictError:
            return ""  # the winner was first, or is still writing its root

    with ThreadPoolExecutor(4) as threads:
        winners = [graph_id for graph_id in threads.map(attempt, range(4)) if graph_id]
    assert len(winners) == 1
    graph = Graph.open(place.uri)
    assert graph.id == winners[0]
    append_one(graph, "ann")
    assert graph.maintenance.verify().clean
    tables = {o.path.split("/")[1] for o in graph._workspace.root.objects.below("nodes")}
    assert tables == {s.table_id for k, s in graph.snapshot().entry.tables.items() if k.startswith("node:")}
    assert PEOPLE in graph.snapshot().types()


def stored(server: S3Server, place: Place) -> set[str]:
    bucket, _, prefix = place.uri.removeprefix("s3://").partition("/")
    found = server.client().list_objects_v2(Bucket=bucket, Prefix=prefix)
    return {item["Key"].removeprefix(f"{prefix}/") for item in found.get("Contents", ())}


def test_a_store_without_create_if_absent_is_refused(
    s3_server: S3Server, s3_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway that ignores the condition would let two writers take one slot."""
    monkeypatch.setattr(s3_server, "keeps_conditions", False)
    with pytest.raises(StorageError, match="create-if-absent") as refused:
        new_graph(s3_place.uri)
    assert refused.value.kind is StorageErrorKind.CONFIGURATION
    assert stored(s3_server, s3_place) == set()


def test_a_graph_that_is_reached_through_a_store_without_create_if_absent_takes_no_write(
    s3_server: S3Server, s3_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was made through another gateway."""
    append_one(new_graph(s3_place.uri), "ann")
    control = {path for path in stored(s3_server, s3_place) if path.startswith("__manifest/")}
    monkeypatch.setattr(s3_server, "keeps_conditions", False)
    graph = Graph.open(s3_place.uri)
    for write in (
        lambda: append_one(graph, "bob"),
        lambda: graph.create_branch("side"),
        lambda: graph.create_branch("team/side"),
        lambda: append_one(graph, "bob"),
    ):
        with pytest.raises(StorageError, match="create-if-absent") as refused:
            write()
        assert refused.value.kind is StorageErrorKind.CONFIGURATION
    assert ids(graph) == ["ann"], "it can be read"
    left = {path for path in stored(s3_server, s3_place) if path.startswith("__manifest/")} - control
    assert {path for path in left if not path.startswith(("__manifest/pins/", "__manifest/hints/"))} == {
        "__manifest/clock"
    }
    monkeypatch.setattr(s3_server, "keeps_conditions", True)
    append_one(graph, "bob")
    assert ids(Graph.open(s3_place.uri)) == ["ann", "bob"]


@pytest.mark.parametrize("nth", range(1, 5))
def test_cleanups_at_once_delete_everything_on_a_gateway_that_misses_what_is_gone(
    s3_server: S3Server, s3_place: Place, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    graph = new_graph(s3_place.uri)
    for name in ("ann", "bob", "cid"):
        append_one(graph, name)
    other = Graph.open(s3_place.uri)
    monkeypatch.setattr(s3_server, "deletes_what_is_gone", False)
    deletions = OnDeletions(nth, lambda: other.maintenance.cleanup(keep_versions=1))
    graph._workspace.root.objects.interceptor = deletions
    report = graph.maintenance.cleanup(keep_versions=1)
    assert deletions.happened
    assert [row.error for row in report.datasets if row.error] == []
    assert Graph.open(s3_place.uri).maintenance.verify().clean
    left = {
        path for path in stored(s3_server, s3_place) if "/reclaims/" in path or ("/d" in path and "/_versions/" in path)
    }
    assert len(left) == 1, "the newest version of the one table that changed"


class OnDeletions(Preemption):
    """Other work before the n-th deletion."""

    def before(self, kind: str, path: str) -> None:
        if kind == "delete":
            super().before(kind, path)


@pytest.mark.parametrize(
    ("status", "where", "kind"),
    [
        (403, "/data/", StorageErrorKind.CONFIGURATION),
        (403, "/log/", StorageErrorKind.CONFIGURATION),
        (507, "/log/", StorageErrorKind.FULL),
        (400, "/log/", StorageErrorKind.PERMANENT),
    ],
)
def test_a_refusal_is_no_open_outcome(
    s3_server: S3Server, s3_place: Place, status: int, where: str, kind: StorageErrorKind
) -> None:
    graph = new_graph(s3_place.uri)
    with (
        s3_server.broken(lambda method, path: Fault(status) if method == "PUT" and where in path else None),
        pytest.raises(StorageError) as refused,
    ):
        append_one(graph, "ann")
    assert refused.value.kind is kind
    assert ids(graph) == []


@pytest.mark.parametrize("write", [lambda graph: append_one(graph, "bob"), lambda graph: graph.create_branch("side")])
def test_a_write_is_not_refused_for_what_an_earlier_one_met(
    s3_server: S3Server, s3_place: Place, write: Callable[[Graph], object]
) -> None:
    """The first write of a handle asks the store in the background, and may fail before anybody hears the answer."""
    new_graph(s3_place.uri)
    graph = Graph.open(s3_place.uri)
    with s3_server.broken(lambda method, path: Fault(403) if method == "PUT" else None):
        for _ in range(2):
            with pytest.raises(StorageError):
                append_one(graph, "ann")
    write(graph)
    assert graph.maintenance.verify().clean


def test_a_refused_repetition_of_a_publish_that_happened_is_a_success(s3_server: S3Server, s3_place: Place) -> None:
    """The client repeats a request by itself when its answer is lost; the refusal then answers the repetition."""
    graph = new_graph(s3_place.uri)
    faults = iter([Fault()])

    def lose_then_refuse(method: str, path: str) -> Fault | None:
        return next(faults, Fault(507)) if method == "PUT" and "/log/" in path else None

    with s3_server.broken(lose_then_refuse):
        published = append_one(graph, "ann")
    assert get_commit(graph, published.commit_id).version == 2
    assert ids(graph) == ["ann"]


def test_a_read_that_is_refused_is_a_matter_of_configuration(s3_server: S3Server, s3_place: Place) -> None:
    append_one(new_graph(s3_place.uri), "ann")
    fresh = Graph.open(s3_place.uri)
    with (
        s3_server.broken(lambda method, path: Fault(403) if "/data/" in path else None),
        pytest.raises(StorageError, match="check the credentials") as refused,
    ):
        ids(fresh)
    assert refused.value.kind is StorageErrorKind.CONFIGURATION
