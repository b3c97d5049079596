"""The plain level's four products on one rank, on a closed communicator, and of torch's tensors.

What is wrong in one call of several ranks stands in product_rows.py, which test_plain.py walks.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from product_rows import BOTH, GATHER, REDUCE, Changes, call, expected, floats, whole
from right_calls import Heard, heard_of

import collops
from collops.testing import run_ranks
from patience import patience


def alone(rank: int) -> list[Heard]:
    comm = collops.init()
    changes: list[Changes] = [{"x": 3}, {"weight": floats(3, 5)}, {"out": floats(1, 5)}]
    heard = [heard_of(partial(call, comm, REDUCE, **c)) for c in changes]
    right = np.array_equal(call(comm, REDUCE), whole(0, 0, 3, 4) @ whole(0, 1, 4, 5))
    return [*heard, ("", int(right), "")]


def test_a_group_of_one_rank_gets_its_errors() -> None:
    [heard] = run_ranks(alone, 1)
    assert [(name, code) for name, code, _ in heard] == [
        ("ArgumentError", 1),
        ("ArgumentError", 8),
        ("ArgumentError", 8),
        ("", 1),
    ]


def after_close(rank: int) -> list[Heard]:
    comm = collops.init()
    call(comm, REDUCE)
    comm.close()
    return [heard_of(partial(call, comm, REDUCE, out=out)) for out in (None, floats(3, 5))] + [
        heard_of(partial(call, comm, GATHER))
    ]


def test_a_closed_communicator_refuses_new_kinds_of_calls() -> None:
    """Also for a kind of call that it has not made before."""
    [heard] = run_ranks(after_close, 1)
    for name, code, message in heard:
        assert (name, code) == ("AbortedError", 104), message
        assert "has ended" in message


def torch_faults(rank: int) -> list[Any]:
    """Faults that only torch tensors can have."""
    import torch

    comm = collops.init(timeout_s=patience(20))
    faults: list[Changes] = [
        {"x": torch.zeros(3, 4, requires_grad=True)},
        {"x": torch.zeros(4, 3).t()},
        {"weight": torch.zeros(4, 5, dtype=torch.bfloat16)},
        {"out": torch.zeros(3, 5, dtype=torch.float64)},
        {"x": torch.zeros(3, 4, device="meta")},
    ]
    heard = [heard_of(partial(call, comm, BOTH, **(c if rank == 1 else {}))) for c in faults]
    return [*heard, np.array_equal(call(comm, BOTH), expected(rank, BOTH))]


def test_a_wrong_torch_tensor_is_refused() -> None:
    pytest.importorskip("torch", reason="torch is not installed here")
    results = run_ranks(torch_faults, 4)
    own, others = results[1], [results[rank] for rank in (0, 2, 3)]
    assert [code for _, code, _ in own[:-1]] == [1, 14, 13, 13, 14]
    assert "requires grad" in own[0][2]
    assert all(code == 102 for heard in others for _, code, _ in heard[:-1])
    assert all(heard[-1] for heard in results)
