"""A job that loses a rank, a host or the link, and what its ranks then report."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Sequence

from patience import patience
from tests.multihost.hosts import Host, silent_hole
from tests.multihost.jobs import Job

LIMIT_S = patience(60.0)
# A host's silence is noticed after about four seconds.
HOST_S = patience(8.0)
RANK_S = patience(5.0)


class Lost(Job):
    """A job whose ranks print their pid, "ready", and at the end the error that they got.

    Inside ``with`` all ranks are ready; one of kill(), cut() and make_hole() comes first there.
    """

    def __init__(self, hosts: Sequence[Host], placement: Sequence[int], *program: str) -> None:
        super().__init__(hosts, placement, *program)
        self.pids: dict[int, int] = {}
        self._hosts = hosts
        self._placement = placement
        self._begin = 0.0
        self._errors: dict[int, tuple[float, str]] | None = None
        self._lines: list[str] = []
        self._complaints = ""

    def __enter__(self) -> Lost:
        ready: set[int] = set()
        for host, launcher in enumerate(self.launchers):
            wanted = {rank for rank, where in enumerate(self._placement) if where == host}
            assert launcher.stdout is not None
            while not wanted <= ready:
                prefix, what, *rest = launcher.stdout.readline().split()
                rank = int(prefix.strip("[]"))
                if what == "pid":
                    self.pids[rank] = int(rest[0])
                else:
                    assert what == "ready"
                    ready.add(rank)
        return self

    def kill(self, *ranks: int) -> None:
        """Ends the processes of these ranks at once."""
        self._begin = time.time()
        for rank in ranks:
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                os.kill(self.pids[rank], signal.SIGKILL)

    def cut(self) -> None:
        """Takes the cable out."""
        self._begin = time.time()
        self._hosts[0].cut()

    def make_hole(self) -> None:
        """Makes the wire swallow everything."""
        self._begin = time.time()
        silent_hole(self._hosts[0], self._hosts[1])

    def errors(self) -> dict[int, tuple[float, str]]:
        """Of each rank that got an error: seconds since the loss, and the error."""
        if self._errors is None:
            self._errors = {}
            for _, out, err in self.results(LIMIT_S):
                self._lines += out.splitlines()
                self._complaints += err
                for line in out.splitlines():
                    rank, what, *rest = line.split(" ", 3)
                    if what == "error":
                        seconds = float(rest[0]) - self._begin
                        self._errors[int(rank.strip("[]"))] = seconds, rest[1]
        return self._errors

    def printed(self, rank: int) -> str:
        """The lines of a rank, once errors() has been called."""
        return "\n".join(line for line in self._lines if line.startswith(f"[{rank}] "))

    def was_ended_by(self, rank: int, number: signal.Signals) -> bool:
        """Whether a launcher says that this signal has ended a rank."""
        self.errors()
        return f"rank {rank} (pid {self.pids[rank]}) was ended by {number.name}" in self._complaints

    def check(self, ranks: Iterable[int], limit_s: float, *names: str) -> None:
        """Each of these ranks has reported the loss in time, by one of the names."""
        for rank in ranks:
            told = "\n".join([*self._lines, self._complaints])
            assert rank in self.errors(), f"rank {rank} had no error: {told}"
            seconds, error = self.errors()[rank]
            assert seconds < limit_s, f"rank {rank}: {seconds} s, {error}"
            assert error.startswith("ERROR_PEER_LOST"), f"rank {rank}: {error}"
            assert any(name in error for name in names), f"rank {rank}: {error}"
