"""Partial sums over UCX, in many steps, started, and of ranks whose leaves do not fit together."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from collops.golden.data import fill
from collops.golden.data.leaves import cut_evenly
from collops.golden.data.reduction import add_leaves

import collops
from collops.testing import run_ranks
from patience import patience
from tests.conformance import partial_calls as partials
from tests.conformance.runs import Run, as_golden

LEAVES = [fill((4, 3), "float32", leaf, kind="random") for leaf in range(7)]
SUM = add_leaves(LEAVES, "float32")


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("gathers", [True, False])
def test_over_ucx(ranks: int, gathers: bool) -> None:
    run = Run("plain", ranks, backend="ucx")
    cases = [(case, partials.wanted(case, run)) for case in partials.cases(gathers, run)]

    def work(rank: int) -> list[str]:
        wrong = []
        with collops.init(backend="ucx") as comm:
            for case, wanted in cases:
                outs = [as_golden(out) for out in partials.add(comm, case, run)]
                pairs = zip(outs, wanted[rank] or (), strict=True)
                wrong += [case.id for a, b in pairs if a.tobytes() != b.tobytes()]
        return wrong

    assert run_ranks(work, ranks, timeout=patience(60)) == [[]] * ranks


def test_in_many_steps() -> None:
    """More than the scratch memory of a step, in blocks of several lengths."""
    rows, leaves = 900_000, 5
    every = [fill((rows, 3), "float32", leaf, kind="random") for leaf in range(leaves)]
    wanted = add_leaves(every, "float32")
    sizes = [100_000, 0, rows - 100_000]

    def work(rank: int) -> tuple[bool, bool]:
        first, end = cut_evenly(leaves, 3)[rank : rank + 2]
        with collops.init() as comm:
            part = comm.reduce_scatterv(partials=every[first:end], sizes=sizes, leaves=leaves)
            begin = sum(sizes[:rank])
            is_right = part.tobytes() == wanted[begin : begin + sizes[rank]].tobytes()
            own = [leaf.copy() for leaf in every[first:end]]
            total = comm.all_reduce(partials=own, leaves=leaves, out=own[0])
            return is_right, total.tobytes() == wanted.tobytes()

    assert run_ranks(work, 3, timeout=patience(60)) == [(True, True)] * 3


@pytest.mark.parametrize("told", [False, True])
def test_started(told: bool) -> None:
    def work(rank: int) -> list[bool]:
        first, end = cut_evenly(7, 2)[rank : rank + 2]
        words: dict[str, Any] = {"partials": LEAVES[first:end], "leaves": 7}
        words |= {"leaf_begin": first} if told else {}
        with collops.init() as comm:
            calls = [comm.start("all_reduce", **words), comm.start("reduce_scatterv", **words)]
            words["partials"].clear()  # the caller's own list
            total, part = (call.wait() for call in calls)
        rows = slice(2 * rank, 2 * rank + 2)
        return [total.tobytes() == SUM.tobytes(), part.tobytes() == SUM[rows].tobytes()]

    assert run_ranks(work, 2) == [[True, True]] * 2


def told(call: Any) -> str:
    try:
        call()
    except collops.Error as error:
        return re.sub(r" \(pid \d+\)", "", f"{error.code} {error.message}")
    return ""


def test_leaves_that_do_not_follow_each_other() -> None:
    """All ranks hear of it, nothing moves, and the communicator is good."""
    wrong = {
        (1, 2, 5): "leaf_begin of rank 0 is 1, but the first rank begins at 0",
        (0, 3, 5): "leaf_begin of rank 1 is 3, but rank 0 ends at leaf 2",
        (0, 2, 3): "leaf_begin of rank 2 is 3, but rank 1 ends at leaf 4",
        (0, 2, 4): "leaves is 7, but the last rank 2 ends at leaf 6",
    }
    behind = ": the ranks' leaves must follow each other from 0 to 7"

    def work(rank: int) -> list[Any]:
        with collops.init() as comm:
            out = np.full((4, 3), -1, np.float32)
            heard = [
                told(
                    lambda begins=begins: comm.all_reduce(
                        partials=LEAVES[:2], leaves=7, leaf_begin=begins[rank], out=out
                    )
                )
                for begins in wrong
            ]
            begin, end = [0, 2, 4, 7][rank : rank + 2]
            total = comm.all_reduce(partials=LEAVES[begin:end], leaves=7, leaf_begin=begin)
            return [heard, (out == -1).all(), total.tobytes() == SUM.tobytes()]

    wanted = [f"102 all_reduce: {words}{behind}" for words in wrong.values()]
    for heard, untouched, is_right in run_ranks(work, 3):
        assert heard == wanted
        assert untouched and is_right


def test_a_plan_is_kept_for_each_way_to_hold_leaves() -> None:
    """The same tensors and numbers, but for who has which leaves."""

    def work(rank: int) -> list[bool]:
        found = []
        with collops.init() as comm:
            for begins in ([0, 3, 7], [0, 7, 7], [0, 4, 7], [0, 0, 7], [0, 3, 7]):
                begin, end = begins[rank : rank + 2]
                out = np.empty((4, 3), np.float32)
                comm.all_reduce(partials=LEAVES[begin:end], leaves=7, leaf_begin=begin, out=out)
                found.append(out.tobytes() == SUM.tobytes())
            even = cut_evenly(7, 2)[rank : rank + 2]
            out = comm.all_reduce(partials=LEAVES[slice(*even)], leaves=7)
            return [*found, out.tobytes() == SUM.tobytes()]

    assert run_ranks(work, 2) == [[True] * 6] * 2


def test_complex_numbers() -> None:
    def work(rank: int) -> bool:
        leaves = [(leaf + 1j * leaf[::-1]).astype(np.complex64) for leaf in LEAVES]
        first, end = cut_evenly(7, 3)[rank : rank + 2]
        with collops.init() as comm:
            total = comm.all_reduce(partials=leaves[first:end], leaves=7)
        imag = add_leaves([leaf.imag.copy() for leaf in leaves], "float32")
        return total.real.tobytes() == SUM.tobytes() and total.imag.tobytes() == imag.tobytes()

    assert run_ranks(work, 3) == [True] * 3
