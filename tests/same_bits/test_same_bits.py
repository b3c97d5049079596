"""One product with leaves has the same bits, whoever computes which part of it, and with what.

Whole matrices are cut for the ranks, every way must give golden's product of one rank.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from collops.golden.data.leaves import cut_evenly
from collops.golden.operators.linear_parallel.groups import LinearParallel
from collops.golden.operators.linear_parallel.quantised import Scales
from collops.golden.operators.linear_parallel.reference import linear_parallel

import collops
from collops.testing import run_ranks
from patience import patience
from tests.same_bits.ways import Way, chosen_ways, cut

LEAVES = 24
ROWS = 13
N = 24  # every rank that gathers has as many columns
NUMPY = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
METHODS = (
    "matmul_all_reduce",
    "matmul_reduce_scatter",
    "all_gather_matmul",
    "matmul",
    "all_gather_matmul_reduce_scatter",
)
QUANT = {"float": -1, "W8A16": 1, "W8A8": 1}


class Whole(NamedTuple):
    """The tensors of a product that is cut for the ranks; the weight is [k, n]."""

    x: Any
    weight: Any
    residual: Any
    scale: Any
    bias: Any
    x_scale: Any

    @property
    def k(self) -> int:
        return int(self.x.shape[1])


@cache
def whole(dtype: str, quant: str, columns: str) -> Whole:
    """Numbers of all sizes, so that another order of a sum gives other bits."""
    make = np.random.default_rng([len(dtype), len(quant), len(columns)])
    k = 5 * LEAVES + (7 if columns == "uneven" else 0)

    def numbers(*shape: int) -> Any:
        exponents = make.integers(-6, 6, shape)
        return np.ldexp(make.standard_normal(shape), exponents).astype(np.float32)

    def bytes_of(*shape: int) -> Any:
        return make.integers(-128, 128, shape, np.int8)

    kind = NUMPY[dtype]
    is_int8 = quant == "W8A8"
    bias = make.integers(-999, 999, N, np.int32) if is_int8 else numbers(N).astype(kind)
    return Whole(
        bytes_of(ROWS, k) if is_int8 else numbers(ROWS, k).astype(kind),
        numbers(k, N).astype(kind) if quant == "float" else bytes_of(k, N),
        numbers(N).astype(kind),
        numbers(N) if is_int8 else numbers(N).astype(kind),
        bias,
        numbers(ROWS) if is_int8 else None,
    )


@cache
def wanted(dtype: str, quant: str, columns: str) -> Any:
    """Golden's product of one rank, as bits."""
    tensors = whole(dtype, quant, columns)
    call = LinearParallel(
        0,
        1,
        trans_weight=False,
        has_residual=True,
        quant_type=QUANT[quant],
        out_dtype=dtype if quant == "W8A8" else "",
        sum_leaves=LEAVES,
    )

    def plain(array: Any) -> Any:
        return array.view(np.uint16) if array.dtype == ml_dtypes.bfloat16 else array

    scales = [Scales(plain(tensors.scale), plain(tensors.bias), tensors.x_scale)]
    [[out]] = linear_parallel(
        call,
        [plain(tensors.x)],
        [plain(tensors.weight)],
        [plain(tensors.residual)],
        scales=scales if quant != "float" else (),
    )
    return out.tobytes()


class Part(NamedTuple):
    """What a rank has: rows and columns of x, columns of the result, and where its result goes."""

    rows: slice
    columns: slice
    n: slice
    out_rows: slice
    lists: dict[str, Any]


def part_of(way: Way, rank: int, k: int) -> Part:
    """The part of one rank."""
    everything = slice(None)
    adds = {0: way.ranks, 1: way.ranks, 2: 1, 3: 1}.get(way.kind, grid(way)[1])
    gathers = {2: way.ranks, 3: way.ranks}.get(way.kind, grid(way)[0] if way.kind == 4 else 1)
    in_sum, in_gather = (rank // gathers, rank % gathers) if way.kind == 4 else (rank, rank)
    lists: dict[str, Any] = {"leaves": LEAVES}
    columns = everything
    if adds > 1:
        borders = cut_evenly(k, LEAVES)
        begins = [borders[leaf] for leaf in cut(LEAVES, adds, way.columns == "even")]
        columns = slice(begins[in_sum], begins[in_sum + 1])
        if way.columns == "uneven":
            lists["sum_columns"] = list(np.diff(begins))
    gathered = rows_of(way, gathers)
    scattered = rows_of(way, 1 if way.kind == 0 else adds)
    if way.kind in (2, 4):
        lists["gather_rows" if way.kind == 4 else "sizes"] = list(np.diff(gathered))
    if way.kind in (1, 4):
        lists["scatter_rows" if way.kind == 4 else "sizes"] = list(np.diff(scattered))
    n = everything
    if way.kind in (2, 4):
        widths = cut(N, gathers, evenly=True)
        n = slice(widths[in_gather], widths[in_gather + 1])
    rows = slice(gathered[in_gather], gathered[in_gather + 1]) if gathers > 1 else everything
    out_rows = rows if way.kind == 3 else everything
    if way.kind in (1, 4):
        out_rows = slice(scattered[in_sum], scattered[in_sum + 1])
    return Part(rows, columns, n, out_rows, lists)


def grid(way: Way) -> tuple[int, int]:
    """Ranks that gather, and ranks that add up, of type 4."""
    gathers = 2 if way.ranks % 2 == 0 else 1
    return gathers, way.ranks // gathers


def rows_of(way: Way, parts: int) -> list[int]:
    """Where the rows of each part begin, and the end."""
    if way.rows == "one row":  # all but a row are the last part's
        return [*(min(i, 1) for i in range(parts)), ROWS]
    return cut(ROWS, parts, way.rows == "even")


def compute(comm: collops.Communicator, way: Way) -> Any:
    """This rank's part of the whole result."""
    tensors = whole(way.dtype, way.quant, way.columns)
    part = part_of(way, comm.rank, tensors.k)
    weight = tensors.weight[part.columns, part.n]
    args: dict[str, Any] = {"residual": tensors.residual[part.n].copy(), **part.lists}
    if way.quant != "float":
        args["scale"] = tensors.scale[part.n].copy()
        args["bias"] = tensors.bias[part.n].copy()
    if way.quant == "W8A8":
        args["x_scale"] = tensors.x_scale[part.rows].copy()
        args["out_dtype"] = way.dtype
        if part.columns.start:  # the first leaf of all has the bias
            args["bias"][:] = 0
    if way.kind == 4:
        args |= dict(zip(("ag_dim", "rs_dim"), grid(way), strict=True))
    x = np.ascontiguousarray(tensors.x[part.rows, part.columns])
    weight = np.ascontiguousarray(weight.T if way.trans_weight else weight)
    return getattr(comm, METHODS[way.kind])(x, weight, trans_weight=way.trans_weight, **args)


def groups() -> Iterator[Any]:
    """Ways whose ranks are the same processes."""

    def key(way: Way) -> tuple[Any, ...]:
        return way.ranks, way.isa, way.num_threads

    for (ranks, isa, num_threads), ways in groupby(sorted(chosen_ways(), key=key), key):
        name = f"{ranks} ranks, {isa}, {num_threads} threads"
        yield pytest.param(ranks, isa, num_threads, list(ways), id=name)


@pytest.mark.parametrize(("ranks", "isa", "num_threads", "ways"), [*groups()])
def test_same_bits(ranks: int, isa: str, num_threads: int, ways: list[Way]) -> None:
    def work(rank: int) -> list[Any]:
        found = []
        comms = {name: collops.init(backend=name, comm_domain=name) for name in ("shm", "ucx")}
        for way in ways:
            os.environ["COLLOPS_FUSED"] = "0" if way.route == "in turn" else "1"
            found.append(compute(comms["ucx" if way.route == "ucx" else "shm"], way))
        for comm in comms.values():
            comm.barrier()
        return found

    environment = {"COLLOPS_ISA": isa, "COLLOPS_NUM_THREADS": str(num_threads)}
    parts = run_ranks(work, ranks, timeout=patience(60 + len(ways)), env=environment)
    wrong = []
    for number, way in enumerate(ways):
        out = np.full((ROWS, N), np.nan, NUMPY[way.dtype])
        k = whole(way.dtype, way.quant, way.columns).k
        for rank in range(ranks):
            part = part_of(way, rank, k)
            out[part.out_rows, part.n] = parts[rank][number]
        if out.tobytes() != wanted(way.dtype, way.quant, way.columns):
            wrong.append(way)
    assert not wrong, "\n".join(map(str, wrong))
