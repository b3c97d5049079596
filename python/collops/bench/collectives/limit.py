"""The one-copy limit: what the ranks' copies take with nothing else, all ranks at once."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from collops.bench.elements import Bits

_CHUNK_BYTES = 64 << 10  # in which sums of several parts stay in a core's own cache


@dataclass(frozen=True)
class Part:
    """Elements of this rank's result, and where they come from.

    Attributes:
        begin: the first of them in the result.
        length: how many.
        sources: the rank and the first element of each vector; several are added up.
        of_results: whether the sources lie in the ranks' results, not in their x.
    """

    begin: int
    length: int
    sources: tuple[tuple[int, int], ...]
    of_results: bool = False


def shared_vectors(work: Any, elements: int, bits: np.dtype[Any]) -> list[Bits]:
    """A vector of each rank in memory that all ranks of this host map; a call of all ranks.

    The memory has no name, so that nothing is left behind if a rank ends.

    Args:
        work: a communicator of all ranks.
        elements: the length of this rank's vector.
        bits: the type of an element.

    Raises:
        OSError: this rank may not open another one's memory.
    """
    descriptor = os.memfd_create("collops bench")
    try:
        os.truncate(descriptor, max(1, elements * bits.itemsize))
        own = np.array([[os.getpid(), descriptor, elements]], np.int64)
        told = work.all_gatherv(own, [1] * work.size).tolist()
        try:
            return [_mapped(f"/proc/{pid}/fd/{fd}", size, bits) for pid, fd, size in told]
        finally:
            work.barrier()  # until then nobody closes
    finally:
        os.close(descriptor)


def _mapped(path: str, elements: int, bits: np.dtype[Any]) -> Bits:
    opened = os.open(path, os.O_RDWR)
    try:
        return np.frombuffer(mmap.mmap(opened, 0), bits, elements)
    finally:
        os.close(opened)


def copies(parts: list[Part], xs: list[Bits], results: list[Bits], own: int) -> Callable[[], None]:
    """A function that makes a rank's parts by numpy's copy and sum, without waiting for anyone.

    Sums are those of the elements' bits as whole numbers. They move the same bytes, and numpy
    has vectorised code for them, which it lacks for float16 and bfloat16.

    Args:
        parts: the parts, in order.
        xs: every rank's x.
        results: the results as far as other ranks read them.
        own: the index of this rank's result.
    """
    steps: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
    for part in parts:
        vectors = results if part.of_results else xs
        target = results[own][part.begin : part.begin + part.length]
        given = [vectors[rank][begin : begin + part.length] for rank, begin in part.sources]
        if len(given) == 1:
            steps.append((np.copyto, (target, given[0])))
        else:
            steps += _sums(target, given)

    def run() -> None:
        for call, arguments in steps:
            call(*arguments)

    return run


def _sums(target: Bits, given: list[Bits]) -> Iterator[tuple[Callable[..., Any], tuple[Any, ...]]]:
    length = target.size if len(given) == 2 else _CHUNK_BYTES // target.itemsize
    for begin in range(0, target.size, max(1, length)):
        chunk = slice(begin, begin + length)
        yield np.add, (given[0][chunk], given[1][chunk], target[chunk])
        for other in given[2:]:
            yield np.add, (target[chunk], other[chunk], target[chunk])
