"""The plain level: allowed arguments, and results that equal numpy's."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import collops
from collops.testing import run_ranks

SIZES = {1: [3], 2: [0, 5], 3: [2, 0, 3], 4: [1, 2, 3, 4]}


def data(rank: int, shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
    """Different in every rank and position, and small enough for any type."""
    count = int(np.prod(shape))
    return ((np.arange(count) + 17 * rank) % 61).reshape(shape).astype(dtype)


@pytest.mark.parametrize("ranks", SIZES)
@pytest.mark.parametrize("row", [(), (3,), (2, 1, 2), (1,) * 8 + (2,), (0,), (2, 0)])
def test_all_gatherv_is_concatenate(ranks: int, row: tuple[int, ...]) -> None:
    sizes = SIZES[ranks]

    def work(rank: int) -> bool:
        comm = collops.init()
        x = data(rank, (sizes[rank], *row))
        want = np.concatenate([data(r, (sizes[r], *row)) for r in range(ranks)])
        out = np.full(want.shape, -7, np.float32)
        results = [
            comm.all_gatherv(x),
            comm.all_gatherv(x, sizes),
            comm.all_gatherv(x, np.array(sizes)),
            comm.all_gatherv(x, sizes=tuple(sizes), out=out),
        ]
        assert results[3] is out
        return all(np.array_equal(got, want) for got in results)

    assert run_ranks(work, ranks) == [True] * ranks


def test_x_may_be_its_own_block_of_out() -> None:
    def work(rank: int) -> list[int]:
        comm = collops.init()
        out = np.full(6, -1)
        x = out[2 * rank : 2 * rank + 2]
        x[:] = [10 * rank, 10 * rank + 1]
        return list(comm.all_gatherv(x, sizes=[2, 2, 2], out=out))

    assert run_ranks(work, 3) == [[0, 1, 10, 11, 20, 21]] * 3


STRUCTURED = np.dtype([("key", "i2"), ("value", "f8"), ("name", "S3")])


@pytest.mark.parametrize(
    "dtype",
    ["?", "i1", "u2", "u4", "u8", "c8", "c16", "S5", "U3", "M8[ns]", "m8[s]", "g", STRUCTURED],
    ids=str,
)
def test_any_fixed_size_type_travels(dtype: Any) -> None:
    def work(rank: int) -> Any:
        comm = collops.init()
        raw = np.random.default_rng(rank).bytes(6 * np.dtype(dtype).itemsize)
        x = np.frombuffer(raw, np.uint8 if dtype == "?" else dtype)
        x = (x % 2).astype(bool) if dtype == "?" else x
        x = x.reshape(3, 2)
        out = np.zeros((6, 2), dtype)
        assert comm.all_gatherv(x, [3, 3], out=out) is out
        fresh = comm.all_gatherv(x)
        assert fresh.dtype == np.dtype(dtype)
        return fresh.tobytes() == out.tobytes(), x.tobytes(), out.tobytes()

    (same, x0, out0), (also, x1, out1) = run_ranks(work, 2)
    assert same
    assert also
    assert out0 == out1 == x0 + x1


FLOATS = "bfloat16 float8_e3m4 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e8m0fnu int4"


@pytest.mark.parametrize("name", FLOATS.split())
def test_types_of_ml_dtypes_travel(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name))

    def work(rank: int) -> bool:
        comm = collops.init()
        count = 256 if name != "int4" else 16  # it has bits that do not belong to the number
        bits = np.arange(count, dtype=np.uint8 if dtype.itemsize == 1 else np.uint16)
        xs = [(bits + 64 * r if count == 256 else bits).view(dtype) for r in range(2)]
        gathered = comm.all_gatherv(xs[rank].reshape(-1, 4))
        want = np.concatenate(xs).reshape(-1, 4)
        return bool(gathered.dtype == dtype and gathered.tobytes() == want.tobytes())

    assert run_ranks(work, 2) == [True, True]


@pytest.mark.parametrize("dtype", ["u2", "u4", "u8"])
def test_unsigned_types_are_reduced_modulo_their_size(dtype: str) -> None:
    def work(rank: int) -> Any:
        largest = np.iinfo(dtype).max
        x = np.array([largest, largest - 1, 7], dtype) if rank else np.array([1, 3, 5], dtype)
        return [int(value) for value in collops.init().reduce_scatterv(x, [3, 0])]

    assert run_ranks(work, 2) == [[0, 1, 12], []]


def test_windows() -> None:
    def work(rank: int) -> list[Any]:
        comm = collops.init()
        x = comm.empty((2, 3), ml_dtypes.bfloat16)
        assert (x.shape, x.dtype) == ((2, 3), ml_dtypes.bfloat16)
        assert x.flags.writeable
        x[:] = data(rank, (2, 3))
        out = comm.empty((4, 3), x.dtype)
        comm.all_gatherv(x, out=out)
        assert comm.empty(0, np.int8).shape == (0,)
        assert comm.empty((3, 0), np.int8).shape == (3, 0)
        comm.close()
        x += 1  # still there
        return [out.tolist(), x.tolist()]

    want = np.concatenate([data(0, (2, 3)), data(1, (2, 3))])
    for rank, (gathered, own) in enumerate(run_ranks(work, 2)):
        assert np.array_equal(gathered, want)
        assert np.array_equal(own, data(rank, (2, 3)) + 1)


def test_a_window_is_freed_with_its_last_array() -> None:
    def mapped() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * 4096

    with collops.init(0, 1) as comm:
        comm.empty(1, np.int8)
        before = mapped()
        for _ in range(8):
            part = comm.empty(1 << 24, np.uint8)[5:9]
            part[:] = 1
            del part
    assert mapped() - before < 1 << 25


def test_a_window_larger_than_memory() -> None:
    with collops.init(0, 1) as comm:
        with pytest.raises(collops.Error, match="cannot allocate") as caught:
            comm.empty(2**50, np.uint8)
        assert caught.value.code == 27
        assert len(comm.empty(3, np.uint8)) == 3


def test_repr_and_handle() -> None:
    with collops.init(0, 1, comm_domain="tp") as comm:
        assert repr(comm) == "<collops.Communicator rank 0 of 1, domain 'tp', backend shm>"
        assert comm.handle > 0
    assert repr(comm) == "<collops.Communicator rank 0 of 1, domain 'tp', backend shm, closed>"


def test_repr_of_an_ended_communicator_says_so() -> None:
    comm = collops.init(0, 1)
    comm.abort("enough")
    assert repr(comm) == "<collops.Communicator rank 0 of 1, domain '', backend shm, ended>"


def test_a_closed_communicator_refuses_calls() -> None:
    comm = collops.init(0, 1)
    comm.close()
    comm.close()
    with pytest.raises(collops.AbortedError, match="called close"):
        comm.barrier()
    with pytest.raises(collops.Error, match="called close"):
        comm.all_gatherv(np.zeros(3))
    with collops.init(0, 1) as again:
        assert again is not comm
        again.barrier()
