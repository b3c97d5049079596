"""Groups made again and again in the same processes, and ranks that torchrun starts again."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

import collops.torch  # noqa: E402
from collops.launch.place import until  # noqa: E402
from collops.testing import run_ranks  # noqa: E402
from patience import patience  # noqa: E402
from tests.torch.groups import default_group, free_port, total  # noqa: E402

TURNS = 50
FIRST = 5  # turns until pools of torch and of the C library have what they keep


def held() -> Counter[str]:
    """How many descriptors of each kind, threads, and maps of each file this process has."""
    gc.collect()
    found = Counter(thread=len(os.listdir("/proc/self/task")))
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one that lists the others
            found[os.readlink(f"/proc/self/fd/{descriptor}").partition(":")[0]] += 1
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[5:]
        if path and not path[0].startswith("["):
            found[f"map of {path[0]}"] += 1
    return found


@pytest.mark.parametrize("way", ["well", "after a loss", "by shrink"])
def test_fifty_groups_in_turn_leave_nothing_open(way: str) -> None:
    """As of a program that torchelastic or its own loop starts again in the same processes."""

    def turn(rank: int) -> None:
        x = torch.ones(100_000)
        work = dist.all_reduce(x, async_op=True)
        work.get_future().wait()
        total(dist.new_group([0, 1]))
        window = default_group().allocate_tensor(5000, dtype=torch.float32, device=x.device)
        dist.all_reduce(window.fill_(1.0))
        if way == "after a loss" and rank == 0:
            default_group().communicator.close()
        elif way == "after a loss":
            with pytest.raises(collops.PeerLostError):
                dist.all_reduce(x)
        elif way == "by shrink":
            collops.torch.shrink()
            total(dist.new_group([1, 0]))

    def work(rank: int, port: int) -> bool:
        store = dist.TCPStore("127.0.0.1", port, 2, rank == 0)  # torchrun's is there all the time
        at_first = Counter()
        for number in range(TURNS):
            prefixed = dist.PrefixStore(str(number), store)
            dist.init_process_group("collops", store=prefixed, rank=rank, world_size=2)
            turn(rank)
            dist.destroy_process_group()
            if number == FIRST:
                at_first = held()
        # A thread that ends, and the store's end of a connection, may take a moment.
        assert until(lambda: not held() - at_first, patience(5)), held() - at_first
        if rank == 0:  # which has the store
            store.get("rank 1 is done")
        else:
            store.set("rank 1 is done", "")
        return True

    assert run_ranks(work, 2, free_port()) == [True, True]


PROGRAM = """
import os, signal, torch, torch.distributed as dist
turn, rank = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), int(os.environ["RANK"])
for again in range(2):
    dist.init_process_group("collops")
    x = torch.tensor([rank + 1.0])
    dist.all_reduce(x)
    if turn == 0 and again == 1:
        if rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(x)
    dist.destroy_process_group()
print(f"rank {rank} turn {turn}: {x.item():g}", flush=True)
"""


def test_torchrun_starts_all_ranks_again(tmp_path: Path) -> None:
    """Its agent keeps the store, and the ranks of a new turn meet at it under the same names."""
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", "--max-restarts", "1", "--monitor-interval", "0.1"]
    done = subprocess.run(
        [*command, str(tmp_path / "program.py")],
        capture_output=True,
        text=True,
        timeout=patience(120),
    )
    assert done.returncode == 0, done.stderr
    lines = sorted(line for line in done.stdout.splitlines() if line.startswith("rank "))
    assert lines == [f"rank {rank} turn 1: 3" for rank in range(2)]
