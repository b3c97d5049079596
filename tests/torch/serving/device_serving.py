"""The calls of inference engines, torchcomms and torch_npu's uneven ones, on any device."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from collops.torch import uneven
from collops.torch.serving import SglangCommunicator, VllmCollectives

SIZES = [3, 0, 2, 1]


class VllmCommunicator(VllmCollectives):
    """The members of vLLM's class that the mixin relies on."""

    def __init__(self) -> None:
        self.cpu_group = self.device_group = dist.group.WORLD


def _vllm(rank: int, sizes: list[int], device: str) -> list[torch.Tensor]:
    engine = VllmCommunicator()
    x = (torch.arange(sizes[rank] * 4.0) + 100 * rank).view(-1, 4).to(device)
    ids, flags = x[:, :1].to(torch.int64), x[:, 0].to(torch.bool)
    every = engine.all_gatherv([x, ids, flags], 0, sizes)
    whole = torch.arange(sum(sizes) * 4.0).view(-1, 4).to(device) * (rank + 1)
    part = engine.reduce_scatterv(whole.t().contiguous(), 1, sizes)
    return [*every, part, engine.all_gatherv(whole, 0, None)]


def _sglang(rank: int, sizes: list[int], device: str) -> list[torch.Tensor]:
    engine = SglangCommunicator(dist.group.WORLD, device)
    stream = None if device == "cpu" else torch.get_device_module(device).Stream()
    x = (torch.arange(sizes[rank] * 2.0) + 100 * rank).view(-1, 2).to(device)
    out, own = torch.empty(sum(sizes), 2, device=device), torch.empty_like(x)
    if stream is not None:
        torch.get_device_module(device).synchronize()
    engine.all_gather(out, x, stream, sizes)
    engine.reduce_scatter(own, out, dist.ReduceOp.AVG, stream, sizes)
    if stream is not None:
        stream.synchronize()
    return [out, own]


def _uneven(rank: int, sizes: list[int], device: str) -> list[torch.Tensor]:
    x = (torch.arange(sizes[rank] * 2.0) + 100 * rank).view(-1, 2).to(device)
    out, own = torch.empty(sum(sizes), 2, device=device), torch.empty_like(x)
    uneven.all_gather_into_tensor_uneven(out, x, sizes)
    uneven.reduce_scatter_tensor_uneven(own, out, sizes)
    comm = uneven.UnevenComm()
    parts = [torch.empty(rows, 2, device=device) for rows in sizes]
    comm.all_gather_v(parts, x, True).wait()
    return [out, own, *parts]


CALLS = {"vllm": _vllm, "sglang": _sglang, "uneven": _uneven}


def compared(rank: int, name: str, size: int, device: str) -> list[Any]:
    """The tensors of a call on the CPU, and on a device."""
    found = []
    for where in ("cpu", device):
        outs = CALLS[name](rank, SIZES[:size], where)
        assert all(str(x.device) == where for x in outs)
        found.append([(str(x.dtype), x.tolist()) for x in outs])
    return found
