"""COLLOPS_AS=gloo: a program that names gloo runs on collops, and torch still says gloo."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
from datetime import timedelta
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch.testing._internal.distributed import fake_pg  # noqa: E402

import collops  # noqa: E402
import collops.torch  # noqa: E402
from collops.testing import run_ranks  # noqa: E402
from patience import patience  # noqa: E402
from tests.torch.groups import free_port, run_group, total  # noqa: E402

AS_GLOO = {"COLLOPS_AS": "gloo"}
assert fake_pg  # its import registers torch's backend "fake"


def kind_of(group: Any) -> tuple[bool, str]:
    """Whether collops has it, and what torch says that it is."""
    return isinstance(group, collops.torch.Group), dist.get_backend(group)


def test_groups_of_gloo_are_of_collops() -> None:
    def work(rank: int) -> Any:
        world = dist.group.WORLD
        named, inherited = dist.new_group(backend="gloo"), dist.new_group()
        alone = dist.new_group([0])
        dist.monitored_barrier(timeout=timedelta(seconds=patience(30)))  # which wants a gloo group
        kinds = [kind_of(group) for group in (world, named, inherited)]
        sums = [total(group) for group in (world, named, inherited)]
        objects: list[Any] = [None, None]
        dist.all_gather_object(objects, {"rank": rank})
        mine = kind_of(alone) if rank == 0 else alone == dist.GroupMember.NON_GROUP_MEMBER
        return kinds, sums, objects, mine

    results = run_group(work, 2, backend="gloo", env=AS_GLOO)
    for rank, (kinds, sums, objects, mine) in enumerate(results):
        assert kinds == [(True, "gloo")] * 3
        assert sums == [3.0] * 3
        assert objects == [{"rank": 0}, {"rank": 1}]
        assert mine == ((True, "gloo") if rank == 0 else True)


@pytest.mark.parametrize("backend", ["gloo", "cpu:gloo", "GLOO", None])
def test_every_way_to_say_gloo(backend: Any) -> None:
    """None is torch's own choice, which is gloo where there is no GPU."""

    def work(rank: int) -> bool:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
        found = kind_of(dist.group.WORLD)[0]
        dist.destroy_process_group()
        return found

    assert run_ranks(work, 1, env=AS_GLOO) == [True]
    assert run_ranks(work, 1, env={"COLLOPS_AS": ""}) == [False]


def test_another_backend_stays_for_other_devices() -> None:
    """Of devices that this machine has, torch's fake backend for tensors without data."""

    def work(rank: int) -> Any:
        world: Any = dist.group.WORLD
        x = torch.empty(3, device="meta")
        own = torch.tensor([1.0, 2.0])
        moved = dist.all_reduce(x, async_op=True)
        dist.broadcast(x, 0)
        dist.all_gather_into_tensor(torch.empty(6, device="meta"), x)
        dist.barrier()
        half = dist.new_group([0, 1])
        dist.all_reduce(own, group=half)
        names = [str(device) for device in world._device_types]
        found = [
            type(moved).__name__,
            type(world._get_backend(torch.device("meta"))).__name__,
            dist.get_backend(),
            dist.get_backend_config(),
            total(),
            own.tolist(),
            sorted(names),
        ]
        dist.destroy_process_group(half)
        return found, len(dist.distributed_c10d._world.pg_map)

    for found, left in run_group(work, 2, backend="cpu:gloo,meta:fake", env=AS_GLOO):
        work_type, backend_type, *rest = found
        assert work_type == "FakeWork"
        assert backend_type == "FakeProcessGroup"
        both = "cpu:gloo,meta:fake"
        assert rest == [both, both, 3.0, [2.0, 4.0], ["cpu", "meta"]]
        assert left == 1


def test_ranks_of_which_one_lacks_it_are_named() -> None:
    """The one with it knows at once, the other one when gloo gives up, if it came first."""

    def work(rank: int, path: str) -> Any:
        os.environ.update(AS_GLOO if rank == 1 else {})
        with pytest.raises((collops.RankMismatchError, RuntimeError)) as refused:
            dist.init_process_group(
                "gloo",
                init_method=f"file://{path}",
                rank=rank,
                world_size=2,
                timeout=timedelta(seconds=patience(3)),
            )
        return isinstance(refused.value, collops.RankMismatchError), str(refused.value)

    with tempfile.TemporaryDirectory() as folder:
        results = run_ranks(work, 2, f"{folder}/store")
    for is_ours, message in results:
        assert is_ours
        assert "COLLOPS_AS=gloo is set on rank 1, but not on rank 0: set it on all" in message


def test_another_value_is_refused() -> None:
    def work(rank: int) -> str:
        with pytest.raises(collops.ArgumentError) as refused:
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        return str(refused.value)

    [message] = run_ranks(work, 1, env={"COLLOPS_AS": "nccl"})
    assert message.startswith('COLLOPS_AS must be gloo, got "nccl"')


PROGRAM = """
    import sys
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    rank = int(sys.argv[1])
    where = f"tcp://127.0.0.1:{sys.argv[2]}"
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=2)
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(3, 1))
    model(torch.full((2, 3), rank + 1.0)).sum().backward()
    kind = type(dist.group.WORLD).__module__
    print(dist.get_backend(), kind, *model.module.weight.grad[0].tolist())
    dist.destroy_process_group()
"""


def test_a_program_that_never_imports_collops(tmp_path: Any) -> None:
    """torch's entry point does it; the gradients are the mean of the ranks'."""
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(PROGRAM))
    for variables, kind in (
        ({}, "torch.distributed.distributed_c10d"),
        (AS_GLOO, "collops.torch.group"),
    ):
        port = str(free_port())
        ranks = [
            subprocess.Popen(
                [sys.executable, str(file), str(rank), port],
                env=os.environ | variables,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]
        said = [rank.communicate(timeout=patience(60))[0].splitlines()[-1] for rank in ranks]
        assert said == [f"gloo {kind} 3.0 3.0 3.0"] * 2
