"""FSDP2 on windows: fully_shard() whose gathers and reductions copy each byte once.

fully_shard() packs the shards of a module's parameters into a buffer and gathers them there; it
packs gradients into another buffer, which it reduces and scatters. use() puts these buffers on
windows of the group, so that each rank reads the others' parts in place, and reuses the windows
from step to step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule

from collops.errors import ErrorCode, raise_status
from collops.torch.collective_calls import all_gather_single, reduce_scatter_single
from collops.torch.group import Group
from collops.torch.private import fsdp_communication

if TYPE_CHECKING:
    from collops.torch.window_pool import WindowPool

AllGather: Any
ReduceScatter: Any
AllGather, ReduceScatter = fsdp_communication()
_PREMUL_SUM = dist.ReduceOp.RedOpType.PREMUL_SUM


def use(module: torch.nn.Module) -> None:
    """Puts the communication of a module under fully_shard() and its sub-modules on windows.

    ``parameters, gradients = those without use(), bit for bit``

    The group that shards gathers and reduces on its own windows; with a second dimension of
    replicas (HSDP), reduced gradients are on windows of the group of replicas, whose all_reduce
    reads them in place. ``group.windows`` tells how many windows there are.

    Args:
        module: fully_shard() was called for it, for sub-modules of it or for both; on CPU meshes
            of the backend collops. Call use() after the last fully_shard(), on every rank.

    Raises:
        ArgumentError: no module is under fully_shard(), one is on a group of another backend or
            not on a CPU, or shards its parameters on several meshes. No module is then changed.

    Source of the semantics: torch.distributed.fsdp.FSDPModule.set_custom_all_gather and
    set_custom_reduce_scatter.

    Example:
        >>> import tempfile, torch, torch.distributed as dist
        >>> from torch.distributed.fsdp import fully_shard
        >>> import collops.torch.fsdp
        >>> from collops.testing import run_ranks
        >>> def train(rank, path):
        ...     dist.init_process_group(
        ...         "collops", init_method=f"file://{path}", rank=rank, world_size=2
        ...     )
        ...     model = torch.nn.Linear(4, 2, bias=False)
        ...     torch.nn.init.ones_(model.weight)
        ...     fully_shard(model, mesh=dist.init_device_mesh("cpu", (2,)))
        ...     collops.torch.fsdp.use(model)
        ...     model(torch.full((1, 4), rank + 1.0)).sum().backward()
        ...     gradient = model.weight.grad.to_local().tolist()
        ...     dist.destroy_process_group()
        ...     return gradient
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run_ranks(train, 2, f"{folder}/store")
        [[[1.5, 1.5, 1.5, 1.5]], [[1.5, 1.5, 1.5, 1.5]]]
    """
    found = [
        (part, _sharded_groups(name or type(part).__name__, part))
        for name, part in module.named_modules()
        if isinstance(part, FSDPModule)
    ]
    if not found:
        _refuse(
            f"{type(module).__name__} and its sub-modules are not under fully_shard(): call "
            "torch.distributed.fsdp.fully_shard() first"
        )
    for part, groups in found:
        if groups is not None:
            gathers, scatters, replicas = groups
            part.set_custom_all_gather(WindowAllGather(gathers.windows))
            part.set_custom_reduce_scatter(WindowReduceScatter(scatters, replicas))


class WindowAllGather(AllGather):
    """FSDP2's all-gather, whose buffer is a window: the other ranks read this rank's part in it."""

    def __init__(self, windows: WindowPool) -> None:
        self._windows = windows

    def allocate(
        self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """The buffer of the whole parameters; this rank's part of it is the input."""
        return self._windows.empty(math.prod(map(int, size)), dtype)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: Any,
        async_op: bool = False,
    ) -> Any:
        """Gathers; with `async_op` the Work refers to the buffer until it is waited for."""
        return all_gather_single(output_tensor, input_tensor, group=group, async_op=async_op)


class WindowReduceScatter(ReduceScatter):
    """FSDP2's reduce-scatter, whose input is a window: the other ranks read their blocks in it."""

    def __init__(self, shard: Group, replicas: Group | None) -> None:
        self._size = shard.size()
        self._inputs = shard.windows
        self._outputs = None if replicas is None else replicas.windows
        self._elements = -1  # of the last input whose output has not been asked for

    def allocate(
        self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """The input's buffer, or the output's, for which torch 2.13 asks next.

        Nobody but this rank reads the output, unless there are replicas. If torch asked in another
        way, buffers would be on other memory than is best, and results the same.
        """
        elements = math.prod(map(int, size))
        if elements * self._size != self._elements:
            self._elements = elements
            return self._inputs.empty(elements, dtype)
        self._elements = -1
        if self._outputs is None:
            return torch.empty(elements, dtype=dtype)
        return self._outputs.empty(elements, dtype)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: Any,
        op: Any,
        async_op: bool = False,
    ) -> Any:
        """Reduces and scatters; a factor (PREMUL_SUM) is multiplied into the input, in place."""
        if op == _PREMUL_SUM:
            input_tensor.mul_(op.__getstate__()[1])
            op = dist.ReduceOp.SUM
        return reduce_scatter_single(
            output_tensor, input_tensor, op=op, group=group, async_op=async_op
        )


def _sharded_groups(name: str, part: Any) -> tuple[Group, Group, Group | None] | None:
    """The groups that gather, scatter and replicate for one module; None: it has no parameters."""
    state = part._get_fsdp_state()
    found = getattr(state, "_fsdp_param_groups", None)
    if found is None:  # torch before 2.12: one, or None
        found = [group for group in [state._fsdp_param_group] if group is not None]
    if not found:  # all parameters are those of sub-modules that have their own
        return None
    if len(found) > 1:
        _refuse(
            f"{name} shards its parameters on {len(found)} meshes; torch allows own communication "
            "for one: give such parameters to sub-modules, each under its own fully_shard()"
        )
    device = torch.device(found[0].device)
    if device.type != "cpu":
        _refuse(f"{name} is on {device}: windows are memory of CPUs, leave use() out")
    mesh = found[0].mesh_info
    shard = getattr(mesh, "shard_process_group", None)
    replicas = getattr(mesh, "replicate_process_group", None)
    if not isinstance(shard, Group):
        backend = "of no group" if shard is None else f"of the backend {shard.name()}"
        _refuse(
            f"{name} is sharded by ranks {backend}: make the mesh on a process group of the "
            'backend collops, init_process_group("collops")'
        )
    # FSDPModule.set_separate_reduce_scatter_group() makes one.
    scatters = getattr(mesh, "reduce_scatter_process_group", None)
    return (
        shard,
        scatters if isinstance(scatters, Group) else shard,
        replicas if isinstance(replicas, Group) else None,
    )


def _refuse(reason: str) -> NoReturn:
    raise_status(ErrorCode.ERROR_INVALID_PARAM, f"use: {reason}")
