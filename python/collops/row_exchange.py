"""How ranks that were given no sizes learn each other's rows, and find out that they disagree."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from collops.errors import ErrorCode, raise_status

if TYPE_CHECKING:
    from collections.abc import Callable

# A record: rows, element type, number of dims, the next sizes, a digest of any further ones.
_ROWS, _DTYPE, _NUM_DIMS, _SIZES, _DIGEST = 0, 1, 2, 3, 14
_LENGTH = 15
_KEPT_SIZES = _DIGEST - _SIZES


class RowExchange:
    """Gathers one record per rank. `gather(mine, all)` moves them; `dtypes` names the types."""

    def __init__(
        self, rank_size: int, gather: Callable[[Any, Any], None], dtypes: dict[str, int]
    ) -> None:
        self._gather = gather
        self._names = {number: name for name, number in dtypes.items()}
        self._mine = np.zeros(_LENGTH, np.int64)
        self._all = np.zeros((rank_size, _LENGTH), np.int64)
        self._agreed: dict[bytes, tuple[int, ...]] = {}

    @staticmethod
    def record_length() -> int:
        """Elements that each rank sends."""
        return _LENGTH

    def fill(self, shape: tuple[int, ...], dtype_number: int | None, dtype: Any) -> None:
        """Writes this rank's record; `dtype_number` is None for a type the core has no name for."""
        kept = shape[1 : 1 + _KEPT_SIZES]
        number = -1 - _digest(str(dtype)) if dtype_number is None else dtype_number
        further = _digest(repr(tuple(shape[1 + _KEPT_SIZES :])))
        self._mine[:] = (
            (shape[0], number, len(shape)) + kept + (0,) * (_KEPT_SIZES - len(kept)) + (further,)
        )

    def gather(self) -> None:
        """Moves the records; waits for every rank."""
        self._gather(self._mine, self._all)

    def rows(self) -> tuple[int, ...]:
        """The rows of every rank, from the records that gather() moved.

        Raises:
            RankMismatchError: element types or trailing shapes differ; on every rank alike.
        """
        key = self._all.tobytes()
        rows = self._agreed.get(key)
        if rows is None:
            self._compare()
            if len(self._agreed) >= 64:
                self._agreed.clear()
            rows = self._agreed[key] = tuple(self._all[:, _ROWS].tolist())
        return rows

    def _compare(self) -> None:
        first = self._all[0]
        for rank in range(1, len(self._all)):
            other = self._all[rank]
            if first[_DTYPE] != other[_DTYPE]:
                _disagree(rank, "dtype", self._dtype(first), self._dtype(other))
            if (first[_NUM_DIMS:] != other[_NUM_DIMS:]).any():
                _disagree(rank, "shape after dim 0", _trailing(first), _trailing(other))

    def _dtype(self, record: Any) -> str:
        number = int(record[_DTYPE])
        return self._names.get(number, f"another type (digest {-1 - number:08x})")


def _digest(text: str) -> int:
    return zlib.crc32(text.encode())


def _trailing(record: Any) -> str:
    count = int(record[_NUM_DIMS]) - 1
    sizes = record[_SIZES : _SIZES + min(count, _KEPT_SIZES)].tolist()
    return f"{sizes}" if count <= _KEPT_SIZES else f"{sizes} and {count - _KEPT_SIZES} more dims"


def _disagree(rank: int, field: str, first: str, other: str) -> NoReturn:
    raise_status(
        ErrorCode.ERROR_RANK_MISMATCH,
        f"all_gatherv: ranks 0 and {rank} disagree on x's {field}: {first} and {other}",
    )
