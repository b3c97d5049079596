"""``collops plan``: predicts, and prints."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from collops.errors import without_code
from collops.plan.arguments import call_on, parse, placements
from collops.plan.calibration import calibrate, misfit, read_rows, timed
from collops.plan.costs import ASSUMED, Costs
from collops.plan.limits import limits
from collops.plan.prediction import Call, Prediction, predict
from collops.plan.report import (
    as_object,
    growth_lines,
    headline,
    host_tables,
    limit_table,
    scale_table,
)
from collops.terminal import Progress


def main(arguments: Sequence[str]) -> int:
    """Predicts and prints; 0: success, 2: wrong arguments."""
    options = parse(arguments)
    try:
        return run(options)
    except (ValueError, OSError) as problem:
        print(f"collops plan: {without_code(problem)}", file=sys.stderr)
        return 2


def run(options: argparse.Namespace) -> int:
    """Prints what the options ask for.

    Raises:
        OSError: a file cannot be read or written.
        ValueError: a file, or a number, is wrong.
    """
    costs, source = _costs(options.links)
    found: list[tuple[Call, list[str], Prediction]] = []
    every = placements(options)
    progress = Progress(len(every))
    try:
        for host_of, names in every:
            call = call_on(options, host_of)
            progress.show(len(found), f"{len(host_of)} ranks on {len(names)} hosts")
            found.append((call, names, predict(call, costs, options.shared_cores)))
    finally:
        progress.clear()
    call, names, largest = found[-1]
    if options.json:
        text = json.dumps(as_object(call, names, largest, costs, options.links is not None))
        if options.json == "-":
            print(text)
            return 0
        Path(options.json).write_text(f"{text}\n", encoding="utf-8")
    print(headline(call, names, source))
    if len(found) > 1:
        print(scale_table([(each, prediction) for each, _, prediction in found]))
    else:
        print(host_tables(call, names, largest))
    print(f"\n{growth_lines(call)}\n\n{limit_table(call, limits(call, largest))}")
    return 0


def _costs(path: Path | None) -> tuple[Costs, str]:
    """The costs, and where they come from."""
    if path is None:
        return ASSUMED, (
            f"ASSUMED, not measured: {ASSUMED.network_rate / 1000:g} GB/s and "
            f"{ASSUMED.latency_us:g} us between hosts (--links FILE reads measured ones)"
        )
    rows = read_rows(path)
    try:
        measured = timed(rows)
        costs = calibrate(measured)
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}") from None
    off = misfit(costs, [each for each in measured if each.call.host_of == (0, 1)])
    return costs, f"measured, {path}; which predicts its calls within {off:.0%}"
