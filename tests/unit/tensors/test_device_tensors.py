"""Tensors on devices, recognised by their class alone: a stand-in takes torch's place."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import collops
from collops.core import core


class DType:
    """Prints as torch's types do."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return f"torch.{self.name}"


class Tensor:
    """What the binding reads of a torch tensor."""

    __module__ = "torch"
    requires_grad = False
    is_cpu = False

    def __init__(self, array: Any, kind: str, index: int | None) -> None:
        self.array = array
        self.shape = array.shape
        self.dtype = DType(array.dtype.name)
        self.device = SimpleNamespace(type=kind, index=index)

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)

    def is_contiguous(self) -> bool:
        return True

    def is_neg(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("kind", "index", "name"),
    [("npu", 3, "npu:3"), ("cuda", None, "cuda:0"), ("xla", 1, "device:1")],
)
def test_devices(kind: str, index: int | None, name: str) -> None:
    array = np.zeros((2, 3), np.int32)
    seen = core().describe(Tensor(array, kind, index))
    assert (seen["device"], seen["shape"], seen["dtype"]) == (name, "[2, 3]", "int32")
    assert seen["address"] == array.ctypes.data


def test_a_workspace_elsewhere_is_refused() -> None:
    param = collops.LinearParallelParam(rank=0, rank_size=2, type=3, backend="shm")
    op = collops.Operation(param)
    ins = [np.ones((2, 3), np.float32), np.ones((4, 3), np.float32)]
    outs = [np.empty((2, 4), np.float32)]
    room = np.empty(op.get_workspace_size(ins, outs), np.uint8)
    for kind, name in (("cuda", "cuda:0"), ("meta", "meta")):
        with pytest.raises(collops.Error) as caught:
            op.execute(ins, outs, Tensor(room, kind, None))
        assert caught.value.name == "ERROR_INVALID_WORKSPACE_ADDR"
        assert f"the workspace is on {name}, but" in caught.value.message
    op.execute(ins, outs, room)
    assert outs[0].tolist() == [[3.0] * 4] * 2


def test_the_plain_level_knows_torch_itself_only() -> None:
    with collops.init(0, 1) as comm, pytest.raises(collops.Error, match="not for Tensor"):
        comm.all_gatherv(Tensor(np.zeros(2), "npu", 0))
