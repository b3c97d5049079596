"""The plain level's four products called wrongly: what its rank is told, and what the others."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from product_rows import (
    BOTH,
    FAULTS,
    GATHER,
    METHODS,
    REDUCE,
    Changes,
    call,
    expected,
    floats,
    whole,
)

import collops
from collops.testing import run_ranks

LATE_S = 1.0


def outcome(run: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[str, int, str]:
    """The class of the error, its code and its message."""
    try:
        run(*args, **kwargs)
    except collops.Error as error:
        return type(error).__name__, error.code, error.message
    except Exception as error:
        return type(error).__name__, -1, str(error)
    return "", 0, ""


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
