"""Starts the processes of a soak, stops some for a while, hears their reports, ends them all."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from multiprocessing import connection
from multiprocessing.sharedctypes import RawValue
from random import Random
from typing import Any, NamedTuple

from collops.launch.processes import RankProcess, end_all, interrupts_deferred, start
from tests.soak.soak_rank import Drawn, Place, Plan, run_process
from tests.soak.soak_resources import Resources

LOOK_S = 0.05
GRACE_S = 2.0  # for the reports of the others, once one has failed
PATIENCE_S = 5.0


class Report(NamedTuple):
    """What a process said at its end: errors, or what it did and what it held after each phase."""

    errors: str
    drawn: Drawn | None
    measured: list[Resources] | None


class Watch:
    """The processes of a soak; `close` leaves none of them, whatever has happened."""

    def __init__(self, plan: Plan, rooms: Sequence[list[Place]], source: Any) -> None:
        self.rooms = rooms
        self.numbers = [[RawValue("q", -1) for _ in places] for places in rooms]
        self.stops = 0
        self._plan, self._source = plan, source
        self._processes: list[RankProcess] = []
        self._stopped: dict[int, float] = {}  # pid: when it goes on
        self._draw = Random(f"{plan.settings.seed}/stops")

    def start(self) -> None:
        for number, places in enumerate(self.rooms):
            arguments = (self._plan, places, self._source, self.numbers[number])
            start(self._processes, [number], run_process, arguments, apart=True)

    def run(self, stops_per_s: float, limit_s: float, progress_s: float) -> list[Report]:
        """Waits for all reports; shortly after a failure, and at the limit, no longer."""
        begin = shown = time.monotonic()
        next_stop = begin + self._until_next(stops_per_s)
        deadline = begin + limit_s
        while silent := [process for process in self._processes if process.silent]:
            ends = [process.end for process in silent]
            sentinels = [process.process.sentinel for process in silent]
            connection.wait([*ends, *sentinels], LOOK_S)
            for process in silent:
                process.listen()
            now = time.monotonic()
            if any(not process.silent and report_of(process).errors for process in silent):
                deadline = min(deadline, now + GRACE_S)
            if now > deadline:
                break
            self._go_on(now)
            if now > next_stop:
                self._stop_one(now)
                next_stop = now + self._until_next(stops_per_s)
            if now - shown > progress_s:
                shown = now
                print(f"  {now - begin:.0f} s: calls {self.where()}", flush=True)
        failed = any(report_of(process).errors for process in self._processes)
        return [report_of(process, 0.0 if failed else limit_s) for process in self._processes]

    def where(self) -> str:
        """The number of the call that each domain's ranks make."""
        found: dict[str, list[int]] = {}
        for places, numbers in zip(self.rooms, self.numbers, strict=True):
            for place, number in zip(places, numbers, strict=True):
                found.setdefault(place.domain, []).append(number.value)
        return ", ".join(f"{domain} {max(values)}" for domain, values in found.items())

    def _until_next(self, stops_per_s: float) -> float:
        return self._draw.expovariate(stops_per_s) if stops_per_s > 0 else float("inf")

    def _stop_one(self, now: float) -> None:
        process = self._draw.choice(self._processes).process
        pid = process.pid
        if pid is None or pid in self._stopped or not process.is_alive():
            return
        os.kill(pid, signal.SIGSTOP)
        self.stops += 1
        self._stopped[pid] = now + self._draw.choice((0.001, 0.02, 0.1, 0.5)) * self._draw.random()

    def _go_on(self, now: float) -> None:
        for pid, then in list(self._stopped.items()):
            if now < then:
                continue
            del self._stopped[pid]
            os.kill(pid, signal.SIGCONT)  # our child, which is not reaped while it is stopped

    def close(self) -> None:
        """Ends every process, by its pid; those that are stopped, too."""
        with interrupts_deferred():
            for process in self._processes:
                if process.silent:
                    process.kill()
            self._stopped.clear()
            end_all(self._processes, PATIENCE_S)
            self._processes.clear()


def report_of(process: RankProcess, limit_s: float = 0.0) -> Report:
    if process.report is not None:
        return Report(*process.report)
    if process.silent:
        return Report(f"it had not ended after {limit_s:.0f} s" if limit_s else "", None, None)
    return Report(f"it ended without a report: {process.lost or process.problem}", None, None)
