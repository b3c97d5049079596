"""What docs/torch.md says of threads: calls of one group and of two, autograd's, children."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

import collops.torch  # noqa: E402
from collops.testing import run_ranks  # noqa: E402
from patience import patience  # noqa: E402
from tests.torch.groups import TIMEOUT_S, run_group, total  # noqa: E402


def gathered(rank: int, group: Any = None) -> float:
    """The gradient of rows that are gathered: the backward pass calls the group, too."""
    x = torch.ones(rank + 1, 2, requires_grad=True)
    y = collops.torch.all_gatherv(x, [1, 2], group=group)
    (y * (rank + 1)).sum().backward()
    assert x.grad is not None
    return float(x.grad[0, 0])


def meanwhile(work: Callable[[], Any]) -> Callable[[int], Any]:
    """Rank 0 works while another thread of it is in a call, to which rank 1 comes afterwards."""
    over = multiprocessing.get_context("fork").Event()

    def main(rank: int) -> Any:
        if rank == 1:
            assert over.wait(TIMEOUT_S)
            dist.barrier()
            return None
        with ThreadPoolExecutor(1) as pool:
            called = pool.submit(dist.barrier)
            try:
                while not collops.torch.last_calls():
                    time.sleep(0.001)
                time.sleep(0.05)  # it waits for rank 1
                found = work()
                assert not called.done()
            finally:
                over.set()
            called.result(TIMEOUT_S)
        return found

    return main


def test_threads_that_take_turns_make_calls_of_one_group() -> None:
    def work(rank: int) -> list[float]:
        turns = [threading.Semaphore(1), threading.Semaphore(0)]

        def calls(me: int) -> float:
            sums = 0.0
            for _ in range(20):
                assert turns[me].acquire(timeout=TIMEOUT_S)
                sums += total() + gathered(rank)
                turns[1 - me].release()
            return sums

        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(calls, range(2)))

    assert run_group(work, 2) == [[120.0, 120.0]] * 2


def test_calls_of_two_groups_do_not_wait_for_each_other() -> None:
    """Rank 1 comes to the first group last, where a thread of rank 0 waits all the time."""

    def work(rank: int) -> list[float]:
        first, second = (dist.new_group([0, 1]) for _ in range(2))

        def others() -> float:
            return sum(total(second) + gathered(rank, second) for _ in range(20))

        if rank == 1:
            return [others(), gathered(rank, first)]
        with ThreadPoolExecutor(1) as pool:
            waits = pool.submit(gathered, rank, first)
            return [others(), waits.result(TIMEOUT_S)]

    assert run_group(work, 2) == [[120.0, 3.0]] * 2


def test_an_operator_with_gradients_is_refused_beside_a_call_of_another_thread() -> None:
    def work() -> str:
        with pytest.raises(collops.ArgumentError) as caught:
            gathered(0)
        return caught.value.message

    [heard, _] = run_group(meanwhile(work), 2)
    assert heard.startswith("all_gatherv: another thread is in a call of rank 0 of comm_domain")


class Nested(torch.autograd.Function):
    """Sums its gradient over the ranks, and calls a backward pass in the backward pass."""

    threads: ClassVar[set[int]] = set()

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, depth: int) -> torch.Tensor:
        """A copy."""
        ctx.depth = depth
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Twice the gradient with two ranks, and again at each depth."""
        Nested.threads.add(threading.get_ident())
        summed = gradients[0].clone()
        dist.all_reduce(summed)
        if ctx.depth:
            with torch.enable_grad():
                x = summed.clone().requires_grad_()
                Nested.apply(x, ctx.depth - 1).backward(summed)
            assert x.grad is not None
            summed = x.grad
        return summed, None


@pytest.mark.parametrize("depth", [0, 70])
def test_a_backward_pass_makes_calls_in_the_thread_that_has_begun_it(depth: int) -> None:
    """Nested deeper than 60, torch goes on in threads of its own, and the values are the same."""

    def work(rank: int) -> tuple[float, bool]:
        def backward() -> tuple[float, bool]:
            x = torch.ones(3, requires_grad=True)
            Nested.apply(x, depth).sum().backward()
            assert x.grad is not None
            return float(x.grad[0]), {threading.get_ident()} == Nested.threads

        with ThreadPoolExecutor(1) as pool:
            return pool.submit(backward).result(TIMEOUT_S)

    assert run_group(work, 2) == [(2.0 ** (depth + 1), depth == 0)] * 2


def test_a_forked_child_is_refused_and_the_workers_of_a_loader_work() -> None:
    """Also where a thread that the child has not is in a call, so that its lock is held."""

    def work() -> tuple[float, list[str]]:
        read, write = os.pipe()
        if (child := os.fork()) == 0:
            signal.alarm(int(TIMEOUT_S))
            for call in (total, lambda: gathered(0)):
                try:
                    call()
                except collops.Error as error:
                    os.write(write, f"{error.message}\n".encode())
            os._exit(0)
        os.waitpid(child, 0)
        os.close(write)
        with open(read) as said:
            heard = said.read().splitlines()
        rows = DataLoader([torch.ones(2)] * 8, batch_size=2, num_workers=2)  # type: ignore[arg-type]
        return sum(float(batch.sum()) for batch in rows), heard

    [(values, heard), _] = run_group(meanwhile(work), 2)
    assert values == 16.0
    refusal = "this communicator belongs to the parent process; make a new one after fork()"
    assert heard == [f"all_reduce: {refusal}", f"all_gatherv: {refusal}"]


def test_destroying_a_group_ends_the_call_that_another_thread_waits_for() -> None:
    def work(rank: int) -> str:
        group = dist.new_group([0, 1])
        word = torch.zeros(1)
        if rank == 1:
            dist.recv(word, 0)
            with pytest.raises(collops.AbortedError):
                dist.all_reduce(word, group=group)
            return "aborted"
        call = dist.all_reduce(word, group=group, async_op=True)
        with ThreadPoolExecutor(1) as pool:
            waits = pool.submit(call.wait)
            time.sleep(0.1)
            dist.destroy_process_group(group)
            with pytest.raises(collops.AbortedError):
                waits.result(patience(20))
        dist.send(word, 1)
        return "aborted"

    assert run_group(work, 2) == ["aborted"] * 2


def test_ranks_that_are_threads_pass_their_communicators() -> None:
    def work(rank: int) -> float:
        with collops.init() as comm:
            return gathered(rank, comm)

    assert run_ranks(work, 2, threads=True, timeout=TIMEOUT_S) == [3.0, 3.0]
