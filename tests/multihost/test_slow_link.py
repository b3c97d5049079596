"""A link that is slow, and takes longer than any time-out of a connection, is no fault."""

from __future__ import annotations

import re

import pytest
from hosts import Host
from jobs import RANKS, Job

PROGRAM = str(RANKS / "gather.py")
LIMIT_S = 100.0
BITS_PER_S = 10_000_000
ELEMENTS = 750_000  # of 8 bytes: 4.8 s
SILENCE_S = 4.0  # after which a silent peer is lost


def test_a_call_that_takes_longer_than_a_silence_is_no_loss(two_hosts: list[Host]) -> None:
    try:
        for host in two_hosts:
            host.slow_down(f"{BITS_PER_S}bit")
    except RuntimeError as error:
        pytest.skip(f"this kernel cannot slow a link down: {error}")
    with Job(two_hosts, [0, 1], PROGRAM, str(ELEMENTS), "1") as job:
        for status, out, err in job.results(LIMIT_S):
            assert status == 0, out + err
            found = re.search(r"slowest ([\d.]+)", out)
            assert found is not None, out
            assert float(found[1]) > ELEMENTS * 8 * 8 / BITS_PER_S * 0.9 > SILENCE_S
