"""collops as a backend of torch.distributed: ``init_process_group("collops")``.

Importing this module registers the backend for CPU and CUDA tensors. All calls of torch.distributed
then run on a collops communicator of the group's ranks; docs/torch.md lists them.

Example:
    >>> import torch, torch.distributed as dist
    >>> import collops.torch
    >>> from collops.testing import run_ranks
    >>> def total(rank, path):
    ...     dist.init_process_group(
    ...         "collops", init_method=f"file://{path}", rank=rank, world_size=2
    ...     )
    ...     x = torch.tensor([rank + 1.0])
    ...     dist.all_reduce(x)
    ...     dist.destroy_process_group()
    ...     return x.item()
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run_ranks(total, 2, f"{folder}/store")
    [3.0, 3.0]
"""

from __future__ import annotations

from typing import Any

from collops.errors import nearest
from collops.torch.async_tp.enable import disable_async_tp, enable_async_tp
from collops.torch.async_tp.fused_products import fused_patterns
from collops.torch.async_tp.symmetric_operators import register as register_symmetric_operators
from collops.torch.collective_calls import register_gather_into
from collops.torch.direct import (
    all_gather_into,
    all_reduce_,
    broadcast_,
    reduce_scatter_into,
)
from collops.torch.group import Group, last_calls, register_batches
from collops.torch.operators import (
    MoeRouting,
    all_gather_matmul,
    all_gather_matmul_reduce_scatter,
    all_gatherv,
    all_reduce,
    all_to_all_matmul,
    all_to_allv,
    all_to_allv_grouped_matmul,
    grouped_matmul_all_to_allv,
    matmul,
    matmul_all_reduce,
    matmul_all_to_all,
    matmul_reduce_scatter,
    moe_combine,
    moe_dispatch,
    reduce_scatterv,
)
from collops.torch.shrinking import shrink
from collops.torch_backend import register

__all__ = [
    "Group",
    "MoeRouting",
    "all_gather_into",
    "all_gather_matmul",
    "all_gather_matmul_reduce_scatter",
    "all_gatherv",
    "all_reduce",
    "all_reduce_",
    "all_to_all_matmul",
    "all_to_allv",
    "all_to_allv_grouped_matmul",
    "broadcast_",
    "disable_async_tp",
    "enable_async_tp",
    "fused_patterns",
    "grouped_matmul_all_to_allv",
    "last_calls",
    "matmul",
    "matmul_all_reduce",
    "matmul_all_to_all",
    "matmul_reduce_scatter",
    "moe_combine",
    "moe_dispatch",
    "reduce_scatter_into",
    "reduce_scatterv",
    "shrink",
]


def __getattr__(name: str) -> Any:
    text = f"module 'collops.torch' has no attribute {name!r}"
    near = "" if name.startswith("_") else nearest(name.lower(), __all__, 0.8)
    hint = f"; did you mean collops.torch.{near}?" if near else ""
    raise AttributeError(text + hint, name=name)


register()
register_batches()
register_gather_into()
register_symmetric_operators()
