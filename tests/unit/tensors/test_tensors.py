"""numpy arrays, descriptions and formats as the core sees them: no copies, nothing lost."""

from __future__ import annotations

import tracemalloc
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import collops
from collops.core import core
from collops.tensors import empty_like_kind
from collops.testing import run_ranks

NAMES = (
    "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64 complex64 "
    "complex128"
).split()


@pytest.mark.parametrize("name", NAMES)
def test_an_array_is_taken_as_it_lies(name: str) -> None:
    x = np.zeros((2, 3, 5), name)
    assert core().describe(x) == {
        "address": x.ctypes.data,
        "shape": "[2, 3, 5]",
        "numel": 30,
        "dtype": name,
        "format": "nd",
        "device": "cpu",
        "contiguous": True,
        "read_only": False,
        "foreign_endian": False,
    }


def test_bfloat16_of_ml_dtypes() -> None:
    x = np.zeros(4, ml_dtypes.bfloat16)
    for _ in range(2):
        assert core().describe(x)["dtype"] == "bfloat16"
    assert core().describe(np.zeros(4, ml_dtypes.float8_e4m3fn))["dtype"] == "undefined"


@pytest.mark.parametrize("dtype", ["S5", "M8[s]", "O", "g", [("a", "i4"), ("b", "f8")]])
def test_types_without_a_number_are_undefined(dtype: Any) -> None:
    assert core().describe(np.zeros(4, dtype))["dtype"] == "undefined"


def test_memory_properties_are_described() -> None:
    x = np.zeros((4, 6), np.float32)
    assert not core().describe(x[:, ::2])["contiguous"]
    assert not core().describe(x.T)["contiguous"]
    assert core().describe(x[1:3])["address"] == x.ctypes.data + 24
    assert core().describe(x.astype(">f4"))["foreign_endian"]
    x.flags.writeable = False
    assert core().describe(x)["read_only"]


def test_unaligned_and_empty_arrays_and_many_dims() -> None:
    x = np.zeros(41, np.uint8)[1:].view(np.float32)
    assert core().describe(x)["address"] % 4 == 1
    assert core().describe(np.zeros((3, 0, 2)))["numel"] == 0
    many = core().describe(np.zeros((2,) * 10, np.int8))
    assert (many["numel"], many["shape"]) == (1024, "[2, 2, 2, 2, 2, 2, 2, 2, ...]")


def test_descriptions_and_formats() -> None:
    desc = collops.TensorDesc([5, 4], np.dtype("float16"), "nhwc")
    assert desc == collops.TensorDesc((5, 4), "float16", "nhwc")
    seen = core().describe(desc)
    assert (seen["shape"], seen["dtype"], seen["format"]) == ("[5, 4]", "float16", "nhwc")
    assert seen["address"] == 0
    x = np.zeros((2, 3), np.int8)
    seen = core().describe(collops.with_format(x, "fractal_nz"))
    assert (seen["address"], seen["format"]) == (x.ctypes.data, "fractal_nz")
    with pytest.raises(collops.Error, match='unknown format "nhcw"'):
        core().describe(collops.with_format(x, "nhcw"))


@pytest.mark.parametrize("dtype", ["bfloat16", ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16)])
def test_dtype_names(dtype: Any) -> None:
    assert collops.TensorDesc((1,), dtype).dtype == "bfloat16"
    assert collops.TensorDesc((1,), float).dtype == "float64"


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("f32", "float32"),
        ("BF16", "bfloat16"),
        ("fp64", "float64"),
        ("i16", "int16"),
        ("half", "float16"),
        ("f8", "float64"),
        ("uint32", "uint32"),
    ],
)
def test_words_of_the_commands_and_of_numpy_are_taken(word: str, name: str) -> None:
    assert collops.TensorDesc((1,), word).dtype == name
    with collops.init(0, 1, comm_domain=f"words {word}") as comm:
        assert comm.empty(3, word).dtype.name == name


def test_infer_shape_takes_descriptions() -> None:
    op = collops.Operation(collops.AllGatherVParam(rank=0, rank_size=2, backend="shm"))
    ins = [
        collops.TensorDesc((2, 4), "bfloat16"),
        collops.TensorDesc((1,), "int64"),
        collops.TensorDesc((2,), "int64"),
        collops.TensorDesc((2,), "int64"),
        collops.TensorDesc((5,), "float16"),
    ]
    assert op.infer_shape(ins) == [collops.TensorDesc((5, 4), "bfloat16")]


def test_outputs_are_of_the_inputs_kind() -> None:
    like = np.zeros(3, ml_dtypes.bfloat16)
    for out in (
        empty_like_kind("Op", like, (2, 3), "bfloat16"),
        empty_like_kind("Op", like, (2, 3)),
    ):
        assert (out.shape, out.dtype) == ((2, 3), like.dtype)
    assert empty_like_kind("Op", like, (1,), "int8").dtype == np.int8
    with pytest.raises(collops.Error, match="^Op: .* not for list"):
        empty_like_kind("Op", [1], (2,))


def allocated_by(call: Any) -> int:
    """Peak of the bytes that Python and numpy allocate during the second run of `call`."""
    call()
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_calls_copy_no_array() -> None:
    elements = 1 << 18

    def measure(rank: int) -> list[int]:
        comm = collops.init()
        x = np.full(elements, rank, np.float32)
        gathered, scattered = (
            np.empty(2 * elements, np.float32),
            np.empty(elements // 2, np.float32),
        )
        op = collops.Operation(collops.AllGatherVParam(rank=rank, rank_size=2, backend="shm"))
        counts = np.array([elements] * 2)
        ins = [x, counts[:1], counts, counts * [0, 1], np.empty(2 * elements, np.float16)]
        op.get_workspace_size(ins, [gathered])
        return [
            allocated_by(lambda: op.execute(ins, [gathered])),
            allocated_by(lambda: comm.all_gatherv(x, out=gathered)),
            allocated_by(lambda: comm.reduce_scatterv(x, out=scattered)),
        ]

    for peaks in run_ranks(measure, 2):
        assert max(peaks) < 32_000, peaks
