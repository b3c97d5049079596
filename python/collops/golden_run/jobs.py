"""The cases in the files of a run, and whether each is run or skipped."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import collops
from collops.core import core
from collops.golden.case_files.csv_cases import check_filter, scan_rows, selector
from collops.golden.case_files.csv_plan import plan_row
from collops.golden.case_files.csv_row import CsvRow, RowError
from collops.golden.case_files.manifest import MANIFEST
from collops.golden.case_files.row_inputs import missing_file
from collops.golden_run.calls import RowCall, case_calls
from collops.terminal.installation import is_installed

if TYPE_CHECKING:
    from collops.golden_run.calls import Call


# Fields of structs that their JSON leaves out by default.
_NOT_WRITTEN = ("hcclComm", "rsv")


@dataclass(frozen=True)
class Job:
    """One case: its name, and what to do with it.

    `action` is run, skip, differs or malformed. A case that differs from ATB by intent is run, too,
    if the behaviour of collops is known (`call` is then set). `excuse` says why a case that should
    fail may work; if it works, it counts as skipped. `line` is the case's line in a .csv, from 1.
    `warning` says what of a row is ignored.
    """

    file: Path
    number: int | None
    name: str
    action: str
    reason: str = ""
    call: Call | None = None
    excuse: str = ""
    line: int = 0
    warning: str = ""

    def __str__(self) -> str:
        number = "" if self.number is None else f"{self.number} "
        return f"{self.file}: {number}{self.name}".rstrip()


def read_jobs(
    paths: Sequence[Path], *, text: str = "", seed: int = 0, same_data: bool = False
) -> list[Job]:
    """Returns the cases of all files that the filter chooses.

    Args:
        paths: ATB's case files (.csv), golden's manifest.json, a case's .npz, or a folder.
        text: part of a case's name, or numbers such as 3,5-9.
        seed: seed of the data of case files.
        same_data: whether every rank gets the data of rank 0, in case files.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file is none of these, a folder has none, or no case was chosen.
    """
    chosen = selector(text)
    every = [
        job
        for path in paths
        for file in case_files(path)
        for job in (
            _case_jobs(file)
            if file.suffix in (".json", ".npz")
            else _row_jobs(file, seed, same_data)
        )
    ]
    jobs = [job for job in every if chosen(job.number, job.name)]
    if not jobs:
        raise ValueError(f"no case has {text!r} in its name or as its number")
    check_filter(text, [job.number for job in every])
    return jobs


def case_files(path: Path) -> list[Path]:
    """The file; of a folder, every .csv and manifest.json in it and in its folders, by name.

    Raises:
        ValueError: a folder has neither.
    """
    if not path.is_dir():
        return [path]
    found = sorted([*path.rglob("*.csv"), *path.rglob(MANIFEST)])
    if not found:
        raise ValueError(f"{path}: this folder has no .csv and no {MANIFEST}")
    return found


def _row_jobs(file: Path, seed: int, same_data: bool) -> Iterator[Job]:
    for row in scan_rows(file):
        if isinstance(row, RowError):
            yield Job(file, row.number, row.name, "malformed", str(row), line=_line_of(row))
        else:
            yield replace(_row_job(file, row, seed, same_data), line=_line_of(row))


def _line_of(row: CsvRow | RowError) -> int:
    """The line of a row in its file, by its place, file:line."""
    return int(row.place.rpartition(":")[2])


def _row_job(file: Path, row: CsvRow, seed: int, same_data: bool) -> Job:
    plan = plan_row(row)
    if plan.action == "skip":
        return Job(file, row.number, row.name, "skip", plan.reason)
    if plan.action == "differs" and plan.instead is None:
        return Job(file, row.number, row.name, "differs", plan.reason)
    missing = missing_file(row)
    if missing is not None:
        return Job(file, row.number, row.name, "malformed", str(missing))
    call = RowCall(row, seed, same_data, plan.instead)
    job = _runnable(Job(file, row.number, row.name, plan.action, plan.reason, call, plan.excuse))
    if job.action == "skip":
        return job
    params, unknown = _known(row.params, json.loads(core().normal_json(call.struct, "{}")))
    if not unknown:
        return job
    names = ", ".join(unknown)
    said = f"{row.place}: OpParam has {names}, which {call.struct} does not have: ignored"
    mended = RowCall(replace(row, params=params), seed, same_data, plan.instead)
    return replace(job, call=mended, warning=said)


def _known(params: Mapping[str, Any], known: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """OpParam without the keys that its struct does not have, which ATB's reader ignores; these."""
    kept: dict[str, Any] = {}
    unknown: list[str] = []
    for key, value in params.items():
        inner = known.get(key)
        if key not in known and key not in _NOT_WRITTEN:
            unknown.append(key)
        elif isinstance(inner, dict) and isinstance(value, dict):
            kept[key], more = _known(value, inner)
            unknown += [f"{key}.{one}" for one in more]
        else:
            kept[key] = value
    return kept, unknown


def _case_jobs(file: Path) -> Iterator[Job]:
    for number, call in enumerate(case_calls(file), start=1):
        job = Job(file, number, call.case.id, "run", call=call)
        if call.outside_atb:
            job = Job(file, number, call.case.id, "skip", call.outside_atb)
        yield _runnable(job)


def _runnable(job: Job) -> Job:
    """The job, or a skipped one if its operator or its tensors are not available here."""
    if job.call is None:
        return job
    struct = job.call.struct
    reason = ""
    if struct not in collops.__all__:
        reason = f"{struct.removesuffix('Param')}Operation is not built yet"
    elif job.call.needs_ml_dtypes and not is_installed("ml_dtypes"):
        reason = "bfloat16 needs the package ml_dtypes"
    return Job(job.file, job.number, job.name, "skip", reason) if reason else job
