"""Collective calls that move data and reduce nothing."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist

from collops.torch.collective_calls import all_gather_single
from tests.torch.calls.call_table import Mode, Tensors, data, poison, row, spread

DTYPES = [
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8),
    *(torch.int16, torch.int32, torch.int64, torch.bool, torch.complex64, torch.complex128),
    *(torch.float8_e4m3fn, torch.uint16),
]
EVEN: Callable[[int], list[int]] = lambda size: [3] * size  # noqa: E731
UNEVEN: Callable[[int], list[int]] = lambda size: [2 + r for r in range(size)]  # noqa: E731
EMPTY: Callable[[int], list[int]] = lambda size: [4 * (r % 2) for r in range(size)]  # noqa: E731


def _all_gather(form: str, dtype: torch.dtype, sizes: Callable[[int], list[int]]) -> None:
    def work(mode: Mode, rank: int, size: int) -> Tensors:
        outs = [poison(n, dtype) for n in sizes(size)]
        mode(dist.all_gather, outs, data(rank, sizes(size)[rank], dtype))
        return outs

    row(
        "all_gather",
        f"{form}, {str(dtype)[6:]}",
        lambda _, size: [data(r, n, dtype) for r, n in enumerate(sizes(size))],
    )(work)


for dtype in DTYPES:
    _all_gather("even", dtype, EVEN)
for dtype in (torch.float32, torch.bool, torch.complex64, torch.float8_e4m3fn):
    _all_gather("uneven", dtype, UNEVEN)
    _all_gather("with empty ones", dtype, EMPTY)


@row(
    "all_gather", "into parts of one tensor", lambda _, size: [data(r, (2, 3)) for r in range(size)]
)
def _parts(mode: Mode, rank: int, size: int) -> Tensors:
    whole = poison((size, 2, 3))
    mode(dist.all_gather, list(whole.unbind()), data(rank, (2, 3)))
    return list(whole)


@row("all_gather", "not contiguous", lambda _, size: [data(r, (2, 3)) for r in range(size)])
def _spread(mode: Mode, rank: int, size: int) -> Tensors:
    outs = [spread(poison((2, 3))) for _ in range(size)]
    mode(dist.all_gather, outs, spread(data(rank, (2, 3))))
    return outs


@row("all_gather", "from its own part", lambda _, size: [data(r, 3) for r in range(size)])
def _own_part(mode: Mode, rank: int, size: int) -> Tensors:
    whole = poison((size, 3))
    whole[rank] = data(rank, 3)
    mode(dist.all_gather, list(whole), whole[rank])
    return list(whole)


@row(
    "all_gather_into_tensor", "flat", lambda _, size: [torch.cat([data(r, 3) for r in range(size)])]
)
def _flat(mode: Mode, rank: int, size: int) -> Tensors:
    out = poison(3 * size)
    mode(all_gather_single, out, data(rank, 3))
    return [out]


@row(
    "all_gather_into_tensor",
    "stacked, complex",
    lambda _, size: [torch.stack([data(r, (2, 3), torch.complex64) for r in range(size)])],
)
def _stack(mode: Mode, rank: int, size: int) -> Tensors:
    out = poison((size, 2, 3), torch.complex64)
    mode(all_gather_single, out, data(rank, (2, 3), torch.complex64))
    return [out]


@row(
    "all_gather_into_tensor",
    "not contiguous, bool",
    lambda _, size: [torch.stack([data(r, (2, 3), torch.bool) for r in range(size)])],
)
def _stack_spread(mode: Mode, rank: int, size: int) -> Tensors:
    out = spread(poison((size, 2, 3), torch.bool))
    mode(all_gather_single, out, spread(data(rank, (2, 3), torch.bool)))
    return [out]


@row(
    "all_gather_into_tensor",
    "in place",
    lambda _, size: [torch.stack([data(r, 4) for r in range(size)])],
)
def _gather_in_place(mode: Mode, rank: int, size: int) -> Tensors:
    out = poison((size, 4))
    out[rank] = data(rank, 4)
    mode(all_gather_single, out, out[rank])
    return [out]


@row("all_gather_coalesced", "two tensors")
def _coalesced(mode: Mode, rank: int, size: int) -> Tensors:
    outs = [[poison(2), poison((1, 3))] for _ in range(size)]
    mode(dist.all_gather_coalesced, outs, [data(rank, 2), data(rank + 7, (1, 3))])
    return [x for parts in outs for x in parts]


@row("broadcast", "each root", lambda _, size: [data(root, 5) for root in range(size)])
def _broadcast(mode: Mode, rank: int, size: int) -> Tensors:
    out = []
    for root in range(size):
        x = data(rank, 5) if rank == root else poison(5)
        mode(dist.broadcast, x, root)
        out.append(x)
    return out


for dtype in DTYPES:

    def _typed(mode: Mode, rank: int, size: int, dtype: torch.dtype = dtype) -> Tensors:
        x = spread(data(rank, 5, dtype) if rank == 0 else poison(5, dtype))
        mode(dist.broadcast, x, 0)
        return [x]

    row(
        "broadcast",
        f"not contiguous, {str(dtype)[6:]}",
        lambda *_, dtype=dtype: [data(0, 5, dtype)],
    )(_typed)


for form, sizes in {"even": EVEN, "uneven": UNEVEN, "with empty ones": EMPTY}.items():

    def _gather(mode: Mode, rank: int, size: int, sizes=sizes) -> Tensors:
        out = []
        for root in range(size):
            outs = (
                [spread(poison((n, 2), torch.int64)) for n in sizes(size)] if rank == root else None
            )
            mode(dist.gather, data(rank + root, (sizes(size)[rank], 2), torch.int64), outs, root)
            out += outs or []
        return out

    def _gathered(rank: int, size: int, sizes=sizes) -> Tensors:
        return [data(r + rank, (n, 2), torch.int64) for r, n in enumerate(sizes(size))]

    row("gather", form, _gathered)(_gather)

    def _scatter(mode: Mode, rank: int, size: int, sizes=sizes) -> Tensors:
        out = []
        for root in range(size):
            out.append(poison((sizes(size)[rank], 2), torch.bool))
            parts = [spread(data(root + r, (n, 2), torch.bool)) for r, n in enumerate(sizes(size))]
            mode(dist.scatter, out[-1], parts if rank == root else None, root)
        return out

    def _scattered(rank: int, size: int, sizes=sizes) -> Tensors:
        return [data(root + rank, (sizes(size)[rank], 2), torch.bool) for root in range(size)]

    row("scatter", form, _scattered)(_scatter)


def _rows_for(source: int, target: int) -> int:
    """Rows that a rank sends to another; 0 for some."""
    return (source + 2 * target) % 3


@row(
    "all_to_all_single",
    "even, complex",
    lambda rank, size: [
        torch.cat([data(r, (size, 2), torch.complex64)[rank : rank + 1] for r in range(size)])
    ],
)
def _even_exchange(mode: Mode, rank: int, size: int) -> Tensors:
    out = poison((size, 2), torch.complex64)
    mode(dist.all_to_all_single, out, data(rank, (size, 2), torch.complex64))
    return [out]


def _exchanged(rank: int, size: int) -> Tensors:
    blocks = []
    for source in range(size):
        sends = [_rows_for(source, target) for target in range(size)]
        blocks.append(data(source, (sum(sends), 3)).split(sends)[rank])
    return [torch.cat(blocks)]


@row("all_to_all_single", "uneven, with empty ones", _exchanged)
def _exchange(mode: Mode, rank: int, size: int) -> Tensors:
    sends = [_rows_for(rank, target) for target in range(size)]
    receives = [_rows_for(source, rank) for source in range(size)]
    out = poison((sum(receives), 3))
    mode(dist.all_to_all_single, out, data(rank, (sum(sends), 3)), receives, sends)
    return [out]


@row("all_to_all_single", "not contiguous", _exchanged)
def _exchange_spread(mode: Mode, rank: int, size: int) -> Tensors:
    sends = [_rows_for(rank, target) for target in range(size)]
    receives = [_rows_for(source, rank) for source in range(size)]
    out = spread(poison((sum(receives), 3)))
    mode(dist.all_to_all_single, out, spread(data(rank, (sum(sends), 3))), receives, sends)
    return [out]


@row(
    "all_to_all",
    "uneven",
    lambda rank, size: [data(s + 4 * rank, _rows_for(s, rank) + 1) for s in range(size)],
)
def _lists(mode: Mode, rank: int, size: int) -> Tensors:
    outs = [poison(_rows_for(source, rank) + 1) for source in range(size)]
    sends = [data(rank + 4 * target, _rows_for(rank, target) + 1) for target in range(size)]
    mode(dist.all_to_all, outs, sends)
    return outs


@row("barrier", "", lambda *_: [])
def _barrier(mode: Mode, rank: int, size: int) -> Tensors:
    mode(dist.barrier)
    return []


@row(
    "all_gather",
    "from another rank's part",
    lambda _, size: [data(r, 3) for r in range(size)],
)
def _other_part(mode: Mode, rank: int, size: int) -> Tensors:
    whole = poison((size, 3))
    whole[(rank + 1) % size] = data(rank, 3)
    mode(dist.all_gather, list(whole), whole[(rank + 1) % size])
    return list(whole)


@row("broadcast", "into a negative view", lambda *_: [data(0, 3, torch.complex64).imag.neg()])
def _negative(mode: Mode, rank: int, size: int) -> Tensors:
    x = (data(0, 3, torch.complex64) if rank == 0 else poison(3, torch.complex64)).conj().imag
    assert x.is_neg()
    mode(dist.broadcast, x, 0)
    return [x.resolve_neg()]


@row(
    "gather",
    "the root's own part of one tensor",
    lambda rank, size: [data(r, 4) for r in range(size)] if rank == 0 else [],
)
def _gather_own_part(mode: Mode, rank: int, size: int) -> Tensors:
    whole = poison((size, 4))
    whole[rank] = data(rank, 4)
    mode(dist.gather, whole[rank], list(whole) if rank == 0 else None, 0)
    return list(whole) if rank == 0 else []


def _of_the_root(rank: int, size: int) -> list[torch.Tensor]:
    whole = torch.stack([data(r, (2, 3)) for r in range(size)])
    return [whole] if rank == size - 1 else []


@row("gather_single", "stacked", _of_the_root, since="2.14")
def _gather_stacked(mode: Mode, rank: int, size: int) -> Tensors:
    out = poison((size, 2, 3)) if rank == size - 1 else None
    mode(dist.gather_single, data(rank, (2, 3)), out, size - 1)
    return [] if out is None else [out]


@row("gather_single", "of another shape", _of_the_root, since="2.14")
def _gather_shaped(mode: Mode, rank: int, size: int) -> Tensors:
    out = poison((1, size * 6)) if rank == size - 1 else None
    mode(dist.gather_into_tensor, data(rank, (2, 3)), out, size - 1)
    return [] if out is None else [out.view(size, 2, 3)]


@row(
    "all_to_all_single",
    "in place",
    lambda rank, size: [torch.stack([data(r, (size, 4))[rank] for r in range(size)])],
)
def _exchange_in_place(mode: Mode, rank: int, size: int) -> Tensors:
    x = data(rank, (size, 4))
    mode(dist.all_to_all_single, x, x)
    return [x]
