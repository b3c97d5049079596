"""Ranks on simulated GPUs, joined by the simulated NCCL, and calls with golden's results."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from collops.golden.operators import rooted_collectives

import collops

# Rank r of `sizes` ranks has so many elements.
UNEVEN = {2: [3, 5], 3: [4, 0, 7], 4: [2, 9, 0, 5], 8: [1, 0, 3, 2, 17, 0, 4, 5]}


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


def run(op: collops.Operation, gpu: Any, inputs: list[Any], out: Any, stream: Any = None) -> Any:
    """Both phases of an operation, and the output's values."""
    workspace_bytes = op.get_workspace_size(inputs, [out])
    workspace = gpu.poisoned((workspace_bytes,), gpu.tensor(np.zeros(1, np.uint8)))
    op.execute(inputs, [out], workspace, stream=stream)
    return gpu.array(out) if stream is None else gpu.array_on(stream, out)


def reduced(parts: Sequence[Any], op: str) -> Any:
    """The reduction in rank order, by golden."""
    return rooted_collectives.reduce(list(parts), op)


def scatter(
    op: collops.Operation, gpu: Any, rank: int, sizes: list[int], dtype: str, rows: int = 0
) -> Any:
    """One ReduceScatterV whose x is a column; `rows`: of the output, more than it receives."""
    x = gpu.tensor(numbers(rank, sum(sizes), dtype).reshape(-1, 1))
    counts, displs = np.array(sizes, np.int64), begins(sizes)
    own = max(rows, sizes[rank])
    y = np.empty(own, np.float16)
    out = gpu.poisoned((own, 1), x)
    return run(op, gpu, [x, counts, displs, counts[rank : rank + 1], y], out)[:, 0]


def scattered(rank: int, sizes: list[int], dtype: str, op: str) -> Any:
    """What scatter() gives, without the rest of the output."""
    begin = begins(sizes)[rank]
    part = slice(begin, begin + sizes[rank])
    return reduced([numbers(r, sum(sizes), dtype)[part] for r in range(len(sizes))], op)
