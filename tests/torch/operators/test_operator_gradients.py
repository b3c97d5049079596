"""torch.ops.collops: results and gradients are those of the same function in one process."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import collops  # noqa: E402
import collops.torch  # noqa: E402
from tests.torch.groups import default_group, run_group  # noqa: E402
from tests.torch.operators.operator_rows import Row, numbers, rows_for  # noqa: E402


def _leaves(args: list[Any]) -> list[Any]:
    tensors = [a for a in args if isinstance(a, torch.Tensor) and a.is_floating_point()]
    assert tensors
    return [a.requires_grad_() for a in tensors]


def _loss(rank: int, out: Any) -> Any:
    # Another one on each rank and in each place.
    return (out * numbers(30 + rank, *out.shape)).sum()


def _wrong(row: Row, rank: int, ranks: int) -> list[str]:
    """What differs from one process."""
    own = row.args(rank, ranks)
    leaves = _leaves(own)
    operator = getattr(torch.ops.collops, row.operator).default
    out = operator(*own, default_group().group_name, *row.options(ranks))
    _loss(rank, out).backward()

    everyone = [row.args(q, ranks) for q in range(ranks)]
    all_leaves = [_leaves(args) for args in everyone]
    wanted = row.whole(everyone)
    sum(_loss(q, out_q) for q, out_q in enumerate(wanted)).backward()
    close = "avg" in row.title
    pairs = [("result", out, wanted[rank])]
    pairs += [
        (f"gradient {i}", mine.grad, whole.grad)
        for i, (mine, whole) in enumerate(zip(leaves, all_leaves[rank], strict=True))
    ]
    return [
        f"{row.operator} {row.title}: {what}: {got} is not {want}"
        for what, got, want in pairs
        if got.shape != want.shape
        or not (torch.allclose(got, want) if close else torch.equal(got, want))
    ]


def _check_all(rank: int, ranks: int) -> list[str]:
    return [wrong for row in rows_for(ranks) for wrong in _wrong(row, rank, ranks)]


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_results_and_gradients_are_those_of_one_process(ranks: int) -> None:
    assert run_group(_check_all, ranks, ranks) == [[]] * ranks


def _frozen(rank: int) -> list[bool]:
    x, weight = numbers(rank, 4, 3), numbers(9 + rank, 3, 2)
    found = []
    for name, more in (
        ("all_gather_matmul", {}),
        ("matmul_reduce_scatter", {}),
        ("matmul_all_reduce", {}),
        ("all_gather_matmul_reduce_scatter", {"ag_dim": 2, "rs_dim": 1}),
        ("matmul_all_to_all", {}),
        ("grouped_matmul_all_to_allv", {"send_sizes": [[1, 1], [1, 1]]}),
        ("all_to_allv_grouped_matmul", {"send_sizes": [[1, 1], [1, 1]]}),
    ):
        call = getattr(collops.torch, name)
        own = weight.expand(2, 3, 2) if "grouped" in name else weight
        both = [x.clone().requires_grad_(), own.clone().requires_grad_()]
        call(*both, **more).square().sum().backward()
        for leaf in (0, 1):
            one = [x.clone(), own.clone()]
            one[leaf].requires_grad_()
            call(*one, **more).square().sum().backward()
            found.append(torch.equal(one[leaf].grad, both[leaf].grad))
            found.append(one[1 - leaf].grad is None)
    return found


def test_a_product_may_have_one_input_with_a_gradient() -> None:
    assert run_group(_frozen, 2) == [[True] * 28] * 2


def _second_order(rank: int) -> list[float]:
    x = torch.tensor([rank + 1.0, 2.0], requires_grad=True)
    out = collops.torch.all_gatherv(x, [2, 2])
    (first,) = torch.autograd.grad((out**3).sum(), x, create_graph=True)
    first.sum().backward()
    return x.grad.tolist()


def test_a_gradient_has_a_gradient() -> None:
    # Two losses, each 6 x; the sum of both ranks' first gradients is 6 x**2.
    assert run_group(_second_order, 2) == [[12.0, 24.0], [24.0, 24.0]]


def _without_gradient(rank: int) -> list[Any]:
    x = numbers(rank, 4, 2).requires_grad_()
    found: list[Any] = []
    for call in (collops.torch.reduce_scatterv, collops.torch.all_reduce):
        out = call(x, op="max")
        with pytest.raises(collops.UnsupportedError) as caught:
            out.sum().backward()
        found.append(caught.value.message)
        with torch.no_grad():
            found.append(call(x, op="max").requires_grad)
    return found


def test_a_reduction_without_a_gradient_says_so() -> None:
    words = 'op "max" has no gradient, "sum" and "avg" have: pass x.detach()'
    wanted = [f"reduce_scatterv: {words}", False, f"all_reduce: {words}", False]
    assert run_group(_without_gradient, 2) == [wanted] * 2
