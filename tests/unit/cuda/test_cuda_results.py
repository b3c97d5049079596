"""Results and workspaces on GPUs: of x's library, in x's GPU; for others they are CudaArrays."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import collops
from collops import cuda_array
from collops.collectives import told_rows
from collops.tensors import empty_like_kind, maker
from collops.testing import run_ranks
from tests.dlpack import CUDA, READ_ONLY
from tests.unit.cuda.cuda_stand_ins import (
    CupyArray,
    OnGpu,
    Tensor,
    stand_in_cupy,
    stand_in_torch,
)


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    return stand_in_cupy(monkeypatch, {0: 60, 1: 61})


@pytest.fixture
def comm() -> Iterator[Any]:
    """A communicator of one rank, which refuses tensors of a GPU once their results are made."""
    with collops.init(0, 1, comm_domain="alone") as made:
        yield made


NOT_HERE = "x is on cuda:[01]; this backend moves CPU tensors"


@pytest.fixture
def of_cupy(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The arrays that CuPy makes."""
    found: list[Any] = []
    empty = cupy.empty

    def record(shape: Any, dtype: Any) -> Any:
        found.append(empty(shape, dtype))
        return found[-1]

    monkeypatch.setattr(cupy, "empty", record)
    return found


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The CudaArrays that are made; there is no driver here."""
    found: list[Any] = []

    class Made(OnGpu):
        def __init__(self, shape: Any, dtype: Any, device: int, operation: str = "") -> None:
            super().__init__(shape, np.dtype(dtype).name, device=(CUDA, device), address=1 << 20)
            self.shape, self.dtype, self.device = shape, dtype, device
            self.operation = operation
            found.append(self)

    monkeypatch.setattr(cuda_array, "CudaArray", Made)
    return found


CALLS: dict[str, Any] = {
    "all_gatherv": lambda comm, x, **out: comm.all_gatherv(x, [4], **out),
    "all_gather": lambda comm, x, **out: comm.all_gather(x, **out),
    "reduce_scatterv": lambda comm, x, **out: comm.reduce_scatterv(x, [4], **out),
    "reduce_scatter": lambda comm, x, **out: comm.reduce_scatter(x, **out),
    "all_reduce": lambda comm, x, **out: comm.all_reduce(x, **out),
    "all_to_allv": lambda comm, x, **out: comm.all_to_allv(x, [4], [4], **out),
    "reduce": lambda comm, x, **out: comm.reduce(x, root=0, **out),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_result_is_of_cupy_on_its_gpu(name: str, comm: Any, of_cupy: list[Any]) -> None:
    for _ in range(2):  # the second call is like the first
        with pytest.raises(collops.Error, match=NOT_HERE):
            CALLS[name](comm, CupyArray((4, 3), "float16", index=1))
    for result in of_cupy:
        assert type(result) is CupyArray
        assert (result.device.id, result.dtype) == (1, np.float16)
        assert result.shape[-2:] == (4, 3)
    assert len(of_cupy) == 2


@pytest.mark.parametrize("name", CALLS)
def test_a_result_for_another_library(name: str, comm: Any, made: list[Any]) -> None:
    x, out = OnGpu((4, 3), device=(CUDA, 1)), OnGpu((4, 3), device=(CUDA, 1))
    with pytest.raises(collops.Error, match=NOT_HERE):
        CALLS[name](comm, x, out=out)
    assert not made
    assert x.streams == out.streams  # both were read
    with pytest.raises(collops.Error, match=NOT_HERE):
        CALLS[name](comm, x)
    [result] = made
    assert (result.shape[-2:], result.dtype, result.device) == ((4, 3), np.float32, 1)
    assert result.operation == name


def test_an_out_of_another_shape_is_refused(comm: Any) -> None:
    for out in (OnGpu((3, 3)), OnGpu((4,))):
        with pytest.raises(collops.Error, match=r"out must have shape \[4, 3\], got"):
            comm.all_gatherv(OnGpu((4, 3)), [4], out=out)
    with pytest.raises(collops.Error, match="out must be a numpy array or a torch tensor, got "):
        comm.all_gatherv(OnGpu((4, 3)), [4], out=OnGpu((4, 3), device=(1, 0)))


def test_what_would_be_copied_is_refused(comm: Any) -> None:
    columns = OnGpu((1, 4, 3), strides=(12, 1, 4))
    with pytest.raises(collops.Error, match="x, a OnGpu on cuda:0, would have to be copied"):
        comm.all_gatherv(columns, [4], dim=1, out=OnGpu((1, 4, 3)))
    parts = OnGpu((1, 4, 3), strides=(24, 6, 1))
    with pytest.raises(collops.Error, match="out, a OnGpu on cuda:0, would have to be copied"):
        comm.all_gatherv(OnGpu((1, 4, 3)), [4], dim=1, out=parts)
    with pytest.raises(collops.Error, match="x, a OnGpu on cuda:0, would have to be copied"):
        comm.reduce_scatterv(columns, [4], dim=1, out=OnGpu((1, 4, 3)))


def test_blocks_of_a_list_are_of_one_library(cupy: Any) -> None:
    def work(rank: int) -> None:
        with (
            collops.init() as comm,
            pytest.raises(
                collops.Error, match=r"x\[1\] must be CuPy's float32 as x\[0\], got numpy's"
            ),
        ):
            comm.reduce_scatterv([CupyArray((2,)), np.zeros(2, np.float32)])

    run_ranks(work, 2, threads=True)


def test_messages_take_any_tensor_of_a_gpu(comm: Any, cupy: Any) -> None:
    here, gone = np.zeros(4, np.float32), OnGpu((4,), device=(1, 0))
    for items, label in (
        ([collops.SendTo(OnGpu((2, 2)), 0), collops.RecvFrom(here, 0)], r"messages\[0\].x"),
        ([collops.SendTo(here, 0), collops.RecvFrom(OnGpu((4,)), 0)], r"messages\[1\].out"),
        ([collops.SendTo(here, 0), collops.RecvFrom(CupyArray((4,)), 0)], r"messages\[1\].out"),
    ):
        with pytest.raises(collops.Error, match=f"{label} is on cuda:0; this backend moves CPU"):
            comm.exchange(items)
    with pytest.raises(collops.Error, match="out must be a numpy array or a torch tensor, got "):
        comm.exchange([collops.RecvFrom(gone, 0)])


def test_broadcast_reads_a_tensor_of_a_gpu(comm: Any) -> None:
    with pytest.raises(collops.Error, match="broadcast: x is on cuda:0; this backend moves CPU"):
        comm.broadcast(OnGpu((3,)))


class Unnamed(OnGpu):
    """Has elements of a type that the core has no name for."""

    def capsule(self) -> Any:
        self.type = SimpleNamespace(kind="f", itemsize=1)  # type: ignore[assignment]
        return super().capsule()


def test_elements_without_a_name_are_refused(comm: Any) -> None:
    with pytest.raises(
        collops.Error, match="x on cuda:0 has elements of a type that is not supported"
    ):
        comm.all_gather(Unnamed())
    with pytest.raises(collops.Error, match="x has 9 dims; of a tensor on a GPU at most 8"):
        comm.all_gather(OnGpu((1,) * 9))


def test_scatterv_describes_the_tensors_of_the_root(cupy: Any, made: list[Any]) -> None:
    text = told_rows.describe(CupyArray((4, 3), "int16"), "int16", (3,))
    own = told_rows.no_rows("scatterv", text, "cuda:1")
    assert type(own) is CupyArray
    assert (own.shape, own.dtype, own.device.id) == ((0, 3), np.int16, 1)
    text = told_rows.describe(OnGpu((4, 2), "int16"), "int16", (2,))
    assert told_rows.no_rows("scatterv", text, "cuda:1") is made[0]
    assert (made[0].shape, made[0].dtype, made[0].device) == ((0, 2), np.int16, 1)


def test_a_maker_keeps_no_array(cupy: Any) -> None:
    make = maker(CupyArray((2, 3), "int8", index=1))
    assert make is not None
    made = make()
    assert (made.shape, made.dtype, made.device.id) == ((2, 3), np.int8, 1)
    assert maker(OnGpu()) is None


def test_memory_that_a_gpu_has_not(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*size: Any) -> Any:
        raise MemoryError("it is full")

    monkeypatch.setattr(cupy, "empty", full)
    with pytest.raises(collops.Error, match="no memory for an output of shape") as caught:
        empty_like_kind("AllReduce", CupyArray((2,)), (2, 2))
    assert caught.value.name == "ERROR_OUT_OF_DEVICE_MEMORY"


def product(workspace: Any) -> collops.Error:
    """The error of a product that was not planned, which reads its workspace first."""
    op = collops.Operation(collops.LinearParallelParam(rank=0, rank_size=2, type=3, backend="shm"))
    ins = [OnGpu((2, 3)), OnGpu((4, 3))]
    with pytest.raises(collops.Error) as caught:
        op.execute(ins, [OnGpu((2, 4))], workspace, 5)
    return caught.value


def test_a_workspace_lies_on_the_gpu_of_the_tensors() -> None:
    for room, place in ((OnGpu((64,), device=(CUDA, 1)), "cuda:1"), (np.empty(64), "cpu")):
        error = product(room)
        assert error.name == "ERROR_INVALID_WORKSPACE_ADDR"
        assert f"workspace is on {place}, but the call's tensors are on cuda:0" in error.message
    assert "must be contiguous and writable" in product(OnGpu((64,), flags=READ_ONLY)).message
    room = OnGpu((64,), "uint8")
    assert product(room).name == "ERROR_INVALID_PARAM"  # the call was not planned
    assert room.streams == [5]


def test_forward_makes_outputs(of_cupy: list[Any], made: list[Any]) -> None:
    op = collops.Operation(collops.LinearParallelParam(rank=0, rank_size=2, type=3, backend="shm"))
    tensors = [CupyArray((2, 3), index=1), CupyArray((4, 3), index=1)]
    with pytest.raises(collops.Error, match="x is on cuda:1; this backend moves CPU tensors"):
        op.forward(tensors)
    [out] = of_cupy
    assert (out.shape, out.dtype, out.device.id) == ((2, 4), np.float32, 1)
    with pytest.raises(collops.Error, match="x is on cuda:0; this backend moves CPU tensors"):
        op.forward([OnGpu((2, 3)), OnGpu((4, 3))])
    [array] = made
    assert (array.shape, array.dtype, array.device) == ((2, 4), np.float32, 0)


def test_torch_makes_memory_on_the_gpu_of_its_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = stand_in_torch(monkeypatch, {1: 51})
    torch.float32 = "float32"
    torch.empty = lambda shape, dtype, device: (shape, dtype, device.type, device.index)
    made = empty_like_kind("AllReduce", Tensor((2,), 1), (3, 2), "float32")
    assert made == ((3, 2), "float32", "cuda", 1)
