"""Calls of a group in which a root gives or takes, and in which every rank sends to every rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from collops.errors import Error, ErrorCode, raise_status
from collops.torch.calls import Calls, refusing, several
from collops.torch.memory import as_passed, flat, joined, joined_source, overlap, source, target

if TYPE_CHECKING:
    from collections.abc import Sequence


class RootedCalls(Calls):
    """gather, scatter and all_to_all, under the names that torch.distributed calls."""

    @refusing(
        "AllToAllV", "GatherOptions", "output_tensors** input_tensors|input_tensor* root timeout"
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
            return self._move(opts, "all_to_allv", args, [], None, "gather")
        [parts] = outs
        self._check_own("gather", parts, x)
        out = joined("gather", parts, self._staging.empty)
        if overlap(given, out.memory):
            out = self._apart(out)
        receives = [part.numel() for part in parts]
        args = given, sends, receives, out.memory
        return self._move(opts, "all_to_allv", args, parts, self._finish(out), "gather")

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
        "AllToAllV", "ScatterOptions", "output_tensors|output_tensor* input_tensors** root timeout"
    )
    def scatter(self, outs: Any, inputs: Any, opts: Any) -> Any:
        """scatter: the root has a list of tensors, the others an empty one."""
        size, rank, root = self._size, self._rank, opts.rootRank
        out, *parts = as_passed([*outs, *(inputs[0] if inputs else ())])
        own = target("scatter", out)
        receives = [own.memory.numel() if peer == root else 0 for peer in range(size)]
        if rank == root:
            self._check_own("scatter", parts, out)
            given = joined_source("scatter", parts, self._staging.empty, own.memory)
            sends = [part.numel() for part in parts]
        else:
            given, sends = flat(own.memory)[:0].clone(), [0] * size
        args = given, sends, receives, flat(own.memory)
        return self._move(opts, "all_to_allv", args, [out], self._finish(own), "scatter")

    @refusing(
        "AllToAllV", "AllToAllOptions", "output input output_split_sizes input_split_sizes timeout"
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
        finish = self._finish(whole)
        return self._move(opts, "all_to_allv", args, [out], finish, "all_to_all_single")

    @refusing("AllToAllV", "AllToAllOptions", "output_tensors* input_tensors*")
    def alltoall(self, outs: Any, inputs: Any, opts: Any) -> Any:
        """all_to_all of lists of tensors, whose sizes may differ."""
        both = as_passed([*outs, *inputs])
        outs, inputs = both[: len(outs)], both[len(outs) :]
        for parts in (outs, inputs):
            self._check_list("all_to_all", parts)
        out = joined("all_to_all", outs, self._staging.empty)
        args = (
            joined_source("all_to_all", inputs, self._staging.empty, out.memory),
            [part.numel() for part in inputs],
            [part.numel() for part in outs],
            out.memory,
        )
        return self._move(opts, "all_to_allv", args, outs, self._finish(out), "all_to_all")

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
