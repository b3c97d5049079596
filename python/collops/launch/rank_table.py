"""Rank tables: which rank runs on which host and device, in the format of HCCL's JSON files."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from collops.core import core
from collops.errors import ErrorCode, raise_status

VERSIONS = ("1.0", "1.2")


class Server(NamedTuple):
    """One host of a table: its server_id, where others reach it, and its super pod or ""."""

    name: str
    address: str
    super_pod: str


class Place(NamedTuple):
    """Where one rank runs: the index of its server, and its device there."""

    server: int
    device_id: int
    device_ip: str


@dataclass(frozen=True)
class RankTable:
    """A rank table that was read.

    Attributes:
        version: the table's, empty for the form with a group_list.
        completed: False while the table's status is "initializing"; the rest is then empty.
        servers: the hosts.
        ranks: where each rank runs, by its number.
        here: index of the server that this host is; -1: none, and `not_here` says why.
    """

    version: str
    completed: bool
    digest: str
    servers: list[Server]
    ranks: list[Place]
    here: int
    not_here: str


def read_rank_table(path: str | os.PathLike[str]) -> RankTable:
    """Reads a rank table of version 1.0, 1.1, 1.2, 2.0 or none (group_list).

    Args:
        path: of the JSON file.

    Raises:
        ArgumentError: it is missing, may not be read or breaks a rule; the message gives file,
            place, value and rule.
        SystemFailureError: it cannot be read for another reason, e.g. too many open files.

    Source of the semantics: HCCL's documentation of the ranktable file.
    """
    read = core().read_rank_table(str(path))
    read["servers"] = [Server(*row) for row in read["servers"]]
    read["ranks"] = [Place(*row) for row in read["ranks"]]
    return RankTable(**read)


def table_refusal(path: str | os.PathLike[str], backend: str, soc: str = "") -> str:
    """Why a backend refuses a table that can be read; empty if it does not.

    Args:
        path: of the JSON file.
        backend: name of the backend.
        soc: of backend hccl: the NPU that is asked of, such as "Ascend910B3"; default: this
            machine's, or without one the chip that the table's version is for.

    Source of the semantics: HCCL's loader (hcomm) and its documentation of the ranktable file.
    """
    return str(core().table_refusal(str(path), backend, soc))


def make_rank_table(hosts: Sequence[str], devices_per_host: int, version: str = "1.0") -> str:
    """Writes a rank table: ranks are numbered host by host, device by device.

    Args:
        hosts: names or addresses, one per host, as the other hosts reach it.
        devices_per_host: ranks on each host, at least 1.
        version: "1.0", or "1.2" with all hosts in one super pod.

    Returns:
        The JSON text. It has no device_ip, which backend hccl needs on several hosts that are in
        no common super pod.

    Raises:
        ArgumentError: a host is given twice or is not a name, or there are no ranks.

    Example:
        >>> from collops.launch.rank_table import make_rank_table
        >>> '"rank_id": "3"' in make_rank_table(["10.0.0.1", "10.0.0.2"], 2)
        True
    """
    _check(hosts, devices_per_host, version)
    servers: list[dict[str, Any]] = []
    for number, host in enumerate(hosts):
        first = number * devices_per_host
        devices = [_device(device, first + device, version) for device in range(devices_per_host)]
        servers.append({"server_id": host, "device": devices})
    table: dict[str, Any] = {
        "version": version,
        "status": "completed",
        "server_count": str(len(hosts)),
        "server_list": servers,
    }
    if version == "1.2":
        pod = {"super_pod_id": "0", "server_list": [{"server_id": host} for host in hosts]}
        table["super_pod_list"] = [pod]
    return json.dumps(table, indent=2)


def _device(device: int, rank: int, version: str) -> dict[str, str]:
    row = {"device_id": str(device), "rank_id": str(rank)}
    if version == "1.2":
        row["super_device_id"] = str(rank)
    return row


def _check(hosts: Sequence[str], devices_per_host: int, version: str) -> None:
    if version not in VERSIONS:
        _bad(f"version must be one of {', '.join(VERSIONS)}, got {version!r}")
    if devices_per_host < 1:
        _bad(f"devices_per_host must be at least 1, got {devices_per_host}")
    if not hosts:
        _bad("hosts must name at least one host")
    for number, host in enumerate(hosts):
        if not host or len(host) > 64 or not host.isprintable() or " " in host:
            _bad(f"hosts[{number}] must be 1 to 64 characters without spaces, got {host!r}")
        if host in hosts[:number]:
            _bad(f"hosts[{number}]: {host!r} is given twice")


def _bad(message: str) -> None:
    raise_status(ErrorCode.ERROR_INVALID_PARAM, f"make_rank_table: {message}")
