"""Accelerate on collops: after this import it takes the backend "collops" on CPUs.

``InitProcessGroupKwargs(backend="collops")``, ``PartialState(cpu=True, backend="collops")`` and the
argument ddp_backend of transformers' Trainer name it. Accelerate itself knows gloo and MPI alone
there, and refuses other names. It takes over a group that exists already, whatever its backend;
state() makes such a group.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from datetime import timedelta
from typing import Any, NoReturn

import torch.distributed as dist

from collops.errors import ErrorCode, raise_status
from collops.torch.group import Group

_BACKEND = "collops"


def accept_the_name() -> None:
    """Lets Accelerate take the name "collops" for its group on CPUs; once for the process."""
    from accelerate import PartialState

    accelerates = PartialState._prepare_backend  # as accelerate 1.15 has it
    if hasattr(accelerates, "_collops"):
        return

    @functools.wraps(accelerates)
    def prepare(
        self: Any, cpu: bool = False, sagemaker_dp: Any = False, backend: str | None = None
    ) -> Any:
        found, kind = accelerates(self, cpu, sagemaker_dp, backend)
        return (backend if found == "gloo" and _BACKEND in str(backend) else found), kind

    prepare._collops = True  # type: ignore[attr-defined]
    PartialState._prepare_backend = prepare


def state(timeout: timedelta | None = None, **kwargs: Any) -> Any:
    """Makes the default group with collops and Accelerate's state on it; every rank calls this.

    Call it before ``Accelerator(cpu=True)``, in a program that torchrun or accelerate launch starts
    (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT are set). A default group of collops
    that exists is taken over.

    Args:
        timeout: how long a call waits for other ranks; None: as init_process_group.
        kwargs: more arguments of init_process_group, such as init_method.

    Returns:
        accelerate.PartialState, whose backend is "collops". Accelerator's gather() then moves one
        tensor, as with NCCL, and not a list of tensors, as with gloo.

    Raises:
        ArgumentError: there is a default group of another backend, Accelerate has a state already,
            or WORLD_SIZE differs from the group's number of ranks.
        ImportError: Accelerate is not installed.

    Source of the semantics: accelerate.PartialState.

    Example:
        >>> import importlib.util, os, tempfile, torch
        >>> import collops.torch.accelerate
        >>> from collops.testing import run_ranks
        >>> def double(rank, path):
        ...     os.environ.update(RANK=f"{rank}", LOCAL_RANK=f"{rank}", WORLD_SIZE="2")
        ...     collops.torch.accelerate.state(
        ...         init_method=f"file://{path}", rank=rank, world_size=2
        ...     )
        ...     from accelerate import Accelerator
        ...     whole = Accelerator(cpu=True).gather(torch.tensor([rank + 0.5]))
        ...     torch.distributed.destroy_process_group()
        ...     return whole.tolist()
        >>> if importlib.util.find_spec("accelerate"):
        ...     with tempfile.TemporaryDirectory() as folder:
        ...         assert run_ranks(double, 2, f"{folder}/store") == [[0.5, 1.5]] * 2
    """
    from accelerate import PartialState

    if PartialState._shared_state:  # as accelerate 1.15 itself tells whether there is a state
        _refuse("Accelerate has a state already: call this before the first Accelerator")
    if not dist.is_initialized():
        dist.init_process_group(_BACKEND, timeout=timeout, **kwargs)
    if not isinstance(dist.group.WORLD, Group):
        _refuse(f"the default group has the backend {dist.get_backend()}: make it with {_BACKEND}")
    told, size = os.environ.get("WORLD_SIZE", "1"), dist.get_world_size()
    if told != str(size):  # Accelerate would train alone
        _refuse(
            f"Accelerate reads the number of ranks from WORLD_SIZE, got {told}, the group has "
            f"{size}: start the program with torchrun or accelerate launch, or set RANK, "
            "WORLD_SIZE and LOCAL_RANK"
        )
    made = PartialState(cpu=True)
    if made.backend is not None:  # None: one rank
        made.backend = _BACKEND
    return made


def _refuse(reason: str) -> NoReturn:
    raise_status(ErrorCode.ERROR_INVALID_PARAM, f"state: {reason}")


if importlib.util.find_spec("accelerate") is not None:
    accept_the_name()
