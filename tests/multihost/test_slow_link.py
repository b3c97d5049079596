"""A link that is slow, or a rank that is stopped, for longer than any time-out, is no fault."""

from __future__ import annotations

import os
import re
import signal
import time

import pytest

from patience import patience
from tests.multihost.hosts import Host
from tests.multihost.jobs import RANKS, Job

PROGRAM = str(RANKS / "gather.py")
LIMIT_S = patience(100.0)
BITS_PER_S = 10_000_000
ELEMENTS = 750_000  # of 8 bytes: 4.8 s
SILENCE_S = 4.0  # after which a silent peer is lost


def slow_down(hosts: list[Host]) -> None:
    try:
        for host in hosts:
            host.slow_down(f"{BITS_PER_S}bit")
    except RuntimeError as error:
        pytest.skip(f"this kernel cannot slow a link down: {error}")


def test_a_call_that_takes_longer_than_a_silence_is_no_loss(two_hosts: list[Host]) -> None:
    slow_down(two_hosts)
    with Job(two_hosts, [0, 1], PROGRAM, str(ELEMENTS), "1") as job:
        for status, out, err in job.results(LIMIT_S):
            assert status == 0, out + err
            found = re.search(r"slowest ([\d.]+)", out)
            assert found is not None, out
            assert float(found[1]) > ELEMENTS * 8 * 8 / BITS_PER_S * 0.9 > SILENCE_S


def test_a_rank_that_is_stopped_while_data_comes_is_no_loss(two_hosts: list[Host]) -> None:
    slow_down(two_hosts)
    # The memory of the stopped rank's connections is soon full.
    two_hosts[1].run("sysctl", "-qw", "net.ipv4.tcp_rmem=4096 65536 65536")
    with Job(two_hosts, [0, 1], PROGRAM, str(ELEMENTS), "1") as job:
        stdout = job.launchers[1].stdout
        assert stdout is not None
        prefix, what, pid = stdout.readline().split()
        assert (prefix, what) == ("[1]", "pid")
        deadline = time.monotonic() + LIMIT_S
        while two_hosts[0].sent_bytes() < ELEMENTS * 8 / 5:
            assert time.monotonic() < deadline
        os.kill(int(pid), signal.SIGSTOP)
        try:
            time.sleep(1.5 * SILENCE_S)
        finally:
            os.kill(int(pid), signal.SIGCONT)
        for status, out, err in job.results(LIMIT_S):
            assert status == 0, out + err
            assert "slowest" in out


def test_a_time_out_names_the_rank_whose_data_is_late(two_hosts: list[Host]) -> None:
    slow_down(two_hosts)
    with Job(two_hosts, [0, 1], PROGRAM, str(ELEMENTS), "1", COLLOPS_TIMEOUT_S="2") as job:
        for status, out, err in job.results(LIMIT_S):
            assert status != 0, out
            late = r"call 1 timed out after 2 s: rank \d \(pid \d+\), .*, "
            what = "has not (sent all its|taken all) data"
            assert re.search(rf"{late}is in call 1 \(\w+\) and {what}", err), err
