"""Calls that reduce."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

from collops.torch.collective_calls import reduce_scatter_single
from tests.torch.calls.call_table import Expected, Mode, Tensors, Work, data, poison, row, spread

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
FOLDS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "SUM": torch.add,
    "PRODUCT": torch.mul,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
    "BAND": torch.bitwise_and,
    "BOR": torch.bitwise_or,
    "BXOR": torch.bitwise_xor,
}


def fold(op: str, parts: list[torch.Tensor]) -> torch.Tensor:
    """The parts reduced in rank order."""
    if op == "AVG":
        total = fold("SUM", parts)
        if total.is_complex():  # torch multiplies by 1 / ranks, which rounds twice
            return torch.view_as_complex(torch.view_as_real(total) / len(parts))
        if total.is_floating_point():
            return total / len(parts)
        return torch.div(total, len(parts), rounding_mode="trunc")
    if parts[0].dtype == torch.bool:
        return fold(op, [part.to(torch.uint8) for part in parts]) != 0
    return functools.reduce(FOLDS[op], parts)


def _all_reduce(op: str, dtype: torch.dtype, x_of: Callable[[int], torch.Tensor]) -> None:
    def work(mode: Mode, rank: int, size: int) -> Tensors:
        x = x_of(rank)
        mode(dist.all_reduce, x, op=getattr(ReduceOp, op))
        return [x]

    def expected(rank: int, size: int) -> Tensors:
        return [fold(op, [x_of(r) for r in range(size)])]

    row("all_reduce", f"{op} {str(dtype)[6:]}", expected)(work)


for dtype in [*FLOATS, *INTEGERS]:
    ops = ["SUM", "PRODUCT", "MIN", "MAX", "AVG"]
    for op in [*ops, *([] if dtype in FLOATS else ["BAND", "BOR", "BXOR"])]:
        _all_reduce(op, dtype, functools.partial(data, shape=13, dtype=dtype))
for op in ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"):
    _all_reduce(op, torch.bool, functools.partial(data, shape=13, dtype=torch.bool))
for dtype in (torch.complex64, torch.complex128):
    for op in ("SUM", "AVG"):
        _all_reduce(op, dtype, functools.partial(data, shape=5, dtype=dtype))


def _shaped(form: str, make: Callable[[int], torch.Tensor]) -> None:
    def work(mode: Mode, rank: int, size: int) -> Tensors:
        x = make(rank)
        mode(dist.all_reduce, x)
        return [x]

    row("all_reduce", form, lambda _, size: [sum(make(r) for r in range(size))])(work)


_shaped("empty", lambda r: data(r, 0))
_shaped("no dims", lambda r: data(r, 1)[0].clone())
_shaped("not contiguous", lambda r: spread(data(r, (3, 4))))
_shaped("transposed", lambda r: data(r, (3, 4)).t())
_shaped("complex, not contiguous", lambda r: spread(data(r, (2, 3), torch.complex64)))
_shaped("1 MiB", lambda r: data(r, 1 << 18))


@row("all_reduce", "requires grad", lambda _, size: [sum(data(r, 4) for r in range(size))])
def _requires_grad(mode: Mode, rank: int, size: int) -> Tensors:
    x = data(rank, 4).requires_grad_()
    with torch.no_grad():
        mode(dist.all_reduce, x)
    return [x.detach()]


@row(
    "all_reduce",
    "PREMUL_SUM",
    lambda _, size: [sum(data(r, 6) * 0.5 for r in range(size))],
)
def _premultiplied(mode: Mode, rank: int, size: int) -> Tensors:
    x = data(rank, 6)
    mode(dist.all_reduce, x, op=torch.distributed._make_nccl_premul_sum(0.5))
    return [x]


@row("all_reduce_coalesced", "two tensors")
def _coalesced(mode: Mode, rank: int, size: int) -> Tensors:
    xs = [data(rank, 3), data(rank + 5, 4)]
    mode(dist.all_reduce_coalesced, xs)
    return xs


@row("reduce", "each root", lambda rank, size: _reduced(rank, size))
def _reduce(mode: Mode, rank: int, size: int) -> Tensors:
    out = []
    for root in range(size):
        x = data(rank + root, 5)
        mode(dist.reduce, x, root)
        out.append(x)
    return out


def _reduced(rank: int, size: int) -> Tensors:
    """The root has the sum; collops leaves the others' tensors as they are."""
    return [
        sum(data(r + root, 5) for r in range(size)) if rank == root else data(rank + root, 5)
        for root in range(size)
    ]


def _maximum(rank: int, size: int) -> Tensors:
    return [fold("MAX", [data(r, (2, 3)) for r in range(size)])] if rank == size - 1 else []


@row("reduce", "MAX, not contiguous", _maximum)
def _reduce_max(mode: Mode, rank: int, size: int) -> Tensors:
    x = spread(data(rank, (2, 3)))
    mode(dist.reduce, x, size - 1, op=ReduceOp.MAX)
    return [x] if rank == size - 1 else []


def _scattered(
    op: str, sizes: Callable[[int], list[int]], dtype: torch.dtype
) -> tuple[Work, Expected]:
    def parts_of(rank: int, size: int) -> list[torch.Tensor]:
        return [data(rank + 2 * r, n, dtype) for r, n in enumerate(sizes(size))]

    def work(mode: Mode, rank: int, size: int) -> Tensors:
        out = poison(sizes(size)[rank], dtype)
        mode(dist.reduce_scatter, out, parts_of(rank, size), op=getattr(ReduceOp, op))
        return [out]

    def expected(rank: int, size: int) -> Tensors:
        return [fold(op, [parts_of(r, size)[rank] for r in range(size)])]

    return work, expected


for name, sizes in {
    "even": lambda size: [3] * size,
    "uneven": lambda size: [2 + r for r in range(size)],
    "with empty ones": lambda size: [5 * (r % 2) for r in range(size)],
}.items():
    for op, dtype in [
        ("SUM", torch.float32),
        ("MAX", torch.int8),
        ("AVG", torch.int32),
        ("SUM", torch.complex64),
        ("MIN", torch.bool),
    ]:
        work, expected = _scattered(op, sizes, dtype)
        row("reduce_scatter", f"{name}, {op} {str(dtype)[6:]}", expected)(work)


@row(
    "reduce_scatter_tensor",
    "flat",
    lambda rank, size: [sum(data(r, 4 * size) for r in range(size)).view(size, 4)[rank]],
)
def _tensor(mode: Mode, rank: int, size: int) -> Tensors:
    out = poison(4)
    mode(reduce_scatter_single, out, data(rank, 4 * size))
    return [out]


@row(
    "reduce_scatter_tensor",
    "stacked, not contiguous, AVG",
    lambda rank, size: [sum(data(r, (size, 2, 3)) for r in range(size))[rank] / size],
)
def _stacked(mode: Mode, rank: int, size: int) -> Tensors:
    out = spread(poison((2, 3)))
    mode(reduce_scatter_single, out, spread(data(rank, (size, 2, 3))), op=ReduceOp.AVG)
    return [out]


@row(
    "reduce_scatter_tensor",
    "in place",
    lambda rank, size: [sum(data(r, (size, 4)) for r in range(size))[rank]],
)
def _in_place(mode: Mode, rank: int, size: int) -> Tensors:
    x = data(rank, (size, 4))
    mode(reduce_scatter_single, x[rank], x)
    return [x[rank]]


@row(
    "reduce_scatter_tensor",
    "into another rank's block",
    lambda rank, size: [sum(data(r, (size, 4)) for r in range(size))[rank]],
)
def _overlapping(mode: Mode, rank: int, size: int) -> Tensors:
    x = data(rank, (size, 4))
    out = x[(rank + 1) % size]
    mode(reduce_scatter_single, out, x)
    return [out]
