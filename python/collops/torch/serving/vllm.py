"""The calls of vLLM's communicators, two of which its CPU ranks lack (vLLM issue 57837)."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from collops.collectives.messages import RecvFrom, SendTo
from collops.errors import ErrorCode, raise_status
from collops.torch.graph_breaks import break_graphs
from collops.torch.memory import source
from collops.torch.serving import calls
from collops.torch.serving.rows import collops_group, gather_list, gather_rows, scatter_rows

if TYPE_CHECKING:
    from collops.torch.group import Group


@break_graphs
class VllmCollectives:
    """Gives a ``DeviceCommunicatorBase`` of vLLM all of its calls on collops.

    Put it before the communicator's class in the list of base classes. The calls run on
    ``device_group`` or ``cpu_group`` if one of them is a collops group; otherwise all ranks of the
    group make a collops group at their first call. With CPU ranks nobody needs to: collops's
    plug-in makes vLLM use such a class (docs/vllm.md).

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
        ['all_gatherv', 'recv', 'reduce_scatterv']
    """

    cpu_group: Any
    device_group: Any
    device: torch.device

    @cached_property
    def collops_group(self) -> Group:
        """The collops group of the communicator's ranks."""
        return collops_group(self.device_group, self.cpu_group)

    @cached_property
    def _buffers(self) -> dict[Any, torch.Tensor]:
        return {}

    def all_reduce(self, input_: torch.Tensor) -> torch.Tensor:
        """The sum over all ranks: ``y = sum_r x_r``.

        Args:
            input_: a tensor of the same shape on all ranks, which keeps its values: torch.compile
                traces the call as one that changes nothing.

        Returns:
            A new tensor; with one rank, the input.
        """
        group = self.collops_group
        return input_ if group.size() == 1 else calls.all_reduce(group, input_)

    def all_gather(self, input_: torch.Tensor, dim: int = -1) -> torch.Tensor:
        """The tensors of all ranks along a dimension: ``y = concat(x_0, ..., x_{P-1})``.

        Args:
            input_: a tensor of the same shape on all ranks.
            dim: the dimension along which they stand; negative ones count from the end.

        Returns:
            A contiguous tensor; with one rank, the input.

        Raises:
            collops.Error: there is no such dimension.
        """
        group = self.collops_group
        if group.size() == 1:
            return input_
        return calls.all_gather(group, input_, _dim("all_gather", input_, dim))

    def reduce_scatter(self, input_: torch.Tensor, dim: int = -1) -> torch.Tensor:
        """This rank's part of the sum: reduce_scatterv() with equal parts."""
        return self.reduce_scatterv(input_, dim)

    def gather(self, input_: torch.Tensor, dst: int = 0, dim: int = -1) -> torch.Tensor | None:
        """As all_gather(), on one rank.

        Args:
            input_: a tensor of the same shape on all ranks.
            dst: the rank that gets the result, in the group's numbers.
            dim: the dimension along which they stand; negative ones count from the end.

        Returns:
            A contiguous tensor on rank `dst`, None on the others; with one rank, the input.

        Raises:
            collops.Error: there is no such dimension or rank.
        """
        group = self.collops_group
        if group.size() == 1:
            return input_
        return calls.gather(group, input_, dst, _dim("gather", input_, dim))

    def broadcast(self, tensor: torch.Tensor, src: int = 0) -> torch.Tensor:
        """Gives every rank the values of rank `src`, in place.

        Args:
            tensor: of the same shape on all ranks.
            src: the rank whose values they are, in the group's numbers.

        Returns:
            The tensor.
        """
        group = self.collops_group
        return tensor if group.size() == 1 else calls.broadcast(group, tensor, src)

    def send(self, tensor: torch.Tensor, dst: int | None = None) -> None:
        """Sends a tensor to another rank, and returns when that rank has it.

        Args:
            tensor: what is sent.
            dst: the rank that gets it, in the group's numbers; None: the next one.
        """
        group = self.collops_group
        calls.send(group, tensor, (group.rank() + 1) % group.size() if dst is None else dst)

    def recv(self, size: torch.Size, dtype: torch.dtype, src: int | None = None) -> torch.Tensor:
        """Receives a tensor from another rank.

        Args:
            size: the shape of what is sent.
            dtype: its type.
            src: the rank that sends it, in the group's numbers; None: the one before.

        Returns:
            A new tensor on the communicator's device.
        """
        group = self.collops_group
        out = torch.empty(size, dtype=dtype, device=self.device)
        return calls.recv(group, out, (group.rank() - 1) % group.size() if src is None else src)

    def send_tensor_dict(self, tensor_dict: dict[str, Any], dst: int) -> None:
        """Sends tensors with their names, and other values, to another rank.

        Args:
            tensor_dict: what is sent; what is no tensor is pickled.
            dst: the rank that gets it, in the group's numbers.
        """
        group = self.collops_group
        tensors = [x for x in tensor_dict.values() if isinstance(x, torch.Tensor)]
        described = [
            (name, (x.dtype, x.shape) if isinstance(x, torch.Tensor) else None, x)
            for name, x in tensor_dict.items()
        ]
        words = pickle.dumps([(n, kind, None if kind else x) for n, kind, x in described])
        comm = group.communicator_for(self.device)
        comm.send(torch.tensor([len(words)]), dst)
        comm.send(torch.frombuffer(bytearray(words), dtype=torch.uint8), dst)
        comm.exchange([SendTo(source("Send", x), dst) for x in tensors])

    def recv_tensor_dict(self, src: int) -> dict[str, Any]:
        """Receives what a rank sends by send_tensor_dict().

        The sender is trusted, as by vLLM's own communicators: what it pickled is unpickled.

        Args:
            src: the rank that sends it, in the group's numbers.

        Returns:
            The names and the values, on the communicator's device.
        """
        comm = self.collops_group.communicator_for(self.device)
        length = comm.recv(torch.empty(1, dtype=torch.int64), src)
        words = comm.recv(torch.empty(int(length), dtype=torch.uint8), src)
        described = pickle.loads(words.numpy().tobytes())
        values = {
            name: torch.empty(kind[1], dtype=kind[0], device=self.device) if kind else value
            for name, kind, value in described
        }
        comm.exchange([RecvFrom(values[name], src) for name, kind, _ in described if kind])
        return values

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
        dim = _dim("reduce_scatterv", input_, dim)
        rows = scatter_rows(group, input_.movedim(dim, 0), sizes)
        return rows.movedim(0, dim).contiguous()

    def reduce_scatterv_into_output(
        self,
        input_: torch.Tensor,
        output: torch.Tensor,
        dim: int = -1,
        sizes: Sequence[int] | None = None,
    ) -> torch.Tensor:
        """As reduce_scatterv(), into memory of the caller.

        Args:
            input_: a tensor of the same shape on all ranks.
            output: the result's memory.
            dim: the dimension that is scattered; negative ones count from the end.
            sizes: each rank's part of it; None: equal parts.

        Returns:
            The output.

        Raises:
            collops.Error: there is no such dimension, or the shapes and sizes do not fit.
        """
        group = self.collops_group
        if group.size() == 1:
            return output.copy_(input_)
        dim = _dim("reduce_scatterv_into_output", input_, dim)
        scatter_rows(group, input_.movedim(dim, 0), sizes, output.movedim(dim, 0))
        return output

    def get_symmetric_memory_buffer(
        self, role: str, shape: Sequence[int], dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor | None:
        """Memory that the other ranks read in place, for what reduce_scatterv() gets.

        Args:
            role: what the memory is for; what is asked for by one role lies in the same place.
            shape: of the tensor.
            dtype: its type.
            device: a CPU; for others there is no such memory.

        Returns:
            An uninitialised tensor; None: there is no such memory.
        """
        if torch.device(device).type != "cpu" or self.collops_group.size() == 1:
            return None
        elements = torch.Size(shape).numel()
        buffer = self._buffers.get((role, dtype))
        if buffer is None or buffer.numel() < elements:
            buffer = self.collops_group.windows.empty(elements, dtype)
            self._buffers[role, dtype] = buffer
        return buffer[:elements].view(*shape)


def _dim(call: str, x: torch.Tensor, dim: int) -> int:
    if not -x.dim() <= dim < x.dim():
        raise_status(
            ErrorCode.ERROR_INVALID_PARAM,
            f"{call}: dim must be from {-x.dim()} to {x.dim() - 1}, got {dim}",
        )
    return int(dim % x.dim())
