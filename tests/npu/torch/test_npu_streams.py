"""The order of a group's calls on streams of NPUs: who waits, and that the host does not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from device_streams import PROGRAMS, Place
from npu_groups import run_npu_group


@pytest.mark.parametrize("name", PROGRAMS)
def test_streams(name: str, npu: Any) -> None:
    program = PROGRAMS[name]

    def work(rank: int) -> Any:
        return program.run(Place(torch.device("npu", rank), torch.npu, npu.held))

    assert run_npu_group(work, program.ranks) == [program.result] * program.ranks
