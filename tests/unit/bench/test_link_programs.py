"""Programs of the link between hosts: what they print, and what happens when one fails."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import collops
from collops.bench.hosts import Hosts
from collops.bench.peers.link import Link, LinkProgram, iperf_seconds, perftest_seconds
from collops.testing import run_ranks

SERVER = """
import socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server:
    server.settimeout(30)
    server.accept()[0].close()
"""
# Fails until it has been started so often.
CLIENT = """
import socket, sys
from pathlib import Path
starts = Path(sys.argv[3], "starts")
count = starts.stat().st_size if starts.exists() else 0
starts.write_text("x" * (count + 1))
socket.create_connection((sys.argv[1], int(sys.argv[2]))).close()
sys.exit(7 if count < int(sys.argv[4]) else print(0.25))
"""


def program(folder: Path, failures: int) -> LinkProgram:
    """One whose client fails so often, and then prints a quarter of a second."""
    return LinkProgram(
        serve=lambda _, port: [sys.executable, "-c", SERVER, str(port)],
        call=lambda host, port: [
            *(sys.executable, "-c", CLIENT, host, str(port), str(folder), str(failures))
        ],
        environment={},
        seconds=float,
    )


def measure(folder: Path, failures: int) -> list[float | str]:
    """What each of two ranks gets: the seconds, or the error."""

    def work(rank: int) -> float | str:
        hosts: Any = SimpleNamespace(ranks=lambda host: [host])
        with pytest.MonkeyPatch.context() as patch, collops.init() as comm:
            patch.setenv("MASTER_ADDR", "127.0.0.1")
            link = Link(comm, cast(Hosts, hosts), frozenset())
            try:
                return link.seconds(program(folder, failures))
            except RuntimeError as error:
                return str(error)

    return run_ranks(work, 2)


def test_a_program_is_run_three_times_before_all_ranks_fail(tmp_path: Path) -> None:
    for failures in (2, 3):
        folder = tmp_path / str(failures)
        folder.mkdir()
        there, here = measure(folder, failures)
        assert there == (0.0 if failures == 2 else "it failed on another rank")
        assert here == 0.25 if failures == 2 else "ended with status 7" in str(here)
        assert len((folder / "starts").read_text()) == 3


def test_what_programs_print_is_read() -> None:
    text = (
        "| Stage | # iterations | 50.0%ile | average |\n"
        "[thread 0]               126   4000.290  3999.325  3999.325  0.24  0.24  250  250\n"
        "Final:                  2000      7.772   221.726   695.859  4.40  1.40  4510  1437\n"
    )
    assert perftest_seconds(text, 0) == pytest.approx(7.772e-6)
    assert perftest_seconds(text, 1) == pytest.approx(695.859e-6)
    final = "2000 7.772 221.726 695.859 4.40 1.40 4510 1437\n"  # with -f
    assert perftest_seconds(final, 0) == pytest.approx(7.772e-6)
    with pytest.raises(RuntimeError, match="no result: 'no route'"):
        perftest_seconds("no route\n", 0)
    text = json.dumps({"end": {"sum_received": {"bits_per_second": 8e9}}})
    assert iperf_seconds(text, 1000) == pytest.approx(1e-6)
