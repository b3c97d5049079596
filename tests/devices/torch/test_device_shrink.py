"""The ranks that are left of a group have their devices in the new one, too."""

from __future__ import annotations

import multiprocessing
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist

import collops
import collops.torch
from tests.devices.torch.device_groups import BACKENDS, KIND, on, run_device_group
from tests.torch.groups import TIMEOUT_S


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


def _leave_one_out(rank: int, waits_for_it: bool, are_there: Any) -> Any:
    other = dist.new_group()
    x = torch.tensor([rank + 1.0]).to(KIND)
    dist.all_reduce(x, group=other)
    found = [float(x.item()), _total(KIND)]
    if rank == 2:
        are_there.wait(TIMEOUT_S)  # in no call, and does not leave
        with pytest.raises(collops.Error):
            _total("cpu")
        return found
    y, z = (torch.tensor([rank + 1.0]).to(KIND) for _ in range(2))
    if waits_for_it:
        dist.all_reduce(y, group=other)
        dist.all_reduce(z)
    begun = time.monotonic()
    collops.torch.shrink(exclude=[2])
    assert time.monotonic() - begun < TIMEOUT_S / 2
    found += [_total(KIND), _total("cpu")]
    are_there.wait(TIMEOUT_S)
    return found


# On an NPU nothing ends a call that waits for a rank.
@pytest.mark.parametrize("waits_for_it", [False, True] if KIND == "cuda" else [False])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_rank_is_left_out_that_has_not_made_the_others_calls(
    backend: str, waits_for_it: bool
) -> None:
    left = [6.0, 6.0, 3.0, 3.0]
    are_there = multiprocessing.get_context("fork").Barrier(3)
    found = run_device_group(_leave_one_out, 3, waits_for_it, are_there, env=on(backend))
    assert found == [left, left, [6.0, 6.0]]
