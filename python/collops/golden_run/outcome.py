"""The outcomes of the cases of a run, and the lines that print them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from collops.terminal import colored

if TYPE_CHECKING:
    from collops.golden_run.jobs import Job

PASSED, FAILED, DIFFERS, SKIPPED = "passed", "failed", "differs", "skipped"
# The number of skipped cases that are named per reason.
_NAMED = 3


@dataclass(frozen=True)
class Outcome:
    """The outcome of one case: state, reason (unless it passed), seconds, and pictures (PNG)."""

    job: Job
    state: str
    text: str = ""
    seconds: float = 0.0
    pictures: tuple[bytes, ...] = ()

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
