"""One call of a soak on one rank: what is drawn for it, its tensors, and what they must hold.

What all ranks must know is drawn from seed, domain and number of the call alone, so every rank
draws the same without a word; what is a rank's own matter (its memory, its delays) is drawn apart.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from collops.golden.data.dtypes import differs, is_float, storage

import collops

POISON = 0xA5
GUARD = 64  # poisoned bytes before and behind a tensor in plain memory
MOST_BYTES = 64 << 20
# Tensors begin anywhere in the first MARGIN bytes of the source, so they differ in every position.
MARGIN = 1 << 20
UNALIGNED = 1


class Wrong(AssertionError):
    """A call gave another result than golden, or wrote where it may not."""


class Settings(NamedTuple):
    """What the draw of a soak depends on."""

    seed: int
    most_bytes: int = MOST_BYTES
    # In how many calls one rank sleeps, and for how long at most.
    delays: float = 0.03
    delay_s: float = 0.03


def make_source(settings: Settings) -> Any:
    """The bytes that all tensors are cut from; made once, before ranks are forked."""
    draw = np.random.Generator(np.random.PCG64(settings.seed))
    count = (settings.most_bytes + MARGIN) // 8 + 1
    return draw.integers(0, 2**64, count, np.uint64).view(np.uint8)


def bytes_of(array: Any) -> Any:
    return array.reshape(-1).view(np.uint8)


def as_real(array: Any, dtype: str) -> Any:
    """Golden's array as numpy with ml_dtypes has it."""
    return array.view(ml_dtypes.bfloat16) if dtype == "bfloat16" else array


class Turn:
    """A rank's side of one call of a communicator. Lives as long as the call."""

    def __init__(
        self, comm: collops.Communicator, source: Any, settings: Settings, place: str
    ) -> None:
        self.comm, self.place = comm, place
        self.rank, self.ranks = comm.rank, comm.size
        self.shared = Random(f"{settings.seed}/{place}")
        self.own = Random(f"{settings.seed}/{place}/{comm.rank}")
        self.moved_bytes = 0
        self.slept = 0
        self._source, self._settings = source, settings
        self._guards: list[Any] = []
        self._given: list[tuple[Any, Any]] = []

    def part(self, name: object, comm: collops.Communicator | None = None) -> Turn:
        """A turn of its own, for one of several calls of this one."""
        return Turn(comm or self.comm, self._source, self._settings, f"{self.place}/{name}")

    def pause(self) -> None:
        """Sleeps, in some calls of some ranks."""
        if self.own.random() < self._settings.delays:
            self.slept += 1
            time.sleep(self.own.random() * self._settings.delay_s)

    # Drawn by all ranks.

    def elements(self, dtype: str, most_bytes: int = 0) -> int:
        """How many elements the largest tensor has: log-uniform, and sometimes none."""
        if self.shared.random() < 0.04:
            return 0
        most = min(most_bytes or MOST_BYTES, self._settings.most_bytes)
        return int(2 ** self.shared.uniform(0, math.log2(most))) // storage(dtype).itemsize

    def width(self, elements: int) -> int:
        """Elements of a row."""
        return self.shared.choice([1, 2, 3, 8, max(1, min(elements // 7, 1000))])

    def parts(self, total: int, count: int | None = None) -> list[int]:
        """Numbers whose sum is `total`, one per rank: even, uneven, with zeros, one owner."""
        count = self.ranks if count is None else count
        pattern = self.shared.choice(("even", "any", "zeros", "owner", "steep"))
        if pattern == "owner":
            weights = [0.0] * count
        elif pattern == "steep":
            weights = [4.0**-rank for rank in range(count)]
        elif pattern == "zeros":
            weights = [self.shared.choice((0.0, self.shared.random())) for _ in range(count)]
        else:
            weights = [1.0 if pattern == "even" else self.shared.random() for _ in range(count)]
        numbers = [int(total * weight / max(sum(weights), 1e-9)) for weight in weights]
        numbers[self.shared.randrange(count)] += total - sum(numbers)
        return numbers

    # Tensors.

    def data(self, dtype: str, rank: int, count: int, salt: object = 0) -> Any:
        """What a rank's tensor holds, as golden has it; a part of the source, not to be written."""
        draw = Random(f"{self._settings.seed}/{self.place}/{rank}/{salt}/data")
        begin = 8 * draw.randrange(MARGIN // 8)
        end = begin + count * storage(dtype).itemsize
        return self._source[begin:end].view(storage(dtype))

    def memory(self, shape: Sequence[int], dtype: str) -> Any:
        """Poisoned memory of a kind that this rank draws."""
        real = as_real(np.empty(0, storage(dtype)), dtype).dtype
        size = math.prod(shape) * real.itemsize
        self.moved_bytes += size
        kind = self.own.choices(("plain", "window", "unaligned"), (5, 3, 2))[0]
        if kind == "window":
            array = self.comm.empty(tuple(shape), real)
            bytes_of(array)[...] = POISON
            return array
        begin = GUARD + (UNALIGNED if kind == "unaligned" else 0)
        whole = np.full(begin + size + GUARD, POISON, np.uint8)
        self._guards += [whole[:begin], whole[begin + size :]]
        return whole[begin : begin + size].view(real).reshape(tuple(shape))

    def given(self, data: Any, shape: Sequence[int], dtype: str) -> Any:
        """An input with that data, which the call may not change."""
        array = self.memory(shape, dtype)
        bytes_of(array)[...] = bytes_of(data)
        self._given.append((array, data))
        return array

    def changes(self, array: Any) -> None:
        """Says that the call may change an input."""
        self._given = [pair for pair in self._given if pair[0] is not array]

    # What must be.

    def expect(self, got: Any, want: Any, dtype: str, reduces: bool = False) -> None:
        """Raises Wrong unless an output is golden's bit for bit; of a reduction any NaN."""
        if got is None or got.size != want.size:
            raise Wrong(f"got {None if got is None else got.shape}, want {want.shape}")
        left, right = bytes_of(got), bytes_of(np.ascontiguousarray(want))
        if np.array_equal(left, right):
            return
        wrong = left != right
        if reduces and is_float(dtype):
            wrong = differs(got.reshape(-1).view(storage(dtype)), want.reshape(-1), dtype)
            if not wrong.any():
                return
        at = int(np.argmax(wrong))
        unit = "element" if wrong.size == want.size else "byte"
        raise Wrong(
            f"{int(wrong.sum())} of {wrong.size} {unit}s of {dtype} {got.shape} are wrong, the "
            f"first at {at}: got byte {left[min(at, left.size - 1)]:#x}"
        )

    def expect_untouched(self) -> None:
        """Raises Wrong if an input was changed, or a byte beside a tensor written."""
        for array, data in self._given:
            if not np.array_equal(bytes_of(array), bytes_of(data)):
                raise Wrong(f"an input of {array.shape} {array.dtype} was changed")
        for guard in self._guards:
            if (guard != POISON).any():
                raise Wrong("a byte beside a tensor was written")
