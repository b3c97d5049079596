"""The calls of a communicator on tensors: torch in and torch out, numpy in and numpy out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from collops.collectives.all_gather import AllGather
from collops.collectives.all_gather_v import AllGatherV
from collops.collectives.all_reduce import AllReduce
from collops.collectives.all_to_all_v import AllToAllV
from collops.collectives.broadcast import Broadcast
from collops.collectives.gather_v import GatherV
from collops.collectives.level import PlainLevel, documented_by
from collops.collectives.linear_parallel import LinearParallel
from collops.collectives.reduce import Reduce
from collops.collectives.reduce_scatter import ReduceScatter
from collops.collectives.reduce_scatter_v import ReduceScatterV
from collops.collectives.scatter_v import ScatterV

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    from collops.tensor_types import Array, ReduceOp, SupportsDLPack, TensorT

    Sizes: TypeAlias = Sequence[int]


class CollectiveMethods:
    """The collectives and products; each result is of x's kind, for ``__dlpack__`` numpy's.

    The module of each call has its code and docstring.
    """

    def __init__(self, level: PlainLevel) -> None:
        self._level = level
        self._all_gather = AllGather(level)
        self._all_gather_v = AllGatherV(level)
        self._all_reduce = AllReduce(level)
        self._all_to_all_v = AllToAllV(level)
        self._broadcast = Broadcast(level)
        self._gather_v = GatherV(level)
        self._linear = LinearParallel(level)
        self._reduce = Reduce(level)
        self._reduce_scatter = ReduceScatter(level)
        self._reduce_scatter_v = ReduceScatterV(level)
        self._scatter_v = ScatterV(level)

    @overload
    def all_gather(self, x: TensorT, out: TensorT | None = None) -> TensorT: ...

    @overload
    def all_gather(self, x: SupportsDLPack, out: Array | None = None) -> Array: ...

    @documented_by(AllGather)
    def all_gather(self, x: Any, out: Any = None) -> Any:
        return self._all_gather(x, out)

    @overload
    def all_gatherv(
        self, x: TensorT, sizes: Sizes | None = None, dim: int = 0, out: TensorT | None = None
    ) -> TensorT: ...

    @overload
    def all_gatherv(
        self,
        x: Sequence[TensorT],
        sizes: Sizes | None = None,
        dim: int = 0,
        out: list[TensorT | None] | None = None,
    ) -> list[TensorT]: ...

    @overload
    def all_gatherv(
        self, x: SupportsDLPack, sizes: Sizes | None = None, dim: int = 0, out: Array | None = None
    ) -> Array: ...

    @documented_by(AllGatherV)
    def all_gatherv(self, x: Any, sizes: Sizes | None = None, dim: int = 0, out: Any = None) -> Any:
        return self._all_gather_v(x, sizes, dim, out)

    @overload
    def all_reduce(
        self, x: TensorT, op: ReduceOp = "sum", out: TensorT | None = None
    ) -> TensorT: ...

    @overload
    def all_reduce(
        self, x: SupportsDLPack, op: ReduceOp = "sum", out: Array | None = None
    ) -> Array: ...

    @documented_by(AllReduce)
    def all_reduce(self, x: Any, op: ReduceOp = "sum", out: Any = None) -> Any:
        return self._all_reduce(x, op, out)

    @overload
    def all_to_allv(
        self,
        x: TensorT,
        send_sizes: Sizes,
        recv_sizes: Sizes | None = None,
        out: TensorT | None = None,
    ) -> TensorT: ...

    @overload
    def all_to_allv(
        self,
        x: SupportsDLPack,
        send_sizes: Sizes,
        recv_sizes: Sizes | None = None,
        out: Array | None = None,
    ) -> Array: ...

    @documented_by(AllToAllV)
    def all_to_allv(
        self, x: Any, send_sizes: Sizes, recv_sizes: Sizes | None = None, out: Any = None
    ) -> Any:
        return self._all_to_all_v(x, send_sizes, recv_sizes, out)

    @documented_by(Broadcast)
    def broadcast(self, x: TensorT, root: int = 0) -> TensorT:
        result: TensorT = self._broadcast(x, root)
        return result

    @overload
    def gatherv(self, x: TensorT, sizes: Sizes | None = None, root: int = 0) -> TensorT | None: ...

    @overload
    def gatherv(
        self, x: SupportsDLPack, sizes: Sizes | None = None, root: int = 0
    ) -> Array | None: ...

    @documented_by(GatherV)
    def gatherv(self, x: Any, sizes: Sizes | None = None, root: int = 0) -> Any:
        return self._gather_v(x, sizes, root)

    @overload
    def reduce(
        self, x: TensorT, op: ReduceOp = "sum", root: int = 0, out: TensorT | None = None
    ) -> TensorT | None: ...

    @overload
    def reduce(
        self, x: SupportsDLPack, op: ReduceOp = "sum", root: int = 0, out: Array | None = None
    ) -> Array | None: ...

    @documented_by(Reduce)
    def reduce(self, x: Any, op: ReduceOp = "sum", root: int = 0, out: Any = None) -> Any:
        return self._reduce(x, op, root, out)

    @overload
    def reduce_scatter(
        self, x: TensorT, op: ReduceOp = "sum", out: TensorT | None = None
    ) -> TensorT: ...

    @overload
    def reduce_scatter(
        self, x: SupportsDLPack, op: ReduceOp = "sum", out: Array | None = None
    ) -> Array: ...

    @documented_by(ReduceScatter)
    def reduce_scatter(self, x: Any, op: ReduceOp = "sum", out: Any = None) -> Any:
        return self._reduce_scatter(x, op, out)

    @overload
    def reduce_scatterv(
        self,
        x: TensorT | Sequence[TensorT],
        sizes: Sizes | None = None,
        dim: int = 0,
        op: ReduceOp = "sum",
        out: TensorT | None = None,
    ) -> TensorT: ...

    @overload
    def reduce_scatterv(
        self,
        x: SupportsDLPack | Sequence[SupportsDLPack],
        sizes: Sizes | None = None,
        dim: int = 0,
        op: ReduceOp = "sum",
        out: Array | None = None,
    ) -> Array: ...

    @documented_by(ReduceScatterV)
    def reduce_scatterv(
        self,
        x: Any,
        sizes: Sizes | None = None,
        dim: int = 0,
        op: ReduceOp = "sum",
        out: Any = None,
    ) -> Any:
        return self._reduce_scatter_v(x, sizes, dim, op, out)

    @documented_by(ScatterV)
    def scatterv(self, x: Any, sizes: Sizes, root: int = 0) -> Any:
        return self._scatter_v(x, sizes, root)

    @documented_by(LinearParallel.all_gather_matmul_reduce_scatter)
    def all_gather_matmul_reduce_scatter(
        self,
        x: TensorT,
        weight: TensorT,
        *,
        ag_dim: int,
        rs_dim: int,
        inner_dim_is_ag: bool = True,
        gather_rows: Sizes | None = None,
        scatter_rows: Sizes | None = None,
        trans_weight: bool = False,
        residual: TensorT | None = None,
        out: TensorT | None = None,
    ) -> TensorT:
        result: TensorT = self._linear.all_gather_matmul_reduce_scatter(
            x,
            weight,
            residual,
            out,
            grid=(ag_dim, rs_dim, bool(inner_dim_is_ag)),
            gather_rows=gather_rows,
            scatter_rows=scatter_rows,
            trans_weight=trans_weight,
        )
        return result

    @documented_by(LinearParallel.all_gather_matmul)
    def all_gather_matmul(
        self,
        x: TensorT,
        weight: TensorT,
        *,
        gather_rows: Sizes | None = None,
        trans_weight: bool = False,
        residual: TensorT | None = None,
        out: TensorT | None = None,
    ) -> TensorT:
        result: TensorT = self._linear.all_gather_matmul(
            x, weight, residual, out, gather_rows=gather_rows, trans_weight=trans_weight
        )
        return result

    @documented_by(LinearParallel.matmul_reduce_scatter)
    def matmul_reduce_scatter(
        self,
        x: TensorT,
        weight: TensorT,
        *,
        op: ReduceOp = "sum",
        scatter_rows: Sizes | None = None,
        trans_weight: bool = False,
        residual: TensorT | None = None,
        out: TensorT | None = None,
    ) -> TensorT:
        result: TensorT = self._linear.matmul_reduce_scatter(
            x, weight, residual, out, op=op, scatter_rows=scatter_rows, trans_weight=trans_weight
        )
        return result

    @documented_by(LinearParallel.matmul_all_reduce)
    def matmul_all_reduce(
        self,
        x: TensorT,
        weight: TensorT,
        *,
        trans_weight: bool = False,
        residual: TensorT | None = None,
        out: TensorT | None = None,
    ) -> TensorT:
        result: TensorT = self._linear.matmul_all_reduce(
            x, weight, residual, out, trans_weight=trans_weight
        )
        return result
