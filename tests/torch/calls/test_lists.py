"""Lists of tensors: what is copied on the way, and tensors that are input and output."""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

import collops  # noqa: E402
from collops.torch.collective_calls import reduce_scatter_single  # noqa: E402
from tests.torch.groups import default_group, run_group  # noqa: E402

RANKS = 3
ROWS = [40_000, 0, 70_001]  # of each rank; together far above what malloc keeps


def _data(rank: int, to: int, rows: int) -> torch.Tensor:
    return torch.arange(rows, dtype=torch.float32) % 1000 + 1000 * rank + 100_000 * to


def _together(parts: list[torch.Tensor]) -> list[torch.Tensor]:
    """The same values, one after the other in one memory."""
    return list(torch.cat(parts).split([part.numel() for part in parts]))


def _apart(parts: list[torch.Tensor]) -> list[torch.Tensor]:
    return [part.clone() for part in parts]


Lay = Callable[[list[torch.Tensor]], list[torch.Tensor]]


def _scatter(rank: int, lay: Lay, how: dict[str, Any]) -> Any:
    given = lay([_data(2, to, rows) for to, rows in enumerate(ROWS)])
    out = torch.full((ROWS[rank],), -1.0)
    return (
        lambda: dist.scatter(out, given if rank == 2 else None, 2, **how),
        [out],
        [_data(2, rank, ROWS[rank])],
    )


def _all_to_all(rank: int, lay: Lay, how: dict[str, Any]) -> Any:
    given = lay([_data(rank, to, rows) for to, rows in enumerate(ROWS)])
    outs = lay([torch.full((ROWS[rank],), -1.0) for _ in range(RANKS)])
    want = [_data(source, rank, ROWS[rank]) for source in range(RANKS)]
    return lambda: dist.all_to_all(outs, given, **how), outs, want


def _reduce_scatter(rank: int, lay: Lay, how: dict[str, Any]) -> Any:
    given = lay([_data(rank, to, rows) for to, rows in enumerate(ROWS)])
    out = torch.full((ROWS[rank],), -1.0)
    want = sum(_data(source, rank, ROWS[rank]) for source in range(RANKS))
    return lambda: dist.reduce_scatter(out, given, **how), [out], [want]


def _all_gather(rank: int, lay: Lay, how: dict[str, Any]) -> Any:
    outs = lay([torch.full((rows,), -1.0) for rows in ROWS])
    x = _data(rank, 0, ROWS[rank])
    want = [_data(source, 0, rows) for source, rows in enumerate(ROWS)]
    return lambda: dist.all_gather(outs, x, **how), outs, want


CALLS = {
    "scatter": _scatter,
    "all_to_all": _all_to_all,
    "reduce_scatter": _reduce_scatter,
    "all_gather": _all_gather,
}


def _is_equal(outs: list[torch.Tensor], want: list[torch.Tensor]) -> bool:
    return all(map(torch.equal, outs, want))


def _lists(rank: int) -> dict[str, Any]:
    """By call and layout: whether results are right, and the bytes brought in order elsewhere."""
    group, asked = default_group(), []
    empty = group._scratch
    group._scratch = lambda n, dtype: asked.append(n) or empty(n, dtype)
    told: dict[str, Any] = {}
    for name, make in CALLS.items():
        for lay in (_together, _apart):
            asked.clear()
            call, outs, want = make(rank, lay, {})
            call()
            started = [make(rank, lay, {"async_op": True}) for _ in range(3)]
            for work in [call() for call, _, _ in started]:
                work.wait()
            right = [_is_equal(*rest) for _, *rest in [(call, outs, want), *started]]
            told[f"{name} {lay.__name__}"] = right, len(asked) > 0
    return told


def test_lists_are_copied_only_if_they_do_not_lie_in_order() -> None:
    for rank, told in enumerate(run_group(_lists, RANKS)):
        for key, (right, copied) in told.items():
            assert right == [True] * 4, (rank, key)
            is_copied = key.endswith("_apart") and (rank == 2 or not key.startswith("scatter"))
            assert copied is is_copied, (rank, key)


def _faults(rank: int) -> dict[str, int]:
    told = {}
    for name, make in CALLS.items():
        call, _, _ = make(rank, _apart, {})
        for _ in range(3):
            call()
        begin = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(10):
            call()
        told[name] = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - begin
    return told


def test_memory_is_used_again() -> None:
    """A list has 107 pages; ten calls that each take new ones touch ten times as many."""
    for told in run_group(_faults, RANKS):
        assert max(told.values()) < 3 * 107, told  # the interpreter touches new pages, too


def _in_place(rank: int) -> list[bool]:
    parts = _together([_data(1, to, 50_000) for to in range(RANKS)])
    own = parts[rank] if rank == 1 else torch.empty(50_000)
    dist.scatter(own, parts if rank == 1 else None, 1)
    scattered = torch.equal(own, _data(1, rank, 50_000))

    parts = _together([_data(rank, to, 50_000) for to in range(RANKS)])
    dist.all_to_all(parts, parts)
    swapped = _is_equal(parts, [_data(source, rank, 50_000) for source in range(RANKS)])

    total = sum(_data(source, rank, 50_000) for source in range(RANKS))
    parts = _together([_data(rank, to, 50_000) for to in range(RANKS)])
    dist.reduce_scatter(parts[rank], parts)
    reduced = torch.equal(parts[rank], total)

    whole = torch.cat([_data(rank, to, 50_000) for to in range(RANKS)])
    kept = whole[50_000 * (1 - rank % 2) :][:50_000]  # another rank's block, but for rank 1
    reduce_scatter_single(kept, whole)
    return [scattered, swapped, reduced, torch.equal(kept, total)]


def test_tensors_that_are_input_and_output() -> None:
    assert run_group(_in_place, RANKS) == [[True] * 4] * RANKS


WRONG: list[tuple[Callable[[], object], str]] = [
    (
        lambda: dist.all_to_all([], []),
        "all_to_all: the list must have 2 tensors, one per rank, got 0",
    ),
    (
        lambda: dist.all_gather([], torch.ones(2)),
        "all_gather: the list must have 2 tensors, one per rank, got 0",
    ),
    (
        lambda: dist.all_gather([torch.ones(2, 3), torch.ones(2, 3)], torch.ones(2, 2)),
        "all_gather: tensor 0 of the list is [2, 3] torch.float32, this rank's tensor [2, 2] "
        "torch.float32",
    ),
    (
        lambda: dist.all_gather_into_tensor(torch.ones(5, 3), torch.ones(2, 3)),
        "all_gather_into_tensor: the output must have 2 times the elements of the input, one part "
        "per rank, got [5, 3] and [2, 3]",
    ),
    (
        lambda: dist.reduce_scatter_tensor(torch.ones(2, 3), torch.ones(3, 3)),
        "reduce_scatter_tensor: the input must have 2 times the elements of the output, one part "
        "per rank, got [3, 3] and [2, 3]",
    ),
    (
        lambda: dist.all_reduce(
            torch.ones(2, dtype=torch.int64), torch.distributed._make_nccl_premul_sum(2.5)
        ),
        "all_reduce: collops has no PREMUL_SUM of torch.int64 elements",
    ),
]


def _refused(rank: int) -> list[str]:
    """Rank 0 makes each wrong call, of which rank 1 hears in a barrier."""
    found = []
    for call, _ in WRONG:
        try:
            call() if rank == 0 else dist.barrier()
        except collops.Error as error:
            found.append(error.message)
    return found


def test_what_does_not_fit_is_refused_in_the_callers_terms() -> None:
    own, others = run_group(_refused, 2)
    assert own == [message for _, message in WRONG]
    for (_, message), heard in zip(WRONG, others, strict=True):
        assert message in heard
