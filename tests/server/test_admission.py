"""Caps per actor over all workers: a model of one process, and real processes that race, stop and die."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from multiprocessing.connection import Connection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.errors import TooManyRequestsError
from omnigraph.server.admission import Admission, Cap
from omnigraph.server.board import SLOTS, Board
from tests.server import admission_client
from tests.support.processes import is_stopped
from tests.support.waiting import GIVE_UP, wait_until

SPAWN = multiprocessing.get_context("spawn")
WORKERS = 3


@pytest.fixture
def board() -> Iterator[Board]:
    with Board(WORKERS) as made:
        yield made


def test_over_the_count_an_actor_is_refused_and_others_are_not(board: Board) -> None:
    admission = Admission(board, 0, 2, 1000)
    with admission.admitted("ada", 1), admission.admitted("ada", 1):
        with (
            pytest.raises(TooManyRequestsError, match="in-flight count cap 2") as refused,
            admission.admitted("ada", 1),
        ):
            pass
        assert (refused.value.http_status, refused.value.retry_after) == (429, 60)
        with admission.admitted("bob", 1), admission.admitted(None, 1):
            pass
    with admission.admitted("ada", 1):
        pass


def test_over_the_bytes_an_actor_is_refused(board: Board) -> None:
    refusals: list[Cap] = []
    admission = Admission(board, 0, 16, 100, refusals.append)
    with admission.admitted(None, 60):
        with pytest.raises(TooManyRequestsError, match="byte budget"), admission.admitted(None, 41):
            pass
        with admission.admitted(None, 40):
            pass
    assert refusals == [Cap.BYTES]


def test_who_sends_no_name_is_counted_as_anonymous(board: Board) -> None:
    admission = Admission(board, 0, 1, 1000)
    with (
        admission.admitted(None, 1),
        pytest.raises(TooManyRequestsError, match="'anonymous'"),
        admission.admitted("anonymous", 1),
    ):
        pass


@pytest.mark.parametrize("caps", [(0, 1000), (16, 0)])
def test_a_cap_of_0_refuses_every_write(board: Board, caps: tuple[int, int]) -> None:
    with pytest.raises(TooManyRequestsError), Admission(board, 0, *caps).admitted("ada", 1):
        pass


def test_a_write_that_fails_is_not_in_flight_any_more(board: Board) -> None:
    admission = Admission(board, 0, 1, 1000)
    for _ in range(3):
        with pytest.raises(KeyError), admission.admitted("ada", 1):
            raise KeyError


def test_more_actors_than_there_is_room_for_are_refused(board: Board) -> None:
    admission = Admission(board, 0, 16, 1 << 30)
    with ExitStack() as held:
        for number in range(SLOTS):
            held.enter_context(admission.admitted(str(number), 1))
        with pytest.raises(TooManyRequestsError), admission.admitted("one more", 1):
            pass
    with admission.admitted("one more", 1):
        pass


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("enter"), st.integers(0, WORKERS - 1), st.sampled_from("abc"), st.integers(0, 60)),
        st.tuples(st.just("leave"), st.integers(0, 1000)),
        st.tuples(st.just("die"), st.integers(0, WORKERS - 1)),
    ),
    max_size=60,
)


@settings(max_examples=100, deadline=None)
@given(EVENTS, st.integers(0, 4), st.integers(0, 150))
def test_what_is_admitted_is_what_a_plain_sum_admits(events: list[tuple], requests: int, volume: int) -> None:
    """One event after the other, the board decides as if one process counted everything."""
    with Board(WORKERS) as board, Board(WORKERS) as elsewhere:
        workers = [Admission(board, number, requests, volume) for number in range(WORKERS)]
        inside: list[tuple[int, str, int, AbstractContextManager[None]]] = []
        for event in events:
            match event:
                case "enter", worker, actor, size:
                    of_actor = [entry for entry in inside if entry[1] == actor]
                    fits = len(of_actor) < requests and sum(entry[2] for entry in of_actor) + size <= volume
                    entering = workers[worker].admitted(actor, size)
                    if fits:
                        entering.__enter__()
                        inside.append((worker, actor, size, entering))
                    else:
                        with pytest.raises(TooManyRequestsError):
                            entering.__enter__()
                case "leave", index if inside:
                    inside.pop(index % len(inside))[3].__exit__(None, None, None)
                case "die", worker:
                    # What it holds goes with its memory: from here on it writes to a board that nobody reads.
                    workers[worker]._board = elsewhere
                    board.clear(worker)
                    workers[worker] = Admission(board, worker, requests, volume)
                    for entry in [entry for entry in inside if entry[0] == worker]:
                        inside.remove(entry)
                        entry[3].__exit__(None, None, None)
        for *_, entered in inside:
            entered.__exit__(None, None, None)


def test_processes_that_race_never_have_more_inside_than_the_cap(board: Board) -> None:
    cap, times = 2, 300
    inside, most = SPAWN.Value("i", 0), SPAWN.Value("i", 0)
    racers = [
        SPAWN.Process(target=admission_client.hammer, args=(board, number, cap, times, inside, most))
        for number in range(WORKERS)
    ]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(GIVE_UP)
    assert [racer.exitcode for racer in racers] == [0] * WORKERS
    assert 1 <= most.value <= cap


def told(pipe: Connection, command: str) -> bool:
    pipe.send(command)
    assert pipe.poll(GIVE_UP), "the process does not answer"
    return bool(pipe.recv())


def test_a_stopped_process_counts_and_holds_nobody_up_and_a_killed_one_is_struck_off(board: Board) -> None:
    pipes, processes = [], []
    for number in range(2):
        here, there = SPAWN.Pipe()
        process = SPAWN.Process(target=admission_client.obey, args=(board, number, 2, there))
        process.start()
        pipes.append(here)
        processes.append(process)
    (first, second), (victim, other) = pipes, processes
    assert told(first, "enter")
    assert victim.pid is not None
    os.kill(victim.pid, signal.SIGSTOP)
    wait_until(lambda: is_stopped(victim.pid), "the process stands still")
    assert told(second, "enter")
    assert not told(second, "enter")  # the stopped one still has its write in flight
    os.kill(victim.pid, signal.SIGKILL)
    victim.join(GIVE_UP)
    board.clear(0)
    assert told(second, "enter")
    assert not told(second, "enter")
    second.send("end")
    other.join(GIVE_UP)
