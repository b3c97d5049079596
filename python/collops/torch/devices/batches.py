"""torch.distributed.batch_isend_irecv on CUDA tensors of a collops group: one call for all of them.

torch 2.13 batches the messages of its own class of groups alone, and starts those of others one by
one. Two ranks that both send first would then wait for each other on their GPUs. torch_npu has a
function of its own for NPU tensors, which calls the group's batch_isend_irecv.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from collops.torch.group import Group

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def register() -> None:
    """Puts the function in front of torch's, once for the process."""
    torchs = dist.batch_isend_irecv
    if not hasattr(torchs, "_collops"):
        batched = _in_front(torchs)
        batched._collops = True  # type: ignore[attr-defined]
        dist.batch_isend_irecv = dist.distributed_c10d.batch_isend_irecv = batched


def _in_front(torchs: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(torchs)
    def batch_isend_irecv(p2p_op_list: Sequence[Any]) -> Any:
        group = _group_of(p2p_op_list)
        if group is None:
            return torchs(p2p_op_list)
        dist.distributed_c10d._check_p2p_op_list(p2p_op_list)
        names = ["isend" if one.op is dist.isend else "irecv" for one in p2p_op_list]
        tensors = [one.tensor for one in p2p_op_list]
        return [group.batch_isend_irecv(names, tensors, [one.group_peer for one in p2p_op_list])]

    return batch_isend_irecv


def _group_of(messages: Sequence[Any]) -> Group | None:
    """The group, if the messages are of CUDA tensors and of a collops group, and have no tags.

    A tag is refused where the message is started.
    """
    if not messages or not all(isinstance(one, dist.P2POp) for one in messages):
        return None  # which torch refuses
    if any(one.tag for one in messages) or not all(one.tensor.is_cuda for one in messages):
        return None
    group = messages[0].group or dist.group.WORLD
    return group if isinstance(group, Group) else None
