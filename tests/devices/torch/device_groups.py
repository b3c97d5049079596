"""Runs work on the ranks of a process group that have a simulated device each."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.torch.groups import run_group

KIND = "npu" if "COLLOPS_SIM_CANN" in os.environ else "cuda"
VENDOR = "HCCL" if KIND == "npu" else "NCCL"
OWN = VENDOR.lower()  # the backend that the tensors go to unasked
BACKENDS = (OWN,) if KIND == "npu" else (OWN, "cuda")
BOTH = f"cpu:collops,{KIND}:collops"
# Memory that is freed too early ends the process; what torch calls may wait for kernels.
STRICT = {} if KIND == "npu" else {"COLLOPS_SIM_STRICT": "1", "COLLOPS_SIM_WAITS_OF": "_core"}
devices: Any = getattr(torch, KIND, None)  # torch.cuda or torch.npu

if KIND == "npu":
    from tests.devices.on_npu import Npu

    held = Npu().held
else:
    from tests.devices.torch import simulated_torch
    from tests.devices.torch.simulated_torch import held as held


def on(backend: str) -> dict[str, str]:
    """The environment in which a device's tensors go to a backend."""
    return {} if backend == OWN else {"COLLOPS_BACKEND": f"{OWN}={backend}"}


def choose(rank: int) -> None:
    """Makes the device of that number current; gives this process's torch the GPUs before."""
    if KIND == "cuda":
        simulated_torch.install(Path(os.environ["COLLOPS_SIM_GPU"]))
    devices.set_device(rank)


def run_device_group(
    work: Callable[..., Any],
    size: int,
    *args: Any,
    backend: str = BOTH,
    env: dict[str, str] | None = None,
    **options: Any,
) -> list[Any]:
    """As run_group() of the tests on CPUs; rank r has device r."""
    env = STRICT | (env or {})
    return run_group(work, size, *args, backend=backend, choose_device=choose, env=env, **options)
