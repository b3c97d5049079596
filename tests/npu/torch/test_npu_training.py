"""DistributedDataParallel on NPU tensors: its hooks run in autograd's thread."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from npu_groups import run_npu_group
from torch.nn.parallel import DistributedDataParallel


class Line(torch.nn.Module):
    """A model of functions that the simulated libopapi has."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = torch.nn.Parameter(torch.arange(6.0))
        self.base = torch.nn.Parameter(torch.ones(6))

    def forward(self, x: Any) -> Any:
        return (x * self.slope + self.base).sum()


def _hook(state, bucket):  # type: ignore[no-untyped-def]  # torch compares annotations
    future = torch.distributed.all_reduce(bucket.buffer(), async_op=True).get_future()
    return future.then(lambda done: done.value()[0] / 4)


def _trained(rank: int, device: str, hooked: bool) -> list[list[float]]:
    model = DistributedDataParallel(Line().to(device), bucket_cap_mb=1e-5)
    if hooked:
        model.register_comm_hook(None, _hook)
    for step in range(3):
        model.zero_grad()
        model((torch.arange(6.0) + rank + step).to(device)).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(parameter.grad, alpha=-0.5)
    return [parameter.tolist() for parameter in model.parameters()]


@pytest.mark.parametrize("hooked", [False, True], ids=["plain", "hook"])
def test_the_parameters_are_those_of_the_cpu(hooked: bool) -> None:
    def work(rank: int) -> list[Any]:
        return [_trained(rank, device, hooked) for device in ("cpu", f"npu:{rank}")]

    found = run_npu_group(work, 2)
    assert found[0][0] != [[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [1.0] * 6]
    for on_cpu, on_npu in found:
        assert on_cpu == found[0][0]
        assert on_npu == on_cpu
