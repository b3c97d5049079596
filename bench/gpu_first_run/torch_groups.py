"""torch.distributed on CUDA tensors, by collops: two ranks as processes of GPU 0.

COLLOPS_BACKEND=nccl=cuda chooses the backend cuda, nccl=nccl the backend nccl.
"""

from __future__ import annotations

import datetime
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

RANKS = 2


class Cases:
    """What one rank runs; each returns whether its values are right, and what else it found."""

    def __init__(self, rank: int) -> None:
        self.rank, self.gpu = rank, torch.device("cuda", 0)

    def full(self, *shape: int, value: float, **options: Any) -> torch.Tensor:
        """A tensor on the GPU."""
        return torch.full(shape, float(value), device=self.gpu, **options)

    def all_reduce(self) -> tuple[bool, str]:
        """A sum in place."""
        x = torch.arange(1000.0, device=self.gpu) * (self.rank + 1)
        dist.all_reduce(x)
        return torch.equal(x, torch.arange(1000.0, device=self.gpu) * 3), ""

    def all_gather_into_tensor(self) -> tuple[bool, str]:
        """An even gather."""
        x = torch.arange(32.0, device=self.gpu).view(4, 8) + 100 * self.rank
        out = self.full(4 * RANKS, 8, value=-1)
        dist.all_gather_into_tensor(out, x)
        rows = torch.arange(32.0, device=self.gpu).view(4, 8)
        return torch.equal(out, torch.cat([rows + 100 * r for r in range(RANKS)])), ""

    def all_gather_uneven(self) -> tuple[bool, str]:
        """Lists of different lengths."""
        kind = {"dtype": torch.bfloat16}
        out = [self.full(r + 1, 8, value=-1, **kind) for r in range(RANKS)]
        dist.all_gather(out, self.full(self.rank + 1, 8, value=self.rank + 2, **kind))
        return all(bool((o == r + 2).all()) for r, o in enumerate(out)), ""

    def reduce_scatter_tensor(self) -> tuple[bool, str]:
        """An even reduction."""
        x = torch.arange(4.0 * RANKS, device=self.gpu).view(RANKS, 4) + self.rank
        out = self.full(4, value=-1)
        dist.reduce_scatter_tensor(out, x)
        own = torch.arange(4.0, device=self.gpu) + 4 * self.rank
        return torch.equal(out, RANKS * own + 1), ""

    def all_to_all_single(self) -> tuple[bool, str]:
        """An even exchange."""
        x = torch.arange(6.0, device=self.gpu).view(RANKS, 3) + 10 * self.rank
        out = torch.full_like(x, -1)
        dist.all_to_all_single(out, x)
        rows = [torch.arange(3.0) + 3 * self.rank + 10 * r for r in range(RANKS)]
        return torch.equal(out.cpu(), torch.stack(rows)), ""

    def broadcast(self) -> tuple[bool, str]:
        """From rank 1."""
        x = torch.arange(5.0, device=self.gpu) + 10 * self.rank
        dist.broadcast(x, 1)
        return torch.equal(x.cpu(), torch.arange(5.0) + 10), ""

    def barrier(self) -> tuple[bool, str]:
        """Returns."""
        dist.barrier()
        return True, ""

    def asynchronous(self) -> tuple[bool, str]:
        """A work that is waited for."""
        x = self.full(1 << 20, value=self.rank + 1)
        work = dist.all_reduce(x, async_op=True)
        work.wait()
        return bool((x == 3).all()), ""

    def operator(self) -> tuple[bool, str]:
        """all_gatherv with its gradient."""
        import collops.torch as ct

        x = self.full(self.rank + 1, 8, value=self.rank, requires_grad=True)
        y = ct.all_gatherv(x, [r + 1 for r in range(RANKS)])
        y.sum().backward()
        right = y[:, 0].tolist() == [0.0, 1.0, 1.0] and bool((x.grad == RANKS).all())
        return right, ""

    def small_calls(self) -> tuple[bool, str]:
        """The time of a small all_reduce, on the host and whole."""
        x = torch.ones(128, device=self.gpu)
        for _ in range(20):
            dist.all_reduce(x)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(300):
            dist.all_reduce(x)
        host_s = time.perf_counter() - begin
        torch.cuda.synchronize()
        whole_s = time.perf_counter() - begin
        return True, f"host {host_s / 300e-6:.1f} us, whole {whole_s / 300e-6:.1f} us a call"

    def graph(self) -> tuple[bool, str]:
        """A captured call, replayed with other data."""
        x = torch.ones(1024, device=self.gpu)
        dist.all_reduce(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = x * 1
            dist.all_reduce(y)
        right = True
        for value in (1.0, 2.0, 5.0):
            x.fill_(value * (self.rank + 1))
            graph.replay()
            torch.cuda.synchronize()
            right &= bool((y == 3 * value).all())
        begin = time.perf_counter()
        for _ in range(200):
            graph.replay()
        torch.cuda.synchronize()
        return right, f"{(time.perf_counter() - begin) / 200e-6:.1f} us a replay"

    def model(self) -> Any:
        """The same on all ranks."""
        torch.manual_seed(0)
        parts = torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 10)
        return torch.nn.Sequential(*parts).to(self.gpu)

    def ddp(self) -> tuple[bool, str]:
        """Steps with gradients averaged over the ranks, beside those of the whole batch."""
        alone, first_s = self.model(), 0.0
        shared = torch.nn.parallel.DistributedDataParallel(self.model(), device_ids=[0])
        steps = [torch.optim.SGD(m.parameters(), 0.1) for m in (shared, alone)]
        for number in range(4):
            drawn = torch.Generator().manual_seed(number)
            x = torch.randn(RANKS * 8, 64, generator=drawn).to(self.gpu)
            own = x[self.rank * 8 : self.rank * 8 + 8]
            begin = time.perf_counter()
            for model, batch, step in ((shared, own, steps[0]), (alone, x, steps[1])):
                model(batch).pow(2).mean().backward()
                step.step()
                step.zero_grad()
                if model is shared and number == 0:
                    torch.cuda.synchronize()
                    first_s = time.perf_counter() - begin
        pairs = zip(shared.module.parameters(), alone.parameters(), strict=True)
        worst = max(float((a - b).detach().abs().max()) for a, b in pairs)
        return worst < 1e-5, f"first step {first_s:.2f} s"

    def fsdp2(self) -> tuple[bool, str]:
        """Sharded parameters, beside the whole ones."""
        from torch.distributed.fsdp import fully_shard

        alone, model = self.model(), self.model()
        mesh = dist.init_device_mesh("cuda", (RANKS,))
        for part in (model[0], model[2], model):
            fully_shard(part, mesh=mesh)
        steps = [torch.optim.SGD(m.parameters(), 0.1) for m in (model, alone)]
        worst = 0.0
        for number in range(3):
            drawn = torch.Generator().manual_seed(number)
            x = torch.randn(8, 64, generator=drawn).to(self.gpu)
            losses = []
            for each, step in zip((model, alone), steps, strict=True):
                loss = each(x).pow(2).mean()
                loss.backward()
                step.step()
                step.zero_grad()
                losses.append(loss.item())
            worst = max(worst, abs(losses[0] - losses[1]))
        return worst < 1e-5, ""

    def compiled(self) -> tuple[bool, str]:
        """An operator inside torch.compile, as one graph."""
        import collops.torch as ct

        def gathered(x: torch.Tensor) -> torch.Tensor:
            return ct.all_gatherv(torch.sin(x), [r + 1 for r in range(RANKS)]) * 2

        x = self.full(self.rank + 1, 8, value=self.rank)
        got = torch.compile(gathered, fullgraph=True)(x)
        return torch.allclose(got, gathered(x)), ""


def work(rank: int, store: str) -> None:
    """All cases of one rank; ends with 1 if one was wrong."""
    torch.cuda.set_device(0)
    begin = time.perf_counter()
    dist.init_process_group(
        "cpu:collops,cuda:collops",
        init_method=f"file://{store}",
        rank=rank,
        world_size=RANKS,
        timeout=datetime.timedelta(seconds=20),
    )
    say(rank, f"init_process_group: {time.perf_counter() - begin:.2f} s")
    cases = Cases(rank)
    names = [name for name in vars(Cases) if name not in ("__init__", "full", "model")]
    named: list[Callable[[], tuple[bool, str]]] = [
        getattr(cases, name) for name in names if not name.startswith("_")
    ]
    wrong = [case.__name__ for case in named if not right(rank, case)]
    dist.destroy_process_group()
    if wrong:
        raise SystemExit(f"rank {rank}: wrong: {', '.join(wrong)}")


def right(rank: int, case: Callable[[], tuple[bool, str]]) -> bool:
    """Runs a case; whether it was right."""
    begin = time.perf_counter()
    try:
        is_right, found = case()
        torch.cuda.synchronize()
    except Exception:
        traceback.print_exc()
        is_right, found = False, ""
    took = f"{time.perf_counter() - begin:.2f} s"
    said = f"{case.__name__}: {'right' if is_right else 'WRONG'}, {took} {found}"
    if rank == 0 or not is_right:
        say(0, f"rank {rank}: {said}")
    return is_right


def say(rank: int, text: str) -> None:
    """Prints on rank 0 alone."""
    if rank == 0:
        print(text, flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (str(Path(folder) / "store"),), nprocs=RANKS)
    sys.exit(0)
