"""vLLM's and SGLang's uneven calls, on classes with the signatures that the engines publish."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

import collops  # noqa: E402
from collops.torch import Group  # noqa: E402
from collops.torch.serving import (  # noqa: E402
    SglangCollectives,
    SglangCommunicator,
    VllmCollectives,
    collops_group,
)
from tests.torch.groups import run_group  # noqa: E402

UNEVEN = [[3, 0], [0, 0], [1, 4], [2, 2], None]


class DeviceCommunicatorBase:
    """The members of vLLM's class that a communicator of CPU ranks relies on."""

    def __init__(
        self,
        cpu_group: Any,
        device: Any = None,
        device_group: Any = None,
        unique_name: str = "",
        global_ranks: list[int] | None = None,
        global_world_size: int | None = None,
    ) -> None:
        self.cpu_group, self.device_group = cpu_group, device_group
        self.world_size = dist.get_world_size(cpu_group)
        self.rank_in_group = dist.get_group_rank(cpu_group, dist.get_rank())

    def all_gatherv(self, input_: Any, dim: int = 0, sizes: list[int] | None = None) -> Any:
        raise NotImplementedError

    def reduce_scatterv(self, input_: Any, dim: int = -1, sizes: list[int] | None = None) -> Any:
        raise NotImplementedError


class VllmCommunicator(VllmCollectives, DeviceCommunicatorBase):
    pass


class GroupCoordinator:
    """The members of SGLang's class that the two calls rely on."""

    def __init__(self, ranks: list[int]) -> None:
        self.ranks = ranks
        self.cpu_group = self.device_group = dist.group.WORLD
        self.pynccl_comm = SglangCommunicator(self.cpu_group)


class SglangCoordinator(SglangCollectives, GroupCoordinator):
    pass


def rows_of(rank: int, count: int, width: int, dtype: Any = torch.float32) -> Any:
    """Rows that differ by rank and position."""
    return (torch.arange(count * width).view(count, width) * 3 + 100 * rank).to(dtype)


def hidden_parts(rank: int, count: int) -> list[Any]:
    """What a manager of experts gathers: hidden states, weights, ids, and one flag a row."""
    return [
        rows_of(rank, count, 5, torch.bfloat16),
        rows_of(rank, count, 2),
        rows_of(rank, count, 2, torch.int64),
        rows_of(rank, count, 1, torch.int32)[:, 0] % 2 == 0,
    ]


def own_size(sizes: list[int] | None, rank: int) -> int:
    return 2 if sizes is None else sizes[rank]


def check_gathers(gather: Any, rank: int, size: int) -> None:
    """Gathers of lists and of one tensor; None and equal sizes too."""
    for sizes in UNEVEN:
        full = None if sizes is None else (sizes * size)[:size]
        every = [hidden_parts(r, own_size(full, r)) for r in range(size)]
        got = gather(every[rank], full)
        assert [y.dtype for y in got] == [y.dtype for y in every[rank]]
        for column, y in zip(zip(*every, strict=True), got, strict=True):
            assert torch.equal(y, torch.cat(column))
            assert y.is_contiguous()
        [alone] = gather([every[rank][1]], full)
        assert torch.equal(alone, got[1])


def check_scatter(scatter: Any, rank: int, size: int, dim: int) -> None:
    for sizes in UNEVEN:
        full = [2] * size if sizes is None else (sizes * size)[:size]
        shape = [2, 3, 4]
        shape[dim] = sum(full)
        count = shape[0] * shape[1] * shape[2]
        xs = [torch.arange(float(count)).view(shape) * (r + 1) for r in range(size)]
        begin = [0, *accumulate(full)][rank]
        got = scatter(xs[rank], None if sizes is None else full)
        assert torch.equal(got, sum(xs).narrow(dim, begin, full[rank]))
        assert got.is_contiguous()


@pytest.mark.parametrize(("backend", "size"), [("gloo", 2), ("collops", 3)])
def test_vllm(backend: str, size: int) -> None:
    def work(rank: int) -> list[Any]:
        vllm = VllmCommunicator(dist.group.WORLD, device=torch.device("cpu"))
        check_gathers(lambda xs, sizes: vllm.all_gatherv(xs, dim=0, sizes=sizes), rank, size)
        one = vllm.all_gatherv(rows_of(rank, rank, 4), 0, list(range(size)))
        assert torch.equal(one, torch.cat([rows_of(r, r, 4) for r in range(size)]))
        for dim in (0, 1, 2, -1, -3):
            check_scatter(
                lambda x, sizes, dim=dim: vllm.reduce_scatterv(x, dim=dim, sizes=sizes),
                rank,
                size,
                dim,
            )
        again = VllmCommunicator(dist.group.WORLD)
        same = again.collops_group is vllm.collops_group
        return [
            same,
            vllm.collops_group is dist.group.WORLD,
            isinstance(again.collops_group, Group),
        ]

    assert run_group(work, size, backend=backend) == [[True, backend == "collops", True]] * size


def test_a_list_is_one_call() -> None:
    def work(rank: int) -> list[str]:
        vllm = VllmCommunicator(dist.group.WORLD)
        comm, calls = vllm.collops_group.communicator, []
        level = type(comm)
        for name in ("all_gather", "all_gatherv"):
            called = getattr(level, name)

            def counted(*args: Any, name: str = name, called: Any = called) -> Any:
                calls.append(name)
                return called(*args)

            setattr(level, name, counted)
        vllm.all_gatherv(hidden_parts(rank, rank), 0, [0, 1])
        vllm.all_gatherv(hidden_parts(rank, 2), 0, [2, 2])
        vllm.all_gatherv(hidden_parts(rank, 2))
        return calls

    assert run_group(work, 2) == [["all_gatherv", "all_gather", "all_gather"]] * 2


def test_one_rank_gets_its_input_back() -> None:
    def work(rank: int) -> list[bool]:
        vllm = VllmCommunicator(dist.group.WORLD)
        x = torch.ones(3, 2)
        xs = [x, x]
        return [vllm.all_gatherv(xs) is xs, vllm.reduce_scatterv(x, 0, [3]) is x]

    assert run_group(work, 1, backend="gloo") == [[True, True]]


def test_groups_of_some_ranks_make_siblings_alone() -> None:
    def work(rank: int) -> list[Any]:
        halves = [dist.new_group([0, 2]), dist.new_group([1])]
        mine = halves[rank % 2]
        if rank == 1:  # the other group's sibling needs nothing of this rank
            return [0]
        vllm = VllmCommunicator(mine)
        y = vllm.all_gatherv(rows_of(rank, rank, 1), 0, [0, 2])
        return [vllm.collops_group.size(), *y[:, 0].tolist()]

    assert run_group(work, 3, backend="gloo") == [[2, 200, 203], [0], [2, 200, 203]]


def test_sglang() -> None:
    def work(rank: int) -> None:
        coordinator = SglangCoordinator([0, 1])
        check_gathers(coordinator.all_gatherv, rank, 2)
        [one] = coordinator.all_gatherv(rows_of(rank, 1 + rank, 3), sizes=[1, 2])
        assert torch.equal(one, torch.cat([rows_of(0, 1, 3), rows_of(1, 2, 3)]))
        check_scatter(lambda x, sizes: coordinator.reduce_scatterv(x, sizes=sizes), rank, 2, 0)
        out = torch.empty(rank, 2)
        same = coordinator.reduce_scatterv(torch.full((1, 2), rank + 1.0), out, sizes=[0, 1])
        assert same is out
        assert (out == 3).all()

    assert run_group(work, 2, backend="gloo") == [None] * 2


def test_sglangs_communicator() -> None:
    def work(rank: int) -> list[Any]:
        pynccl = SglangCoordinator([0, 1]).pynccl_comm
        out = torch.zeros(3, 2)
        with pynccl.change_state(enable=True):
            pynccl.group_start()
            pynccl.all_gather(out, rows_of(rank, 1 + rank, 2), sizes=[1, 2])
            pynccl.group_end()
        result = [torch.equal(out, torch.cat([rows_of(0, 1, 2), rows_of(1, 2, 2)]))]
        whole = (torch.arange(3) - 7 * rank).view(3, 1)
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.AVG):
            own = torch.empty(2 - rank, 1, dtype=torch.int64)
            pynccl.reduce_scatter(own, whole, op, sizes=[2, 1])
            result.append(own[:, 0].tolist())
        even = torch.empty(1, 2)
        pynccl.reduce_scatter(even, torch.ones(2, 2))
        with pynccl.change_state(enable=False):
            pynccl.reduce_scatter(even, torch.ones(2, 2))
        return [*result, even.tolist(), pynccl.rank, pynccl.world_size, pynccl.disabled]

    first = [True, [-7, -5], [0, 1], [-3, -2], [[2.0, 2.0]], 0, 2, False]
    second = [True, [-3], [2], [-1], [[2.0, 2.0]], 1, 2, False]
    assert run_group(work, 2, backend="gloo") == [first, second]


def message_of(call: Any, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(collops.Error) as caught:
        call(*args, **kwargs)
    return str(caught.value)


def test_what_is_refused() -> None:
    def work(rank: int) -> list[str]:
        vllm = VllmCommunicator(dist.group.WORLD)
        x = torch.ones(2, 3)
        return [
            message_of(vllm.all_gatherv, x, dim=1),
            message_of(vllm.all_gatherv, x, sizes=[1, 1]),
            message_of(vllm.all_gatherv, [x, x], sizes=[1, 3]),
            message_of(vllm.all_gatherv, [x, x[:1]]),
            message_of(vllm.reduce_scatterv, x, dim=2),
            message_of(vllm.reduce_scatterv, x, dim=0, sizes=[1, 2]),
            message_of(SglangCommunicator, dist.group.WORLD, "meta"),
            message_of(collops_group, None),
        ]

    for said in run_group(work, 2):
        for text, words in zip(
            said,
            [
                "all_gatherv: dim must be 0, got 1",
                "sizes",
                "sizes",
                "tensor 1 of the list has 1 rows, tensor 0 has 2",
                "dim must be from -2 to 1, got 2",
                "sizes",
                "the device must be a CPU, GPU or NPU, got meta",
                "no group was given",
            ],
            strict=True,
        ):
            assert words in text
