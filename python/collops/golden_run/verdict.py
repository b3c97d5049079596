"""Checks the reports of the ranks, passed or the reasons why not, and draws wrong outputs."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from collops.golden.case_files.csv_row import STAGES
from collops.golden.compare import Comparison, compare
from collops.golden.compare.atb_tolerance import EXACT, Tolerance, tolerance
from collops.golden.compare.plot import DPI, error_figure
from collops.golden.data.bounds import bound
from collops.golden.data.deviation import values_of
from collops.golden.data.dtypes import is_float, name_of
from collops.golden.operators.output_layout import OutputLayout
from collops.golden_run.backends import is_on_device, keeps_order

if TYPE_CHECKING:
    from collops.golden.data.bounds import Bound
    from collops.golden.data.dtypes import Array
    from collops.golden_run.calls import Call, Truth
    from collops.golden_run.rank import Report


# Pictures that a report keeps: each takes about half a second and 50 KB.
MOST_KEPT = 30


class Drawings:
    """Draws the wrong outputs that it is called with: the first into a file, others as bytes.

    Args:
        path: the file of the first wrong output; None: no file.
        keeps: whether pictures are returned, up to MOST_KEPT.
    """

    def __init__(self, path: Path | None, keeps: bool) -> None:
        self._path = path
        self._keeps = keeps
        self._left = MOST_KEPT if keeps else 0
        self.written = False
        self.is_full = False

    def __call__(
        self,
        got: Sequence[Array],
        expected: Sequence[Array],
        result: Comparison,
        layout: OutputLayout,
    ) -> bytes:
        """Draws an output; returns a PNG if it is to be kept, else nothing."""
        kept = self._left > 0
        self.is_full = self._keeps and not kept
        if not kept and (self._path is None or self.written):
            return b""
        pattern = result.diagnosis
        figure = error_figure(
            got,
            expected,
            result.masks,
            result.dtype,
            layout=layout,
            names=[f"rank {rank}" for rank in range(len(expected))],
            title=pattern.kind if pattern.kind == "no pattern" else pattern.text,
        )
        picture = io.BytesIO()
        figure.savefig(picture, format="png", dpi=DPI)
        if self._path is not None and not self.written:
            self._path.write_bytes(picture.getvalue())
            self.written = True
        self._left -= kept
        return picture.getvalue() if kept else b""


# How a rank ends whose peer has refused the call.
_TOLD = "E:ERROR_RANK_MISMATCH"
_LETTERS = {stage: letter for letter, stage in STAGES.items()}
# Draws a wrong output: got, expected, the comparison, the blocks of the ranks. Returns the picture
# where the outcome is to keep it, else nothing.
Draw = Callable[[Sequence["Array"], Sequence["Array"], Comparison, OutputLayout], bytes]


@dataclass(frozen=True)
class Verdict:
    """Whether a call ended as expected, and if not, why, and pictures of what is wrong (PNG).

    `got` is one line on how the ranks ended, where that is what is wrong.
    """

    passed: bool
    text: str = ""
    pictures: tuple[bytes, ...] = ()
    got: str = ""


def judge(
    call: Call,
    reports: Sequence[Report],
    atb: bool = False,
    draw: Draw | None = None,
) -> Verdict:
    """Returns whether every rank ended as the call expects.

    `atb`: with ATB's tolerances in place of golden's. `draw` is called with every wrong output.
    """
    expected = call.expected
    if expected.stage or any(report.stage for report in reports):
        wanted = f"{_LETTERS[expected.stage]}:{expected.name}" if expected.stage else "NO_ERROR"
        ends = [_ending(r) if r.took_part or r.stage else wanted for r in reports]
        told = _TOLD if expected.stage == "execute" and wanted in ends else wanted
        if all(end in (wanted, told) for end in ends):
            return Verdict(True)
        return _wrong_endings(wanted, ends, reports)
    if call.stops_at:
        return Verdict(True)
    try:
        truth = call.truth()
        problem = _number_problem(truth, reports)
        if problem:
            return Verdict(False, problem)
        return _outputs(call, truth, reports, atb, draw)
    except Exception as error:  # a fault in a case's files must not stop the other cases
        named = isinstance(error, (OSError, ValueError))
        said = str(error) if named else f"{type(error).__name__}: {error}"
        return Verdict(False, f"golden cannot compute the expected outputs: {said}")


def lacking_backend(call: Call, reports: Sequence[Report]) -> str:
    """Why a call that must come to execute is skipped: the backend does not run it; or empty."""
    backend = reports[0].backend
    if call.expected.stage not in ("", "execute") or not is_on_device(backend):
        return ""
    taking = [report for report in reports if report.took_part]
    lacks = all((r.stage, r.name) == ("setup", "ERROR_UNSUPPORTED") for r in taking)
    if not lacks:
        return ""
    return f"backend {backend} does not run it: {taking[0].message}"


def _number_problem(truth: Truth, reports: Sequence[Report]) -> str:
    """What is wrong with the number of outputs; empty if it is right."""
    wanted = len(truth.outputs)
    if wanted == 0:
        return "golden cannot compute the expected outputs: the case has none"
    for rank, report in enumerate(reports):
        if len(report.outputs) != wanted:
            return f"rank {rank} has {len(report.outputs)} outputs, expected {wanted}"
    return ""


def _outputs(
    call: Call,
    truth: Truth,
    reports: Sequence[Report],
    atb: bool,
    draw: Draw | None,
) -> Verdict:
    texts: list[str] = []
    pictures: list[bytes] = []
    for position, expected in enumerate(truth.outputs):
        got = [report.outputs[position] for report in reports]
        first = position == 0  # a second output is the gathered x
        layout = truth.layout if first else OutputLayout()
        result = compare(
            got,
            expected,
            truth.dtype if first else name_of(expected[0]),
            tolerance=_atb_tolerance(call, truth) if atb and first else EXACT,
            bounds=_bounds(truth, reports, atb) if first else None,
            layout=layout,
        )
        if not result.accepted:
            head = f"output {position}: " if len(truth.outputs) > 1 else ""
            texts.append(head + result.text())
            if draw is not None and not result.problem:
                try:
                    pictures.append(draw(got, expected, result, layout))
                except Exception as error:  # the outcome of the case counts, with or without it
                    texts.append(f"no plot: {type(error).__name__}: {error}")
    return Verdict(not texts, "\n".join(texts), tuple(filter(None, pictures)))


def _bounds(truth: Truth, reports: Sequence[Report], atb: bool) -> Sequence[Bound] | None:
    """The largest error of every element of the first output; None: the tolerance decides."""
    if atb or truth.bounds is not None:
        return None if atb else truth.bounds
    layout, dtype = truth.layout, truth.dtype
    ordered = all(keeps_order(report.backend) for report in reports)
    if ordered or not layout.parts or not is_float(dtype):
        return None
    bounds = []
    for expected, parts in zip(truth.outputs[0], layout.parts, strict=True):
        sizes = [np.abs(values_of(part, dtype)).reshape(-1) for part in parts]
        total = np.prod(sizes, axis=0) if layout.op == "prod" else np.sum(sizes, axis=0)
        limits = np.zeros(expected.size)
        limits[: total.size] = bound(dtype, layout.op, len(parts), total)
        bounds.append(limits.reshape(expected.shape))
    return bounds


def _atb_tolerance(call: Call, truth: Truth) -> Tolerance:
    try:
        return tolerance("atb", call.operator, truth.dtype, reduce=truth.reduce, terms=truth.terms)
    except ValueError:
        return EXACT  # ATB has no table for the dtype


def _ending(report: Report) -> str:
    """How a rank ended, in the notation of a case file."""
    if not report.stage:
        return "NO_ERROR"
    letter = _LETTERS.get(report.stage)
    return f"{letter}:{report.name}" if letter and report.code >= 0 else report.name


def _wrong_endings(wanted: str, ends: Sequence[str], reports: Sequence[Report]) -> Verdict:
    """One line per unexpected end, with its ranks and the first message."""
    lines = []
    for end in dict.fromkeys(ends):
        ranks = [rank for rank, own in enumerate(ends) if own == end]
        who = "all ranks" if len(ranks) == len(ends) else f"rank {', '.join(map(str, ranks))}"
        said = reports[ranks[0]].message
        lines.append(f"got {end} on {who}" + (f": {said}" if said else ""))
    text = "\n".join([f"expected {wanted}", *lines])
    # A message may have several lines.
    got = "; ".join(line.partition("\n")[0] for line in lines)
    return Verdict(False, text, got=got)
