"""One rank: ``python -m collops.bench.torch.rank_program REQUEST STORE RECORDS``.

The default group is gloo's, and a second group of the same ranks is collops's. In each round both
make the same call. Ranks are pinned for collops's calls. For gloo's they may use every core, as its
threads do, and meet in gloo's own barrier, which sleeps.
"""

from __future__ import annotations

import gc
import itertools
import json
import os
import pickle
import random
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import collops.torch  # noqa: F401  registers the backend
from collops.bench.rank_program import pin
from collops.bench.torch.attention_steps import attention_step
from collops.bench.torch.call_steps import Step, Tensors, step_of
from collops.bench.torch.request import BACKENDS, TRAINING, Point, TorchRequest

_ROUND_BYTES, _MOST_CALLS = 4 << 20, 50
_LARGE, _LARGE_ROUNDS = 4 << 20, 3
_WARM_UP = 2
_TRAINING_CALLS = 2
_CLOSE = 1e-6


class Ranks:
    """This rank, and its group of each backend."""

    def __init__(self, store: str, threads: int) -> None:
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        torch.set_num_threads(threads)
        self.all_cores = os.sched_getaffinity(0)
        # Before this rank is pinned, so that gloo's own threads may use every core.
        dist.init_process_group(
            "gloo", init_method=f"file://{store}", rank=self.rank, world_size=self.size
        )
        pin(self.rank, threads)
        self.own_cores = os.sched_getaffinity(0)
        self.groups = {"collops": dist.new_group(backend="collops"), "gloo": dist.group.WORLD}
        alone = [dist.new_group([rank], backend="collops") for rank in range(self.size)]
        self.alone = alone[self.rank]

    def meet(self, backend: str) -> None:
        """Waits for all ranks, on the cores of a backend."""
        cores = self.all_cores if backend == "gloo" else self.own_cores
        os.sched_setaffinity(0, cores)
        dist.barrier(group=self.groups["gloo" if backend == "gloo" else "collops"])


def measure(ranks: Ranks, point: Point, iterations: int) -> dict[str, Any]:
    """The seconds of the slowest rank in each round, by backend, and how many results are wrong."""
    trains = point.call in TRAINING
    steps, results = {}, {}
    for backend in BACKENDS:
        step, result = _step(point, ranks, ranks.groups[backend])
        ranks.meet(backend)
        step()
        value = result()
        results[backend] = None if value is None else value.clone()
        steps[backend] = step
    if trains:
        steps["alone"], _ = _step(point, ranks, ranks.alone)
    calls = _TRAINING_CALLS if trains else _calls(point.size)
    rounds = min(iterations, _LARGE_ROUNDS) if point.size > _LARGE and not trains else iterations
    own = _interleave(ranks, steps, rounds, calls)
    differ = not _equal(*results.values(), exact=not trains or ranks.size == 2)
    told = torch.tensor([*itertools.chain(*own.values()), float(differ)], dtype=torch.float64)
    dist.all_reduce(told, dist.ReduceOp.MAX)
    *seconds, differs = told.tolist()
    times = {f"{name}_s": seconds[i * rounds : (i + 1) * rounds] for i, name in enumerate(steps)}
    return {
        "call": point.call,
        "way": point.way,
        "bytes": point.size,
        "ranks": ranks.size,
        "rounds": rounds,
        "calls": calls,
        **times,
        "equal": not differs,
    }


def _calls(size: int) -> int:
    return max(1, min(_MOST_CALLS, _ROUND_BYTES // max(size, 1)))


def _equal(own: Any, other: Any, *, exact: bool) -> bool:
    if own is None:
        return True
    if exact:
        return bool(torch.equal(own, other))
    # More than two ranks' gradients are added up in another order.
    return bool(torch.allclose(own, other, rtol=0, atol=_CLOSE))


def _step(point: Point, ranks: Ranks, group: Any) -> tuple[Step, Step]:
    if point.call in TRAINING:
        # FSDP2 imports much of torch, which takes seconds.
        from collops.bench.torch.train_steps import train_step

        return train_step(point, group, ranks.rank)
    if point.call == "dp_attention":
        return attention_step(point, group, ranks.rank, ranks.size)
    return step_of(point, group, Tensors(point.size, ranks.rank, ranks.size))


def _interleave(
    ranks: Ranks, steps: dict[str, Any], rounds: int, calls: int
) -> dict[str, list[float]]:
    """Seconds of one call, by backend and round; the order is the same on all ranks."""
    times: dict[str, list[float]] = {backend: [] for backend in steps}
    order = random.Random(rounds)
    for number in range(-_WARM_UP, rounds):
        for backend in order.sample(tuple(steps), len(steps)):
            ranks.meet(backend)
            begin = time.perf_counter()
            for _ in range(calls):
                steps[backend]()
            taken = (time.perf_counter() - begin) / calls
            if number >= 0:
                times[backend].append(taken)
    return times


def main() -> None:
    """Measures every point of the request; rank 0 writes a line of JSON for each."""
    request: TorchRequest = pickle.loads(Path(sys.argv[1]).read_bytes())
    ranks = Ranks(sys.argv[2], request.threads)
    gc.disable()
    with Path(sys.argv[3]).open("a", buffering=1) as records:
        for point in request.points:
            record = measure(ranks, point, request.iterations)
            gc.collect()
            if ranks.rank == 0:
                records.write(json.dumps(record) + "\n")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
