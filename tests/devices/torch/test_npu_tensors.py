"""torch_npu's own tensor code on the simulated libopapi, against torch's on the CPU."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from collops.testing import run_ranks

FLOATS = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]

COPIES: dict[str, Callable[[Any], Any]] = {
    "a transposed view": lambda x: x.t().contiguous(),
    "columns that lie apart": lambda x: x[:, 1::2].contiguous(),
    "into a view": lambda x: torch.empty_like(x).t().copy_(x.t()).contiguous(),
    "one row into all": lambda x: x[0].expand(3, 4).contiguous(),
    "repeated": lambda x: x.repeat(2, 1, 3),
    "joined along rows": lambda x: torch.cat([x[:1], x, x[:0]]),
    "joined along columns": lambda x: torch.cat([x, x[:, :2]], dim=1),
}
SUMS: dict[str, Callable[[Any], Any]] = {
    "sums": lambda x: x + x.t().contiguous().t() + x[0],
    "differences": lambda x: (x * 3).add_(x[:1], alpha=-1),
    "in place": lambda x: x.clone().add_(x, alpha=2).mul_(x),
    "numbers": lambda x: (x + 2).mul_(2).add_(1),
    "cut quotients": lambda x: (x * 5).div_(3, rounding_mode="trunc"),
}


FILLS = {
    "fills": lambda x: torch.cat([x.clone().fill_(1), x.clone().zero_()]),
}
QUOTIENTS = {"quotients": lambda x: torch.cat([x / 3, x / (x + 1), x.clone().div_(7)])}
CASTS = {
    f"cast to {dtype}": lambda x, dtype=dtype: x.to(dtype)
    for dtype in (torch.float16, torch.int32, torch.bool, torch.int64)
}
FOLDS: dict[str, Callable[[Any], Any]] = {
    "a sum along a dim": lambda x: x.sum(0, keepdim=True),
    "a gradient": lambda x: _gradient(x.clone().requires_grad_()),
}
ROWS = [
    (name, dtype, make)
    for table, dtypes in (
        (COPIES, [*FLOATS, *INTEGERS, torch.bool, torch.complex64]),
        (FILLS, [*FLOATS, *INTEGERS, torch.bool]),
        (SUMS, [*FLOATS, *INTEGERS]),
        (QUOTIENTS, FLOATS),
        (CASTS, [torch.float32]),
        (FOLDS, [torch.float32]),
    )
    for name, make in table.items()
    for dtype in dtypes
]


def _gradient(x: Any) -> Any:
    (x * x * 3).sum().backward()
    return x.grad


@functools.cache
def differences() -> dict[str, str]:
    """What differs, by the row; in a process of its own, as other tests fork this one."""

    def work(rank: int) -> dict[str, str]:
        torch.npu.set_device(0)
        found = {}
        for name, dtype, make in ROWS:
            x = torch.arange(12).reshape(3, 4).to(dtype)
            try:
                torch.testing.assert_close(make(x.npu()).cpu(), make(x), rtol=0, atol=0)
            except Exception as error:
                found[f"{name}, {dtype}"] = f"{type(error).__name__}: {error}"
        return found

    [found] = run_ranks(work, 1)
    return found


@pytest.mark.parametrize("row", [f"{name}, {dtype}" for name, dtype, _ in ROWS])
def test_a_function_of_torch(row: str) -> None:
    assert differences().get(row) is None
