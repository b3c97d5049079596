"""The uneven collectives of torchcomms and torch_npu, under their names.

Each is one call of torch.distributed on lists of tensors of different sizes, which a collops group
accepts. On a group of another backend they run on a collops group of the same ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from collops.errors import ErrorCode
from collops.torch.calls import refuse
from collops.torch.graph_breaks import break_graphs
from collops.torch.private import c10d
from collops.torch.serving.rows import collops_group

if TYPE_CHECKING:
    import torch

    from collops.torch.group import Group


@break_graphs
class UnevenComm:
    """The two uneven calls of a communicator of torchcomms, on a group of torch.distributed.

    Args:
        group: the group; None: the default group. All of its ranks make an UnevenComm.

    Source: ``torchcomms.TorchComm.all_gather_v`` and ``reduce_scatter_v``.

    Example:
        >>> import tempfile, torch, torch.distributed as dist
        >>> from collops.testing import run_ranks
        >>> from collops.torch.uneven import UnevenComm
        >>> def sums(rank, path):
        ...     where = f"file://{path}"
        ...     dist.init_process_group("gloo", init_method=where, rank=rank, world_size=2)
        ...     out = torch.empty(rank + 1)
        ...     blocks = [torch.ones(1), torch.arange(2.0)]
        ...     UnevenComm().reduce_scatter_v(out, blocks, dist.ReduceOp.SUM, False)
        ...     dist.destroy_process_group()
        ...     return out.tolist()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run_ranks(sums, 2, f"{folder}/store")
        [[2.0], [0.0, 2.0]]
    """

    def __init__(self, group: Any = None) -> None:
        self._group = _own_group(group)

    def get_rank(self) -> int:
        """This process's number in the group."""
        return int(self._group.rank())

    def get_size(self) -> int:
        """The number of ranks."""
        return int(self._group.size())

    def all_gather_v(
        self,
        tensor_list: Sequence[torch.Tensor],
        tensor: torch.Tensor,
        async_op: bool,
        hints: Any = None,
        timeout: timedelta | None = None,
    ) -> Any:
        """Fills ``tensor_list[r]`` with rank r's tensor, which may have any number of elements.

        Args:
            tensor_list: a tensor for each rank.
            tensor: this rank's, as large as ``tensor_list[rank]``.
            async_op: whether to return before the end.
            hints: ignored.
            timeout: of this call; None: the group's.

        Returns:
            A Work, which has ended unless `async_op`.

        Raises:
            collops.Error: the list does not fit the ranks or the tensor.
        """
        options = c10d.AllgatherOptions()
        _fill(options, async_op, timeout)
        return self._group.allgather([list(tensor_list)], [tensor], options)

    def reduce_scatter_v(
        self,
        output: torch.Tensor,
        input_list: Sequence[torch.Tensor],
        op: Any,
        async_op: bool,
        hints: Any = None,
        timeout: timedelta | None = None,
    ) -> Any:
        """Reduces block r of all ranks into rank r's output: ``out = reduce_i input_i[rank]``.

        Args:
            output: this rank's result, as large as ``input_list[rank]``.
            input_list: a block for each rank, of any number of elements.
            op: a ReduceOp of torch.distributed; AVG of integers is rounded towards zero.
            async_op: whether to return before the end.
            hints: ignored.
            timeout: of this call; None: the group's.

        Returns:
            A Work, which has ended unless `async_op`.

        Raises:
            collops.Error: the list does not fit the ranks or the output.
        """
        options = dist.ReduceScatterOptions()
        options.reduceOp = op
        _fill(options, async_op, timeout)
        return self._group.reduce_scatter([output], [list(input_list)], options)


@break_graphs
def all_gather_into_tensor_uneven(
    output: torch.Tensor,
    input: torch.Tensor,
    output_split_sizes: Sequence[int] | None = None,
    group: Any = None,
    async_op: bool = False,
) -> Any:
    """Gathers the rows of all ranks: ``output = concat(input_0, ..., input_{P-1})``.

    Args:
        output: [sum(output_split_sizes), ...].
        input: [output_split_sizes[rank], ...].
        output_split_sizes: the rows of each rank; None: all ranks have equally many.
        group: the group; None: the default group.
        async_op: whether to return a Work before the end.

    Returns:
        A Work if `async_op`, else None.

    Raises:
        collops.Error: the sizes do not fit the ranks or the tensors.

    Source: ``torch_npu.distributed.all_gather_into_tensor_uneven``.
    """
    group = _own_group(group)
    parts = _split(group, "AllGatherV", "output", output, output_split_sizes)
    return dist.all_gather(parts, input, group, async_op)


@break_graphs
def reduce_scatter_tensor_uneven(
    output: torch.Tensor,
    input: torch.Tensor,
    input_split_sizes: Sequence[int] | None = None,
    op: Any = dist.ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
) -> Any:
    """Reduces and scatters rows: ``output = split(reduce_r input_r, input_split_sizes)[rank]``.

    Args:
        output: [input_split_sizes[rank], ...].
        input: [sum(input_split_sizes), ...], the same shape on all ranks.
        input_split_sizes: the rows of each rank; None: equal parts.
        op: a ReduceOp of torch.distributed.
        group: the group; None: the default group.
        async_op: whether to return a Work before the end.

    Returns:
        A Work if `async_op`, else None.

    Raises:
        collops.Error: the sizes do not fit the ranks or the tensors.

    Source: ``torch_npu.distributed.reduce_scatter_tensor_uneven``.
    """
    group = _own_group(group)
    parts = _split(group, "ReduceScatterV", "input", input, input_split_sizes)
    return dist.reduce_scatter(output, parts, op, group, async_op)


def _own_group(group: Any) -> Any:
    return collops_group(dist.group.WORLD if group is None else group)


def _fill(options: Any, async_op: bool, timeout: timedelta | None) -> None:
    options.asyncOp = async_op
    if timeout is not None:
        options.timeout = timeout


def _split(
    group: Group, operation: str, label: str, x: torch.Tensor, sizes: Sequence[int] | None
) -> list[torch.Tensor]:
    """The rows of each rank, as views."""
    rows, ranks = x.shape[0], group.size()
    if sizes is None and rows % ranks == 0:
        sizes = [rows // ranks] * ranks
    if sizes is None or len(sizes) != ranks or sum(sizes) != rows or min(sizes) < 0:
        refuse(
            group.communicator_for(x.device),
            operation,
            ErrorCode.ERROR_INVALID_PARAM,
            f"{label}_split_sizes must be {ranks} numbers with the sum {rows}, "
            f"got {None if sizes is None else list(sizes)}",
        )
    return list(x.split(list(sizes)))
