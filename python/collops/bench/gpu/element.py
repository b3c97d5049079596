"""Matrices of a benchmark in the memory of a GPU, with the same numbers as on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

import collops
from collops.bench.elements import Bits, Element

# Larger matrices repeat their first elements; a prime number, so that no row begins like another.
_MOST_DRAWN = 8_388_593


class DeviceMatrix:
    """A matrix of a GPU; `array` is what collops takes."""

    def __init__(self, shape: tuple[int, ...], name: str, bits: np.dtype[Any], stream: Any) -> None:
        self.array = collops.cuda_empty(shape, name, stream.device)
        self.shape, self.dtype, self._stream = shape, bits, stream
        self.nbytes = int(np.prod(shape, dtype=np.int64)) * bits.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def read(self) -> Bits:
        """The bits of all elements."""
        bits: Bits = self.array.read(self._stream).view(self.dtype)
        return bits

    def write(self, bits: Bits) -> None:
        """Rewrites all elements."""
        self.array.write(bits.view(self.array.dtype), self._stream)


class DeviceElement(Element):
    """An element type whose matrices are those of one GPU, written and read on a rank's stream."""

    def __init__(self, dtype: str, stream: Any) -> None:
        super().__init__(dtype)
        self._stream = stream
        self._scratch: Any = None
        self._scratch_bytes = 0

    def numbers(self, bits: Any) -> Any:
        """The array for collops."""
        return bits.array

    def matrix(self, rows: int, columns: int) -> Any:
        """An untouched matrix."""
        return DeviceMatrix((rows, columns), self.name, self.bits, self._stream)

    def scratch(self, num_bytes: int) -> Any:
        """Memory for a call's workspace; one for all calls, which follow each other on a stream."""
        if num_bytes > self._scratch_bytes:
            self._scratch = collops.cuda_empty((num_bytes,), "uint8", self._stream.device)
            self._scratch_bytes = num_bytes
        return self._scratch

    def poison(self, matrix: Any) -> None:
        """Fills with NaN."""
        bits = np.empty(matrix.shape, self.bits)
        super().poison(bits)
        matrix.write(bits)

    def flip(self, matrix: Any) -> None:
        """Rewrites every element with the other sign; of the host's matrices, too."""
        bits = _on_host(matrix)
        super().flip(bits)
        if bits is not matrix:
            matrix.write(bits)

    def num_different(self, a: Any, b: Any) -> int:
        """How many elements differ, of matrices of the GPU or of the host."""
        return super().num_different(_on_host(a), _on_host(b))

    def _draw(self, matrix: Any, seed: tuple[int, ...], values: Any) -> None:
        bits = np.empty(min(matrix.nbytes // self.bits.itemsize, _MOST_DRAWN), self.bits)
        super()._draw(bits, seed, values)
        matrix.write(np.resize(bits, matrix.shape))


def _on_host(matrix: Any) -> Bits:
    bits: Bits = matrix.read() if isinstance(matrix, DeviceMatrix) else matrix
    return bits
