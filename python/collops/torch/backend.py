"""The backend "collops" of torch.distributed: how it makes a group."""

from __future__ import annotations

import contextlib
import os
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

from torch.distributed.constants import default_pg_nccl_timeout, default_pg_timeout

from collops.errors import ErrorCode, raise_status
from collops.launch.place import limit_of_variable
from collops.torch.group import Group
from collops.torch.meeting import meet
from collops.torch.reconfigure import NoRanks, Turns

_LISTENS = "0A"  # a state in /proc/net/tcp


def create(options: Any, _: Any) -> Group:
    """Makes the group that torch.distributed asks for; every rank of it calls this."""
    store, name, limit_s = options.store, options.group_id, _limit_s(options.timeout)
    place = options.group_rank, options.group_size
    if getattr(options, "enable_reconfigure", False):  # torch 2.14 has it
        none: Any = NoRanks(*place, limit_s)
        group = Group(none, store, name)
        group.turns = Turns(store, options.group_rank)
        return group
    return Group(meet(store, *place, name, limit_s), store, name)


def refuse_without_store(error: Exception) -> NoReturn:
    """Raises the error of a rank that cannot reach the store, which the process of rank 0 has."""
    raise_status(
        ErrorCode.ERROR_TIMEOUT,
        f"init_process_group: rank 0 did not connect in time, so that there is no store: {error}",
    )


def refuse_without_own_store(port: int, error: Exception) -> NoReturn:
    """Raises the error of rank 0 that cannot open the store, such as of a second rank 0."""
    listener = _listener(port)
    where = f"init_process_group: rank 0 (pid {os.getpid()}) cannot open the store at port {port}"
    if not listener:
        raise_status(ErrorCode.ERROR_RT_FAIL, f"{where}: {error}")
    raise_status(
        ErrorCode.ERROR_INVALID_PARAM,
        f"{where}, where {listener} listens: if that is rank 0 as well, the rank is claimed twice; "
        "if it is another program, pass another port, as by MASTER_PORT",
    )


def _listener(port: int) -> str:
    """The process of this host that listens at a TCP port; "": none does."""
    sockets = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                _, here, _, state, *_, inode = line.split()[:10]
                if state == _LISTENS and int(here.rpartition(":")[2], 16) == port:
                    sockets.add(f"socket:[{inode}]")
    for file in Path("/proc").glob("[0-9]*/fd/*") if sockets else ():
        with contextlib.suppress(OSError):  # another user's, or closed meanwhile
            if os.readlink(file) in sockets:
                return f"pid {file.parts[2]}"
    return "another process" if sockets else ""


def _limit_s(timeout: timedelta) -> float:
    """The time-out of a group: the program's, else COLLOPS_TIMEOUT_S, else torch's.

    torch always passes one: its default, for any backend, is none of the program's.
    """
    if timeout in (default_pg_timeout, default_pg_nccl_timeout):
        return limit_of_variable(timeout.total_seconds())
    return timeout.total_seconds()
