"""What the benchmarks' tests share: the command, and the measurement of points on ranks."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import collops
from collops.bench.operator import Operator, Request
from collops.bench.peers import Peers
from collops.bench.variants import MeasuredPoint
from tests import programs


def bench(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """`collops bench` with its output."""
    command = [sys.executable, "-m", "collops", "bench", *words]
    return programs.run(command, capture_output=True, **options)


def rows_of(file: Path) -> list[dict[str, Any]]:
    """What --json has written."""
    return [json.loads(line) for line in file.read_text().splitlines()]


@contextlib.contextmanager
def measurement() -> Iterator[Callable[..., MeasuredPoint]]:
    """Makes the measurement of a point on this rank; the ranks' communicators end with it."""
    with collops.init() as work, collops.init(comm_domain="meeting") as meeting:
        peers: list[Peers] = []

        def made(
            operator: Operator, point: Any, wanted: tuple[str, ...] = (), store: str = ""
        ) -> MeasuredPoint:
            request = Request(
                operator=operator.name, points=(point,), iterations=1, threads=1,
                own=operator.own, peers=wanted,
            )  # fmt: skip
            if not peers:
                peers.append(Peers(request, operator, store, work.rank, work.size))
            return MeasuredPoint(operator, point, request, work, meeting.barrier, peers[0])

        yield made
        for each in peers:
            each.close()
