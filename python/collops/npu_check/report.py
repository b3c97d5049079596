"""The report: printed and written at once, line by line, so that a crash leaves what was found."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path

State = Literal["passed", "FAILED", "not supported"]
STATES: tuple[State, ...] = ("passed", "FAILED", "not supported")


class Report:
    """Lines on standard output and in a file; close() ends the file.

    Once `simulated` is set, every line begins with the word: nothing in such a report was measured
    on an NPU.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")
        self.simulated = False
        self.counts: Counter[State] = Counter()

    def line(self, text: str) -> None:
        """Adds lines."""
        for one in text.splitlines() or [""]:
            marked = f"simulated: {one}".rstrip() if self.simulated else one
            print(marked, flush=True)
            self._file.write(marked + "\n")
            self._file.flush()

    def rows(self, title: str, rows: list[tuple[str, str]]) -> None:
        """Adds a part of the report, aligned."""
        self.line(title)
        width = max((len(name) for name, _ in rows), default=0)
        for name, text in rows:
            first, *more = text.splitlines() or [""]
            self.line(f"  {name:<{width}}  {first}".rstrip())
            for other in more:
                self.line(f"  {'':<{width}}  {other}".rstrip())

    def outcome(self, name: str, state: State, text: str) -> None:
        """Adds the outcome of a check, and counts it."""
        self.counts[state] += 1
        first, *more = text.splitlines() or [""]
        self.line(f"  {name:<26} {state}{': ' if first else ''}{first}")
        for other in more:
            self.line(f"      {other}")

    def close(self) -> None:
        """Ends the file."""
        self._file.close()
