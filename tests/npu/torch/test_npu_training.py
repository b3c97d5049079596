"""DistributedDataParallel on NPU tensors: its hooks run in autograd's thread."""

from __future__ import annotations

from typing import Any

import pytest
from device_training import trained
from npu_groups import run_npu_group


@pytest.mark.parametrize("hooked", [False, True], ids=["plain", "hook"])
def test_the_parameters_are_those_of_the_cpu(hooked: bool) -> None:
    def work(rank: int) -> list[Any]:
        return [trained(rank, device, hooked) for device in ("cpu", f"npu:{rank}")]

    found = run_npu_group(work, 2)
    assert found[0][0] != [[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [1.0] * 6]
    for on_cpu, on_npu in found:
        assert on_cpu == found[0][0]
        assert on_npu == on_cpu
