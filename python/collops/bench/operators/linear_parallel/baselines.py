"""The ways of others: torch.matmul between the collectives of MPI or gloo, and products alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from collops.bench.peers import torch_calls
from collops.bench.variant import Column

if TYPE_CHECKING:
    from collops.bench.elements import Bits
    from collops.bench.operators.linear_parallel.variants import OwnColumns
    from collops.bench.peers.torch_calls import Gloo

LABELS = {
    "mpi": "torch.matmul + MPI Allgatherv",
    "mpi_reduce_scatter": "torch.matmul + MPI Reduce_scatter",
    "mpi_alltoallv": "torch.matmul + MPI Alltoallv, add",
    "gloo_isend_irecv": "torch.matmul + gloo isend/irecv",
    "gloo_all_to_all": "torch.matmul + gloo all_to_all_single",
    "torch": "torch.matmul alone",
}
_PROBE_ROWS = 64


class PeerColumns:
    """Makes the columns that torch multiplies in, for one point on one rank.

    Args:
        own: the same point's own columns, whose weight and data they share.
        gloo: torch.distributed, or None.
        mpi: the module collops.bench.peers.mpi_calls, or None.
    """

    def __init__(self, own: OwnColumns, gloo: Gloo | None, mpi: Any) -> None:
        self._own, self._gloo, self._mpi = own, gloo, mpi
        self._weight = own.element.tensor(own.weight)
        self._handles: dict[str, tuple[Any, Any]] = {}
        if mpi is not None:
            self._handles["mpi"] = self._mpi_groups()
        if gloo is not None:
            self._handles["gloo"] = self._gloo_groups(gloo)

    def _mpi_groups(self) -> tuple[Any, Any]:
        gather, scatter = self._own.groups.gather, self._own.groups.scatter
        return (
            self._mpi.communicator(scatter.index, gather),
            self._mpi.communicator(gather.index, scatter),
        )

    def _gloo_groups(self, gloo: Gloo) -> tuple[Any, Any]:
        num_gather, num_scatter = self._own.point.grid
        rows = [tuple(r * num_gather + i for i in range(num_gather)) for r in range(num_scatter)]
        columns = [tuple(row[i] for row in rows) for i in range(num_gather)]
        groups = self._own.groups
        return gloo.group(rows, groups.gather), gloo.group(columns, groups.scatter)

    def names(self) -> list[str]:
        """The columns that there are for this point."""
        names = []
        if self._mpi is not None:
            sums = self._own.groups.scatter.size > 1
            native = ["mpi_reduce_scatter"] if self._own.point.dtype == "f32" else []
            names += [*native, "mpi_alltoallv"] if sums else ["mpi"]
        if self._gloo is not None:
            names += [f"gloo_{way}" for way in self._gloo.WAYS]
        return names

    def make(self, key: str) -> Column:
        """The column of that name, not yet run."""
        own, element = self._own, self._own.element
        m, k, n = own.point.shape
        gather, scatter = own.groups.gather, own.groups.scatter
        x, result = own.own_x(), own.own_result()
        column = Column(key, LABELS[key], [], x, result)
        rows = x
        if gather.size > 1:
            rows = element.matrix(m, k)
            column.steps.append(("gather", self._gather(key, x, rows)))
        product = result if scatter.size == 1 else element.matrix(m, n)
        column.steps.append(("gemm", self._matmul(rows, product)))
        if scatter.size > 1:
            column.steps += self._scatter(key, product, result)
        return column

    def _matmul(self, rows: Bits, product: Bits) -> Callable[[], object]:
        tensor = self._own.element.tensor
        return torch_calls.matmul(tensor(rows), self._weight, tensor(product))

    def _gather(self, key: str, x: Bits, rows: Bits) -> Callable[[], object]:
        kind, _, way = key.partition("_")
        handle, group = self._handles[kind][0], self._own.groups.gather
        if self._gloo is None or kind == "mpi":
            step: Callable[[], object] = self._mpi.gather(x, rows, group, handle)
            return step
        tensor = self._own.element.tensor
        return self._gloo.gather(way, tensor(x), tensor(rows), group, handle)

    def _scatter(self, key: str, product: Bits, result: Bits) -> list[Any]:
        kind, _, way = key.partition("_")
        handle, group = self._handles[kind][1], self._own.groups.scatter
        tensor, out = self._own.element.tensor, self._own.element.tensor(result)
        if key == "mpi_reduce_scatter":
            return [("scatter", self._mpi.reduce_scatter(product, result, group, handle))]
        if self._gloo is None or kind == "mpi":
            got = self._own.element.matrix(group.size * group.own_rows, product.shape[1])
            got = got.reshape(group.size, group.own_rows, product.shape[1])
            step = self._mpi.exchange(product, got, group, handle)
            begin = group.displs(1)[group.index]
            parts = [product[begin : begin + group.own_rows]]
            parts += [got[q] for q in range(group.size) if q != group.index]
            tensors = [tensor(part) for part in parts]
        else:
            step, tensors = self._gloo.scatter(way, tensor(product), group, handle)
        return [("scatter", step), ("reduce", torch_calls.add(tensors[0], tensors[1:], out))]

    def torch_alone(self) -> Column:
        """The product by torch, on all ranks at once."""
        m, k, n = self._own.point.shape
        x, product = self._own.element.matrix(m, k), self._own.element.matrix(m, n)
        self._own.element.fill(x, (1, self._own.work.rank), 2 / 3)
        return Column("torch", LABELS["torch"], [("gemm", self._matmul(x, product))], x)

    def expected_s(self) -> float:
        """Seconds that a product takes here, by that of a few rows."""
        m, k, n = self._own.point.shape
        rows = min(m, _PROBE_ROWS)
        x, product = self._own.element.matrix(rows, k), self._own.element.matrix(rows, n)
        run = self._matmul(x, product)
        run()
        begin = time.perf_counter()
        run()
        return (time.perf_counter() - begin) * m / rows
