"""The windows under fully_shard(): how many, when one is used again, and what use() refuses."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402

import collops  # noqa: E402
import collops.torch.fsdp  # noqa: E402
import collops.torch.window_pool  # noqa: E402
from tests.torch.groups import default_group, run_group  # noqa: E402
from tests.torch.training.training import each_module  # noqa: E402

# Layers beyond what travels in a signal: the other ranks must map windows to read them.
WIDE = 128


def wide_model(**options: Any) -> Any:
    torch.manual_seed(5)
    model = nn.Sequential(*(nn.Linear(WIDE, WIDE, bias=False) for _ in range(3)))
    for layer in model:
        fully_shard(layer, mesh=options.get("mesh"), **options.get("layer", {}))
    fully_shard(model, mesh=options.get("mesh"))
    return model


def step(model: Any) -> None:
    model(torch.full((2, WIDE), dist.get_rank() + 1.0)).square().mean().backward()


def mapped() -> int:
    """The mappings of collops in this process."""
    return Path("/proc/self/maps").read_text().count("memfd:collops")


def test_steps_make_no_windows_and_map_none() -> None:
    def work(rank: int) -> list[tuple[int, int, int]]:
        model = wide_model()
        collops.torch.fsdp.use(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        before, seen = mapped(), []
        for _ in range(5):
            step(model)
            optimizer.step()
            optimizer.zero_grad()
            dist.barrier()
            windows = default_group().windows
            seen.append((windows.made, windows.num_bytes, mapped() - before))
        return seen

    for seen in run_group(work, 2):
        made, num_bytes, mappings = seen[0]
        assert seen[1:] == [(made, num_bytes, mappings)] * 4
        # One layer at a time is whole; gradients are packed while another layer is whole.
        assert 2 <= made <= 4
        assert num_bytes == made * WIDE * WIDE * 4
        assert mappings == 2 * made, "both ranks' windows are mapped, none is copied to be read"


def test_all_ranks_agree_with_one_process() -> None:
    """Gradients divided by 3, which is not the number of ranks: PREMUL_SUM."""

    def work(rank: int) -> list[Any]:
        gradients = []
        for windows in (False, True):
            model = wide_model()
            if windows:
                collops.torch.fsdp.use(model)
            each_module(model, lambda part: part.set_gradient_divide_factor(3.0))
            step(model)
            gradients.append([weight.grad.full_tensor() for weight in model.parameters()])
        torch.manual_seed(5)
        whole = nn.Sequential(*(nn.Linear(WIDE, WIDE, bias=False) for _ in range(3)))
        losses = [whole(torch.full((2, WIDE), peer + 1.0)).square().mean() for peer in range(2)]
        (sum(losses) / 3).backward()
        gradients.append([weight.grad for weight in whole.parameters()])
        return gradients

    for plain, windows, whole in run_group(work, 2):
        for one, other, expected in zip(plain, windows, whole, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-9)
            torch.testing.assert_close(other, expected, rtol=1e-4, atol=1e-8)


def test_a_window_is_used_again_when_nothing_refers_to_it() -> None:
    def work(rank: int) -> list[Any]:
        windows = default_group().windows
        first = windows.empty(1000, torch.float32)
        place = first.data_ptr()
        part = first.view(10, 100)[3]
        del first
        while_viewed = windows.empty(1000, torch.float32).data_ptr() != place
        del part
        again = windows.empty(500, torch.float64)
        return [while_viewed, again.data_ptr() == place, again.numel(), windows.made]

    assert run_group(work, 2) == [[True, True, 500, 2]] * 2


def test_a_window_of_a_call_under_way_is_not_used_again() -> None:
    def work(rank: int) -> bool:
        windows, store = default_group().windows, dist.distributed_c10d._get_default_store()
        x = windows.empty(5000, torch.float32).fill_(5.0)
        if rank == 1:
            store.get("started")  # rank 0's call cannot end before
            dist.all_reduce(x)
            dist.barrier()
            return bool((x == 10).all())
        place = x.data_ptr()
        dist.all_reduce(x, async_op=True)
        del x  # and nobody has kept the Work
        gc.collect()
        other = windows.empty(5000, torch.float32).fill_(100.0)
        store.set("started", "1")
        dist.barrier()
        return other.data_ptr() != place

    assert run_group(work, 2) == [True, True]


def test_a_separate_group_for_gradients_has_windows_of_its_own() -> None:
    def work(rank: int) -> list[int]:
        model = wide_model()
        model.set_separate_reduce_scatter_group(True)
        collops.torch.fsdp.use(model)
        step(model)
        scatters = model[0]._get_fsdp_state()._fsdp_param_groups[0]._reduce_scatter_process_group
        assert scatters is not default_group()
        return [default_group().windows.made, scatters.windows.made]

    for whole, gradients in run_group(work, 2):
        assert whole >= 1
        assert gradients >= 1


def test_one_rank_alone() -> None:
    def work(rank: int) -> list[Any]:
        gradients = []
        for windows in (False, True):
            model = wide_model()
            if windows:
                collops.torch.fsdp.use(model)
            step(model)
            gradients.append(model[0].weight.grad.full_tensor())
        return [bool(gradients[0].equal(gradients[1])), bool(gradients[0].any())]

    assert run_group(work, 1) == [[True, True]]


def test_replicas_use_windows_again_and_reduce_on_their_own() -> None:
    def work(rank: int) -> list[tuple[int, int]]:
        mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
        model = wide_model(mesh=mesh)
        collops.torch.fsdp.use(model)
        seen = []
        for _ in range(4):
            step(model)
            model.zero_grad()
            groups = mesh.get_group("shard"), mesh.get_group("replicate")
            seen.append(tuple(group.windows.made for group in groups))
        return seen

    for seen in run_group(work, 4):
        assert seen == seen[:1] * 4
        assert seen[0][1] == 3, "the gradients of three layers"


def test_no_elements_need_no_window() -> None:
    def work(rank: int) -> list[Any]:
        windows = default_group().windows
        x = windows.empty(0, torch.float32)
        return [x.numel(), x.dtype == torch.float32, windows.made]

    assert run_group(work, 1) == [[0, True, 0]]


def test_use_refuses_a_plain_module() -> None:
    with pytest.raises(
        collops.ArgumentError, match=r"use: Linear and its sub-modules are not under fully_shard"
    ):
        collops.torch.fsdp.use(nn.Linear(2, 2))


def test_use_in_a_group_of_another_backend() -> None:
    def work(rank: int) -> list[Any]:
        with pytest.raises(collops.ArgumentError) as refused:
            collops.torch.fsdp.use(wide_model(mesh=dist.init_device_mesh("cpu", (2,))))
        group = dist.new_group(backend="collops")
        mesh = dist.DeviceMesh.from_group(group, "cpu")
        model = wide_model(mesh=mesh)
        collops.torch.fsdp.use(model)
        step(model)
        return [str(refused.value), group.windows.made > 0]

    for message, made in run_group(work, 2, backend="gloo"):
        assert "is sharded by ranks of the backend gloo" in message
        assert 'init_process_group("collops")' in message
        assert made


def test_use_refuses_a_module_on_two_meshes() -> None:
    def work(rank: int) -> str:
        # Not public in torch 2.13.
        from torch.distributed.fsdp._fully_shard._fsdp_common import (
            FSDPMeshInfo,
            ShardPlacementResult,
        )
        from torch.distributed.tensor import Shard

        first, second = (dist.DeviceMesh.from_group(dist.new_group(), "cpu") for _ in range(2))
        model = nn.Linear(4, 4)
        infos = {4: FSDPMeshInfo(first, 0), 16: FSDPMeshInfo(second, 0)}
        fully_shard(
            model,
            mesh=first,
            shard_placement_fn=lambda weight: ShardPlacementResult(Shard(0), infos[weight.numel()]),
        )
        with pytest.raises(collops.ArgumentError) as refused:
            collops.torch.fsdp.use(model)
        return str(refused.value)

    for message in run_group(work, 2):
        assert "use: FSDPLinear shards its parameters on 2 meshes" in message
