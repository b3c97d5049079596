"""all_to_allv, gatherv, scatterv and reduce: kinds of tensors, and calls that go wrong."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks

Comm = collops.Communicator
Call = Callable[[Comm], Any]
X = np.arange(12, dtype=np.float32).reshape(6, 2)
SENDS = [1, 2, 3]


def plain(method: str, *args: Any, **kwargs: Any) -> Call:
    return lambda comm: getattr(comm, method)(*args, **kwargs)


def sent(x: Any = X, sends: Any = SENDS, *others: Any, **kwargs: Any) -> Call:
    """all_to_allv; without more arguments every rank sends its rank's neighbours the same."""
    return plain("all_to_allv", x, sends, *others, **kwargs)


def received(comm: Comm) -> Any:
    """The right call with both lists."""
    return comm.all_to_allv(X, SENDS, [comm.rank + 1] * 3)


def outcome(run: Callable[[], Any]) -> tuple[int, str]:
    try:
        run()
    except collops.Error as error:
        return error.code, error.message
    return 0, ""


def scattered(sizes: Any = SENDS, x: Any = X, root: Any = 1) -> Call:
    return lambda comm: comm.scatterv(x if comm.rank == 1 else None, sizes, root)


def overlapping(comm: Comm) -> Any:
    memory = np.zeros((10, 2), np.float32)
    return comm.all_to_allv(memory[:6], SENDS, [2] * 3, memory[4:])


GATHER, ALL, REDUCE = plain("gatherv", X, [6] * 3), received, plain("reduce", X)
STRIDED = X.repeat(2, 1)[:, ::2]
# The fault of rank 1, what the others call, the fault's code, and a part of its message.
FAULTS: dict[str, tuple[Call, Call, int, str]] = {
    "all: a list": (sent([1.0]), sent(), 1, "all_to_allv: x must be a numpy array"),
    "all: 0 dims": (sent(np.array(3.0)), sent(), 16, "all_to_allv: x has 0 dims"),
    "all: no sizes": (sent(X, None), sent(), 1, "send_sizes must be a list of whole numbers"),
    "all: 2 sizes": (sent(X, [3, 3]), ALL, 1, "send_sizes has 2 entries, there are 3 ranks"),
    "all: halves": (sent(X, [1.5, 1.5, 3]), ALL, 1, "send_sizes must be whole numbers of rows"),
    "all: below 0": (sent(X, [-1, 3, 4]), ALL, 1, "send_sizes[0] must be >= 0, got -1"),
    "all: sum": (sent(X, [1, 2, 2]), ALL, 1, "send_sizes make 5 rows, but x has 6"),
    "all: received": (sent(X, SENDS, [2, -2, 2]), ALL, 1, "recv_sizes[1] must be >= 0"),
    "all: 4 received": (sent(X, SENDS, [2] * 4), ALL, 1, "recv_sizes has 4 entries"),
    "all: itself": (
        sent(X, SENDS, [2, 1, 2]),
        ALL,
        1,
        "send_sizes[1] is 2 but recv_sizes[1] is 1: what this rank 1 sends to itself",
    ),
    "all: out": (sent(out=X.copy()[:5]), sent(), 8, "all_to_allv: out must have shape [6, 2]"),
    "all: out dtype": (
        sent(out=np.empty((6, 2))),
        sent(),
        13,
        "all_to_allv: out must be float32 as x, got float64",
    ),
    "all: strided": (sent(STRIDED), sent(), 14, "all_to_allv: x is not contiguous"),
    "all: overlapping": (overlapping, ALL, 14, "all_to_allv: out overlaps x in memory"),
    "all: references": (sent(X.astype("O"), SENDS, [2] * 3), ALL, 13, "are references"),
    "gather: root": (plain("gatherv", X, [6] * 3, 3), GATHER, 1, "root must be in [0, 3), got 3"),
    "gather: sizes": (plain("gatherv", X[:5], [6] * 3), GATHER, 1, "sizes[1] is 6, but x has 5"),
    "gather: no rows": (plain("gatherv", 7), plain("gatherv", X), 1, "gatherv: x must be a numpy"),
    "gather: strided": (plain("gatherv", STRIDED, [6] * 3), GATHER, 14, "x is not contiguous"),
    "scatter: root": (scattered(root=1.5), scattered(), 1, "root must be a whole number, got 1.5"),
    "scatter: sizes": (scattered([2] * 4), scattered(), 1, "sizes has 4 entries"),
    "scatter: sum": (scattered(x=X[:5]), scattered(), 1, "sizes make 6 rows, but x has 5"),
    "scatter: nothing": (scattered(x=None), scattered(), 1, "scatterv: x must be a numpy array"),
    "scatter: strided": (scattered(x=STRIDED), scattered(), 14, "scatterv: x is not contiguous"),
    "scatter: references": (scattered(x=X.astype("O")), scattered(), 13, "are references"),
    "reduce: op": (plain("reduce", X, "mean"), REDUCE, 1, "reduce: op must be one of"),
    "reduce: root": (plain("reduce", X, root=-1), REDUCE, 1, "root must be in [0, 3), got -1"),
    "reduce: bool": (plain("reduce", X.astype("?")), REDUCE, 13, "reduce: there is no sum of bool"),
    "reduce: text": (plain("reduce", X.astype("S3")), REDUCE, 13, "cannot be reduced"),
    "reduce: strided": (plain("reduce", STRIDED), REDUCE, 14, "reduce: x is not contiguous"),
}


def all_faults(rank: int) -> dict[str, tuple[tuple[int, str], Any]]:
    """Per fault: what this rank hears, and the result of the next call."""
    comm = collops.init(timeout_s=20)
    return {
        name: (
            outcome(partial(faulty if rank == 1 else right, comm)),
            comm.all_reduce(np.array([rank, 10])).tolist(),
        )
        for name, (faulty, right, _, _) in FAULTS.items()
    }


@pytest.fixture(scope="module")
def refused() -> list[dict[str, Any]]:
    return run_ranks(all_faults, 3)


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_call_is_refused(refused: list[Any], name: str) -> None:
    _, _, code, message = FAULTS[name]
    (own_code, own_message), _ = refused[1][name]
    assert (own_code, message in own_message) == (code, True), own_message
    for rank in (0, 2):
        (other_code, other_message), _ = refused[rank][name]
        assert other_code == 102
        assert "rank 1 " in other_message
        assert own_message[:100] in other_message
    assert [results[name][1] for results in refused] == [[3, 30]] * 3


# What rank 2 calls, what the others call, and what the message names besides the ranks.
DISAGREEMENTS: dict[str, tuple[Call, Call, list[str]]] = {
    "rows that it sends": (
        sent(X, [3, 0, 3], [3] * 3),
        ALL,
        ["send_sizes[0] is 3 on rank 2", "recv_sizes[2] is 1 on rank 0"],
    ),
    "rows that it expects": (
        sent(X, SENDS, [3, 7, 3]),
        ALL,
        ["send_sizes[2] is 3 on rank 1", "recv_sizes[1] is 7 on rank 2"],
    ),
    "rows that are wider": (sent(X.repeat(2, 1), SENDS, [3] * 3), ALL, ["[-1, 4]", "[-1, 2]"]),
    "dtype of rows": (sent(X.astype("S4"), SENDS, [3] * 3), ALL, ["dtype", "|S4", "float32"]),
    "with and without sizes": (sent(), ALL, ["all_to_allv without sizes", "is all_to_allv on"]),
    "other rows without sizes": (sent(X.repeat(2, 1)), sent(), ["x's shape after dim 0", "[4]"]),
    "gather or all": (GATHER, ALL, ["gatherv", "all_to_allv"]),
    "sizes of gather": (plain("gatherv", X, [5, 6, 6]), GATHER, ["sizes[0]", "5", "6"]),
    "root of gather": (plain("gatherv", X, [6] * 3, 2), GATHER, ["root is", "2", "0"]),
    "root of scatter": (scattered(root=0), scattered(), ["root is", "0", "1"]),
    "sizes of scatter": (scattered([2, 1, 3]), scattered(), ["sizes[0]", "2", "1"]),
    "root of reduce": (plain("reduce", X, root=2), REDUCE, ["root is", "2", "0"]),
    "op of reduce": (plain("reduce", X, "max"), REDUCE, ["op is", "max", "sum"]),
    "shape of reduce": (plain("reduce", X.reshape(3, 4)), REDUCE, ["x's shape", "[3, 4]"]),
    "reduce or all_reduce": (plain("all_reduce", X), REDUCE, ["all_reduce", "is reduce on"]),
}


def all_disagreements(rank: int) -> dict[str, Any]:
    results = {}
    for name, (odd, even, _) in DISAGREEMENTS.items():
        comm = collops.init(comm_domain=name, timeout_s=20)
        first = outcome(partial(odd if rank == 2 else even, comm))
        again = collops.init(comm_domain=name, timeout_s=20)
        results[name] = first, again.all_gather(np.array([rank])).tolist()
    return results


@pytest.fixture(scope="module", params=[False, True], ids=["processes", "threads"])
def disagreed(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return run_ranks(all_disagreements, 3, threads=request.param)


@pytest.mark.parametrize("name", DISAGREEMENTS)
def test_all_ranks_are_told_who_differs_in_what(disagreed: list[Any], name: str) -> None:
    for rank in range(3):
        (code, message), again = disagreed[rank][name]
        assert code == 102, message
        assert "the ranks disagree" in message
        assert "on rank 2" in message
        for word in DISAGREEMENTS[name][2]:
            assert word in message, message
        assert again == [0, 1, 2]


def test_torch_in_torch_out() -> None:
    torch = pytest.importorskip("torch")

    def work(rank: int) -> list[Any]:
        with collops.init() as comm:
            x = torch.arange(6).reshape(3, 2).to(torch.bfloat16) + 10 * rank
            out = torch.empty((3, 2), dtype=torch.bfloat16)
            sizes = [2, 1] if rank == 0 else [1, 2]
            assert comm.all_to_allv(x, sizes, sizes, out) is out
            parts = comm.scatterv(x if rank == 0 else None, [1, 2])
            rows = comm.gatherv(x, root=1)
            total = comm.reduce(x.float(), "max")
            results = [out, parts, rows, total]
            assert all(r is None or torch.is_tensor(r) for r in results)
            assert parts.dtype is torch.bfloat16
            return [None if r is None else r.float().tolist() for r in results]

    first, second = run_ranks(work, 2)
    assert first[0] == [[0, 1], [2, 3], [10, 11]]
    assert second[0] == [[4, 5], [12, 13], [14, 15]]
    assert (first[1], second[1]) == ([[0, 1]], [[2, 3], [4, 5]])
    assert (first[2], second[3]) == (None, None)
    assert second[2] == [[0, 1], [2, 3], [4, 5], [10, 11], [12, 13], [14, 15]]
    assert first[3] == [[10, 11], [12, 13], [14, 15]]


POINT = np.dtype([("where", "<f4", (2,)), ("name", "S5")])


@pytest.mark.parametrize(
    "dtype", [POINT, np.dtype("M8[us]"), np.dtype("U2"), np.dtype("c16")], ids=str
)
def test_elements_that_travel_as_bytes(dtype: Any) -> None:
    def rows(rank: int, count: int) -> Any:
        numbers = np.arange(count * 2 * dtype.itemsize, dtype=np.uint8) % 60 + rank
        if dtype.kind == "U":
            return (numbers[: count * 2] + 65).astype("U2").reshape(count, 2)
        return numbers.view(dtype).reshape(count, 2)

    def work(rank: int) -> tuple[bytes, Any, bytes]:
        with collops.init() as comm:
            swapped = comm.all_to_allv(rows(rank, 3), [2, 1])
            gathered = comm.gatherv(rows(rank, rank + 1))
            part = comm.scatterv(rows(5, 4) if rank == 1 else None, [3, 1], root=1)
            assert {a.dtype for a in (swapped, part)} == {dtype}
            return (
                swapped.tobytes(),
                None if gathered is None else gathered.tobytes(),
                part.tobytes(),
            )

    first, second = run_ranks(work, 2)
    assert first[0] == rows(0, 3)[:2].tobytes() + rows(1, 3)[:2].tobytes()
    assert second[0] == rows(0, 3)[2:].tobytes() + rows(1, 3)[2:].tobytes()
    assert (first[1], second[1]) == (rows(0, 1).tobytes() + rows(1, 2).tobytes(), None)
    assert first[2] + second[2] == rows(5, 4).tobytes()


def test_one_rank() -> None:
    def work(rank: int) -> list[Any]:
        with collops.init() as comm:
            empty = comm.all_to_allv(X[:0], [0])
            assert empty.shape == (0, 2)
            results = [comm.all_to_allv(X, [6]), comm.gatherv(X), comm.scatterv(X, [6])]
            return [comm.reduce(np.float64([3]), "avg").tolist(), *(r.tolist() for r in results)]

    assert run_ranks(work, 1) == [[[3.0], *[X.tolist()] * 3]]


def test_what_scatterv_does_not_read() -> None:
    def work(rank: int) -> Any:
        with collops.init() as comm:
            given = [X, "anything", np.zeros(9)][rank]
            return comm.scatterv(given, SENDS).tolist()

    assert run_ranks(work, 3) == [X[:1].tolist(), X[1:3].tolist(), X[3:].tolist()]


def test_no_array_is_copied_but_once() -> None:
    """The core counts what it copies: every rank takes what it receives, and nothing else."""
    from collops.core import core

    def work(rank: int) -> int:
        comm = collops.init()
        x = comm.empty((3, 100_000), np.float32)
        x[...] = rank
        out = comm.empty((3, 100_000), np.float32)
        comm.all_to_allv(x, [1, 1, 1], [1, 1, 1], out)
        before = core().copied_bytes()
        comm.all_to_allv(x, [1, 1, 1], [1, 1, 1], out)
        return int(core().copied_bytes() - before)

    assert run_ranks(work, 3) == [1_200_000] * 3
