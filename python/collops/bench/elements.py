"""Matrices of a benchmark: exact data with the same bits for every library, in new memory."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

from collops.terminal.installation import is_installed

Bits = npt.NDArray[Any]

NAMES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
_HUGE_BYTES = 4 << 20
_BLOCK = 1 << 20
_LEVELS = 1 << 16
# Up to here every whole number is exact.
_EXACT = {"f32": 2**24, "f16": 2048, "bf16": 256}


def missing_package(dtype: str, on_gpu: bool) -> str:
    """What an element type needs that is not installed, and how to install it; "" if nothing."""
    # On the host a torch tensor does as well.
    known = ("ml_dtypes",) if on_gpu else ("ml_dtypes", "torch")
    if dtype != "bf16" or any(map(is_installed, known)):
        return ""
    none = "which is not installed" if on_gpu else "neither of which is installed"
    return f"{' or '.join(known)}, {none}: pip install 'collops[ml-dtypes]'"


class Element:
    """One element type: its bits as integers, and views of them as numbers of numpy and torch."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.name = NAMES[dtype]
        self.bits = np.dtype(np.uint32 if dtype == "f32" else np.uint16)
        self._sign = self.bits.type(1 << (self.bits.itemsize * 8 - 1))
        self._number = None if dtype == "bf16" else np.dtype(self.name)

    def numbers(self, bits: Bits) -> Any:
        """The tensor for collops: a numpy array, or for bfloat16 a torch tensor."""
        if self._number is not None:
            return bits.view(self._number)
        try:
            import ml_dtypes
        except ModuleNotFoundError:
            return self.tensor(bits)
        return bits.view(ml_dtypes.bfloat16)

    def tensor(self, bits: Bits) -> Any:
        """A torch tensor on the same memory."""
        from collops.bench.peers.gloo import torch_tensor

        return torch_tensor(bits.view(f"int{self.bits.itemsize * 8}"), self.name)

    def flat(self, bits: Bits) -> Any:
        """A torch tensor of one dimension on the same memory."""
        return self.tensor(bits).view(-1)

    def matrix(self, rows: int, columns: int) -> Bits:
        """A matrix in untouched memory of fresh_memory()."""
        memory = fresh_memory(rows * columns * self.bits.itemsize)
        return memory.view(self.bits).reshape(rows, columns)

    def poisoned(self, rows: int, columns: int) -> Bits:
        """A matrix of NaN, whose memory pages exist."""
        matrix = self.matrix(rows, columns)
        self.poison(matrix)
        return matrix

    def poison(self, matrix: Bits) -> None:
        """Fills with NaN."""
        matrix.fill(np.iinfo(self.bits).max)

    def fill(self, matrix: Bits, seed: tuple[int, ...], density: float) -> None:
        """Fills with -1, 0 and 1 by seed and position; a part `density` of them is not 0."""
        values = np.zeros(_LEVELS, np.float32)
        half = round(density / 2 * _LEVELS)
        values[:half], values[half : 2 * half] = -1, 1
        self._draw(matrix, seed, values)

    def fill_whole(self, matrix: Bits, seed: tuple[int, ...], terms: int) -> None:
        """Fills with whole numbers but 0, by seed and position; the sum of `terms` is exact."""
        most = min(_EXACT[self.dtype] // terms, _LEVELS // 2)
        places = np.arange(_LEVELS, dtype=np.int32)
        values = (places % most + 1) * np.where(places < _LEVELS // 2, -1, 1)
        self._draw(matrix, seed, values.astype(np.float32))

    def _draw(self, matrix: Bits, seed: tuple[int, ...], values: npt.NDArray[np.float32]) -> None:
        table = self.bits_of(values)
        random = np.random.default_rng(seed)
        flat = matrix.reshape(-1)
        for begin in range(0, flat.size, _BLOCK):
            part = flat[begin : begin + _BLOCK]
            part[:] = table[random.integers(0, _LEVELS, part.size, np.uint16)]

    def floats(self, bits: Bits) -> npt.NDArray[np.float32]:
        """The numbers as float32."""
        if self.dtype == "bf16":
            return (bits.astype(np.uint32) << 16).view(np.float32)
        return bits.view(self.name).astype(np.float32)

    def bits_of(self, values: npt.NDArray[np.float32]) -> Bits:
        """The bits of numbers that the element type holds exactly."""
        if self.dtype == "bf16":
            return (values.view(np.uint32) >> 16).astype(np.uint16)
        return values.astype(self.name).view(self.bits)

    def scratch(self, num_bytes: int) -> Any:
        """Untouched memory for a call's workspace."""
        return fresh_memory(num_bytes)

    def flip(self, matrix: Bits) -> None:
        """Rewrites every element with the other sign."""
        np.bitwise_xor(matrix, self._sign, out=matrix)

    def num_different(self, a: Bits, b: Bits) -> int:
        """How many elements differ; 0 and -0 do not."""
        magnitude = np.bitwise_and(a | b, ~self._sign)
        return int(np.count_nonzero((a != b) & (magnitude != 0)))


def exact_density(dtype: str, k: int, members: int) -> float:
    """The part of x that may differ from 0 so that all sums of products are exact.

    bfloat16 holds whole numbers up to 256, float16 up to 2048. A sum of k products of which this
    part is not 0 stays below that by seven standard deviations, also after adding up `members`.
    """
    variance = (_EXACT[dtype] / 7) ** 2 / max(1, members) * 1.5
    return min(2 / 3, variance / k)


def fresh_memory(num_bytes: int) -> npt.NDArray[np.uint8]:
    """Memory of the system, with huge pages as numpy requests them; pages exist once used."""
    if num_bytes == 0:
        return np.empty(0, np.uint8)
    memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if num_bytes >= _HUGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)
