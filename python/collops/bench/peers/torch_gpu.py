"""torch.distributed's NCCL and symmetric memory beside a point: processes, before the ranks run."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import socket
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from collops.bench.elements import NAMES
from collops.bench.measure import milliseconds_of
from collops.bench.operator import OnGpu, Point, Request, Row
from collops.bench.peers import TORCH_NCCL, TORCH_SYMM
from collops.launch.environment import own_environment
from collops.launch.programs import Answer, answers

_PROGRAM = [sys.executable, "-m", "collops.bench.torch.gpu_baseline"]
_LABELS = {
    TORCH_NCCL: "torch.distributed, NCCL, processes",
    TORCH_SYMM: "torch symm_mem, processes",
}
_CALLS = ("all_gather_v", "reduce_scatter_v", "linear_parallel")
_LIMIT_S = 90.0


class TorchBaselines:
    """The columns of torch of each point, or why there are none."""

    def __init__(self, request: Request) -> None:
        self._told: set[str] = set()
        wanted = [way for way in (TORCH_NCCL, TORCH_SYMM) if way in request.peers]
        given = request.gpu
        assert given is not None
        refused: dict[str, str] = {}
        self._found = []
        for point in request.points:
            found = {way: _measured(request, point, given, way, refused) for way in wanted}
            self._found.append(found)

    def add(self, record: Row) -> list[Row]:
        """Adds the next point's columns to its record; the notes on those that are missing."""
        notes = []
        for way, found in self._found.pop(0).items():
            if isinstance(found, str):
                text = f"no column {way}: {found}"
                notes += [] if text in self._told else [{"record": "note", "text": text}]
                self._told.add(text)
            else:
                record["columns"].append(_row(way, found, record["columns"][0]))
        return notes


def _measured(
    request: Request, point: Point, given: OnGpu, way: str, refused: dict[str, str]
) -> list[list[float]] | str:
    """The times of each rank in milliseconds, or the reason why there are none.

    A way that was `refused` at an earlier point is not tried again: its processes take seconds.
    """
    said = point.describe()
    missing = _missing() or refused.get(way)
    if missing:
        return missing
    if request.operator not in _CALLS or said.get("type", 1) not in (1, 2):
        return "torch has no such call"
    call = {
        "bench": request.operator,
        "way": way,
        "devices": given.devices,
        "dtype": NAMES[point.dtype],
        "calls": given.calls,
        "rounds": request.iterations,
        "counts": said.get("counts"),
        "type": said.get("type"),
        "shape": [said.get(name) for name in "mkn"],
        "rows": said.get("gather_rows" if said.get("type") == 2 else "scatter_rows"),
    }
    found = run_ranks(call, point.ranks)
    reasons: list[str] = [told["reason"] for told in found if "reason" in told]
    if reasons:
        refused[way] = reasons[0]
        return reasons[0]
    return [told["ms"] for told in found]


def _missing() -> str:
    """Why torch cannot be asked, as far as its version says so."""
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return "torch is not installed (pip install torch)"
    return f"torch {version} is built without CUDA" if version.endswith("+cpu") else ""


def run_ranks(
    call: dict[str, Any], ranks: int, program: Sequence[str] = _PROGRAM, limit_s: float = _LIMIT_S
) -> list[dict[str, Any]]:
    """Runs the program on every rank; what each told, or its end as {"reason": ...}."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as probe:
        port = probe.getsockname()[1]
    common = {
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        # Ranks on one GPU, where torch and its NCCL take them.
        "TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES": "1",
        "NCCL_MULTI_RANK_GPU_ENABLE": "1",
        "NCCL_MAX_CTAS": os.environ.get("NCCL_MAX_CTAS", "16"),
    }
    words = [*program, json.dumps(call)]
    own = [{**common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]
    commands = [(words, own_environment(variables)) for variables in own]
    return [_told(answer, limit_s) for answer in answers(commands, limit_s)]


def _told(answer: Answer, limit_s: float) -> dict[str, Any]:
    if answer.status is None:
        return {"reason": f"torch did not end within {limit_s:g} s"}
    for line in reversed(answer.out.splitlines()):
        with contextlib.suppress(ValueError):
            told: dict[str, Any] = json.loads(line)
            return told
    last = (answer.err.strip().splitlines() or [f"status {answer.status}"])[-1]
    return {"reason": f"torch failed: {last}"}


def _row(way: str, times: list[list[float]], other: Row) -> Row:
    """A column as the measured ones have it; its calls did not run in turn with those."""
    slowest = np.array(times).max(axis=0)
    times_ms = milliseconds_of(slowest)
    operations = other["gflops"] * other["ms"]
    nothing = dict.fromkeys(("wrong_ranks", "memory_mib", "memory_shared_mib"))
    return {
        **nothing,
        **times_ms,
        "column": way,
        "label": _LABELS[way],
        "interleaved": False,
        "buffers": 1,
        "ms_own": times_ms["ms"],
        "parts_ms": {},
        "gflops": round(operations / float(times_ms["ms"]), 2),
        "moved_bytes": other["moved_bytes"],
        "scratch_mib": 0.0,
    }
