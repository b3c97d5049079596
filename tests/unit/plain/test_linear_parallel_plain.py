"""The plain level's four products: every kind of memory, rows, residual, dtype and number of ranks.

The numbers are small and whole, so that only the one rounding at the end is left: bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

import collops
from collops.testing import run_ranks

BOTH = "all_gather_matmul_reduce_scatter"
GATHER, SCATTER, REDUCE = "all_gather_matmul", "matmul_reduce_scatter", "matmul_all_reduce"
LISTS = {BOTH: ("gather", "scatter"), GATHER: ("gather",), SCATTER: ("scatter",), REDUCE: ()}
DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
Lists = Sequence[Sequence[int]]


class Call(NamedTuple):
    """One call of all ranks."""

    method: str
    ag_dim: int
    rs_dim: int
    gather: Lists  # rows of the members of each gather group
    scatter: Lists = ()  # of each reduce group; none: every member gets all rows
    given: str = "gather scatter"  # which of the lists are passed; the others are what None means
    inner: bool = True
    k: int = 7
    n: int = 5

    def places(self, rank: int) -> tuple[int, int]:
        """Where a rank stands in its gather group and in its reduce group."""
        if self.inner:
            return rank % self.ag_dim, rank // self.ag_dim
        return rank // self.rs_dim, rank % self.rs_dim

    def rank_at(self, ag: int, rs: int) -> int:
        ranks = range(self.ag_dim * self.rs_dim)
        return next(rank for rank in ranks if self.places(rank) == (ag, rs))

    def rows(self, rank: int) -> int:
        ag, rs = self.places(rank)
        return self.gather[rs][ag]

    def keywords(self, rank: int) -> dict[str, Any]:
        ag, rs = self.places(rank)
        words: dict[str, Any] = {}
        if self.method == BOTH:
            words = {"ag_dim": self.ag_dim, "rs_dim": self.rs_dim, "inner_dim_is_ag": self.inner}
        for name, rows in (
            ("gather", self.gather[rs]),
            ("scatter", (*self.scatter, *[()] * 9)[ag]),
        ):
            if name in LISTS[self.method] and name in self.given:
                words[f"{name}_rows"] = list(rows)
        return words

    def product(self, rank: int) -> Any:
        """The rows of a rank's gather group times its weight."""
        _, rs = self.places(rank)
        members = [self.rank_at(ag, rs) for ag in range(self.ag_dim)]
        rows = np.concatenate([whole(r, 0, self.rows(r), self.k) for r in members])
        return rows.astype(float) @ whole(rank, 1, self.k, self.n)  # numpy is slow on integers

    def expected(self, rank: int) -> Any:
        ag, rs = self.places(rank)
        total = sum(self.product(self.rank_at(ag, member)) for member in range(self.rs_dim))
        if self.scatter:
            begin = sum(self.scatter[ag][:rs])
            total = total[begin : begin + self.scatter[ag][rs]]
        return total


def whole(rank: int, tensor: int, *shape: int) -> Any:
    """Whole numbers that differ in every rank, tensor and position."""
    return np.random.default_rng([rank, tensor, *shape]).integers(-3, 4, shape)


CALLS: dict[int, list[Call]] = {
    1: [
        Call(GATHER, 1, 1, [[4]]),
        Call(SCATTER, 1, 1, [[4]], [[4]], ""),
        Call(REDUCE, 1, 1, [[4]]),
        Call(BOTH, 1, 1, [[4]], [[4]]),
        Call(BOTH, 1, 1, [[0]], [[0]], ""),
    ],
    2: [
        Call(GATHER, 2, 1, [[3, 3]], given=""),
        Call(GATHER, 2, 1, [[3, 5]]),
        Call(GATHER, 2, 1, [[0, 4]]),
        Call(GATHER, 2, 1, [[0, 0]], given=""),
        Call(GATHER, 2, 1, [[40, 37]], k=300, n=400),  # through the stage, and more than one strip
        Call(SCATTER, 1, 2, [[8], [8]], [[3, 5]]),
        Call(SCATTER, 1, 2, [[7], [7]], [[4, 3]], ""),
        Call(SCATTER, 1, 2, [[1], [1]], [[1, 0]], ""),
        Call(SCATTER, 1, 2, [[0], [0]], [[0, 0]], ""),
        Call(SCATTER, 1, 2, [[33], [33]], [[0, 33]], k=40, n=1200),
        Call(REDUCE, 1, 2, [[5], [5]]),
        Call(REDUCE, 1, 2, [[0], [0]]),
        Call(REDUCE, 1, 2, [[70], [70]], n=800),
    ],
    3: [
        Call(GATHER, 3, 1, [[2, 0, 3]]),
        Call(SCATTER, 1, 3, [[7], [7], [7]], [[3, 2, 2]], ""),
        Call(SCATTER, 1, 3, [[7], [7], [7]], [[0, 6, 1]]),
        Call(REDUCE, 1, 3, [[2], [2], [2]]),
        Call(BOTH, 3, 1, [[1, 2, 4]], [[7]] * 3),
        Call(BOTH, 1, 3, [[5], [5], [5]], [[2, 2, 1]], ""),
    ],
    4: [
        Call(BOTH, 2, 2, [[3, 3], [3, 3]], [[3, 3], [3, 3]], ""),
        Call(BOTH, 2, 2, [[5, 6], [1, 10]], [[4, 7], [11, 0]]),
        Call(BOTH, 2, 2, [[5, 6], [1, 10]], [[4, 7], [11, 0]], inner=False),
        Call(BOTH, 2, 2, [[5, 2], [7, 0]], [[4, 3], [4, 3]], "gather"),
        Call(BOTH, 2, 2, [[4, 4], [4, 4]], [[8, 0], [1, 7]], "scatter", inner=False),
        Call(BOTH, 2, 2, [[0, 0], [0, 0]], [[0, 0], [0, 0]], ""),
        Call(BOTH, 2, 2, [[40, 41], [80, 1]], [[41, 40], [9, 72]], k=300, n=800),
        Call(BOTH, 1, 4, [[6]] * 4, [[2, 2, 1, 1]], ""),
        Call(BOTH, 4, 1, [[1, 2, 0, 3]], [[6]] * 4, inner=False),
    ],
}


class Memory:
    """Tensors of one kind: plain numpy, windows, or torch."""

    def __init__(self, comm: collops.Communicator, kind: str) -> None:
        self.comm, self.kind = comm, kind

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Memory without a number in it."""
        if self.kind == "torch":
            import torch

            return torch.full(shape, torch.nan, dtype=getattr(torch, dtype))
        make = self.comm.empty if self.kind == "window" else np.empty
        array = make(shape, DTYPES[dtype])
        array[...] = np.nan
        return array

    def tensor(self, values: Any, dtype: str) -> Any:
        tensor = self.empty(values.shape, dtype)
        if self.kind == "torch":
            import torch

            tensor.copy_(torch.from_numpy(values))
        else:
            tensor[...] = values
        return tensor

    def is_of_kind(self, tensor: Any, like: Any) -> bool:
        return type(tensor) is type(like) and tensor.dtype == like.dtype


def values_of(tensor: Any) -> Any:
    return np.asarray(tensor.float() if hasattr(tensor, "float") else tensor.astype(np.float32))


def check(
    memory: Memory, call: Call, total: Any, dtype: str, residual: str, with_out: bool
) -> None:
    """Calls once on this rank and compares; `total` is what is expected without a residual."""
    rank = memory.comm.rank
    weight = whole(rank, 1, call.k, call.n)
    trans_weight = with_out == (dtype == "float16")  # both ways, and not the same on every dtype
    ins = [
        memory.tensor(whole(rank, 0, call.rows(rank), call.k), dtype),
        memory.tensor(np.ascontiguousarray(weight.T) if trans_weight else weight, dtype),
    ]
    words = call.keywords(rank)
    if residual:
        row = whole(rank, 2, call.n)
        ins.append(memory.tensor(row if residual == "[n]" else row.reshape(1, -1), dtype))
        words["residual"] = ins[-1]
    expected = total + (whole(rank, 2, call.n) if residual else 0)
    out = memory.empty(expected.shape, dtype) if with_out else None
    before = [values_of(tensor).tobytes() for tensor in ins]
    got = getattr(memory.comm, call.method)(
        ins[0], ins[1], trans_weight=trans_weight, out=out, **words
    )
    where = f"{call} {dtype} residual {residual} out {with_out}"
    assert out is None or got is out, where
    assert memory.is_of_kind(got, ins[0]), where
    assert tuple(got.shape) == expected.shape, where
    rounded = expected.astype(np.float32).astype(DTYPES[dtype]).astype(np.float32)
    assert np.array_equal(values_of(got), rounded), where
    assert [values_of(tensor).tobytes() for tensor in ins] == before, where


# Every dtype and every form of the residual, with an out and without.
VARIED = [
    ("float32", "", False),
    ("float32", "[n]", True),
    ("float16", "[n]", False),
    ("float16", "[1, n]", True),
    ("bfloat16", "[1, n]", False),
    ("bfloat16", "", True),
]


def check_all(rank: int, size: int, kind: str) -> int:
    done = 0
    with collops.init() as comm:
        memory = Memory(comm, kind)
        for call in CALLS[size]:
            total = call.expected(rank)
            for dtype, residual, with_out in VARIED:
                check(memory, call, total, dtype, residual, with_out)
                done += 1
    return done


# Windows and engines differ only between ranks.
RUNS = [
    *[(size, kind, "1") for size in CALLS for kind in ("numpy", "window")],
    *[(size, "torch", "1") for size in (2, 4)],
    *[(size, "numpy", "0") for size in (2, 3, 4)],
    (4, "window", "0"),
]


@pytest.mark.parametrize(("size", "kind", "fused"), RUNS)
def test_all_calls(size: int, kind: str, fused: str) -> None:
    if kind == "torch":
        pytest.importorskip("torch", reason="torch is not installed here")
    done = run_ranks(check_all, size, size, kind, env={"COLLOPS_FUSED": fused})
    assert done == [len(CALLS[size]) * len(VARIED)] * size


def choose(rank: int) -> Any:
    """Each rank's own storage of the weight, residual and kind of memory."""
    comm = collops.init()
    call = Call(BOTH, 2, 2, [[5, 6], [1, 10]], [[4, 7], [11, 0]])
    memory = Memory(comm, "window" if rank % 2 else "numpy")
    x = memory.tensor(whole(rank, 0, call.rows(rank), call.k), "float32")
    weight = whole(rank, 1, call.k, call.n).astype(np.float32)
    words = call.keywords(rank)
    if rank == 2:
        words["residual"] = whole(rank, 2, call.n).astype(np.float32)
    if rank == 3:
        weight, words["trans_weight"] = np.ascontiguousarray(weight.T), True
    got = comm.all_gather_matmul_reduce_scatter(x, weight, **words)
    return np.array_equal(got, call.expected(rank) + words.get("residual", 0))


def test_ranks_choose_storage_and_residual_for_themselves() -> None:
    assert run_ranks(choose, 4) == [True] * 4


def mixed(rank: int) -> Any:
    """A numpy x, a torch weight, and an x of another library."""
    import torch

    class Foreign:
        def __dlpack__(self, **kwargs: Any) -> Any:
            return torch.from_numpy(x).__dlpack__(**kwargs)

        def __dlpack_device__(self) -> Any:
            return torch.from_numpy(x).__dlpack_device__()

    comm = collops.init()
    call = Call(GATHER, 2, 1, [[3, 5]])
    x = whole(rank, 0, call.rows(rank), call.k).astype(np.float32)
    weight = torch.from_numpy(whole(rank, 1, call.k, call.n).astype(np.float32))
    words = call.keywords(rank)
    results = [comm.all_gather_matmul(y, weight, **words) for y in (x, Foreign())]
    results.append(comm.all_gather_matmul(torch.from_numpy(x), weight.numpy(), **words))
    right = [np.array_equal(np.asarray(y), call.expected(rank)) for y in results]
    return right, [type(y).__module__ for y in results]


def test_the_result_is_of_the_kind_of_x() -> None:
    pytest.importorskip("torch", reason="torch is not installed here")
    assert run_ranks(mixed, 2) == [([True] * 3, ["numpy", "numpy", "torch"])] * 2


def lists(rank: int) -> list[bool]:
    """Lists of rows may be tuples, arrays and of numpy's numbers; the grid's numbers, too."""
    comm = collops.init()
    call = Call(BOTH, 2, 1, [[3, 5]], [[8], [8]])
    x = whole(rank, 0, call.rows(rank), call.k).astype(np.float32)
    weight = whole(rank, 1, call.k, call.n).astype(np.float32)
    ways: list[Any] = [(3, 5), np.array([3, 5]), [np.int8(3), np.uint64(5)]]
    return [
        np.array_equal(
            comm.all_gather_matmul_reduce_scatter(
                x, weight, ag_dim=np.int64(2), rs_dim=np.uint8(1), gather_rows=way
            ),
            call.expected(rank),
        )
        for way in ways
    ]


def test_lists_of_rows_of_every_kind() -> None:
    assert run_ranks(lists, 2) == [[True] * 3] * 2
