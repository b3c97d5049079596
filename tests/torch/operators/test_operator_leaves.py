"""Products with leaves: results and gradients have the same bits at every number of ranks."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from collops.golden.data.leaves import cut_evenly, leaf_product, tree_sum  # noqa: E402

import collops  # noqa: E402
import collops.torch as ct  # noqa: E402
from tests.torch.groups import default_group, run_group  # noqa: E402

# backward() imports it, which takes a second: once, not on every rank.
importlib.import_module("torch.fx.experimental.symbolic_shapes")
LEAVES, K, N, ROWS = 12, 29, 24, 17
# Of the leaves of k, which are not equally long: how many each of so many ranks has.
SHARES = {1: [12], 2: [5, 7], 3: [2, 7, 3], 4: [1, 5, 3, 3], 6: [2, 1, 3, 2, 1, 3]}
_DTYPES = ("float32", "bfloat16", "float16")


def _numbers(seed: int, *shape: int) -> Any:
    source = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=source)


X, W, BIAS = _numbers(0, ROWS, K), _numbers(1, K, N), _numbers(2, N)
SLOPE = _numbers(3, ROWS, N)  # of the loss


def _columns(ranks: int) -> list[int]:
    """Of the columns of k, those of each rank."""
    borders, firsts = cut_evenly(K, LEAVES), np.cumsum([0, *SHARES[ranks]])
    return np.diff([borders[leaf] for leaf in firsts]).tolist()


def _rows(ranks: int) -> list[int]:
    return [0, 9, 8] if ranks == 3 else [len(part) for part in np.array_split(range(ROWS), ranks)]


def _parts(x: Any, sizes: list[int], dim: int) -> list[Any]:
    return [part.contiguous() for part in x.split(sizes, dim)]


def _weight(own: Any, trans: bool) -> Any:
    return own.T.contiguous() if trans else own.contiguous()


def _gather(rank: int, ranks: int, dtype: Any, trans: bool) -> list[Any]:
    """all_gather_matmul of a weight whose n the ranks cut."""
    columns, rows = [N // ranks] * ranks, _rows(ranks)
    x = X.to(dtype).split(rows)[rank].requires_grad_()
    weight = _weight(W.to(dtype).split(columns, 1)[rank], trans).requires_grad_()
    bias = BIAS.to(dtype).split(columns)[rank].clone().requires_grad_()
    words = {"sizes": rows, "leaves": LEAVES}
    out = ct.all_gather_matmul(x, weight, residual=bias, trans_weight=trans, **words)
    out.backward(SLOPE.to(dtype).split(columns, 1)[rank])
    return [(out, 1), (x.grad, 0), (weight.grad.T if trans else weight.grad, 1), (bias.grad, 0)]


def _scatter(rank: int, ranks: int, dtype: Any, trans: bool) -> list[Any]:
    """matmul_reduce_scatter of a k that the ranks cut."""
    columns, rows = _columns(ranks), _rows(ranks)
    x = _parts(X.to(dtype), columns, 1)[rank].requires_grad_()
    weight = _weight(W.to(dtype).split(columns)[rank], trans).requires_grad_()
    words = {"sizes": rows, "leaves": LEAVES, "sum_columns": columns}
    bias = BIAS.to(dtype)
    out = ct.matmul_reduce_scatter(x, weight, residual=bias, trans_weight=trans, **words)
    out.backward(SLOPE.to(dtype).split(rows)[rank])
    return [(out, 0), (x.grad, 1), (weight.grad.T if trans else weight.grad, 0)]


def _reduce(rank: int, ranks: int, dtype: Any, trans: bool) -> list[Any]:
    """matmul_all_reduce of a k that the ranks cut; the loss is the first rank's."""
    columns = _columns(ranks)
    x = _parts(X.to(dtype), columns, 1)[rank].requires_grad_()
    weight = _weight(W.to(dtype).split(columns)[rank], trans).requires_grad_()
    words = {"leaves": LEAVES, "sum_columns": columns}
    out = ct.matmul_all_reduce(x, weight, trans_weight=trans, **words)
    out.backward(SLOPE.to(dtype) * (rank == 0))
    parts = [(x.grad, 1), (weight.grad.T if trans else weight.grad, 0)]
    return [*([(out, 0)] if rank == 0 else [(out[:0], 0)]), *parts]


def _grid(rank: int, ranks: int, dtype: Any, trans: bool) -> list[Any]:
    """all_gather_matmul_reduce_scatter: the ranks cut n, or the first N columns of k."""
    cut, rows = [N // ranks] * ranks, _rows(ranks)
    if trans:
        x, own = X.to(dtype).split(rows)[rank].contiguous(), W.to(dtype).split(cut, 1)[rank]
        grid: dict[str, Any] = {"ag_dim": ranks, "rs_dim": 1, "gather_rows": rows}
        slope = SLOPE.to(dtype).split(cut, 1)[rank]
    else:
        x, own = _parts(X[:, :N].to(dtype), cut, 1)[rank], W[:N].to(dtype).split(cut)[rank]
        grid = {"ag_dim": 1, "rs_dim": ranks, "scatter_rows": rows, "sum_columns": cut}
        slope = SLOPE.to(dtype).split(rows)[rank]
    x.requires_grad_()
    weight = own.clone().contiguous().requires_grad_()
    out = ct.all_gather_matmul_reduce_scatter(x, weight, leaves=LEAVES, **grid)
    out.backward(slope)
    return [(out, int(trans)), (x.grad, int(not trans)), (weight.grad, int(trans))]


def _alone(rank: int, ranks: int, dtype: Any, trans: bool) -> list[Any]:
    """matmul of this rank's columns of n."""
    columns = [N // ranks] * ranks
    weight = _weight(W.to(dtype).split(columns, 1)[rank], trans).requires_grad_()
    bias = BIAS.to(dtype).split(columns)[rank].clone().requires_grad_()
    out = ct.matmul(X.to(dtype), weight, residual=bias, trans_weight=trans, leaves=LEAVES)
    out.backward(SLOPE.to(dtype).split(columns, 1)[rank])
    return [(out, 1), (weight.grad.T if trans else weight.grad, 1), (bias.grad, 0)]


CALLS: list[Callable[..., list[Any]]] = [_gather, _scatter, _reduce, _grid, _alone]
_CASES = [(call, dtype, trans) for call in CALLS for dtype in _DTYPES for trans in (False, True)]


def _all(rank: int, ranks: int) -> list[list[Any]]:
    found = []
    for call, dtype, trans in _CASES:
        parts = call(rank, ranks, getattr(torch, dtype), trans)
        found.append([(part.detach().float().contiguous().numpy(), dim) for part, dim in parts])
    return found


def _whole(ranks: int) -> list[list[bytes]]:
    """The ranks' parts of each result and gradient put together."""
    every = run_group(_all, ranks, ranks)
    return [
        [
            np.concatenate([part for part, _ in parts], parts[0][1]).tobytes()
            for parts in zip(*case, strict=True)
        ]
        for case in zip(*every, strict=True)
    ]


def _product(x: Any, w: Any) -> Any:
    """Of float32, in leaves."""
    borders = cut_evenly(x.shape[1], LEAVES)
    return tree_sum([leaf_product(x[:, a:b], w[a:b]) for a, b in pairwise(borders)])


def _wanted() -> list[list[bytes]]:
    """The same by numpy, of float32 and not transposed: what each call's results are."""
    x, w, bias, slope = (t.numpy() for t in (X, W, BIAS, SLOPE))
    with_bias = _product(x, w) + bias
    for_x = _product(slope, w.T)
    for_w = _product(x.T, slope)
    for_bias = _product(np.ones((1, ROWS), np.float32), slope)
    out = _product(x, w)
    found = [
        [with_bias, for_x, for_w, for_bias],
        [with_bias, for_x, for_w],
        [out, for_x, for_w],
        [_product(x[:, :N], w[:N]), for_x[:, :N], for_w[:N]],
        [with_bias, for_w, for_bias],
    ]
    return [[np.ascontiguousarray(one, np.float32).tobytes() for one in each] for each in found]


def test_bits_do_not_depend_on_the_number_of_ranks() -> None:
    alone = _whole(1)
    of_float32 = [bits for bits, case in zip(alone, _CASES, strict=True) if case[1] == "float32"]
    assert of_float32[::2] == _wanted()
    assert of_float32[::2][:3] == of_float32[1::2][:3]
    for ranks in (2, 3, 4, 6):
        wrong = [
            (call.__name__, dtype, trans, [a == b for a, b in zip(one, many, strict=True)])
            for (call, dtype, trans), one, many in zip(_CASES, alone, _whole(ranks), strict=True)
            if one != many
        ]
        assert not wrong, ranks


def _second_order(rank: int) -> Any:
    x, weight = _numbers(5 + rank, 2, 4).requires_grad_(), _numbers(7, 4, 2).requires_grad_()
    found = []
    for leaves in (0, 2):
        out = ct.all_gather_matmul(x, weight, leaves=leaves) ** 2
        first = torch.autograd.grad(out.sum(), [x, weight], create_graph=True)
        found.append(torch.autograd.grad(sum(g.sum() for g in first), [x, weight]))
    return [torch.allclose(a, b, atol=1e-4) for a, b in zip(*found, strict=True)]


def test_a_gradient_has_a_gradient() -> None:
    assert run_group(_second_order, 2) == [[True, True]] * 2


def _few_rows(rank: int) -> list[Any]:
    """Gradients over fewer rows, or columns, than leaves: of 0, 1 and 2 rows."""
    found = []
    for rows in (0, 1, 2):
        x, weight = torch.ones(rows, 6, requires_grad=True), torch.ones(6, 1, requires_grad=True)
        ct.matmul(x, weight, residual=torch.ones(1), leaves=6).sum().backward()
        found.append((weight.grad.flatten().tolist(), x.grad.sum().item()))
    return found


def test_fewer_rows_than_leaves() -> None:
    assert run_group(_few_rows, 1) == [[([float(rows)] * 6, 6.0 * rows) for rows in (0, 1, 2)]]


def _uneven_on_a_grid(rank: int) -> Any:
    k = [3, 2][rank]
    x, weight = torch.ones(2, k, requires_grad=True), torch.ones(k, 2)
    words = {"ag_dim": 1, "rs_dim": 2, "leaves": 2, "sum_columns": [3, 2]}
    return ct.all_gather_matmul_reduce_scatter(x, weight, **words)


def _refused(rank: int) -> list[str]:
    x, weight = torch.ones(2, 4, requires_grad=True), torch.ones(4, 3, requires_grad=True)
    messages = []
    for call in (
        lambda: ct.matmul(x, weight, leaves=5),
        lambda: ct.matmul(x, weight, leaves=2, out=torch.empty(2, 3)),
        lambda: ct.all_gather_matmul(x, weight, leaves=4).sum().backward(),
        lambda: ct.matmul_all_reduce(x, weight, sum_columns=[4, 4]),
        lambda: _uneven_on_a_grid(rank).sum().backward(),
    ):
        with pytest.raises(collops.Error) as caught:
            call()
        messages.append(caught.value.message)
    return [*messages, default_group().communicator.all_reduce(torch.ones(1)).tolist()]


def test_errors_say_what_is_wrong() -> None:
    wanted = [
        "matmul: leaves is 5, more than the 4 columns of x",
        "matmul: gradients do not pass a call with out=: leave it out, pass .detach(), or call "
        "under torch.no_grad()",
        "matmul_reduce_scatter: k = 3 is not a multiple of the 2 of 4 leaves that this rank has: "
        "pass sum_columns, the k of every rank that adds up",
        "matmul_all_reduce: sum_columns is for leaves > 0",
        "all_gather_matmul_reduce_scatter: x has a gradient where all ranks have as many columns, "
        "got sum_columns [3, 2]: pass x.detach(), or call matmul_reduce_scatter",
        [2.0],
    ]
    assert run_group(_refused, 2) == [wanted] * 2
