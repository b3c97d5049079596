"""What ranks on simulated NPUs do in several tests."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

import collops


def error_of(call: Any) -> collops.Error:
    """The error of a call that must fail."""
    with pytest.raises(collops.Error) as caught:
        call()
    return caught.value


def hccl_group(torch: ModuleType, rank: int, ranks: int, folder: Any) -> int:
    """The HcclComm of torch_npu's process group."""
    dist = torch.distributed
    store = f"file://{folder}/store"
    dist.init_process_group("hccl", init_method=store, rank=rank, world_size=ranks)
    return int(dist.group.WORLD._get_backend(torch.device("npu")).get_hccl_comm(rank))
