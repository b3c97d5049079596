"""The collective calls of a group, under the names that torch.distributed calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import library as torch_library
from torch._C import _distributed_c10d

from collops.torch.calls import Calls, refusing, several
from collops.torch.graph_breaks import break_graphs
from collops.torch.memory import (
    as_passed,
    flat,
    joined,
    joined_source,
    may_be_pairs,
    overlap,
    source,
    target,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

# torch's functions, by their names from 2.13 on or by those before.
all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class CollectiveCalls(Calls):
    """Calls that all ranks of a group make; each returns a Work."""

    @refusing("AllReduce", "AllreduceOptions", "tensors|tensor* op timeout")
    def allreduce(self, tensors: Any, opts: Any) -> Any:
        """all_reduce, in place."""
        if len(tensors) != 1:
            return self.allreduce_coalesced(tensors, opts)
        [x] = tensors
        if may_be_pairs(x):
            [x] = as_passed([x])
        reduction = self._reduction("all_reduce", opts.reduceOp, x.dtype)
        out = target("all_reduce", x, keeps_values=True)
        given = out.memory if reduction.prepare is None else reduction.prepare(out.memory)
        args = given, reduction.name, out.memory
        return self._move(opts, "all_reduce", args, [x], self._finish(out, reduction))

    @several("AllreduceCoalescedOptions", "tensors*")
    def allreduce_coalesced(self, tensors: Sequence[torch.Tensor], opts: Any) -> Any:
        """all_reduce of each tensor."""
        return self._each("AllReduce", lambda x: self.allreduce([x], opts), tensors)

    @refusing("Broadcast", "BroadcastOptions", "tensors|tensor* root timeout")
    def broadcast(self, tensors: Any, opts: Any) -> Any:
        """broadcast, in place."""
        [x] = tensors
        if may_be_pairs(x):
            [x] = as_passed([x])
        root = opts.rootRank
        out = target("broadcast", x, keeps_values=True, is_written=self._rank != root)
        return self._move(opts, "broadcast", (out.memory, root), [x], self._finish(out))

    @refusing("Reduce", "ReduceOptions", "tensors|tensor* root op timeout")
    def reduce(self, tensors: Any, opts: Any) -> Any:
        """reduce: the root's tensor becomes the result, the others' keep their values."""
        [x] = tensors
        reduction = self._reduction("reduce", opts.reduceOp, x.dtype)
        is_root = self._rank == opts.rootRank
        out = target("reduce", x, keeps_values=True, is_written=is_root)
        given = out.memory if reduction.prepare is None else reduction.prepare(out.memory)
        if given is out.memory and not self.in_place:
            given = given.clone()
        finish = self._finish(out, reduction) if is_root else None
        args = given, reduction.name, opts.rootRank, out.memory
        return self._move(opts, "reduce", args, [x], finish)

    @refusing(
        "AllGatherV",
        "AllgatherOptions",
        "output_tensors** input_tensors|input_tensor* timeout",
    )
    def allgather(self, outs: Any, inputs: Any, opts: Any) -> Any:
        """all_gather into a list of tensors, whose sizes may differ."""
        *parts, x = as_passed([*outs[0], *inputs])
        self._check_own("all_gather", parts, x)
        out = joined("all_gather", parts, self._staging.empty)
        sizes = [part.numel() for part in parts]
        given = flat(source("all_gather", x))
        begin = sum(sizes[: self._rank]) * given.itemsize
        if overlap(out.memory, given):
            if given.data_ptr() != out.memory.data_ptr() + begin:
                out = self._apart(out)
            elif not self.in_place:
                given = given.clone()
        args = given, sizes, 0, out.memory
        return self._move(opts, "all_gatherv", args, parts, self._finish(out), "all_gather")

    @refusing("AllGather", "AllgatherOptions", "output input")
    def all_gather_single(self, out: torch.Tensor, x: torch.Tensor, opts: Any) -> Any:
        """all_gather into one tensor."""
        if may_be_pairs(x):
            out, x = as_passed([out, x])
        if out.numel() != self._size * x.numel():
            self._refuse_parts("all_gather_into_tensor", out, x, "output", "input")
        given, whole = source("all_gather", x), target("all_gather", out)
        if overlap(whole.memory, given):
            if not self._is_own_block(whole.memory, given):
                whole = self._apart(whole)
            elif not self.in_place:
                given = given.clone()
        args = flat(given), flat(whole.memory)
        finish = self._finish(whole)
        return self._move(opts, "all_gather", args, [out], finish, "all_gather_into_tensor")

    @several("AllgatherOptions", "output_lists** input_list*")
    def allgather_coalesced(self, outs: Any, inputs: Any, opts: Any) -> Any:
        """all_gather of several tensors: outs[rank][i] is inputs[i] of that rank."""
        columns = [list(parts) for parts in zip(*outs, strict=False)]
        return self._each(
            "AllGatherV", lambda parts, x: self.allgather([parts], [x], opts), columns, inputs
        )

    @several("AllgatherOptions", "outputs* inputs*")
    def all_gather_single_coalesced(self, outs: Any, inputs: Any, opts: Any) -> Any:
        """all_gather_single of each pair."""
        both = as_passed([*outs, *inputs])
        outs, inputs = both[: len(outs)], both[len(outs) :]
        return self._each(
            "AllGather", lambda out, x: self.all_gather_single(out, x, opts), outs, inputs
        )

    @refusing(
        "ReduceScatterV",
        "ReduceScatterOptions",
        "output_tensors|output* input_tensors|input** op timeout",
    )
    def reduce_scatter(self, outs: Any, inputs: Any, opts: Any) -> Any:
        """reduce_scatter of a list of tensors, whose sizes may differ."""
        [out], [parts] = outs, inputs
        self._check_own("reduce_scatter", parts, out)
        reduction = self._reduction("reduce_scatter", opts.reduceOp, out.dtype)
        own = target("reduce_scatter", out)
        given = joined_source("reduce_scatter", parts, self._staging.empty, own.memory)
        if reduction.prepare is not None:
            given = reduction.prepare(given)
        sizes = [part.numel() for part in parts]
        args = given, sizes, 0, reduction.name, flat(own.memory)
        finish = self._finish(own, reduction)
        return self._move(opts, "reduce_scatterv", args, [out], finish, "reduce_scatter")

    @refusing("ReduceScatter", "ReduceScatterOptions", "outputTensor inputTensor")
    def reduce_scatter_single(self, out: torch.Tensor, x: torch.Tensor, opts: Any) -> Any:
        """reduce_scatter of one tensor; `out` may be a part of it."""
        if x.numel() != self._size * out.numel():
            self._refuse_parts("reduce_scatter_tensor", x, out, "input", "output")
        reduction = self._reduction("reduce_scatter", opts.reduceOp, x.dtype)
        whole, own = source("reduce_scatter", x), target("reduce_scatter", out)
        if reduction.prepare is not None:
            whole = reduction.prepare(whole)
        stays = self.in_place and self._is_own_block(whole, own.memory)
        if not stays and overlap(whole, own.memory):
            own = self._apart(own)
        args = flat(whole), reduction.name, flat(own.memory)
        finish = self._finish(own, reduction)
        return self._move(opts, "reduce_scatter", args, [out], finish, "reduce_scatter_tensor")

    def _is_own_block(self, whole: torch.Tensor, own: torch.Tensor) -> bool:
        """Whether `own` is this rank's part of `whole`, which the core takes in place."""
        begin = whole.data_ptr() + self._rank * own.nbytes
        return bool(own.data_ptr() == begin and own.nbytes * self._size == whole.nbytes)

    @several("ReduceScatterOptions", "outputs* inputs*")
    def reduce_scatter_single_coalesced(self, outs: Any, inputs: Any, opts: Any) -> Any:
        """reduce_scatter_single of each pair."""
        both = as_passed([*outs, *inputs])
        outs, inputs = both[: len(outs)], both[len(outs) :]
        return self._each(
            "ReduceScatter", lambda out, x: self.reduce_scatter_single(out, x, opts), outs, inputs
        )

    @refusing("Barrier", "BarrierOptions", "timeout")
    def barrier(self, opts: Any) -> Any:
        """Waits until every rank has called it."""
        return self._move(opts, "barrier", (), [])

    # The names before torch 2.13.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced


_libraries: list[torch_library.Library] = []  # a kernel lives as long as its library


def register_gather_into() -> None:
    """Lets torch's operator all_gather_into_tensor_out reach a group, once for the process.

    Inductor puts it in the place of several gathers. Before torch 2.14 its kernel takes a backend
    in C++ for granted.
    """
    if not _libraries and not hasattr(dist, "gather_single"):  # which 2.14 has
        _libraries.append(torch_library.Library("_c10d_functional", "IMPL"))
        _libraries[0].impl("all_gather_into_tensor_out", _all_gather_into_tensor_out, "CPU")


@break_graphs
def _all_gather_into_tensor_out(
    x: torch.Tensor, group_size: int, group_name: str, *, out: torch.Tensor
) -> torch.Tensor:
    group = dist.distributed_c10d._resolve_process_group(group_name)
    work = group._allgather_base(out, x, _distributed_c10d.AllgatherOptions())
    _distributed_c10d._register_work(out, work)
    return out
