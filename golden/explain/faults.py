"""Patterns of errors of products and of experts: known faults, dropped rows, a factor too many."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ..data.deviation import absolute_error, values_of
from ..data.dtypes import Array, differs, float_format, is_float
from .evidence import ENOUGH_BITS, Diagnosis, Evidence, bits_per_match, counted
from .unwritten import blanks

# A factor is the same in all rows if it is, but for so many roundings.
_ROUNDINGS = 4


def known_fault(evidence: Evidence) -> Diagnosis | None:
    """Explain the outputs by a fault that was computed from the call's inputs, or return None.

    Example:
        >>> from ..operators.output_layout import Fault, OutputLayout
        >>> b = np.arange(9, dtype=np.int32)
        >>> layout = OutputLayout(faults=(Fault("wrong scale", "it is missing", lambda: [b * 3]),))
        >>> known_fault(Evidence([b * 3], [b], [b != b * 3], "int32", [None], layout, [""])).text
        'wrong scale: it is missing in the output'
    """
    bad, faults = evidence.bad_outputs(), evidence.layout.faults
    for fault in faults:
        outputs = fault.outputs()
        if len(outputs) != len(evidence.got):
            continue
        bits = 0.0
        for output in bad:
            got, wanted = evidence.got[output], outputs[output]
            if got.shape != wanted.shape or not _same(evidence, output, wanted):
                break
            if output in evidence.distinct:
                each = bits_per_match(wanted, evidence.dtype, evidence.limits[output])
                bits += each * int(evidence.masks[output].sum())
        else:
            if bits >= ENOUGH_BITS + math.log2(len(faults)):
                where = evidence.where(bad)
                return Diagnosis(fault.kind, f"{fault.kind}: {fault.text} in {where}")
    return None


def dropped_rows(evidence: Evidence) -> Diagnosis | None:
    """Explain wrong elements by rows of tokens that were not written, or return None.

    Example:
        >>> from ..operators.output_layout import OutputLayout
        >>> b = np.arange(1, 9, dtype=np.float32).reshape(4, 2)
        >>> a = np.where(b > 6, np.float32(0), b)
        >>> layout = OutputLayout(has_tokens=True)
        >>> dropped_rows(Evidence([a], [b], [a != b], "float32", [None], layout, ["rank 0"])).text
        'dropped rows: 1 row was left zero, the first is row 3 of rank 0'
    """
    if not evidence.layout.has_tokens:
        return None
    count, bits, first, states = 0, 0.0, "", set()
    for output in evidence.bad_outputs():
        mask = evidence.masks[output]
        lines = mask.reshape(mask.shape[0], -1).any(axis=1)
        poison, zero = (b.reshape(mask.shape) for b in blanks(evidence, output))
        is_zero = zero | (values_of(evidence.got[output], evidence.dtype) == 0)
        for state, blank in (("zero", is_zero), ("poison", poison)):
            whole = blank.reshape(mask.shape[0], -1).all(axis=1) & lines
            if whole.any():
                states.add(state)
                lines &= ~whole
                count += int(whole.sum())
                first = first or f"row {np.argmax(whole)} of {evidence.name(output)}"
        if lines.any():
            return None
        if output in evidence.distinct:
            each = bits_per_match(evidence.expected[output], evidence.dtype, None)
            bits += each * int(mask.sum())
    if bits < ENOUGH_BITS:
        return None
    text = f"{counted(count, 'row')} {'was' if count == 1 else 'were'} left "
    text += f"{' or '.join(sorted(states))}, the first is {first}"
    return Diagnosis("dropped rows", f"dropped rows: {text}")


def wrong_factor(evidence: Evidence) -> Diagnosis | None:
    """Explain wrong elements by a factor of each column, or of each row, or return None.

    Example:
        >>> from ..operators.output_layout import OutputLayout
        >>> b = np.arange(1, 13, dtype=np.float32).reshape(4, 3)
        >>> a = b * np.array([2, 0.5, 4], np.float32)
        >>> wrong_factor(Evidence([a], [b], [a != b], "float32", [None], OutputLayout(), [""])).text
        'wrong scale: each column has a factor of its own, from 0.5 to 4, in the output'
    """
    if not is_float(evidence.dtype):
        return None
    for axis, word in ((None, "element"), (0, "column"), (1, "row")):
        factors, spare = [], 0
        for output in evidence.bad_outputs():
            found = _factors(evidence, output, axis)
            if found is None:
                break
            factors.append(found)
            spare += int(evidence.masks[output].sum()) - int((found != 1).sum())
        else:
            # A factor is chosen by one element; each of the others is evidence.
            bits = spare * -math.log2(2 * _ROUNDINGS * float_format(evidence.dtype).unit_roundoff)
            values = np.concatenate([found[found != 1] for found in factors])
            if bits < ENOUGH_BITS or not values.size or (axis is None and len(set(values)) > 1):
                continue
            low, high = float(values.min()), float(values.max())
            what = f"each {word} has a factor of its own, from {low:.4g} to {high:.4g},"
            what = f"all elements have the factor {low:.4g}" if axis is None else what
            where = evidence.where(evidence.bad_outputs())
            return Diagnosis("wrong scale", f"wrong scale: {what} in {where}")
    return None


def _same(evidence: Evidence, output: int, wanted: Array) -> bool:
    """Return whether an output is what a fault makes of it."""
    got, limit = evidence.got[output], evidence.limits[output]
    wrong = differs(got, wanted, evidence.dtype)
    if limit is not None:
        wrong &= ~(absolute_error(got, wanted, evidence.dtype) <= limit)
    return not wrong.any()


def _factors(evidence: Evidence, output: int, axis: int | None) -> npt.NDArray[np.float64] | None:
    """Return the factor of every column (axis 0), row (1) or of all (None); None if they differ."""
    got, wanted = (
        values_of(side[output], evidence.dtype) for side in (evidence.got, evidence.expected)
    )
    if got.ndim != 2:
        return None
    step = _ROUNDINGS * float_format(evidence.dtype).unit_roundoff
    least = float_format(evidence.dtype).smallest / step
    with np.errstate(all="ignore"):
        ratio = got / wanted
        clear = np.isfinite(ratio) & (np.abs(got) > least) & (np.abs(wanted) > least)
        sizes, ones = np.where(clear, np.abs(wanted), 0.0), np.where(clear, ratio, 1.0)
        if axis is None:
            sizes, ones = sizes.reshape(-1, 1), ones.reshape(-1, 1)
        # Of the largest number, whose rounding is the smallest.
        largest = np.expand_dims(np.argmax(sizes, axis=axis or 0), axis or 0)
        middle = np.take_along_axis(ones, largest, axis=axis or 0)
        fits = np.abs(ratio / middle - 1) <= step
    if not fits[clear].all() or (evidence.masks[output] & ~clear).any():
        return None
    changed = (evidence.masks[output]).any(axis=axis, keepdims=True)
    return np.where(changed, middle, 1.0).reshape(-1)
