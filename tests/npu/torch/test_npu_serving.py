"""The calls of inference engines, torchcomms and torch_npu's uneven ones, on NPU tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from device_serving import CALLS, compared
from npu_groups import run_npu_group

from collops.torch.serving import SglangCommunicator


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("name", CALLS)
def test_as_on_the_cpu(name: str, size: int) -> None:
    def work(rank: int) -> list[Any]:
        return compared(rank, name, size, f"npu:{rank}")

    for on_cpu, on_npu in run_npu_group(work, size):
        assert on_npu == on_cpu


def test_sglang_passes_a_stream(npu: Any) -> None:
    def work(rank: int) -> tuple[bool, list[float]]:
        engine, stream = SglangCommunicator(dist.group.WORLD, "npu"), torch.npu.Stream()
        x, out = torch.full((1, 2), float(rank)).npu(), torch.empty(2, 2, device="npu")
        engine.all_gather(out, x, stream, [1, 1])
        torch.npu.synchronize()
        with npu.held(stream):
            engine.all_gather(out, x, stream, [1, 1])
            busy = not stream.query() and bool(torch.npu.current_stream().query())
        torch.npu.synchronize()
        return busy, out.flatten().tolist()

    assert run_npu_group(work, 2) == [(True, [0, 0, 1, 1])] * 2
