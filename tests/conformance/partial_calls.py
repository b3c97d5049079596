"""all_reduce and reduce_scatterv of partial sums: one result, however the ranks hold them."""

from __future__ import annotations

from functools import cache
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
from collops.golden.data import fill
from collops.golden.data.dtypes import REDUCE_DTYPES
from collops.golden.data.leaves import cut_evenly
from collops.golden.data.reduction import add_leaves

import collops
from tests.conformance.operator_runs import Outputs
from tests.conformance.runs import Run, as_real

# What devices add.
DEVICE_DTYPES = ("float32", "float16", "bfloat16")


class Partials(NamedTuple):
    """The partial sums of all ranks, [rows, 3] each."""

    gathers: bool  # all_reduce; else reduce_scatterv
    dtype: str
    ranks: int
    leaves: int
    counts: tuple[int, ...] = ()  # of each rank's leaves; empty: cut evenly, and not told
    rows: int = 5
    sizes: tuple[int, ...] = ()  # of reduce_scatterv; empty: not given

    @property
    def id(self) -> str:
        return str(tuple(self))

    @property
    def begins(self) -> list[int]:
        """The first leaf of each rank, and the number of all."""
        if self.counts:
            return list(accumulate(self.counts, initial=0))
        return cut_evenly(self.leaves, self.ranks)

    @property
    def blocks(self) -> list[int]:
        """Where each rank's rows begin, and their number."""
        if self.sizes:
            return list(accumulate(self.sizes, initial=0))
        return cut_evenly(self.rows, self.ranks)


@cache
def leaf(dtype: str, rows: int, number: int) -> Any:
    return fill((rows, 3), dtype, number, seed=39, kind="random")


@cache
def total(dtype: str, rows: int, leaves: int) -> Any:
    return add_leaves([leaf(dtype, rows, number) for number in range(leaves)], dtype)


def counts_of(ranks: int) -> list[tuple[int, ...]]:
    """Uneven numbers of leaves: roots of several sizes, and ranks without any."""
    uneven = tuple((5, 2, 0, 3, 1, 6, 4)[rank % 7] for rank in range(ranks))
    last = (*(0 for _ in range(ranks - 1)), 6)
    return [uneven, uneven[::-1], last]


def cases(gathers: bool, run: Run) -> list[Partials]:
    ranks = run.ranks
    dtypes = DEVICE_DTYPES if run.on_device else REDUCE_DTYPES
    one = Partials(gathers, "float32", ranks, 2 * ranks + 1)
    sizes = tuple((rank + 1) % 3 * 4 for rank in range(ranks))
    more = [one._replace(sizes=sizes, rows=sum(sizes), dtype=dtype) for dtype in dtypes]
    return [
        *(one._replace(dtype=dtype) for dtype in dtypes),
        *(one._replace(leaves=leaves) for leaves in (1, ranks, 16, 23)),
        *(one._replace(leaves=ranks, dtype=dtype, rows=40) for dtype in dtypes),
        *(
            one._replace(counts=counts, leaves=sum(counts), dtype=dtype, rows=rows)
            for counts in counts_of(ranks)
            for dtype in DEVICE_DTYPES
            for rows in (0, 1, 49)
        ),
        *(one._replace(leaves=8, rows=70_000, dtype=dtype) for dtype in ("float32", "bfloat16")),
        *([] if gathers else more),
    ]


def wanted(case: Partials, run: Run) -> Outputs:
    whole = total(case.dtype, case.rows, case.leaves)
    if case.gathers:
        outs = [whole] * case.ranks
    else:
        outs = [whole[begin:end] for begin, end in pairwise(case.blocks)]
    return [[out] if run.on_device else [out, out] for out in outs]


def add(comm: collops.Communicator, case: Partials, run: Run) -> list[Any]:
    """With memory for the result, with a partial as memory, and without."""
    first, end = case.begins[comm.rank : comm.rank + 2]
    given = [
        run.place(comm, as_real(leaf(case.dtype, case.rows, number), case.dtype))
        for number in range(first, end)
    ]
    before = [run.values(partial).tobytes() for partial in given]
    words: dict[str, Any] = {"leaves": case.leaves}
    words |= {"leaf_begin": first} if case.counts else {}
    begin, stop = (0, case.rows) if case.gathers else case.blocks[comm.rank : comm.rank + 2]
    if case.gathers:
        call = comm.all_reduce
    else:
        call = comm.reduce_scatterv
        sizes = [b - a for a, b in pairwise(case.blocks)]
        # Those of an empty list must be told, and then all ranks tell them.
        words |= {"sizes": sizes} if case.sizes or 0 in np.diff(case.begins) else {}
    like = as_real(leaf(case.dtype, case.rows, 0), case.dtype)
    out = run.poisoned(comm, (stop - begin, 3), like.dtype)
    run.enter()
    assert call(partials=given, out=out, **words) is out
    assert [run.values(partial).tobytes() for partial in given] == before, "an input was changed"
    outs = [run.values(out)]
    if run.on_device:
        return outs
    memory = given[-1][begin:stop] if given else run.poisoned(comm, out.shape, out.dtype)
    assert call(partials=given, out=memory, **words) is memory
    return [*outs, memory]
