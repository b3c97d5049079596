"""The order of a group's calls on streams of devices: who waits, and that the host does not."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.devices.torch.device_groups import BACKENDS, KIND, devices, held, on, run_device_group
from tests.torch.device_streams import PROGRAMS, Place


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_streams(name: str, backend: str) -> None:
    program = PROGRAMS[name]

    def work(rank: int) -> Any:
        return program.run(Place(torch.device(KIND, rank), devices, held))

    found = run_device_group(work, program.ranks, env=on(backend))
    assert found == [program.result] * program.ranks
