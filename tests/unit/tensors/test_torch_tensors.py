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


def test_requires_grad_says_detach() -> None:
    x = torch.zeros(3, requires_grad=True)
    with pytest.raises(collops.Error, match=r"requires grad, .*\.detach\(\)") as caught:
        core().describe(x)
    assert caught.value.code == 1
    assert core().describe(x.detach())["address"] == x.data_ptr()


def test_a_conjugated_tensor_is_refused_with_resolve_conj() -> None:
    x = torch.zeros(3, dtype=torch.complex64)
    with pytest.raises(collops.Error, match="resolve_conj"):
        core().describe(x.conj())


def test_a_sparse_tensor_has_no_memory_to_read() -> None:
    with pytest.raises(collops.Error, match="no plain memory"):
        core().describe(torch.zeros(3).to_sparse())


def test_descriptions_take_torch_types() -> None:
    assert collops.TensorDesc((2,), torch.bfloat16).dtype == "bfloat16"
    assert collops.TensorDesc((2,), torch.float32).dtype == "float32"


def test_results_are_torch_and_lie_in_out() -> None:
    def work(rank: int) -> list[object]:
        comm = collops.init()
        x = torch.arange(3, dtype=torch.bfloat16) + 10 * rank
        out = torch.full((6,), -1, dtype=torch.bfloat16)
        before = out.data_ptr()
        same = comm.all_gatherv(x, out=out) is out and out.data_ptr() == before
        fresh = comm.all_gatherv(x, sizes=[3, 3])
        scattered = comm.reduce_scatterv(x.float())
        return [same, out.tolist(), fresh.tolist(), fresh.dtype, scattered.tolist()]

    gathered = [0.0, 1.0, 2.0, 10.0, 11.0, 12.0]
    first, second = run_ranks(work, 2)
    assert first == [True, gathered, gathered, torch.bfloat16, [10.0, 12.0]]
    assert second == [True, gathered, gathered, torch.bfloat16, [14.0]]


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


def test_windows_of_torch() -> None:
    def work(rank: int) -> list[object]:
        comm = collops.init()
        x = comm.empty((2, 3), torch.bfloat16)
        x[:] = rank + 1
        gathered = comm.all_gatherv(x)
        comm.close()
        return [x.dtype, tuple(x.shape), gathered[:, 0].tolist(), x.sum().item()]

    first, second = run_ranks(work, 2)
    assert first == [torch.bfloat16, (2, 3), [1.0, 1.0, 2.0, 2.0], 6.0]
    assert second == [torch.bfloat16, (2, 3), [1.0, 1.0, 2.0, 2.0], 12.0]


def test_forward_gives_torch() -> None:
    def work(rank: int) -> object:
        op = collops.Operation(
            collops.ReduceScatterVParam(rank=rank, rank_size=2, backend="shm", reduce_type="max")
        )
        x = torch.tensor([[1.0, 5.0], [3.0, 2.0]]) * (1 if rank else -1)
        counts = torch.tensor([2, 2])
        ins = [x, counts, torch.tensor([0, 2]), counts[:1], torch.empty(1, dtype=torch.float16)]
        [out] = op.forward(ins)
        return type(out) is torch.Tensor, out.tolist()

    assert run_ranks(work, 2) == [(True, [[1.0, 5.0]]), (True, [[3.0, 2.0]])]


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
