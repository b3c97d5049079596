"""Messages of the plain level: what arrives, in which order, and which tensors go."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import collops
from collops import RecvFrom, SendTo
from collops.testing import run_ranks


def pattern(count: int, seed: int, dtype: Any = np.int32) -> Any:
    return ((np.arange(count, dtype=np.int64) * 7919 + seed * 104729) % 65521).astype(dtype)


def pass_on(comm: collops.Communicator, x: Any, like: Any, **kwargs: Any) -> Any:
    """What rank 1 gets of rank 0's x; None on the other ranks."""
    if comm.rank == 0:
        assert comm.send(x, 1, **kwargs) is None
        return None
    if comm.rank > 1:
        return None
    out = comm.recv(like, 0, **kwargs)
    assert out is like
    return out


def work_on_lengths(rank: int) -> bool:
    with collops.init() as comm:
        for count in (0, 1, 100, 1041, 70000, 1000003):
            got = pass_on(comm, pattern(count, 1), np.full(count, -1, np.int32))
            assert got is None or (got == pattern(count, 1)).all()
            window = comm.empty(count, np.int32)
            window[:] = pattern(count, 2 + rank)
            got = pass_on(comm, window, np.full(count, -1, np.int32))
            assert got is None or (got == pattern(count, 2)).all()
    return True


def test_every_length_arrives() -> None:
    assert run_ranks(work_on_lengths, 3) == [True] * 3
    assert run_ranks(work_on_lengths, 2, threads=True) == [True] * 2


def work_on_types(rank: int) -> list[Any]:
    pairs = np.array([(1, 0.5), (2, 0.25)], [("a", "i4"), ("b", "f8")])
    with collops.init() as comm:
        got = [
            pass_on(comm, np.array(2.5), np.empty(())),
            pass_on(comm, np.arange(3.0).reshape(3, *(1,) * 10), np.empty((1, 3))),
            pass_on(comm, pairs, np.empty(2, pairs.dtype)),
            pass_on(comm, np.array(["r0"]), np.empty(1, "<U2")),
            pass_on(comm, np.array([1j]), np.empty(1, complex)),
            pass_on(comm, np.array([1.5], ml_dtypes.bfloat16), np.empty(1, ml_dtypes.bfloat16)),
            pass_on(comm, np.array([True]), np.empty(1, bool)),
        ]
    return [None if out is None else out.tolist() for out in got]


def test_any_element_type_and_shape_travels() -> None:
    want = [2.5, [[0.0, 1.0, 2.0]], [(1, 0.5), (2, 0.25)], ["r0"], [1j], [1.5], [True]]
    assert run_ranks(work_on_types, 2) == [[None] * 7, want]


def work_with_torch(rank: int) -> Any:
    import torch

    with collops.init() as comm:
        x = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3) + rank
        if rank == 0:
            comm.send(x, 1)
            comm.send(np.arange(3.0), 1)
            return None
        out, source = comm.recv(torch.empty(6, dtype=torch.bfloat16), return_source=True)
        mixed = comm.recv(torch.empty(3, dtype=torch.float64), 0)
        return out.tolist(), source, mixed.tolist()


def test_torch_and_numpy_meet() -> None:
    pytest.importorskip("torch")
    assert run_ranks(work_with_torch, 2)[1] == ([0, 1, 2, 3, 4, 5], 0, [0, 1, 2])


def work_on_order(rank: int) -> Any:
    with collops.init() as comm:
        if rank > 0:
            comm.exchange([SendTo(np.array([rank, i]), 0, tag=i % 2) for i in range(6)])
            return None
        got = []
        for tag in (1, 0):
            for _ in range(6):
                out, source = comm.recv(np.empty(2, int), tag=tag, return_source=True)
                assert out[0] == source
                got.append((tag, source, int(out[1])))
        return sorted(got, key=lambda one: one[:2]) == [
            (tag, source, i) for tag in (0, 1) for source in (1, 2) for i in range(tag, 6, 2)
        ]


def test_order_is_kept_per_tag_and_source() -> None:
    assert run_ranks(work_on_order, 3)[0] is True


def work_in_a_ring(rank: int) -> Any:
    with collops.init() as comm:
        left, right = (rank - 1) % comm.size, (rank + 1) % comm.size
        for count in (1, 5000, 300000):
            around, own = np.empty(count, np.int32), np.empty(count, np.int32)
            receive = RecvFrom(around)
            outs = comm.exchange(
                [
                    RecvFrom(own, rank, tag=1),
                    SendTo(pattern(count, rank), right),
                    receive,
                    SendTo(pattern(count, 50 + rank), rank, tag=1),
                ]
            )
            assert outs[0] is own and outs[1] is around
            assert receive.source == left
            assert (around == pattern(count, left)).all()
            assert (own == pattern(count, 50 + rank)).all()
        assert comm.exchange([]) == []
        return True


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_an_exchange_needs_no_order(ranks: int) -> None:
    assert run_ranks(work_in_a_ring, ranks) == [True] * ranks


def work_between_group_calls(rank: int) -> Any:
    with collops.init() as comm:
        for i in range(50):
            got = pass_on(comm, pattern(i, i), np.empty(i, np.int32))
            assert got is None or (got == pattern(i, i)).all()
            total = comm.all_reduce(np.array([rank + i]))
            assert total.tolist() == [3 + 3 * i]
        return True


def test_group_calls_and_messages_do_not_mix() -> None:
    assert run_ranks(work_between_group_calls, 3) == [True] * 3


def work_at_both_levels(rank: int) -> Any:
    with collops.init() as comm:
        common = {"rank": rank, "rank_size": 2, "backend": "shm"}
        if rank == 0:
            send = collops.Operation(collops.SendParam(dest_rank=1, **common))
            assert send.forward([np.arange(4.0)]) == []
            comm.send(np.arange(4.0) + 1, 1)
            return None
        plain = comm.recv(np.empty(4), 0).tolist()
        recv = collops.Operation(collops.RecvParam(src_rank=0, **common))
        [out] = recv.forward([np.empty((2, 2))])
        return plain, out.tolist()


def test_an_operation_meets_the_plain_level() -> None:
    assert run_ranks(work_at_both_levels, 2)[1] == ([0, 1, 2, 3], [[1, 2], [3, 4]])
