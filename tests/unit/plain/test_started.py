"""Calls that comm.start() begins: what they give, in which order, what they keep."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

import collops
from collops import RecvFrom, SendTo
from collops.testing import RankErrors, run_ranks
from patience import patience
from tests.unit.plain.every_call import calls_of, flat


def work_on_all(rank: int, size: int) -> bool:
    with collops.init() as comm:
        want = [
            flat(getattr(comm, name)(*args, **kwargs))
            for name, args, kwargs in calls_of(rank, size)
        ]
        started = [comm.start(name, *args, **kwargs) for name, args, kwargs in calls_of(rank, size)]
        order = np.random.default_rng(rank).permutation(len(started))
        for i in order:
            assert flat(started[i].wait()) == want[i], calls_of(rank, size)[i]
            assert started[i].done()
        for i in order:
            assert flat(started[i].wait(timeout_s=patience(5))) == want[i]
    return True


@pytest.mark.parametrize("threads", [False, True])
def test_every_call_gives_what_it_gives_without_start(threads: bool) -> None:
    assert run_ranks(work_on_all, 2, 2, threads=threads) == [True] * 2
    assert run_ranks(work_on_all, 3, 3, threads=threads) == [True] * 3


def work_with_one_shape(rank: int) -> None:
    """Rank 0 is inside the first product when it makes the next call, and when it starts one."""
    x = np.full((rank + 1, 8), rank + 1, np.float32)
    weight = np.eye(8, dtype=np.float32)
    with collops.init() as comm:
        want = comm.all_gather_matmul(x, weight, sizes=[1, 2])
        for starts in (False, True):
            if rank == 1:
                time.sleep(0.2)
            first = comm.start("all_gather_matmul", x, weight, sizes=[1, 2])
            if rank == 0:
                time.sleep(0.1)
            if starts:
                got = comm.start("all_gather_matmul", x, weight, sizes=[1, 2]).wait()
            else:
                got = comm.all_gather_matmul(x, weight, sizes=[1, 2])
            np.testing.assert_array_equal(got, want)
            np.testing.assert_array_equal(first.wait(), want)


def test_a_product_of_the_shapes_of_a_started_one() -> None:
    run_ranks(work_with_one_shape, 2)


def test_every_method_that_waits_can_be_started() -> None:
    from collops.collectives.communicator import GroupCalls

    not_started = {
        "abort",
        "backend",
        "check",
        "close",
        "empty",
        "grow",  # it ends the communicator, with the thread that would run it
        "handle",
        "old_ranks",
        "rank",
        "refuse",
        "shrink",  # after a failure, on a group that starts nothing any more
        "size",
        "start",
        "timeout_s",
    }
    public = {name for name in dir(collops.Communicator) if not name.startswith("_")}
    assert {name for name in dir(GroupCalls) if not name.startswith("_")} == public - not_started


def test_split_and_messages_return_what_they_find() -> None:
    def work(rank: int) -> Any:
        with collops.init() as comm:
            part = comm.start("split", rank % 2).wait()
            assert part.start("all_gather", np.array([rank])).wait().tolist() == [rank]
            if rank == 1:
                return comm.start("send", np.array([7]), 0, tag=2).wait()
            out, source = comm.start("recv", np.zeros(1, int), tag=2, return_source=True).wait()
            return out.tolist(), source

    assert run_ranks(work, 2) == [([7], 1), None]


def test_a_started_call_keeps_its_tensors_if_nobody_waits() -> None:
    def work(rank: int) -> list[Any]:
        with collops.init() as comm:
            out = np.empty((20, 2, 50_000))
            box = np.empty(50_000)
            receive = comm.start("recv", box, 1 - rank)
            for i in range(20):
                comm.start("all_gatherv", np.full((1, 50_000), 10.0 * i + rank), [1, 1], out=out[i])
            comm.start("send", np.full(50_000, rank + 0.5), 1 - rank)
            gc.collect()
            np.full((200, 50_000), -1.0)  # takes memory that was given back too early
            comm.barrier()
            receive.wait()
            assert (box == 1.5 - rank).all()
            return [sorted(set(part.ravel().tolist())) for part in out]

    want = [[10.0 * i, 10.0 * i + 1] for i in range(20)]
    assert run_ranks(work, 2) == [want, want]


def test_an_error_is_raised_by_every_wait() -> None:
    def work(rank: int) -> list[str]:
        with collops.init() as comm:
            call = comm.start("split", "bad" if rank == 0 else 0)
            messages = []
            for _ in range(3):
                with pytest.raises(collops.Error) as caught:
                    call.wait()
                messages.append(caught.value.message)
            assert call.done()
            comm.barrier()
            return messages

    first, second = run_ranks(work, 2)
    assert first == ["split: color must be a whole number, got 'bad'"] * 3
    assert second == second[:1] * 3


def append_result(call: collops.StartedCall, results: list[Any]) -> None:
    results.append(call.wait())


def test_all_threads_that_wait_get_the_result() -> None:
    def work(rank: int) -> bool:
        x = np.full((2, 3), rank)
        with collops.init() as comm:
            for _ in range(20):
                call = comm.start("all_gatherv", x, [3, 3], dim=1)
                results: list[Any] = []
                waiters = [
                    threading.Thread(target=append_result, args=(call, results)) for _ in range(3)
                ]
                for waiter in waiters:
                    waiter.start()
                for waiter in waiters:
                    waiter.join()
                assert [result.tolist() for result in results] == [[[0] * 3 + [1] * 3] * 2] * 3
        return True

    assert run_ranks(work, 2) == [True] * 2


def test_done_has_filled_what_is_copied() -> None:
    def work(rank: int) -> Any:
        out = np.full((2, 8), -1)[:, ::2]
        with collops.init() as comm:
            call = comm.start("all_gatherv", np.full((2, 2), rank), [2, 2], dim=1, out=out)
            while not call.done():
                pass
            return out.tolist()

    assert run_ranks(work, 2) == [[[0, 0, 1, 1]] * 2] * 2


def test_lists_are_read_at_the_start() -> None:
    def work(rank: int) -> Any:
        with collops.init() as comm:
            inbox = RecvFrom(np.empty(1, int), 1 - rank)
            messages: list[Any] = [SendTo(np.array([rank]), 1 - rank), inbox]
            sizes = [1, 2]
            exchanged = comm.start("exchange", messages)
            rows = comm.start("all_to_allv", np.arange(3), sizes)
            messages.clear()
            sizes.clear()
            return exchanged.wait()[0].tolist(), rows.wait().tolist()

    assert run_ranks(work, 2) == [([1], [0, 0]), ([0], [1, 2, 1, 2])]


def test_threads_that_start_at_once_get_their_own_call_or_an_error() -> None:
    def work(rank: int) -> bool:
        sys.setswitchinterval(1e-6)
        wrong = []
        with collops.init() as comm:

            def start(number: int) -> None:
                for _ in range(300):
                    try:
                        call = comm.start("all_reduce", np.full(2, number))
                    except collops.ArgumentError:
                        continue
                    if call.wait().tolist() != [number, number]:
                        wrong.append(number)

            threads = [threading.Thread(target=start, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        return not wrong

    assert run_ranks(work, 1) == [True]


def test_other_ranks_get_the_error_of_a_wrong_argument() -> None:
    def work(rank: int, list_of: int, sizes: list[int] | None) -> list[str]:
        x = np.ones(2, np.int32)
        given = [x] * list_of if list_of else x
        wrong = [x, x[::-1]] if list_of else x[::-1]
        with collops.init() as comm:
            before = comm.start("all_reduce", x)
            messages = []
            try:
                messages.append(
                    comm.start("all_gatherv", wrong if rank == 0 else given, sizes).wait()
                )
            except collops.Error as error:
                messages = [type(error).__name__, error.message]
            after = comm.start("all_reduce", x * 2)
            assert before.wait().tolist() == [2, 2]
            assert after.wait().tolist() == [4, 4]
            return messages

    for list_of in (0, 2):
        for sizes in ([2, 2], None):
            first, second = run_ranks(work, 2, list_of, sizes)
            assert first[0] == "ArgumentError"
            assert "is not contiguous" in first[1]
            assert second[0] == "RankMismatchError"
            assert first[1] in second[1]


def test_disagreement_ends_all_that_are_queued() -> None:
    def work(rank: int) -> list[str]:
        comm = collops.init()
        calls, messages = [], []
        refused = []  # those that come after the others have failed
        for i in range(5):
            try:
                calls.append(comm.start("all_reduce", np.ones(3 if i < 2 else 3 + rank)))
            except collops.RankMismatchError as error:
                assert i > 2
                refused.append(error.message.partition("collops.init()): ")[2])
        for call in calls:
            try:
                messages.append(str(call.wait().sum()))
            except collops.RankMismatchError as error:
                messages.append(error.message)
        messages += refused
        with pytest.raises(collops.RankMismatchError, match="this communicator has ended"):
            comm.start("barrier")
        return messages

    for messages in run_ranks(work, 2):
        assert messages[:2] == ["6.0", "6.0"]
        assert "x's shape is [3] on rank 0" in messages[2]
        first = messages[2].removesuffix("; this communicator has ended")
        assert messages[3:] == [first] * 2


def test_a_second_thread_cannot_start_while_one_is_in_a_call() -> None:
    def work(rank: int) -> None:
        comm = collops.init()
        comm.start("barrier").wait()
        if rank == 1:
            comm.recv(np.empty(1), 0)
            comm.barrier()
            return

        def wait() -> None:
            with contextlib.suppress(collops.AbortedError):
                while True:
                    with contextlib.suppress(collops.ArgumentError):  # of the two it was second
                        return comm.barrier()

        waiting = threading.Thread(target=wait)
        waiting.start()
        error = None
        while error is None:  # until the thread is in its call
            try:
                comm.start("recv", np.empty(1), 1, tag=9)
            except collops.ArgumentError as caught:
                error = caught
        assert "one thread at a time" in error.message
        comm.abort("seen")
        waiting.join()

    with pytest.raises(RankErrors, match="seen"):
        run_ranks(work, 2)
