"""Plans of the plain level: shapes of results, blocks of rows, and checks of lists of sizes."""

from __future__ import annotations

import math
import numbers
import operator
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np

from collops.errors import ErrorCode, raise_status

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

_INT64_MAX = 2**63 - 1
_MAX_ENTRIES = 64

_V = TypeVar("_V")


@dataclass(frozen=True)
class Plan:
    """A plan of the core for one shape and one list of sizes, and the shape of its result."""

    out_shape: tuple[int, ...]
    core: Any  # collops._core.PlainPlan
    rows: list[int]  # of each rank's block along `dim`
    dim: int
    in_order: bool  # blocks along `dim` lie one after the other in row-major memory


class Cache(dict["Hashable", _V]):
    """A cache of plans and the like by their shapes and sizes; it is cleared when it is full."""

    def add(self, key: Hashable, value: _V) -> _V:
        """Adds a value and returns it."""
        if len(self) >= _MAX_ENTRIES:
            self.clear()
        self[key] = value
        return value


def bad_argument(message: str) -> NoReturn:
    """Raises ERROR_INVALID_PARAM."""
    raise_status(ErrorCode.ERROR_INVALID_PARAM, message)


def is_masked(value: Any) -> bool:
    """Whether it is a masked array of numpy, whose memory does not contain the mask."""
    # Importing numpy.ma takes longer than connecting the ranks.
    return "numpy.ma" in sys.modules and isinstance(value, np.ma.MaskedArray)


def sizes_as_tuple(name: str, sizes: Any, label: str = "sizes") -> tuple[int, ...]:
    """`sizes`, a list, an array or a tensor, as whole numbers that can be compared."""
    if isinstance(sizes, (dict, set, frozenset)):
        bad_argument(f"{name}: {label} must be a list in the order of the ranks, got {sizes!r}")
    if getattr(sizes, "ndim", 1) != 1:  # the result's memory, where the sizes stand
        bad_argument(
            f"{name}: {label} must be a list of whole numbers, one per rank, got "
            f"{type(sizes).__name__} of shape {list(sizes.shape)}: pass memory as out="
        )
    if is_masked(sizes):
        bad_argument(f"{name}: {label} is a masked array: pass .filled(value)")
    try:
        if type(sizes) is not tuple:
            sizes = tuple(sizes if type(sizes) is list else np.asarray(sizes).tolist())
        hash(sizes)
        return tuple(sizes)
    except TypeError:
        bad_argument(
            f"{name}: {label} must be a list of whole numbers, one per rank, got {sizes!r}"
        )


def is_time(value: Any) -> bool:
    """Whether `value` is a finite number of seconds above 0."""
    try:
        return isinstance(value, numbers.Real) and 0 < float(value) < math.inf
    except OverflowError:
        return False


def whole_number(name: str, label: str, value: Any) -> int:
    """`value` as a whole number."""
    try:
        return operator.index(value)
    except TypeError:
        bad_argument(f"{name}: {label} must be a whole number, got {value!r}")


def whole_int64(name: str, label: str, value: Any) -> int:
    """`value` as a number that the core takes."""
    number = whole_number(name, label, value)
    if abs(number) > _INT64_MAX:
        bad_argument(f"{name}: {label} must be an int64, got {number}")
    return number


def whole_sizes(
    name: str, sizes: Any, label: str = "sizes", what: str = "whole numbers of rows, one per rank"
) -> tuple[int, ...]:
    """`sizes` as numbers that the core takes; `what` they must be, for messages."""
    try:
        rows = tuple([operator.index(size) for size in sizes])
    except TypeError:
        bad_argument(f"{name}: {label} must be {what}, got {sizes!r}")
    for rank, size in enumerate(rows):
        whole_int64(name, f"{label}[{rank}]", size)
    return rows


def plan_rows(core_plan: Any, shape: Sequence[int], dim: int, out_rows: int | None) -> Plan:
    """The plan of a call, made from the core's plan.

    Args:
        core_plan: the core's plan of blocks of rows along `dim` of `shape`.
        shape: shape of x; the size of `dim` does not matter.
        dim: the dimension that is gathered or scattered.
        out_rows: rows of the result; None: the rows of all ranks.
    """
    before, after = shape[:dim], shape[dim + 1 :]
    rows = core_plan.rows
    in_order = math.prod(before) == 1 or len(rows) == 1
    out_shape = (*before, sum(rows) if out_rows is None else out_rows, *after)
    return Plan(out_shape, core_plan, rows, dim, in_order)


def block_slices(rows: Sequence[int], dim: int) -> list[tuple[slice, ...]]:
    """The index of each rank's block in an array that is cut along `dim`."""
    begin = 0
    slices = []
    for size in rows:
        slices.append((*(slice(None),) * dim, slice(begin, begin + size)))
        begin += size
    return slices


def pack_blocks(parts: Sequence[Any], flat: Any) -> None:
    """Copies blocks with any strides one after the other into flat memory."""
    begin = 0
    for part in parts:
        end = begin + math.prod(part.shape)
        flat[begin:end].reshape(part.shape)[...] = part
        begin = end


def unpack_blocks(flat: Any, out: Any, rows: Sequence[int], dim: int) -> None:
    """Copies blocks that lie one after the other in `flat` to their places in `out`."""
    begin = 0
    for where in block_slices(rows, dim):
        part = out[where]
        end = begin + math.prod(part.shape)
        part[...] = flat[begin:end].reshape(part.shape)
        begin = end
