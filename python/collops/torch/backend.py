"""The backend "collops" of torch.distributed: how it makes a group."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from torch._C import _distributed_c10d
from torch.distributed.constants import default_pg_nccl_timeout, default_pg_timeout

from collops.core import core
from collops.errors import ErrorCode, raise_status
from collops.torch.group import Group
from collops.torch.hooks import check_for_nan
from collops.torch.identity import refuse_reconfigure
from collops.torch.meeting import meet

if TYPE_CHECKING:
    from datetime import timedelta

_VARIABLE = "COLLOPS_TIMEOUT_S"
_NAN_CHECK = "TORCH_DIST_NAN_CHECK"  # of torch 2.14, whose own check a group of ours does not call


def create(options: Any, _: Any) -> Group:
    """Makes the group that torch.distributed asks for; every rank of it calls this."""
    if getattr(options, "enable_reconfigure", False):  # torch 2.14 has it
        refuse_reconfigure()
    store, name = options.store, options.group_id
    place = options.group_rank, options.group_size
    communicator = meet(store, *place, name, _limit_s(options.timeout))
    group = Group(communicator, store, name)
    if os.environ.get(_NAN_CHECK) == "1" and hasattr(_distributed_c10d, "NanCheckHook"):
        group.hooks.add(group, _NAN_CHECK, before=partial(check_for_nan, communicator.rank))
    return group


def refuse_without_store(error: Exception) -> NoReturn:
    """Raises the error of a rank that cannot reach the store, which the process of rank 0 has."""
    raise_status(
        ErrorCode.ERROR_TIMEOUT,
        f"init_process_group: rank 0 did not connect in time, so that there is no store: {error}",
    )


def _limit_s(timeout: timedelta) -> float:
    """The time-out of a group: the program's, else COLLOPS_TIMEOUT_S, else torch's.

    torch always passes one: its default, for any backend, is none of the program's.
    """
    text = os.environ.get(_VARIABLE)
    if not text or timeout not in (default_pg_timeout, default_pg_nccl_timeout):
        return timeout.total_seconds()
    problem = dict(core().env_problems()).get(_VARIABLE)
    if problem:
        raise_status(ErrorCode.ERROR_INVALID_PARAM, problem)
    return float(text)
