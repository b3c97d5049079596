"""Golden's smallest case of an operator on the backend hccl, or its times; a program of its own."""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import collops
from collops.core import core
from collops.errors import Error
from collops.golden.case_files import write_cases
from collops.golden.cases import OPERATORS, all_cases, inputs
from collops.golden_run.backends import check_replacement, memory_of
from collops.golden_run.jobs import read_jobs
from collops.golden_run.pool import Pools
from collops.golden_run.verdict import judge
from collops.npu_check.facts import tell
from collops.testing import RankErrors, run_ranks

if TYPE_CHECKING:
    from collops.golden.cases import Case
    from collops.golden_run.backends import DeviceMemory
    from collops.golden_run.calls import Call
    from collops.golden_run.rank import Report


_FUSED = "linear_parallel"
_FUSED_TYPES = 5


def backend_name() -> str:
    """The backend whose tensors lie on an NPU."""
    [name] = [str(name) for name, _, memory, _ in core().backends() if memory == "npu"]
    return name


def check_names() -> list[str]:
    """Every operator of golden, LinearParallel once for each of its types; and what no case has."""
    names = []
    for operator in OPERATORS:
        many = operator == _FUSED
        names += [f"{operator}.{number}" for number in range(_FUSED_TYPES)] if many else [operator]
    return [*names, *OWN]


def smallest_case(name: str, ranks: int) -> Case | None:
    """The case of a check with the fewest elements, some of them on every rank, of a float type.

    The V operators have blocks of several sizes: with equal ones they are other calls of HCCL.
    """
    operator, _, number = name.partition(".")
    cases = [
        case
        for case in all_cases(operator, rank_sizes=(ranks,))
        if case.dtype in ("float16", "float32")  # every SoC moves and adds them
        and (not number or (case.linear is not None and case.linear.type == int(number)))
        and (case.linear is None or not (case.linear.is_quantised or case.linear.sum_leaves))
    ]
    sizes = {case.id: [next(iter(own.values())).size for own in inputs(case)] for case in cases}
    full = [case for case in cases if min(sizes[case.id]) > 0]
    uneven = [case for case in full if len(set(case.counts)) > 1]
    return min(uneven or full or cases, key=lambda case: sum(sizes[case.id]), default=None)


def run_case(case: Case, timeout: float) -> dict[str, str]:
    """Runs a case on ranks, and says whether it passed."""
    with tempfile.TemporaryDirectory() as folder:
        [job] = read_jobs([write_cases([case], Path(folder))])
        if job.call is None:
            return {"state": "not supported", "text": job.reason}
        with Pools({"COLLOPS_BACKEND": backend_name()}) as pools:
            pool = pools.of(job.call)
            pool.submit(job.call)
            reports = pool.collect(timeout)
        return outcome(job.call, reports)


def outcome(call: Call, reports: Sequence[Report]) -> dict[str, str]:
    """The state of a check and its text, from the reports of the ranks."""
    taking = [report for report in reports if report.took_part]
    refused = [report for report in taking if report.name == "ERROR_UNSUPPORTED"]
    if refused and len(refused) == len(taking):
        return {"state": "not supported", "text": refused[0].message}
    verdict = judge(call, reports)
    return {"state": "passed" if verdict.passed else "FAILED", "text": verdict.text}


def idle_rank(rank: int, ranks: int) -> str:
    """Exchanges in which rank 0 neither sends nor receives; what is wrong with the results."""
    sends = [[3 + 2 * q + r if q and r else 0 for r in range(ranks)] for q in range(ranks)]
    rows = [sum(line) for line in sends]
    sent = [np.arange(count, dtype=np.float32) + 100 * q for q, count in enumerate(rows)]
    blocks = [np.split(x, np.cumsum(line)[:-1]) for x, line in zip(sent, sends, strict=True)]
    comm = collops.init(rank, ranks, backend=backend_name(), comm_domain="idle")
    x = npus().to_device(sent[rank], "float32")
    found = {
        "all_to_allv": (comm.all_to_allv(x, sends[rank]), [own[rank] for own in blocks]),
        "all_gatherv": (comm.all_gatherv(x, rows), sent),
    }
    wrong = [
        f"{call}: {said}"
        for call, (out, blocks_of) in found.items()
        if (said := compared(rank, npus().from_device(out), np.concatenate(blocks_of)))
    ]
    return "; ".join(wrong)


def products(rank: int, ranks: int, depth: int) -> tuple[Any, Any]:
    """x and weight of a rank, with k = `depth`, 1 or 2.

    A rank's product does not fit into float16 or bfloat16, but the sum over the ranks does.
    """
    sign = 0 if ranks % 2 and rank == ranks - 1 else (-1) ** rank
    x = sign * np.array([[300, rank + 1], [4, 3]], np.float32)
    weight = np.array([[300 - 2 * rank, 7], [0.5, -3]], np.float32)
    return x[:, :depth], weight[:depth]


def float_sums(rank: int, ranks: int, depth: int, narrow: Any = np.float16) -> str:
    """The sum of the ranks' products of float16, or of another type; what is wrong with it."""
    kind = collops.ParallelType.LINEAR_ALL_REDUCE
    op = collops.Operation(
        collops.LinearParallelParam(rank=rank, rank_size=ranks, trans_weight=False, type=kind)
    )
    dtype = np.dtype(narrow).name
    pair = (array.astype(narrow) for array in products(rank, ranks, depth))
    [out] = op.forward([npus().to_device(array, dtype) for array in pair])
    every = (products(r, ranks, depth) for r in range(ranks))
    wanted = sum(x.astype(np.float64) @ weight for x, weight in every).astype(narrow)
    return compared(rank, npus().from_device(out).view(narrow), wanted)


def compared(rank: int, found: Any, wanted: Any) -> str:
    """What is wrong with a rank's result: nothing if it has the same bits."""
    same = found.tobytes() == wanted.tobytes()
    return "" if same else f"rank {rank}: got {found.tolist()}, not {wanted.tolist()}"


OWN: dict[str, Callable[[int, int], str]] = {
    "an idle rank": idle_rank,
    f"{_FUSED}, k = 1": partial(float_sums, depth=1),
    f"{_FUSED}, sums above 65504": partial(float_sums, depth=2),
}

TIMED = ("all_gather_v", "reduce_scatter_v", "all_reduce")
SIZES = {"1 KiB": 1 << 10, "1 MiB": 1 << 20, "16 MiB": 1 << 24}
CALLS = 20
_WARM_UP = 3
_FLOAT_BYTES = 4


@cache
def npus() -> DeviceMemory:
    """The memory of NPUs."""
    memory = memory_of(backend_name())
    assert memory is not None
    return memory


def shares(total: int, ranks: int) -> list[int]:
    """A vector's elements, dealt out as 1 : 2 : 3 : ..., so that no two shares are equal."""
    ends = [total * (rank + 1) * (rank + 2) // (ranks * (ranks + 1)) for rank in range(ranks)]
    return [end - begin for begin, end in zip([0, *ends], ends, strict=False)]


def prepare(operator: str, rank: int, ranks: int, total: int) -> Callable[[], None]:
    """A call of an operator on a float32 vector of `total` elements, planned on this rank."""
    counts = np.array(shares(total, ranks))
    displs = np.concatenate([[0], counts[:-1].cumsum()])
    own = int(counts[rank])

    def column(elements: int) -> Any:
        return npus().to_device(np.ones((elements, 1), np.float32), "float32")

    common: dict[str, Any] = {"rank": rank, "rank_size": ranks}
    outline = np.empty(total if operator == "all_gather_v" else own, np.float16)
    if operator == "all_gather_v":
        op = collops.Operation(collops.AllGatherVParam(**common))
        ins, out = [column(own), counts[rank : rank + 1], counts, displs, outline], column(total)
    elif operator == "reduce_scatter_v":
        op = collops.Operation(collops.ReduceScatterVParam(**common))
        ins, out = [column(total), counts, displs, counts[rank : rank + 1], outline], column(own)
    else:
        op = collops.Operation(collops.AllReduceParam(**common))
        ins, out = [column(total)], column(total)
    room = op.get_workspace_size(ins, [out])
    workspace = npus().to_device(np.empty(room, np.uint8), "uint8") if room else None
    return lambda: op.execute(ins, [out], workspace)


def on_npus(
    ranks: int, timeout: float, work: Callable[..., Any], *arguments: Any
) -> tuple[list[Any], dict[str, str]]:
    """What work(rank, ...) returns on every rank, on its NPU; or what ended the check."""
    try:
        npus().load()
        env = {"COLLOPS_BACKEND": backend_name()}
        found = run_ranks(_on_npu, ranks, work, *arguments, timeout=timeout, env=env)
    except (RankErrors, ValueError) as problem:
        return [], {"state": "FAILED", "text": str(problem)}
    refused = [one["refused"] for one in found if isinstance(one, dict)]
    return found, {"state": "not supported", "text": refused[0]} if refused else {}


def _on_npu(rank: int, work: Callable[..., Any], *arguments: Any) -> Any:
    npus().choose_device(rank)
    try:
        return work(rank, *arguments)
    except Error as error:
        if error.name == "ERROR_UNSUPPORTED":
            return {"refused": error.message}
        raise


def measure(rank: int, operator: str, ranks: int, total: int) -> list[float]:
    """The seconds of each call on this rank."""
    devices = import_module("torch").npu
    call = prepare(operator, rank, ranks, total)
    seconds = []
    for _ in range(_WARM_UP + CALLS):
        devices.synchronize()
        begin = time.perf_counter()
        call()
        devices.current_stream().synchronize()
        seconds.append(time.perf_counter() - begin)
    return seconds[_WARM_UP:]


def timed(operator: str, ranks: int, size: int, timeout: float) -> dict[str, Any]:
    """The median time of a call, which takes as long as on its slowest rank."""
    total = size // _FLOAT_BYTES
    found, problem = on_npus(ranks, timeout, measure, operator, ranks, total)
    if problem:
        return problem
    slowest = [max(calls) for calls in zip(*found, strict=True)]
    return {"state": "passed", "median_s": statistics.median(slowest), "calls": len(slowest)}


def checked(name: str, ranks: int, timeout: float) -> dict[str, str]:
    """The outcome of the smallest case of a check."""
    try:
        check_replacement(backend_name())
    except ValueError as problem:
        return {"state": "FAILED", "text": str(problem)}
    if name in OWN:
        found, said = on_npus(ranks, timeout, OWN[name], ranks)
        wrong = "\n".join(filter(None, found)) if not said else ""
        return said or {"state": "FAILED" if wrong else "passed", "text": wrong}
    try:
        case = smallest_case(name, ranks)
    except ValueError as problem:  # messages need two ranks
        return {"state": "not supported", "text": str(problem)}
    if case is None:
        return {"state": "not supported", "text": f"golden has no case for {ranks} ranks"}
    return {**run_case(case, timeout), "case": case.id}


def main() -> None:
    """Makes the check that the arguments name, or with --size measures its call, and tells it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--size", type=int)
    options = parser.parse_args()
    if options.size is None:
        tell(checked(options.name, options.ranks, options.seconds))
    else:
        tell(timed(options.name, options.ranks, options.size, options.seconds))


if __name__ == "__main__":
    main()
