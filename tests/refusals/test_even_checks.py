"""What creation, infer_shape and get_workspace_size of the even collectives refuse; all local."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import collops
from collops import TensorDesc as Desc

STRUCTS: dict[str, type[Any]] = {
    "AllGather": collops.AllGatherParam,
    "ReduceScatter": collops.ReduceScatterParam,
    "AllReduce": collops.AllReduceParam,
    "Broadcast": collops.BroadcastParam,
    "AllToAll": collops.AllToAllParam,
}
REDUCTIONS = {"ReduceScatter": "reduce_type", "AllReduce": "all_reduce_type"}
each = pytest.mark.parametrize("name", STRUCTS)
reducing = pytest.mark.parametrize("name", REDUCTIONS)
OUT_SHAPES = {
    "AllGather": (2, 4, 3),
    "ReduceScatter": (2, 3),
    "AllReduce": (4, 3),
    "AllToAll": (4, 3),
}


def create(name: str, **fields: Any) -> collops.Operation:
    """An operation of rank 0 of 2 with some other fields."""
    values = {"rank": 0, "rank_size": 2, "backend": "shm", "comm_domain": "even", **fields}
    return collops.Operation(STRUCTS[name](**values))


def refusal(name: str, **fields: Any) -> collops.Error:
    with pytest.raises(collops.Error) as caught:
        create(name, **fields)
    return caught.value


@each
def test_a_right_struct_is_taken_and_waits_for_no_one(name: str) -> None:
    op = create(name)
    assert (op.name, op.input_num, op.output_num) == (name, 1, 0 if name == "Broadcast" else 1)


@each
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rank_size": 1}, "rankSize must be >= 2, got 1"),
        ({"rank": 2}, "rank must be in [0, 2), got 2"),
        ({"rank_root": 9}, "rankRoot must be in [0, 2), got 9"),
        ({"rank_root": -1}, "rankRoot must be in [0, 2), got -1"),
        ({"comm_mode": 5}, "COMM_MULTI_THREAD), got 5"),
        ({"backend": "hccc"}, 'unknown backend "hccc"'),
        ({"backend": "lcoc"}, 'backend "lcoc" does not run this operator'),
        ({"backend": "mc2"}, 'backend "mc2" does not run this operator'),
        ({"comm_domain": "d" * 129}, "commDomain has 129 characters, the limit is 128"),
        ({"rsv": b"\1" + bytes(63)}, "rsv"),
        ({"rank_table_file": "/no/such/table.json"}, 'rankTableFile "/no/such/table.json"'),
    ],
)
def test_creation_is_refused(name: str, fields: dict[str, Any], message: str) -> None:
    error = refusal(name, **fields)
    assert (error.code, error.name) == (1, "ERROR_INVALID_PARAM")
    assert message in error.message
    assert error.message.startswith(name)


@reducing
@pytest.mark.parametrize("reduction", ["avg", "SUM", ""])
def test_unknown_reductions(name: str, reduction: str) -> None:
    error = refusal(name, **{REDUCTIONS[name]: reduction})
    assert error.code == 1
    assert f'must be "sum", "max", "min" or "prod", got "{reduction}"' in error.message


@reducing
def test_lccl_has_no_prod(name: str) -> None:
    error = refusal(name, backend="lccl", **{REDUCTIONS[name]: "prod"})
    assert error.code == 1
    assert '"prod" does not exist on backend "lccl": use "hccl"' in error.message


@pytest.mark.parametrize("quant_type", [1, 2, 3, -1])
def test_a_quantised_call_is_refused_by_name(quant_type: int) -> None:
    error = refusal("AllReduce", quant_type=quant_type, out_data_type=1)
    assert error.code == 1
    assert f"quantType {quant_type} asks for a quantised AllReduce" in error.message


@each
def test_both_of_atbs_backends_run_where_the_environment_says(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for backend in ("hccl", "lccl"):
        error = refusal(name, backend=backend)
        assert error.code == 103
        assert "libhccl.so" in error.message
    for value in ("shm", "hccl=shm", "lccl=shm"):
        monkeypatch.setenv("COLLOPS_BACKEND", value)
        assert create(name, backend="lccl").name == name


def call(name: str, x: Any = None) -> tuple[list[Any], list[Any]]:
    """A right call on x of [4, 3]."""
    x = np.arange(12, dtype=np.float32).reshape(4, 3) if x is None else x
    return [x], [np.empty(OUT_SHAPES[name], np.float32)] if name in OUT_SHAPES else []


@each
def test_shapes_that_follow(name: str) -> None:
    descs = create(name).infer_shape(call(name)[0])
    assert [tuple(desc.shape) for desc in descs] == [
        OUT_SHAPES[n] for n in (name,) if n in OUT_SHAPES
    ]
    assert all(desc.dtype == "float32" for desc in descs)


SHAPES: list[tuple[tuple[str, ...], Any, int, str]] = [
    (tuple(STRUCTS), Desc((1,) * 9, "float32"), 8, "x has 9 dims, the limit is 8"),
    (("AllGather",), Desc((1,) * 8, "float32"), 8, "x has 8 dims, the limit is 7"),
    (tuple(STRUCTS), Desc((), "float32"), 8, "x has 0 dims"),
    (tuple(STRUCTS), Desc((2, 0), "float32"), 9, "x has size 0 in dim 1"),
    (("AllGather",), Desc((0, 2), "float32"), 9, "the output has size 0 in dim 1"),
    (tuple(STRUCTS), Desc((2, 2**36), "float32"), 9, "over the limit of 256 GB"),
    (("AllGather",), Desc((2**34, 3), "float32"), 9, "the output of shape [2, "),
    (tuple(STRUCTS), Desc((4, 3), "uint32"), 13, "x is uint32; pass one of"),
    (tuple(REDUCTIONS), Desc((4, 3), "bool"), 13, "x is bool; pass one of"),
    (tuple(STRUCTS), Desc((4, 3), "float32", "fractal_nz"), 13, "x has format fractal_nz"),
    (("ReduceScatter",), Desc((5, 3), "float32"), 8, "x has 5 rows, which 2 ranks cannot share"),
    (("AllToAll",), Desc((5, 3), "float32"), 8, "x has 15 elements, which 2 ranks cannot share"),
]


@pytest.mark.parametrize(
    ("name", "x", "code", "message"),
    [(name, *others) for names, *others in SHAPES for name in names],
)
def test_shapes_that_are_refused(name: str, x: Any, code: int, message: str) -> None:
    op = create(name)
    for run in (op.infer_shape, lambda ins: op.get_workspace_size(ins, call(name)[1])):
        with pytest.raises(collops.Error) as caught:
            run([x])
        assert caught.value.code == code
        assert message in caught.value.message


@each
def test_the_number_of_tensors(name: str) -> None:
    ins, outs = call(name)
    for wrong in ([], [*ins, *ins]):
        with pytest.raises(collops.Error, match="needs 1 input") as caught:
            create(name).get_workspace_size(wrong, outs)
        assert caught.value.code == 5
    with pytest.raises(collops.Error, match=r"needs \d outputs?, got") as caught:
        create(name).get_workspace_size(ins, [*outs, np.empty(1)])
    assert caught.value.code == 5


@pytest.mark.parametrize("name", OUT_SHAPES)
def test_outputs_that_are_refused(name: str) -> None:
    ins, [out] = call(name)
    read_only = out.copy()
    read_only.flags.writeable = False
    for wrong, code, message in (
        (out.reshape(-1), 16, "the output must have"),
        (np.empty((9, *out.shape[1:]), np.float32), 8, "the output must have shape"),
        (out.astype("f8"), 13, "the output must be float32 as x"),
        (collops.with_format(out, "nhwc"), 13, "the output has format nhwc"),
        (read_only, 14, "the output is read-only"),
        (np.asfortranarray(np.repeat(out, 2, axis=0))[::2], 14, "the output is not contiguous"),
    ):
        with pytest.raises(collops.Error) as caught:
            create(name).get_workspace_size(ins, [wrong])
        assert (caught.value.code, message in caught.value.message) == (code, True), message


def test_memory_that_is_shared() -> None:
    memory = np.zeros(40, np.float32)
    x = memory[:12].reshape(4, 3)
    for name, out in (("AllGather", memory[:24]), ("ReduceScatter", memory[:6])):
        with pytest.raises(collops.Error, match="the output overlaps x in memory") as caught:
            create(name).get_workspace_size([x], [out.reshape(OUT_SHAPES[name])])
        assert caught.value.code == 14
    assert create("AllReduce").get_workspace_size([x], [x]) == 0
    with pytest.raises(collops.Error, match="the output overlaps x in memory"):
        create("AllReduce").get_workspace_size([x], [memory[3:15].reshape(4, 3)])


def test_broadcast_needs_an_x_that_may_be_written() -> None:
    [x], _ = call("Broadcast")
    x.flags.writeable = False
    with pytest.raises(collops.Error, match="x is read-only, but the call changes it") as caught:
        create("Broadcast").get_workspace_size([x], [])
    assert caught.value.code == 14


def test_transpose_is_for_matrices() -> None:
    op = create("AllToAll", transpose=True)
    assert [tuple(d.shape) for d in op.infer_shape([Desc((4, 6), "bool")])] == [(8, 3)]
    for shape, code, message in (
        ((4, 4, 4), 16, "x must have 2 dims with transpose, got 3 in shape [4, 4, 4]"),
        ((4, 3), 8, "x has 3 columns, which 2 ranks cannot share out evenly: pad x to 4 columns"),
    ):
        with pytest.raises(collops.Error) as caught:
            op.infer_shape([Desc(shape, "float32")])
        assert (caught.value.code, message in caught.value.message) == (code, True)


def test_hccl_has_no_transpose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLLOPS_BACKEND", "shm")
    error = refusal("AllToAll", backend="hccl", transpose=True)
    said = 'AllToAll: transpose does not exist on backend "hccl": use "lccl"'
    assert (error.code, error.message) == (1, said)
    assert create("AllToAll", backend="lccl", transpose=True).name == "AllToAll"


def infer(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch, **fields: Any) -> int:
    """The code of infer_shape, where the environment runs any backend on shm."""
    monkeypatch.setenv("COLLOPS_BACKEND", "shm")
    try:
        create(name, **fields).infer_shape([Desc((4, 3), dtype)])
    except collops.Error as error:
        return error.code
    return 0


@reducing
@pytest.mark.parametrize("dtype", ["int16", "bfloat16"])
def test_hccl_has_no_prod_of_short_types(
    name: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prod = {REDUCTIONS[name]: "prod"}
    assert infer(name, dtype, monkeypatch, backend="hccl", **prod) == 6
    assert infer(name, dtype, monkeypatch, backend="hccl") == 0
    assert infer(name, dtype, monkeypatch, backend="shm", **prod) == 0


def test_int64_on_atbs_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = {
        (name, backend): infer(name, "int64", monkeypatch, backend=backend)
        for name in REDUCTIONS
        for backend in ("hccl", "lccl", "shm")
    }
    assert codes == {
        ("AllReduce", "hccl"): 0,
        ("AllReduce", "lccl"): 6,
        ("AllReduce", "shm"): 0,
        ("ReduceScatter", "hccl"): 13,
        ("ReduceScatter", "lccl"): 13,
        ("ReduceScatter", "shm"): 0,
    }
