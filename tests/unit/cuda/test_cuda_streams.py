"""Which stream a call on CUDA is on: producers of DLPack tensors are told its number."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import collops
from tests.dlpack import CUDA
from tests.unit.cuda.cuda_stand_ins import (
    CupyArray,
    OnGpu,
    Stream,
    Tensor,
    stand_in_cupy,
    stand_in_torch,
)

LEGACY = 1


def execute(x: Any, out: Any, **arguments: Any) -> collops.Error:
    """The error of a product of this rank alone, which reads its tensors first."""
    op = collops.Operation(collops.LinearParallelParam(rank=0, rank_size=2, type=3, backend="shm"))
    with pytest.raises(collops.Error) as caught:
        op.execute([x, np.zeros((4, 4), np.float32)], [out], **arguments)
    return caught.value


class CudaStream:
    """A stream of CUDA's protocol for Python."""

    def __init__(self, version: int, number: int) -> None:
        self.said = version, number

    def __cuda_stream__(self) -> tuple[int, int]:
        return self.said


@pytest.mark.parametrize(
    ("stream", "number"),
    [
        (None, LEGACY),
        (0, LEGACY),
        (1, LEGACY),
        (2, 2),
        (0x7F0012345678, 0x7F0012345678),
        (2**63, 2**63),
        (SimpleNamespace(cuda_stream=0), LEGACY),
        (SimpleNamespace(cuda_stream=77), 77),
        (Stream(0), LEGACY),
        (Stream(88), 88),
        (CudaStream(0, 0), LEGACY),
        (CudaStream(0, 99), 99),
    ],
)
def test_the_stream_of_a_call(stream: Any, number: int) -> None:
    x, out = OnGpu(), OnGpu()
    execute(x, out, stream=stream)
    assert (x.streams, out.streams) == ([number], [number])


class Failing:
    def __cuda_stream__(self) -> Any:
        raise RuntimeError("it is gone")


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        ("fast", "stream must be None, a number or a torch stream, got str"),
        (CudaStream(1, 99), "got CudaStream"),
        (Failing(), "stream has no address: RuntimeError: it is gone"),
        (-1, "stream is not an address"),
        (2**64, "stream is not an address"),
    ],
)
def test_what_is_no_stream_is_refused(stream: Any, message: str) -> None:
    x = OnGpu()
    error = execute(x, OnGpu(), stream=stream)
    assert error.name == "ERROR_INVALID_STREAM"
    with pytest.raises(collops.Error, match=message):
        raise error
    assert not x.asked


def test_the_current_stream_is_that_of_the_library_of_the_first_tensor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stand_in_torch(monkeypatch, {0: 50, 1: 51})
    stand_in_cupy(monkeypatch, {0: 60, 1: 61})
    rows: list[tuple[Any, int]] = [
        (Tensor((4,), 0), 50),
        (Tensor((4,), 1), 51),
        (CupyArray((4,), index=0), 60),
        (CupyArray((4,), index=1), 61),
        (OnGpu(), LEGACY),
    ]
    for x, number in rows:
        out = OnGpu(device=(CUDA, 1))
        execute(x, out)
        assert out.streams == [number]
        out.asked.clear()
        execute(x, out, stream=7)
        assert out.streams == [7]


def test_the_null_stream_of_a_library_gets_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in_torch(monkeypatch, {0: 0})
    stand_in_cupy(monkeypatch, {0: 0})
    for x in (Tensor((4,)), CupyArray((4,))):
        out = OnGpu()
        execute(x, out)
        assert out.streams == [LEGACY]


def test_a_library_that_tells_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = stand_in_torch(monkeypatch, {})
    error = execute(Tensor((4,)), OnGpu())
    assert error.name == "ERROR_INVALID_STREAM"
    assert "torch does not return its current stream of cuda:0: KeyError: 0" in error.message
    torch.cuda.current_stream = lambda index: None
    assert "stream must be None, a number or" in execute(Tensor((4,)), OnGpu()).message


def test_a_plain_call_and_a_message_are_on_the_stream_of_their_first_tensor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stand_in_cupy(monkeypatch, {0: 60})
    with collops.init(0, 1, comm_domain="alone") as comm:
        out = OnGpu()
        with pytest.raises(collops.Error, match="x is on cuda:0"):
            comm.all_reduce(CupyArray((4,)), out=out)
        assert out.streams[-1] == 60
        x, received = CupyArray((4,)), OnGpu()
        with pytest.raises(collops.Error, match="is on cuda:0"):
            comm.exchange([collops.SendTo(x, 0), collops.RecvFrom(received, 0)])
        assert x.streams == [60]
