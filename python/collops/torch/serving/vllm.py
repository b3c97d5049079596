"""The two calls that vLLM's communicator of CPU ranks lacks (vLLM issue 57837)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from collops.errors import ErrorCode, raise_status
from collops.torch.graph_breaks import break_graphs
from collops.torch.serving.rows import collops_group, gather_list, gather_rows, scatter_rows

if TYPE_CHECKING:
    from collops.torch.group import Group


@break_graphs
class VllmCollectives:
    """Gives a ``DeviceCommunicatorBase`` of vLLM all_gatherv and reduce_scatterv.

    Put it before the communicator's class in the list of base classes. The calls run on
    ``device_group`` or ``cpu_group`` if one of them is a collops group; otherwise all ranks of the
    group make a collops group at their first call.

    Source: ``vllm.distributed.device_communicators``, as its managers of experts call it.

    Example:
        >>> import torch.distributed as dist
        >>> from collops.torch.serving import VllmCollectives
        >>> class Base:  # vllm's DeviceCommunicatorBase
        ...     def __init__(self, cpu_group, device=None, device_group=None, unique_name=""):
        ...         self.cpu_group, self.device_group = cpu_group, device_group
        >>> class Communicator(VllmCollectives, Base):
        ...     pass
        >>> [name for name in dir(Communicator) if name.endswith("v")]
        ['all_gatherv', 'reduce_scatterv']
    """

    cpu_group: Any
    device_group: Any

    @cached_property
    def collops_group(self) -> Group:
        """The collops group of the communicator's ranks."""
        return collops_group(self.device_group, self.cpu_group)

    def all_gatherv(
        self,
        input_: torch.Tensor | list[torch.Tensor],
        dim: int = 0,
        sizes: Sequence[int] | None = None,
    ) -> Any:
        """The rows of all ranks: ``y = concat(x_0, ..., x_{P-1})``.

        Args:
            input_: [rows, ...], or a list of such tensors, of any types, with the same number of
                rows. A list is gathered in one call.
            dim: 0.
            sizes: the rows of each rank; None: all ranks have equally many.

        Returns:
            [sum(sizes), ...], or a list of such tensors; with one rank, the input.

        Raises:
            collops.Error: dim is not 0, or the rows are not ``sizes[rank]``.
        """
        if dim != 0:
            raise_status(ErrorCode.ERROR_UNSUPPORTED, f"all_gatherv: dim must be 0, got {dim}")
        group = self.collops_group
        if group.size() == 1:
            return input_
        if isinstance(input_, torch.Tensor):
            return gather_rows(group, input_, sizes)
        return gather_list(group, input_, sizes)

    def reduce_scatterv(
        self, input_: torch.Tensor, dim: int = -1, sizes: Sequence[int] | None = None
    ) -> torch.Tensor:
        """This rank's rows of the sum over all ranks: ``y = split(sum_r x_r, sizes)[rank]``.

        Args:
            input_: a tensor of the same shape on all ranks.
            dim: the dimension that is scattered; negative ones count from the end.
            sizes: each rank's part of it; None: equal parts.

        Returns:
            A contiguous tensor whose `dim` has ``sizes[rank]``; with one rank, the input.

        Raises:
            collops.Error: there is no such dimension, or it is not ``sum(sizes)``.
        """
        group = self.collops_group
        if group.size() == 1:
            return input_
        if not -input_.dim() <= dim < input_.dim():
            raise_status(
                ErrorCode.ERROR_INVALID_PARAM,
                f"reduce_scatterv: dim must be from {-input_.dim()} to {input_.dim() - 1}, "
                f"got {dim}",
            )
        rows = scatter_rows(group, input_.movedim(dim, 0), sizes)
        return rows.movedim(0, dim).contiguous()
