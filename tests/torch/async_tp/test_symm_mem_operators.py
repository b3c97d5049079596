"""torch's symm_mem operators on CPU tensors of a collops group, against what they stand for."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.distributed._functional_collectives as functional  # noqa: E402

from collops.errors import Error  # noqa: E402
from tests.torch.groups import run_group  # noqa: E402

importlib.import_module("torch.distributed._symmetric_memory")  # defines the operators

BOUNDS = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 4e-2, torch.float16: 4e-3}
# Shape of A, dim of the call; every dim of 2, 3 and 4 divides by the ranks.
SHAPES = [
    ((4, 6), 0),
    ((4, 6), 1),
    ((2, 4, 6), 0),
    ((2, 4, 6), 1),
    ((2, 4, 6), 2),
    ((2, 4, 2, 6), 1),
    ((2, 4, 2, 6), -2),
    ((0, 6), 0),
]


def values(shape: tuple[int, ...], dtype: Any, seed: int) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def difference(got: Any, expected: Any) -> float:
    assert got.shape == expected.shape
    assert got.dtype == expected.dtype
    return (got.double() - expected.double()).abs().max().item() if got.numel() else 0.0


def gathered(x: Any, dim: int, group: Any) -> Any:
    whole = functional.all_gather_tensor(x, dim % x.dim(), group)
    return functional.wait_tensor(whole)


def fused_gathers(rank: int) -> list[Any]:
    """What differs too much, by case."""
    group, symm = dist.group.WORLD, torch.ops.symm_mem
    wrong = []
    for dtype, bound in BOUNDS.items():
        for shape, dim in SHAPES:
            a = values(shape, dtype, rank)
            whole = gathered(a, dim, group)
            k = whole.shape[-1]
            weights = [values((k, 3), dtype, 10 + rank), values((5, k), dtype, 20 + rank).t()]
            for given, kept in ((weights, True), (weights[:1], False), (weights[1:], False)):
                own, products = symm.fused_all_gather_matmul(
                    a, given, dim, group.group_name, return_A=kept
                )
                assert (own is not None) == kept
                pairs = list(zip(products, [whole @ w for w in given], strict=True))
                pairs += [(own, whole)] if kept else []
                if max(difference(*pair) for pair in pairs) > bound * k**0.5:
                    wrong.append((dtype, shape, dim, kept))
    return wrong


def fused_scatters(rank: int) -> list[Any]:
    group, symm = dist.group.WORLD, torch.ops.symm_mem
    wrong = []
    for dtype, bound in BOUNDS.items():
        for shape, dim in SHAPES:
            a = values(shape, dtype, rank)
            for b in (values((6, 8), dtype, 10 + rank), values((8, 6), dtype, 20 + rank).t()):
                for op in ("sum", "avg"):
                    got = symm.fused_matmul_reduce_scatter(a, b, op, dim, group.group_name)
                    total = functional.reduce_scatter_tensor(
                        (a.double() @ b.double()), op, dim % a.dim(), group
                    )
                    total = functional.wait_tensor(total)
                    if difference(got, total.to(dtype)) > 2 * bound * 6**0.5:
                        wrong.append((dtype, shape, dim, op))
                    assert got.is_contiguous()
    return wrong


def low_contention(rank: int) -> list[Any]:
    group, symm = dist.group.WORLD, torch.ops.symm_mem
    x = values((4, 3), torch.float32, rank)
    whole = symm._low_contention_all_gather(x.t(), group.group_name)
    results = [difference(functional.wait_tensor(whole), gathered(x.t(), 0, group))]
    for op in ("sum", "avg"):
        own = symm._low_contention_reduce_scatter(x, op, group.group_name)
        results.append(
            difference(
                own, functional.wait_tensor(functional.reduce_scatter_tensor(x, op, 0, group))
            )
        )
    return results


def layout(x: Any) -> list[Any]:
    """Size and stride of each dim; a stride counts from two elements on."""
    sizes = list(x.shape)
    strides = [x.stride(dim) if size > 1 and x.numel() else 0 for dim, size in enumerate(sizes)]
    return [sizes, strides]


def fake_agrees(rank: int) -> None:
    """The results have the shapes and strides that torch's fake kernels promise."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    name, symm = dist.group.WORLD.group_name, torch.ops.symm_mem
    for shape, given in SHAPES:
        dim = given % len(shape)  # torch's fake kernels take no other
        a, b = values(shape, torch.float32, rank), values((6, 8), torch.float32, rank)
        wide = dim == len(shape) - 1
        b_of_whole = b.repeat(2, 1) if wide else b
        with FakeTensorMode() as mode:
            fake = [mode.from_tensor(x) for x in (a, b, b_of_whole)]
            expected = symm.fused_all_gather_matmul(fake[0], [fake[2]], dim, name)
            expected_own = symm.fused_matmul_reduce_scatter(*fake[:2], "sum", dim, name)
        whole, products = symm.fused_all_gather_matmul(a, [b_of_whole], dim, name)
        own = symm.fused_matmul_reduce_scatter(a, b, "sum", dim, name)
        assert layout(whole) == layout(expected[0]), (shape, dim)
        assert layout(products[0]) == layout(expected[1][0]), (shape, dim)
        assert layout(own) == layout(expected_own), (shape, dim)


def operators(rank: int) -> dict[str, Any]:
    fake_agrees(rank)
    return {
        "gathers": fused_gathers(rank),
        "scatters": fused_scatters(rank),
        "low": max(low_contention(rank)),
    }


def test_the_operators_equal_what_they_stand_for() -> None:
    for result in run_group(operators, 2):
        assert result["gathers"] == []
        assert result["scatters"] == []
        assert result["low"] <= 1e-6


def refusals(rank: int) -> list[str]:
    name, symm = dist.group.WORLD.group_name, torch.ops.symm_mem
    other = dist.new_group(backend="gloo").group_name
    dist.barrier()  # gloo's ranks connect to each other
    a, b = torch.ones(4, 6), torch.ones(6, 2)
    calls = [
        lambda: symm.fused_all_gather_matmul(a, [b], 0, other),
        lambda: symm.fused_matmul_reduce_scatter(a, b, "sum", 0, other),
        lambda: symm.fused_all_gather_matmul(a, [b], 2, name),
        lambda: symm.fused_all_gather_matmul(a[0], [b], 0, name),
        lambda: symm.fused_all_gather_matmul(a, [b[0]], 0, name),
        lambda: symm.fused_matmul_reduce_scatter(a, b, "max", 0, name),
        lambda: symm.fused_matmul_reduce_scatter(a[:3], b, "sum", 0, name),
        lambda: symm._low_contention_reduce_scatter(a[:3], "sum", name),
    ]
    messages = []
    for call in calls:
        with pytest.raises(Error) as caught:
            call()
        messages.append(str(caught.value))
    return messages


def test_what_it_cannot_do_is_said() -> None:
    gloo = "this needs a group of the backend collops"
    words = [
        f"fused_all_gather_matmul: on CPUs {gloo}",
        f"fused_matmul_reduce_scatter: on CPUs {gloo}",
        "gather_dim must be from -2 to 1, got 2",
        "A must have at least 2 dims, got 1",
        "B 0 must be a matrix, got 1 dims",
        'reduce_op must be "sum" or "avg", got \'max\'',
        "3 rows do not divide evenly among 2 ranks",
        "3 rows do not divide evenly among 2 ranks",
    ]
    messages = run_group(refusals, 2)[0]
    for message, word in zip(messages, words, strict=True):
        assert word in message
