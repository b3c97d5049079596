"""SGLang's uneven calls, and its communicator, which also has the other calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed import ReduceOp, ReduceScatterOptions

from collops.errors import ErrorCode, raise_status
from collops.torch.calls import refuse
from collops.torch.devices.kinds import KINDS
from collops.torch.graph_breaks import break_graphs
from collops.torch.reductions import reduction_of
from collops.torch.serving import calls
from collops.torch.serving.rows import collops_group, gather_list, gather_rows, scatter_rows

if TYPE_CHECKING:
    from collops.torch.group import Group


@break_graphs
class SglangCollectives:
    """Gives a ``GroupCoordinator`` of SGLang all_gatherv and reduce_scatterv.

    Put it before the coordinator's class in the list of base classes. The calls run on
    ``device_group`` or ``cpu_group`` if one of them is a collops group; otherwise all ranks of the
    group make a collops group at their first call.

    Source: ``sglang.srt.distributed.parallel_state``, where the calls need a GPU.

    Example:
        >>> from collops.torch.serving import SglangCollectives
        >>> class Base:  # sglang's GroupCoordinator
        ...     def __init__(self, device_group, cpu_group):
        ...         self.device_group, self.cpu_group = device_group, cpu_group
        >>> class Coordinator(SglangCollectives, Base):
        ...     pass
        >>> [name for name in dir(Coordinator) if name.endswith("v")]
        ['all_gatherv', 'reduce_scatterv']
    """

    cpu_group: Any
    device_group: Any

    @cached_property
    def collops_group(self) -> Group:
        """The collops group of the coordinator's ranks."""
        return collops_group(self.device_group, self.cpu_group)

    def all_gatherv(
        self,
        input_: torch.Tensor | list[torch.Tensor],
        sizes: Sequence[int] | None = None,
        output: torch.Tensor | None = None,
    ) -> list[torch.Tensor]:
        """The rows of all ranks: ``y = concat(x_0, ..., x_{P-1})``.

        Args:
            input_: [rows, ...], or a list of such tensors with the same number of rows, which are
                gathered in one call.
            sizes: the rows of each rank, 0 included; None: all ranks have equally many.
            output: [sum(sizes), ...], which is written, for one tensor alone; None: new tensors.

        Returns:
            A list of tensors [sum(sizes), ...], for one tensor too.

        Raises:
            collops.Error: the rows are not ``sizes[rank]``, or there is an output for a list.
        """
        xs = [input_] if isinstance(input_, torch.Tensor) else list(input_)
        if output is not None:
            if not isinstance(input_, torch.Tensor):
                refuse(
                    self.collops_group.communicator_for(output.device),
                    "AllGatherV",
                    ErrorCode.ERROR_INVALID_PARAM,
                    f"all_gatherv: output goes with one tensor, got a list of {len(xs)}",
                )
            return [gather_rows(self.collops_group, input_, sizes, output)]
        return gather_list(self.collops_group, xs, sizes)

    def reduce_scatterv(
        self,
        input_: torch.Tensor,
        output: torch.Tensor | None = None,
        sizes: Sequence[int] | None = None,
    ) -> torch.Tensor:
        """This rank's rows of the sum over all ranks: ``y = split(sum_r x_r, sizes)[rank]``.

        Args:
            input_: [sum(sizes), ...], the same shape on all ranks.
            output: [sizes[rank], ...], which is written; None: a new tensor.
            sizes: the rows of each rank, 0 included; None: equal parts.

        Returns:
            The output.

        Raises:
            collops.Error: the shapes and sizes do not fit.
        """
        return scatter_rows(self.collops_group, input_, sizes, output)


@break_graphs
class SglangCommunicator:
    """Replaces ``PyNcclCommunicator`` of SGLang's coordinator, for tensors of any device.

    Args:
        group: a group of torch.distributed, whose ranks all make a communicator.
        device: the device of the tensors, a CPU, a GPU or an NPU.

    Raises:
        collops.Error: the device is of another kind.

    Example:
        >>> from collops.torch.serving import SglangCommunicator
        >>> def pynccl_of(coordinator):
        ...     return SglangCommunicator(coordinator.cpu_group)
    """

    def __init__(self, group: Any, device: torch.device | int | str = "cpu") -> None:
        if torch.device(device).type not in ("cpu", *KINDS):
            raise_status(
                ErrorCode.ERROR_UNSUPPORTED,
                "SglangCommunicator: the device must be a CPU, GPU or NPU, got "
                f"{torch.device(device)}",
            )
        self.group = collops_group(group)
        self.device = torch.device(device)
        self.rank, self.world_size = self.group.rank(), self.group.size()
        self.available, self.disabled = True, False

    @contextmanager
    def change_state(self, enable: bool | None = None, stream: Any = None) -> Iterator[None]:
        """Enables or disables the communicator for a while; without `enable`, enables it."""
        before, self.disabled = self.disabled, enable is False
        try:
            yield
        finally:
            self.disabled = before

    def group_start(self) -> None:
        """Begins a group of calls, each of which runs at once."""

    def group_end(self) -> None:
        """Ends a group of calls."""

    def all_gather(
        self, out: torch.Tensor, x: torch.Tensor, stream: Any = None, sizes: Any = None
    ) -> None:
        """Writes the rows of all ranks to `out`: ``out = concat(x_0, ..., x_{P-1})``.

        Args:
            out: [sum(sizes), ...].
            x: [sizes[rank], ...].
            stream: of torch.cuda or torch.npu, for tensors there; None: the current one. CPU
                tensors are complete when the call returns.
            sizes: the rows of each rank, 0 included; None: all ranks have equally many.

        Raises:
            collops.Error: the shapes and sizes do not fit.
        """
        if not self.disabled:
            with _current(stream, x):
                gather_rows(self.group, x, sizes, out)

    def reduce_scatter(
        self,
        out: torch.Tensor,
        x: torch.Tensor,
        op: Any = ReduceOp.SUM,
        stream: Any = None,
        sizes: Any = None,
    ) -> None:
        """Writes this rank's rows of the reduction: ``out = split(reduce_r x_r, sizes)[rank]``.

        Args:
            out: [sizes[rank], ...].
            x: [sum(sizes), ...], the same shape on all ranks.
            op: a ReduceOp of torch.distributed: SUM, PRODUCT, MIN, MAX or AVG.
            stream: of torch.cuda or torch.npu, for tensors there; None: the current one. CPU
                tensors are complete when the call returns.
            sizes: the rows of each rank, 0 included; None: equal parts.

        Raises:
            collops.Error: the shapes and sizes do not fit, or there is no such reduction.
        """
        if not self.disabled:
            given, name = _reduction("reduce_scatter", op, x)
            with _current(stream, x):
                scatter_rows(self.group, given, sizes, out, name)

    def all_reduce(self, tensor: torch.Tensor, op: Any = ReduceOp.SUM, stream: Any = None) -> None:
        """Writes the reduction over all ranks to the tensor: ``x = reduce_r x_r``.

        Args:
            tensor: of the same shape on all ranks.
            op: a ReduceOp of torch.distributed: SUM, PRODUCT, MIN, MAX or AVG.
            stream: as in all_gather().

        Raises:
            collops.Error: the shapes do not fit, or there is no such reduction.
        """
        if not self.disabled:
            self._all_reduce(tensor, tensor, op, stream)

    def outplace_all_reduce(
        self,
        in_tensor: torch.Tensor,
        out_tensor: torch.Tensor | None = None,
        op: Any = ReduceOp.SUM,
        stream: Any = None,
    ) -> torch.Tensor | None:
        """As all_reduce(), into other memory.

        Args:
            in_tensor: of the same shape on all ranks; it keeps its values.
            out_tensor: the result's memory; None: a new tensor.
            op: a ReduceOp of torch.distributed: SUM, PRODUCT, MIN, MAX or AVG.
            stream: as in all_gather().

        Returns:
            The result; None if the communicator is disabled.

        Raises:
            collops.Error: the shapes do not fit, or there is no such reduction.
        """
        if self.disabled:
            return None
        out = torch.empty_like(in_tensor) if out_tensor is None else out_tensor
        self._all_reduce(in_tensor, out, op, stream)
        return out

    def _all_reduce(self, x: torch.Tensor, out: torch.Tensor, op: Any, stream: Any) -> None:
        given, name = _reduction("all_reduce", op, x)
        with _current(stream, x):
            calls.all_reduce(self.group, given, out, name)

    def broadcast(self, tensor: torch.Tensor, src: int, stream: Any = None) -> None:
        """Gives every rank the values of rank `src`, in place.

        Args:
            tensor: of the same shape on all ranks.
            src: the rank whose values they are, in the group's numbers.
            stream: as in all_gather().
        """
        if not self.disabled:
            with _current(stream, tensor):
                calls.broadcast(self.group, tensor, src)

    def send(self, tensor: torch.Tensor, dst: int, stream: Any = None) -> None:
        """Sends a tensor to another rank, and returns when that rank has it.

        Args:
            tensor: what is sent.
            dst: the rank that gets it, in the group's numbers.
            stream: as in all_gather().
        """
        if not self.disabled:
            with _current(stream, tensor):
                calls.send(self.group, tensor, dst)

    def recv(self, tensor: torch.Tensor, src: int, stream: Any = None) -> None:
        """Fills a tensor with what another rank sends.

        Args:
            tensor: of the shape and type of what is sent.
            src: the rank that sends it, in the group's numbers.
            stream: as in all_gather().
        """
        if not self.disabled:
            with _current(stream, tensor):
                calls.recv(self.group, tensor, src)

    def all_to_all_single(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, stream: Any = None
    ) -> None:
        """Sends part i of a tensor to rank i, and puts what rank i sends into part i of the output.

        Args:
            output_tensor: as many elements as the input.
            input_tensor: as many equal parts as ranks, whatever its shape.
            stream: as in all_gather().

        Raises:
            collops.Error: the elements cannot be divided so.
        """
        if not self.disabled:
            with _current(stream, input_tensor):
                calls.all_to_all(self.group, output_tensor, input_tensor)

    @contextmanager
    def use_symmetric_memory(self, *_: Any, **__: Any) -> Iterator[None]:
        """A context in which tensors are made as always: no call needs other memory."""
        yield


def _reduction(call: str, op: Any, x: torch.Tensor) -> tuple[torch.Tensor, str]:
    """What is reduced, and the communicator's name of the reduction."""
    options = ReduceScatterOptions()
    options.reduceOp = op  # a ReduceOp, or one of its kinds
    reduction = reduction_of(call, options.reduceOp, x.dtype)
    return x if reduction.prepare is None else reduction.prepare(x), reduction.name


def _current(stream: Any, x: torch.Tensor) -> AbstractContextManager[Any]:
    """Makes a stream of a device the current one, if there is one."""
    if stream is None or x.is_cpu:
        return nullcontext()
    made: AbstractContextManager[Any] = torch.get_device_module(x.device).stream(stream)
    return made
