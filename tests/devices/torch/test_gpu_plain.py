"""The plain level and Operation on CUDA tensors of torch: calls are on torch's streams."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

import collops
import collops.torch as ct
from collops.testing import run_ranks
from tests.devices.torch.device_groups import BACKENDS, STRICT, choose, on, run_device_group
from tests.devices.torch.simulated_torch import held

_SIZES = [1, 2]
_WHOLE = [0.0, 1.0, 10.0, 11.0, 12.0, 13.0]


def _rows(rank: int) -> torch.Tensor:
    return (torch.arange(2.0 * _SIZES[rank]).view(-1, 2) + 10 * rank).cuda()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_call_is_on_the_current_stream(backend: str) -> None:
    def work(rank: int) -> tuple[bool, bool, list[float]]:
        choose(rank)
        with collops.init(backend=backend) as comm:
            x, stream = _rows(rank), torch.cuda.Stream()
            comm.all_gatherv(x, _SIZES)  # connects
            torch.cuda.synchronize()
            with torch.cuda.stream(stream), held(stream):
                whole = comm.all_gatherv(x, _SIZES)
                waits = not stream.query()
            others = bool(torch.cuda.current_stream().query())
            torch.cuda.synchronize()
            return waits, others, whole.flatten().tolist()

    assert run_ranks(work, 2, env=STRICT) == [(True, True, _WHOLE)] * 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_operation_takes_a_stream(backend: str) -> None:
    def work(rank: int) -> tuple[bool, bool, list[float]]:
        choose(rank)
        param = collops.AllGatherParam(rank=rank, rank_size=2, backend=backend)
        operation = collops.Operation(param)
        stream, x = torch.cuda.Stream(), _rows(0) + rank
        whole = torch.zeros(2, 1, 2).cuda()
        workspace = torch.empty(0, dtype=torch.uint8).cuda()
        operation.get_workspace_size([x], [whole])
        operation.execute([x], [whole], workspace, stream=stream)  # connects
        whole.zero_()
        torch.cuda.synchronize()
        with held(stream):
            operation.execute([x], [whole], workspace, stream=stream)
            waits = not stream.query()
            others = bool(torch.cuda.current_stream().query())
        torch.cuda.synchronize()
        return waits, others, whole.flatten().tolist()

    assert run_ranks(work, 2, env=STRICT) == [(True, True, [0.0, 1.0, 1.0, 2.0])] * 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_averages_and_bits_are_the_cores_own(backend: str) -> None:
    """A sum of float16 would be infinite; and bits, which NCCL itself does not reduce."""

    def work(rank: int) -> list[list[float]]:
        x = torch.full((3,), 60000.0 + 32 * rank, dtype=torch.float16).cuda()
        bits = torch.tensor([12 + rank, 7 << rank], dtype=torch.int32).cuda()
        own = ct.all_reduce(x, "avg")
        dist.all_reduce(x, dist.ReduceOp.AVG)
        dist.all_reduce(bits, dist.ReduceOp.BAND)
        return [x.tolist(), own.tolist(), bits.tolist()]

    whole = [60032.0] * 3  # of 60000 and 60032; float16 has multiples of 32 there, ties go to even
    assert run_device_group(work, 2, env=on(backend)) == [[whole, whole, [12, 6]]] * 2


def test_a_disagreement_on_the_device_is_named_in_the_next_call() -> None:
    """The backend cuda compares calls in its kernels, after they have returned."""

    def goes_on() -> float:
        x = torch.ones(1).cuda()
        dist.all_reduce(x)
        return float(x.item())

    def work(rank: int) -> str:
        assert goes_on() == 2
        dist.all_reduce(torch.ones(rank + 1).cuda())
        torch.cuda.synchronize()
        with pytest.raises(collops.RankMismatchError) as error:
            goes_on()
        return str(error.value)

    for message in run_device_group(work, 2, env=on("cuda")):
        assert "elements is 1 on rank 0" in message and "2 on rank 1" in message, message
