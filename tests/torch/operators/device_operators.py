"""torch.ops.collops and its gradients on tensors of a device, against the same on CPU tensors."""

from __future__ import annotations

from typing import Any

import torch

from tests.torch.groups import default_group
from tests.torch.operators.operator_rows import Row, rows_for

SIZES = (2, 3, 4)
_NO_GRADIENT = ("max", "min", "prod")
_OF_THE_CPU = ("all_to_all_matmul", "matmul_all_to_all")


def name_of(row: Row) -> str:
    """Of a test."""
    return f"{row.operator} {row.title}"


def on(device: str, args: list[Any]) -> list[Any]:
    """The arguments, their tensors on a device as leaves that want gradients; counts stay."""
    return [x.detach().to(device).requires_grad_() if is_data(x) else x for x in args]


def is_data(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.is_floating_point()


def outcome(row: Row, rank: int, size: int, device: str) -> Any:
    """The result, the result in memory of the caller, and the gradients."""
    given, group = row.args(rank, size), default_group().group_name
    operator = getattr(torch.ops.collops, row.operator)
    try:
        args, options = on(device, given), row.options(size)
        result = operator(*args, group, *options)
        out = torch.empty_like(result)
        with torch.no_grad():
            operator.out(*on(device, given), group, *options, out=out) if row.known else out.copy_(
                result
            )
        found = [result.tolist(), out.tolist()]
        if not any(word in given for word in _NO_GRADIENT if isinstance(word, str)):
            factor = (torch.arange(result.numel()) % 3 - 1.0).view(result.shape).to(device)
            (result * factor).sum().backward()
            found += [x.grad.tolist() for x in args if is_data(x)]
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return found


def device_rows(size: int, device: str) -> list[Row]:
    """The rows of operators that devices have; NPUs add up in no leaves."""
    rows = [row for row in rows_for(size) if row.operator not in _OF_THE_CPU]
    return [row for row in rows if not (device.startswith("npu") and row.options(size))]


def outcomes(rank: int, size: int, device: str) -> dict[str, tuple[Any, Any]]:
    """Those of each row on the CPU and on a device."""
    found = {}
    for row in device_rows(size, device):
        on_cpu, on_device = (outcome(row, rank, size, where) for where in ("cpu", device))
        found[name_of(row)] = (on_cpu, on_device)
    return found


def names_of(device: str) -> list[tuple[str, int]]:
    """Of the rows of each size."""
    return [(name_of(row), size) for size in SIZES for row in device_rows(size, device)]
