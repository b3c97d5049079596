"""What ranks agree on in a call: the types that their programs pass, and numbers of elements."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.distributed._functional_collectives as functional  # noqa: E402

from collops.torch.collective_calls import (  # noqa: E402
    all_gather_single,
    reduce_scatter_single,
)
from tests.torch.groups import run_group  # noqa: E402

importlib.import_module("torch._dynamo")  # once, not in each rank: it takes seconds

BYTES = 16  # of a rank's part


def _part(dtype: torch.dtype, parts: int = 1) -> torch.Tensor:
    return torch.zeros(parts * BYTES // dtype.itemsize, dtype=dtype)


Moves = Callable[[int, torch.dtype, Any], object]


def _all_to_all(rank: int, dtype: torch.dtype, group: Any) -> object:
    outs, parts = ([_part(dtype) for _ in range(2)] for _ in range(2))
    return dist.all_to_all(outs, parts, group=group)


def _messages(rank: int, dtype: torch.dtype, group: Any) -> object:
    call = dist.isend if rank == 0 else dist.irecv
    return call(_part(dtype), 1 - rank, group=group).wait()


def _batch(rank: int, dtype: torch.dtype, group: Any) -> None:
    call = dist.isend if rank == 0 else dist.irecv
    for work in dist.batch_isend_irecv([dist.P2POp(call, _part(dtype), 1 - rank, group)]):
        work.wait()


def _several(rank: int, dtype: torch.dtype, group: Any) -> None:
    with dist._coalescing_manager(group=group):
        all_gather_single(_part(dtype, 2), _part(dtype), group=group)


def _several_sums(rank: int, dtype: torch.dtype, group: Any) -> None:
    with dist._coalescing_manager(group=group):
        dist.all_reduce(_part(dtype), group=group)


def _sync_messages(rank: int, dtype: torch.dtype, group: Any) -> object:
    call = dist.send if rank == 0 else dist.recv
    return call(_part(dtype), 1 - rank, group=group)


def _functional(name: str, *args: Any, parts: int = 1) -> Moves:
    """A call of torch's operators in C++."""

    def call(_: int, dtype: torch.dtype, group: Any) -> object:
        return functional.wait_tensor(getattr(functional, name)(_part(dtype, parts), *args, group))

    return call


MOVES: dict[str, Moves] = {
    "broadcast": lambda _, d, group: dist.broadcast(_part(d), 0, group=group),
    "all_gather": lambda _, d, group: dist.all_gather([_part(d), _part(d)], _part(d), group=group),
    "all_gather_single": lambda _, d, group: all_gather_single(_part(d, 2), _part(d), group=group),
    "asynchronous": lambda _, d, group: all_gather_single(
        _part(d, 2), _part(d), group=group, async_op=True
    ).wait(),
    "coalesced": _several,
    "gather": lambda rank, d, group: dist.gather(
        _part(d), None if rank else [_part(d), _part(d)], 0, group=group
    ),
    "scatter": lambda rank, d, group: dist.scatter(
        _part(d), None if rank else [_part(d), _part(d)], 0, group=group
    ),
    "all_to_all": _all_to_all,
    "all_to_all_single": lambda _, d, group: dist.all_to_all_single(
        _part(d, 2), _part(d, 2), group=group
    ),
    "messages": _messages,
    "messages that are waited for": _sync_messages,
    "batch": _batch,
    "functional broadcast": _functional("broadcast", 0),
    "functional all_gather": _functional("all_gather_tensor", 0),
    "functional all_to_all": _functional("all_to_all_single", None, None, parts=2),
}
SUMS: dict[str, Moves] = {
    "all_reduce": lambda _, d, group: dist.all_reduce(_part(d), group=group),
    "coalesced all_reduce": lambda _, d, group: dist.all_reduce_coalesced([_part(d)], group=group),
    "all_reduce in a coalescing block": _several_sums,
    "functional all_reduce": _functional("all_reduce", "sum"),
    "functional reduce_scatter": _functional("reduce_scatter_tensor", "sum", 0, parts=2),
    "reduce": lambda _, d, group: dist.reduce(_part(d), 0, group=group),
    "reduce_scatter": lambda _, d, group: dist.reduce_scatter(
        _part(d), [_part(d), _part(d)], group=group
    ),
    "reduce_scatter_single": lambda _, d, group: reduce_scatter_single(
        _part(d), _part(d, 2), group=group
    ),
}
# Of as many bytes. Of the last ones the core has no reduction.
PAIRS = [
    *((torch.bool, torch.uint8), (torch.float32, torch.complex64)),
    *((torch.complex64, torch.float64), (torch.complex32, torch.float16)),
    *((torch.float16, torch.bfloat16), (torch.int16, torch.float16), (torch.bool, torch.int8)),
    *((torch.float8_e4m3fn, torch.uint8), (torch.float8_e4m3fn, torch.float8_e5m2)),
]


def _disagreeing() -> list[tuple[str, Moves, torch.dtype, torch.dtype]]:
    """Every call with the first pairs, and one of each kind with the others."""
    found = []
    for number, pair in enumerate(PAIRS):
        calls = MOVES | (SUMS if number < 7 else {})
        names = calls.keys() if number < 2 else {"broadcast", "messages", "all_reduce"}
        found += [(name, calls[name], *pair) for name in calls if name in names]
    return found


def _error(call: Moves, *args: Any) -> tuple[str, str]:
    try:
        call(*args)
    except Exception as error:
        return type(error).__name__, str(error)
    return "", ""


def test_types_of_one_size_are_not_taken_for_each_other() -> None:
    """In each call bytes of the one type would go where the other type is expected."""

    def work(rank: int) -> list[tuple[str, str]]:
        told = []
        for name, call, *dtypes in _disagreeing():
            group = dist.new_group([0, 1])
            kind, message = _error(call, rank, dtypes[rank], group)
            words = [str(dtype).removeprefix("torch.") for dtype in dtypes]
            named = all(re.search(rf"\b{word}\b", message) for word in words)
            if kind != "RankMismatchError" or not named:
                told.append((f"{name} {words}", f"{kind}: {message}"))
        return told

    assert run_group(work, 2) == [[], []]


def _pairs(rank: int, *numbers: float) -> torch.Tensor:
    """Pairs of real numbers: rank 0 views complex ones, rank 1 has no others."""
    x = torch.tensor(numbers).view(-1, 2)
    return torch.view_as_real(torch.view_as_complex(x).clone()) if rank == 0 else x


def test_pairs_that_the_program_makes_are_real_numbers() -> None:
    def work(rank: int) -> list[list[float]]:
        own, group = [1.0 + 10 * rank, 2.0, 3.0, 4.0], dist.group.WORLD
        dist.all_reduce(x := _pairs(rank, *own))
        y = functional.wait_tensor(functional.all_reduce(_pairs(rank, *own), "sum", group))
        z, w, v = (_pairs(rank, *own) for _ in range(3))
        if rank == 0:
            dist.send(z, 1)
            dist.isend(torch.view_as_real(torch.view_as_complex(w)), 1).wait()
            ops = [dist.P2POp(dist.isend, v, 1)]
        else:
            dist.recv(z, 0)
            dist.irecv(w, 0).wait()
            ops = [dist.P2POp(dist.irecv, v, 0)]
        for call in dist.batch_isend_irecv(ops):
            call.wait()
        return [one.reshape(-1).tolist() for one in (x, y, z, w, v)]

    total, first = [12.0, 4.0, 6.0, 8.0], [1.0, 2.0, 3.0, 4.0]
    assert run_group(work, 2) == [[total, total, first, first, first]] * 2


def _results(rank: int) -> list[Any]:
    """What the futures of calls of complex numbers have."""
    x, y, z = (torch.tensor([rank + 1.0 + 2.0j, 3.0j]) for _ in range(3))
    out, outs = torch.zeros(2, dtype=x.dtype), [torch.zeros_like(x) for _ in range(2)]
    calls = [
        dist.all_reduce(x, async_op=True),
        dist.broadcast(y, 1, async_op=True),
        dist.all_gather(outs, z, async_op=True),
        dist.all_to_all_single(out, z, async_op=True),
    ]
    found = [call.get_future().wait() for call in calls]
    return [[(one.dtype, one.tolist()) for one in tensors] for tensors in found]


def test_results_of_complex_numbers_are_as_gloos() -> None:
    assert run_group(_results, 2) == run_group(_results, 2, backend="gloo")


def _like(rank: int, *numbers: float) -> torch.Tensor:
    """The numbers in a shape that differs by rank."""
    x = torch.tensor(numbers)
    if x.numel() == 1:
        return x.reshape(()) if rank == 0 else x
    return x if rank == 0 else x.view(2, -1)


def test_shapes_may_differ_if_the_numbers_of_elements_agree() -> None:
    def work(rank: int) -> list[bool]:
        found = []

        def check(got: Any, *want: float) -> None:
            got = torch.cat([x.reshape(-1) for x in got]) if isinstance(got, list) else got
            found.append(got.reshape(-1).tolist() == list(want))

        for numbers in ([1.0], [1.0, 2, 3, 4]):
            own = [x + 10 * rank for x in numbers]
            two = [x + 10 for x in numbers]
            total = [2 * x + 10 for x in numbers]
            for call in (
                lambda x: dist.all_reduce(x),
                lambda x: dist.all_reduce(x, async_op=True).wait(),
                lambda x: dist.all_reduce_coalesced([x]),
            ):
                call(x := _like(rank, *own))
                check(x, *total)
            dist.broadcast(x := _like(rank, *own), 1)
            check(x, *two)
            dist.reduce(x := _like(rank, *own), 1)
            check(x, *(total if rank == 1 else own))
            dist.all_gather(outs := [_like(rank, *own), _like(rank, *own)], _like(rank, *own))
            check(outs, *numbers, *two)
            out = _like(rank, *numbers, *numbers)
            all_gather_single(out, torch.tensor(own))
            check(out, *numbers, *two)
            reduce_scatter_single(x := torch.tensor(own), _like(rank, *own, *own))
            check(x, *total)
            dist.all_to_all_single(out, _like(rank, *own, *own))
            check(out, *numbers, *two)
            if rank == 0:
                dist.send(_like(rank, *own), 1)
            else:
                dist.recv(x := _like(rank, *own), 0)
                check(x, *numbers)
        return found

    for found in run_group(work, 2):
        assert len(found) > 16 and all(found), found
