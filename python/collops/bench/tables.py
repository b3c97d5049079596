"""The rows of a point, and the tables of a benchmark in markdown."""

from __future__ import annotations

from collections.abc import Sequence

from collops.bench.operator import Operator, Row
from collops.terminal.tables import markdown_table


def compared(operator: Operator, record: Row) -> list[Row]:
    """One row per variant of a point, with its ratios to other variants."""
    point = {key: value for key, value in record.items() if key not in ("record", "columns")}
    others = {row["column"]: row for row in record["columns"]}
    return [operator.compare({**point, **row}, others) for row in others.values()]


def point_table(operator: Operator, rows: list[Row]) -> str:
    """All variants of one point of one launch."""
    first = rows[0]
    said = operator.headline(first, f"{machine_text(first)}{_barriers(first)}")
    head = ("", "ms", "p10 .. p90", *operator.ratios, "adds MiB", "result")
    cells = markdown_table(head, [_cells(operator, row) for row in rows])
    return f"### {full_title(operator, first)}\n\n{said}\n\n{cells}\n"


def machine_text(row: Row) -> str:
    """Where a row's calls ran, and how they were timed; a simulated GPU is said to be one."""
    if "device" not in row:
        return f"{row['threads']} thread(s) a rank, {row['isa']}"
    simulated = (
        "SIMULATED: no GPU was used, and no time is one of a GPU; " if row["simulated"] else ""
    )
    driver = row["driver"] or f"of CUDA {row['driver_cuda']}"
    calls = f"{row['calls']} calls{' in a graph' if row['graph'] else ''} between two events"
    return (
        f"{simulated}{row['device']} (ranks on {_numbers(row['devices'])}), driver {driver}, NCCL "
        f"{row['nccl'] or 'not there'}; {calls}"
    )


def _numbers(devices: Sequence[int]) -> str:
    return f"GPU {', '.join(map(str, dict.fromkeys(devices)))}"


def _barriers(row: Row) -> str:
    rounds = f"; {row['iterations']} rounds"
    if "device" in row:
        return rounds
    before, after = row["place_us"]
    return f"{rounds}; a barrier took {before} us before, {after} us after"


def full_title(operator: Operator, row: Row) -> str:
    """The name of a row's point, and the MPI of its launch."""
    return operator.title(row) + (f", {row['mpi']}" if row["mpi"] else "")


def number(value: float | None, form: str) -> str:
    """A number as text, or a dash if it is None."""
    return "-" if value is None else format(value, form)


def milliseconds(value: float) -> str:
    """A time with three digits behind the point, and with more below a tenth of a millisecond."""
    return f"{value:.3f}" if value >= 0.1 else f"{value:.5f}"


def _cells(operator: Operator, row: Row) -> list[str]:
    wrong = row["wrong_ranks"]
    return [
        row["label"],
        milliseconds(row["ms"]),
        f"{milliseconds(row['ms_p10'])} .. {milliseconds(row['ms_p90'])}",
        *(number(row[key], ".3f") for key in operator.ratios.values()),
        number(row["memory_mib"], ".1f"),
        "" if wrong is None else f"WRONG on {wrong} rank(s)" if wrong else "ok",
    ]
