"""Tensors whose memory alone does not hold their values are refused by name, at both levels."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from param_values import DEFAULTS

import collops
from collops.core import core
from collops.testing import run_ranks

MASKED = "is a masked array, and its mask would be lost: pass .filled(value)"
QUANTISED = "is quantised, and its scale would be lost: pass .dequantize(), or .int_repr()"
META = "is a meta tensor, which has no values: "


def torch_or_skip() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed here")


def masked() -> Any:
    return np.ma.masked_array(np.arange(8, dtype=np.float32).reshape(4, 2), np.eye(4, 2))


def quantised() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch is about to drop them
        return torch_or_skip().quantize_per_tensor(
            torch_or_skip().ones(4, 2), 0.5, 0, torch_or_skip().qint8
        )


def meta() -> Any:
    return torch_or_skip().empty(4, 2, device="meta")


KINDS: list[tuple[Callable[[], Any], int, str]] = [
    (masked, 1, MASKED),
    (quantised, 1, QUANTISED),
    (meta, 14, META),
]
# Each with what the others hear it called.
CALLS: list[tuple[str, Callable[[collops.Communicator, Any], Any]]] = [
    ("x", lambda comm, x: comm.all_gatherv(x)),
    ("x", lambda comm, x: comm.all_gatherv(x, [4, 4])),
    ("x", lambda comm, x: comm.all_gatherv(x, [2, 2], dim=1)),
    ("x[1]", lambda comm, x: comm.all_gatherv([np.zeros((4, 2), np.float32), x], [4, 4])),
    ("out", lambda comm, x: comm.all_gatherv(np.zeros((2, 2), np.float32), [2, 2], out=x)),
    ("out", lambda comm, x: comm.all_gatherv(np.zeros((4, 1), np.float32), [1, 1], 1, x)),
    ("x", lambda comm, x: comm.reduce_scatterv(x)),
    ("x[0]", lambda comm, x: comm.reduce_scatterv([x, x])),
    ("x", lambda comm, x: comm.all_reduce(x)),
    ("x", lambda comm, x: comm.all_to_allv(x, [2, 2], [2, 2])),
    ("x", lambda comm, x: comm.broadcast(x)),
    ("x", lambda comm, x: comm.matmul_all_reduce(x, np.ones((2, 2), np.float32))),
    ("weight", lambda comm, x: comm.matmul_all_reduce(np.ones((2, 4), np.float32), x)),
    ("x", lambda comm, x: comm.start("all_gatherv", x, [4, 4]).wait()),
    ("x", lambda comm, x: comm.exchange([collops.SendTo(x, 0), collops.SendTo(x, 1)])),
]


@pytest.mark.parametrize(("make", "code", "said"), KINDS, ids=lambda value: str(value)[:16])
def test_the_plain_level(make: Callable[[], Any], code: int, said: str) -> None:
    tensor = make()  # before the fork, which torch's threads do not outlive

    def work(rank: int) -> list[tuple[int, str]]:
        comm = collops.init()
        heard = []
        for label, call in CALLS:
            with pytest.raises(collops.Error) as caught:
                call(comm, tensor)
            name = label.partition("[")[0]  # the core has the number behind the message
            assert re.search(rf"{name}(\[\d\])? {re.escape(said)}", caught.value.message)
            heard.append((caught.value.code, label))
        assert comm.all_gatherv(np.array([rank])).tolist() == [0, 1]  # all is well
        return heard

    # Both ranks refuse, so each hears its own error, or the other one's.
    for heard in run_ranks(work, 2):
        assert {number for number, _ in heard} <= {code, 102}
        assert code in {number for number, _ in heard}


@pytest.mark.parametrize(("make", "code", "said"), KINDS, ids=lambda value: str(value)[:16])
def test_the_atb_level(make: Callable[[], Any], code: int, said: str) -> None:
    op = collops.Operation(collops.AllGatherVParam(rank=0, rank_size=2, backend="shm"))
    tensor = make()
    ins = [np.zeros((4, 2), np.float32), np.array([8]), np.array([8, 8]), np.array([0, 8])]
    ins.append(np.empty(8, np.float16))
    outs = [np.empty((8, 2), np.float32)]
    assert op.get_workspace_size(ins, outs) == 0
    with pytest.raises(collops.Error) as caught:
        op.get_workspace_size([tensor, *ins[1:]], outs)
    assert caught.value.code == code
    assert said in caught.value.message
    assert "x" in caught.value.message.partition(said)[0]


def test_masked_counts_and_sizes() -> None:
    counts = np.ma.masked_array([8, 8], [0, 1])
    op = collops.Operation(collops.AllGatherVParam(rank=0, rank_size=2, backend="shm"))
    ins = [np.zeros((4, 2), np.float32), np.array([8]), counts, np.array([0, 8])]
    ins.append(np.empty(8, np.float16))
    with pytest.raises(collops.Error, match=r"AllGatherV: input 2 \(recvCounts\) is a masked"):
        op.infer_shape(ins)
    with collops.init(0, 1, comm_domain="one") as comm:
        with pytest.raises(collops.Error, match="sizes is a masked array"):
            comm.all_gatherv(np.zeros(3), np.ma.masked_array([3], [1]))
        assert comm.all_gatherv(np.zeros(3), np.array([3])).shape == (3,)


def test_an_array_of_another_class_is_still_an_array() -> None:
    assert core().describe(np.matrix([[1, 2]]))["shape"] == "[1, 2]"
    assert core().describe(np.ma.masked_array([1, 2], [1, 0]).filled(7))["numel"] == 2


def test_a_meta_tensor_is_enough_for_a_shape_and_the_advice_works() -> None:
    torch = torch_or_skip()
    op = collops.Operation(collops.AllGatherVParam(rank=0, rank_size=2, backend="shm"))
    x = torch.empty(4, 2, device="meta")
    counts = torch.tensor([8, 8])
    ins = [x, counts[:1], counts, torch.tensor([0, 8]), torch.empty(8, dtype=torch.float16)]
    [desc] = op.infer_shape(ins)
    assert desc.shape == (8, 2)
    out = torch.empty(8, 2)
    with pytest.raises(collops.Error) as caught:
        op.get_workspace_size(ins, [out])
    advice = caught.value.message.partition("e.g. by ")[2].partition(", and")[0]
    assert advice == 'torch.empty_like(tensor, device="cpu")'
    ins[0] = eval(advice, {"torch": torch, "tensor": x})
    assert op.get_workspace_size(ins, [out]) == 0
    with pytest.raises(collops.Error, match="output.* is a meta tensor"):
        op.get_workspace_size(ins, [out.to("meta")])
    ins[2] = counts.to("meta")
    with pytest.raises(collops.Error, match=r"recvCounts is a meta .*torch\.tensor\(counts\)"):
        op.get_workspace_size(ins, [out])


def test_a_negated_view() -> None:
    torch = torch_or_skip()
    x = torch.tensor([1 + 2j]).conj().imag  # torch says that it is contiguous: there is one element
    assert x.is_contiguous()
    with collops.init(0, 1) as comm:
        with pytest.raises(
            collops.Error, match=r"x is a lazily negated view: pass \.resolve_neg\(\)"
        ):
            comm.all_gatherv(x)
        assert comm.all_gatherv(x.resolve_neg()).tolist() == [-2.0]
        assert comm.reduce_scatterv([x]).tolist() == [-2.0]  # copied, and so by torch


def test_bytes_that_need_a_gradient() -> None:
    torch = torch_or_skip()
    x = torch.ones(3, dtype=torch.float8_e4m3fn).requires_grad_()
    with collops.init(0, 1) as comm:
        with pytest.raises(collops.Error, match=r"x requires grad, .*\.detach\(\)"):
            comm.all_gatherv(x)
        assert comm.all_gatherv(x.detach()).shape == (3,)


def test_a_window_has_no_quantised_elements() -> None:
    torch = torch_or_skip()
    with collops.init(0, 1) as comm, pytest.raises(collops.Error, match=r"torch\.qint8 are quant"):
        comm.empty((2, 3), torch.qint8)


@pytest.mark.parametrize("kind", DEFAULTS, ids=lambda kind: kind.__name__)
def test_numbers_of_a_struct_are_numbers(kind: type[Any]) -> None:
    whole = [name for name, value in DEFAULTS[kind].items() if type(value) is int]
    for name in whole:
        with pytest.raises(collops.Error, match=r'must be an integer .* got "0"') as caught:
            collops.Operation(kind(**{"rank_size": 2, name: "0"}))
        assert caught.value.code == 1
    for wrong in ("0", "5", 5.7, b"5"):
        with pytest.raises(collops.Error, match="hccl_comm must be a communicator or its handle"):
            collops.Operation(kind(rank=0, rank_size=2, backend="shm", hccl_comm=wrong))
