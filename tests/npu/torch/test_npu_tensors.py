"""torch_npu's own tensor code on the simulated libopapi, against torch's on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

FLOATS = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]

COPIES: dict[str, Callable[[Any], Any]] = {
    "a transposed view": lambda x: x.t().contiguous(),
    "columns that lie apart": lambda x: x[:, 1::2].contiguous(),
    "into a view": lambda x: torch.empty_like(x).t().copy_(x.t()).contiguous(),
    "one row into all": lambda x: x[0].expand(3, 4).contiguous(),
    "joined along rows": lambda x: torch.cat([x[:1], x, x[:0]]),
    "joined along columns": lambda x: torch.cat([x, x[:, :2]], dim=1),
}
SUMS: dict[str, Callable[[Any], Any]] = {
    "sums": lambda x: x + x.t().contiguous().t() + x[0],
    "differences": lambda x: (x * 3 - x).sub_(x[:1]),
    "in place": lambda x: x.clone().add_(x, alpha=2).mul_(x),
    "numbers": lambda x: (x + 2).mul_(2).sub_(1),
    "cut quotients": lambda x: (x * 5).div_(3, rounding_mode="trunc"),
}


def compared(make: Callable[[Any], Any], dtype: torch.dtype) -> None:
    x = torch.arange(12).reshape(3, 4).to(dtype)
    torch.npu.set_device(0)
    torch.testing.assert_close(make(x.npu()).cpu(), make(x), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.bool, torch.complex64], ids=str)
@pytest.mark.parametrize("name", COPIES)
def test_copies(name: str, dtype: torch.dtype) -> None:
    compared(COPIES[name], dtype)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.bool], ids=str)
def test_fills(dtype: torch.dtype) -> None:
    compared(
        lambda x: torch.cat([x.clone().fill_(1), x.clone().zero_(), torch.ones_like(x)]), dtype
    )


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
@pytest.mark.parametrize("name", SUMS)
def test_arithmetic(name: str, dtype: torch.dtype) -> None:
    compared(SUMS[name], dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_quotients_are_rounded_once(dtype: torch.dtype) -> None:
    compared(lambda x: torch.cat([x / 3, x / (x + 1), x.clone().div_(7)]), dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.int32, torch.bool, torch.int64], ids=str)
def test_casts(dtype: torch.dtype) -> None:
    compared(lambda x: x.to(dtype), torch.float32)


def test_comparisons_and_sums() -> None:
    compared(lambda x: (x == x[0]).int().sum(1), torch.float32)
    compared(lambda x: x.sum(0, keepdim=True), torch.float32)
    compared(lambda x: (x == x).all().reshape(1), torch.int64)
    torch.npu.set_device(0)
    x = torch.arange(5).npu()
    assert torch.equal(x, x.clone())
    assert not torch.equal(x, x + x)


def test_gradients() -> None:
    torch.npu.set_device(0)
    x = torch.arange(4.0).npu().requires_grad_()
    (x * x * 3).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0, 6, 12, 18]
