"""SGLang's own GroupCoordinator on CPU ranks, with the hooks of the plug-in."""

from __future__ import annotations

import importlib.machinery
import os
import sys
import tempfile
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.distributed as dist

from collops.testing import run_ranks
from patience import patience
from tests.clients.figures import best_us, note

pytestmark = pytest.mark.timeout(300)
ROWS = [[3, 0], [0, 0], [1, 4], [2, 2]]


def coordinator(plugin: str = "1") -> Any:
    """A coordinator of all ranks, after SGLang has loaded its plug-ins."""
    os.environ |= {"SGLANG_USE_CPU_ENGINE": "1", "COLLOPS_SGLANG": plugin}
    kernels = ModuleType("sgl_kernel")  # SGLang's kernels, compiled for CUDA or built from source
    kernels.__spec__ = importlib.machinery.ModuleSpec("sgl_kernel", None)
    sys.modules["sgl_kernel"] = kernels
    from sglang.srt.distributed import parallel_state
    from sglang.srt.plugins import load_plugins

    load_plugins()
    return parallel_state.GroupCoordinator(
        group_ranks=[list(range(dist.get_world_size()))],
        local_rank=dist.get_rank(),
        torch_distributed_backend="gloo",
        use_pynccl=False,
        use_mscclpp=False,
        use_custom_allreduce=False,
        use_torch_symm_mem_all_reduce=False,
        use_hpu_communicator=False,
        use_xpu_communicator=False,
        group_name="tp",
    )


def on_ranks(work: Any, size: int = 2, plugin: str = "1") -> list[Any]:
    """The results of ``work(rank, coordinator)``, on ranks that gloo brings together."""

    def main(rank: int, path: str) -> Any:
        dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=size)
        group = coordinator(plugin)
        result = work(rank, group)
        group.destroy()
        dist.destroy_process_group()
        return result

    with tempfile.TemporaryDirectory() as folder:
        return run_ranks(main, size, f"{folder}/store", timeout=patience(240))


def rows_of(rank: int, count: int, dtype: Any = torch.float32) -> Any:
    return (torch.arange(count * 3).view(count, 3) * 3 + 100 * rank).to(dtype)


def test_uneven_rows() -> None:
    def work(rank: int, group: Any) -> None:
        for sizes in ROWS:
            every = [rows_of(r, n) for r, n in enumerate(sizes)]
            ids = [rows_of(r, n, torch.int64) for r, n in enumerate(sizes)]
            whole = torch.cat(every)
            [alone] = group.all_gatherv(every[rank], sizes=sizes)
            assert torch.equal(alone, whole)
            x, y = group.all_gatherv([every[rank], ids[rank]], sizes=sizes)
            assert torch.equal(x, whole)
            assert torch.equal(y, torch.cat(ids))
            out = torch.full_like(whole, -1)
            group.all_gatherv(every[rank], sizes=sizes, output=out)
            assert torch.equal(out, whole)
            got = group.reduce_scatterv(whole * (rank + 1), sizes=sizes)
            assert torch.equal(got, every[rank] * 3)

    on_ranks(work)


def test_the_other_calls() -> None:
    def work(rank: int, group: Any) -> list[Any]:
        x = torch.tensor([rank + 1.0, 2.0])
        result = [group.all_reduce(x.clone()).tolist()]
        result.append(group.broadcast(x.clone(), src=1).tolist())
        result.append(group.all_gather(x.view(1, 2), dim=1).tolist())
        out = torch.empty(1)
        group.reduce_scatter_tensor(out, x)
        result.append(out.tolist())
        swapped = torch.empty(2)
        group._all_to_all_single(swapped, x + 10 * rank)
        result.append(swapped.tolist())
        if rank == 0:
            group.send(x)
        else:
            result.append(group.recv(x.shape, x.dtype).tolist())
        result.append(dist.get_backend(group.device_group))
        return result

    first, second = on_ranks(work)
    assert first == [[3, 4], [2, 2], [[1, 2, 2, 2]], [3], [1, 12], "collops"]
    assert second == [[3, 4], [2, 2], [[1, 2, 2, 2]], [4], [2, 12], [1, 2], "collops"]


def test_it_can_be_turned_off() -> None:
    def work(rank: int, group: Any) -> list[Any]:
        total = group.all_reduce(torch.ones(2)).tolist()
        x = torch.zeros(128)
        took_us = best_us(lambda: group.all_reduce(x))
        return [took_us, total, dist.get_backend(group.device_group)]

    found = {plugin: on_ranks(work, plugin=plugin) for plugin in "01"}
    assert [rest for _, *rest in found["0"]] == [[[2, 2], "gloo"]] * 2
    note("SGLang", "all_reduce of 512 B", found["1"][0][0], found["0"][0][0])
