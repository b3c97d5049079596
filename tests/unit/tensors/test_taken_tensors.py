"""Tensors that torch alone would object to: parameters without gradients, and none at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks

torch = pytest.importorskip("torch", reason="torch is not installed here: its tests are skipped")

MODES = {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode}


def parameter(*values: float) -> Any:
    return torch.nn.Parameter(torch.tensor(values, dtype=torch.float32).reshape(2, -1))


@pytest.mark.parametrize("mode", MODES)
def test_a_parameter_without_gradients(mode: str) -> None:
    def work(rank: int) -> list[Any]:
        comm = collops.init()
        x = parameter(rank, 1, 2, 3)
        weight = parameter(1, 0, 0, 1 + rank)
        with MODES[mode]():
            op = collops.Operation(collops.AllReduceParam(hccl_comm=comm, rank=rank, backend="shm"))
            results = [
                op.forward([x])[0],
                comm.all_gatherv(x),
                comm.all_gatherv(x, [2, 2], 1),
                comm.reduce_scatterv(x, dim=1),
                comm.matmul_all_reduce(x, weight),
            ]
            started = [
                comm.start("all_gatherv", x, [2, 2], 1),  # its copy is made by wait()
                comm.start("matmul_all_reduce", x, weight),  # runs in a thread without this mode
            ]
            out = torch.nn.Parameter(torch.zeros(2, 4))
            started.append(comm.start("all_gatherv", x, [2, 2], 1, out))
        results += [call.wait() for call in started]
        assert results[-1] is out
        return [result.detach().tolist() for result in results]

    total = [[1.0, 2.0], [4.0, 6.0]]
    side = [[0.0, 1.0, 1.0, 1.0], [2.0, 3.0, 2.0, 3.0]]
    product = [[1.0, 3.0], [4.0, 9.0]]
    for rank, got in enumerate(run_ranks(work, 2)):
        assert got[0] == total
        assert got[1] == [[0.0, 1.0], [2.0, 3.0], [1.0, 1.0], [2.0, 3.0]]
        assert got[3] == [[row[rank]] for row in total]
        assert got[2] == got[5] == got[7] == side
        assert got[4] == got[6] == product


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int8", "bool", "complex64"])
def test_a_rank_with_no_rows_has_a_window_too(name: str) -> None:
    def work(rank: int) -> list[Any]:
        comm = collops.init()
        x = comm.empty((2 * rank, 3), getattr(torch, name))
        x[:] = rank
        sizes = comm.empty((0,), np.int16)
        return [str(x.dtype), tuple(x.shape), comm.all_gatherv(x).shape, sizes.dtype.name]

    for rank, got in enumerate(run_ranks(work, 2)):
        assert got == [f"torch.{name}", (2 * rank, 3), (2, 3), "int16"]
