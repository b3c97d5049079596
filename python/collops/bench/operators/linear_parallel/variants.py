"""The ways of collops: fused, as a pipeline, unfused, the product alone, and plain arithmetic."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

import collops
from collops.bench.elements import Element, exact_density, fresh_memory
from collops.bench.variant import Column
from collops.core import core

if TYPE_CHECKING:
    from collections.abc import Callable

    from collops.bench.elements import Bits
    from collops.bench.groups import Groups
    from collops.bench.request import Point

LABELS = {
    "fused_window": "fused, x in a window",
    "fused": "fused, plain x",
    "pipeline": "pipeline",
    "unfused": "unfused: gather, GEMM, scatter",
    "gemm": "GEMM alone",
    "peak": "arithmetic peak",
}
_X, _WEIGHT = 0, 1
_PEAK_S = 0.02
_FIRST_ROUNDS = 20_000


class OwnColumns:
    """Makes the columns of one point on one rank. They share the weight; x and results they do not.

    Args:
        point: what is measured.
        groups: this rank's groups.
        work: a communicator of all ranks, for what is not measured.
        seed: of the data.
    """

    def __init__(self, point: Point, groups: Groups, work: Any, seed: int) -> None:
        self.point, self.groups, self.work = point, groups, work
        self._communicators: list[Any] = []
        self.element = Element(point.dtype)
        self._seed = (seed, work.rank)
        m, k, n = point.shape
        self._density = exact_density(point.dtype, k, groups.scatter.size)
        self.weight = self.element.matrix(n, k)
        self.element.fill(self.weight, (*self._seed, _WEIGHT), 2 / 3)
        self.operations = 2 * m * k * n

    def _connect(self) -> Any:
        """A communicator of one column alone, so that its memory is not there before its call."""
        number = len(self._communicators)
        self._communicators.append(collops.init(comm_domain=f"bench column {number}"))
        return self._communicators[-1]

    def _split(self, comm: Any) -> tuple[Any, Any]:
        """The communicators of the gather and the scatter group."""
        gather, scatter = self.groups.gather, self.groups.scatter
        if self.point.type != 4:
            return comm, comm
        parts = comm.split(scatter.index, gather.index), comm.split(gather.index, scatter.index)
        self._communicators += parts
        return parts

    def close(self) -> None:
        """Closes the communicators of the columns."""
        while self._communicators:
            self._communicators.pop().close()

    def own_x(self, comm: Any = None) -> Bits:
        """This rank's rows of x, equal for every column; in a window, where `comm` is given."""
        rows, k = self.groups.gather.own_rows, self.point.shape[1]
        x = comm.empty((rows, k), self.element.bits) if comm else self.element.matrix(rows, k)
        self.element.fill(x, (*self._seed, _X), self._density)
        return x

    def own_result(self) -> Bits:
        """Memory for this rank's rows of the result."""
        return self.element.poisoned(self.groups.scatter.own_rows, self.point.shape[2])

    def make(self, key: str) -> Column:
        """The column of that name, planned and not yet run."""
        if key in ("fused_window", "fused", "pipeline"):
            return self._operator(key)
        return {"unfused": self._unfused, "gemm": self._gemm, "peak": self._peak}[key]()

    def _operator(self, key: str) -> Column:
        comm = self._connect()
        x = self.own_x(comm if key == "fused_window" else None)
        result, kind = self.own_result(), collops.ParallelType(self.point.type)
        engine = "pipeline" if key == "pipeline" else "windows"
        run, scratch_bytes = self._planned(comm, kind, x, result, engine)
        return Column(key, LABELS[key], [("all", run)], x, result, scratch_bytes)

    def _planned(
        self, comm: Any, kind: Any, x: Bits, result: Bits, engine: str = "local"
    ) -> tuple[Callable[[], object], int]:
        """A call of LinearParallel, and the bytes of its scratch memory, which is not there yet."""
        gather, scatter = self.groups.gather, self.groups.scatter
        param = collops.LinearParallelParam(
            rank=comm.rank, rank_size=comm.size, type=kind, backend="shm", hccl_comm=comm
        )
        if kind != collops.ParallelType.PURE_LINEAR:
            param.gather_rows = list(gather.rows) if gather.size > 1 else []
            param.scatter_rows = list(scatter.rows) if scatter.size > 1 else []
        if kind == collops.ParallelType.ALL_GATHER_LINEAR_REDUCE_SCATTER:
            param.gather_rows, param.scatter_rows = list(gather.rows), list(scatter.rows)
            param.two_dim_tp_info.ag_dim = gather.size
            param.two_dim_tp_info.rs_dim = scatter.size
        operation = collops.Operation(param, engine=engine)
        ins = [self.element.numbers(x), self.element.numbers(self.weight)]
        outs = [self.element.numbers(result)]
        scratch = fresh_memory(operation.get_workspace_size(ins, outs))
        return lambda: operation.execute(ins, outs, scratch), scratch.nbytes

    def _unfused(self) -> Column:
        """As a user of the plain level writes it."""
        x, result = self.own_x(), self.own_result()
        m, k, n = self.point.shape
        gather, scatter = self.groups.gather, self.groups.scatter
        element, numbers = self.element, self.element.numbers
        column = Column("unfused", LABELS["unfused"], [], x, result)
        comm = self._connect()
        part, other = self._split(comm)
        rows = x
        if gather.size > 1:
            rows = element.matrix(m, k)
            from_all, to_all = numbers(x), numbers(rows)
            column.steps.append(
                ("gather", lambda: part.all_gatherv(from_all, gather.rows, out=to_all))
            )
        product = result if scatter.size == 1 else element.matrix(m, n)
        multiply, column.scratch_bytes = self._planned(
            comm, collops.ParallelType.PURE_LINEAR, rows, product
        )
        column.steps.append(("gemm", multiply))
        if scatter.size > 1:
            sums, own = numbers(product), numbers(result)
            column.steps.append(
                ("scatter", lambda: other.reduce_scatterv(sums, scatter.rows, out=own))
            )
        return column

    def _gemm(self) -> Column:
        m, k, n = self.point.shape
        x = self.element.matrix(m, k)
        self.element.fill(x, (*self._seed, _X), self._density)
        result = self.element.poisoned(m, n)
        run, scratch_bytes = self._planned(self.work, collops.ParallelType.PURE_LINEAR, x, result)
        step = ("gemm", run)
        return Column("gemm", LABELS["gemm"], [step], x, scratch_bytes=scratch_bytes)

    def least_s(self) -> float:
        """About the seconds that the arithmetic alone takes."""
        begin = time.perf_counter()
        operations = int(core().run_arithmetic(core().DTYPES[self.element.name], _FIRST_ROUNDS))
        return (time.perf_counter() - begin) * self.operations / operations

    def _peak(self) -> Column:
        run, number = core().run_arithmetic, core().DTYPES[self.element.name]
        rounds = self.operations / run(number, 1) * _PEAK_S / self.least_s()
        most = int(self.work.all_reduce(np.array([rounds]), op="max")[0])
        step = ("gemm", lambda: run(number, most))
        return Column("peak", LABELS["peak"], [step], operations=run(number, 1) * most)
