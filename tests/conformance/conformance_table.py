"""The table of conformance: operator x backend x memory, each with golden's cases.

A new operator has a row here, and a module for what is special in its calls; a new backend, or a
new kind of memory, has runs. Each axis is walked in full, not all products of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tests.conformance import all_to_all_calls as all_to_all
from tests.conformance import even_calls as even
from tests.conformance import exchanged_calls as exchanged
from tests.conformance import large_linear_cases as large
from tests.conformance import linear_calls as linear
from tests.conformance import message_calls as messages
from tests.conformance import moe_calls as experts
from tests.conformance import partial_calls as partials
from tests.conformance import rooted_calls as rooted
from tests.conformance import v_calls as v
from tests.conformance.operator_runs import OperatorRuns
from tests.conformance.runs import ISAS, Run

GPU_BACKENDS = ("cuda", "nccl")


def on_gpus(level: str, ranks: int, threads: bool = False) -> list[Run]:
    """The run on every backend of GPUs."""
    return [Run(level, ranks, "cuda", threads=threads, backend=name) for name in GPU_BACKENDS]


V_RUNS = [
    *(Run("atb", ranks, num_threads=1) for ranks in (2, 7)),
    Run("atb", 3, "window", num_threads=1),
    Run("atb", 4, "unaligned", num_threads=1),
    *(Run("atb", 3, memory, threads=True, num_threads=1) for memory in ("plain", "window")),
    *(Run("plain", ranks, num_threads=1) for ranks in (1, 4)),
    *(Run("plain", ranks, "window", num_threads=1) for ranks in (1, 2, 7)),
    Run("plain", 3, "unaligned", num_threads=1),
    Run("plain", 4, "window", threads=True, num_threads=1),
    Run("plain", 2, form="moved", threads=True, num_threads=1),
    *(Run("plain", 3, memory, "moved", num_threads=1) for memory in ("plain", "window")),
    *(Run("plain", ranks, form="list", num_threads=1) for ranks in (1, 3)),
    # The plain level has all reductions, so these runs see every kernel.
    *(Run("plain", 3, isa=isa, num_threads=1) for isa in ISAS),
    Run("plain", 3, num_threads=3),
    *(Run("atb", ranks, "npu", backend="hccl") for ranks in (2, 3, 4)),
    Run("plain", 3, "npu", backend="hccl"),
    *on_gpus("atb", 2),
    *on_gpus("atb", 8),
    *on_gpus("atb", 3, threads=True),
    *on_gpus("plain", 4),
]
# Threads at ATB's level alone: a call that makes its output asks for memory, which may have to wait
# for the kernels of the process's other ranks, and these for the call.
DEVICE_RUNS = [
    *(Run("atb", ranks, "npu", backend="hccl") for ranks in (2, 7)),
    *on_gpus("atb", 2),
    *on_gpus("atb", 7),
    *on_gpus("atb", 4, threads=True),
]
EVEN_RUNS = [
    *(Run("atb", ranks) for ranks in (2, 7)),
    *(Run("atb", 3, memory) for memory in ("window", "unaligned")),
    Run("atb", 4, "window", "in place"),
    Run("atb", 3, "window", threads=True),
    Run("plain", 1),
    Run("plain", 1, "window", "in place"),
    Run("plain", 2, form="in place"),
    Run("plain", 3, "window"),
    Run("plain", 4, "unaligned", "in place"),
    Run("plain", 3, "window", "in place", threads=True),
    *DEVICE_RUNS,
    Run("plain", 3, "npu", backend="hccl"),
    *on_gpus("plain", 3),
]
ALL_TO_ALL_RUNS = [
    *(Run("atb", ranks) for ranks in (2, 7)),
    *(Run("atb", 3, memory) for memory in ("window", "unaligned")),
    Run("atb", 3, threads=True),
    Run("atb", 4, "window", threads=True),
    *DEVICE_RUNS,
]
ROOTED_RUNS = [
    *(Run("plain", ranks) for ranks in (2, 7)),
    Run("plain", 1, "window"),
    *(Run("plain", 3, memory) for memory in ("window", "unaligned")),
    Run("plain", 3, threads=True),
    Run("plain", 4, "window", threads=True),
    *(Run("plain", ranks, "npu", backend="hccl") for ranks in (2, 5)),
    *on_gpus("plain", 2),
    *on_gpus("plain", 5),
]
MESSAGE_RUNS = [
    *(Run(level, ranks) for level in ("atb", "plain") for ranks in (2, 3, 4)),
    Run("plain", 3, threads=True),
    *(Run(level, 3, "npu", backend="hccl") for level in ("atb", "plain")),
    *(Run(level, 3, "cuda", backend="nccl") for level in ("atb", "plain")),
    Run("atb", 4, "cuda", threads=True, backend="nccl"),
]
MOE_RUNS = [
    *(Run("plain", ranks, num_threads=1) for ranks in (1, 2, 4)),
    *(Run("plain", 3, memory, num_threads=1) for memory in ("window", "unaligned")),
    Run("plain", 3, threads=True, num_threads=1),
    *(Run("plain", 2, isa=isa, num_threads=1) for isa in ISAS),
    Run("plain", 2, num_threads=3),
]
LINEAR_RUNS = [
    Run("atb", 2, num_threads=1),
    Run("atb", 2, "window", isa="avx2", num_threads=1),
    Run("atb", 2, "unaligned", isa="portable", num_threads=1),
    Run("atb", 3, "window", num_threads=1),
    Run("atb", 3, "window", threads=True, num_threads=1),
    Run("atb", 4, num_threads=2),
    Run("atb", 6, "window", num_threads=1),
    Run("atb", 7, "unaligned", num_threads=1),
    *(Run("atb", ranks, "npu", backend="hccl") for ranks in (2, 4, 6)),
    *on_gpus("atb", 2),
    *on_gpus("atb", 6),
    *on_gpus("atb", 4, threads=True),
]
EXPERT_RUNS = [
    *(Run("atb", 2, isa=isa, num_threads=1) for isa in ISAS),
    Run("atb", 2, "window", num_threads=1),
    Run("atb", 3, "unaligned", num_threads=1),
    Run("atb", 4, "window", threads=True, num_threads=1),
    Run("atb", 4, num_threads=2),
    Run("atb", 6, num_threads=1),
    *(Run("atb", ranks, "npu", backend="hccl") for ranks in (2, 4, 6)),
    *on_gpus("atb", 2),
    *on_gpus("atb", 6),
    *on_gpus("atb", 4, threads=True),
]
PARTIAL_RUNS = [
    *(Run("plain", ranks, num_threads=1) for ranks in (1, 2, 6)),
    *(Run("plain", 3, memory, num_threads=1) for memory in ("window", "unaligned")),
    Run("plain", 4, threads=True, num_threads=1),
    *(Run("plain", 2, isa=isa, num_threads=1) for isa in ISAS),
    Run("plain", 3, num_threads=3),
    *(Run("plain", ranks, "npu", backend="hccl") for ranks in (2, 3)),
    *on_gpus("plain", 2),
    *on_gpus("plain", 3),
]
QUANTISED_RUNS = [
    *(Run("atb", 2, isa=isa, num_threads=1) for isa in ISAS),
    Run("atb", 3, "window", num_threads=1),
    Run("atb", 3, "unaligned", num_threads=1),
    Run("atb", 4, "window", threads=True, num_threads=1),
    Run("atb", 4, num_threads=2),
]
QUANTISED_LINEAR_RUNS = [
    *QUANTISED_RUNS,
    *(Run("atb", ranks, "npu", backend="hccl") for ranks in (2, 4)),
    *on_gpus("atb", 2),
    *on_gpus("atb", 3),
    *on_gpus("atb", 4, threads=True),
]
LEAVES_RUNS = [
    *(Run("atb", 2, isa=isa, num_threads=1) for isa in ISAS),
    Run("atb", 2, "window", num_threads=1),
    Run("atb", 3, "unaligned", num_threads=1),
    Run("atb", 3, "window", threads=True, num_threads=1),
    Run("atb", 4, num_threads=2),
    Run("atb", 6, num_threads=1),
    *on_gpus("atb", 2),
    *on_gpus("atb", 6),
    *on_gpus("atb", 3, threads=True),
]
LARGE_LINEAR_RUNS = [
    *(Run("atb", 2, memory, num_threads=1) for memory in ("plain", "window")),
    Run("atb", 2, isa="avx2", num_threads=1),
    Run("atb", 4, num_threads=2),
    Run("atb", 4, "window", num_threads=1),
]
# Why a backend has no runs.
NO_MESSAGES = {"cuda": "refused: backend cuda has no messages between two ranks: use nccl"}
NO_EXPERTS = {name: f"refused: backend {name} does not run it" for name in ("hccl", *GPU_BACKENDS)}
NO_QUANTISED_SUMS = dict.fromkeys(
    ("hccl", *GPU_BACKENDS), "refused: AllReduce with a quantType runs on CPU tensors alone"
)
NO_LEAVES = {"hccl": "refused: aclnn's products do not add in ascending k"}
OF_THE_CPU = dict.fromkeys(
    ("hccl", "cuda", "nccl"), "its sizes are those at which the CPU's engine changes its way"
)


def v_row(name: str) -> OperatorRuns:
    cases, moves = partial(v.cases_of, name), name == "all_gather_v"
    return OperatorRuns(cases, v.call, V_RUNS, v.wanted, v.bounds, moves)


def even_row(name: str) -> OperatorRuns:
    moves = name in ("all_gather", "broadcast")
    cases = partial(even.cases_of, name)
    return OperatorRuns(cases, even.call, EVEN_RUNS, bounds=even.bounds, moves=moves)


def quantised_row() -> OperatorRuns:
    cases, call = even.quantised_cases, even.call_quantised
    return OperatorRuns(cases, call, QUANTISED_RUNS, moves=False, without=NO_QUANTISED_SUMS)


def all_to_all_row(name: str) -> OperatorRuns:
    return OperatorRuns(partial(all_to_all.cases_of, name), all_to_all.call, ALL_TO_ALL_RUNS)


def message_row(name: str) -> OperatorRuns:
    cases = partial(messages.cases_of, name)
    return OperatorRuns(cases, messages.call, MESSAGE_RUNS, without=NO_MESSAGES)


def linear_row(cases: Callable[[Run], Sequence[Any]], runs: list[Run], **row: Any) -> OperatorRuns:
    return OperatorRuns(cases, linear.call, runs, bounds=linear.bounds, moves=False, **row)


def plain_row(*functions: Any, **row: Any) -> OperatorRuns:
    cases, call, wanted = functions
    return OperatorRuns(cases, call, ROOTED_RUNS, wanted, **row)


def moe_row(*functions: Any, **row: Any) -> OperatorRuns:
    cases, call, wanted = functions
    return OperatorRuns(cases, call, MOE_RUNS, wanted, without=NO_EXPERTS, **row)


def partial_row(gathers: bool) -> OperatorRuns:
    cases = partial(partials.cases, gathers)
    return OperatorRuns(cases, partials.add, PARTIAL_RUNS, partials.wanted, moves=False)


TABLE: dict[str, OperatorRuns] = {
    "all_gather_v": v_row("all_gather_v"),
    "reduce_scatter_v": v_row("reduce_scatter_v"),
    "all_gather": even_row("all_gather"),
    "reduce_scatter": even_row("reduce_scatter"),
    "all_reduce": even_row("all_reduce"),
    "all_reduce, quantised": quantised_row(),
    "broadcast": even_row("broadcast"),
    "all_to_all": all_to_all_row("all_to_all"),
    "all_to_all_v": all_to_all_row("all_to_all_v"),
    "all_to_all_v_v2": all_to_all_row("all_to_all_v_v2"),
    "send": message_row("send"),
    "recv": message_row("recv"),
    "linear_parallel": linear_row(linear.cases_of, LINEAR_RUNS),
    "linear_parallel, large": linear_row(large.cases_of, LARGE_LINEAR_RUNS, without=OF_THE_CPU),
    "linear_parallel, leaves": linear_row(linear.leaves_cases, LEAVES_RUNS, without=NO_LEAVES),
    "linear_parallel, quantised": linear_row(linear.quantised_cases, QUANTISED_LINEAR_RUNS),
    "linear_parallel, experts": linear_row(linear.expert_cases, EXPERT_RUNS),
    "all_to_allv": plain_row(rooted.row_cases, rooted.all_to_allv, rooted.exchanged),
    "gatherv": plain_row(rooted.row_cases, rooted.gatherv, rooted.gathered),
    "scatterv": plain_row(rooted.row_cases, rooted.scatterv, rooted.scattered),
    "reduce": plain_row(
        rooted.reductions, rooted.reduce, rooted.reduced, bounds=even.bounds, moves=False
    ),
    "all_reduce, partials": partial_row(True),
    "reduce_scatterv, partials": partial_row(False),
    "all_to_all_matmul": moe_row(
        partial(exchanged.cases, True), exchanged.multiply, exchanged.wanted, moves=False
    ),
    "matmul_all_to_all": moe_row(
        partial(exchanged.cases, False), exchanged.multiply, exchanged.wanted, moves=False
    ),
    "moe_dispatch": moe_row(experts.dispatches, experts.moe_dispatch, experts.wanted_rows),
    "moe_combine": moe_row(experts.combines, experts.moe_combine, experts.wanted_sums, moves=False),
}
