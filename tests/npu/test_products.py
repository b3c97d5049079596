"""LinearParallel on NPU tensors: what aclnn's products may give, and workspaces that torch hands
out."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import collops
from collops.npu_check.checks import float_sums
from collops.npu_check.command import run_part
from collops.testing import RankErrors, run_ranks
from tests.devices.product_ranks import HCCL, LIMIT_S, Kind, Product, check, product

SLOW = {"COLLOPS_SIM_DELAY_US": "2000"}


def summed(npu: Any, dtype: str, depth: int, **env: str) -> None:
    """Compares products which need float32 sums, as `collops npu-check` does."""
    narrow = np.float16 if dtype == "float16" else ml_dtypes.bfloat16
    assert HCCL.run(npu, 2, lambda rank: float_sums(rank, 2, depth, narrow), **env) == ["", ""]


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("library", ["", "right", "rounded", "refused"])
def test_float32_sums_from_every_library(npu: Any, library: str, dtype: str, depth: int) -> None:
    summed(npu, dtype, depth, COLLOPS_SIM_MATMUL_FLOAT_OUT=library)


@pytest.mark.parametrize("soc", ["Ascend910B", "Ascend310P3"])
def test_float32_sums_where_no_operand_may_be_float32(npu: Any, soc: str) -> None:
    for depth in (1, 2):
        summed(npu, "float16", depth, COLLOPS_SIM_SOC=soc)
    with pytest.raises(RankErrors, match="cubeMathType 0 is not for float32 on this device"):
        summed(npu, "float16", 2, COLLOPS_SIM_SOC=soc, COLLOPS_SIM_MATMUL_FLOAT_OUT="rounded")


def test_the_library_is_asked_while_a_stream_is_captured_too(npu: Any) -> None:
    """The capture goes on: captured() checks how it ends."""

    def work(rank: int) -> int:
        kind = collops.ParallelType.LINEAR_ALL_REDUCE
        op = collops.Operation(collops.LinearParallelParam(rank=rank, rank_size=2, type=kind))
        x, out = (npu.tensor(np.ones((1, k), np.float16)) for k in (2, 1))
        with npu.captured(npu.stream()) as graph:
            size = op.get_workspace_size([x, x], [out])
        graph.destroy()
        return size

    assert min(HCCL.run(npu, 2, work)) > 0


def test_operators_in_several_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In programs of their own: the loader reads where libraries are when a program begins."""
    split = Path(os.environ["COLLOPS_SIM_CANN"]) / "split" / "lib64"
    (tmp_path / "libopapi.so").symlink_to(split / "libopapi.so")
    found = []
    for folder in (split, tmp_path):
        paths = [str(folder), os.environ["COLLOPS_SIM_CANN"]]
        monkeypatch.setenv("LD_LIBRARY_PATH", os.pathsep.join(paths))
        part = ["linear_parallel.0", "--ranks", "2", "--seconds", str(LIMIT_S)]
        found.append(run_part("checks", part, LIMIT_S))
    assert found[0]["state"] == "passed", found
    assert found[1]["state"] == "not supported", found
    said = re.findall(r"(lib\w+\.so): (undefined|cannot open)", found[1]["text"])
    names = ["opapi_nn", "opapi_math", "aclnn_ops_infer", "aclnn_math"]
    absent = [(f"lib{name}.so", "cannot open") for name in names]
    assert said == [("libopapi.so", "undefined"), *absent]


@pytest.mark.parametrize("kind", [Kind.LINEAR_ALL_REDUCE, Kind.PURE_LINEAR])
def test_leaves_are_refused_before_anything_is_sent(npu: Any, kind: Kind) -> None:
    """Whether HCCL adds or not: aclnn's products are none in ascending k."""
    case = product(kind, [2, 2], k=4, sum_leaves=4)
    why = "it does not sum leaves: aclnn's products do not add in ascending k, and HCCL adds in"

    def work(rank: int) -> bool:
        with pytest.raises(NotImplementedError, match=re.escape(why)):
            Product(npu, case, rank, **HCCL.fields)
        return True

    assert run_ranks(work, 2) == [True] * 2


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
