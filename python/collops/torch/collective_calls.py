"""The calls of a group, under the names that torch.distributed calls."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import library as torch_library

from collops.errors import Error, ErrorCode, raise_status
from collops.torch.calls import Calls, placed, refusing, several
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
from collops.torch.private import c10d, resolve_process_group
from collops.torch.works import EndedWork, MessageWork

# torch's functions, by their names from 2.13 on or by those before.
all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def _quick_sum(general: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a sum like an earlier one at once, without what others need.

    Of a small tensor that is most of the time of a call.
    """

    @functools.wraps(general)
    def allreduce(self: Any, *args: Any, **kwargs: Any) -> Any:
        tensors: Any
        opts: Any
        tensors, opts = args if len(args) == 2 else (None, None)
        if (
            type(opts) is _ReduceOptions
            and type(tensors) is list
            and len(tensors) == 1
            and not (opts.asyncOp or kwargs)
            and not (self._shared or self.futures.asked)
            and self._coalesced is None
            and self._thread == _get_ident()
            and opts.reduceOp == _SUM
            and opts.timeout <= _NO_TIMEOUT
        ):
            x = tensors[0]
            with self.lock:
                self.log.add("all_reduce", tensors)
                try:
                    is_made = self._plain.all_reduce_at_once(x, "sum", x)
                except Exception as error:
                    self.log.explain(error)
                    raise
                if is_made:
                    return EndedWork(tensors)
                self.log.take_back()
        return general(self, *args, **kwargs)

    return allreduce


_ReduceOptions, _SUM = c10d.AllreduceOptions, dist.ReduceOp.SUM
_get_ident = threading.get_ident
_NO_TIMEOUT = timedelta(0)


class CollectiveCalls(Calls):
    """Calls that all ranks of a group make; each returns a Work."""

    @_quick_sum
    @refusing("AllReduce", "all_reduce", "AllreduceOptions", "tensors|tensor* op timeout")
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
        return "all_reduce", args, [x], self._finish(out, reduction)

    @several("AllreduceCoalescedOptions", "tensors*")
    def allreduce_coalesced(self, tensors: Sequence[torch.Tensor], opts: Any) -> Any:
        """all_reduce of each tensor."""
        return self._each("AllReduce", lambda x: self.allreduce([x], opts), tensors)

    @refusing("Broadcast", "broadcast", "BroadcastOptions", "tensors|tensor* root timeout")
    def broadcast(self, tensors: Any, opts: Any) -> Any:
        """broadcast, in place."""
        [x] = tensors
        if may_be_pairs(x):
            [x] = as_passed([x])
        root = opts.rootRank
        out = target("broadcast", x, keeps_values=True, is_written=self._rank != root)
        return "broadcast", (out.memory, root), [x], self._finish(out)

    @refusing("Reduce", "reduce", "ReduceOptions", "tensors|tensor* root op timeout")
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
        return "reduce", args, [x], finish

    @refusing(
        "AllGatherV",
        "all_gather",
        "AllgatherOptions",
        "output_tensors** input_tensors|input_tensor* timeout",
    )
    def allgather(self, outs: Any, inputs: Any, opts: Any) -> Any:
        """all_gather into a list of tensors, whose sizes may differ."""
        *parts, x = as_passed([*outs[0], *inputs])
        self._check_own("all_gather", parts, x)
        out = joined("all_gather", parts, self._scratch)
        sizes = [part.numel() for part in parts]
        given = flat(source("all_gather", x))
        begin = sum(sizes[: self._rank]) * given.itemsize
        if overlap(out.memory, given):
            if given.data_ptr() != out.memory.data_ptr() + begin:
                out = self._apart(out)
            elif not self.in_place:
                given = given.clone()
        args = given, sizes, 0, out.memory
        return "all_gatherv", args, parts, self._finish(out)

    @refusing("AllGather", "all_gather_into_tensor", "AllgatherOptions", "output input")
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
        return "all_gather", args, [out], self._finish(whole)

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
        "reduce_scatter",
        "ReduceScatterOptions",
        "output_tensors|output* input_tensors|input** op timeout",
    )
    def reduce_scatter(self, outs: Any, inputs: Any, opts: Any) -> Any:
        """reduce_scatter of a list of tensors, whose sizes may differ."""
        [out], [parts] = outs, inputs
        self._check_own("reduce_scatter", parts, out)
        reduction = self._reduction("reduce_scatter", opts.reduceOp, out.dtype)
        own = target("reduce_scatter", out)
        given = joined_source("reduce_scatter", parts, self._scratch, own.memory)
        if reduction.prepare is not None:
            given = reduction.prepare(given)
        sizes = [part.numel() for part in parts]
        args = given, sizes, 0, reduction.name, flat(own.memory)
        return "reduce_scatterv", args, [out], self._finish(own, reduction)

    @refusing(
        "ReduceScatter", "reduce_scatter_tensor", "ReduceScatterOptions", "outputTensor inputTensor"
    )
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
        return "reduce_scatter", args, [out], self._finish(own, reduction)

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

    @refusing("Barrier", "barrier", "BarrierOptions", "timeout")
    def barrier(self, opts: Any) -> Any:
        """Waits until every rank has called it."""
        return "barrier", (), []

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
    group = resolve_process_group(group_name)
    work = group._allgather_base(out, x, c10d.AllgatherOptions())
    c10d._register_work(out, work)
    return out


class RootedCalls(Calls):
    """gather, scatter and all_to_all, under the names that torch.distributed calls."""

    @refusing(
        "AllToAllV",
        "gather",
        "GatherOptions",
        "output_tensors** input_tensors|input_tensor* root timeout",
    )
    def gather(self, outs: Any, inputs: Any, opts: Any) -> Any:
        """gather: the root has a list of tensors, the others an empty one."""
        [x] = inputs
        size, rank, root = self._size, self._rank, opts.rootRank
        given = flat(source("gather", x))
        # all_to_allv in which only the root receives: the sizes of the others are known to it.
        sends = [given.numel() if peer == root else 0 for peer in range(size)]
        if rank != root:
            nothing = given[:0].clone()
            args = given, sends, [0] * size, nothing
            return "all_to_allv", args, []
        [parts] = outs
        self._check_own("gather", parts, x)
        out = joined("gather", parts, self._scratch)
        if overlap(given, out.memory):
            out = self._apart(out)
        receives = [part.numel() for part in parts]
        args = given, sends, receives, out.memory
        return "all_to_allv", args, parts, self._finish(out)

    @several("GatherOptions", "output input")
    def gather_single(self, out: torch.Tensor, x: torch.Tensor, opts: Any) -> Any:
        """gather into one tensor, which torch has from 2.14 on; only the root's is written."""
        if self._rank != opts.rootRank:
            return self.gather([], [x], opts)
        try:
            if out.numel() != self._size * x.numel():
                self._refuse_parts("gather_single", out, x, "output", "input")
        except Error as error:
            self._comm.refuse("AllToAllV", error)
            raise
        rows = out.view(-1) if out.is_contiguous() else out
        return self.gather([rows.tensor_split(self._size)], [x], opts)

    @refusing(
        "AllToAllV",
        "scatter",
        "ScatterOptions",
        "output_tensors|output_tensor* input_tensors** root timeout",
    )
    def scatter(self, outs: Any, inputs: Any, opts: Any) -> Any:
        """scatter: the root has a list of tensors, the others an empty one."""
        size, rank, root = self._size, self._rank, opts.rootRank
        out, *parts = as_passed([*outs, *(inputs[0] if inputs else ())])
        own = target("scatter", out)
        receives = [own.memory.numel() if peer == root else 0 for peer in range(size)]
        if rank == root:
            self._check_own("scatter", parts, out)
            given = joined_source("scatter", parts, self._scratch, own.memory)
            sends = [part.numel() for part in parts]
        else:
            given, sends = flat(own.memory)[:0].clone(), [0] * size
        args = given, sends, receives, flat(own.memory)
        return "all_to_allv", args, [out], self._finish(own)

    @refusing(
        "AllToAllV",
        "all_to_all_single",
        "AllToAllOptions",
        "output input output_split_sizes input_split_sizes timeout",
    )
    def all_to_all_single(
        self,
        out: torch.Tensor,
        x: torch.Tensor,
        out_splits: Sequence[int],
        in_splits: Sequence[int],
        opts: Any,
    ) -> Any:
        """all_to_all of rows; empty lists share them out evenly."""
        out, x = as_passed([out, x])
        given, whole = flat(source("all_to_all", x)), target("all_to_all", out)
        if overlap(given, whole.memory):
            whole = self._apart(whole)
        args = (
            given,
            self._elements("in", x, in_splits),
            self._elements("out", out, out_splits),
            flat(whole.memory),
        )
        return "all_to_allv", args, [out], self._finish(whole)

    @refusing("AllToAllV", "all_to_all", "AllToAllOptions", "output_tensors* input_tensors*")
    def alltoall(self, outs: Any, inputs: Any, opts: Any) -> Any:
        """all_to_all of lists of tensors, whose sizes may differ."""
        both = as_passed([*outs, *inputs])
        outs, inputs = both[: len(outs)], both[len(outs) :]
        for parts in (outs, inputs):
            self._check_list("all_to_all", parts)
        out = joined("all_to_all", outs, self._scratch)
        args = (
            joined_source("all_to_all", inputs, self._scratch, out.memory),
            [part.numel() for part in inputs],
            [part.numel() for part in outs],
            out.memory,
        )
        return "all_to_allv", args, outs, self._finish(out)

    alltoall_base = all_to_all_single
    gather_into_tensor = gather_single

    def _elements(self, label: str, x: torch.Tensor, splits: Sequence[int]) -> list[int]:
        """The elements of each rank's rows."""
        size = self._size
        rows = x.shape[0] if x.dim() else 1
        if not splits:
            if rows % size:
                raise_status(
                    ErrorCode.ERROR_INVALID_TENSOR_DIM,
                    f"all_to_all: the {label}put has {rows} rows, which do not divide "
                    f"evenly among {size} ranks: pass split sizes",
                )
            splits = [rows // size] * size
        if len(splits) != size or sum(splits) != rows:
            raise_status(
                ErrorCode.ERROR_INVALID_PARAM,
                f"all_to_all: the {label}put's split sizes {list(splits)} must be {size} numbers "
                f"with the sum {rows}",
            )
        row = x.numel() // rows if rows else 0
        return [split * row for split in splits]


class MessageCalls(Calls):
    """send and recv; they never wait for collective calls that were started before."""

    @placed
    def send(self, tensors: Any, dstRank: int, tag: int = 0) -> Any:
        """Starts a message to another rank."""
        [x] = tensors = as_passed(tensors)
        self.log.add("send", tensors)
        try:
            given = source("send", x)
        except Error:
            given = x  # which the communicator refuses, and tells the other rank
        with self.lock:
            self._note_thread()
            call = self._starting.send(given, dstRank, tag)
        return self._noted(MessageWork(call, [x], self))

    @placed
    def recv(self, tensors: Any, srcRank: int, tag: int = 0) -> Any:
        """Starts to receive a message of another rank."""
        return self._receive(tensors, srcRank, tag)

    @placed
    def recv_anysource(self, tensors: Any, tag: int = 0) -> Any:
        """Starts to receive a message of any rank."""
        return self._receive(tensors, None, tag)

    def _receive(self, tensors: Any, from_: int | None, tag: int) -> Any:
        [out] = tensors = as_passed(tensors)
        self.log.add("recv", tensors)
        try:
            own = target("recv", out)
        except Error as error:
            with self.lock, contextlib.suppress(Error):
                self._starting.recv(out, from_, tag, False)  # which tells the other rank
            raise error
        with self.lock:
            self._note_thread()
            call = self._starting.recv(own.memory, from_, tag, True)
        work = MessageWork(call, [out], self)

        def finish(value: Any) -> None:
            work.source = value[1]
            if own.finish is not None:
                own.finish()

        work.finish = finish
        return self._noted(work)
