"""Limits of a plot's scale that outliers do not stretch."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

# How far beyond the quartiles a value belongs to the others: 1.5 times their distance (Tukey's
# fences), on a scale of powers of ten, and one power at least.
_REACH = 1.5
_LEAST_DECADES = 1.0


def robust_limits(values: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return the smallest and the largest of positive numbers that are no outliers.

    Args:
        values: finite numbers above 0, at least one.

    Example:
        >>> robust_limits(np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6e4]))
        (1.0, 5.0)
        >>> robust_limits(np.array([1.0, 6e4]))
        (1.0, 60000.0)
    """
    powers = np.log10(values)
    low, high = np.percentile(powers, [25, 75])
    reach = max(_REACH * (high - low), _LEAST_DECADES)
    inside = values[(powers >= low - reach) & (powers <= high + reach)]
    return float(inside.min()), float(inside.max())
