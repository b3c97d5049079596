"""Runs jobs on ranks one after the other, and checks the results of each while the next runs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from collops.golden_run.outcome import DIFFERS, FAILED, PASSED, SKIPPED, Outcome
from collops.golden_run.pool import Pools
from collops.golden_run.rank import execute
from collops.golden_run.verdict import Draw, judge, lacking_backend

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from collops.golden_run.calls import Call
    from collops.golden_run.jobs import Job
    from collops.golden_run.launched import LaunchedRanks
    from collops.golden_run.pool import Pool, Work
    from collops.golden_run.rank import Report

    _Reported = tuple[Job, Call, Sequence[Report], float]


class Runner:
    """Runs jobs with one backend, time-out and tolerance.

    Args:
        environment: variables of the ranks, such as COLLOPS_BACKEND.
        timeout: seconds that a case may take.
        atb: ATB's tolerances for results, in place of golden's.
        draw: is called with the wrong outputs of a case.
        work: the function with which a rank runs a call.
        launched: the ranks, if this process is one of them; None: they are started here.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        timeout: float = 60.0,
        atb: bool = False,
        draw: Draw | None = None,
        work: Work = execute,
        launched: LaunchedRanks | None = None,
    ) -> None:
        self._environment = environment
        self._timeout = timeout
        self._atb = atb
        self._draw = draw
        self._work = work
        self._launched = launched

    def run(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Yields the outcome of every job, in their order."""
        waiting: list[_Reported] = []
        with self._launched or Pools(self._environment, self._work) as pools:
            for job in jobs:
                if job.call is None:
                    yield from self._judged(waiting)
                    yield _without_run(job)
                    continue
                begin = time.perf_counter()
                pool: Pool | LaunchedRanks = pools.of(job.call)
                pool.submit(job.call)
                # The ranks run this case while the results of the one before it are checked.
                yield from self._judged(waiting)
                reports = pool.collect(self._timeout)
                waiting.append((job, job.call, reports, time.perf_counter() - begin))
            yield from self._judged(waiting)

    def _judged(self, waiting: list[_Reported]) -> Iterator[Outcome]:
        while waiting:
            yield self._judge(*waiting.pop(0))

    def _judge(self, job: Job, call: Call, reports: Sequence[Report], seconds: float) -> Outcome:
        if not reports:
            return Outcome(job, PASSED, "", seconds)  # rank 0 judges
        verdict = judge(call, reports, self._atb, self._draw)
        if not verdict.passed:
            excuse = job.excuse if not any(report.stage for report in reports) else ""
            excuse = excuse or lacking_backend(call, reports)
            if excuse:
                return Outcome(job, SKIPPED, excuse, seconds)
            text = verdict.text
            if job.action == "differs":
                text = f"differs from ATB by intent ({job.reason}), but not as it should\n{text}"
            return Outcome(job, FAILED, text, seconds, verdict.pictures)
        if job.action == "differs":
            return Outcome(job, DIFFERS, job.reason, seconds)
        return Outcome(job, PASSED, "", seconds)


def _without_run(job: Job) -> Outcome:
    state = {"skip": SKIPPED, "differs": DIFFERS}.get(job.action, FAILED)
    return Outcome(job, state, job.reason)
