"""What only a CUDA build of torch has: torch.compile on CUDA tensors, and expandable segments.

Code of inductor is not run: no simulated GPU runs triton's kernels.
"""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch
import torch.distributed as dist

import collops.torch as ct
from tests.devices.torch.device_groups import BACKENDS, on, run_device_group

importlib.import_module("torch._dynamo")  # once, not in each rank: it takes seconds


def _traced(x: Any) -> Any:
    whole = torch.empty(2 * x.shape[0], x.shape[1], device=x.device)
    dist.all_gather_into_tensor(whole, x * 2)
    total = whole.sum(0)
    dist.all_reduce(total)
    rows = ct.all_gatherv(whole[: x.shape[0]] + total, [3, 3])
    return ct.reduce_scatterv(rows.sin(), [1, 5])


def _broken(x: Any) -> Any:
    parts = [torch.empty_like(x) for _ in range(2)]
    dist.all_gather(parts, x + 1)
    return torch.cat(parts) * 3


def _numbers(rank: int, device: str) -> torch.Tensor:
    return (torch.arange(6.0).view(3, 2) + 10 * rank).to(device)


@pytest.mark.parametrize("backend", BACKENDS)
def test_compiled_code_gives_what_it_gives_on_the_cpu(backend: str) -> None:
    def work(rank: int) -> list[list[float]]:
        x = _numbers(rank, f"cuda:{rank}")
        whole = torch.compile(_traced, backend="aot_eager", fullgraph=True)(x)
        assert whole.is_cuda
        broken = torch.compile(_broken, backend="aot_eager")(x)
        on_cpu = _numbers(rank, "cpu")
        found = [whole, _traced(on_cpu), broken, _broken(on_cpu)]
        return [each.flatten().tolist() for each in found]

    for rank, (whole, want, broken, want_broken) in enumerate(
        run_device_group(work, 2, env=on(backend))
    ):
        assert len(whole) == 2 * (1, 5)[rank] and whole == want
        assert len(set(broken)) == 12 and broken == want_broken


def test_gradients_of_compiled_operators() -> None:
    def work(rank: int) -> list[list[float]]:
        found = []
        for device in (f"cuda:{rank}", "cpu"):
            x = _numbers(rank, device).requires_grad_()
            rows = torch.compile(_gathered, backend="aot_eager", fullgraph=True)(x)
            (rows * torch.arange(12.0, device=device).view(6, 2)).sum().backward()
            assert x.grad is not None
            found.append(x.grad.flatten().tolist())
        return found

    for on_gpu, on_cpu in run_device_group(work, 2):
        assert len(set(on_gpu)) == 6 and on_gpu == on_cpu


def _gathered(x: Any) -> Any:
    return ct.all_gatherv(x.square(), [3, 3])


@pytest.mark.parametrize("backend", BACKENDS)
def test_expandable_segments(backend: str) -> None:
    """Memory of cuMemCreate, which no other process can open by cuIpcOpenMemHandle."""

    def work(rank: int) -> list[float]:
        torch.cuda.memory._set_allocator_settings("expandable_segments:True")
        x = (torch.arange(300_000.0) + rank).to(f"cuda:{rank}")
        dist.all_reduce(x)
        assert torch.cuda.memory_snapshot()[0]["is_expandable"]
        return [x[0].item(), x[-1].item()]

    # Else torch asks NVML, which is not simulated.
    env = on(backend) | {"TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC": "0"}
    assert run_device_group(work, 2, env=env) == [[1.0, 599_999.0]] * 2
