"""The parts of a benchmark's tables: where rows were measured, figures, and a point's table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from collops.bench.operator import Row
from collops.terminal.tables import markdown_table


def point_table(title: str, said: str, ratios: Mapping[str, str], rows: Sequence[Row]) -> str:
    """All variants of one point of one launch.

    Args:
        title: the point's name.
        said: the line below it, with {} for the machine and the barriers.
        ratios: the columns between the times and the memory: head -> key of the row.
        rows: of each variant.
    """
    first = rows[0]
    head = ("", "ms", "p10 .. p90", *ratios, "adds MiB", "result")
    cells = markdown_table(head, [_cells(ratios, row) for row in rows])
    return f"### {title}\n\n{said.format(machine_text(first) + _barriers(first))}\n\n{cells}\n"


def machine_text(row: Row) -> str:
    """Where a row's calls ran, and how they were timed; a simulated GPU is said to be one."""
    if "device" not in row:
        return f"{row['threads']} thread(s) a rank, {row['isa']}"
    simulated = (
        "SIMULATED: no GPU was used, and no time is one of a GPU; " if row["simulated"] else ""
    )
    driver = row["driver"] or f"of CUDA {row['driver_cuda']}"
    gpus = ", ".join(map(str, dict.fromkeys(row["devices"])))
    calls = f"{row['calls']} calls{' in a graph' if row['graph'] else ''} between two events"
    return (
        f"{simulated}{row['device']} (ranks on GPU {gpus}), driver {driver}, NCCL "
        f"{row['nccl'] or 'not there'}; {calls}"
    )


def _barriers(row: Row) -> str:
    rounds = f"; {row['iterations']} rounds"
    if "device" in row:
        return rounds
    before, after = row["place_us"]
    return f"{rounds}; a barrier took {before} us before, {after} us after"


def number(value: float | None, form: str) -> str:
    """A number as text, or a dash if it is None."""
    return "-" if value is None else format(value, form)


def _milliseconds(value: float) -> str:
    return f"{value:.3f}" if value >= 0.1 else f"{value:.5f}"


def _cells(ratios: Mapping[str, str], row: Row) -> list[str]:
    wrong = row["wrong_ranks"]
    return [
        row["label"],
        _milliseconds(row["ms"]),
        f"{_milliseconds(row['ms_p10'])} .. {_milliseconds(row['ms_p90'])}",
        *(number(row[key], ".3f") for key in ratios.values()),
        number(row["memory_mib"], ".1f"),
        "" if wrong is None else f"WRONG on {wrong} rank(s)" if wrong else "ok",
    ]
