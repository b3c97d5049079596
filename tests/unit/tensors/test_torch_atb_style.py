"""Code written for torch_atb runs after `import collops as torch_atb`, with no other edit.

Here CPU tensors take the place of NPU ones, and COLLOPS_BACKEND that of the struct's "hccl".
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import collops as torch_atb
from collops.testing import run_ranks
from patience import patience

torch = pytest.importorskip("torch", reason="torch is not installed here: its tests are skipped")

HCCL = {"COLLOPS_BACKEND": "hccl=shm"}


def test_reduce_scatter_v() -> None:
    def run(rank: int, rank_size: int) -> Any:
        reduce_scatter_v_param = torch_atb.ReduceScatterVParam(
            rank=rank,
            rank_size=rank_size,
            rank_root=0,
            send_counts=[4, 2],
            sdispls=[0, 4],
            recv_count=[4, 2][rank],
            reduce_type="sum",
            backend="hccl",
            comm_mode=torch_atb.CommMode.COMM_MULTI_PROCESS,
        )
        op = torch_atb.Operation(reduce_scatter_v_param)
        assert (op.name, op.input_num, op.output_num) == ("ReduceScatterV", 5, 1)
        x = torch.arange(6, dtype=torch.float16).reshape(3, 2) * (rank + 1)
        send_counts = torch.tensor([4, 2], dtype=torch.int64)
        sdispls = torch.tensor([0, 4], dtype=torch.int64)
        recv_count = torch.tensor([[4, 2][rank]], dtype=torch.int64)
        y = torch.empty([2, 1][rank], dtype=torch.float16)
        outputs = op.forward([x, send_counts, sdispls, recv_count, y])
        again = op.forward([x, send_counts, sdispls, recv_count, y])
        assert type(outputs) is list
        assert len(outputs) == 1
        assert again[0] is not outputs[0]
        assert again[0].data_ptr() != outputs[0].data_ptr()
        return outputs[0].dtype, outputs[0].tolist(), again[0].tolist()

    first, second = run_ranks(run, 2, 2, env=HCCL)
    assert first == (torch.float16, [[0.0, 3.0], [6.0, 9.0]], [[0.0, 3.0], [6.0, 9.0]])
    assert second == (torch.float16, [[12.0, 15.0]], [[12.0, 15.0]])


def test_all_gather_v() -> None:
    def run(rank: int) -> Any:
        param = torch_atb.AllGatherVParam(rank=rank, rank_size=2, comm_domain="dp")
        x = torch.full((rank + 1, 3), rank, dtype=torch.bfloat16)
        counts = torch.tensor([3, 6])
        ins = [x, counts[rank : rank + 1], counts, torch.tensor([0, 3]), torch.empty(3).half()]
        [out] = torch_atb.Operation(param).forward(ins)
        return out.dtype, out[:, 0].tolist()

    assert run_ranks(run, 2, env=HCCL) == [(torch.bfloat16, [0.0, 1.0, 1.0])] * 2


def test_failures_are_runtime_errors_as_in_torch_atb() -> None:
    def run(rank: int) -> str:
        op = torch_atb.Operation(torch_atb.AllGatherVParam(rank=rank, rank_size=2))
        try:
            op.forward([torch.zeros(2)])
        except RuntimeError as error:
            return str(error)
        return ""

    for message in run_ranks(run, 2, env=HCCL):
        assert "ERROR_INVALID_IN_TENSOR_NUM" in message


PROGRAM = """
import torch
import torch.multiprocessing as mp
import collops as torch_atb

def worker(rank, size):
    param = torch_atb.ReduceScatterVParam(rank=rank, rank_size=size, comm_domain="tp")
    op = torch_atb.Operation(param)
    counts = torch.tensor([2, 1])
    tensors = [torch.ones(3, 1), counts, torch.tensor([0, 2]), counts[rank].reshape(1),
               torch.empty(2 - rank, dtype=torch.float16)]
    out = op.forward(tensors)[0]
    assert torch.equal(out, torch.full((2 - rank, 1), 2.0)), out

if __name__ == "__main__":
    mp.spawn(worker, args=(2,), nprocs=2)
    print("both ranks are right")
"""


def test_a_program_that_spawns_its_ranks(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(path)],
        env={**os.environ, **HCCL},
        capture_output=True,
        text=True,
        timeout=patience(100),
        check=False,
    )
    assert done.stdout == "both ranks are right\n", done.stderr
