"""Every golden case on several ranks: the table of operator x backend x memory, bit for bit, and
random sums of products within golden's bound.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import pytest
from collops.golden.cases import Case
from collops.golden.data.dtypes import bits_of, differs, name_of, widened

import collops
from collops.core import core
from collops.testing import run_ranks
from patience import patience
from tests.conformance import once
from tests.conformance.conformance_table import TABLE
from tests.conformance.devices import BACKENDS_HERE, HERE, together
from tests.conformance.runs import Run, as_golden

LIMIT_S = patience(100)
NODES = [
    pytest.param(name, run, id=f"{name} {run}")
    for name, row in TABLE.items()
    for run in row.runs
    if run.is_here
]
REFUSED = [
    (name, backend)
    for name, row in TABLE.items()
    for backend, why in row.without.items()
    if why.startswith("refused: ") and backend in BACKENDS_HERE
]


class Judged(NamedTuple):
    """A case, the outputs that every rank must get, and how far the first may be off per rank."""

    case: Any
    wanted: Any
    bounds: Any
    moves: bool

    def problems(self, rank: int, outs: Any) -> list[str]:
        """The errors of a rank's outputs."""
        wanted, where = self.wanted[rank], f"{self.case.id} on rank {rank}"
        if outs is None or wanted is None:
            same = outs is None and wanted is None
            return [] if same else [f"{where}: it has {'no' if outs is None else 'an'} output"]
        pairs = enumerate(zip(outs, wanted, strict=True))
        found = [self.problem(rank, number, as_golden(out), want) for number, (out, want) in pairs]
        return [f"{where}: {problem}" for problem in found if problem]

    def problem(self, rank: int, number: int, got: Any, want: Any) -> str | None:
        if got.shape != want.shape:
            return f"shape {got.shape}, not {want.shape}"
        dtype = name_of(want)
        if got.tobytes() == want.tobytes():
            return None
        if self.moves:
            wrong = bits_of(got, dtype) != bits_of(want, dtype)
        else:
            wrong = differs(got, want, dtype)
        if number == 0 and self.bounds is not None:
            with np.errstate(invalid="ignore"):  # infinite in both
                off = np.abs(widened(got, dtype).astype(np.float64) - widened(want, dtype))
            wrong &= ~(off <= self.bounds[rank])
        if not wrong.any():
            return None
        first = tuple(int(i[0]) for i in np.nonzero(wrong))
        return (
            f"{int(wrong.sum())} of {wrong.size} elements differ, first at {first}: "
            f"{got[first]!r}, not {want[first]!r}"
        )


def judged(operator: str, run: Run) -> list[Judged]:
    """All cases of a run, with all that ranks need: they are forked afterwards."""
    once.keep_only(operator)
    row = TABLE[operator]
    cases = row.cases(run)
    for case in cases:
        if isinstance(case, Case):
            once.inputs(case)
    return [Judged(case, row.wanted(case, run), row.bounds(case, run), row.moves) for case in cases]


@pytest.mark.parametrize(("operator", "run"), NODES)
def test_golden(operator: str, run: Run) -> None:
    cases = judged(operator, run)
    assert cases

    def work(rank: int) -> tuple[int, list[str]]:
        comm = run.join(rank)
        best, _, num_threads = core().kernels()
        assert run.isa in ("", best)
        assert run.num_threads in (0, num_threads)
        problems: list[str] = []
        try:
            for case in cases:
                problems += case.problems(rank, TABLE[operator].call(comm, case.case, run))
        finally:
            together.open()
        comm.barrier()
        return len(cases), problems[:20]

    together.close(run.ranks if run.threads else 1)
    done = run_ranks(work, run.ranks, timeout=LIMIT_S, env=run.environment, threads=run.threads)
    assert not any(problems for _, problems in done), "\n".join(p for _, ps in done for p in ps)
    assert [count for count, _ in done] == [len(cases)] * run.ranks


@pytest.mark.parametrize("operator", ["all_gather_v", "all_reduce", "all_to_all_v", "recv"])
def test_a_wrong_element_is_found(operator: str) -> None:
    case = next(case for case in judged(operator, Run("atb", 2)) if case.wanted[1][0].size)
    wrong = case.wanted[1][0].copy()
    assert case.problems(1, [wrong]) == []
    wrong.reshape(-1).view(np.uint8)[0] ^= 1
    [problem] = case.problems(1, [wrong])
    assert "1 of" in problem
    assert case.case.id in problem
    assert "has no output" in case.problems(1, None)[0]
    assert "shape" in case.problems(1, [wrong.reshape(1, *wrong.shape)])[0]


def test_a_sum_beyond_its_bound_is_found() -> None:
    case = next(c for c in judged("linear_parallel", Run("atb", 2)) if c.bounds is not None)
    outs = [out.copy() for out in case.wanted[1]]
    assert case.problems(1, outs) == []
    outs[0].reshape(-1)[-1] = np.nan if outs[0].dtype != np.uint16 else 0x7FC0
    assert "1 of" in case.problems(1, outs)[0]


def test_the_bits_of_a_nan_that_moves_are_kept() -> None:
    case = next(c for c in judged("all_gather_v", Run("atb", 2)) if c.case.dtype == "float32")
    want = case.wanted[1][0].copy()
    want.reshape(-1)[0] = np.nan
    got = want.copy()
    got.reshape(-1).view(np.uint32)[0] ^= 1
    outputs = [[want]] * 2
    assert case._replace(wanted=outputs).problems(1, [got])
    assert not case._replace(wanted=outputs, moves=False).problems(1, [got])


if BACKENDS_HERE:

    @pytest.mark.parametrize(("operator", "backend"), REFUSED)
    def test_what_a_backend_does_not_have_is_refused(operator: str, backend: str) -> None:
        run = Run("atb", 2, HERE, backend=backend)
        [case, *_] = judged(operator, run)
        words = TABLE[operator].without[backend].removeprefix("refused: ")

        def work(rank: int) -> bool:
            comm = run.join(rank)
            with pytest.raises(collops.UnsupportedError, match=re.escape(words)):
                TABLE[operator].call(comm, case.case, run)
            return True

        together.close(1)
        assert run_ranks(work, 2, timeout=LIMIT_S, env=run.environment) == [True, True]
