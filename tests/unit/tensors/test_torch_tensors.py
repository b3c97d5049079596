"""torch CPU tensors: the same memory, the same kind of result, and what torch must do first."""

from __future__ import annotations

import numpy as np
import pytest

import collops
from collops.core import core
from collops.testing import run_ranks

torch = pytest.importorskip("torch", reason="torch is not installed here: its tests are skipped")

NAMES = "bool int8 uint8 int16 int32 int64 float16 bfloat16 float32 float64 complex64".split()


@pytest.mark.parametrize("name", NAMES)
def test_a_tensor_is_taken_as_it_lies(name: str) -> None:
    x = torch.zeros((2, 3, 5), dtype=getattr(torch, name))
    assert core().describe(x) == {
        "address": x.data_ptr(),
        "shape": "[2, 3, 5]",
        "numel": 30,
        "dtype": name,
        "format": "nd",
        "device": "cpu",
        "contiguous": True,
        "read_only": False,
        "foreign_endian": False,
    }


def test_memory_properties_are_described() -> None:
    x = torch.zeros(4, 6)
    assert not core().describe(x.t())["contiguous"]
    assert core().describe(x[1:3])["address"] == x.data_ptr() + 24
    assert core().describe(torch.empty(0, 3))["address"] == 0
    assert core().describe(torch.empty(3, device="meta"))["device"] == "meta"


def test_a_class_of_its_own_is_a_tensor_too() -> None:
    x = torch.nn.Parameter(torch.zeros(3), requires_grad=False)
    assert core().describe(x)["address"] == x.data_ptr()


def test_descriptions_take_torch_types() -> None:
    assert collops.TensorDesc((2,), torch.bfloat16).dtype == "bfloat16"
    assert collops.TensorDesc((2,), torch.float32).dtype == "float32"


OTHERS = "uint16 uint32 uint64 complex32 complex64 complex128 float8_e5m2 float8_e4m3fn".split()


def test_the_bits_of_every_type_travel() -> None:
    def travels(comm: collops.Communicator, name: str) -> bool:
        dtype = getattr(torch, name)
        xs = [torch.arange(192, dtype=torch.uint8) + 60 * r for r in range(2)]
        xs = [(x % 2 if name == "bool" else x).view(dtype) for x in xs]
        gathered = comm.all_gatherv(xs[comm.rank])
        want = torch.cat([x.view(torch.uint8) for x in xs])
        return bool(gathered.dtype == dtype and torch.equal(gathered.view(torch.uint8), want))

    def work(rank: int) -> dict[str, bool]:
        comm = collops.init()
        return {name: travels(comm, name) for name in [*NAMES, *OTHERS]}

    assert run_ranks(work, 2) == [dict.fromkeys([*NAMES, *OTHERS], True)] * 2


def test_numpy_and_torch_may_meet_in_one_call() -> None:
    def work(rank: int) -> list[float]:
        comm = collops.init()
        x = torch.full((2,), float(rank)) if rank else np.zeros(2, np.float32)
        out = np.empty(4, np.float32)
        comm.all_gatherv(x, out=out)
        return list(out)

    assert run_ranks(work, 2) == [[0.0, 0.0, 1.0, 1.0]] * 2


def test_no_rank_waits_after_a_refused_tensor() -> None:
    def work(rank: int) -> list[object]:
        comm = collops.init()
        x = torch.zeros(2, requires_grad=rank == 1)
        with pytest.raises(collops.Error, match="requires grad") as caught:
            comm.all_gatherv(x, sizes=[2, 2])
        return [caught.value.code, comm.all_gatherv(torch.full((1,), rank)).tolist()]

    assert run_ranks(work, 2) == [[102, [0, 1]], [1, [0, 1]]]
