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
        self.device = device or torch.device("cpu")
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


@pytest.mark.parametrize(("backend", "size"), [("gloo", 2), ("collops", 3)])
def test_vllms_even_calls(backend: str, size: int) -> None:
    def work(rank: int) -> None:
        vllm = VllmCommunicator(dist.group.WORLD)
        xs = [rows_of(r, 2, 6).view(2, 3, 2) for r in range(size)]
        given = xs[rank].clone()
        total = vllm.all_reduce(given)
        assert torch.equal(total, sum(xs))
        assert torch.equal(given, xs[rank])  # torch.compile is told so
        turned = xs[rank].transpose(0, 2)
        assert torch.equal(vllm.all_reduce(turned), sum(xs).transpose(0, 2))
        for dim in (0, 1, 2, -1):
            whole = torch.cat(xs, dim)
            got = vllm.all_gather(xs[rank], dim)
            assert torch.equal(got, whole)
            assert got.is_contiguous()
            on_last = vllm.gather(xs[rank], size - 1, dim)
            assert on_last is None if rank < size - 1 else torch.equal(on_last, whole)
            wide = torch.cat([x * (rank + 1) for x in xs], dim)
            part = vllm.reduce_scatter(wide, dim)
            assert torch.equal(part, xs[rank] * sum(range(size + 1)))
        root = size - 1
        sent = xs[rank].transpose(0, 1).clone()
        strided = torch.zeros(2, 3, 2).transpose(0, 1)
        strided.copy_(sent)
        for x in (sent, strided):
            assert vllm.broadcast(x, root) is x
            assert torch.equal(x, xs[root].transpose(0, 1))

    run_group(work, size, backend=backend)


def test_vllms_memory_for_a_sum() -> None:
    def work(rank: int) -> list[Any]:
        vllm = VllmCommunicator(dist.group.WORLD)
        cpu = torch.device("cpu")
        places = set()
        for rows in (6, 4, 6):
            buffer = vllm.get_symmetric_memory_buffer("sum", (rows, 2), torch.float32, cpu)
            places.add(buffer.data_ptr())
            buffer.copy_(rows_of(rank, rows, 2))
            sizes = [rows - 1, 1]
            out = torch.empty(sizes[rank], 2)
            assert vllm.reduce_scatterv_into_output(buffer, out, 0, sizes) is out
            both = rows_of(0, rows, 2) + rows_of(1, rows, 2)
            assert torch.equal(out, both.split(sizes)[rank])
        turned = torch.empty(2, sizes[rank])
        vllm.reduce_scatterv_into_output(buffer.t(), turned, -1, sizes)
        assert torch.equal(turned, out.t())
        meta = vllm.get_symmetric_memory_buffer("sum", (1,), torch.float32, torch.device("meta"))
        return [len(places), meta]

    assert run_group(work, 2) == [[1, None]] * 2


def test_vllms_messages() -> None:
    def work(rank: int) -> Any:
        vllm = VllmCommunicator(dist.group.WORLD)
        x = rows_of(rank, 2, 3)
        if rank == 0:
            vllm.send(x.t())
            vllm.send_tensor_dict({"x": x, "flag": True, "empty": x[:0], "ids": x[0].long()}, 1)
            return None
        got = vllm.recv(torch.Size([3, 2]), torch.float32)
        values = vllm.recv_tensor_dict(0)
        return got.tolist(), {
            name: value.tolist() if isinstance(value, torch.Tensor) else value
            for name, value in values.items()
        }

    _, (got, values) = run_group(work, 2)
    x = rows_of(0, 2, 3)
    assert got == x.t().tolist()
    assert values == {"x": x.tolist(), "flag": True, "empty": [], "ids": [0, 3, 6]}


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
        same = [vllm.all_gatherv(xs) is xs]
        same += [vllm.reduce_scatterv(x, 0, [3]) is x, vllm.all_reduce(x) is x]
        same += [vllm.all_gather(x) is x, vllm.gather(x) is x, vllm.broadcast(x) is x]
        out = vllm.reduce_scatterv_into_output(x, torch.empty(3, 2), 0, [3])
        return [*same, torch.equal(out, x)]

    assert run_group(work, 1, backend="gloo") == [[True] * 7]


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
        whole = torch.empty(3, 3)
        [same] = coordinator.all_gatherv(rows_of(rank, 1 + rank, 3), [1, 2], whole)
        assert same is whole
        assert torch.equal(whole, one)

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


def test_sglangs_communicators_other_calls() -> None:
    def work(rank: int) -> list[Any]:
        pynccl = SglangCommunicator(dist.group.WORLD)
        x = rows_of(rank, 2, 2)
        total = x.clone()
        pynccl.all_reduce(total)
        most = pynccl.outplace_all_reduce(x, op=dist.ReduceOp.MAX)
        same = torch.empty(2, 2)
        result = [total.tolist(), most.tolist(), pynccl.outplace_all_reduce(x, same) is same]
        ids = torch.tensor([rank, 3])
        pynccl.all_reduce(ids, dist.ReduceOp.AVG)
        result.append(ids.tolist())
        with pynccl.use_symmetric_memory(None, disabled=False):
            swapped = torch.empty(2, 2)
        pynccl.all_to_all_single(swapped, x)
        result.append(swapped.tolist())
        pynccl.broadcast(x, 1)
        result.append(x.tolist())
        if rank == 0:
            pynccl.send(same, 1)
        else:
            got = torch.empty(2, 2)
            pynccl.recv(got, 0)
            assert torch.equal(got, same)
        with pynccl.change_state(enable=False):
            pynccl.all_reduce(x)
            result.append(pynccl.outplace_all_reduce(x))
        return result

    total, most = [[100, 106], [112, 118]], [[100, 103], [106, 109]]
    same = [total, most, True, [0, 3]]
    assert run_group(work, 2, backend="gloo") == [
        [*same, [[0, 3], [100, 103]], most, None],
        [*same, [[6, 9], [106, 109]], most, None],
    ]


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
            message_of(vllm.all_gather, x, dim=2),
            message_of(SglangCoordinator([0, 1]).all_gatherv, [x, x], None, x),
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
                "all_gather: dim must be from -2 to 1, got 2",
                "output goes with one tensor, got a list of 2",
                "the device must be a CPU, GPU or NPU, got meta",
                "no group was given",
            ],
            strict=True,
        ):
            assert words in text
