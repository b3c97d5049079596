"""fully_shard() on ranks of two hosts: on gloo, on collops, and there with collops' windows."""

from __future__ import annotations

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import collops.torch.fsdp

# A layer is more than what travels in a message's own frame.
WIDE = 96
LIMIT = timedelta(seconds=float(os.environ["COLLOPS_TIMEOUT_S"]))


def losses(backend: str, *, windows: bool = False) -> list[float]:
    """Of five steps, each rank on its own batch; the mean over the ranks."""
    dist.init_process_group(backend, timeout=LIMIT)
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(WIDE, WIDE), nn.Tanh(), nn.Linear(WIDE, 5))
    mesh = dist.init_device_mesh("cpu", (size,))
    for part in (model[0], model[2], model):
        fully_shard(part, mesh=mesh)
    if windows:
        collops.torch.fsdp.use(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    found = []
    for step in range(5):
        draw = torch.Generator().manual_seed(100 * step + rank)
        loss = model(torch.randn(8, WIDE, generator=draw)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        found.append(mean.item() / size)
    group = dist.group.WORLD
    made = group.windows.made if isinstance(group, collops.torch.Group) else 0
    assert (made > 0) == windows, made
    dist.destroy_process_group()
    return found


def main() -> None:
    """Prints whether the losses are those of gloo."""
    torch.set_num_threads(1)
    wanted = losses("gloo")
    assert wanted[-1] < wanted[0]
    for windows in (False, True):
        found = losses("collops", windows=windows)
        same = found == wanted
        print(f"windows {windows}: {'equal' if same else f'{found}, gloo {wanted}'}", flush=True)


if __name__ == "__main__":
    main()
