"""torchft on collops: every call, other ranks from step to step, a Manager and its replicas."""

from __future__ import annotations

import functools
import importlib
import os
import signal
import threading
import time
import unittest
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torchft
from torchft import Manager
from torchft.coordination import LighthouseServer

import collops.testing
from collops.launch.processes import run_on_threads
from collops.testing import run_ranks
from collops.torch.torchft import ProcessGroupCollops
from patience import patience
from tests.clients.figures import best_us, note
from tests.torch.groups import run_group

pytestmark = pytest.mark.timeout(300)
LIMIT = timedelta(seconds=patience(60))


@pytest.fixture
def store() -> Iterator[str]:
    """The address of a store, for configure()."""
    server = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    yield f"localhost:{server.port}"
    del server


def wait_for(holds: Callable[[], bool]) -> None:
    """Returns once something holds."""
    end = time.monotonic() + patience(60)
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def write(path: Path, text: str) -> None:
    """Whoever sees the file finds all of it."""
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


def part(rank: int, rows: int = 1) -> torch.Tensor:
    """Different in every rank and position."""
    return torch.arange(rows * 3.0).reshape(rows, 3) + 10.0 ** (rank + 1)


def every_call(group: ProcessGroupCollops, rank: int) -> list[Any]:
    """What the calls that torchft's groups have leave behind, on three ranks."""
    size, found = group.size(), []

    def note(work: Any, *tensors: torch.Tensor) -> None:
        work.get_future().wait()
        work.wait()
        found.extend(x.clone() for x in tensors)

    c10d = torch._C._distributed_c10d
    x, y = part(rank), part(rank, 2)
    note(group.allreduce([x], dist.ReduceOp.SUM), x)
    note(group.allreduce_coalesced([x, y], c10d.AllreduceCoalescedOptions()), x, y)
    outs = [torch.full((1, 3), -1.0) for _ in range(size)]
    note(group.allgather([outs], [part(rank)], c10d.AllgatherOptions()), *outs)
    wholes = [torch.full((size * rows, 3), -1.0) for rows in (1, 2)]
    parts = [part(rank, rows) for rows in (1, 2)]
    note(group.allgather_into_tensor_coalesced(wholes, parts, c10d.AllgatherOptions()), *wholes)
    uneven = torch.full((3, 3), -1.0)  # rank r sends r rows of itself to each other rank
    sizes = [rank] * size
    sent = torch.cat([part(rank, rank) + 1000 * to for to in range(size)])
    note(
        group.alltoall_base(uneven, sent, list(range(size)), sizes, c10d.AllToAllOptions()), uneven
    )
    x = part(rank)
    note(group.broadcast([x], c10d.BroadcastOptions()), x)
    x = part(rank)
    note(group.broadcast_one(x, 1), x)
    out = torch.full((1, 3), -1.0)
    rows = [part(rank) + 1000 * to for to in range(size)]
    note(group.reduce_scatter([out], [rows], c10d.ReduceScatterOptions()), out)
    note(
        group.reduce_scatter_tensor_coalesced(
            [out], [torch.cat(rows)], c10d.ReduceScatterOptions()
        ),
        out,
    )
    group.barrier(c10d.BarrierOptions()).wait()
    x = part(rank)
    if rank == 0:
        group.send([x], 1, 3).wait()
    elif rank == 1:
        note(group.recv([x], 0, 3), x)
    return [x.tolist() for x in found]


def wanted(rank: int, size: int = 3) -> list[Any]:
    """The same by plain sums and copies."""
    parts = [part(r) for r in range(size)]
    total = torch.stack(parts).sum(0)
    of_two = [part(r, 2) for r in range(size)]
    rows = torch.cat([part(r, r) + 1000 * rank for r in range(size)])
    mine = total + 1000 * rank * size
    found = [total, total * size, torch.stack(of_two).sum(0), *parts, torch.cat(parts)]
    found += [torch.cat(of_two), rows, parts[0], parts[1], mine, mine]
    return [x.tolist() for x in [*found, *([parts[0]] if rank == 1 else [])]]


def test_every_call_between_processes(store: str) -> None:
    def work(rank: int) -> list[Any]:
        group = ProcessGroupCollops(LIMIT)
        group.configure(f"{store}/calls", "replica", rank, 3)
        found = every_call(group, rank)
        group.shutdown()
        return found

    assert run_ranks(work, 3) == [wanted(rank) for rank in range(3)]


def test_a_small_call_beside_gloo(store: str) -> None:
    def work(rank: int) -> list[float]:
        x, found = torch.zeros(128), []
        for group in (ProcessGroupCollops(LIMIT), torchft.ProcessGroupGloo(LIMIT)):
            group.configure(f"{store}/{type(group).__name__}", "replica", rank, 2)
            found.append(best_us(lambda g=group: g.allreduce([x], dist.ReduceOp.SUM).wait()))
            group.shutdown()
        return found

    note("torchft", "allreduce of 512 B", *run_ranks(work, 2)[0])


def test_every_call_between_threads_of_one_process(store: str) -> None:
    def process(_: int) -> list[Any]:
        def work(rank: int) -> list[Any]:
            group = ProcessGroupCollops(LIMIT)
            group.configure(f"{store}/threads", "replica", rank, 3)
            found = every_call(group, rank)
            group.shutdown()
            return found

        found, _ = run_on_threads(range(3), work, patience(60))
        return [found[rank] for rank in range(3)]

    assert run_ranks(process, 1) == [[wanted(rank) for rank in range(3)]]


@pytest.mark.parametrize("end", ["shutdown", "abort", "kill"])
def test_ranks_that_leave_and_come(store: str, end: str) -> None:
    """Three ranks, of which one leaves while the others are in a call; then two; then three."""

    def work(place: int) -> list[Any]:
        group, found = ProcessGroupCollops(LIMIT), []
        if place == 3:  # who takes the place of the rank that has left
            group.configure(f"{store}/again", "replica", 2, 3)
            return [total(group, 2)]
        group.configure(f"{store}/first", "replica", place, 3)
        found.append(total(group, place))
        if place == 2:
            if end == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            getattr(group, end)()
            return found
        with pytest.raises((collops.PeerLostError, collops.AbortedError)):
            total(group, place)
        group.configure(f"{store}/second", "replica", 1 - place, 2)
        found.append((total(group, 1 - place), group.size(), group.errored()))
        group.configure(f"{store}/again", "replica", place, 3)
        found.append(total(group, place))
        group.shutdown()
        return found

    if end == "kill":
        with pytest.raises(collops.testing.RankErrors) as caught:
            run_ranks(work, 4)
        assert set(caught.value.errors) == {2}
        return
    first, second, gone, new = run_ranks(work, 4)
    assert first == second == [1110.0, (110.0, 2, None), 1110.0]
    assert gone == new == [1110.0]


def total(group: ProcessGroupCollops, rank: int) -> float:
    x = torch.tensor([10.0 ** (rank + 1)])
    group.allreduce([x], dist.ReduceOp.SUM).wait()
    return float(x)


def test_a_rank_that_left_takes_nothing_from_calls_that_it_has_ended(store: str) -> None:
    """configure() while the others still copy the last result; its own thread may be in a call."""

    def work(rank: int) -> list[float]:
        group, found = ProcessGroupCollops(LIMIT), []
        for step in range(20):
            group.configure(f"{store}/step{step}", "replica", rank, 3)
            x = torch.full((200_000,), 10.0 ** (rank + 1)) + step
            group.allreduce([x], dist.ReduceOp.SUM).wait()
            assert x.unique().numel() == 1
            found.append(float(x[0]))
        group.shutdown()
        return found

    assert run_ranks(work, 3) == [[1110.0 + 3 * step for step in range(20)]] * 3


def test_abort_ends_this_ranks_calls_and_is_an_error_until_configure(store: str) -> None:
    def work(rank: int) -> str:
        group = ProcessGroupCollops(LIMIT)
        group.configure(f"{store}/abort", "replica", rank, 2)
        meeting = group.parent.get_group_store()
        if rank == 1:
            meeting.get("aborted")
            return ""
        waiting = group.allreduce([torch.ones(1)], dist.ReduceOp.SUM)
        threading.Timer(0.5, group.abort).start()
        with pytest.raises(collops.Error):
            waiting.wait()
        while group.errored() is None:
            time.sleep(0.01)
        meeting.set("aborted", "1")
        text = str(group.errored())
        group.configure(f"{store}/alone", "replica", 0, 1)
        assert group.errored() is None
        return text

    assert run_ranks(work, 2)[0] == "the process group was aborted"


def test_a_missing_rank_is_named(store: str) -> None:
    def work(_: int) -> str:
        group = ProcessGroupCollops(timedelta(seconds=1))
        with pytest.raises(collops.RankTimeoutError) as caught:
            group.configure(f"{store}/missing", "replica", 0, 2)
        return caught.value.message

    assert "rank 1 of 2 did not connect within 1 s" in run_ranks(work, 1)[0]


def test_functional_collectives_on_a_group_that_torch_knows(store: str) -> None:
    def work(rank: int) -> list[Any]:
        group = ProcessGroupCollops(LIMIT).register("replicas")
        group.configure(f"{store}/functional", "replica", rank, 2)
        found: list[Any] = functional.all_reduce(part(rank), "sum", group).tolist()
        group.unregister()
        return found

    assert run_group(work, 2) == [(part(0) + part(1)).tolist()] * 2


def batch(place: int, step: int) -> torch.Tensor:
    return part(place) + step


class Replica:
    """One replica with a Manager of its own, which trains a row of weights."""

    def __init__(self, place: int, lighthouse: str) -> None:
        self.place = place
        self.store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        self.model = torch.nn.Linear(3, 1, bias=False)
        torch.nn.init.zeros_(self.model.weight)
        self.manager = Manager(
            pg=ProcessGroupCollops(LIMIT),
            load_state_dict=self.model.load_state_dict,
            state_dict=self.model.state_dict,
            min_replica_size=1,
            rank=0,
            world_size=1,
            store_addr="localhost",
            store_port=self.store.port,
            lighthouse_addr=lighthouse,
            replica_id=f"replica{place}_",
            hostname="localhost",
            timeout=LIMIT,
            quorum_timeout=LIMIT,
            init_sync=False,  # the weights of all are the same at first
        )
        self.trained = torchft.DistributedDataParallel(self.manager, self.model)
        self.optimizer = torchft.Optimizer(
            self.manager, torch.optim.SGD(self.model.parameters(), lr=1.0)
        )

        self.taken: dict[int, int] = {}  # how many replicas had a part in each step

    def step(self) -> int:
        """Trains once; the number of replicas, this one among them; 0: nothing was learnt."""
        before = self.manager.current_step()
        self.optimizer.zero_grad()  # which asks who takes part
        self.trained(batch(self.place, before)).sum().backward()
        self.optimizer.step()
        count = self.manager.num_participants() if self.manager.is_participating() else 0
        step = self.manager.current_step() - 1
        if step < before or not count:  # dropped, or it was given the others' weights meanwhile
            return 0
        self.taken[step] = count
        return count

    def until(self, count: int) -> None:
        """Trains until so many replicas have had a part in a step."""
        end = time.monotonic() + patience(60)
        while self.step() != count:
            assert time.monotonic() < end
            time.sleep(0.05)  # some steps, not thousands


def test_a_manager_goes_on_without_a_replica_and_with_a_new_one(tmp_path: Path) -> None:
    """Replica 1 ends without notice after some steps; replica 2 comes, and is given the weights."""
    address, alone, last = (tmp_path / name for name in ("address", "alone", "last"))
    done = [tmp_path / f"done{place}" for place in (0, 2)]

    def lead(replica: Replica) -> None:
        replica.until(2)
        replica.until(1)
        alone.touch()
        replica.until(2)
        write(last, str(replica.manager.current_step() + 4))

    def work(place: int) -> Any:
        if place == 3:
            server = LighthouseServer("[::]:0", 1, join_timeout_ms=500, heartbeat_timeout_ms=1000)
            write(address, server.address())
            wait_for(lambda: all(file.exists() for file in done))
            server.shutdown()
            return None
        wait_for(alone.exists if place == 2 else address.exists)
        replica = Replica(place, address.read_text())
        if place == 1:
            for _ in range(3):
                replica.until(2)
            return None
        if place == 0:
            lead(replica)
        else:
            replica.until(2)
        while not last.exists() or replica.manager.current_step() < int(last.read_text()):
            replica.step()
        done[place // 2].touch()
        wait_for(lambda: all(file.exists() for file in done))
        replica.manager.shutdown(wait=False)
        return replica.model.weight.tolist(), replica.taken

    (weights, taken), _, (weights_2, taken_2), _ = run_ranks(work, 4, timeout=patience(150))
    assert weights == weights_2
    assert taken.items() >= taken_2.items()
    # The gradient of a step is the mean of the batches of its replicas; first replica 1 is there.
    first = min(taken_2)
    total = torch.zeros(1, 3)
    for step, count in taken.items():
        other = 2 if step >= first else 1
        parts = [batch(0, step)] + ([batch(other, step)] if count == 2 else [])
        total -= torch.stack(parts).mean(0)
    assert weights == total.tolist(), (taken, taken_2)


def test_torchfts_own_tests_of_its_group_on_gloo() -> None:
    """Those of the process group, with ranks in threads of one process, and what gloo lacks."""

    def process(_: int) -> tuple[int, list[str]]:
        theirs = importlib.import_module("torchft.process_group_test")
        theirs.ProcessGroupGloo = lambda timeout=LIMIT: ProcessGroupCollops(timeout)
        of_threads = theirs.NormalGlooMultiPgTest
        # They list what gloo and NCCL say of a rank that has left, and of one that does not come.
        refused = (collops.Error, RuntimeError)
        for kind in (of_threads, theirs.ProcessGroupTest):
            kind.assertRaisesRegex = lambda self, *_: self.assertRaises(refused)
        for call in of_threads.SKIP:
            run = functools.partialmethod(of_threads._run_with_resiliency, call)
            setattr(of_threads, f"test_more_{call}", run)
        names = ["test_gloo_apis_0_cpu", "test_gloo_timeout", "test_functional_collectives"]
        suite = unittest.TestSuite(map(theirs.ProcessGroupTest, names))
        suite.addTest(unittest.defaultTestLoader.loadTestsFromTestCase(of_threads))
        result = unittest.TestResult()
        suite.run(result)
        return result.testsRun, [text for _, text in result.errors + result.failures]

    [(count, faults)] = run_ranks(process, 1, timeout=patience(200))
    assert faults == []
    assert count == 19 + 3
