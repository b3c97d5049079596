"""torch.distributed on GPUs beside `collops bench --backend`: one rank, a process of its own.

``python -m collops.bench.torch.gpu_baseline CALL`` with CALL as JSON, and RANK, WORLD_SIZE,
MASTER_ADDR and MASTER_PORT; prints {"ms": [...]}, a time for each round, or {"reason": "..."}.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
import torch.distributed as dist

_WARM_UP = 3
Run = Callable[[], object]


def main() -> None:
    """Measures the call, or says why it cannot be."""
    call = json.loads(sys.argv[1])
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    told = reason(call, size)
    if told:
        print(json.dumps({"reason": told}))
        return
    index = call["devices"][rank % len(call["devices"])]
    torch.cuda.set_device(index)
    device = torch.device("cuda", index)
    dist.init_process_group("nccl", device_id=device)
    try:
        run = prepare(call, rank, size, device)
        print(json.dumps({"ms": timed(run, call["rounds"], call["calls"], device)}))
    finally:
        dist.destroy_process_group()


def reason(call: dict[str, Any], size: int) -> str:
    """Why torch cannot make the call here; empty if it can."""
    if not torch.cuda.is_available():
        built = torch.version.cuda
        return f"torch {torch.__version__} finds no GPU ({f'CUDA {built}' if built else 'no CUDA'})"
    version = torch.cuda.nccl.version()
    if len(set(call["devices"])) < size and version < (2, 30):
        return (
            f"torch's NCCL {'.'.join(map(str, version))} refuses ranks on one GPU: 2.30 is needed"
        )
    symmetric = call["way"] == "torch_symm"
    if symmetric and call["bench"] != "linear_parallel":
        return "torch's symmetric memory has no such collective"
    if symmetric and len(set(call["rows"])) > 1:
        return "torch's symmetric memory takes equal rows alone"
    return ""


def prepare(call: dict[str, Any], rank: int, size: int, device: torch.device) -> Run:
    """The call, on tensors that are there."""
    make = {
        "all_gather_v": _gather,
        "reduce_scatter_v": _scatter,
        "linear_parallel": _products,
    }[call["bench"]]
    return make(call, rank, size, device)


def _gather(call: dict[str, Any], rank: int, size: int, device: torch.device) -> Run:
    counts, dtype = call["counts"], getattr(torch, call["dtype"])
    x = torch.ones(counts[rank], dtype=dtype, device=device)
    parts = list(torch.empty(sum(counts), dtype=dtype, device=device).split(counts))
    return lambda: dist.all_gather(parts, x)


def _scatter(call: dict[str, Any], rank: int, size: int, device: torch.device) -> Run:
    counts, dtype = call["counts"], getattr(torch, call["dtype"])
    parts = list(torch.ones(sum(counts), dtype=dtype, device=device).split(counts))
    out = torch.empty(counts[rank], dtype=dtype, device=device)
    return lambda: dist.reduce_scatter(out, parts)


def _products(call: dict[str, Any], rank: int, size: int, device: torch.device) -> Run:
    """LinearParallel of type 1 or 2: symmetric memory's fused operators, or one after the other."""
    rows, (m, k, n), dtype = call["rows"], call["shape"], getattr(torch, call["dtype"])
    weight = torch.ones(n, k, dtype=dtype, device=device).t()
    gathers = call["type"] == 2
    x = torch.ones(rows[rank] if gathers else m, k, dtype=dtype, device=device)
    if call["way"] == "torch_symm":
        import_module("torch.distributed._symmetric_memory")  # registers torch.ops.symm_mem
        name = dist.group.WORLD.group_name
        operators = torch.ops.symm_mem
        if gathers:
            return lambda: operators.fused_all_gather_matmul(x, [weight], 0, name)
        return lambda: operators.fused_matmul_reduce_scatter(x, weight, "sum", 0, name)
    whole = torch.empty(m, k if gathers else n, dtype=dtype, device=device)
    parts = list(whole.split(rows))
    if gathers:
        out = torch.empty(m, n, dtype=dtype, device=device)

        def gathered() -> None:
            dist.all_gather(parts, x)
            torch.matmul(whole, weight, out=out)

        return gathered
    own = torch.empty(rows[rank], n, dtype=dtype, device=device)

    def scattered() -> None:
        torch.matmul(x, weight, out=whole)
        dist.reduce_scatter(own, parts)

    return scattered


def timed(run: Run, rounds: int, calls: int, device: torch.device) -> list[float]:
    """Milliseconds of a call in each round, by events around several calls."""
    for _ in range(_WARM_UP):
        run()
    found = []
    for _ in range(rounds):
        dist.barrier()
        run()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(calls):
            run()
        end.record()
        torch.cuda.synchronize(device)
        found.append(float(begin.elapsed_time(end)) / calls)
    return found


if __name__ == "__main__":
    main()
