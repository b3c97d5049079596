"""Ranks of the backend hccl on several hosts, which are network namespaces of this machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from patience import patience
from tests.multihost.hosts import Host, Unavailable, network

# HCCL alone would not wait for a rank that comes late.
SOON = {"HCCL_CONNECT_TIMEOUT": str(patience(0.4))}
PROGRAM = str(Path(__file__).parent / "ranks" / "on_hosts.py")
LIMIT_S = patience(100.0)
RUN = [sys.executable, "-m", "collops", "run", "--rank-table"]


@pytest.fixture
def two_hosts() -> Iterator[list[Host]]:
    """Two hosts, joined by a cable."""
    try:
        with network(2) as hosts:
            yield hosts
    except Unavailable as error:
        pytest.skip(str(error))


def table_of(hosts: list[Host], placement: list[int]) -> str:
    """A rank table with an address for every NPU, as HCCL needs it of several servers."""
    servers = []
    for number, host in enumerate(hosts):
        ranks = [rank for rank, where in enumerate(placement) if where == number]
        devices = [
            {"device_id": str(i), "device_ip": f"192.0.{number + 1}.{i + 1}", "rank_id": str(rank)}
            for i, rank in enumerate(ranks)
        ]
        servers.append({"server_id": host.address, "host_ip": host.address, "device": devices})
    table = {"version": "1.0", "status": "completed", "server_count": str(len(hosts))}
    return json.dumps({**table, "server_list": servers})


# Of an Atlas A3, HCCL has no V calls on several servers.
@pytest.mark.parametrize(
    ("way", "placement", "soc"),
    [("rank table", [0, 0, 1, 1], "Ascend910B1"), ("root info", [0, 1], "Ascend910_9391")],
    ids=["rank table", "root info"],
)
def test_calls_and_groups_on_two_hosts(
    two_hosts: list[Host], tmp_path: Path, way: str, placement: list[int], soc: str
) -> None:
    path = tmp_path / "ranks.json"
    path.write_text(table_of(two_hosts, placement))
    meet_at = f"{two_hosts[0].address}:29613" if way == "root info" else ""
    arguments = [*RUN, str(path), PROGRAM, ",".join(map(str, placement)), meet_at]
    launchers = [
        host.start(
            arguments, env={"COLLOPS_SIM_HOST_IP": host.address, "COLLOPS_SIM_SOC": soc, **SOON}
        )
        for host in two_hosts
    ]
    for number, launcher in enumerate(launchers):
        out, err = launcher.communicate(timeout=LIMIT_S)
        assert launcher.returncode == 0, out + err
        for rank in (r for r, host in enumerate(placement) if host == number):
            assert f"rank {rank} of {len(placement)}: done" in out
        replaced = "which is slower: HCCL does not have it on Ascend910_9391 on several servers"
        assert (replaced in err) == (soc == "Ascend910_9391")
