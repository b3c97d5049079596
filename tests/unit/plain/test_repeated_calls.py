"""Calls like an earlier one, which are not prepared again: results, and what must not be taken."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks

METHODS = (
    "all_gather",
    "all_gatherv",
    "all_reduce",
    "all_to_allv",
    "reduce_scatter",
    "reduce_scatterv",
)


def rows_of(rank: int, count: int, step: int = 0) -> np.ndarray:
    """[count, 2] numbers that differ in every rank, position and step."""
    return (np.arange(2 * count).reshape(count, 2) * 7 + 1000 * rank + 100000 * step).astype("f4")


def arguments(name: str, rank: int, step: int) -> tuple[list[Any], np.ndarray]:
    """A call of two ranks: what it is called with, and its result."""
    x = [rows_of(r, 4, step) for r in range(2)]
    if name == "all_gather":
        return [x[rank]], np.concatenate(x)
    if name == "all_gatherv":
        x = [rows_of(r, 2 * r + 1, step) for r in range(2)]
        return [x[rank], [1, 3]], np.concatenate(x)
    if name == "all_reduce":
        return [x[rank], "max"], np.maximum(*x)
    if name == "all_to_allv":
        sends = [[1, 3], [2, 2]]
        begin = [0, sends[0][0]][rank], [0, sends[1][0]][rank]
        parts = [x[r][begin[r] : begin[r] + sends[r][rank]] for r in range(2)]
        return [x[rank], sends[rank], [sends[0][rank], sends[1][rank]]], np.concatenate(parts)
    total = x[0] + x[1]
    if name == "reduce_scatter":
        return [x[rank]], total[2 * rank : 2 * rank + 2]
    return [x[rank], (1, 3)], total[:1] if rank == 0 else total[1:]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("given", [True, False], ids=["out given", "new memory"])
def test_every_call_has_its_own_result(name: str, given: bool) -> None:
    def call(rank: int) -> None:
        with collops.init() as comm:
            results: list[np.ndarray] = []
            for step in range(4):
                args, want = arguments(name, rank, step)
                out = np.full_like(want, -1) if given else None
                result = getattr(comm, name)(*args, out=out)
                assert (result is out) is given
                assert not any(np.shares_memory(result, earlier) for earlier in results)
                np.testing.assert_array_equal(result, want)
                results.append(result)

    run_ranks(call, 2)


def test_a_list_that_the_caller_changes() -> None:
    def call(rank: int) -> None:
        with collops.init() as comm:
            sizes = [3, 1]
            for step in range(5):
                sizes[:] = [step % 2 + 1, 2 - step % 2]
                x = [rows_of(r, sizes[r], step) for r in range(2)]
                np.testing.assert_array_equal(comm.all_gatherv(x[rank], sizes), np.concatenate(x))
                # The list no longer fits x.
                sizes[rank] += 1
                with pytest.raises(collops.ArgumentError, match="sizes"):
                    comm.all_gatherv(x[rank], sizes)

    run_ranks(call, 2)


def test_more_calls_than_are_kept() -> None:
    def call(rank: int) -> None:
        with collops.init() as comm:
            for step in range(3):
                for count in range(12):
                    x = [rows_of(r, count + r, step) for r in range(2)]
                    sizes = [count, count + 1]
                    for op in ("sum", "max"):
                        got = comm.reduce_scatterv(np.concatenate(x), sizes, op=op)
                        want = np.concatenate(x)[rank * count :][: sizes[rank]]
                        np.testing.assert_array_equal(got, want * 2 if op == "sum" else want)
                    np.testing.assert_array_equal(
                        comm.all_gatherv(x[rank], sizes), np.concatenate(x)
                    )

    run_ranks(call, 2)


def scattered(rank: int, sizes: list[int], dim: int, step: int) -> tuple[Any, Any]:
    """x of [6, 6] for a sum over two ranks, and this rank's part of it."""
    x = [np.arange(36.0, dtype="f4").reshape(6, 6) * (r + 2) + step for r in range(2)]
    begin = sum(sizes[:rank])
    part = [slice(None), slice(None)]
    part[dim] = slice(begin, begin + sizes[rank])
    return x[rank], (x[0] + x[1])[tuple(part)]


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_calls_that_differ_in_one_argument(library: str) -> None:
    """Each is like the one before but for its sizes, dim, op, form of x or root."""
    wrap = pytest.importorskip("torch").from_numpy if library == "torch" else np.asarray

    def call(rank: int) -> None:
        with collops.init() as comm:
            sizes = [3, 3]
            for step in range(12):
                sizes[:] = [3, 3] if step % 3 else [2, 4]  # the caller's own list
                given: Any = None if step in (4, 5) else sizes
                dim = step // 6
                x, want = scattered(rank, sizes, dim, step)
                blocks = [wrap(b.copy()) for b in np.split(x, [sizes[0]], axis=dim)]
                for tensor in (wrap(x), blocks, wrap(x)):
                    out = wrap(np.full_like(want, np.nan, order="C"))
                    result = comm.reduce_scatterv(tensor, given, dim=dim, out=out)
                    assert result is out
                    np.testing.assert_array_equal(np.asarray(out), want)
            for root in (0, 1, 0, 1, 1, 0):
                x = wrap(rows_of(rank, 4))
                assert comm.broadcast(x, root) is x
                np.testing.assert_array_equal(np.asarray(x), rows_of(root, 4))
            for op in ("sum", "max", "sum", "max"):
                out = wrap(np.full((3, 3), np.nan, "f4"))
                comm.all_reduce(wrap(np.full((3, 3), rank + 1.0, "f4")), op, out=out)
                assert (np.asarray(out) == (3 if op == "sum" else 2)).all()

    run_ranks(call, 2)


def test_arguments_that_the_caller_changes() -> None:
    class Index:
        """A number that changes."""

        value = 0

        def __index__(self) -> int:
            return self.value

    def call(rank: int) -> None:
        with collops.init() as comm:
            index, array = Index(), np.array(0)
            for root in (index, array):
                for step in range(4):
                    index.value = array[...] = step % 2
                    x = rows_of(rank, 4, step)
                    comm.broadcast(x, root)  # type: ignore[arg-type]
                    np.testing.assert_array_equal(x, rows_of(step % 2, 4, step))

    run_ranks(call, 2)


def test_sizes_that_can_be_read_once() -> None:
    def call(rank: int) -> None:
        with collops.init() as comm:
            # Then none, for which the ranks ask each other: rank 0 has the same tensors again.
            for sizes, given in (((2, 1, 3), iter([2, 1, 3])), ((2, 3, 1), None)):
                x = [rows_of(r, count) for r, count in enumerate(sizes)]
                out = np.full((6, 2), -1, "f4")
                comm.all_gatherv(x[rank], given, out=out)  # type: ignore[arg-type]
                np.testing.assert_array_equal(out, np.concatenate(x))

    run_ranks(call, 3)


def test_the_first_calls_of_two_threads() -> None:
    """Nothing is looked up while a thread that has the GIL waits for it."""

    def call(rank: int) -> None:
        sys.setswitchinterval(1e-6)
        with collops.init() as comm:
            out = comm.all_reduce(rows_of(rank, 2), out=np.zeros((2, 2), "f4"))
            np.testing.assert_array_equal(out, rows_of(0, 2) + rows_of(1, 2))

    for _ in range(20):
        run_ranks(call, 2, threads=True)


def test_the_root_of_a_reduction_alone_has_a_result() -> None:
    def call(rank: int) -> None:
        with collops.init() as comm:
            for root in (0, 0, 1, 1):
                out = np.full((2, 2), -1.0, "f4")
                result = comm.reduce(rows_of(rank, 2), root=root, out=out)
                want = rows_of(0, 2) + rows_of(1, 2)
                assert result is (out if rank == root else None)
                np.testing.assert_array_equal(out, want if rank == root else -1)

    run_ranks(call, 2)


def test_an_array_of_another_byte_order_after_one_of_this() -> None:
    def call(rank: int) -> None:
        with collops.init() as comm:
            x = [rows_of(r, 2) for r in range(2)]
            for _ in range(2):
                got = comm.all_gather(x[rank], out=np.zeros((4, 2), "f4"))
                np.testing.assert_array_equal(got, np.concatenate(x))
            with pytest.raises(collops.ArgumentError, match="byte order"):
                comm.all_gather(x[rank].astype(">f4"), out=np.zeros((4, 2), ">f4"))

    run_ranks(call, 2)


@pytest.mark.parametrize("dtype", ["f8", "i4", "?", "S3", "datetime64[s]"])
def test_the_same_shape_of_another_type(dtype: str) -> None:
    def call(rank: int) -> None:
        with collops.init() as comm:
            for kind in ("f4", dtype, "f4", dtype):
                x = [np.array([r, 1, 0]).astype(kind) for r in range(2)]
                got = comm.all_gatherv(x[rank], [3, 3])
                assert got.dtype == x[0].dtype
                np.testing.assert_array_equal(got, np.concatenate(x))

    run_ranks(call, 2)


def wrong_outs() -> dict[str, Any]:
    """Memory that a result of [4, 2] float32 must not go to, and the message."""
    read_only = np.zeros((4, 2), "f4")
    read_only.flags.writeable = False
    return {
        "read-only": (read_only, "read-only"),
        "another shape": (np.zeros((5, 2), "f4"), "shape"),
        "another type": (np.zeros((4, 2), "f8"), "float"),
        "strides": (np.zeros((4, 4), "f4")[:, ::2], "contiguous"),
    }


@pytest.mark.parametrize("fault", wrong_outs())
def test_a_wrong_out_after_a_right_one(fault: str) -> None:
    def call(rank: int) -> None:
        with collops.init() as comm:
            x = [rows_of(r, 2 * r + 1) for r in range(2)]
            for _ in range(2):
                comm.all_gatherv(x[rank], [1, 3], out=np.zeros((4, 2), "f4"))
            out, words = wrong_outs()[fault]
            if rank == 0:
                with pytest.raises(collops.ArgumentError, match=words):
                    comm.all_gatherv(x[rank], [1, 3], out=out)
            else:
                with pytest.raises(collops.RankMismatchError, match=words):
                    comm.all_gatherv(x[rank], [1, 3])
            np.testing.assert_array_equal(comm.all_gatherv(x[rank], [1, 3]), np.concatenate(x))

    run_ranks(call, 2)


def test_ranks_that_repeat_other_calls_disagree() -> None:
    def call(rank: int) -> str:
        with collops.init() as comm:
            x = rows_of(rank, 2)
            for op in ("sum", "max"):
                comm.all_reduce(x, op)
            with pytest.raises(collops.RankMismatchError) as error:
                comm.all_reduce(x, ("sum", "max")[rank])
            return str(error.value)

    texts = run_ranks(call, 2)
    assert texts[0] == texts[1]
    assert "sum" in texts[0] and "max" in texts[0]


def test_torch_tensors_whose_values_are_elsewhere() -> None:
    torch = pytest.importorskip("torch")

    def call(rank: int) -> None:
        with collops.init() as comm:
            x = torch.arange(3.0) + 10 * rank
            want = torch.cat([torch.arange(3.0), torch.arange(3.0) + 10])
            kinds = {
                "requires grad": lambda: x.clone().requires_grad_(),
                "resolve_neg": lambda: torch._neg_view(x),
                "contiguous": lambda: torch.zeros(6)[::2],
            }
            for words, make in kinds.items():
                assert torch.equal(comm.all_gatherv(x, [3, 3]), want)
                with pytest.raises(collops.ArgumentError, match=words):
                    comm.all_gatherv(make(), [3, 3])
            with torch.no_grad():
                assert torch.equal(comm.all_gatherv(x.clone().requires_grad_(), [3, 3]), want)
            complex_x = torch.complex(x, x + 1)
            got = comm.all_gatherv(complex_x, [3, 3])
            assert torch.equal(got, torch.complex(want, want + 1))
            with pytest.raises(collops.ArgumentError, match="resolve_conj"):
                comm.all_gatherv(complex_x.conj(), [3, 3])
            half = comm.all_gatherv(x.bfloat16(), [3, 3], out=torch.zeros(6, dtype=torch.bfloat16))
            assert torch.equal(half, want.bfloat16())

    run_ranks(call, 2)


def test_numpy_then_torch_of_one_shape() -> None:
    torch = pytest.importorskip("torch")

    def call(rank: int) -> None:
        with collops.init() as comm:
            x = rows_of(rank, 2)
            for _ in range(2):
                assert isinstance(comm.all_gather(x), np.ndarray)
                got = comm.all_gather(torch.from_numpy(x))
                assert type(got) is torch.Tensor
                np.testing.assert_array_equal(
                    got.numpy(), np.concatenate([rows_of(0, 2), rows_of(1, 2)])
                )

    run_ranks(call, 2)


def test_a_way_of_making_memory_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    asked: list[bool] = []

    def fail() -> Any:
        asked.append(True)
        raise MemoryError

    monkeypatch.setattr("collops.tensors.maker", lambda _: fail)

    def call(rank: int) -> int:
        with collops.init() as comm:
            x = [torch.from_numpy(rows_of(r, 2)) for r in range(2)]
            for _ in range(3):
                assert torch.equal(comm.all_gather(x[rank]), torch.cat(x))
        return len(asked)

    assert run_ranks(call, 2) == [2, 2]
