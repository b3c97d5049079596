"""Compares outputs with the expected ones: number, size, places and pattern of differences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from ..data.bounds import Bound
from ..data.deviation import absolute_error, relative_error, ulp_error, values_of
from ..data.dtypes import Array, differs, storage
from ..explain import explain
from ..explain.elements import other_shape
from ..explain.evidence import Diagnosis, Evidence
from ..operators.output_layout import Block, OutputLayout
from .atb_tolerance import EXACT, Tolerance
from .report import first_rows, shown

_LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True)
class Extreme:
    """The largest error of one kind, and its place: output, row (index of dim 0), column.

    Example:
        >>> print(Extreme("absolute", 2.0, 1, 0, 3, "5.0", "3.0", label="rank 1"))
        largest absolute error 2 at rank 1 row 0 column 3: got 5.0, expected 3.0
    """

    kind: str
    value: float
    output: int
    row: int
    column: int
    got: str
    expected: str
    label: str = ""

    def __str__(self) -> str:
        place = f"{self.label} row {self.row} column {self.column}".strip()
        number = f"{self.value:.0f}" if self.kind == "ULP" else f"{self.value:.6g}"
        head = f"largest {self.kind} error {number} at {place}"
        return f"{head}: got {self.got}, expected {self.expected}"


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison.

    `wrong` is the number of elements beyond the tolerance, `differing` the number of elements that
    are not equal bit for bit. `masks` has True for wrong elements, per output (for differing ones,
    if only a measure over all elements failed). If the number or the shapes of the outputs differ,
    `problem` is set, and nothing else is compared.

    Example:
        >>> one = compare([np.array([1, 2], np.int8)], [np.array([1, 5], np.int8)], "int8")
        >>> one.accepted, one.wrong, one.size, one.extremes[0].value, one.extremes[0].row
        (False, 1, 2, 3.0, 1)
    """

    accepted: bool
    size: int = 0
    wrong: int = 0
    differing: int = 0
    dtype: str = ""
    tolerance: str = ""
    problem: str = ""
    extremes: tuple[Extreme, ...] = ()
    failed_measures: tuple[str, ...] = ()
    diagnosis: Diagnosis = field(default_factory=lambda: Diagnosis("", ""))
    masks: tuple[npt.NDArray[np.bool_], ...] = field(default=(), repr=False, compare=False)
    lines: tuple[str, ...] = field(default=(), repr=False, compare=False)

    def text(self) -> str:
        """Return the report: one line if the outputs are equal, else several."""
        if self.problem:
            pattern = f"\npattern: {self.diagnosis.text}" if self.diagnosis.text else ""
            return f"different: {self.problem}{pattern}"
        head = f"{self.size} elements of {self.dtype}, {self.tolerance}"
        if self.accepted:
            close = f"; {self.differing} differ within it" if self.differing else ""
            return f"equal: {head}{close}"
        report = [f"different: {self.wrong} of {head}"]
        report += [f"exceeded: {measure}" for measure in self.failed_measures]
        report += [str(extreme) for extreme in self.extremes]
        report.append(f"pattern: {self.diagnosis.text}")
        return "\n".join([*report, *self.lines])


def compare(
    got: Sequence[Array],
    expected: Sequence[Array],
    dtype: str,
    *,
    tolerance: Tolerance = EXACT,
    bounds: Sequence[Bound] | None = None,
    layout: OutputLayout | None = None,
    labels: Sequence[str] | None = None,
) -> Comparison:
    """Compare outputs with the expected ones and explain the difference.

    Args:
        got: the outputs, one per rank.
        expected: the expected outputs.
        dtype: name of their dtype; bfloat16 arrays are np.uint16 bits.
        tolerance: the tolerance.
        bounds: largest absolute error of every element, in place of the tolerance.
        layout: the places of each rank's elements, as far as they are known.
        labels: names of the outputs in the report; None: rank 0, rank 1, ...

    Returns:
        The result; `accepted` says whether all is within the tolerance.

    Raises:
        ValueError: an array is not stored as `dtype` is.

    Example:
        >>> right = np.arange(12, dtype=np.int32).reshape(4, 3)
        >>> wrong = right[[2, 3, 0, 1]]
        >>> compare([wrong], [right], "int32").diagnosis.kind
        'swapped blocks'
        >>> print(compare([right], [right], "int32").text())
        equal: 12 elements of int32, bit for bit
    """
    names = list(labels) if labels is not None else [f"rank {r}" for r in range(len(expected))]
    for array in (*got, *expected):
        if array.dtype != storage(dtype):
            raise ValueError(f"{dtype} is carried as {storage(dtype)}, got an array {array.dtype}")
    layout = layout or OutputLayout()
    if len(got) != len(expected):
        problem = f"{len(got)} outputs, expected {len(expected)}"
        return Comparison(accepted=False, dtype=dtype, problem=problem)
    for at, (g, e, name) in enumerate(zip(got, expected, names, strict=True)):
        if g.shape != e.shape:
            return _of_other_shape(g, e, dtype, layout.of(at), name)
    limits = _limits(expected, dtype, tolerance, bounds)
    unequal = [differs(g, e, dtype) for g, e in zip(got, expected, strict=True)]
    masks = [
        mask if limit is None else mask & ~(absolute_error(g, e, dtype) <= limit)
        for g, e, mask, limit in zip(got, expected, unequal, limits, strict=True)
    ]
    size, wrong = sum(m.size for m in masks), sum(int(m.sum()) for m in masks)
    failed = _failed_measures(got, expected, dtype, tolerance) if bounds is None else []
    # A measure over all elements can fail without a wrong one; then differing ones are explained.
    marked = unequal if failed and not wrong else masks
    result = Comparison(
        accepted=not failed and wrong <= tolerance.share * size,
        size=size,
        wrong=wrong,
        differing=sum(int(mask.sum()) for mask in unequal),
        dtype=dtype,
        tolerance="golden's bound" if bounds is not None else tolerance.text,
        failed_measures=tuple(failed),
        masks=tuple(marked),
    )
    if result.accepted:
        return result
    return _explained(result, Evidence(got, expected, marked, dtype, limits, layout, names))


def _explained(result: Comparison, evidence: Evidence) -> Comparison:
    """Return a result with its largest errors, its pattern and the first rows that differ."""
    about = (evidence.got, evidence.expected, evidence.masks, evidence.dtype, evidence.names)
    return replace(
        result,
        extremes=tuple(_extremes(*about)),
        diagnosis=explain(evidence),
        lines=tuple(first_rows(*about)),
    )


def _of_other_shape(
    got: Array, expected: Array, dtype: str, blocks: Sequence[Block], name: str
) -> Comparison:
    has = f"{name} has " if name else ""
    problem = f"{has}shape {list(got.shape)}, expected {list(expected.shape)}"
    found = other_shape(got, expected, dtype, blocks, name) or Diagnosis("", "")
    return Comparison(accepted=False, dtype=dtype, problem=problem, diagnosis=found)


def _limits(
    expected: Sequence[Array], dtype: str, tolerance: Tolerance, bounds: Sequence[Bound] | None
) -> list[Bound | None]:
    if bounds is not None:
        return [np.asarray(bound) for bound in bounds]
    if tolerance.limit is None:
        return [None] * len(expected)
    values = [values_of(e, dtype) for e in expected]
    with np.errstate(all="ignore"):
        # An infinity must be equal, however large the limit of a finite number is.
        limits = [np.minimum(tolerance.limit(v), _LARGEST) for v in values]
        return [
            np.where(np.isfinite(v), limit, 0.0) for v, limit in zip(values, limits, strict=True)
        ]


def _failed_measures(
    got: Sequence[Array], expected: Sequence[Array], dtype: str, tolerance: Tolerance
) -> list[str]:
    """Return the measures over all elements that exceed their limits; NaN exceeds all."""
    if tolerance.measures is None or not sum(e.size for e in expected):
        return []
    g, e = (np.concatenate([values_of(a, dtype).reshape(-1) for a in x]) for x in (got, expected))
    unequal = np.concatenate(
        [differs(a, b, dtype).reshape(-1) for a, b in zip(got, expected, strict=True)]
    )
    e = np.where(np.isfinite(e) | unequal, e, 0.0)
    g = np.where(unequal, g, e)
    with np.errstate(all="ignore"):
        results = tolerance.measures(g, e)
    return [
        f"{name} is {value:.3g}, at most {limit:.3g}"
        for name, value, limit in results
        if not value <= limit
    ]


def _extremes(
    got: Sequence[Array],
    expected: Sequence[Array],
    masks: Sequence[npt.NDArray[np.bool_]],
    dtype: str,
    names: Sequence[str],
) -> list[Extreme]:
    found = []
    measures = (("absolute", absolute_error), ("relative", relative_error), ("ULP", ulp_error))
    for kind, measure in measures:
        best: Extreme | None = None
        for output, (g, e, mask) in enumerate(zip(got, expected, masks, strict=True)):
            errors = measure(g, e, dtype) if mask.any() else None
            if errors is None:
                continue
            at = int(np.argmax(np.where(mask, errors, -1.0)))
            value = float(errors.reshape(-1)[at])
            if best is None or value > best.value:
                row, column = divmod(at, max(1, math.prod(g.shape[1:])))
                left, right = (shown(a.reshape(-1)[at : at + 1], dtype)[0] for a in (g, e))
                best = Extreme(kind, value, output, row, column, left, right, names[output])
        if best is not None:
            found.append(best)
    return found
