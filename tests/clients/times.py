"""How long vLLM's steps take with collops between its ranks, and with its own communicator.

    PYTHONPATH=tools build/clients/serving/bin/python -m tests.clients.times

Two tensor-parallel ranks and a tiny model: the time is that of the calls and of vLLM itself. The
ways run in turn, each in new processes. The best step counts, and the best of the rounds' medians
of a call.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.clients.models import make
from tests.clients.test_vllm import GLOO, Run

ROUNDS, TIMES = 2, 40
# COLLOPS_VLLM, and what is asked of vLLM besides.
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "vLLM, gloo": ("0", GLOO),
    "vLLM, shared memory": ("0", {}),
    "collops": ("1", {}),
}


def once(folder: Path, asked: dict[str, Any], collops: str) -> dict[str, Any]:
    """One engine's times."""
    env = {"COLLOPS_VLLM": collops, "VLLM_ALLOW_INSECURE_SERIALIZATION": "1"}
    run = Run(folder, [[[5, 7, 11]]], asked | {"times": TIMES}, **env)
    run.tokens()
    return dict(json.loads(run.outs[0].read_text()))


def main() -> None:
    """Prints a table, a line for each way."""
    model = sys.argv[1] if len(sys.argv) > 1 else "llama"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder)
        asked = {"model": str(folder / model), "tensor_parallel_size": 2, "enforce_eager": True}
        found: dict[str, list[Any]] = {way: [] for way in WAYS}
        for _ in range(ROUNDS):
            for way, (variable, more) in WAYS.items():
                found[way].append(once(folder, asked | more, variable))
    print(f"{model}, 2 tensor-parallel ranks, {ROUNDS} rounds")
    for way, rounds in found.items():
        step = min(min(one["steps_ms"]) for one in rounds)
        sizes = rounds[0]["calls_us"]
        calls = {size: min(one["calls_us"][size] for one in rounds) for size in sizes}
        words = ", ".join(f"all_reduce of {size} B {us:.1f} us" for size, us in calls.items())
        print(f"  {way:20}  step {step:.2f} ms, {words}")


if __name__ == "__main__":
    main()
