"""The plain level's products: every kind of memory, rows, residual, dtype and number of ranks.

The numbers are small and whole, so that only the one rounding at the end is left: bit for bit.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from collops.golden.cases import all_outputs, inputs

import collops
from collops.testing import run_ranks
from patience import patience
from tests import linear_case
from tests.linear_case import ALL_GATHER, METHODS

# Some go through the stage, in more than one strip.
ROWS, COLUMNS = (0, 1, 6, 7, 33, 80), (1, 5, 40, 800)
CALLS = 40


def tensor(comm: collops.Communicator, kind: str, values: Any, dtype: str) -> Any:
    """Golden's values in memory of a kind."""
    real = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else values.dtype
    if kind == "torch":
        import torch

        bits = np.ascontiguousarray(values).view(f"i{real.itemsize}")
        return torch.from_numpy(bits).view(getattr(torch, dtype))
    array = comm.empty(values.shape, real) if kind == "window" else np.empty(values.shape, real)
    array.view(values.dtype)[...] = values
    return array


def bits_of(tensor: Any) -> bytes:
    if hasattr(tensor, "numpy"):
        import torch

        whole = torch.int16 if tensor.element_size() == 2 else torch.int32
        return bytes(tensor.contiguous().view(whole).numpy().tobytes())
    return bytes(tensor.tobytes())


def evenly(total: int, members: int) -> list[int]:
    return [len(part) for part in np.array_split(range(total), members)]


def check_all(rank: int, size: int, kind: str) -> None:
    comm = collops.init()
    draw, own = Random(size), Random(rank)
    for number in range(CALLS):
        method = draw.choice([*METHODS])
        told = draw.random() < 0.3  # without lists: gathered rows are told, others cut evenly
        cut = evenly if told and method != ALL_GATHER else partial(linear_case.parts, draw)
        case = linear_case.drawn(draw, size, method, cut, ROWS, COLUMNS)
        words = linear_case.words_of(case, rank)
        given = list(inputs(case)[rank].values())
        if own.random() < 0.5:  # each rank stores its weight as it likes
            given[1] = np.ascontiguousarray(given[1].T)
            words["trans_weight"] = not words["trans_weight"]
        x, weight, *residual = ins = [tensor(comm, kind, each, case.dtype) for each in given]
        for name in ("gather_rows", "scatter_rows", "sizes") if told else ():
            words.pop(name, None)
        if residual:
            words["residual"] = residual[0].reshape((1, -1) if number % 2 else (-1,))
        want = all_outputs(case)[rank][0]
        out = tensor(comm, kind, np.zeros_like(want), case.dtype) if number % 3 else None
        before = [bits_of(each) for each in ins]
        got = getattr(comm, METHODS[method])(x, weight, out=out, **words)
        where = f"{number}: {case} {words}"
        assert out is None or got is out, where
        assert type(got) is type(x) and got.dtype == x.dtype, where
        assert tuple(got.shape) == want.shape and bits_of(got) == want.tobytes(), where
        assert [bits_of(each) for each in ins] == before, where


# Engines differ only between ranks.
RUNS = [
    *[(size, kind, "1") for size in (1, 2, 3, 4) for kind in ("numpy", "window")],
    *[(size, "torch", "1") for size in (2, 4)],
    *[(size, "numpy", "0") for size in (2, 3, 4)],
    (4, "window", "0"),
]


@pytest.mark.parametrize(("size", "kind", "fused"), RUNS)
def test_all_calls(size: int, kind: str, fused: str) -> None:
    if kind == "torch":
        pytest.importorskip("torch", reason="torch is not installed here")
    run_ranks(check_all, size, size, kind, env={"COLLOPS_FUSED": fused})


def gathered(comm: collops.Communicator, x: Any, w: Any, **words: Any) -> Any:
    return comm.all_gather_matmul(x, w, [3, 5], **words)


X = [np.full((3, 2), 1, np.float32), np.full((5, 2), 2, np.float32)]
W = np.ones((2, 3), np.float32)
PRODUCT = np.repeat(np.float32([2, 4]), [3, 5])[:, None] * np.ones(3, np.float32)


def mixed(rank: int) -> Any:
    """A residual on one rank; a numpy x, a torch weight, and an x of another library."""
    import torch

    class Foreign:
        def __dlpack__(self, **kwargs: Any) -> Any:
            return torch.from_numpy(x).__dlpack__(**kwargs)

        def __dlpack_device__(self) -> Any:
            return torch.from_numpy(x).__dlpack_device__()

    comm, x, weight = collops.init(), X[rank].copy(), torch.from_numpy(W.copy())
    residual = np.ones(3, np.float32) if rank else None
    right = [np.array_equal(gathered(comm, x, W, residual=residual), PRODUCT + rank)]
    results = [gathered(comm, y, weight) for y in (x, Foreign())]
    results.append(gathered(comm, torch.from_numpy(x), W))
    right += [np.array_equal(np.asarray(y), PRODUCT) for y in results]
    return right, [type(y).__module__ for y in results]


def test_the_result_is_of_the_kind_of_x() -> None:
    pytest.importorskip("torch", reason="torch is not installed here")
    assert run_ranks(mixed, 2) == [([True] * 4, ["numpy", "numpy", "torch"])] * 2


def lists(rank: int) -> list[bool]:
    """Lists of rows may be tuples, arrays and of numpy's numbers; the grid's numbers, too."""
    comm = collops.init()
    ways: list[Any] = [(3, 5), np.array([3, 5]), [np.int8(3), np.uint64(5)]]
    grid: Any = {"ag_dim": np.int64(2), "rs_dim": np.uint8(1)}
    multiply = comm.all_gather_matmul_reduce_scatter
    results = [multiply(X[rank], W, gather_rows=way, **grid) for way in ways]
    return [np.array_equal(got, PRODUCT) for got in results]


def test_lists_of_rows_of_every_kind() -> None:
    assert run_ranks(lists, 2) == [[True] * 3] * 2


def alone(rank: int) -> list[Any]:
    """Ranks that multiply alone: as often as they like, and with errors that others do not hear."""
    comm = collops.init(timeout_s=patience(5))
    x, weight = np.float32([[rank + 1, 2]]), np.float32([[1, 2, 3], [4, 5, 6]])
    seen: list[Any] = []
    for _ in range(2 + rank):
        seen.append(comm.matmul(x, weight, leaves=2).tolist())
    with pytest.raises(collops.ArgumentError, match="leaves is 3, more than the 2 columns of x"):
        comm.matmul(x, weight, leaves=3)
    with pytest.raises(collops.ArgumentError, match="leaves must be a whole number, got 2.5"):
        comm.matmul(x, weight, leaves=2.5)  # type: ignore[arg-type]
    with pytest.raises(collops.ArgumentError, match="out must have shape"):
        comm.matmul(x, weight, out=np.empty((2, 3), np.float32))
    started = comm.start("matmul", x, weight)
    return [seen[-1], started.wait().tolist(), comm.all_reduce(np.ones(1)).tolist()]


def test_a_product_of_one_rank_is_heard_by_no_other() -> None:
    want = [[[9.0 + rank, 12.0 + 2 * rank, 15.0 + 3 * rank]] for rank in range(3)]
    assert run_ranks(alone, 3) == [[product, product, [3.0]] for product in want]


def while_others_wait(rank: int) -> bool:
    """A product between the start of a call and its end, which only the others have come to."""
    comm = collops.init(timeout_s=patience(20))
    if rank:
        return bool(comm.all_reduce(np.ones(1))[0] == 2)
    x = np.ones((3, 4), np.float32)
    for _ in range(100):
        comm.matmul(x, x.T.copy())
    return bool(comm.all_reduce(np.ones(1))[0] == 2)


def test_a_product_of_one_rank_waits_for_no_one() -> None:
    assert run_ranks(while_others_wait, 2) == [True, True]
