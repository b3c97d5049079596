"""Compiled code runs torch.ops.collops in the program's order on all ranks, at any sizes."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import collops.torch as ct  # noqa: E402
from tests.torch.groups import run_group  # noqa: E402
from tests.torch.operators.operator_rows import numbers  # noqa: E402

_ROWS = [1000, 1]


def _compiled(work: Any, backend: str) -> Any:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()
    torch._inductor.config.compile_threads = 1
    torch._dynamo.reset()
    return torch.compile(work, fullgraph=True, backend=backend)


def _two_calls(x: Any, y: Any, weight: Any, rows: list[int]) -> Any:
    """Calls that do not depend on each other; whose memory it is best to free first, sizes tell."""
    first, second = x.mm(weight), y.mm(weight)
    gathered = ct.all_gatherv(first, rows)
    other = ct.all_gatherv(second, rows[::-1])
    return gathered.T.mm(gathered), other.T.mm(other)


def _uneven(rank: int) -> list[bool]:
    x, y = numbers(rank, _ROWS[rank], 3), numbers(7 + rank, _ROWS[1 - rank], 3)
    args = x, y, numbers(3, 3, 64), _ROWS
    got, wanted = _compiled(_two_calls, "inductor")(*args), _two_calls(*args)
    return [torch.equal(a, b) for a, b in zip(got, wanted, strict=True)]


def _unused_on(rank: int, x: Any) -> Any:
    """Only rank 0 looks at the first call's result."""
    gathered = ct.all_gatherv(x, [3, 3])
    total = ct.all_reduce(x)
    return total.mm(gathered.T) if rank == 0 else total.mm(total.T)


def _one_rank_uses(rank: int) -> list[bool]:
    found = []
    for backend in ("aot_eager", "inductor"):
        x = numbers(rank, 3, 2)
        found.append(torch.equal(_compiled(_unused_on, backend)(rank, x), _unused_on(rank, x)))
    return found


def _checkpointed(rank: int) -> list[bool]:
    from torch.utils.checkpoint import checkpoint

    def layer(x: Any, weight: Any) -> Any:
        return torch.tanh(ct.all_gatherv(x, [3, 2]).mm(weight))

    def work(x: Any, weight: Any) -> Any:
        return checkpoint(layer, x, weight, use_reentrant=False).sum()

    found = []
    for call in (work, _compiled(work, "aot_eager")):
        x = numbers(rank, 3 - rank, 2).requires_grad_()
        weight = numbers(5, 2, 2).requires_grad_()
        call(x, weight).backward()
        found.append([x.grad, weight.grad])
    return [torch.allclose(a, b) for a, b in zip(*found, strict=True)]


_WORKS = {
    "calls that do not depend on each other": _uneven,
    "a result that one rank does not use": _one_rank_uses,
    "a call in an activation checkpoint": _checkpointed,
}


def _all(rank: int) -> dict[str, list[bool]]:
    # One run of ranks: each imports inductor, which takes seconds.
    return {name: work(rank) for name, work in _WORKS.items()}


def test_compiled_code_keeps_the_order_of_the_program() -> None:
    assert run_group(_all, 2) == [dict.fromkeys(_WORKS, [True] * 2)] * 2
