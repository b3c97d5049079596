"""Patterns of small errors: roundings, and signs of zero."""

from __future__ import annotations

import numpy as np

from ..data.bounds import Bound, bound
from ..data.deviation import absolute_error, ulp_error, values_of
from ..data.dtypes import Array, bits_of, float_format, is_float
from .evidence import ENOUGH_BITS, Diagnosis, Evidence, counted

_FEW = 4


def rounding(evidence: Evidence) -> Diagnosis | None:
    """Explain small errors by other roundings than golden's, or return None.

    Where the reduced numbers are known, errors up to golden's bound for any order of additions;
    where the elements were only moved, 4 units in the last place; where nothing is known, those or
    4 roundings of the output's largest number.

    Example:
        >>> from ..operators.output_layout import OutputLayout
        >>> b = np.linspace(1, 2, 9, dtype=np.float16)
        >>> a = np.nextafter(b, np.float16(3))
        >>> rounding(Evidence([a], [b], [a != b], "float16", [None], OutputLayout(), [""])).text
        'rounding: 9 errors of at most 1 ULP'
    """
    if not is_float(evidence.dtype):
        return None
    count, worst, bits = 0, 0.0, 0.0
    for output in evidence.bad_outputs():
        got, expected = (a[output].reshape(-1) for a in (evidence.got, evidence.expected))
        wrong = evidence.wrong(output)
        error = absolute_error(got[wrong], expected[wrong], evidence.dtype)
        ulps = ulp_error(got[wrong], expected[wrong], evidence.dtype)
        if ulps is None:
            return None
        allowed = _rounding_bound(evidence, output)[wrong]
        few = (ulps <= _FEW) & (not evidence.layout.parts)
        # An error of 0 is a zero of the other sign, which no rounding makes.
        if not ((error > 0) & ((error <= allowed) | few)).all():
            return None
        share = _share_as_close(values_of(expected, evidence.dtype), wrong, allowed)
        # Random numbers with many exponents seldom agree in nearly all digits.
        near = 2 * float_format(evidence.dtype).unit_roundoff
        share = np.where(ulps <= _FEW, np.minimum(share, near + share / 16), share)
        if output in evidence.distinct:
            bits -= float(np.sum(np.log2(share)))
        count += wrong.size
        worst = max(worst, float(ulps.max()))
    if bits < ENOUGH_BITS:
        return None
    return Diagnosis("rounding", f"rounding: {counted(count, 'error')} of at most {worst:.0f} ULP")


def sign_of_zero(evidence: Evidence) -> Diagnosis | None:
    """Explain wrong elements by zeros of the other sign, or return None.

    Example:
        >>> from ..operators.output_layout import OutputLayout
        >>> a, b = np.array([-0.0, 1]), np.array([0.0, 1])
        >>> masks = [np.array([True, False])]
        >>> parts = Evidence([a], [b], masks, "float64", [None], OutputLayout(), [""])
        >>> sign_of_zero(parts).text
        'sign of zero: 1 element is a zero of the other sign'
    """
    if not is_float(evidence.dtype):
        return None
    count, magnitude = 0, float_format(evidence.dtype).sign - 1
    for output in evidence.bad_outputs():
        wrong = evidence.wrong(output)
        for arrays in (evidence.got, evidence.expected):
            bits = bits_of(arrays[output].reshape(-1)[wrong], evidence.dtype)
            if (bits & bits.dtype.type(magnitude)).any():
                return None
        count += wrong.size
    what = "is a zero" if count == 1 else "are zeros"
    text = f"sign of zero: {counted(count, 'element')} {what} of the other sign"
    return Diagnosis("sign of zero", text)


def _share_as_close(values: Array, wrong: Array, allowed: Array) -> Bound:
    """Return the part of an output's numbers that are as close as each wrong element's own."""
    ordered = np.sort(values[np.isfinite(values)])
    below = np.searchsorted(ordered, values[wrong] - allowed, "left")
    above = np.searchsorted(ordered, values[wrong] + allowed, "right")
    return np.asarray(np.clip(np.maximum(above - below, 1) / max(ordered.size, 1), 0.0, 1.0))


def _rounding_bound(evidence: Evidence, output: int) -> Bound:
    """Return how large an error another rounding may make, element by element, flat."""
    dtype, expected = evidence.dtype, evidence.expected[output].reshape(-1)
    values = np.abs(values_of(expected, dtype))
    parts = evidence.layout.parts[output] if evidence.layout.parts else ()
    if not parts and evidence.layout.blocks:
        # Nothing was added, so no cancellation can make a small error large.
        return np.zeros(values.shape)
    if not parts:
        largest = float(np.max(values, initial=0.0, where=np.isfinite(values)))
        return np.full(values.shape, _FEW * float_format(dtype).unit_roundoff * largest)
    with np.errstate(all="ignore"):
        magnitudes = [np.abs(values_of(part, dtype)) for part in parts]
        product = evidence.layout.op == "prod"
        total = np.prod(magnitudes, axis=0) if product else np.sum(magnitudes, axis=0)
        allowed = bound(dtype, evidence.layout.op, len(parts), total)
    result = np.zeros(values.shape)
    result[: allowed.size] = np.where(np.isfinite(allowed), allowed, 0.0)
    return result
