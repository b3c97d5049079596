"""Measures calls of one operator on the backend hccl; a program of its own."""

from __future__ import annotations

import argparse
import statistics
import time
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

import collops
from collops.errors import Error
from collops.golden_run.memory.find import memory_of
from collops.npu_check.case_check import backend_name
from collops.npu_check.child import tell
from collops.testing import RankErrors, run_ranks

if TYPE_CHECKING:
    from collections.abc import Callable

    from collops.golden_run.memory.device_memory import DeviceMemory

OPERATORS = ("all_gather_v", "reduce_scatter_v", "all_reduce")
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


def measure(rank: int, operator: str, ranks: int, total: int) -> list[float] | str:
    """The seconds of each call on this rank, or why the backend does not run it."""
    npus().choose_device(rank)
    devices = import_module("torch").npu
    try:
        call = prepare(operator, rank, ranks, total)
        seconds = []
        for _ in range(_WARM_UP + CALLS):
            devices.synchronize()
            begin = time.perf_counter()
            call()
            devices.current_stream().synchronize()
            seconds.append(time.perf_counter() - begin)
    except Error as error:
        if error.name == "ERROR_UNSUPPORTED":
            return error.message
        raise
    return seconds[_WARM_UP:]


def timed(operator: str, ranks: int, size: int, timeout: float) -> dict[str, Any]:
    """The median time of a call, which takes as long as on its slowest rank."""
    total = size // _FLOAT_BYTES
    try:
        npus().load()
        env = {"COLLOPS_BACKEND": backend_name()}
        found = run_ranks(measure, ranks, operator, ranks, total, timeout=timeout, env=env)
    except (RankErrors, ValueError) as problem:
        return {"state": "FAILED", "text": str(problem)}
    refused = [one for one in found if isinstance(one, str)]
    if refused:
        return {"state": "not supported", "text": refused[0]}
    slowest = [max(calls) for calls in zip(*found, strict=True)]
    return {"state": "passed", "median_s": statistics.median(slowest), "calls": len(slowest)}


def main() -> None:
    """Measures what the arguments name, and tells it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("operator", choices=OPERATORS)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    tell(timed(options.operator, options.ranks, options.size, options.seconds))


if __name__ == "__main__":
    main()
