"""LinearParallel on NPU tensors: both ways of aclnnMatmul, and workspaces that torch hands out."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from collops.golden.cases import all_cases

import collops
from collops.testing import run_ranks
from tests.devices.product_ranks import HCCL, Kind, Product, check, product, run_cases

SLOW = {"COLLOPS_SIM_DELAY_US": "2000"}


@pytest.mark.parametrize("direct", ["0", "1"])
def test_what_aclnn_matmul_may_give(npu: Any, direct: str) -> None:
    """float32 for no product of two bytes, or for all; conformance has it for float16 alone."""
    cases = all_cases("linear_parallel", rank_sizes=(3,), text="exact")
    run_cases(npu, cases, HCCL, COLLOPS_SIM_MATMUL_FLOAT_OUT=direct)


def test_two_calls_on_two_streams(npu: Any, torch_module: ModuleType) -> None:
    """Workspaces are freed, and taken and filled by others, once the calls have returned."""
    kinds = (Kind.LINEAR_REDUCE_SCATTER, Kind.ALL_GATHER_LINEAR)
    cases = [product(kind, [4, 4], has_residual=True) for kind in kinds]

    def work(rank: int) -> list[list[Any]]:
        torch, found = torch_module, []
        calls = [
            Product(npu, case, rank, **HCCL.fields | {"comm_domain": case.name}) for case in cases
        ]
        for seed in range(4):
            outputs = []
            for call in calls:
                stream, ins = (
                    torch.npu.Stream(),
                    [npu.tensor(array, call.case.dtype) for array in call.arrays(seed)],
                )
                torch.npu.synchronize()
                with torch.npu.stream(stream):
                    outputs.append(call.op.forward(ins))
                    for tensor in ins:
                        tensor.record_stream(stream)
            rest = [torch.full((1 << 14,), 9.0).npu() for _ in range(8)]
            torch.npu.synchronize()
            assert len(rest) == 8
            found.append([[npu.array(output) for output in own] for own in outputs])
        return found

    found = HCCL.run(npu, 2, work, **SLOW)
    for seed in range(4):
        for number, case in enumerate(cases):
            check(case, [own[seed][number] for own in found], seed)


def test_a_product_is_planned_for_the_npu_that_was_chosen_last(
    npu: Any, torch_module: ModuleType
) -> None:
    """The operation is made before; its sizes are asked for before the ranks are connected."""

    def work(rank: int) -> list[float]:
        kind = collops.ParallelType.LINEAR_ALL_REDUCE
        op = collops.Operation(
            collops.LinearParallelParam(rank=rank, rank_size=2, trans_weight=False, type=kind)
        )
        npu.choose(rank)
        x, weight = npu.tensor(np.ones((1, 3), np.float32)), npu.tensor(np.eye(3, dtype=np.float32))
        out = npu.poisoned((1, 3), x)
        bytes_ = op.get_workspace_size([x, weight], [out])
        workspace = torch_module.empty(bytes_, dtype=torch_module.uint8, device="npu")
        op.execute([x, weight], [out], workspace)
        return [float(value) for value in npu.array(out).reshape(-1)]

    assert run_ranks(work, 2) == [[2, 2, 2]] * 2
