"""What a group says of an error of HCCL's."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

import collops
from tests.devices.torch.device_groups import run_device_group


def test_an_error_of_hccl_has_its_name_and_the_last_calls() -> None:
    def work(rank: int) -> str:
        dist.all_reduce(torch.ones(1).npu())
        with pytest.raises(collops.Error) as error:
            dist.all_reduce(torch.ones(3).npu())
        return str(error.value)

    for message in run_device_group(work, 2, env={"COLLOPS_SIM_FAIL": "HcclAllReduce:2:9"}):
        assert "HcclAllReduce returned 9 (HCCL_E_TIMEOUT)" in message
        assert "the last calls of rank" in message and "all_reduce [3] float32" in message
