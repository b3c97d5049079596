"""Where ranks connect that have found each other by a store of torch's, or by Ray."""

from __future__ import annotations

import functools
import ipaddress
import os
import socket
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collops.atb.param import CommMode
from collops.core import core
from collops.errors import Error, ErrorCode, raise_status
from collops.launch.init import init

if TYPE_CHECKING:
    from collops.collectives.communicator import Communicator

_MAX_NAME = 64  # characters of a group's name, which is for messages
_MOST_LISTED = 16  # ranks in a message
_ANY_PORT = 9  # a datagram socket sends nothing when it connects
_VARIABLE = "COLLOPS_TIMEOUT_S"
_LEAST_PAUSE_S, _MOST_PAUSE_S = 0.0005, 0.05  # between two questions to a store
_START = 19  # index of a process's start after its state in /proc/PID/stat


def limit_of_variable(otherwise_s: float) -> float:
    """How long a group waits for its ranks: COLLOPS_TIMEOUT_S, or another time if it is not set."""
    text = os.environ.get(_VARIABLE)
    if not text:
        return otherwise_s
    for name, _, message in core().env_problems():
        if name == _VARIABLE:
            raise_status(ErrorCode.ERROR_INVALID_PARAM, message)
    return float(text)


def this_process(address: str) -> dict[str, Any]:
    """What a rank tells the others of itself; `address`: of this host, for other hosts, or ""."""
    pid = os.getpid()
    return {
        "host": host(),
        "address": address,
        "pid": pid,
        "start": start_of(pid),
        "node": os.uname().nodename,
        "process": _token(pid),
    }


@functools.cache
def _token(pid: int) -> str:
    """Tells this process from others of its number, as in two containers that began together."""
    return uuid.uuid4().hex


def host() -> str:
    """This host, as the core tells hosts apart: its name, or a boot and a network namespace."""
    given = os.environ.get("COLLOPS_SERVER_ID")
    if given:
        return f"server {given}"
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.stat('/proc/self/ns/net').st_ino}"
    except OSError:
        return os.uname().nodename


def start_of(pid: int) -> str:
    """When a process of this host began, which tells it from others of its number; "": it ended."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state in "ZX" else fields[_START - 1]


def own_address(peer: str) -> str:
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


def named(ranks: list[int]) -> str:
    """The ranks of a message."""
    listed = ", ".join(map(str, ranks[:_MOST_LISTED]))
    more = len(ranks) - _MOST_LISTED
    return f"rank{'s' * (len(ranks) > 1)} {listed}" + (f" and {more} others" if more > 0 else "")


def no_place(code: ErrorCode, fault: str) -> dict[str, Any]:
    """A decision that the ranks do not connect."""
    return {"job": "", "meet_at": "", "threads": False, "fault": fault, "code": int(code)}


def place_of(ranks: list[dict[str, Any]], advice: str) -> tuple[dict[str, Any], Any]:
    """Where the ranks connect, as rank 0 decides it, and the port that stays open until they have.

    Args:
        ranks: what each tells of itself.
        advice: how an address of rank 0's host is made known, if none is.
    """
    job = uuid.uuid4().hex
    place = no_place(ErrorCode.NO_ERROR, "") | {"job": job}
    sharing = _sharing(ranks)
    if sharing == list(range(len(ranks))):
        return place | {"threads": True}, None
    if sharing:
        fault = (
            f"{named(sharing)} of {len(ranks)} are threads of one process, pid "
            f"{ranks[sharing[0]]['pid']} on {ranks[sharing[0]]['node']}: either all ranks are "
            "threads of one process, or each is a process"
        )
        return no_place(ErrorCode.ERROR_UNSUPPORTED, fault), None
    hosts = {rank["host"] for rank in ranks}
    if len(hosts) == 1:
        return place, None
    address = address_for_others(ranks)
    if not address:
        fault = (
            f"its ranks are on {len(hosts)} hosts, and no address of rank 0's host is known: "
            f"{advice}"
        )
        return no_place(ErrorCode.ERROR_INVALID_PARAM, fault), None
    try:
        port = core().MeetingPort(address, job)
    except Error as error:
        return no_place(ErrorCode(error.code), error.message), None
    return place | {"meet_at": port.address}, port


def address_for_others(ranks: list[dict[str, Any]]) -> str:
    """Rank 0's address for ranks of other hosts, asked on rank 0; "": there are none, or it is not
    known.
    """
    away = [rank["address"] for rank in ranks if rank["host"] != ranks[0]["host"]]
    towards = (own_address(address) for address in away if address)
    own = next((own for own in towards if own), ranks[0]["address"])
    return own if away else ""


def _sharing(ranks: list[dict[str, Any]]) -> list[int]:
    """The ranks of a process that has more than one."""
    processes = [rank["process"] for rank in ranks]
    shared = next((one for one in processes if processes.count(one) > 1), None)
    return [rank for rank, one in enumerate(processes) if shared is not None and one == shared]


def until(holds: Callable[[], bool], limit_s: float) -> bool:
    """Asks a store again and again, at most for that long; Ctrl-C works meanwhile."""
    end, pause = time.monotonic() + limit_s, _LEAST_PAUSE_S
    while not holds():
        left = end - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(pause, left))
        pause = min(2 * pause, _MOST_PAUSE_S)
    return True


def connect(
    place: dict[str, Any],
    rank: int,
    size: int,
    name: str,
    timeout_s: float | None,
    backend: str | None = None,
) -> Communicator:
    """The communicator of ranks that have agreed on a place, or the error of their decision."""
    if place["fault"]:
        raise_status(ErrorCode(place["code"]), f"group {name!r}: {place['fault']}")
    return init(
        rank,
        size,
        backend=backend,
        comm_domain=name[:_MAX_NAME],
        timeout_s=timeout_s,
        comm_mode=CommMode.COMM_MULTI_THREAD if place["threads"] else CommMode.COMM_MULTI_PROCESS,
        job_id=place["job"],
        meet_at=place["meet_at"],
    )
