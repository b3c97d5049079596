"""The core's reduction for each of torch's, however its name is given."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
dist = torch.distributed

import collops  # noqa: E402
from collops.torch.reductions import reduction_of  # noqa: E402
from tests.torch.groups import default_group, run_group  # noqa: E402

_KINDS = dist.ReduceOp.RedOpType


@pytest.mark.parametrize("name", ["SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"])
def test_a_bare_name_is_as_good_as_the_object(name: str) -> None:
    kind = getattr(_KINDS, name)
    for dtype in (torch.int32, torch.float32):
        bare, whole = (reduction_of("reduce", op, dtype) for op in (kind, dist.ReduceOp(kind)))
        assert bare == whole


def _group_calls(rank: int) -> list[int]:
    group, found = default_group(), []
    for kind in (_KINDS.SUM, _KINDS.MAX, _KINDS.BOR):
        options: Any = dist.AllreduceOptions()
        options.reduceOp = kind
        x = torch.tensor([rank + 1])
        group.allreduce([x], options).wait()
        found.append(x.item())
    return found


def test_a_method_of_the_group_takes_a_bare_name() -> None:
    assert run_group(_group_calls, 2) == [[3, 2, 3]] * 2


def _twelve(rank: int) -> list[Any]:
    """Tensors of as many elements, in all that a call may differ in, and their reductions."""
    x = torch.arange(12.0) + 100 * rank
    return [
        (x, "SUM"),
        (x.view(4, 3), "SUM"),
        (x.view(6, 2), "SUM"),  # pairs
        (x.view(4, 3).t(), "SUM"),
        (x.view(4, 3), "MAX"),
        (x.int(), "SUM"),
        (x % 3 == rank, "SUM"),
        (torch.complex(x, x).conj().imag, "SUM"),  # whose signs are changed when it is read
        (x.clone().requires_grad_(), "SUM"),
    ]


def test_calls_like_earlier_ones() -> None:
    def work(rank: int) -> Any:
        for _ in range(3):
            for number in range(len(_twelve(rank))):
                x, op = _twelve(rank)[number]
                mine, other = (_twelve(r)[number][0].detach() for r in range(2))
                dist.all_reduce(x, getattr(dist.ReduceOp, op))
                want = torch.maximum(mine, other) if op == "MAX" else mine + other
                assert torch.equal(x.detach(), want), number
        with pytest.raises(collops.RankMismatchError) as refused:
            dist.all_reduce(torch.ones(12, dtype=(torch.float32, torch.int32)[rank]))
        count = 3 * len(_twelve(rank)) + 1
        return f"{count} all_reduce [12] {('float32', 'int32')[rank]}" in str(refused.value)

    assert run_group(work, 2) == [True, True]
