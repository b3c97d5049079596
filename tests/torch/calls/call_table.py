"""The calls of torch.distributed, each as work of a rank that returns tensors.

The same work runs on a gloo group where gloo can do it; else `expected` computes what must come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

Tensors = Sequence[torch.Tensor]
Expected = Callable[[int, int], Tensors]


@dataclass(frozen=True)
class Mode:
    """Whether a call is made with async_op, and then waited for."""

    name: str

    def __call__(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        if self.name == "sync":
            assert call(*args, **kwargs) is None
            return
        work = call(*args, **kwargs, async_op=True)
        if self.name == "future":
            (work if isinstance(work, torch._C.Future) else work.get_future()).wait()
        elif self.name == "async":
            work.wait()
            assert isinstance(work, torch._C.Future) or work.is_completed()


Work = Callable[[Mode, int, int], Tensors]


@dataclass(frozen=True)
class Row:
    """A call in one form; `expected` is None where gloo says what comes."""

    call: str
    form: str
    work: Work
    expected: Expected | None = None
    modes: tuple[str, ...] = ("sync", "async", "future")
    least: int = 1  # ranks
    since: str = ""  # the first torch that has it

    @property
    def id(self) -> str:
        return f"{self.call}-{self.form}"

    def runs_with(self, size: int) -> bool:
        """Whether this torch has the call, and so many ranks can make it."""
        return size >= self.least and (not self.since or hasattr(dist, self.call))


ROWS: list[Row] = []


def row(
    call: str,
    form: str,
    expected: Expected | None = None,
    modes: tuple[str, ...] = ("sync", "async", "future"),
    least: int = 1,
    since: str = "",
) -> Callable[[Work], Work]:
    """Adds a row to the table."""

    def add(work: Work) -> Work:
        ROWS.append(Row(call, form, work, expected, modes, least, since))
        return work

    return add


def data(
    rank: int, shape: int | tuple[int, ...], dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Small whole numbers that differ per rank and position: every sum is exact."""
    shape = (shape,) if isinstance(shape, int) else shape
    count = 1
    for size in shape:
        count *= size
    numbers = (torch.arange(count) * 7 + rank * 3) % 11 + 1
    if dtype == torch.bool:
        return (numbers % 2 == 0).view(shape)
    if dtype.is_complex:
        return torch.complex(numbers.double(), numbers.double() * rank).to(dtype).view(shape)
    return numbers.to(dtype).view(shape)


def poison(shape: int | tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Memory whose values are no result."""
    return torch.full((shape,) if isinstance(shape, int) else shape, 99, dtype=torch.int64).to(
        dtype
    )


def spread(x: torch.Tensor) -> torch.Tensor:
    """The same values, not contiguous."""
    wide = torch.zeros(*x.shape[:-1], 2 * x.shape[-1], dtype=x.dtype)
    wide[..., ::2] = x
    return wide[..., ::2]
