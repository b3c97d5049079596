"""The variants of LinearParallel: fused, pipeline, single calls, and the product alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import collops
from collops.bench.elements import Bits, exact_density
from collops.bench.measure import Maker, Run, Step, Variant
from collops.bench.operator import Point
from collops.bench.peers import NCCL
from collops.bench.shares import Group, share_rows
from collops.bench.variants import Variants
from collops.core import core

OWN = {
    "fused_window": "fused, x in a window",
    "fused": "fused, plain x",
    "packed": "fused, packed weight",
    "pipeline": "pipeline",
    "unfused": "unfused: gather, GEMM, scatter",
    "gemm": "GEMM alone",
    "gemm_packed": "GEMM alone, packed weight",
    "read": "weight read once",
    "peak": "arithmetic peak",
}
_LABELS = {
    **OWN,
    "mpi": "torch.matmul + MPI Allgatherv",
    "mpi_reduce_scatter": "torch.matmul + MPI Reduce_scatter",
    "mpi_alltoallv": "torch.matmul + MPI Alltoallv, add",
    "gloo_isend_irecv": "torch.matmul + gloo isend/irecv",
    "gloo_all_to_all": "torch.matmul + gloo all_to_all_single",
    NCCL: "collops on nccl",
    "torch": "torch.matmul alone",
    "numpy": "numpy.matmul alone",
}
# Behind the name of a variant: the number of leaves in which it sums.
LEAVES = " leaves "
_X, _WEIGHT = 0, 1
_PEAK_S = 0.02
_FIRST_ROUNDS = 20_000
_PROBE_ROWS = 64
# A product that takes longer than this, and more than this factor of the arithmetic, is left out.
_ALWAYS_S = 0.2
_MOST_TIMES = 6


@dataclass(frozen=True, kw_only=True)
class LinearPoint(Point):
    """A type on a grid of ranks, for one element type and one product."""

    type: int
    grid: tuple[int, int]  # ranks that gather from each other, ranks that add up
    shape: tuple[int, int, int]  # M, K, N of one rank's product, after gathering
    shares: tuple[int, ...]  # how rows are shared out in a group, repeated as needed

    @property
    def ranks(self) -> int:
        return self.grid[0] * self.grid[1]

    @property
    def title(self) -> str:
        shape = ",".join(map(str, self.shape))
        return f"type {self.type}, {self.grid[0]}x{self.grid[1]} ranks, {self.dtype}, {shape}"

    def describe(self) -> dict[str, Any]:
        gather, scatter = Groups.of(self, 0)
        return {
            "type": self.type,
            "dtype": self.dtype,
            "ranks": self.ranks,
            "grid": self.grid,
            "gather_rows": gather.rows,
            "scatter_rows": scatter.rows,
            **dict(zip("mkn", self.shape, strict=True)),
        }


class Groups(NamedTuple):
    """The two groups of one rank; the ranks of a gather group are neighbours."""

    gather: Group
    scatter: Group

    @staticmethod
    def of(point: LinearPoint, rank: int) -> Groups:
        """The groups of a rank in a point's grid."""
        num_gather, num_scatter = point.grid
        row, column = divmod(rank, num_gather)
        gather = tuple(row * num_gather + i for i in range(num_gather))
        scatter = tuple(column + i * num_gather for i in range(num_scatter))
        m = point.shape[0]
        return Groups(
            Group(gather, column, share_rows(m, num_gather, point.shares)),
            Group(scatter, row, share_rows(m, num_scatter, point.shares)),
        )


class LinearVariants(Variants):
    """Makes the variants of one point. All use one weight; each has its own x and result."""

    point: LinearPoint

    def __post_init__(self) -> None:
        super().__post_init__()
        self._communicators: tuple[Any, Any, Any] | None = None
        self.groups = Groups.of(self.point, self.work.rank)
        m, k, n = self.point.shape
        self.operations = 2 * m * k * n
        self._density = exact_density(self.point.dtype, k, self.groups.scatter.size)
        if self.place.backend:
            self.facts["backend"] = self.place.backend
        self.weight = self.element.matrix(n, k)
        self.element.fill(self.weight, (self.seed, self.work.rank, _WEIGHT), 2 / 3)

    def own(self, key: str) -> Variant:
        if key == "unfused":
            return self.by_calls(key, of_collops(self))
        others: dict[str, Maker] = {"read": self._read, "peak": self._peak}
        name, _, leaves = key.partition(LEAVES)
        make = self._gemm if name.startswith("gemm") else self._operator
        variant = others.get(key, partial(make, name, leaves=int(leaves or 0)))()
        if leaves:
            variant.key, variant.label = key, f"{variant.label}, {leaves} leaves"
        return variant

    def others(self) -> Iterator[tuple[str, Maker]]:
        if NCCL in self.peers.wanted and self.place.backend not in ("", NCCL):
            yield NCCL, partial(self._operator, NCCL, NCCL)
        if self.peers.torch is not None:
            slow = too_slow(self.most(self._expected_s()), self.most(self._least_s()))
            if slow:
                self.notes.append(f"{self.point.title}: no columns of torch: {slow}")
            else:
                for key, each in (*of_mpi(self), *of_gloo(self)):
                    yield key, partial(self.by_calls, key, each)
                if "torch" in self.peers.wanted:
                    yield "torch", partial(self._alone, "torch", self.by_torch)
        if "numpy" in self.peers.wanted and self.point.dtype == "f32":
            yield "numpy", partial(self._alone, "numpy", self._by_numpy)

    def _filled(self, x: Bits) -> Bits:
        self.element.fill(x, (self.seed, self.work.rank, _X), self._density)
        return x

    def _own_x(self, comm: Any = None) -> Bits:
        """This rank's rows of x, equal for every variant; in a window if `comm` is given."""
        rows, k = self.groups.gather.own_rows, self.point.shape[1]
        x = comm.empty((rows, k), self.element.bits) if comm else self.element.matrix(rows, k)
        return self._filled(x)

    def _own_result(self) -> Bits:
        return self.element.poisoned(self.groups.scatter.own_rows, self.point.shape[2])

    def communicators(self) -> tuple[Any, Any, Any]:
        """Of single calls: one of all ranks, and those of the two groups; made once."""
        if self._communicators is None:
            gather, scatter = self.groups
            comm = gather_comm = scatter_comm = self.connect()
            if self.point.type == 4:
                gather_comm = self.kept.enter_context(comm.split(scatter.index, gather.index))
                scatter_comm = self.kept.enter_context(comm.split(gather.index, scatter.index))
            self._communicators = comm, gather_comm, scatter_comm
        return self._communicators

    def planned(
        self,
        comm: Any,
        kind: Any,
        x: Bits,
        result: Bits,
        engine: str = "local",
        prepack: bool = False,
        leaves: int = 0,
    ) -> tuple[Run, int]:
        """A call of LinearParallel, and the bytes of its scratch memory, which is untouched."""
        gather, scatter = self.groups
        param = collops.LinearParallelParam(
            rank=comm.rank, rank_size=comm.size, type=kind, backend=comm.backend, hccl_comm=comm
        )
        param.sum_leaves = leaves
        grid = kind == collops.ParallelType.ALL_GATHER_LINEAR_REDUCE_SCATTER
        if kind != collops.ParallelType.PURE_LINEAR:
            param.gather_rows = list(gather.rows) if gather.size > 1 or grid else []
            param.scatter_rows = list(scatter.rows) if scatter.size > 1 or grid else []
        if grid:
            param.two_dim_tp_info.ag_dim = gather.size
            param.two_dim_tp_info.rs_dim = scatter.size
        # A GPU has one engine.
        operation = collops.Operation(param, engine=None if self.place.backend else engine)
        ins = [self.element.numbers(x), self.element.numbers(self.weight)]
        if prepack:
            operation.prepack(ins[1])
        return self.planned_call(operation, ins, result)

    def _operator(self, key: str, backend: str | None = None, leaves: int = 0) -> Variant:
        comm, kind = self.connect(backend), collops.ParallelType(self.point.type)
        in_window = key in ("fused_window", "packed")
        x, result = self._own_x(comm if in_window else None), self._own_result()
        engine = "pipeline" if key == "pipeline" else "windows"
        packed = key == "packed"
        run, scratch_bytes = self.planned(comm, kind, x, result, engine, packed, leaves)
        return Variant(key, _LABELS[key], [("all", run)], x, result, scratch_bytes)

    def by_calls(self, key: str, each: Calls) -> Variant:
        """The gather, the product and the scatter, one after the other."""
        m, k, n = self.point.shape
        x, result = self._own_x(), self._own_result()
        variant = Variant(key, _LABELS[key], [], x, result)
        rows = x
        if self.groups.gather.size > 1:
            rows = self.element.matrix(m, k)
            variant.steps.append(("gather", each.gather(x, rows)))
        product = result if self.groups.scatter.size == 1 else self.element.matrix(m, n)
        multiply, variant.scratch_bytes = each.multiply(rows, product)
        variant.steps.append(("gemm", multiply))
        if self.groups.scatter.size > 1:
            variant.steps += each.scatter(product, result)
        return variant

    def _alone(self, key: str, multiply: Multiply) -> Variant:
        """The product by another library, on all ranks at once."""
        m, k, n = self.point.shape
        x, product = self.element.matrix(m, k), self.element.matrix(m, n)
        self.element.fill(x, (1, self.work.rank), 2 / 3)
        return Variant(key, _LABELS[key], [("gemm", multiply(x, product)[0])], x)

    def by_torch(self, x: Bits, product: Bits) -> tuple[Run, int]:
        """The product by torch; it takes no scratch memory."""
        tensors = map(self.element.tensor, (x, self.weight, product))
        return self.peers.torch.matmul(*tensors), 0

    def _by_numpy(self, x: Bits, product: Bits) -> tuple[Run, int]:
        """The product by numpy and its BLAS, for float32 only."""
        a, b, out = (bits.view(np.float32) for bits in (x, self.weight, product))
        return lambda: np.matmul(a, b.T, out=out), 0

    def _gemm(self, key: str, leaves: int = 0) -> Variant:
        m, k, n = self.point.shape
        x, result = self._filled(self.element.matrix(m, k)), self.element.poisoned(m, n)
        alone = collops.ParallelType.PURE_LINEAR
        packed = key == "gemm_packed"
        comm = self.connect() if self.place.backend else self.work
        run, scratch_bytes = self.planned(comm, alone, x, result, prepack=packed, leaves=leaves)
        return Variant(key, _LABELS[key], [("gemm", run)], x, None, scratch_bytes)

    def _read(self) -> Variant:
        """Reads the weight once, by numpy's maximum, which is faster than its sums."""
        words = self.weight.reshape(-1)[: self.weight.size // 2 * 2].view(np.uint32)
        step = ("gemm", lambda: np.maximum.reduce(words, initial=0))
        return Variant("read", _LABELS["read"], [step])

    def _peak(self) -> Variant:
        run, number = core().run_arithmetic, core().DTYPES[self.element.name]
        rounds = int(self.most(self.operations / run(number, 1) * _PEAK_S / self._least_s()))
        step = ("gemm", lambda: run(number, rounds))
        return Variant("peak", _LABELS["peak"], [step], operations=run(number, 1) * rounds)

    def _least_s(self) -> float:
        """About the seconds that the arithmetic alone takes."""
        begin = time.perf_counter()
        operations = int(core().run_arithmetic(core().DTYPES[self.element.name], _FIRST_ROUNDS))
        return (time.perf_counter() - begin) * self.operations / operations

    def _expected_s(self) -> float:
        """The expected seconds of a product, from the time of a few rows."""
        m, k, n = self.point.shape
        rows = min(m, _PROBE_ROWS)
        run, _ = self.by_torch(self.element.matrix(rows, k), self.element.matrix(rows, n))
        run()
        begin = time.perf_counter()
        run()
        return (time.perf_counter() - begin) * m / rows


def too_slow(seconds: float, least_s: float) -> str:
    """Why a product is left out, or empty; `least_s` are the seconds of the arithmetic alone."""
    if seconds <= max(_ALWAYS_S, _MOST_TIMES * least_s):
        return ""
    times = f"{seconds / least_s:.0f} times what the arithmetic takes"
    return f"its product would take about {seconds:.1f} s, {times}"


# Takes a matrix and the memory of its product with the weight; returns a call and scratch bytes.
Multiply = Callable[[Bits, Bits], tuple[Run, int]]


class Calls(NamedTuple):
    """The calls of one variant; each takes a matrix to read and a matrix to write."""

    gather: Callable[[Bits, Bits], Run]
    multiply: Multiply
    scatter: Callable[[Bits, Bits], list[Step]]


def of_collops(own: LinearVariants) -> Calls:
    """collops' calls: of the plain level; on a GPU operators on the rank's stream."""
    (gather, scatter), numbers = own.groups, own.element.numbers
    comm, gather_comm, scatter_comm = own.communicators()

    def gathered(x: Bits, rows: Bits) -> Run:
        if own.place.backend:
            counts, starts, own_count, y = gather.vectors(rows.shape[1], rows.shape[0])
            ins = [numbers(x), own_count, counts, starts, y]
            return own.operation(gather_comm, collops.AllGatherVParam, ins, rows)
        return partial(gather_comm.all_gatherv, numbers(x), gather.rows, out=numbers(rows))

    def scattered(product: Bits, result: Bits) -> list[Step]:
        given, got = numbers(product), numbers(result)
        call: Run = partial(scatter_comm.reduce_scatterv, given, scatter.rows, out=got)
        if own.place.backend:
            ins = [given, *scatter.vectors(result.shape[1], result.shape[0])]
            call = own.operation(scatter_comm, collops.ReduceScatterVParam, ins, result)
        return [("scatter", call)]

    product = partial(own.planned, comm, collops.ParallelType.PURE_LINEAR)
    return Calls(gathered, product, scattered)


def of_mpi(own: LinearVariants) -> Iterator[tuple[str, Calls]]:
    """The variants of MPI for this point."""
    mpi = own.peers.mpi
    if mpi is None:
        return
    (gather, scatter), tensor = own.groups, own.element.tensor
    rows, sums = mpi.Members(scatter.index, gather), mpi.Members(gather.index, scatter)

    def exchange(given: Bits) -> tuple[Run, list[Any]]:
        step, parts = sums.exchange(given)
        return step, [tensor(part) for part in parts]

    def native(given: Bits, result: Bits) -> list[Step]:
        return [("scatter", sums.reduce_scatter(given, result))]

    if scatter.size > 1 and own.point.dtype == "f32":
        yield "mpi_reduce_scatter", Calls(rows.gather, own.by_torch, native)
    key = "mpi_alltoallv" if scatter.size > 1 else "mpi"
    yield key, Calls(rows.gather, own.by_torch, partial(_summed, own, exchange))


def of_gloo(own: LinearVariants) -> Iterator[tuple[str, Calls]]:
    """The variants of gloo for this point."""
    gloo = own.peers.gloo
    if gloo is None:
        return
    (gather, scatter), tensor, across = own.groups, own.element.tensor, own.point.grid[0]
    rows = [tuple(range(first, first + across)) for first in range(0, own.point.ranks, across)]
    columns = list(zip(*rows, strict=True))
    handles = gloo.group(rows, gather), gloo.group(columns, scatter)

    def gathered(way: str, x: Bits, out: Bits) -> Any:
        return gloo.gather(way, tensor(x), tensor(out), gather, handles[0])

    def exchange(way: str, given: Bits) -> Any:
        return gloo.scatter(way, tensor(given), scatter, handles[1])

    for way in gloo.WAYS:
        summed = partial(_summed, own, partial(exchange, way))
        yield f"gloo_{way}", Calls(partial(gathered, way), own.by_torch, summed)


def _summed(
    own: LinearVariants,
    exchange: Callable[[Bits], tuple[Run, list[Any]]],
    product: Bits,
    result: Bits,
) -> list[Step]:
    """An exchange of the parts of this rank's rows, and their sum by torch."""
    step, (first, *others) = exchange(product)
    added = own.peers.torch.add(first, others, own.element.tensor(result))
    return [("scatter", step), ("reduce", added)]
