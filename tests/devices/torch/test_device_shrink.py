"""The ranks that are left of a group have their devices in the new one, too."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

import collops
import collops.torch
from tests.devices.torch.device_groups import BACKENDS, KIND, on, run_device_group


def _total(device: str) -> float:
    x = torch.tensor([dist.get_rank() + 1.0]).to(device)
    dist.all_reduce(x)
    return float(x.item())


def _lose_one(rank: int, noticed_on: str) -> Any:
    found = [_total(KIND), _total("cpu")]
    if rank == 1:
        dist.group.WORLD.shutdown()
        return found
    with pytest.raises(collops.Error):
        while True:
            _total(noticed_on)
    new = collops.torch.shrink()
    rows = torch.full((rank + 1, 2), float(rank)).to(KIND)
    whole = collops.torch.all_gatherv(rows, [1, 3], group=new)
    return [*found, _total(KIND), _total("cpu"), whole[:, 0].tolist()]


# An NPU on which a call has failed is not used again by its process.
@pytest.mark.parametrize("noticed_on", ["cpu", "cuda"] if KIND == "cuda" else ["cpu"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_those_that_are_left_connect_their_devices_anew(backend: str, noticed_on: str) -> None:
    left = [6.0, 6.0, 3.0, 3.0, [0.0, 2.0, 2.0, 2.0]]
    assert run_device_group(_lose_one, 3, noticed_on, env=on(backend)) == [left, [6.0, 6.0], left]
