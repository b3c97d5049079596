"""The plain level's products whose rows are gathered and whose sums are scattered."""

from __future__ import annotations

import operator
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from collops.atb.linear_parallel import LinearParallelParam, TwoDimTPInfo
from collops.atb.operation import Operation
from collops.collectives.plain_tensors import as_tensor
from collops.collectives.plans import Kept, bad_argument, split_evenly
from collops.errors import Error, ErrorCode, raise_status, status_error
from collops.tensors import empty_like_kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collops.collectives.level import PlainLevel

_Type = LinearParallelParam.ParallelType
_GATHERING = (_Type.ALL_GATHER_LINEAR, _Type.ALL_GATHER_LINEAR_REDUCE_SCATTER)
# What the struct's messages say, and what a user of the plain level knows.
_WORDS = {
    "with transWeight true it": "with trans_weight=True it",
    "with transWeight false it is [k, n]": "it is [k, n]: for [n, k] pass trans_weight=True",
    "gatherRows": "gather_rows",
    "scatterRows": "scatter_rows",
    "twoDimTPInfo.agDim": "ag_dim",
    "agDim": "ag_dim",
    "rsDim": "rs_dim",
    "innerDimIsAg": "inner_dim_is_ag",
}
_ANY_WORD = re.compile("|".join(map(re.escape, _WORDS)))
_TYPES = re.compile(r": type is (\d) on (rank .*?) and (\d) on ")
_METHODS = {
    _Type.LINEAR_ALL_REDUCE: "matmul_all_reduce",
    _Type.LINEAR_REDUCE_SCATTER: "matmul_reduce_scatter",
    _Type.ALL_GATHER_LINEAR: "all_gather_matmul",
    _Type.ALL_GATHER_LINEAR_REDUCE_SCATTER: "all_gather_matmul_reduce_scatter",
}


class LinearParallel:
    """LinearParallel of one communicator: an operation for each kind of call, and its scratch."""

    def __init__(self, level: PlainLevel) -> None:
        self._level = level
        self._operations: Kept[Operation] = Kept()
        self._scratch = np.empty(0, np.uint8)

    def __call__(
        self,
        kind: _Type,
        x: Any,
        weight: Any,
        grid: tuple[int, int, bool],
        *,
        gather_rows: Sequence[int] | None = None,
        scatter_rows: Sequence[int] | None = None,
        trans_weight: bool,
        residual: Any,
        out: Any,
        op: str = "sum",
    ) -> Any:
        """One call; `grid` is (ag_dim, rs_dim, inner_dim_is_ag), read by type 4 alone."""
        name = _METHODS[kind]
        if self._level.core.failed:
            self._level.core.barrier()  # waits for no one: it raises what has ended the group
        try:
            if op not in ("sum", "avg"):
                bad_argument(f'{name}: op must be "sum" or "avg", got {op!r}')
            ins = [as_tensor(name, "x", x), as_tensor(name, "weight", weight)]
            if residual is not None:
                ins.append(as_tensor(name, "residual", residual))
            grid = _whole_grid(name, grid)
            rows = self._rows(name, kind, ins[0], grid, gather_rows, scatter_rows)
            key = (kind, grid, rows, bool(trans_weight), residual is not None, op)
            operation = self._operations.get(key) or self._operations.keep(key, self._create(*key))
            desc = operation.infer_shape(ins)[0]
            if out is None:
                out = empty_like_kind(name, ins[0], desc.shape, desc.dtype)
            scratch = self._scratch_of(operation.get_workspace_size(ins, [out]))
        except Exception as error:
            said = _in_plain_words(name, error)
            self._level.refuse("LinearParallel", said)
            if said is error:
                raise
            raise said from None
        try:
            operation.execute(ins, [out], scratch)
        except Error as error:
            raise _in_plain_words(name, error, kind in _GATHERING and gather_rows is None) from None
        return out

    def _rows(
        self,
        name: str,
        kind: _Type,
        x: Any,
        grid: tuple[int, int, bool],
        gather: Sequence[int] | None,
        scatter: Sequence[int] | None,
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Both lists in full, so that every number of rows can be shared out."""
        if x.ndim not in (2, 3):
            raise_status(
                ErrorCode.ERROR_INVALID_TENSOR_DIM,
                f"{name}: x must be [rows, k] or [matrices, rows, k], got {x.ndim} dims: pass "
                "x.reshape(-1, x.shape[-1])",
            )
        if kind == _Type.LINEAR_ALL_REDUCE:
            return (), ()
        size = self._level.size
        num_gather, num_scatter = {
            _Type.ALL_GATHER_LINEAR: (size, 1),
            _Type.LINEAR_REDUCE_SCATTER: (1, size),
        }.get(kind, grid[:2])
        if num_gather < 1 or num_scatter < 1:
            bad_argument(
                f"{name}: ag_dim and rs_dim must be >= 1, got {num_gather} and {num_scatter}"
            )
        if num_gather * num_scatter != size:
            bad_argument(
                f"{name}: ag_dim {num_gather} times rs_dim {num_scatter} is not the {size} ranks"
            )
        # As in ATB, the rows of one matrix are shared out; of several, the matrices.
        is_one = x.ndim == 3 and x.shape[0] == 1 and kind == _Type.LINEAR_REDUCE_SCATTER
        gathered = [int(x.shape[1 if is_one else 0])] * num_gather
        if gather is not None:
            gathered = _check_rows(name, "gather_rows", gather, num_gather)
        scattered = split_evenly(sum(gathered), num_scatter)
        if scatter is not None:
            scattered = _check_rows(name, "scatter_rows", scatter, num_scatter)
        if kind == _Type.ALL_GATHER_LINEAR:
            return tuple(gathered), ()
        if kind == _Type.LINEAR_REDUCE_SCATTER:
            return (), tuple(scattered)
        return tuple(gathered), tuple(scattered)

    def _create(
        self,
        kind: _Type,
        grid: tuple[int, int, bool],
        rows: tuple[tuple[int, ...], tuple[int, ...]],
        trans_weight: bool,
        has_residual: bool,
        op: str,
    ) -> Operation:
        level = self._level
        ag_dim, rs_dim, inner_dim_is_ag = grid
        return Operation(
            LinearParallelParam(
                rank=level.rank,  # and rank_size from hccl_comm: one rank alone works, too
                type=kind,
                backend=level.core.backend,
                hccl_comm=level.core.handle,
                trans_weight=trans_weight,
                has_residual=has_residual,
                two_dim_tp_info=TwoDimTPInfo(
                    ag_dim=ag_dim, rs_dim=rs_dim, inner_dim_is_ag=int(inner_dim_is_ag)
                ),
                gather_rows=list(rows[0]),
                scatter_rows=list(rows[1]),
            ),
            averages=op == "avg",
        )

    def _scratch_of(self, num_bytes: int) -> Any:
        """Scratch memory that the calls of this communicator share."""
        if self._scratch.nbytes < num_bytes:
            self._scratch = np.empty(num_bytes, np.uint8)
        return self._scratch[:num_bytes]


def _whole_grid(name: str, grid: tuple[int, int, bool]) -> tuple[int, int, bool]:
    """The grid in numbers that the core takes."""
    whole = []
    for label, value in zip(("ag_dim", "rs_dim"), grid, strict=False):
        try:
            whole.append(operator.index(value))
        except TypeError:
            bad_argument(f"{name}: {label} must be a whole number, got {value!r}")
    return whole[0], whole[1], grid[2]


def _in_plain_words(name: str, error: Exception, is_even: bool = False) -> Exception:
    """The error in the words of the plain level; `is_even`: nobody said the rows to gather."""
    if not isinstance(error, Error):
        return error
    message = re.sub("^LinearParallel: ", f"{name}: ", error.message)
    message = _TYPES.sub(_calls_of_types, message)
    message = _ANY_WORD.sub(lambda word: _WORDS[word[0]], message)
    if is_even and ": the sum of the rows is " in message:
        message += ": where x has other rows on other ranks, pass gather_rows on all of them"
    return error if message == error.message else status_error(error.code, message)


def _calls_of_types(types: re.Match[str]) -> str:
    """Two ranks' types by the methods that have them; the struct has one that no method has."""
    first, other = (_METHODS.get(_Type(int(types[i])), f"type {types[i]}") for i in (1, 3))
    return f": the call is {first} on {types[2]} and {other} on "


def _check_rows(name: str, label: str, given: Any, members: int) -> list[int]:
    """A list of rows, one number for each member of a group."""
    try:
        rows = [operator.index(number) for number in given]
    except TypeError:
        bad_argument(
            f"{name}: {label} must be whole numbers, one per member of the group, got {given!r}"
        )
    if len(rows) != members:
        bad_argument(f"{name}: {label} has {len(rows)} entries, the group has {members} ranks")
    for index, number in enumerate(rows):
        if not 0 <= number < 2**63:
            bad_argument(f"{name}: {label}[{index}] must be >= 0 and an int64, got {number}")
    return rows
