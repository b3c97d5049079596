"""Every golden case on living ranks, bit for bit: each level, number of ranks, kind of memory, form
of the plain level's tensors, and processes as well as threads. Each axis in full, not all products.

One run_ranks per combination; the ranks live through all cases.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from collops.golden.cases import (
    ATB_REDUCE_OPS,
    Case,
    all_cases,
)
from collops.golden.data.dtypes import differs
from once import compute, expected, inputs

import collops
from collops.core import core
from collops.testing import run_ranks

POISON = 0xA5
ISAS = core().kernels()[1]  # all that this CPU can run


class Run(NamedTuple):
    """What one run of all cases varies. `form` is that of the plain level's x:

    whole: as the case has it; moved: its rows along the last dim, of another layout;
    list: two tensors to gather, one block per destination to reduce.
    """

    level: str
    ranks: int
    memory: str = "plain"
    form: str = "whole"
    threads: bool = False
    isa: str = ""  # COLLOPS_ISA; empty: the best here
    num_threads: int = 1  # COLLOPS_NUM_THREADS


RUNS = [
    Run("atb", 2),
    Run("atb", 3, "window"),
    Run("atb", 4, "unaligned"),
    Run("plain", 2, "window"),
    Run("plain", 3, "unaligned"),
    Run("plain", 4),
    Run("plain", 1),
    Run("plain", 1, "window"),
    Run("atb", 7),
    Run("plain", 7, "window"),
    Run("plain", 3, form="moved"),
    Run("plain", 3, "window", form="moved"),
    Run("plain", 3, form="list"),
    Run("plain", 1, form="list"),
    *(Run("atb", 3, memory, threads=True) for memory in ("plain", "window")),
    Run("plain", 4, "window", threads=True),
    Run("plain", 2, form="moved", threads=True),
    # The plain level has all reductions, so these runs see every kernel.
    *(Run("plain", 3, isa=isa) for isa in ISAS),
    Run("plain", 3, num_threads=3),
]


@lru_cache
def cases_of(operator: str, ranks: int, level: str) -> tuple[Case, ...]:
    """The cases that a level can state: ATB has three reductions, the plain level no gaps."""
    cases = all_cases(operator, rank_sizes=(ranks,))
    if level == "atb":
        return tuple(case for case in cases if case.op in ("", *ATB_REDUCE_OPS))
    return tuple(case for case in cases if is_packed(case))


def is_packed(case: Case) -> bool:
    return list(case.displs) == list(accumulate(case.counts, initial=0))[:-1]


def is_whole(case: Case) -> bool:
    """Whether the case is a call on whole rows, so that the plain level keeps its shapes."""
    rows = [shape[1:] for shape in case.x_shapes]
    width = int(np.prod(rows[0]))
    used = sum(case.counts)
    if case.operator == "all_gather_v":
        exact = all(
            int(np.prod(shape)) == count
            for shape, count in zip(case.x_shapes, case.counts, strict=True)
        )
        exact = exact and all(rows * width == used for rows in case.rows)
    else:
        exact = int(np.prod(case.x_shapes[0])) == used
        exact = exact and all(r * width == c for r, c in zip(case.rows, case.counts, strict=True))
    return exact and len(set(rows)) == 1 and all(count % width == 0 for count in case.counts)


def place(comm: collops.Communicator, memory: str, array: Any) -> Any:
    """The same values in another kind of memory."""
    if memory == "window":
        placed = comm.empty(array.shape, array.dtype)
    elif memory == "unaligned":
        raw = np.empty(array.nbytes + 1, np.uint8)[1:]
        placed = raw.view(array.dtype).reshape(array.shape)
    else:
        placed = np.empty_like(array)
    placed[...] = array
    return placed


def poisoned(comm: collops.Communicator, memory: str, shape: Any, dtype: Any) -> Any:
    out = place(comm, memory, np.empty(shape, dtype))
    out.reshape(-1).view(np.uint8)[:] = POISON
    return out


def moved(array: Any) -> Any:
    """The same memory with its rows along the last dimension."""
    return np.moveaxis(array, 0, -1)


def as_real(array: Any, dtype: str) -> Any:
    return array.view(ml_dtypes.bfloat16) if dtype == "bfloat16" else array


def run_atb(comm: collops.Communicator, case: Case, run: Run) -> Any:
    fields: dict[str, Any] = {"backend": "shm", "rank": comm.rank}
    if run.threads:
        fields |= {"rank_size": comm.size, "comm_mode": collops.COMM_MULTI_THREAD}
    else:
        fields |= {"hccl_comm": comm}
    op = collops.Operation(
        collops.AllGatherVParam(**fields)
        if case.operator == "all_gather_v"
        else collops.ReduceScatterVParam(reduce_type=case.op, **fields)
    )
    x, *others = inputs(case)[comm.rank].values()
    x = place(comm, run.memory, as_real(x, case.dtype))
    out = poisoned(comm, run.memory, (case.rows[comm.rank], *x.shape[1:]), x.dtype)
    size = op.get_workspace_size([x, *others], [out])
    op.execute([x, *others], [out], np.empty(size, np.uint8) if size else None)
    return out


def run_plain(comm: collops.Communicator, case: Case, run: Run) -> Any:
    x = as_real(inputs(case)[comm.rank]["x"], case.dtype)
    width = int(np.prod(x.shape[1:])) if is_whole(case) else 1
    own, used = case.counts[comm.rank], sum(case.counts)
    gathers = case.operator == "all_gather_v"
    if not is_whole(case):
        x = x.reshape(-1)[: own if gathers else used]
    x = place(comm, run.memory, x)
    sizes = [count // width for count in case.counts]
    shape = ((used if gathers else own) // width, *x.shape[1:])
    out = poisoned(comm, run.memory, shape, x.dtype)
    if gathers:
        gather(comm, x, sizes, out, run)
    else:
        reduce(comm, x, sizes, case.op, out, run)
    return out


def gather(comm: collops.Communicator, x: Any, sizes: list[int], out: Any, run: Run) -> None:
    if run.form == "moved":
        comm.all_gatherv(moved(x), sizes, dim=-1, out=moved(out))
        exchanged = np.moveaxis(comm.all_gatherv(moved(x), dim=-1), -1, 0)
    elif run.form == "list":
        bits = x.reshape(len(x), int(np.prod(x.shape[1:]))).view(np.uint8)
        second = np.full((len(out), bits.shape[1]), POISON, np.uint8)
        comm.all_gatherv([x, bits], sizes, out=[out, second])
        assert second.tobytes() == out.tobytes(), "the list's tensors differ"
        exchanged = comm.all_gatherv((bits, x))[1]
    else:
        comm.all_gatherv(x, sizes, out=out)
        exchanged = comm.all_gatherv(x)
    assert exchanged.tobytes() == out.tobytes(), "without sizes the result differs"


def reduce(
    comm: collops.Communicator, x: Any, sizes: list[int], op: str, out: Any, run: Run
) -> None:
    if run.form == "moved":
        comm.reduce_scatterv(moved(x), sizes, dim=-1, op=op, out=moved(out))
    elif run.form == "list":
        blocks = np.split(x, np.cumsum(sizes)[:-1])
        comm.reduce_scatterv(blocks, op=op, out=out)
    else:
        comm.reduce_scatterv(x, sizes, op=op, out=out)


def all_outputs(rank: int, operator: str, run: Run) -> list[Any]:
    """This rank's output of every case, as plain numpy can hold it."""
    comm = collops.init()
    assert run.isa in ("", core().kernels()[0])
    assert core().kernels()[2] == run.num_threads
    execute = run_atb if run.level == "atb" else run_plain
    outputs = []
    for case in cases_of(operator, run.ranks, run.level):
        out = np.array(execute(comm, case, run))
        outputs.append(out.view(np.uint16) if case.dtype == "bfloat16" else out)
    return outputs


def problem_of(case: Case, level: str, rank: int, got: Any) -> str | None:
    """What is wrong with a rank's output, or None."""
    want = expected(case)[rank]
    if level == "plain" and not is_whole(case):
        used = sum(case.counts) if case.operator == "all_gather_v" else case.counts[rank]
        want = want.reshape(-1)[:used]
    if got.shape != want.shape:
        return f"{case.id} on rank {rank}: shape {got.shape}, not {want.shape}"
    wrong = differs(got, want, case.dtype)
    if not wrong.any():
        return None
    first = tuple(int(i[0]) for i in np.nonzero(wrong))
    return (
        f"{case.id} on rank {rank}: {int(wrong.sum())} of {wrong.size} elements differ, first at "
        f"{first}: {got[first]!r}, not {want[first]!r}"
    )


@pytest.mark.parametrize("run", RUNS, ids=lambda run: "-".join(map(str, run)))
@pytest.mark.parametrize("operator", ["all_gather_v", "reduce_scatter_v"])
def test_every_case_bit_for_bit(operator: str, run: Run) -> None:
    cases = cases_of(operator, run.ranks, run.level)
    assert len(cases) > 20
    compute(cases)
    env = {"COLLOPS_ISA": run.isa, "COLLOPS_NUM_THREADS": str(run.num_threads)}
    outputs = run_ranks(all_outputs, run.ranks, operator, run, threads=run.threads, env=env)
    problems = [
        problem_of(case, run.level, rank, outputs[rank][number])
        for number, case in enumerate(cases)
        for rank in range(run.ranks)
    ]
    found = [problem for problem in problems if problem]
    assert not found, "\n".join(found[:20])


def test_the_cases_cover_what_they_should() -> None:
    for level in ("atb", "plain"):
        gathers = cases_of("all_gather_v", 4, level)
        reductions = cases_of("reduce_scatter_v", 4, level)
        assert {case.dtype for case in gathers} == set(
            "float16 bfloat16 float32 float64 int8 uint8 int16 int32 int64 bool".split()
        )
        assert {case.dtype for case in reductions} == {case.dtype for case in gathers} - {"bool"}
        ops = {"sum", "max", "min"} | ({"prod", "avg"} if level == "plain" else set())
        assert {case.op for case in reductions} == ops
        for share in ("even", "3-5", "1-2-3-4", "one_owner", "zeros", "primes"):
            assert any(case.name == f"shares-{share}" for case in gathers)
            assert any(case.name == f"shares-{share}" for case in reductions)
    assert sum(is_whole(case) for case in cases_of("all_gather_v", 4, "plain")) > 10
    assert sum(is_whole(case) for case in cases_of("reduce_scatter_v", 4, "plain")) > 10


def test_a_wrong_element_is_found() -> None:
    case = cases_of("reduce_scatter_v", 2, "atb")[0]
    wrong = expected(case)[1].copy()
    wrong.reshape(-1).view(np.uint8)[0] ^= 1
    assert "1 of" in str(problem_of(case, "atb", 1, wrong))


def test_the_worked_example_of_the_contract() -> None:
    def work(rank: int) -> list[list[float]]:
        x0 = [[0, 1, 2, 3], [4, 5, 6, 7]]
        x1 = [[3, 2, 1, 0], [7, 6, 5, 4], [7, 6, 5, 4]]
        x = np.array(x1 if rank else x0, np.float16)
        counts = np.array([4, 2])
        op = collops.Operation(collops.AllGatherVParam(rank=rank, rank_size=2, backend="shm"))
        own = counts[rank : rank + 1]
        [out] = op.forward([x, own, counts, np.array([0, 4]), np.empty(5, np.float16)])
        return [list(row) for row in out]

    want = [[0, 1, 2, 3], [3, 2, 0, 0], [0] * 4, [0] * 4, [0] * 4]
    assert run_ranks(work, 2) == [want, want]
