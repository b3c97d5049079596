"""DDP trains on tensors of devices with the numbers of CPU tensors."""

from __future__ import annotations

from typing import Any

import pytest

from tests.devices.torch.device_groups import KIND, run_device_group
from tests.torch.training.device_training import trained


@pytest.mark.parametrize("hooked", [False, True], ids=["plain", "hook"])
def test_ddp_trains_as_on_the_cpu(hooked: bool) -> None:
    def work(rank: int) -> list[Any]:
        return [trained(rank, device, hooked) for device in ("cpu", f"{KIND}:{rank}")]

    found = run_device_group(work, 2)
    assert found[0][0] != [[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [1.0] * 6]
    for on_cpu, on_device in found:
        assert on_cpu == found[0][0]
        assert on_device == on_cpu
