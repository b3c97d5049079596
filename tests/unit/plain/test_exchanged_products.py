"""all_to_all_matmul and matmul_all_to_all over UCX, on conformance's cases for shm."""

from __future__ import annotations

import pytest

import collops
from collops.testing import run_ranks
from patience import patience
from tests.conformance import exchanged_calls as exchanged
from tests.conformance.runs import Run, as_golden


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("first", [True, False])
def test_over_ucx(ranks: int, first: bool) -> None:
    run = Run("plain", ranks, backend="ucx")
    cases = [(case, exchanged.wanted(case, run)) for case in exchanged.cases(first, run)]

    def work(rank: int) -> list[str]:
        wrong = []
        with collops.init(backend="ucx") as comm:
            for case, wanted in cases:
                outs = [as_golden(out) for out in exchanged.multiply(comm, case, run)]
                pairs = zip(outs, wanted[rank] or (), strict=True)
                wrong += [case.id for a, b in pairs if a.shape != b.shape or (a != b).any()]
        return wrong

    assert run_ranks(work, ranks, timeout=patience(60)) == [[]] * ranks
