"""First contact of a group's ranks, which have met at a store of torch's."""

from __future__ import annotations

import ipaddress
import json
import os
import socket
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collops.core import core
from collops.errors import Error, ErrorCode, raise_status
from collops.launch.init import init

if TYPE_CHECKING:
    from collops.collectives.communicator import Communicator

_MAX_NAME = 64  # characters of a group's name, which is for messages
_ANY_PORT = 9  # a datagram socket sends nothing when it connects


def meet(
    store: Any, rank: int, size: int, name: str, timeout_s: float, backend: str | None = None
) -> Communicator:
    """Makes the communicator of a group; every rank of it calls this with the group's store.

    A group is a job of its own, so that its ranks need no launcher. Across hosts they meet at a
    port that rank 0 has opened, and has written into the store. `backend` None: what CPU tensors
    take, on one host or on several.
    """
    # A launcher's store, and its keys, outlive a group: each meeting there has keys of its own.
    turn = f"collops/{store.add(f'collops/turn/{rank}', 1)}"
    own = {"host": _host(), "address": _address(store)}
    store.set(f"{turn}/host/{rank}", json.dumps(own))
    port: Any = None
    if rank == 0:
        ranks = [json.loads(store.get(f"{turn}/host/{peer}")) for peer in range(size)]
        place, port = _place(ranks)
        store.set(f"{turn}/job", json.dumps(place))
    place = json.loads(store.get(f"{turn}/job"))
    if place["fault"]:
        raise_status(ErrorCode(place["code"]), f"group {name!r}: {place['fault']}")
    label = name[:_MAX_NAME]
    made = init(
        rank,
        size,
        backend=backend,
        comm_domain=label,
        timeout_s=timeout_s,
        job_id=place["job"],
        meet_at=place["meet_at"],
    )
    del port  # now the communicator has it
    return made


def _place(ranks: list[dict[str, str]]) -> tuple[dict[str, Any], Any]:
    """Where the ranks meet, for the store; and the port that has to stay open until they have."""
    job = f"torch/{uuid.uuid4().hex}"
    place = {"job": job, "meet_at": "", "fault": "", "code": 0}
    hosts = {rank["host"] for rank in ranks}
    if len(hosts) == 1:
        return place, None
    away = [rank["address"] for rank in ranks if rank["host"] != ranks[0]["host"]]
    towards = (_own_address(address) for address in away if address)
    address = next((own for own in towards if own), ranks[0]["address"])
    if not address:
        place["code"] = int(ErrorCode.ERROR_INVALID_PARAM)
        place["fault"] = (
            f"its ranks are on {len(hosts)} hosts, and no address of rank 0's host is known: "
            "set MASTER_ADDR to an address of rank 0's host, the same in all ranks, or use a "
            "tcp:// address"
        )
        return place, None
    try:
        port = core().MeetingPort(address, job)
    except Error as error:
        return place | {"code": int(error.code), "fault": error.message}, None
    return place | {"meet_at": port.address}, port


def _host() -> str:
    """This host, as the core tells hosts apart: its name, or a boot and a network namespace."""
    given = os.environ.get("COLLOPS_SERVER_ID")
    if given:
        return f"server {given}"
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.stat('/proc/self/ns/net').st_ino}"
    except OSError:
        return os.uname().nodename


def _address(store: Any) -> str:
    """An address of this host that others may reach: the one it has towards rank 0's; or ""."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    known = (getattr(store, "host", ""), os.environ.get("MASTER_ADDR", ""))
    return next((own for own in map(_own_address, known) if own), "")


def _own_address(peer: str) -> str:
    """This host's address on the way to another host; "": there is none but the loopback's."""
    try:
        family, _, _, _, place = socket.getaddrinfo(peer, _ANY_PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as way:
            way.connect(place)
            own, *rest = way.getsockname()
    except OSError:
        return ""
    if ipaddress.ip_address(own.partition("%")[0]).is_loopback:
        return ""
    scope = rest[2] if len(rest) > 2 and rest[2] and "%" not in own else 0
    return f"{own}%{scope}" if scope else str(own)
