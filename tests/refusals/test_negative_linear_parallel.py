"""What LinearParallel refuses, from Python: code and message for its lines of the table."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import collops
from collops import ParallelType, TwoDimTPInfo
from collops import TensorDesc as Desc
from collops.testing import run_ranks

Tensors = list[Any]
Change = Callable[[Tensors, Tensors], None]
GRID = TwoDimTPInfo(ag_dim=2, rs_dim=1)
FIELDS: dict[str, Any] = {
    "rank": 0,
    "rank_size": 2,
    "backend": "shm",
    "type": ParallelType.ALL_GATHER_LINEAR_REDUCE_SCATTER,
    "two_dim_tp_info": GRID,
    "has_residual": True,
}


def operation(**fields: Any) -> collops.Operation:
    """Rank 0 of 2, which both gather."""
    return collops.Operation(collops.LinearParallelParam(**{**FIELDS, **fields}))


def tensors(rank: int = 0) -> tuple[Tensors, Tensors]:
    """A right call: x [3, 4], weight [5, 4], residual [5]; output [6, 5]."""
    x = np.arange(12, dtype=np.float32).reshape(3, 4) + 100 * rank
    weight = np.arange(20, dtype=np.float32).reshape(5, 4) - rank
    return [x, weight, np.ones(5, np.float32)], [np.full((6, 5), -7, np.float32)]


def put(position: int, value: Any) -> Change:
    def change(ins: Tensors, outs: Tensors) -> None:
        ins[position] = value

    return change


def put_out(value: Any) -> Change:
    def change(ins: Tensors, outs: Tensors) -> None:
        outs[:] = [value]

    return change


def refused(call: Callable[[], Any], code: int, message: str) -> None:
    with pytest.raises(collops.Error) as caught:
        call()
    assert message in caught.value.message
    assert caught.value.message.startswith("LinearParallel")
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rank_size": 1}, "rankSize must be >= 2, got 1"),
        ({"rank": 2}, "rank must be in [0, 2), got 2"),
        ({"rank_root": 2}, "rankRoot must be in [0, 2), got 2"),
        ({"comm_mode": 2}, "commMode must be 0 (COMM_MULTI_PROCESS) or 1"),
        ({"backend": "gloo"}, 'unknown backend "gloo"; pass "hccl", "lccl", "lcoc", "mc2"'),
        ({"comm_domain": "d" * 129}, "commDomain has 129 characters"),
        ({"rsv": bytes(51) + b"\1"}, "rsv"),
        ({"rank_table_file": "/no/such"}, 'rankTableFile "/no/such"'),
        ({"type": -1}, "type must be in [0, 4], got -1"),
        ({"type": 5}, "type 5 (ALLTOALLVC_ALL_GATHER_GMM) multiplies for a mixture of experts"),
        ({"type": 6}, "type 6 (GMM_REDUCE_SCATTER_ALLTOALLVC)"),
        ({"type": 7}, "type must be in [0, 4], got 7"),
        ({"quant_type": 0}, "quantType 0 (QUANT_TYPE_PER_TENSOR) asks for a quantised product"),
        ({"quant_type": 3}, "quantType 3 (QUANT_TYPE_PER_TOKEN)"),
        ({"keep_intermediate": True}, "keepIntermediate needs type 2 (ALL_GATHER_LINEAR)"),
        ({"backend": "mc2"}, 'backend "mc2" takes no hasResidual'),
        ({"backend": "mc2", "has_residual": False}, "takes no commMode but 1"),
        ({"backend": "mc2", "has_residual": False, "comm_mode": 1}, "takes no type but 1"),
    ],
)
def test_creation_is_refused(fields: dict[str, Any], message: str) -> None:
    refused(lambda: operation(**fields), 1, message)


@pytest.mark.parametrize("backend", ["hccl", "lccl", "lcoc", "mc2"])
def test_atbs_backends_are_hccl(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {"backend": backend, "type": 1, "has_residual": False, "comm_mode": 1, "rank_size": 3}
    with pytest.raises(collops.UnsupportedError, match=r"libhccl\.so"):
        operation(**fields)
    monkeypatch.setenv("COLLOPS_BACKEND", "hccl=shm")
    assert operation(**fields).name == "LinearParallel"


def test_an_environment_of_hccl_only_says_what_lcoc_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLLOPS_BACKEND", "lcoc=shm")
    assert operation(backend="lcoc").name == "LinearParallel"


SHAPES: list[tuple[Change, int, str]] = [
    (lambda ins, outs: ins.pop(), 5, "needs 3 inputs, got 2"),
    (put(1, Desc((1,) * 9, "float32")), 8, "weight has 9 dims, the limit is 8"),
    (put(0, Desc((2**30, 2**30), "float32")), 9, "over the limit of 256 GB"),
    (put(0, Desc((3, 0), "float32")), 9, "x has size 0 in dim 1 of [3, 0]"),
    (put(0, Desc((3, 4), "int8")), 13, "x is int8; pass one of float32, float16, bfloat16"),
    (put(1, Desc((5, 4), "float64")), 13, "weight is float64"),
    (put(1, Desc((5, 4), "bfloat16")), 13, "weight is bfloat16 but x is float32"),
    (put(2, Desc((5,), "float16")), 13, "residual is float16 but x is float32"),
    (put(1, Desc((5, 4), "float32", "fractal_nz")), 13, "weight has format fractal_nz"),
    (put(0, Desc((12,), "float32")), 8, "x must have 2 or 3 dims, got 1"),
    (put(1, Desc((1, 1, 5, 4), "float32")), 8, "weight must have 2 or 3 dims, got 4"),
    (put(2, Desc((1, 1, 5), "float32")), 8, "residual must have 1 or 2 dims, got 3"),
    (put(0, Desc((3, 7), "float32")), 8, "x has k = 7 columns but weight [5, 4] has 4 columns"),
    (put(1, Desc((2, 5, 4), "float32")), 8, "must have 1 matrix in dim 0, got 2"),
    (put(2, Desc((2, 5), "float32")), 8, "residual must be [5] or [1, 5], got [2, 5]"),
]
read_only = np.empty((6, 5), np.float32)
read_only.flags.writeable = False
CALLS: list[tuple[Change, int, str]] = [
    (lambda ins, outs: outs.clear(), 5, "needs 1 output, got 0"),
    (put_out(np.empty(30, np.float32)), 8, "the output must have 2 dims"),
    (put_out(np.empty((5, 6), np.float32)), 8, "must have shape [6, 5], got [5, 6]"),
    (put_out(np.empty((6, 5))), 13, "the output must be float32"),
    (put_out(read_only), 14, "the output is read-only"),
    (put_out(np.empty((5, 6), np.float32).T), 14, "the output is not contiguous"),
    (put(1, np.zeros((4, 5), np.float32).T), 14, "weight is not contiguous: pass .contiguous()"),
    (put(2, np.zeros(5, ">f4")), 14, "residual is not in this machine's byte order"),
]


@pytest.mark.parametrize(("change", "code", "message"), SHAPES, ids=lambda v: str(v)[:40])
def test_infer_shape_refuses(change: Change, code: int, message: str) -> None:
    ins, outs = tensors()
    change(ins, outs)
    op = operation()
    refused(lambda: op.infer_shape(ins), code, message)
    refused(lambda: op.get_workspace_size(ins, outs), code, message)


@pytest.mark.parametrize(("change", "code", "message"), CALLS, ids=lambda v: str(v)[:40])
def test_get_workspace_size_refuses(change: Change, code: int, message: str) -> None:
    ins, outs = tensors()
    change(ins, outs)
    op = operation()
    refused(lambda: op.get_workspace_size(ins, outs), code, message)


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"two_dim_tp_info": TwoDimTPInfo(ag_dim=2, rs_dim=2)}, 1, "must be rankSize 2"),
        ({"two_dim_tp_info": TwoDimTPInfo()}, 1, "agDim 0 * rsDim 0 must be rankSize 2"),
        ({"gather_rows": [3]}, 1, "gatherRows must have 2 entries, one per member"),
        ({"gather_rows": [3, -1]}, 1, "gatherRows[1] must be >= 0, got -1"),
        ({"gather_rows": [4, 3]}, 1, "gatherRows[0] is 4 but x of this rank 0 has 3 rows"),
        ({"gather_rows": [3, 2**63 - 1]}, 1, "the sum of gatherRows up to [1]"),
        ({"gather_rows": [3, 9], "scatter_rows": [11]}, 1, "scatterRows have a sum of 11 but"),
        ({"scatter_rows": [3, 3]}, 1, "scatterRows must have 1 entries"),
        ({"type": 0, "gather_rows": [3]}, 1, "gatherRows must be empty for type 0"),
        ({"type": 3, "scatter_rows": [3]}, 1, "scatterRows must be empty for type 3"),
        ({"type": 1}, 8, "3 rows in dim 0 do not divide by 2 ranks: give scatterRows"),
        ({"trans_weight": False}, 8, "weight [5, 4] has 5 rows; with transWeight false"),
        ({"out_data_type": 1}, 13, "outDataType is 1 (float16) but x is float32"),
    ],
)
def test_fields_that_infer_shape_refuses(fields: dict[str, Any], code: int, message: str) -> None:
    op = operation(**fields)
    refused(lambda: op.infer_shape(tensors()[0]), code, message)


def test_a_wrong_list_is_mended_by_update() -> None:
    op = operation(gather_rows=[4, 3])
    refused(lambda: op.infer_shape(tensors()[0]), 1, "gatherRows[0] is 4")
    op.update(collops.LinearParallelParam(**FIELDS, gather_rows=[3, 9]))
    assert op.infer_shape(tensors()[0]) == [Desc((12, 5), "float32")]


def test_prepack_refuses() -> None:
    op = operation()
    refused(lambda: op.prepack(np.zeros((5, 4))), 13, "weight is float64")
    refused(lambda: op.prepack(np.zeros((4, 5), np.float32).T), 14, "weight is not contiguous")
    refused(lambda: op.prepack(Desc((5, 4), "float32")), 14, "weight of shape [5, 4]")
    with pytest.raises(collops.Error, match="prepack\\(\\) is for operators with a weight"):
        collops.Operation(collops.AllGatherVParam(rank=0, rank_size=2, backend="shm")).prepack(1)


def planless(op: collops.Operation, ins: Tensors, outs: Tensors) -> None:
    op.execute([ins[0][:2], *ins[1:]], outs)


def no_workspace(op: collops.Operation, ins: Tensors, outs: Tensors) -> None:
    op.execute(ins, outs)


def wrong_forward(op: collops.Operation, ins: Tensors, outs: Tensors) -> None:
    op.forward([ins[0].astype(np.float64), *ins[1:]])


FAULTS: dict[str, tuple[Callable[..., None], int, str]] = {
    "planless": (planless, 1, "none of the 1 kept plans has the shapes"),
    "workspace": (no_workspace, 22, "the workspace has 0 bytes, the call needs"),
    "forward": (wrong_forward, 13, "x is float64"),
}


def fault_of_rank_1(rank: int, name: str) -> tuple[Any, ...]:
    fault, _, message = FAULTS[name]
    op = operation(rank=rank)
    ins, outs = tensors(rank)
    op.get_workspace_size(ins, outs)
    try:
        fault(op, ins, outs) if rank == 1 else op.forward(ins)
    except collops.Error as error:
        found = (error.code, message in error.message)
    [after] = op.forward(ins)
    return (*found, after.tolist())


@pytest.mark.parametrize("name", FAULTS)
def test_a_rank_that_fails_its_check_refuses(name: str) -> None:
    good, bad = run_ranks(fault_of_rank_1, 2, name)
    x = np.concatenate([tensors(0)[0][0], tensors(1)[0][0]])
    for rank, (code, found, after) in enumerate([good, bad]):
        assert (code, found) == ((102, FAULTS[name][1])[rank], True)
        assert after == (x @ tensors(rank)[0][1].T + 1).tolist()


def pure_linear(rank: int) -> tuple[int, Any]:
    op = operation(rank=rank, type=ParallelType.PURE_LINEAR)
    ins, outs = tensors(rank)
    code = 0
    if rank == 1:
        with pytest.raises(collops.Error) as caught:
            planless(op, ins, outs)
        code = caught.value.code
    return code, op.forward(ins)[0].tolist()


def test_the_type_without_communication_refuses_for_itself() -> None:
    for rank, (code, after) in enumerate(run_ranks(pure_linear, 2)):
        x, weight, residual = tensors(rank)[0]
        assert code == rank
        assert after == (x @ weight.T + residual).tolist()


def disagree(rank: int, odd: int, fields: dict[str, Any], ins: Any) -> list[tuple[int, str]]:
    """What a rank hears of a call in which rank `odd` has other fields or inputs, and of a next."""
    values = {**FIELDS, **fields.get("all", {}), "rank": rank}
    if rank == odd:
        values.update({name: value for name, value in fields.items() if name != "all"})
    given = ins if rank == odd and ins is not None else tensors(rank)[0]
    op = collops.Operation(collops.LinearParallelParam(**values))
    heard = []
    for _ in range(2):
        with pytest.raises(collops.Error) as caught:
            op.forward(given)
        heard.append((caught.value.code, caught.value.message))
    return heard


def wider(k: int, n: int, rows: int = 3, dtype: Any = np.float32) -> Tensors:
    return [np.zeros((rows, k), dtype), np.zeros((n, k), dtype), np.zeros(n, dtype)]


def check_disagreement(results: Any, odd: int, words: list[str]) -> None:
    """All ranks hear the same: both ranks and values. The communicator takes no more calls."""
    for (code, message), (next_code, next_message) in results:
        assert code == next_code == 102
        assert len(set(re.findall(r"on rank (\d+)", message))) == 2, message
        assert f"on rank {odd}" in message
        assert [word for word in words if word not in message] == [], message
        assert "has ended" in next_message


@pytest.mark.parametrize("fused", ["1", "0"])
@pytest.mark.parametrize(
    ("fields", "ins", "words"),
    [
        ({"type": 0}, None, ["type is", "4", "0"]),
        ({"type": 2}, None, ["type is", "4", "2"]),
        ({"two_dim_tp_info": TwoDimTPInfo(ag_dim=1, rs_dim=2)}, wider(4, 5, 6), ["agDim is"]),
        (
            {"two_dim_tp_info": TwoDimTPInfo(ag_dim=2, rs_dim=1, inner_dim_is_ag=0)},
            None,
            ["innerDimIsAg is"],
        ),
        ({"rank_root": 1}, None, ["rankRoot is"]),
        ({}, wider(7, 5), ["k is", "7", "4"]),
        ({}, wider(4, 6), ["n is", "6", "5"]),
        ({}, wider(4, 5, dtype=np.float16), ["dtype is", "float16", "float32"]),
        ({"gather_rows": [3, 4]}, wider(4, 5, 4), ["the sum of the rows is", "7", "6"]),
        (
            {"gather_rows": [2, 4], "all": {"gather_rows": [3, 3]}},
            wider(4, 5, 4),
            ["gatherRows[0] is", "2", "3"],
        ),
    ],
)
def test_ranks_that_disagree(
    fields: dict[str, Any], ins: Any, words: list[str], fused: str
) -> None:
    results = run_ranks(disagree, 2, 1, fields, ins, env={"COLLOPS_FUSED": fused})
    check_disagreement(results, 1, words)


FOUR = {"rank_size": 4, "two_dim_tp_info": TwoDimTPInfo(ag_dim=2, rs_dim=2)}


@pytest.mark.parametrize("fused", ["1", "0"])
@pytest.mark.parametrize(
    ("fields", "ins", "words"),
    [
        ({"type": 2}, None, ["type is", "4", "2"]),
        ({"two_dim_tp_info": TwoDimTPInfo(ag_dim=4, rs_dim=1)}, None, ["agDim is", "4", "2"]),
        (
            {"two_dim_tp_info": TwoDimTPInfo(ag_dim=2, rs_dim=2, inner_dim_is_ag=0)},
            None,
            ["innerDimIsAg is"],
        ),
        ({}, wider(7, 5), ["k is", "7", "4"]),
        ({}, wider(4, 6), ["n is", "6", "5"]),
        ({}, wider(4, 5, dtype=np.float16), ["dtype is", "float16", "float32"]),
        ({"gather_rows": [5, 3]}, None, ["the sum of the rows is", "8", "6"]),
        # Only rank 0 has the list of the one, and only rank 3 that of the other.
        ({"gather_rows": [2, 4]}, wider(4, 5, 4), ["gatherRows[0] is", "2", "3"]),
        ({"scatter_rows": [1, 5]}, None, ["scatterRows[0] is", "1", "3"]),
    ],
)
def test_ranks_outside_the_group_hear_of_a_disagreement(
    fields: dict[str, Any], ins: Any, words: list[str], fused: str
) -> None:
    fields = {**fields, "all": FOUR}
    results = run_ranks(disagree, 4, 1, fields, ins, env={"COLLOPS_FUSED": fused})
    check_disagreement(results, 1, words)
