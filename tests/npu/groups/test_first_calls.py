"""Operations are made in any order; HCCL connects a domain's ranks in its first call."""

from __future__ import annotations

from typing import Any

import numpy as np

import collops
from collops.testing import run_ranks


def operations(rank: int, names: list[str]) -> dict[str, collops.Operation]:
    return {
        name: collops.Operation(collops.AllReduceParam(rank=rank, rank_size=2, comm_domain=name))
        for name in names
    }


def test_operations_are_made_in_any_order(npu: Any) -> None:
    def work(rank: int) -> list[list[float]]:
        npu.choose(rank)
        made = operations(rank, ["left", "right"] if rank == 0 else ["right", "left"])
        x = npu.tensor(np.arange(3, dtype=np.float32) + rank)
        outs = [made[name].forward([x])[0] for name in ("left", "right", "left")]
        return [npu.array(out).tolist() for out in outs]

    assert run_ranks(work, 2) == [[[1.0, 3.0, 5.0]] * 3] * 2


def test_first_calls_in_two_orders_end_by_a_time_out_that_names_both_domains(npu: Any) -> None:
    def work(rank: int) -> str:
        npu.choose(rank)
        made = operations(rank, ["left", "right"])
        first = made["left" if rank == 0 else "right"]
        x = npu.tensor(np.ones(3, np.float32))
        try:
            first.forward([x])
        except collops.RankTimeoutError as error:
            return error.message
        except collops.PeerLostError as error:
            return f"the other rank was first: {error.message}"
        return "no error"

    texts = run_ranks(work, 2, env={"COLLOPS_TIMEOUT_S": "1"})
    order = "ranks that share several make their first calls in the same order"
    named = [
        f'this is comm_domain "left", and "right" of this rank has not met either: {order}',
        f'this is comm_domain "right", and "left" of this rank has not met either: {order}',
    ]
    late = [text for text in texts if not text.startswith("the other rank was first")]
    assert late
    assert all(any(line in text for line in named) for text in late)
