"""Calls of torch.ops.collops, and the same functions of all ranks' inputs in one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

Args = list[Any]  # of an operator, without the group's name

_SIZES = {2: [3, 0], 3: [2, 0, 3], 4: [1, 3, 0, 2]}
K, N = 3, 2
_BOTH = (True, False)


class Row(NamedTuple):
    """One call.

    Attributes:
        operator: its name.
        args: the arguments of a rank of P ranks.
        whole: the results of all ranks, from all ranks' arguments.
        title: what is special about it.
        known: whether the result's shape follows from the arguments.
        options: what follows the group's name, of P ranks.
    """

    operator: str
    args: Callable[[int, int], Args]
    whole: Callable[[list[Args]], list[torch.Tensor]]
    title: str = ""
    known: bool = True
    options: Callable[[int], tuple[Any, ...]] = lambda ranks: ()


def numbers(seed: int, *shape: int) -> torch.Tensor:
    """Small whole numbers, whose sums and products are exact in float32."""
    source = torch.Generator().manual_seed(seed)
    return torch.randint(-4, 5, shape, generator=source).float()


def blocks(total: int, parts: int) -> list[int]:
    """As numpy.array_split."""
    return [total // parts + (part < total % parts) for part in range(parts)]


def sends(rank: int, ranks: int) -> list[int]:
    return [(rank + 2 * to) % 3 for to in range(ranks)]


def receives(rank: int, ranks: int) -> list[int]:
    return [sends(source, ranks)[rank] for source in range(ranks)]


def _gather(dim: int, sized: bool) -> Row:
    def args(rank: int, ranks: int) -> Args:
        shape = [2, 2]
        shape[dim] = _SIZES[ranks][rank]
        return [numbers(rank, *shape), _SIZES[ranks] if sized else None, dim]

    def whole(all_args: list[Args]) -> list[torch.Tensor]:
        return [torch.cat([x for x, *_ in all_args], dim)] * len(all_args)

    return Row("all_gatherv", args, whole, f"dim {dim}, sized {sized}", sized)


def _scatter(dim: int, sized: bool, op: str) -> Row:
    def args(rank: int, ranks: int) -> Args:
        shape = [2, 2]
        shape[dim] = sum(_SIZES[ranks])
        return [numbers(rank, *shape), _SIZES[ranks] if sized else None, dim, op]

    def whole(all_args: list[Args]) -> list[torch.Tensor]:
        ranks = len(all_args)
        total = sum(x for x, *_ in all_args)
        total = total / ranks if op == "avg" else total
        return list(total.split(_SIZES[ranks] if sized else blocks(total.shape[dim], ranks), dim))

    return Row("reduce_scatterv", args, whole, f"dim {dim}, sized {sized}, {op}")


def _exchange(sized: bool) -> Row:
    def args(rank: int, ranks: int) -> Args:
        own = sends(rank, ranks)
        return [numbers(rank, sum(own), 2), own, receives(rank, ranks) if sized else None]

    def whole(all_args: list[Args]) -> list[torch.Tensor]:
        parts = [x.split(own) for x, own, _ in all_args]
        return [torch.cat([part[to] for part in parts]) for to in range(len(all_args))]

    return Row("all_to_allv", args, whole, f"sized {sized}", sized)


def _reduce(op: str) -> Row:
    def whole(all_args: list[Args]) -> list[torch.Tensor]:
        total = sum(x for x, _ in all_args)
        return [total / len(all_args) if op == "avg" else total] * len(all_args)

    return Row("all_reduce", lambda rank, _: [numbers(rank, 3, 2), op], whole, op)


def _weight(rank: int, trans: bool) -> torch.Tensor:
    return numbers(10 + rank, *((N, K) if trans else (K, N)))


def _product(x: torch.Tensor, weight: torch.Tensor, trans: bool) -> torch.Tensor:
    return x @ (weight.T if trans else weight)


def _gather_matmul(inner: tuple[int, ...], even: bool, trans: bool) -> Row:
    def args(rank: int, ranks: int) -> Args:
        rows = [2] * ranks if even else _SIZES[ranks]
        x = numbers(rank, rows[rank], *inner, K)
        return [x, _weight(rank, trans), numbers(20 + rank, N), rows, trans]

    def whole(all_args: list[Args]) -> list[torch.Tensor]:
        x = torch.cat([own[0] for own in all_args])
        return [_product(x, weight, trans) + bias for _, weight, bias, *_ in all_args]

    return Row("all_gather_matmul", args, whole, f"{inner}, even {even}, trans {trans}")


def _matmul_scatter(lead: tuple[int, ...], op: str, sized: bool, trans: bool) -> Row:
    """`lead`: the dims before the rows, (1,) for one matrix; (2,): two are shared out."""

    def sizes(ranks: int) -> list[int]:
        # One matrix may not have 0 rows.
        return list(range(1, ranks + 1)) if lead == (1,) else _SIZES[ranks]

    def args(rank: int, ranks: int) -> Args:
        rows = sizes(ranks) if sized else None
        x = numbers(rank, *lead, sum(sizes(ranks)), K)
        if lead == (2,):
            x = x.transpose(0, 1).contiguous()  # as many matrices as rows are shared out
        return [x, _weight(rank, trans), numbers(20 + rank, 1, N), op, rows, trans]

    def whole(all_args: list[Args]) -> list[torch.Tensor]:
        ranks, dim = len(all_args), 1 if lead == (1,) else 0
        total = sum(_product(own[0], own[1], trans) for own in all_args)
        total = total / ranks if op == "avg" else total
        parts = total.split(sizes(ranks) if sized else blocks(total.shape[dim], ranks), dim)
        return [part + own[2] for part, own in zip(parts, all_args, strict=True)]

    title = f"{lead}, {op}, sized {sized}, trans {trans}"
    return Row("matmul_reduce_scatter", args, whole, title)


def _exchanged(first: bool, trans: bool) -> Row:
    """all_to_all_matmul, or matmul_all_to_all."""

    def args(rank: int, ranks: int) -> Args:
        (rows, k), n = ((2 * ranks, K * ranks), N) if first else ((2, K), N * ranks)
        weight = numbers(10 + rank, *((n, k) if trans else (k, n)))
        return [numbers(rank, rows, K), weight, numbers(20 + rank, N), trans]

    def whole(all_args: list[Args]) -> list[torch.Tensor]:
        every = range(len(all_args))
        if first:
            blocks_of = [own[0].split(2) for own in all_args]
            xs = [torch.cat([blocks_of[q][r] for q in every], 1) for r in every]
            products = [_product(x, own[1], trans) for x, own in zip(xs, all_args, strict=True)]
        else:
            parts = [_product(own[0], own[1], trans).split(N, 1) for own in all_args]
            products = [torch.cat([parts[q][r] for q in every]) for r in every]
        return [product + own[2] for product, own in zip(products, all_args, strict=True)]

    name = "all_to_all_matmul" if first else "matmul_all_to_all"
    return Row(name, args, whole, f"trans {trans}")


def _grouped(back: bool, told: bool, trans: bool) -> Row:
    """A grouped product, to two experts of each rank, of which some have no rows, or back."""

    def table(rank: int, ranks: int) -> torch.Tensor:
        return torch.tensor([[(rank + 2 * to + e) % 3 for e in (0, 1)] for to in range(ranks)])

    def args(rank: int, ranks: int) -> Args:
        sent = table(rank, ranks)
        received = torch.stack([table(source, ranks)[rank] for source in range(ranks)])
        weight = numbers(10 + rank, 2, *((N, K) if trans else (K, N)))
        x = numbers(rank, int((received if back else sent).sum()), K)
        counts = [sent, None if told else received]
        more = [numbers(20 + rank, N), trans, None, None, None]
        return [x, weight, *counts, *more, *([] if back else [None])]

    def whole(all_args: list[Args]) -> list[torch.Tensor]:
        ranks = len(all_args)
        tables = [own[2] for own in all_args]
        sent = [[(s, d, e) for d in range(ranks) for e in (0, 1)] for s in range(ranks)]
        received = [[(s, d, e) for e in (0, 1) for s in range(ranks)] for d in range(ranks)]
        here, there = (received, sent) if back else (sent, received)
        made = {}
        for own, blocks_of in zip(all_args, here, strict=True):
            rows = own[0].split([int(tables[s][d, e]) for s, d, e in blocks_of])
            for (s, d, e), part in zip(blocks_of, rows, strict=True):
                made[s, d, e] = _product(part, all_args[d][1][e], trans)
        results = [torch.cat([made[one] for one in blocks_of]) for blocks_of in there]
        return [result + own[4] for result, own in zip(results, all_args, strict=True)]

    name = "grouped_matmul_all_to_allv" if back else "all_to_allv_grouped_matmul"
    return Row(name, args, whole, f"told {told}, trans {trans}", known=False)


def _matmul_reduce(lead: tuple[int, ...], trans: bool) -> Row:
    def args(rank: int, ranks: int) -> Args:
        return [numbers(rank, *lead, 4, K), _weight(rank, trans), numbers(20, N), trans]

    def whole(all_args: list[Args]) -> list[torch.Tensor]:
        total = sum(_product(own[0], own[1], trans) for own in all_args)
        return [total + own[2] for own in all_args]

    return Row("matmul_all_reduce", args, whole, f"{lead}, trans {trans}")


def members(rank: int, ag_dim: int, rs_dim: int, inner_is_ag: bool) -> tuple[list[int], list[int]]:
    """The ranks of a rank's gather group and of its scatter group."""
    grid = torch.arange(ag_dim * rs_dim).reshape(
        (rs_dim, ag_dim) if inner_is_ag else (ag_dim, rs_dim)
    )
    row, column = ((int(i[0])) for i in torch.where(grid == rank))
    neighbours, others = grid[row].tolist(), grid[:, column].tolist()
    return (neighbours, others) if inner_is_ag else (others, neighbours)


def grid_row(grid: tuple[int, int, bool], sized: bool, inner: tuple[int, ...] = ()) -> Row:
    """all_gather_matmul_reduce_scatter on a grid of ranks."""
    ag_dim, rs_dim, _ = grid

    def args(rank: int, ranks: int) -> Args:
        gathering, _ = members(rank, *grid)
        gather_rows = list(range(1, ag_dim + 1)) if sized else [2] * ag_dim
        scatter_rows = [sum(gather_rows), *[0] * (rs_dim - 1)] if sized else None
        x = numbers(rank, gather_rows[gathering.index(rank)], *inner, K)
        tensors = [x, _weight(rank, True), numbers(20 + rank, N)]
        return [*tensors, *grid, gather_rows, scatter_rows, True]

    def whole(all_args: list[Args]) -> list[torch.Tensor]:
        gathered = [
            torch.cat([all_args[q][0] for q in members(rank, *grid)[0]])
            for rank in range(len(all_args))
        ]
        products = [_product(x, own[1], True) for x, own in zip(gathered, all_args, strict=True)]
        results = []
        for rank, own in enumerate(all_args):
            group = members(rank, *grid)[1]
            total = sum(products[q] for q in group)
            parts = total.split(own[7] or blocks(total.shape[0], rs_dim))
            results.append(parts[group.index(rank)] + own[2])
        return results

    title = f"{grid}, sized {sized}, {inner}"
    return Row("all_gather_matmul_reduce_scatter", args, whole, title)


def _alone(lead: tuple[int, ...], trans: bool) -> Row:
    def args(rank: int, ranks: int) -> Args:
        return [numbers(rank, *lead, 4, K), _weight(rank, trans), numbers(20 + rank, N), trans]

    def whole(all_args: list[Args]) -> list[torch.Tensor]:
        return [_product(x, weight, trans) + bias for x, weight, bias, _ in all_args]

    return Row("matmul", args, whole, f"{lead}, trans {trans}")


def _in_leaves(row: Row, *columns: int) -> Row:
    """A leaf for each rank; `columns`: of a rank where the ranks add up."""

    def options(ranks: int) -> tuple[Any, ...]:
        return ranks, *([count] * ranks if count else None for count in columns)

    return row._replace(options=options, title=f"{row.title}, leaves {columns}")


ROWS = [
    *[_gather(dim, sized) for dim in (0, 1) for sized in (True, False)],
    *[_scatter(0, sized, op) for sized in (True, False) for op in ("sum", "avg")],
    _scatter(1, True, "sum"),
    _scatter(-1, False, "sum"),
    _exchange(True),
    _exchange(False),
    _reduce("sum"),
    _reduce("avg"),
    _gather_matmul((), False, False),
    _gather_matmul((), True, True),
    _gather_matmul((2,), False, True),
    _matmul_scatter((), "sum", True, False),
    _matmul_scatter((), "avg", False, True),
    _matmul_scatter((1,), "sum", True, True),
    _matmul_scatter((1,), "sum", False, False),
    _matmul_scatter((2,), "sum", True, False),
    _matmul_reduce((), False),
    _matmul_reduce((2,), True),
    _alone((), False),
    _alone((2,), True),
    *[_in_leaves(_alone((), trans)) for trans in _BOTH],
    *[_in_leaves(_gather_matmul((), False, trans)) for trans in _BOTH],
    *[_in_leaves(_matmul_scatter((), "sum", True, trans), K * trans) for trans in _BOTH],
    _in_leaves(_matmul_scatter((1,), "sum", False, trans=True), 0),
    *[_in_leaves(_matmul_reduce((), trans), K * trans) for trans in _BOTH],
    *[_exchanged(first, trans) for first in _BOTH for trans in _BOTH],
    *[_grouped(back, told=back == trans, trans=trans) for back in _BOTH for trans in _BOTH],
]


def rows_for(ranks: int) -> list[Row]:
    """The rows of a number of ranks."""
    if ranks == 4:  # the only real grid
        grids = [(2, 2, inner_is_ag) for inner_is_ag in (True, False)]
        return [
            *[grid_row(grid, sized) for grid in grids for sized in (True, False)],
            grid_row((2, 2, False), True, (2,)),
            grid_row((2, 2, False), sized=True)._replace(
                options=lambda _: (2, [K, K]), title="leaves on a grid"
            ),
        ]
    grids = [(ranks, 1, True), (1, ranks, False)]
    return ROWS + [grid_row(grid, sized) for grid in grids for sized in (True, False)]
