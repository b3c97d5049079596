"""The order of a group's calls on streams of GPUs: who waits, and that the host does not."""

from __future__ import annotations

from typing import Any

import pytest
import simulated_torch
import torch
from device_streams import PROGRAMS, Place
from gpu_groups import BACKENDS, on, run_gpu_group


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_streams(name: str, backend: str) -> None:
    program = PROGRAMS[name]

    def work(rank: int) -> Any:
        return program.run(Place(torch.device("cuda", rank), torch.cuda, simulated_torch.held))

    found = run_gpu_group(work, program.ranks, env=on(backend))
    assert found == [program.result] * program.ranks
