"""The calls of inference engines, torchcomms and torch_npu's uneven ones, on CUDA tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from device_serving import CALLS, compared
from gpu_groups import BACKENDS, on, run_gpu_group
from simulated_torch import held

from collops.torch.serving import SglangCommunicator


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("name", CALLS)
def test_as_on_the_cpu(name: str, size: int, backend: str) -> None:
    def work(rank: int) -> list[Any]:
        return compared(rank, name, size, f"cuda:{rank}")

    for on_cpu, on_gpu in run_gpu_group(work, size, env=on(backend)):
        assert on_gpu == on_cpu


def test_sglang_passes_a_stream() -> None:
    def work(rank: int) -> tuple[bool, list[float]]:
        engine, stream = SglangCommunicator(dist.group.WORLD, "cuda"), torch.cuda.Stream()
        x, out = torch.full((1, 2), float(rank)).cuda(), torch.empty(2, 2, device="cuda")
        torch.cuda.synchronize()
        engine.all_gather(out, x, stream, [1, 1])
        torch.cuda.synchronize()
        with held(stream):
            engine.all_gather(out, x, stream, [1, 1])
            busy = not stream.query() and bool(torch.cuda.current_stream().query())
        torch.cuda.synchronize()
        return busy, out.flatten().tolist()

    assert run_gpu_group(work, 2) == [(True, [0, 0, 1, 1])] * 2
