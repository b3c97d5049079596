"""How ranks that were given no sizes learn each other's rows, and find out that they disagree."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from collops.errors import ErrorCode, raise_status
from collops.plans import Kept

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collops.plain_level import Element, PlainLevel

# A tensor's record: rows, element type, number of dims, the other sizes, a digest of further ones.
_ROWS, _DTYPE, _NUM_DIMS, _SIZES, _DIGEST = 0, 1, 2, 3, 14
_LENGTH = 15
_KEPT_SIZES = _DIGEST - _SIZES


class RowExchange:
    """Gathers what the ranks say of the tensors of one call: one record per tensor and rank.

    Made once per number of tensors and dimension. Waits in gather() alone.
    """

    def __init__(self, level: PlainLevel, kind: int, num_tensors: int, dim: int) -> None:
        self._level = level
        self._kind = kind
        self._num_tensors = num_tensors
        self._dim = dim
        self._blocks = level.make_blocks(
            [num_tensors * _LENGTH] * level.size, dim=dim, num_tensors=num_tensors
        )
        self._names = {number: name for name, number in level.dtypes.items()}
        self._records: Kept[Any] = Kept()
        self._agreed: Kept[tuple[int, ...]] = Kept()

    def records(self, tensors: Sequence[Any], dims: Sequence[int]) -> Any:
        """This rank's records. `dims` says which dimension of each tensor is gathered."""
        key = tuple([(x.shape, dim, x.dtype) for x, dim in zip(tensors, dims, strict=True)])
        known = self._records.get(key)
        if known is None:
            element = self._level.element
            rows = [_record(tuple(shape), dim, element(dtype)) for shape, dim, dtype in key]
            known = self._records.keep(key, np.array(rows, np.int64))
        return known

    def gather(self, mine: Any) -> Any:
        """The records of all ranks; waits for every rank."""
        everyone = np.empty((self._level.size, self._num_tensors, _LENGTH), np.int64)
        self._level.core.all_gatherv(mine, everyone, self._blocks, self._kind)
        return everyone

    def rows(self, everyone: Any) -> tuple[int, ...]:
        """The rows of every rank, from what gather() returned.

        Raises:
            RankMismatchError: element types or other sizes differ; on every rank alike.
        """
        key = everyone.tobytes()
        rows = self._agreed.get(key)
        if rows is None:
            self._compare(everyone)
            rows = self._agreed.keep(key, tuple(everyone[:, 0, _ROWS].tolist()))
        return rows

    def _compare(self, everyone: Any) -> None:
        for number in range(self._num_tensors):
            label = "x" if self._num_tensors == 1 else f"x[{number}]"
            first = everyone[0, number]
            for rank in range(1, len(everyone)):
                other = everyone[rank, number]
                if first[_DTYPE] != other[_DTYPE]:
                    _disagree(rank, f"{label}'s dtype", self._dtype(first), self._dtype(other))
                if (first[_NUM_DIMS:] != other[_NUM_DIMS:]).any():
                    field = f"{label}'s shape {'after' if self._dim == 0 else 'without'} dim"
                    _disagree(rank, f"{field} {self._dim}", _others(first), _others(other))

    def _dtype(self, record: Any) -> str:
        number = int(record[_DTYPE])
        return self._names.get(number, f"another type (digest {-1 - number:08x})")


def _record(shape: tuple[int, ...], dim: int, element: Element) -> tuple[int, ...]:
    others = shape[:dim] + shape[dim + 1 :]
    kept = others[:_KEPT_SIZES]
    number = -1 - _digest(element.name) if element.number is None else element.number
    further = _digest(repr(others[_KEPT_SIZES:]))
    return (shape[dim], number, len(shape)) + kept + (0,) * (_KEPT_SIZES - len(kept)) + (further,)


def _digest(text: str) -> int:
    return zlib.crc32(text.encode())


def _others(record: Any) -> str:
    count = int(record[_NUM_DIMS]) - 1
    sizes = record[_SIZES : _SIZES + min(count, _KEPT_SIZES)].tolist()
    return f"{sizes}" if count <= _KEPT_SIZES else f"{sizes} and {count - _KEPT_SIZES} more dims"


def _disagree(rank: int, field: str, first: str, other: str) -> NoReturn:
    raise_status(
        ErrorCode.ERROR_RANK_MISMATCH,
        f"all_gatherv: ranks 0 and {rank} disagree on {field}: {first} and {other}",
    )
