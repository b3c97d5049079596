"""Programs of ranks on simulated GPUs, for every backend on CUDA tensors, with golden's results."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from collops.golden.operators import rooted_collectives

import collops
from collops.testing import run_ranks
from patience import patience

BACKENDS = pytest.mark.parametrize("backend", ["nccl", "cuda"])


class Word:
    """A word of one rank to another, for ranks that are forked after it was made."""

    def __init__(self) -> None:
        self._heard, self._said = os.pipe()

    def say(self) -> None:
        """Says it."""
        os.write(self._said, b"x")

    def hear(self) -> None:
        """Waits for it."""
        os.read(self._heard, 1)

    def __del__(self) -> None:
        os.close(self._heard)
        os.close(self._said)


def numbers(rank: int, count: int, dtype: str, seed: int = 0) -> Any:
    """Numbers that differ in every rank and position, and whose float sums depend on the order."""
    random = np.random.default_rng([rank, seed, count])
    if np.dtype(dtype).kind in "iu":
        return random.integers(1, 100, count).astype(dtype)
    return (random.standard_normal(count) * 10.0 ** random.integers(-3, 4, count)).astype(dtype)


def begins(sizes: Sequence[int]) -> Any:
    """Where each rank's block begins."""
    return np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)


def reduced(parts: Sequence[Any], op: str) -> Any:
    """The reduction in rank order, by golden."""
    return rooted_collectives.reduce(list(parts), op)


def start(gpu: Any, backend: str, rank: int, ranks: int, name: str = "group") -> Any:
    """A rank's communicator, on the GPU of its number."""
    gpu.choose(rank)
    assert gpu.cuda is not None  # makes the context current
    return collops.init(rank, ranks, backend=backend, comm_domain=name, timeout_s=patience(60))


def gather(comm: Any, gpu: Any, rank: int, sizes: Sequence[int] = (), count: int = 3) -> Any:
    """The output of an all_gatherv of `count` numbers of each rank, or so many as it says."""
    sizes = list(sizes) or [count] * comm.size
    x = gpu.tensor(numbers(rank, count, "float32"))
    out = gpu.poisoned((sum(sizes),), x)
    comm.all_gatherv(x, sizes, out=out)
    return out


def scatter(op: collops.Operation, gpu: Any, rank: int, sizes: list[int], dtype: str) -> Any:
    """The result of one ReduceScatterV whose x is a column."""
    x = gpu.tensor(numbers(rank, sum(sizes), dtype).reshape(-1, 1))
    counts, own = np.array(sizes, np.int64), sizes[rank]
    out = gpu.poisoned((own, 1), x)
    inputs = [x, counts, begins(sizes), counts[rank : rank + 1], np.empty(own, np.float16)]
    size = op.get_workspace_size(inputs, [out])
    op.execute(inputs, [out], gpu.poisoned((size,), gpu.tensor(np.zeros(1, np.uint8))))
    return gpu.array(out)[:, 0]


def scattered(rank: int, sizes: list[int], dtype: str) -> Any:
    """What scatter() gives."""
    begin = begins(sizes)[rank]
    part = slice(begin, begin + sizes[rank])
    return reduced([numbers(r, sum(sizes), dtype)[part] for r in range(len(sizes))], "sum")


class Call:
    """An operation of one rank whose tensors stay where they are, so that graphs may replay it.

    `shifts`: how many elements behind a multiple of 256 bytes x and the output begin. `fields`: of
    the struct.
    """

    struct: Any  # the operator's

    def __init__(
        self,
        gpu: Any,
        rank: int,
        sizes: list[int],
        dtype: str,
        shifts: tuple[int, int] = (0, 0),
        **fields: Any,
    ) -> None:
        self.gpu, self.rank, self.sizes, self.dtype = gpu, rank, sizes, dtype
        self.shifts = shifts
        self.op = collops.Operation(self.struct(rank=rank, rank_size=len(sizes), **fields))
        self.counts, self.displs = np.array(sizes, np.int64), begins(sizes)
        self.inputs, self.out = self._tensors()
        size = self.op.get_workspace_size(self.inputs, [self.out])
        self.workspace = gpu.poisoned((size,), gpu.tensor(np.zeros(1, np.uint8)))

    def _tensors(self) -> tuple[list[Any], Any]:
        """Inputs and output."""
        raise NotImplementedError

    def values(self, step: int, rank: int) -> Any:
        """What x is in a step, on a rank."""
        raise NotImplementedError

    def expected(self, step: int) -> Any:
        """What the output is then."""
        raise NotImplementedError

    def write(self, step: int) -> None:
        """The values of a step, and an output in which nothing is right."""
        self.inputs[0].write(self.values(step, self.rank))
        self.out.write(np.full(self.out.shape, 77, self.dtype))

    def execute(self, stream: Any) -> None:
        self.op.execute(self.inputs, [self.out], self.workspace, stream=stream)

    def spoil(self, stream: Any) -> None:
        """Overwrites x in the stream, behind the calls that read it."""
        x = self.inputs[0]
        assert self.gpu.cuda.fill(x.address, 0x5B, x.nbytes, stream.ptr) == 0

    def check(self, step: int, stream: Any) -> None:
        """Every bit of the output, once the stream has finished."""
        found = self.gpu.array_on(stream, self.out)
        np.testing.assert_array_equal(found, self.expected(step), err_msg=f"step {step}")


class Gather(Call):
    """An AllGatherV."""

    struct = collops.AllGatherVParam

    def _tensors(self) -> tuple[list[Any], Any]:
        x = self.gpu.tensor(self.values(0, self.rank), shift=self.shifts[0])
        total = len(self.expected(0))
        own = self.counts[self.rank : self.rank + 1]
        inputs = [x, own, self.counts, self.displs, np.empty(total, np.float16)]
        return inputs, self.gpu.poisoned((total,), x, self.shifts[1])

    def values(self, step: int, rank: int) -> Any:
        return numbers(rank, self.sizes[rank], self.dtype, step)

    def expected(self, step: int) -> Any:
        return np.concatenate([self.values(step, rank) for rank in range(len(self.sizes))])


class Scatter(Call):
    """A ReduceScatterV of a column."""

    struct = collops.ReduceScatterVParam

    def _tensors(self) -> tuple[list[Any], Any]:
        x = self.gpu.tensor(self.values(0, self.rank), shift=self.shifts[0])
        own = self.counts[self.rank : self.rank + 1]
        inputs = [x, self.counts, self.displs, own, np.empty(own[0], np.float16)]
        return inputs, self.gpu.poisoned((int(own[0]), 1), x, self.shifts[1])

    def values(self, step: int, rank: int) -> Any:
        return numbers(rank, sum(self.sizes), self.dtype, step).reshape(-1, 1)

    def expected(self, step: int) -> Any:
        begin = self.displs[self.rank]
        part = slice(begin, begin + self.sizes[self.rank])
        return reduced([self.values(step, r)[part] for r in range(len(self.sizes))], "sum")


def until_ended(comm: Any) -> collops.Error:
    """Waits until another rank has ended the group, and returns the error of that."""
    for _ in range(500):
        try:
            comm.check()
        except collops.Error as error:
            return error
        time.sleep(0.1)
    raise AssertionError("no rank has ended the group")


def as_threads(ranks: int, work: Callable[[int], Any], **env: str) -> list[Any]:
    """work(rank) of every rank, in threads of one process that was forked for them."""
    return run_ranks(work, ranks, threads=True, env=env)
