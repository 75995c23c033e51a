"""The caps of an actor's writes in one worker."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from threading import Lock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.errors import TooManyRequestsError
from omnigraph.server.admission import Budgets, Cap
from omnigraph.server.settings import ServerLimits


def budgets(requests: int, volume: int) -> Budgets:
    return Budgets(ServerLimits(actor_requests=requests, actor_bytes=volume))


def test_over_the_count_an_actor_is_refused_and_others_are_not() -> None:
    admission = budgets(2, 1000)
    with admission.admit("ada", 1), admission.admit("ada", 1):
        with (
            pytest.raises(TooManyRequestsError, match="in-flight count cap 2") as refused,
            admission.admit("ada", 1),
        ):
            pass
        assert (refused.value.http_status, refused.value.retry_after) == (429, 60)
        with admission.admit("bob", 1), admission.admit(None, 1):
            pass
    with admission.admit("ada", 1):
        pass


def test_over_the_bytes_an_actor_is_refused() -> None:
    refusals: list[str] = []
    admission = Budgets(ServerLimits(actor_requests=16, actor_bytes=100), refusals.append)
    with admission.admit(None, 60):
        with pytest.raises(TooManyRequestsError, match="byte budget"), admission.admit(None, 41):
            pass
        with admission.admit(None, 40):
            pass
    assert refusals == [Cap.BYTES]


def test_who_sends_no_name_is_counted_as_anonymous() -> None:
    admission = budgets(1, 1000)
    with (
        admission.admit(None, 1),
        pytest.raises(TooManyRequestsError, match="'anonymous'"),
        admission.admit("anonymous", 1),
    ):
        pass


@pytest.mark.parametrize("caps", [(0, 1000), (16, 0)])
def test_a_cap_of_0_refuses_every_write(caps: tuple[int, int]) -> None:
    with pytest.raises(TooManyRequestsError), budgets(*caps).admit("ada", 1):
        pass


def test_a_write_that_fails_is_not_in_flight_any_more() -> None:
    admission = budgets(1, 1000)
    for _ in range(3):
        with pytest.raises(KeyError), admission.admit("ada", 1):
            raise KeyError


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("enter"), st.sampled_from("abc"), st.integers(0, 60)),
        st.tuples(st.just("leave"), st.integers(0, 1000)),
    ),
    max_size=60,
)


@settings(max_examples=100, deadline=None)
@given(EVENTS, st.integers(0, 4), st.integers(0, 150))
def test_an_actor_is_admitted_while_its_sums_are_within_the_caps(
    events: list[tuple], requests: int, volume: int
) -> None:
    admission = budgets(requests, volume)
    inside: list[tuple[str, int, AbstractContextManager[None]]] = []
    for event in events:
        match event:
            case "enter", actor, size:
                of_actor = [entry for entry in inside if entry[0] == actor]
                fits = len(of_actor) < requests and sum(entry[1] for entry in of_actor) + size <= volume
                entering = admission.admit(actor, size)
                if fits:
                    entering.__enter__()
                    inside.append((actor, size, entering))
                else:
                    with pytest.raises(TooManyRequestsError):
                        entering.__enter__()
            case "leave", index if inside:
                inside.pop(index % len(inside))[2].__exit__(None, None, None)


def test_threads_that_race_never_have_more_inside_than_the_cap() -> None:
    cap, admission, lock = 2, budgets(2, 1 << 40), Lock()
    inside, most = [0], [0]

    def hammer(_: int) -> None:
        times = 300
        while times:
            try:
                with admission.admit("ada", 1):
                    with lock:
                        inside[0] += 1
                        most[0] = max(most[0], inside[0])
                    with lock:
                        inside[0] -= 1
                    times -= 1
            except TooManyRequestsError:
                continue

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(hammer, range(4)))
    assert 1 <= most[0] <= cap
