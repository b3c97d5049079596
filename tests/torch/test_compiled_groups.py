"""A group inside torch.compile: calls that it does not trace act as without it."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.distributed.nn.functional as differentiable  # noqa: E402
from torch.distributed.fsdp import FullyShardedDataParallel  # noqa: E402

import collops.torch as ct  # noqa: E402
from collops.torch import serving, uneven  # noqa: E402
from tests.torch.groups import default_group, run_group  # noqa: E402

importlib.import_module("torch._dynamo")  # once, not in each rank: it takes seconds

Case = Callable[[Any, int], Any]
ROWS = [3, 4]


def numbers(rank: int, *shape: int) -> Any:
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * 7 + rank * 3) % 11 + 1.0).view(shape)


def empty(*shape: int) -> Any:
    return torch.full(shape, -99.0)


class Engine(serving.VllmCollectives):
    def __init__(self) -> None:
        self.cpu_group = self.device_group = dist.group.WORLD


def _broadcast(x: Any, rank: int) -> Any:
    dist.broadcast(x, 1)
    return x


def _reduce(x: Any, rank: int) -> Any:
    dist.reduce(x, 0)
    return x


def _gather(x: Any, rank: int) -> Any:
    outs = [empty(4), empty(4)] if rank == 0 else None
    dist.gather(x, outs, 0)
    return torch.cat(outs or [x])


def _scatter(x: Any, rank: int) -> Any:
    out = empty(4)
    dist.scatter(out, [x, x + 1] if rank == 0 else None, 0)
    return out


def _lists(x: Any, rank: int) -> Any:
    out, outs = empty(4), [empty(4), empty(4)]
    dist.reduce_scatter(out, [x, x * 3])
    dist.all_to_all(outs, [out, out + 1])
    return torch.cat(outs)


def _asynchronous(x: Any, rank: int) -> Any:
    whole, outs = empty(8), [empty(4), empty(4)]
    works = [
        dist.all_reduce(x, async_op=True),
        dist.all_gather_into_tensor(whole, x, async_op=True),
        dist.all_gather(outs, x, async_op=True),
    ]
    assert works[0].wait() and works[0].is_completed()
    works[1].wait()
    future = works[2].get_future()
    future.wait()
    return torch.cat([x, whole, *outs])


def _messages(x: Any, rank: int) -> Any:
    outs = [empty(4), empty(4), empty(4)]
    if rank == 0:
        dist.send(x, 1)
    else:
        dist.recv(outs[0], 0)
    sent, received = dist.isend(x + 1, 1 - rank), dist.irecv(outs[1], 1 - rank)
    received.wait()
    sent.wait()
    batch = [dist.P2POp(dist.isend, x, 1 - rank), dist.P2POp(dist.irecv, outs[2], 1 - rank)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    return torch.cat(outs)


def _objects(x: Any, rank: int) -> Any:
    dist.barrier()
    every, one = [None, None], [rank + 2]
    dist.all_gather_object(every, {"rank": rank})
    dist.broadcast_object_list(one, 1)
    return x * one[0] + every[1]["rank"]


def _with_gradients(x: Any, rank: int) -> Any:
    x = x.detach().requires_grad_()
    total = differentiable.all_reduce(x * 2) + differentiable.broadcast(x, 1)
    (total * (rank + 1)).sum().backward()
    return torch.cat([x.grad, total.detach(), *differentiable.all_gather(x.detach())])


def _of_the_group(x: Any, rank: int) -> Any:
    group = default_group()
    options = dist.distributed_c10d.AllgatherOptions()
    outs = [group.windows.empty(4, torch.float32), empty(4)]
    group.allgather([outs], [x], options).wait()
    total = group.communicator.all_reduce(x)
    lines = ct.last_calls()
    return torch.cat([*outs, total]) * group.size() + len(lines[-1])


def _without_sizes(x: Any, rank: int) -> Any:
    own = numbers(rank, ROWS[rank], 2).requires_grad_()
    whole = ct.all_gatherv(own * 2)
    (whole * numbers(rank, 7, 2)).sum().backward()
    back = ct.all_to_allv(x, [1, 3])
    return torch.cat([whole.detach().view(-1), own.grad.view(-1), back])


def _served(x: Any, rank: int) -> Any:
    rows, whole = numbers(rank, ROWS[rank], 2), numbers(rank, 7, 2)
    own = ENGINE.reduce_scatterv(whole, 0, ROWS)
    every, counts = ENGINE.all_gatherv([rows, rows.int()], 0, ROWS)
    out = empty(7, 2)
    with COMMUNICATOR.change_state(True):
        COMMUNICATOR.all_gather(out, rows, sizes=ROWS)
    return torch.cat([own, every, counts, out])


def _uneven(x: Any, rank: int) -> Any:
    outs, out, own = [empty(3), empty(4)], empty(7), empty(ROWS[rank])
    UNEVEN.all_gather_v(outs, numbers(rank, ROWS[rank]), True).wait()
    uneven.all_gather_into_tensor_uneven(out, numbers(rank, ROWS[rank]), ROWS)
    uneven.reduce_scatter_tensor_uneven(own, numbers(rank, 7), ROWS)
    return torch.cat([*outs, out, own])


BROKEN: list[Case] = [
    *(_broadcast, _reduce, _gather, _scatter, _lists, _asynchronous, _messages, _objects),
    *(_with_gradients, _of_the_group, _without_sizes, _served, _uneven),
]
ENGINE: Any = None
COMMUNICATOR: Any = None
UNEVEN: Any = None


def _ends(rank: int, cases: list[Case]) -> dict[str, str]:
    global ENGINE, COMMUNICATOR, UNEVEN
    ENGINE, UNEVEN = Engine(), uneven.UnevenComm()
    COMMUNICATOR = serving.SglangCommunicator(dist.group.WORLD)
    found = {}
    for case in cases:

        def work(rank: int, case: Case = case) -> Any:
            return case(numbers(rank, 4) * 2, rank) + 1

        wanted = work(rank)
        torch._dynamo.reset()
        try:
            same = torch.equal(torch.compile(work, backend="eager")(rank), wanted)
            found[case.__name__] = "same" if same else "other values"
        except Exception as error:
            found[case.__name__] = f"{type(error).__name__}: {error}"
            break  # the other rank may be at another call
    return found


@pytest.mark.parametrize("first", range(0, len(BROKEN), 5))  # a loaded machine compiles slowly
def test_calls_that_are_not_traced(first: int) -> None:
    cases = BROKEN[first : first + 5]
    wanted = {case.__name__: "same" for case in cases}
    assert run_group(_ends, 2, cases) == [wanted] * 2


def _graph(x: Any, group: Any) -> Any:
    x = x * 2
    dist.all_reduce(x, group=group)
    whole, part = torch.empty(8), torch.empty(4)
    dist.all_gather_into_tensor(whole, x, group=group)
    dist.reduce_scatter_tensor(part, whole, group=group)
    return ct.all_gatherv(part, [4, 4], group=group) + 1


def _whole(rank: int) -> list[bool]:
    x = numbers(rank, 4)
    wanted = _graph(x, None)
    work = torch.compile(_graph, backend="aot_eager", fullgraph=True)
    return [torch.equal(work(x, group), wanted) for group in (None, default_group())]


def test_calls_that_are_traced_stay_in_the_graph() -> None:
    assert run_group(_whole, 2) == [[True, True]] * 2


def _of_groups(rank: int) -> list[list[float]]:
    alone = dist.new_group([rank], use_local_synchronization=True)
    work = torch.compile(lambda x, group: x * group.size() + group.rank(), backend="eager")
    return [work(torch.ones(2), group).tolist() for group in (default_group(), alone)]


def test_a_graph_is_of_one_group() -> None:
    assert run_group(_of_groups, 2) == [[[2.0, 2.0], [1.0, 1.0]], [[3.0, 3.0], [1.0, 1.0]]]


def _sharded(rank: int) -> list[bool]:
    losses = []
    for compiled in (False, True):
        torch.manual_seed(5)
        layers = torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)
        model = FullyShardedDataParallel(
            torch.nn.Sequential(*layers), device_id=torch.device("cpu"), use_orig_params=True
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step = torch.compile(model, backend="eager") if compiled else model
        for _ in range(2):
            loss = step(numbers(rank, 3, 4)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    return [losses[0] == losses[2], losses[1] == losses[3], losses[0] != losses[1]]


def test_fsdp1_in_compiled_code() -> None:
    assert run_group(_sharded, 2) == [[True] * 3] * 2
