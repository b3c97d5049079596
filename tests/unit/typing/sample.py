"""Calls as a user writes them; `make check` runs mypy over this file with torch's types known."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.distributed
from numpy.typing import NDArray
from typing_extensions import assert_type

import collops
from collops.tensor_types import SupportsDLPack

Floats = NDArray[np.float32]


def numpy_arrays(comm: collops.Communicator, x: Floats) -> None:
    assert_type(comm.all_gather(x), Floats)
    assert_type(comm.all_gatherv(x, [1, 2], dim=1, out=x), Floats)
    assert_type(comm.all_gatherv([x, x]), list[Floats])
    assert_type(comm.all_reduce(x, "max"), Floats)
    assert_type(comm.all_reduce(partials=[x], leaves=2), Floats)
    assert_type(comm.all_to_allv(x, [1, 2]), Floats)
    assert_type(comm.broadcast(x), Floats)
    assert_type(comm.gatherv(x, root=1), Floats | None)
    assert_type(comm.reduce(x), Floats | None)
    assert_type(comm.reduce_scatter(x), Floats)
    assert_type(comm.reduce_scatterv([x, x]), Floats)
    assert_type(comm.reduce_scatterv(partials=[x], sizes=[1, 2], leaves=2), Floats)
    assert_type(comm.matmul_all_reduce(x, x, residual=x), Floats)
    assert_type(comm.recv(x, 0), Floats)
    assert_type(comm.recv(x, return_source=True), tuple[Floats, int])
    assert_type(comm.empty((2, 3), np.float32), NDArray[Any])
    assert_type(comm.empty((2, 3), "float32"), NDArray[Any])


def torch_tensors(comm: collops.Communicator, x: torch.Tensor) -> None:
    assert_type(comm.all_gather(x), torch.Tensor)
    assert_type(comm.all_gatherv(x, [1, 2], out=x), torch.Tensor)
    assert_type(comm.all_gatherv([x, x], [1, 2]), list[torch.Tensor])
    assert_type(comm.all_reduce(x, torch.distributed.ReduceOp.AVG), torch.Tensor)
    assert_type(comm.all_to_allv(x, [1, 2], [2, 1]), torch.Tensor)
    assert_type(comm.broadcast(x, root=1), torch.Tensor)
    assert_type(comm.gatherv(x), torch.Tensor | None)
    assert_type(comm.reduce(x, root=1), torch.Tensor | None)
    assert_type(comm.reduce_scatter(x, "avg"), torch.Tensor)
    assert_type(comm.reduce_scatterv(x, [1, 2]), torch.Tensor)
    assert_type(comm.all_gather_matmul(x, x, trans_weight=True), torch.Tensor)
    assert_type(comm.matmul_reduce_scatter(x, x, op="avg"), torch.Tensor)
    assert_type(comm.all_to_allv_grouped_matmul(x, x, [[1], [2]]), torch.Tensor)
    both = comm.all_to_allv_grouped_matmul(x, x, [[1], [2]], return_rows=True)
    assert_type(both, tuple[torch.Tensor, torch.Tensor])
    assert_type(comm.grouped_matmul_all_to_allv(x, x, [[1], [2]]), torch.Tensor)
    assert_type(comm.recv(x), torch.Tensor)
    assert_type(comm.empty(3, torch.float32), torch.Tensor)


def other_tensors(comm: collops.Communicator, x: SupportsDLPack) -> None:
    assert_type(comm.all_gatherv(x, [1, 2]), NDArray[Any])
    assert_type(comm.reduce_scatterv(x), NDArray[Any])
    comm.send(x, to=1)


# An ignored error that does not occur is one itself.
def mistakes(comm: collops.Communicator, x: torch.Tensor) -> None:
    comm.all_gather(3)  # type: ignore[call-overload]
    comm.all_gatherv(x, 3)  # type: ignore[call-overload]
    comm.all_reduce(x, op=3)  # type: ignore[call-overload]
    comm.broadcast([1.0])  # type: ignore[type-var]
    comm.all_gather_v(x)  # type: ignore[attr-defined]
