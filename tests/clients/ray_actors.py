"""Actors of a Ray of their own that call ray.util.collective on collops, and what they got.

    python -m tests.clients.ray_actors FILE [SECONDS]

FILE gets what each check found, by its name; one may take so many SECONDS.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
from ray.experimental import collective as experimental
from ray.experimental import internal_kv
from ray.util import collective
from ray.util.collective.types import ReduceOp

import collops.ray
from tests.clients.figures import best_us

LIMIT_S = float(sys.argv[2]) if sys.argv[2:] else 60.0
BOTH = {"numpy": lambda x: x.copy(), "torch": lambda x: torch.from_numpy(x.copy())}


@ray.remote(num_cpus=0)  # type: ignore[misc]
class Rank:
    """One rank."""

    def __init__(self, **env: str) -> None:
        os.environ.update(env)
        assert "COLLOPS_JOB_ID" not in os.environ

    def join(self, size: int, rank: int, name: str = "default", backend: str = "collops") -> Any:
        """Makes a group; the error's text where that fails."""
        return said(lambda: collective.init_collective_group(size, rank, backend, name))

    def leave(self, name: str = "default") -> None:
        """Destroys the group."""
        collective.destroy_collective_group(name)

    def call(self, work: Callable[..., Any], *args: Any) -> Any:
        """What the work returns, or the text of its error."""
        return said(lambda: work(*args))

    def raises(self, name: str) -> None:
        """Waits for a rank that never comes."""
        collective.barrier(name)

    def end(self, name: str) -> None:
        """Ends this process at once."""
        os.kill(os.getpid(), signal.SIGKILL)

    def pid(self) -> int:
        """The process."""
        return os.getpid()


def said(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except collops.Error as error:
        return f"{error.name}: {error.message}"


def part(rank: int, count: int = 6) -> Any:
    """Different in every rank and position."""
    return np.arange(count, dtype=np.float32).reshape(2, -1) + 10.0 ** (rank + 1)


def every_call(kind: str, name: str = "default") -> list[Any]:
    """The results of all calls, which change their tensors in place."""
    collective.barrier(name)  # the first call makes a group that the driver has declared
    make, found, rank = BOTH[kind], [], collective.get_rank(name)
    for op in (ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX):
        x = make(part(rank))
        collective.allreduce(x, name, op)
        found.append(x)
    x = make(part(rank))
    collective.reduce(x, 1, name, ReduceOp.MAX)
    found.append(x)
    x = make(part(rank))
    collective.broadcast(x, 1, name)
    found.append(x)
    outs = [make(np.full((2, 3), -1.0, np.float32)) for _ in range(2)]
    collective.allgather(outs, make(part(rank)), name)
    found += outs
    out = make(np.full((2, 3), -1.0, np.float32))
    collective.reducescatter(out, [make(part(rank) + 1000 * r) for r in range(2)], name)
    found.append(out)
    x = make(np.full(5, -1, np.int64) if rank else np.arange(5) * 7)
    if rank == 0:
        collective.send(x, 1, name)
    else:
        collective.recv(x, 0, name)
    found.append(x)
    return [x.tolist() for x in found]


def several_tensors() -> None:
    x = part(0)
    collective.get_group_handle("default").allreduce([x, x])


def uneven(call: str) -> None:
    """Tensors that differ in size between the ranks, or within a list."""
    rank = collective.get_rank()
    x = part(rank, 6 + 2 * rank)
    if call == "allreduce":
        collective.allreduce(x)
    elif call == "allgather":
        collective.allgather([part(0), part(0, 8)], x)
    else:
        collective.reducescatter(x, [part(0), part(0, 8)])


def small_us(name: str) -> float:
    """What a small call takes."""
    x = torch.zeros(128)
    return best_us(lambda: collective.allreduce(x, name))


def calls(ranks: list[Any], work: Callable[..., Any], *args: Any) -> list[Any]:
    result: list[Any] = ray.get([rank.call.remote(work, *args) for rank in ranks], timeout=LIMIT_S)
    return result


def join(ranks: list[Any], size: int, numbers: list[int], *group: str) -> list[Any]:
    pairs = zip(ranks, numbers, strict=True)
    made: list[Any] = ray.get([r.join.remote(size, n, *group) for r, n in pairs], timeout=LIMIT_S)
    return made


def checks() -> dict[str, Any]:
    """All of them, in one Ray; the actors are used again, as a program would."""
    found: dict[str, Any] = {}
    two = [Rank.remote() for _ in range(2)]
    found["joined"] = join(two, 2, [0, 1])
    for kind in BOTH:
        found[kind] = calls(two, every_call, kind)
    join(two, 2, [0, 1], "on gloo", "gloo")
    found["small calls"] = [calls(two, small_us, name)[0] for name in ("default", "on gloo")]
    found["several tensors"] = calls(two, several_tensors)
    for call in ("allgather", "reducescatter"):
        found[f"uneven {call}"] = calls(two, uneven, call)
    found["after the refusals"] = calls(two, every_call, "numpy")
    found["uneven allreduce"] = calls(two, uneven, "allreduce")  # it ends the group
    found["joined twice"] = join(two, 2, [1, 0], "second")
    found["in another order"] = calls(two, lambda: collective.get_rank("second"))
    ray.get([rank.leave.remote() for rank in two], timeout=LIMIT_S)

    collective.create_collective_group(two, 2, [0, 1], "collops", "declared")
    found["declared"] = [x[:1] for x in calls(two, every_call, "numpy", "declared")]
    handle = experimental.create_collective_group(two, "collops", name="handled")
    found["handled"] = [x[:1] for x in calls(two, every_call, "numpy", "handled")]
    experimental.destroy_collective_group(handle)

    third = Rank.remote()
    found["a later group of three"] = join([*two, third], 3, [0, 1, 2])
    ray.get([rank.leave.remote() for rank in [*two, third]], timeout=LIMIT_S)
    found["keys that are left"] = len(internal_kv._internal_kv_list("", namespace=b"collops"))

    hasty = [Rank.remote(COLLOPS_TIMEOUT_S=str(LIMIT_S / 20)) for _ in range(3)]
    found["rank 1 is missing"] = join(hasty[::2], 3, [0, 2], "missing")
    found["rank 0 is missing"] = join(hasty[1:], 3, [1, 2], "missing")
    found["another size"] = join(hasty[:2], 2, [0, 1], "missing")
    found["sizes that differ"] = ray.get(
        [hasty[0].join.remote(2, 0, "sizes"), hasty[1].join.remote(3, 1, "sizes")], timeout=LIMIT_S
    )
    found["a rank that comes twice"] = join(hasty, 3, [0, 1, 1], "twice")

    found["killed"] = [ray.get(third.pid.remote())]
    join([*two, third], 3, [0, 1, 2], "killed")
    lost = [rank.raises.remote("killed") for rank in two]
    third.end.remote("killed")
    for one in lost:
        try:
            ray.get(one, timeout=LIMIT_S)
        except collops.PeerLostError as error:
            found["killed"].append(str(error))
    return found


def main() -> None:
    """Runs the checks in a Ray of this process's own."""
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=80 << 20,
        # In place of an import in each actor.
        runtime_env={"worker_process_setup_hook": "collops.ray.register"},
    )
    try:
        found = checks()
    finally:
        ray.shutdown()
    Path(sys.argv[1]).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
