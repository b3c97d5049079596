"""A right call of every operator on rank 0 of 2, from which the rows of refusals differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import collops
from collops import ParallelType, TwoDimTPInfo

Tensors = list[Any]
Heard = tuple[str, int, str]
FIELDS: dict[str, Any] = {"rank": 0, "rank_size": 2, "backend": "shm", "comm_domain": "refusals"}
LISTS = {"send_counts": [2, 1], "sdispls": [0, 2], "recv_counts": [2, 2], "rdispls": [0, 2]}
LINEAR = {
    "type": ParallelType.ALL_GATHER_LINEAR_REDUCE_SCATTER,
    "two_dim_tp_info": TwoDimTPInfo(ag_dim=2, rs_dim=1),
    "has_residual": True,
}


def array(*shape: int) -> Any:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def counted(*lists: list[int]) -> Callable[[], Tensors]:
    """x [2, 4], lists of counts, and a y of 2 rows."""
    return lambda: [array(2, 4), *(np.array(numbers) for numbers in lists), np.empty(2, np.float16)]


def linear_inputs() -> Tensors:
    return [array(3, 4), array(5, 4), np.ones(5, np.float32)]


@dataclass(frozen=True)
class Right:
    """A struct, its own fields, the inputs, and the shape of the output, if it has one."""

    struct: type[Any]
    inputs: Callable[[], Tensors]
    output: tuple[int, ...] | None
    fields: dict[str, Any] = field(default_factory=dict)

    def outputs(self) -> Tensors:
        return [] if self.output is None else [np.empty(self.output, np.float32)]


def x_of_4_rows() -> Tensors:
    return [array(4, 3)]


# all_gather_v: 3 of 8 elements here and 4 there; reduce_scatter_v: 6 and 2 of 8.
RIGHT: dict[str, Right] = {
    "AllGatherV": Right(collops.AllGatherVParam, counted([3], [3, 4], [0, 4]), (2, 4)),
    "ReduceScatterV": Right(collops.ReduceScatterVParam, counted([6, 2], [0, 6], [6]), (2, 4)),
    "AllGather": Right(collops.AllGatherParam, x_of_4_rows, (2, 4, 3)),
    "ReduceScatter": Right(collops.ReduceScatterParam, x_of_4_rows, (2, 3)),
    "AllReduce": Right(collops.AllReduceParam, x_of_4_rows, (4, 3)),
    "Broadcast": Right(collops.BroadcastParam, x_of_4_rows, None),
    "AllToAll": Right(collops.AllToAllParam, x_of_4_rows, (4, 3)),
    "AllToAllV": Right(collops.AllToAllVParam, lambda: [array(4)], (1, 4), LISTS),
    "AllToAllVV2": Right(
        collops.AllToAllVV2Param,
        lambda: [array(4), *(np.array(list_) for list_ in LISTS.values()), np.empty(4, np.int8)],
        (1, 4),
    ),
    "LinearParallel": Right(collops.LinearParallelParam, linear_inputs, (6, 5), LINEAR),
}
EVERY = tuple(RIGHT)
V = ("AllGatherV", "ReduceScatterV")
REDUCTIONS = {"ReduceScatter": "reduce_type", "AllReduce": "all_reduce_type"}
EVEN = ("AllGather", "ReduceScatter", "AllReduce", "Broadcast", "AllToAll")
EXCHANGES = ("AllToAllV", "AllToAllVV2")


def create(name: str, **fields: Any) -> collops.Operation:
    """The operation of rank 0 of 2 with some other fields."""
    right = RIGHT[name]
    return collops.Operation(right.struct(**{**FIELDS, **right.fields, **fields}))


def refusal(run: Callable[..., Any], *args: Any, **kwargs: Any) -> collops.Error:
    """The error of a call that must fail."""
    with pytest.raises(collops.Error) as caught:
        run(*args, **kwargs)
    return caught.value


def outcome(run: Callable[[], Any]) -> tuple[int, str, Any]:
    """Code and message of a call, 0 and "" where it does not fail, and its result."""
    try:
        return 0, "", run()
    except collops.Error as error:
        return error.code, error.message, None


def heard_of(run: Callable[[], Any]) -> Heard:
    """The class of the error, its code and its message."""
    try:
        run()
    except collops.Error as error:
        return type(error).__name__, error.code, error.message
    except Exception as error:
        return type(error).__name__, -1, str(error)
    return "", 0, ""
