"""Tensors of other libraries, through DLPack alone: read in place, results numpy's."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import collops
from collops.core import core
from collops.tensors import from_dlpack
from collops.testing import run_ranks


class Foreign:
    """Has the two methods of DLPack and nothing else, as a tensor of an unknown library."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor
        self.exports = 0

    def __dlpack__(self, **arguments: Any) -> Any:
        self.exports += 1
        return self.tensor.__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, index = self.tensor.__dlpack_device__()
        return int(kind), int(index)


class Unversioned(Foreign):
    """Of a producer before DLPack 1.0, which knows no max_version."""

    def __dlpack__(self) -> Any:  # type: ignore[override]
        self.exports += 1
        return self.tensor.__dlpack__()


class OnDevice(Foreign):
    """Says that it is elsewhere; asking for its memory would be an error."""

    def __init__(self, kind: int, index: int) -> None:
        super().__init__(None)
        self.device = kind, index

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


def read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array


NAMES = "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64 complex64"


@pytest.mark.parametrize("kind", [Foreign, Unversioned])
@pytest.mark.parametrize("name", NAMES.split())
def test_memory_is_read_where_it_lies(name: str, kind: Any) -> None:
    array = np.zeros((2, 3, 5), name)
    seen = core().describe(kind(array))
    assert seen == {**core().describe(array), "read_only": True}
    view = from_dlpack("op", "x", kind(array))
    assert (view.ctypes.data, view.dtype, view.shape) == (
        array.ctypes.data,
        array.dtype,
        array.shape,
    )
    assert not view.flags.writeable


def test_read_only_memory_and_other_layouts() -> None:
    array = np.arange(24, dtype=np.int32).reshape(4, 6)
    assert core().describe(Foreign(read_only(array.copy())))["contiguous"]
    for view in (array[:, ::2], array.T, array[1:3, 2:4]):
        seen = core().describe(Foreign(view))
        assert (seen["contiguous"], seen["address"]) == (False, view.ctypes.data)
        assert np.array_equal(from_dlpack("op", "x", Foreign(view)), view)
    assert core().describe(Foreign(np.empty((0, 3))))["numel"] == 0
    assert core().describe(Foreign(np.zeros((1, 6))[:, :1]))["contiguous"]  # sizes of 1 have none


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_types_that_numpy_has_not(name: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed here")
    tensor = torch.arange(6).to(getattr(torch, name)).reshape(2, 3)
    seen = core().describe(Foreign(tensor))
    assert seen["dtype"] == (name if name == "bfloat16" else "undefined")
    view = from_dlpack("op", "x", Foreign(tensor))
    assert view.dtype == np.dtype(getattr(ml_dtypes, name))
    assert view.astype(np.float32).tolist() == tensor.float().tolist()

    def work(rank: int) -> Any:
        gathered = collops.init().all_gatherv(Foreign(tensor))
        return gathered.dtype.name, gathered.astype(np.float32).tolist()

    assert run_ranks(work, 2) == [(name, tensor.float().tolist() * 2)] * 2


def test_inputs_of_the_plain_level() -> None:
    def work(rank: int) -> list[Any]:
        comm = collops.init()
        x = read_only(np.arange(6.0).reshape(3, 2) + 10 * rank)
        gathered = comm.all_gatherv(Foreign(x))
        reduced = comm.reduce_scatterv(Unversioned(x.copy()))
        of_lists = comm.all_gatherv([Foreign(x), x], [3, 3])
        blocks = comm.reduce_scatterv([Foreign(x), Foreign(x)])
        out = np.empty((3, 4))
        comm.all_gatherv(Foreign(x), [2, 2], dim=-1, out=out)
        return [
            type(gathered) is type(reduced) is np.ndarray,
            gathered.tolist(),
            reduced.tolist(),
            [part.tolist() for part in of_lists] == [gathered.tolist()] * 2,
            blocks[0].tolist(),
            out[0].tolist(),
        ]

    rows = [[[v, v + 1] for v in range(first, first + 6, 2)] for first in (0, 10)]
    sums = [[[10, 12], [14, 16]], [[18, 20]]]
    for rank, got in enumerate(run_ranks(work, 2)):
        assert got == [True, rows[0] + rows[1], sums[rank], True, [10, 12], [0, 1, 10, 11]]


def test_inputs_of_the_atb_level() -> None:
    def work(rank: int) -> list[Any]:
        op = collops.Operation(collops.AllGatherVParam(rank=rank, rank_size=2, backend="shm"))
        x = Foreign(read_only(np.full((rank + 1, 2), rank, np.float32)))
        counts = np.array([2, 4])
        ins = [x, *map(Foreign, (counts[[rank]], counts, np.array([0, 2])))]
        ins.append(Unversioned(np.empty(3, np.float16)))
        assert op.infer_shape(ins) == [collops.TensorDesc((3, 2), "float32")]
        [out] = op.forward(ins)
        named = [collops.with_format(tensor, "nd") for tensor in ins]
        [again] = op.forward(named)
        assert type(out) is type(again) is np.ndarray
        exports = x.exports
        op.execute(ins, [out])
        assert x.exports == exports + 1
        return [out.tolist(), again.tolist()]

    want = [[0.0, 0.0], [1.0, 1.0], [1.0, 1.0]]
    assert run_ranks(work, 2) == [[want, want]] * 2


@pytest.mark.parametrize("shape", [(0, 4), (0,), (0, 1, 3)])
def test_a_tensor_without_rows_is_contiguous(shape: tuple[int, ...]) -> None:
    x = np.zeros(shape, np.float32)
    assert core().describe(Foreign(x))["contiguous"]  # numpy says strides of 0
    assert core().describe(Unversioned(x[::2]))["contiguous"]

    def work(rank: int) -> Any:
        op = collops.Operation(collops.AllGatherVParam(rank=rank, rank_size=2, backend="shm"))
        mine = Foreign(x if rank else np.full((2, *shape[1:]), 5, np.float32))
        counts = np.array([mine.tensor.size or math.prod((2, *shape[1:])), 0])
        y = np.empty(2, np.float16)
        [out] = op.forward([mine, counts[[rank]], counts, np.array([0, counts[0]]), y])
        return out.shape, out.min()

    assert run_ranks(work, 2) == [((2, *shape[1:]), 5.0)] * 2


def test_an_output_of_forward_may_be_bfloat16() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed here")

    def work(rank: int) -> Any:
        op = collops.Operation(collops.AllGatherVParam(rank=rank, rank_size=2, backend="shm"))
        one = np.ones(2, np.int64)
        x = Foreign(torch.full((1,), rank + 1.0, dtype=torch.bfloat16))
        [out] = op.forward([x, one[:1], one, np.array([0, 1]), np.empty(2, np.float16)])
        return out.dtype.name, out.astype(float).tolist()

    assert run_ranks(work, 2) == [("bfloat16", [1.0, 2.0])] * 2


def test_an_output_is_refused() -> None:
    def work(rank: int) -> list[Any]:
        comm = collops.init()
        out: Any = np.zeros(2)
        with pytest.raises(collops.Error) as caught:
            comm.all_gatherv(np.zeros(1), [1, 1], out=Foreign(out) if rank else out)
        return [caught.value.code, "out must be a numpy array" in caught.value.message]

    assert run_ranks(work, 2) == [[102, True], [1, True]]
    op = collops.Operation(collops.AllGatherVParam(rank=0, rank_size=2, backend="shm"))
    one = np.ones(2, np.int64)
    ins = [one[:1], one[:1], one, np.array([0, 1]), np.empty(2, np.float16)]
    with pytest.raises(
        collops.Error, match="output 0.* is read-only|output is read-only"
    ) as caught:
        op.get_workspace_size(ins, [Foreign(np.empty(2, np.int64))])
    assert caught.value.code == 14


@pytest.mark.parametrize(
    ("kind", "index", "name"), [(10, 0, "rocm:0"), (8, 3, "DLPack device 8:3")]
)
def test_memory_of_a_device_is_refused_by_its_name(kind: int, index: int, name: str) -> None:
    def work(rank: int) -> list[Any]:
        comm = collops.init()
        x: Any = OnDevice(kind, index) if rank == 1 else np.zeros(1)
        with pytest.raises(collops.Error) as caught:
            comm.all_gatherv(x, [1, 1])
        return [caught.value.code, caught.value.message, comm.all_gatherv(np.zeros(1)).shape]

    first, second = run_ranks(work, 2)
    assert second[0] == 14
    assert (
        f"all_gatherv: x is on {name}; DLPack is read from memory of the CPU and of CUDA only"
        in second[1]
    )
    assert (first[0], name in first[1]) == (102, True)
    assert first[2] == second[2] == (2,)
    op = collops.Operation(collops.AllGatherVParam(rank=0, rank_size=2, backend="shm"))
    with pytest.raises(collops.Error, match=rf"AllGatherV: input 0 \(x\) is on {name};") as caught:
        op.infer_shape([OnDevice(kind, index)] * 5)
    assert caught.value.code == 14


class BrokenDevice:
    def __dlpack__(self, **arguments: Any) -> Any:
        return "ab"

    def __dlpack_device__(self) -> Any:
        return "ab"


def test_a_device_that_is_no_pair_of_numbers_is_refused() -> None:
    with pytest.raises(collops.Error, match="its __dlpack_device__ did not return two numbers"):
        core().describe(BrokenDevice())


def test_an_interrupt_is_no_broken_tensor() -> None:
    class Slow:
        def __dlpack__(self, **arguments: Any) -> Any:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        core().describe(Slow())
