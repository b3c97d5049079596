"""The plain level's four products called wrongly: one rank's own error, and ranks that disagree."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks

Comm = collops.Communicator
Changes = dict[str, Any]
BOTH = "all_gather_matmul_reduce_scatter"
GATHER, SCATTER, REDUCE = "all_gather_matmul", "matmul_reduce_scatter", "matmul_all_reduce"
METHODS = [BOTH, GATHER, SCATTER, REDUCE]
LATE_S = 1.0


def whole(rank: int, tensor: int, *shape: int) -> Any:
    """Whole numbers that differ in every rank, tensor and position."""
    values = np.random.default_rng([rank, tensor]).integers(-3, 4, shape)
    return values.astype(np.float32)


def call(comm: Comm, method: str, **changes: Any) -> Any:
    """A right call: x [3, 4], weight [4, 5]; `changes` replace arguments or add some."""
    words: Changes = {"x": whole(comm.rank, 0, 3, 4), "weight": whole(comm.rank, 1, 4, 5)}
    if method == BOTH:
        words.update(ag_dim=2, rs_dim=2)
    words.update(changes)
    return getattr(comm, method)(words.pop("x"), words.pop("weight"), **words)


def expected(rank: int, method: str) -> Any:
    """Of a right call of 4 ranks."""
    xs, weights = ([whole(r, i, 3 + i, 4 + i) for r in range(4)] for i in (0, 1))
    if method == GATHER:
        return np.concatenate(xs) @ weights[rank]
    if method == BOTH:
        products = [np.concatenate(xs[r // 2 * 2 :][:2]) @ weights[r] for r in range(4)]
        total = products[rank % 2] + products[rank % 2 + 2]
        return total[rank // 2 * 3 :][:3]
    total = sum(x @ weight for x, weight in zip(xs, weights, strict=True))
    return total[rank : min(rank + 1, 3)] if method == SCATTER else total


def outcome(run: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[str, int, str]:
    """The class of the error, its code and its message."""
    try:
        run(*args, **kwargs)
    except collops.Error as error:
        return type(error).__name__, error.code, error.message
    except Exception as error:
        return type(error).__name__, -1, str(error)
    return "", 0, ""


def floats(*shape: int, dtype: Any = np.float32) -> Any:
    return np.ones(shape, dtype)


def read_only() -> Any:
    array = floats(3, 5)
    array.flags.writeable = False
    return array


SQUARE = floats(4, 4)
# The method, rank 1's arguments, its error's code, and a part of the message.
FAULTS: dict[str, tuple[str, Changes, int, str]] = {
    "x: a number": (GATHER, {"x": 3}, 1, f"{GATHER}: x must be a numpy array, a torch tensor"),
    "x: None": (BOTH, {"x": None}, 1, f"{BOTH}: x must be a numpy array"),
    "weight: a list": (REDUCE, {"weight": [[1.0]]}, 1, f"{REDUCE}: weight must be a numpy array"),
    "residual: a number": (SCATTER, {"residual": 2.0}, 1, f"{SCATTER}: residual must be a numpy"),
    "x: 0 dims": (REDUCE, {"x": floats()}, 8, "[matrices, rows, k], got 0 dims"),
    "x: 1 dim": (BOTH, {"x": floats(4)}, 8, "[matrices, rows, k], got 1 dims"),
    "x: 4 dims": (GATHER, {"x": floats(1, 1, 3, 4)}, 8, "[matrices, rows, k], got 4 dims"),
    "x: 4 dims, scattered": (SCATTER, {"x": floats(1, 1, 3, 4)}, 8, "x must be [rows, k] or"),
    "x: no columns": (REDUCE, {"x": floats(3, 0)}, 9, "x has size 0 in dim 1 of [3, 0]"),
    "x: int32": (BOTH, {"x": floats(3, 4, dtype="i4")}, 13, "x is int32; pass one of float32"),
    "x: float64": (REDUCE, {"x": floats(3, 4, dtype="f8")}, 13, "x is float64; pass one of"),
    "x: text": (GATHER, {"x": np.array([["a"] * 4] * 3)}, 13, "x is"),
    "x: byte order": (SCATTER, {"x": floats(3, 4, dtype=">f4")}, 14, "x is not in this machine's"),
    "x: strided": (GATHER, {"x": floats(3, 8)[:, ::2]}, 14, "x is not contiguous"),
    "weight: dtype": (
        GATHER,
        {"weight": floats(4, 5, dtype="f2")},
        13,
        "weight is float16 but x is float32",
    ),
    "weight: 1 dim": (SCATTER, {"weight": floats(4)}, 8, "weight must have 2 or 3 dims, got 1"),
    "weight: transposed": (BOTH, {"weight": floats(5, 4).T}, 14, "weight is not contiguous"),
    "weight: k": (BOTH, {"weight": floats(3, 5)}, 8, "x has k = 4 columns but weight [3, 5] has 3"),
    "weight: [n, k]": (REDUCE, {"trans_weight": True}, 8, "with trans_weight=True it is [n, k]"),
    "weight: not [n, k]": (
        GATHER,
        {"weight": floats(5, 4)},
        8,
        "all_gather_matmul: x has k = 4 columns but weight [5, 4] has 5 rows; it is [k, n]: for "
        "[n, k] pass trans_weight=True",
    ),
    "residual: dtype": (
        BOTH,
        {"residual": floats(5, dtype="f2")},
        13,
        "residual is float16 but x is float32",
    ),
    "residual: length": (REDUCE, {"residual": floats(4)}, 8, "residual must be [5] or [1, 5], got"),
    "residual: rows": (GATHER, {"residual": floats(5, 1)}, 8, "residual must be [5] or [1, 5], go"),
    "gather_rows: length": (GATHER, {"gather_rows": [3] * 3}, 1, "gather_rows has 3 entries"),
    "gather_rows: group": (BOTH, {"gather_rows": [3] * 4}, 1, "gather_rows has 4 entries"),
    "gather_rows: negative": (GATHER, {"gather_rows": [3, 3, -1, 3]}, 1, "gather_rows[2] must be"),
    "gather_rows: own": (GATHER, {"gather_rows": [3, 4, 3, 3]}, 1, "gather_rows[1] is 4 but x of"),
    "gather_rows: halves": (BOTH, {"gather_rows": [3, 3.5]}, 1, "gather_rows must be whole"),
    "gather_rows: a number": (GATHER, {"gather_rows": 3}, 1, "gather_rows must be whole numbers"),
    "gather_rows: huge": (GATHER, {"gather_rows": [2**62, 3, 2**62, 3]}, 1, "int64"),
    "gather_rows: no int64": (
        GATHER,
        {"gather_rows": [2**70, 3, 3, 3]},
        1,
        "gather_rows[0] must be",
    ),
    "scatter_rows: length": (SCATTER, {"scatter_rows": [3]}, 1, "scatter_rows has 1 entries"),
    "scatter_rows: sum": (
        SCATTER,
        {"scatter_rows": [1, 1, 0, 0]},
        1,
        "matmul_reduce_scatter: scatter_rows have a sum of 2 but x has 3 rows",
    ),
    "scatter_rows: gathered": (BOTH, {"scatter_rows": [3, 4]}, 1, "a sum of 7 but the gathered x"),
    "scatter_rows: words": (SCATTER, {"scatter_rows": ["a"] * 4}, 1, "scatter_rows must be whole"),
    "grid: too many": (BOTH, {"ag_dim": 3}, 1, "ag_dim 3 times rs_dim 2 is not the 4 ranks"),
    "grid: none": (BOTH, {"ag_dim": 0}, 1, "must be >= 1, got 0 and 2"),
    "grid: negative": (BOTH, {"ag_dim": -2, "rs_dim": -2}, 1, "rs_dim must be >= 1, got -2 and -2"),
    "grid: a word": (BOTH, {"ag_dim": "2"}, 1, "ag_dim must be a whole number, got '2'"),
    "grid: a fraction": (BOTH, {"rs_dim": 2.0}, 1, "rs_dim must be a whole number, got 2.0"),
    "grid: None": (BOTH, {"ag_dim": None}, 1, "ag_dim must be a whole number, got None"),
    "out: shape": (REDUCE, {"out": floats(5, 3)}, 8, "must have shape [3, 5], got [5, 3]"),
    "out: rows": (SCATTER, {"out": floats(3, 5)}, 8, "must have shape [1, 5], got [3, 5]"),
    "out: dims": (GATHER, {"out": floats(60)}, 8, "must have 2 dims"),
    "out: dtype": (REDUCE, {"out": floats(3, 5, dtype="f8")}, 13, "output must be float32"),
    "out: a list": (BOTH, {"out": [[0.0] * 5] * 3}, 1, "output 0: a numpy array, a torch tensor"),
    "out: read-only": (BOTH, {"out": read_only()}, 14, "the output is read-only"),
    "out: strided": (REDUCE, {"out": floats(3, 10)[:, ::2]}, 14, "the output is not contiguous"),
    "out: weight": (BOTH, {"weight": SQUARE, "out": SQUARE[:3]}, 14, "overlap"),
}


def all_faults(rank: int) -> dict[str, Any]:
    """Per fault: what this rank hears, after how many seconds, and whether the next call works."""
    comm = collops.init(timeout_s=20)
    call(comm, BOTH)
    seen = {}
    for number, (name, (method, changes, _, _)) in enumerate(FAULTS.items()):
        comm.barrier()
        begin = time.monotonic()
        heard = outcome(call, comm, method, **(changes if rank == 1 else {}))
        seconds = time.monotonic() - begin
        after = METHODS[number % 4]
        seen[name] = heard, seconds, np.array_equal(call(comm, after), expected(rank, after))
    return seen


@pytest.fixture(scope="module")
def refused() -> list[dict[str, Any]]:
    return run_ranks(all_faults, 4)


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_call_is_refused(refused: list[Any], name: str) -> None:
    _, _, code, message = FAULTS[name]
    (own_class, own_code, own_message), _, _ = refused[1][name]
    assert (own_class, own_code) == ("ArgumentError", code), own_message
    assert message in own_message
    for rank in (0, 2, 3):
        (other_class, other_code, other_message), seconds, _ = refused[rank][name]
        assert (other_class, other_code) == ("RankMismatchError", 102)
        assert "rank 1 " in other_message
        assert own_message[:100] in other_message
        assert seconds < LATE_S
    assert [results[name][2] for results in refused] == [True] * 4


def alone(rank: int) -> list[tuple[str, int, str]]:
    comm = collops.init()
    changes: list[Changes] = [{"x": 3}, {"weight": floats(3, 5)}, {"out": floats(1, 5)}]
    heard = [outcome(call, comm, REDUCE, **c) for c in changes]
    right = np.array_equal(call(comm, REDUCE), whole(0, 0, 3, 4) @ whole(0, 1, 4, 5))
    return [*heard, ("", int(right), "")]


def test_one_rank_alone_hears_of_its_errors() -> None:
    [heard] = run_ranks(alone, 1)
    assert [(name, code) for name, code, _ in heard] == [
        ("ArgumentError", 1),
        ("ArgumentError", 8),
        ("ArgumentError", 8),
        ("", 1),
    ]


def after_close(rank: int) -> list[tuple[str, int, str]]:
    comm = collops.init()
    call(comm, REDUCE)
    comm.close()
    return [outcome(call, comm, REDUCE, out=out) for out in (None, floats(3, 5))] + [
        outcome(call, comm, GATHER)
    ]


def test_a_closed_communicator_says_so() -> None:
    """Also for a kind of call that it has not made before."""
    [heard] = run_ranks(after_close, 1)
    for name, code, message in heard:
        assert (name, code) == ("AbortedError", 104), message
        assert "has ended" in message


def torch_faults(rank: int) -> list[Any]:
    """What only a torch tensor can have wrong."""
    import torch

    comm = collops.init(timeout_s=20)
    faults: list[Changes] = [
        {"x": torch.zeros(3, 4, requires_grad=True)},
        {"x": torch.zeros(4, 3).t()},
        {"weight": torch.zeros(4, 5, dtype=torch.bfloat16)},
        {"out": torch.zeros(3, 5, dtype=torch.float64)},
        {"x": torch.zeros(3, 4, device="meta")},
    ]
    heard = [outcome(call, comm, BOTH, **(c if rank == 1 else {})) for c in faults]
    return [*heard, np.array_equal(call(comm, BOTH), expected(rank, BOTH))]


def test_a_wrong_torch_tensor_is_refused() -> None:
    pytest.importorskip("torch", reason="torch is not installed here")
    results = run_ranks(torch_faults, 4)
    own, others = results[1], [results[rank] for rank in (0, 2, 3)]
    assert [code for _, code, _ in own[:-1]] == [1, 14, 13, 13, 14]
    assert "requires grad" in own[0][2]
    assert all(code == 102 for heard in others for _, code, _ in heard[:-1])
    assert all(heard[-1] for heard in results)


# What rank 2 calls, what the others call, and what the message names besides the ranks.
DISAGREEMENTS: dict[str, tuple[tuple[str, Changes], tuple[str, Changes], list[str]]] = {
    "method": ((REDUCE, {}), (SCATTER, {}), ["matmul_all_reduce", "matmul_reduce_scatter"]),
    "operator": (("all_reduce", {}), (BOTH, {}), ["operator", "AllReduce", "LinearParallel"]),
    "dtype": (
        (GATHER, {"x": floats(3, 4, dtype="f2"), "weight": floats(4, 5, dtype="f2")}),
        (GATHER, {}),
        ["dtype", "float16", "float32"],
    ),
    "k": ((SCATTER, {"x": floats(3, 6), "weight": floats(6, 5)}), (SCATTER, {}), ["k is"]),
    "n": ((REDUCE, {"weight": floats(4, 7)}), (REDUCE, {}), ["n is", "7", "5"]),
    "rows": ((REDUCE, {"x": floats(2, 4)}), (REDUCE, {}), ["rows", "2", "3"]),
    "rows that are gathered": (
        (GATHER, {"x": floats(5, 4)}),
        (GATHER, {}),
        ["all_gather_matmul: ", "the sum of the rows is", "pass gather_rows on all of them"],
    ),
    "ag_dim": (
        (BOTH, {"ag_dim": 4, "rs_dim": 1}),
        (BOTH, {}),
        ["ag_dim", "4", "2"],
    ),
    "inner_dim_is_ag": ((BOTH, {"inner_dim_is_ag": False}), (BOTH, {}), ["inner_dim_is_ag"]),
    "gather_rows": (
        (BOTH, {"gather_rows": [3, 3]}),
        (BOTH, {"x": floats(2, 4), "gather_rows": [2, 4]}),
        ["gather_rows[0]"],
    ),
    "scatter_rows": (
        (BOTH, {"scatter_rows": [2, 4]}),
        (BOTH, {"scatter_rows": [3, 3]}),
        ["scatter_rows[0]", "2", "3"],
    ),
}


def disagree(rank: int, name: str) -> list[tuple[str, int, str]]:
    comm = collops.init(timeout_s=20)
    odd, others, _ = DISAGREEMENTS[name]
    method, changes = odd if rank == 2 else others
    if name == "gather_rows" and rank % 2:  # the other member of each group has as it is said
        changes = {**changes, "x": floats(4, 4)}
    if method == "all_reduce":
        return [outcome(comm.all_reduce, floats(3, 5))] * 2
    return [outcome(call, comm, method, **changes), outcome(call, comm, method)]


@pytest.mark.parametrize("fused", ["1", "0"])
@pytest.mark.parametrize("name", DISAGREEMENTS)
def test_ranks_that_disagree(name: str, fused: str) -> None:
    words = DISAGREEMENTS[name][2]
    for heard, after in run_ranks(disagree, 4, name, env={"COLLOPS_FUSED": fused}):
        assert heard[:2] == ("RankMismatchError", 102), heard
        assert "rank 2" in heard[2]
        assert [word for word in words if word not in heard[2]] == [], heard[2]
        assert after[1] == 102
