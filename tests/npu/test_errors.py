"""Errors of HCCL and the runtime become codes of collops, with number, name, call and text."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import collops
from collops.testing import run_ranks
from tests.npu.npu_ranks import error_of


def gather_operation(rank: int, ranks: int = 2) -> collops.Operation:
    return collops.Operation(collops.AllGatherVParam(rank=rank, rank_size=ranks))


def test_an_answer_of_hccl_ends_the_communicator(npu: Any) -> None:
    def work(rank: int) -> collops.Error:
        npu.choose(rank)
        op = gather_operation(rank)
        npu.gather(op, rank, 2)
        error = error_of(lambda: npu.gather(op, rank, 2))
        assert "this communicator has ended" in error_of(lambda: npu.gather(op, rank, 2)).message
        return error

    # Whether the second rank still comes to its own call or hears of the first one's, it fails.
    env = {"COLLOPS_SIM_FAIL": "HcclAllGatherV:2:9"}
    errors = run_ranks(work, 2, env=env)
    said = "HcclAllGatherV returned 9 (HCCL_E_TIMEOUT): EI9999: simulated CANN: HcclAllGatherV was"
    heard = [error for error in errors if said in error.message]
    assert heard
    for error in heard:
        assert error.message.startswith("AllGatherV: HcclAllGatherV returned")
        assert error.code == 100
        assert type(error) is collops.errors.RankTimeoutError


def test_an_answer_of_the_runtime(npu: Any) -> None:
    def work(rank: int) -> collops.Error:
        npu.choose(rank)
        op = collops.Operation(collops.ReduceScatterVParam(rank=rank, rank_size=2))
        counts = np.array([2, 1])
        ins = [npu.tensor(np.ones((4, 1), np.float32)), counts, np.array([0, 2])]
        y = np.empty(3, np.float16)
        return error_of(lambda: op.forward([*ins, counts[rank : rank + 1], y]))

    for error in run_ranks(work, 2, env={"COLLOPS_SIM_FAIL": "aclrtMemsetAsync:1:200000"}):
        assert error.code == 26
        said = "ReduceScatterV: aclrtMemsetAsync returned aclError 200000: EI9999: simulated"
        assert error.message.startswith(said)


def test_rank_0_without_a_root_info_fails_all_ranks(npu: Any) -> None:
    def work(rank: int) -> tuple[int, str, list[int]]:
        npu.choose(rank)
        op = gather_operation(rank)
        error = error_of(lambda: npu.gather(op, rank, 2))
        return error.code, error.message, npu.gather(op, rank, 2)

    own, other = run_ranks(work, 2, env={"COLLOPS_SIM_FAIL": "HcclGetRootInfo:1:7"})
    assert own[0] == 25
    assert own[1].startswith("AllGatherV: HcclGetRootInfo returned 7 (HCCL_E_UNAVAIL): EI9999")
    assert other[0] == 102
    assert "HcclGetRootInfo returned 7" in other[1]
    assert own[2] == other[2] == npu.gathered(2)


def test_a_rank_that_cannot_join_leaves_the_others_to_hccls_time_out(npu: Any) -> None:
    def work(rank: int) -> tuple[int, str]:
        import os

        if rank == 1:
            os.environ["COLLOPS_SIM_FAIL"] = "HcclCommInitRootInfoConfig:1:11"
        npu.choose(rank)
        error = error_of(lambda: npu.gather(gather_operation(rank), rank, 2))
        return error.code, error.message

    late, failed = run_ranks(work, 2, env={"HCCL_CONNECT_TIMEOUT": "1"})
    # HCCL waits in vain, unless the news came before it began to.
    if "(reported by rank 1)" not in late[1]:
        assert late[0] == 100
        assert "HcclCommInitRootInfoConfig returned 9 (HCCL_E_TIMEOUT)" in late[1]
    assert failed[0] == 25
    assert "HcclCommInitRootInfoConfig returned 11 (HCCL_E_TCP_CONNECT)" in failed[1]
    assert "; HCCL_IF_BASE_PORT chooses the ports on the host (60000 to 60031)" in failed[1]


def test_a_tensor_on_another_device_names_both(npu: Any) -> None:
    def work(rank: int) -> list[tuple[int, str]]:
        npu.choose(rank)
        op = gather_operation(rank)
        x, counts, displs = np.ones(1, np.float32), np.array([1, 1]), np.array([0, 1])
        npu.choose(3)
        there = npu.tensor(x)
        out_there = npu.poisoned((2,), there)
        npu.choose(rank)
        here = npu.tensor(x)
        out_here = npu.poisoned((2,), here)
        rest = [counts[:1], counts, displs, np.empty(2, np.float16)]
        calls = [([there, *rest], out_here), ([here, *rest], out_there), ([x, *rest], out_here)]
        errors = [error_of(lambda c=c: op.get_workspace_size(c[0], [c[1]])) for c in calls]
        return [(error.code, error.message) for error in errors]

    for rank, errors in enumerate(run_ranks(work, 2)):
        assert [code for code, _ in errors] == [14, 14, 14]
        assert f"x is on npu:3, but the communicator is on npu:{rank}" in errors[0][1]
        assert f"the output is on npu:3, but the communicator is on npu:{rank}" in errors[1][1]
        assert "x is on cpu; this backend moves NPU tensors" in errors[2][1]


def test_what_hccl_has_not_is_unsupported_and_ends_nothing(npu: Any) -> None:
    def work(rank: int) -> list[Any]:
        npu.choose(rank)
        comm = collops.init(backend="hccl")
        x = npu.tensor(np.ones((2, 2), np.float32))
        small = npu.tensor(np.ones((2, 2), np.uint8))
        calls = [
            lambda: comm.empty((2,), np.int8),
            lambda: comm.all_reduce(x, op="avg"),
            lambda: comm.all_reduce(small),
            lambda: comm.reduce_scatterv(x, [2, 0] if rank < 2 else [], op="prod"),
            lambda: comm.recv(x, None if rank == 0 else 0, tag=1),
            lambda: comm.matmul_reduce_scatter(x, x, op="avg"),
        ]
        errors = [error_of(call) for call in calls]
        assert {error.code for error in errors} == {103}
        return [[error.message for error in errors], npu.array(comm.all_reduce(x)).tolist()]

    for messages, total in run_ranks(work, 2):
        windows, average, small, uneven, tagged, product = messages
        assert "backend hccl has no windows" in windows
        assert "HCCL has no avg; it takes sum, prod, max and min" in average
        assert "HCCL does not reduce uint8" in small
        assert "HCCL does not scatter the prod in parts of uneven size" in uneven
        assert "HCCL has no tags: use tag 0, got 1" in tagged
        assert "averages are not computed on a device" in product
        assert total == [[2.0, 2.0], [2.0, 2.0]]


def test_an_internal_format_is_refused(npu: Any, torch_module: Any) -> None:
    def work(rank: int) -> list[tuple[int, str]]:
        npu.choose(rank)
        torch_module.npu.config.allow_internal_format = True
        torch_npu = sys.modules["torch_npu"]
        op = gather_operation(rank)
        nz, shape = 29, (32, 32)
        strange = torch_npu.empty_with_format(
            shape, dtype=torch_module.float16, device="npu", acl_format=nz
        )
        counts, y = np.array([1, 1]), np.empty(32, np.float16)
        plain = torch_module.empty(shape, dtype=torch_module.float16, device="npu")
        rest = [counts[:1], counts, np.array([0, 1]), y]
        calls = [([strange, *rest], plain), ([plain, *rest], strange)]
        errors = [error_of(lambda c=c: op.get_workspace_size(c[0], [c[1]])) for c in calls]
        return [(error.code, error.message) for error in errors]

    for x, output in run_ranks(work, 2):
        assert x[0] == output[0] == 13
        assert "x has format fractal_nz" in x[1]
        assert "format fractal_nz" in output[1]
