"""The exceptions of run_ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    # A rank's result, or its error and the traceback.
    Report = tuple[Any, "BaseException | None", str]


class RankErrors(Exception):  # noqa: N818 - the errors of several ranks
    """One or more ranks failed.

    Attributes:
        errors: the exception of each rank that failed, by rank.
        tracebacks: the traceback of each error as text, by rank.
    """

    def __init__(self, errors: dict[int, BaseException], tracebacks: dict[int, str]) -> None:
        super().__init__(errors, tracebacks)
        self.errors = errors
        self.tracebacks = tracebacks

    def __str__(self) -> str:
        ranks = ", ".join(map(str, self.errors))
        parts = [f"rank {ranks} failed" if len(self.errors) == 1 else f"ranks {ranks} failed"]
        for rank, error in self.errors.items():
            parts.append(f"--- rank {rank} ---\n{self._describe(rank, error)}")
        return "\n".join(parts)

    def _describe(self, rank: int, error: BaseException) -> str:
        where = self.tracebacks.get(rank, "").rstrip()
        if isinstance(error, RankEndedError):
            return f"{error}; it was here:\n{where}" if where else str(error)
        return where or f"{type(error).__name__}: {error}"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.errors, self.tracebacks)


class RankDiedError(RuntimeError):
    """A rank's process ended without a report."""


class RankEndedError(RuntimeError):
    """run_ranks ended a rank, because of the time-out or because another rank had failed."""


def results_of(reports: Mapping[int, Report]) -> list[Any]:
    """Returns the results of all ranks in rank order, or raises RankErrors."""
    by_rank = sorted(reports.items())
    errors = {rank: error for rank, (_, error, _) in by_rank if error is not None}
    if errors:
        raise RankErrors(errors, {rank: reports[rank][2] for rank in errors})
    return [result for _, (result, _, _) in by_rank]
