"""Runs jobs on ranks one after the other, and what came of each."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING

from collops.golden_run.pool import Pools
from collops.golden_run.rank import execute
from collops.golden_run.verdict import Draw, judge, lacking_backend
from collops.terminal import colored

if TYPE_CHECKING:
    from collops.golden_run.calls import Call
    from collops.golden_run.jobs import Job
    from collops.golden_run.pool import LaunchedRanks, Pool, Work
    from collops.golden_run.rank import Report

    _Reported = tuple[Job, Call, Sequence[Report], float]


PASSED, FAILED, DIFFERS, SKIPPED = "passed", "failed", "differs", "skipped"
# The number of skipped cases that are named per reason.
_NAMED = 3


@dataclass(frozen=True)
class Outcome:
    """The outcome of one case: state, reason (unless it passed), seconds, and pictures (PNG).

    `got` is one line on how the ranks ended, where that was not as expected.
    """

    job: Job
    state: str
    text: str = ""
    seconds: float = 0.0
    pictures: tuple[bytes, ...] = ()
    got: str = ""

    def lines(self) -> str:
        """The printed text; empty for a case that passed or was skipped."""
        if self.state == FAILED:
            return f"{colored('FAILED', 'red')} {self.job}\n{_indented(self.text)}"
        if self.state == DIFFERS:
            return f"{colored('differs', 'yellow')} {self.job}: {self.text}"
        return ""


@dataclass
class Summary:
    """All outcomes of a run, and the seconds it took."""

    outcomes: list[Outcome] = field(default_factory=list)
    seconds: float = 0.0

    def count(self, state: str) -> int:
        """The number of cases of a state."""
        return sum(outcome.state == state for outcome in self.outcomes)

    @property
    def rate(self) -> float:
        """Cases that were run, per second."""
        run = sum(outcome.seconds > 0 for outcome in self.outcomes)
        return run / self.seconds if self.seconds > 0 else 0.0

    def skipped_lines(self) -> list[str]:
        """One line per reason to skip, with the first skipped cases."""
        jobs: dict[str, list[str]] = {}
        for outcome in self.outcomes:
            if outcome.state == SKIPPED:
                jobs.setdefault(outcome.text, []).append(str(outcome.job))
        lines = []
        for reason, names in jobs.items():
            rest = len(names) - _NAMED
            more = f" and {rest} more" if rest > 0 else ""
            lines.append(
                f"{colored('skipped', 'yellow')} {', '.join(names[:_NAMED])}{more}: {reason}"
            )
        return lines

    def closing_line(self) -> str:
        """The counts of all states, the reasons of skipped cases, and the rate."""
        reasons = Counter(o.text for o in self.outcomes if o.state == SKIPPED)
        listed = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
        skipped = f"{self.count(SKIPPED)} skipped" + (f" ({listed})" if listed else "")
        passed, failed = self.count(PASSED), self.count(FAILED)
        return (
            f"{_counted(passed, 'passed', 'green')}, {_counted(failed, 'failed', 'red')}, "
            f"{self.count(DIFFERS)} differ from ATB by intent, {skipped}; "
            f"{self.rate:.1f} cases per second"
        )

    def problem(self, max_skipped: int | None = None) -> str:
        """Why the run has failed; empty if it has not."""
        if self.count(FAILED):
            return f"{self.count(FAILED)} failed"
        if not self.count(PASSED):
            return "nothing passed"
        skipped = self.count(SKIPPED)
        if max_skipped is not None and skipped > max_skipped:
            return f"{skipped} were skipped, --max-skipped is {max_skipped}"
        return ""


def _counted(count: int, word: str, color: str) -> str:
    """A number of cases, in a colour if there are any."""
    return colored(f"{count} {word}", color) if count else f"{count} {word}"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


@dataclass
class Runner:
    """Runs jobs with one backend, time-out and tolerance."""

    environment: Mapping[str, str]  # of the ranks, such as COLLOPS_BACKEND
    _: KW_ONLY
    timeout: float = 60.0  # seconds that a case may take
    atb: bool = False  # ATB's tolerances for results, in place of golden's
    draw: Draw | None = None  # is called with the wrong outputs of a case
    work: Work = execute  # with which a rank runs a call
    launched: LaunchedRanks | None = None  # if this process is one of them

    def run(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Yields the outcome of every job, in their order."""
        waiting: list[_Reported] = []
        with self.launched or Pools(self.environment, self.work) as pools:
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
                reports = pool.collect(self.timeout)
                waiting.append((job, job.call, reports, time.perf_counter() - begin))
            yield from self._judged(waiting)

    def _judged(self, waiting: list[_Reported]) -> Iterator[Outcome]:
        while waiting:
            yield self._judge(*waiting.pop(0))

    def _judge(self, job: Job, call: Call, reports: Sequence[Report], seconds: float) -> Outcome:
        if not reports:
            return Outcome(job, PASSED, "", seconds)  # rank 0 judges
        verdict = judge(call, reports, self.atb, self.draw)
        if not verdict.passed:
            excuse = job.excuse if not any(report.stage for report in reports) else ""
            excuse = excuse or lacking_backend(call, reports)
            if excuse:
                return Outcome(job, SKIPPED, excuse, seconds)
            text = verdict.text
            if job.action == "differs":
                text = f"differs from ATB by intent ({job.reason}), but not as it should\n{text}"
            return Outcome(job, FAILED, text, seconds, verdict.pictures, verdict.got)
        if job.action == "differs":
            return Outcome(job, DIFFERS, job.reason, seconds)
        return Outcome(job, PASSED, "", seconds)


def _without_run(job: Job) -> Outcome:
    state = {"skip": SKIPPED, "differs": DIFFERS}.get(job.action, FAILED)
    return Outcome(job, state, job.reason)
