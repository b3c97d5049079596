"""A process group of torch.distributed over collops: how it is made, what it is, how it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from patience import patience

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

import collops.torch  # noqa: E402
from collops.testing import run_ranks  # noqa: E402
from tests.torch.groups import default_group, free_port, run_group, total  # noqa: E402


def test_who_the_group_is() -> None:
    def work(rank: int) -> list[Any]:
        group = default_group()
        own = [dist.get_rank(), dist.get_world_size(), dist.get_backend(), group.rank()]
        own += [group.size(), group.name(), group.group_name == group.getGroupName()]
        return [*own, dist.get_process_group_ranks(group), group.communicator.size]

    expected = [2, "collops", True, [0, 1], 2]
    assert run_group(work, 2) == [[r, 2, "collops", r, *expected] for r in range(2)]


@pytest.mark.parametrize("name", ["collops", "COLLOPS", "cpu:collops"])
def test_the_names_of_the_backend(name: str) -> None:
    assert run_group(lambda rank: total(), 2, backend=name) == [3.0, 3.0]


def test_the_bare_name_serves_the_devices_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for count, expected in ((0, "cpu:collops"), (2, "cpu:collops,cuda:collops")):
        monkeypatch.setattr(torch.cuda, "device_count", lambda count=count: count)
        assert repr(dist.BackendConfig(dist.Backend("collops"))) == expected
        assert repr(dist.BackendConfig(dist.Backend("cpu:collops"))) == "cpu:collops"


def test_a_sharded_tensor_is_gathered_where_it_is() -> None:
    from torch.distributed._shard import sharded_tensor
    from torch.distributed._shard.sharding_spec import ChunkShardingSpec

    def work(rank: int) -> Any:
        torch.cuda.device_count = lambda: 0
        places = ["rank:0/cpu", "rank:1/cpu"]
        shared = sharded_tensor.zeros(ChunkShardingSpec(0, places), 3, 2)
        own = shared.local_tensor()
        own.copy_(torch.arange(own.numel()).view(own.shape) + 10 * rank)
        whole = torch.full((3, 2), -1.0) if rank == 1 else None
        shared.gather(1, whole)
        return None if whole is None else whole.tolist()

    assert run_group(work, 2) == [None, [[0.0, 1.0], [2.0, 3.0], [10.0, 11.0]]]


BY_NAME = """
import sys, torch, torch.distributed as dist
assert not [name for name in sys.modules if name.startswith("collops.torch.")]
dist.init_process_group("collops", store=dist.HashStore(), rank=0, world_size=1)
print(type(dist.group.WORLD).__module__)
dist.destroy_process_group()
"""


def test_torch_knows_the_name_without_an_import() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BY_NAME],
        capture_output=True,
        text=True,
        timeout=patience(60),
    )
    assert (done.returncode, done.stdout) == (0, "collops.torch.group\n"), done.stderr


_FIRST_CALL = """
import sys, torch, torch.distributed as dist
dist.init_process_group("collops", store=dist.HashStore(), rank=0, world_size=1)
before = set(sys.modules)
dist.all_reduce(torch.ones(2))
print(sorted(set(sys.modules) - before))
"""


def test_the_first_call_imports_nothing() -> None:
    """numpy.ma alone would take longer than connecting the ranks."""
    command = [sys.executable, "-c", _FIRST_CALL]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(60))
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize("way", ["env", "tcp", "file", "hash"])
def test_the_ways_to_meet(way: str, tmp_path: Path) -> None:
    port = free_port()
    methods = {"env": "env://", "tcp": f"tcp://127.0.0.1:{port}", "file": f"file://{tmp_path}/s"}
    size = 1 if way == "hash" else 2

    def work(rank: int) -> float:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        place = {"rank": rank, "world_size": size}
        if way == "hash":
            dist.init_process_group("collops", store=dist.HashStore(), **place)
        else:
            dist.init_process_group("collops", init_method=methods[way], **place)
        found = total()
        dist.destroy_process_group()
        return found

    assert run_ranks(work, size) == [size * (size + 1) / 2] * size


def test_groups_in_turn_on_one_store(tmp_path: Path) -> None:
    """As torchrun's, which is there as long as the job: a rank must not read of the last turn."""

    def work(rank: int) -> list[float]:
        store = dist.FileStore(f"{tmp_path}/one", 2)
        found = []
        for turn in range(3):
            if rank == 0:
                store.get(f"turn {turn} has begun")
            store.set(f"turn {turn} has begun", "")
            dist.init_process_group(
                "collops",
                store=store,
                rank=rank,
                world_size=2,
                timeout=timedelta(seconds=patience(20)),
            )
            found.append(total())
            dist.destroy_process_group()
        return found

    assert run_ranks(work, 2) == [[3.0] * 3] * 2


def test_processes_that_no_launcher_started_meet_by_the_store(tmp_path: Path) -> None:
    def work(rank: int) -> float:
        for name in ("RANK", "WORLD_SIZE", "COLLOPS_JOB_ID", "COLLOPS_RANK", "COLLOPS_RANK_SIZE"):
            os.environ.pop(name, None)
        dist.init_process_group(
            "collops", init_method=f"file://{tmp_path}/s", rank=1 - rank, world_size=2
        )
        found = total() + 10 * dist.get_rank()
        dist.destroy_process_group()
        return found

    assert run_ranks(work, 2) == [13.0, 3.0]


def test_new_groups() -> None:
    def work(rank: int) -> list[Any]:
        found: list[Any] = []
        for ranks in ([0, 2], [1, 2, 3], [3]):
            group = dist.new_group(ranks)
            found.append(total(group) if rank in ranks else None)
        group, _ = dist.new_subgroups(2)
        found.append(total(group))
        dist.destroy_process_group(group)
        return [*found, total()]

    assert run_group(work, 4) == [
        [4.0, None, None, 3.0, 10.0],
        [None, 9.0, None, 3.0, 10.0],
        [4.0, 9.0, None, 7.0, 10.0],
        [None, 9.0, 4.0, 7.0, 10.0],
    ]


def test_a_new_group_without_the_other_ranks() -> None:
    def work(rank: int) -> float | None:
        if rank == 1:
            return None
        limit = timedelta(seconds=patience(20))
        group = dist.new_group([0, 2], use_local_synchronization=True, timeout=limit)
        assert group.communicator.timeout_s == patience(20)
        return total(group)

    assert run_group(work, 3) == [4.0, None, 4.0]


def test_a_collops_group_in_a_gloo_world_and_the_reverse() -> None:
    def work(rank: int, other: str) -> list[Any]:
        group = dist.new_group([0, 1], backend=other)
        name = dist.get_backend(group) if rank < 2 else None
        return [total(group) if rank < 2 else None, total(), name]

    for backend, other in (("gloo", "collops"), ("collops", "gloo")):
        found = run_group(work, 3, other, backend=backend)
        assert found[:2] == [[3.0, 6.0, other]] * 2
        assert found[2] == [None, 6.0, None]


def test_split_group_is_a_method() -> None:
    def work(rank: int) -> list[Any]:
        group, found = default_group(), []
        for ranks in ([2, 0], [1, 2]):
            part = group.split_group(ranks)
            x = torch.tensor([float(rank)])
            outs = [torch.zeros(1) for _ in ranks]
            if part is not None:
                part.allgather([outs], [x]).wait()
                part.shutdown()
            found.append([float(out) for out in outs] if part is not None else None)
        return found

    assert run_group(work, 3) == [
        [[2.0, 0.0], None],
        [None, [1.0, 2.0]],
        [[2.0, 0.0], [1.0, 2.0]],
    ]


def test_split_group() -> None:
    def work(rank: int) -> list[Any]:
        if torch.__version__ < "2.15":
            with pytest.raises(RuntimeError, match="No device associated with the default pg"):
                dist.split_group(split_ranks=[[2, 0], [1]])
            return []
        limit = timedelta(seconds=patience(20))
        group = dist.split_group(split_ranks=[[2, 0], [1]], timeout=limit, group_desc="a part")
        assert isinstance(group, collops.torch.Group) and group.group_desc == "a part"
        assert group.options._timeout == limit and group.bound_device_id is None
        found = [dist.get_process_group_ranks(group), group.rank(), total(group)]
        dist.destroy_process_group(group)
        return [*found, total()]

    expected = [[[2, 0], 1, 4.0, 6.0], [[1], 0, 2.0, 6.0], [[2, 0], 0, 4.0, 6.0]]
    assert run_group(work, 3) == (expected if torch.__version__ >= "2.15" else [[], [], []])


def test_monitored_barrier_is_a_method() -> None:
    def work(rank: int) -> str:
        default_group().monitored_barrier(timedelta(seconds=patience(20)))
        if torch.__version__ >= "2.14":
            dist.monitored_barrier()
        else:
            with pytest.raises(ValueError, match="only implemented for GLOO"):
                dist.monitored_barrier()
        return "passed"

    assert run_group(work, 2) == ["passed"] * 2


def test_debug_detail_puts_no_wrapper_around_it(tmp_path: Path) -> None:
    def work(rank: int) -> float:
        dist.set_debug_level(dist.DebugLevel.DETAIL)
        dist.init_process_group(
            "collops", init_method=f"file://{tmp_path}/s", rank=rank, world_size=2
        )
        default_group()
        found = total()
        dist.destroy_process_group()
        return found

    assert run_ranks(work, 2, env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}) == [3.0] * 2


def test_functional_collectives_and_device_mesh() -> None:
    def work(rank: int) -> list[Any]:
        import torch.distributed._functional_collectives as functional
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor

        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        x = torch.arange(8.0) + 10 * rank
        found = [functional.all_reduce(x, "sum", mesh["tp"]).tolist()]
        found.append(functional.all_gather_tensor(x, 0, mesh["dp"]).tolist())
        found.append(functional.reduce_scatter_tensor(x, "sum", 0, mesh["tp"]).tolist())
        out, name = torch.zeros(16), mesh["dp"].get_group().group_name
        gathered = torch.ops._c10d_functional.all_gather_into_tensor_out(x, 2, name, out=out)
        assert functional.wait_tensor(gathered).tolist() == found[1]  # what inductor makes of it
        whole = torch.arange(24.0).reshape(6, 4)
        split = distribute_tensor(whole, mesh, [Shard(0), Shard(1)])
        again = split.redistribute(mesh, [Replicate(), Replicate()]).to_local()
        return [*found, torch.equal(again, whole), split.to_local().sum().item()]

    def expected(rank: int) -> list[Any]:
        pair, column = rank // 2 * 2, rank % 2
        sums = [2.0 * n + 10 * (2 * pair + 1) for n in range(8)]
        gathered = [n + 10.0 * r for r in (column, column + 2) for n in range(8)]
        rows, columns = (
            slice(3 * (rank // 2), 3 * (rank // 2) + 3),
            slice(2 * column, 2 * column + 2),
        )
        part = torch.arange(24.0).reshape(6, 4)[rows, columns].sum().item()
        return [sums, gathered, sums[4 * column : 4 * column + 4], True, part]

    assert run_group(work, 4) == [expected(rank) for rank in range(4)]


def test_the_last_calls() -> None:
    def work(rank: int) -> list[str]:
        for n in range(20):
            dist.all_reduce(torch.ones(n, 2))
        dist.barrier()
        return collops.torch.last_calls()

    for lines in run_group(work, 2):
        assert len(lines) == 16
        assert lines[-2:] == ["20 all_reduce [19, 2] float32", "21 barrier"]


def test_the_last_calls_have_the_names_of_torch() -> None:
    def work(rank: int) -> list[str]:
        x, whole, parts = torch.ones(2), torch.ones(4), [torch.ones(2), torch.ones(2)]
        dist.all_gather(parts, x)
        dist.all_gather_into_tensor(whole, x)
        dist.reduce_scatter(x, parts)
        dist.reduce_scatter_tensor(x, whole)
        dist.gather(x, parts if rank == 0 else None)
        dist.scatter(x, parts if rank == 0 else None)
        dist.all_to_all_single(torch.ones(2), x)
        dist.all_to_all([torch.ones(2), torch.ones(2)], parts)
        return [line.split()[1] for line in collops.torch.last_calls()]

    names = "all_gather all_gather_into_tensor reduce_scatter reduce_scatter_tensor gather scatter"
    assert run_group(work, 2) == [[*names.split(), "all_to_all_single", "all_to_all"]] * 2


def test_the_last_calls_have_the_operators_in_order() -> None:
    def work(rank: int) -> list[str]:
        dist.all_reduce(torch.ones(2))
        x = torch.ones(rank + 1, 3, requires_grad=True)
        collops.torch.all_gatherv(x, [1, 2]).sum().backward()
        collops.torch.all_reduce(torch.ones(4))
        dist.barrier()
        return collops.torch.last_calls()

    _, lines = run_group(work, 2)
    assert lines == [
        "1 all_reduce [2] float32",
        "2 collops.torch.all_gatherv [2, 3] float32",
        "3 collops.torch.reduce_scatterv [3, 3] float32",
        "4 collops.torch.all_reduce [4] float32",
        "5 barrier",
    ]


def test_public_names_have_examples() -> None:
    values = [getattr(collops.torch, name) for name in collops.torch.__all__]
    assert [value for value in values if ">>>" not in (value.__doc__ or "")] == []
