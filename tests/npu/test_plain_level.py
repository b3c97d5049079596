"""Forms of calls of the plain level on NPU tensors, which give the bits that they give on shm.

All operators with golden's cases are conformance's. The values are whole and small, so that sums
are exact in any order.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import collops
from collops import RecvFrom, SendTo
from collops.testing import run_ranks

TYPES = ("bool", "complex64", "float8_e4m3fn")


class Caller:
    """One rank of one backend, and tensors that are equal on both backends."""

    def __init__(self, torch: ModuleType, backend: str) -> None:
        self.torch, self.on_npu = torch, backend == "hccl"
        self.comm = collops.init(backend=backend, comm_domain=f"plain-{backend}")
        self.rank, self.size = self.comm.rank, self.comm.size
        self.sizes = [(r * 2) % 5 + (r == 1) for r in range(self.size)]
        if self.size == 1:
            self.sizes = [3]
        self.own = self.sizes[self.rank]
        self.after, self.before = (self.rank + 1) % self.size, (self.rank - 1) % self.size

    def moved(self, tensor: Any) -> Any:
        return tensor.npu() if self.on_npu else tensor

    def tensor(self, *shape: int, dtype: str = "float32", seed: int = 0) -> Any:
        """Numbers from 0 to 4 that tell the rank, the place and `seed`."""
        count = self.torch.Size(shape).numel()
        numbers = (self.torch.arange(count) * 3 + self.rank * 7 + seed) % 5
        return self.moved(numbers.to(getattr(self.torch, dtype)).reshape(shape))

    def empty(self, *shape: int, dtype: str = "float32") -> Any:
        return self.moved(self.torch.full(shape, 77, dtype=getattr(self.torch, dtype)))

    def bits(self, result: Any) -> list[Any]:
        """Types, shapes and bytes of a tensor, or of all of a list."""
        found: list[Any] = []
        for item in result if isinstance(result, (list, tuple)) else [result]:
            if not self.torch.is_tensor(item):
                found.append(item)
                continue
            assert item.device.type == ("npu" if self.on_npu else "cpu")
            flat = item.cpu().contiguous().reshape(-1).view(self.torch.uint8)
            found.append((str(item.dtype), tuple(item.shape), bytes(flat.tolist())))
        return found


Call = Callable[[Caller], Any]


def gathers(c: Caller) -> Any:
    total = sum(c.sizes)
    x = c.tensor(c.own, 3)
    into = c.empty(total, 3)
    whole = c.empty(2 * c.size)
    whole[2 * c.rank : 2 * c.rank + 2] = c.tensor(2)
    results = [
        c.comm.all_gatherv(x, c.sizes),
        c.comm.all_gatherv(x),
        c.comm.all_gatherv(x, c.sizes, out=into),
        into,
        *c.comm.all_gatherv([x, c.tensor(c.own, dtype="int32")], c.sizes),
        c.comm.all_gatherv(c.tensor(1, c.own, 2), c.sizes, dim=1),
        c.comm.all_gatherv(c.tensor(0, 3), [0] * c.size),
        c.comm.all_gather(c.tensor(2, 3)),
        c.comm.all_gather(c.tensor(0)),
        c.comm.all_gather(c.tensor(2), out=c.empty(2 * c.size)),
        c.comm.all_gather(whole[2 * c.rank : 2 * c.rank + 2], out=whole),
        whole,
    ]
    return results + [c.comm.all_gatherv(c.tensor(c.own, dtype=t), c.sizes) for t in TYPES]


def reductions(c: Caller) -> Any:
    slices = [c.tensor(size, 2, seed=r) for r, size in enumerate(c.sizes)]
    x = c.tensor(6)
    return [
        c.comm.reduce_scatterv(slices),
        c.comm.reduce_scatterv(c.tensor(1, sum(c.sizes)), c.sizes, dim=1),
        c.comm.reduce_scatterv(c.tensor(2 * c.size), [2] * c.size, op="prod"),
        c.comm.all_reduce(c.tensor(0, 2)),
        c.comm.all_reduce(x, out=x),
        x,
    ]


def messages(c: Caller) -> Any:
    results: list[Any] = []
    # Two messages to the next rank, one to itself, and an empty one.
    own, empty = c.empty(2, dtype="int64"), c.empty(0)
    pair = [c.empty(3), c.empty(2, 2, dtype="float64")]
    sources = [RecvFrom(pair[0], c.before), RecvFrom(pair[1], c.before)]
    c.comm.exchange(
        [
            SendTo(c.tensor(3), c.after),
            SendTo(c.tensor(2, 2, dtype="float64"), c.after),
            *sources,
            SendTo(c.tensor(0), c.after),
            SendTo(c.tensor(2, dtype="int64"), c.rank),
            RecvFrom(empty, c.before),
            RecvFrom(own, c.rank),
        ]
    )
    results += [own, *pair, empty, [source.source for source in sources]]
    for dtype in ("float32", "bool", "complex64", "float8_e4m3fn"):
        into = c.empty(4, dtype=dtype)
        if c.rank % 2 == 0 and c.rank + 1 < c.size:
            c.comm.send(c.tensor(4, dtype=dtype), c.rank + 1)
        elif c.rank % 2 == 1:
            results.append(c.comm.recv(into, c.rank - 1, return_source=True)[1])
        results.append(into)
    c.comm.exchange([])
    return results


def started(c: Caller) -> Any:
    into, total = c.empty(3), sum(c.sizes)
    calls = [
        c.comm.start("all_gatherv", c.tensor(c.own, 3), c.sizes),
        c.comm.start("exchange", [SendTo(c.tensor(3), c.after), RecvFrom(into, c.before)]),
        c.comm.start("reduce_scatterv", c.tensor(total, 2), c.sizes),
        c.comm.start("all_reduce", c.tensor(4), op="max"),
        c.comm.start("broadcast", c.tensor(4), root=c.size - 1),
        c.comm.start("all_to_allv", c.tensor(c.size, 2), [1] * c.size),
        c.comm.start("barrier"),
    ]
    results = [call.wait() for call in calls]
    return [results[0], into, *results[2:6]]


def parts(c: Caller) -> Any:
    """Odd and even ranks, backwards; the rank of the highest number in neither."""
    is_last = c.rank == c.size - 1
    part = c.comm.split(None if is_last else c.rank % 2, -c.rank)
    if part is None:
        return []
    first = part.all_gather(c.tensor(2))
    inner = part.split(0, part.rank)
    assert inner is not None
    return [first, inner.all_reduce(c.tensor(2)), part.rank, part.size, inner.rank]


CALLS: tuple[Call, ...] = (gathers, reductions, messages, started, parts)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_npus_and_shared_memory_give_the_same(
    npu: Any, torch_module: ModuleType, ranks: int
) -> None:
    def work(rank: int) -> list[str]:
        npu.choose(rank)
        callers = [Caller(torch_module, backend) for backend in ("shm", "hccl")]
        wrong = []
        for call in CALLS:
            found = [(caller.bits(call(caller))) for caller in callers]
            assert found[0] or call is parts
            wrong += [
                f"{call.__name__}, result {i}: {a} on shm, {b} on hccl"
                for i, (a, b) in enumerate(zip(*found, strict=True))
                if a != b
            ]
        for caller in callers:
            caller.comm.close()
        return wrong

    assert run_ranks(work, ranks, env={"COLLOPS_SIM_DELAY_US": "50"}) == [[]] * ranks


def test_a_barrier_holds_the_host(npu: Any) -> None:
    def work(rank: int) -> tuple[float, float]:
        npu.choose(rank)
        comm = collops.init(backend="hccl")
        comm.barrier()
        if rank == 1:
            time.sleep(0.3)
        came = time.monotonic()
        comm.barrier()
        return came, time.monotonic()

    times = run_ranks(work, 3)
    assert min(left for _, left in times) >= max(came for came, _ in times)
