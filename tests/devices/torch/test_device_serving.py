"""The calls of inference engines, torchcomms and torch_npu's uneven ones, on tensors of devices."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

from collops.torch.serving import SglangCommunicator
from tests.devices.torch.device_groups import BACKENDS, KIND, devices, held, on, run_device_group
from tests.torch.serving.device_serving import CALLS, compared


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("size", [2, 3, 4] if KIND == "npu" else [2, 4])
@pytest.mark.parametrize("name", CALLS)
def test_as_on_the_cpu(name: str, size: int, backend: str) -> None:
    def work(rank: int) -> list[Any]:
        return compared(rank, name, size, f"{KIND}:{rank}")

    for on_cpu, on_device in run_device_group(work, size, env=on(backend)):
        assert on_device == on_cpu


def test_sglang_passes_a_stream() -> None:
    def work(rank: int) -> tuple[bool, list[float]]:
        engine, stream = SglangCommunicator(dist.group.WORLD, KIND), devices.Stream()
        x, out = torch.full((1, 2), float(rank)).to(KIND), torch.empty(2, 2, device=KIND)
        devices.synchronize()
        engine.all_gather(out, x, stream, [1, 1])
        devices.synchronize()
        with held(stream):
            engine.all_gather(out, x, stream, [1, 1])
            busy = not stream.query() and bool(devices.current_stream().query())
        devices.synchronize()
        return busy, out.flatten().tolist()

    assert run_device_group(work, 2) == [(True, [0, 0, 1, 1])] * 2
