"""Jobs whose ranks run on the hosts of a test, started there by ``collops run``."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from patience import patience
from tests.multihost.hosts import Host

RANKS = Path(__file__).parent / "ranks"
RUN = [sys.executable, "-m", "collops", "run", "--rank-table"]


def table_of(hosts: Sequence[Host], placement: Sequence[int]) -> str:
    """A rank table: rank r runs on host placement[r]."""
    servers = []
    for number, host in enumerate(hosts):
        ranks = [rank for rank, where in enumerate(placement) if where == number]
        devices = [
            {"device_id": str(device), "rank_id": str(rank)} for device, rank in enumerate(ranks)
        ]
        servers.append({"server_id": host.address, "device": devices})
    return json.dumps({"version": "1.0", "status": "completed", "server_list": servers})


class Job:
    """A program on every rank of a placement. Use it with ``with``, which removes its table."""

    def __init__(
        self, hosts: Sequence[Host], placement: Sequence[int], *program: str, **env: str
    ) -> None:
        self._folder = tempfile.TemporaryDirectory()
        table = Path(self._folder.name, "ranks.json")
        table.write_text(table_of(hosts, placement), encoding="utf-8")
        # A test does the same on a machine with RDMA.
        variables = {"UCX_TLS": "tcp", "COLLOPS_TIMEOUT_S": f"{patience(60):g}"} | env
        self.launchers: list[subprocess.Popen[str]] = [
            host.start([*RUN, str(table), *program], env=variables) for host in hosts
        ]

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def results(self, limit_s: float) -> list[tuple[int, str, str]]:
        """Of each host: the launcher's status, what the ranks wrote, and their errors."""
        found = []
        for launcher in self.launchers:
            out, err = launcher.communicate(timeout=limit_s)
            found.append((launcher.returncode, out, err))
        return found
