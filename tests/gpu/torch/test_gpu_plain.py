"""The plain level and Operation on CUDA tensors of torch: calls are on torch's streams."""

from __future__ import annotations

import pytest
import torch
from gpu_groups import BACKENDS, STRICT, choose
from simulated_torch import held

import collops
from collops.testing import run_ranks

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
