"""Tolerances of results: bit for bit, a number, or the tables of ATB's test tool.

ATB's newer standard depends on the kind of operator, its older one on the dtype only:

- operators that move data, reductions by max and min, integers: exact;
- LinearParallel and AllReduce: |error| <= t max(1, |expected|), t by dtype and number of products,
  and the mean of error / max(1, |expected|) close to 0;
- ReduceScatter and ReduceScatterV: largest and mean relative error and root mean square error, each
  as a multiple of a reference implementation's. ATB measures that reference on a GPU; here its
  error is taken as ATB's floor, 2^-11, 2^-8 or 2^-14 of each value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..data.dtypes import is_float
from ..data.reduction import REDUCE_OPS
from ..data.words import unknown
from ..operators.operator import COMPUTES, MOVES, SCATTERS
from ..operators.table import OPERATORS as TABLE

Values = npt.NDArray[np.float64]
Measure = tuple[str, float, float]

# Methods of the plain level that ATB has no operator for.
_PLAIN = {
    "moe_dispatch": MOVES,
    "moe_combine": COMPUTES,
    "all_to_all_matmul": COMPUTES,
    "matmul_all_to_all": COMPUTES,
}
_ACCURACIES = {one.name: one.accuracy for one in TABLE.values()} | _PLAIN
_BY_ACCURACY = [
    tuple(name for name, one in _ACCURACIES.items() if one == accuracy)
    for accuracy in (MOVES, SCATTERS, COMPUTES)
]
MOVING, SCATTERING, COMPUTING = _BY_ACCURACY
OPERATORS = (*MOVING, *SCATTERING, *COMPUTING)

# t of |error| <= t max(1, |expected|) below 2048 products, from there, and from 16384.
_COMPUTE = {
    "float16": (2.0**-8, 2.0**-7, 2.0**-7),
    "bfloat16": (2.0**-7, 2.0**-6, 2.0**-6),
    "float32": (2.0**-11, 2.0**-10, 2.0**-9),
}
_BALANCE = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-14}
_FLOOR = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-14}
# ATB adds this to |expected| before it divides by it.
_TINY = 1e-7
# The older standard: absolute and relative part of the limit, share of elements beyond it.
_PERCENT = {
    "float32": (1e-4, 1e-4, 1e-4),
    "float64": (1e-4, 1e-4, 1e-4),
    "int32": (1e-4, 1e-4, 1e-4),
    "int64": (1e-4, 1e-4, 1e-4),
    "float16": (1e-3, 1e-3, 1e-3),
    "bfloat16": (4e-3, 4e-3, 4e-3),
    "int8": (1.0, 0.0, 1e-3),
    "int16": (1.0, 0.0, 1e-3),
    "uint8": (1.0, 0.0, 1e-2),
    "bool": (0.0, 0.0, 0.0),
}


@dataclass(frozen=True)
class Tolerance:
    """The tolerance of a comparison.

    `limit(expected)` is the largest absolute error of each element (None: bit for bit), `share` of
    the elements may exceed it, and every measure's value must not exceed its own limit.

    Example:
        >>> EXACT.limit is None
        True
    """

    text: str
    limit: Callable[[Values], Values] | None = None
    share: float = 0.0
    measures: Callable[[Values, Values], list[Measure]] | None = None


EXACT = Tolerance("bit for bit")


def tolerance(text: str, op: str, dtype: str, *, reduce: str = "sum", terms: int = 1) -> Tolerance:
    """Return the tolerance for a word or number of the command line.

    Args:
        text: exact, atb, atb-percent (ATB's older standard), or a number t, which stands for
            |error| <= t max(1, |expected|).
        op: one of OPERATORS; empty where it is not known, which atb needs.
        dtype: dtype of the tensors.
        reduce: sum, max, min, prod, avg, band, bor or bxor, where the operator reduces.
        terms: products in an element of a matrix product.

    Raises:
        ValueError: one of them is unknown, or ATB has no table for the dtype.

    Example:
        >>> tolerance("atb", "all_gather_v", "float16").text
        'bit for bit (ATB: the operator moves data)'
        >>> float(tolerance("atb", "linear_parallel", "float16", terms=4096).limit(np.ones(1))[0])
        0.0078125
    """
    if not op and text == "atb":
        raise ValueError("--tolerance atb depends on the operator: name it with --op")
    if op not in ("", *OPERATORS):
        raise unknown("operator", op, OPERATORS)
    if reduce not in REDUCE_OPS:
        raise unknown("reduction", reduce, REDUCE_OPS)
    if text == "exact":
        return EXACT
    if text == "atb":
        return _by_operator(op, dtype, reduce, terms)
    if text == "atb-percent":
        absolute, relative, share = _PERCENT[dtype]
        words = f"|error| <= {absolute:g} + {relative:g} |expected| for {1 - share:.2%} (ATB)"
        return Tolerance(words, lambda e: absolute + relative * np.abs(e), share)
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        known = ("exact", "atb", "atb-percent")
        raise unknown("tolerance", text, known, f"{', '.join(known)} or a number")
    return Tolerance(f"|error| <= {number:g} max(1, |expected|)", _at_least_one(number))


def _by_operator(op: str, dtype: str, reduce: str, terms: int) -> Tolerance:
    if op in MOVING:
        return Tolerance("bit for bit (ATB: the operator moves data)")
    if not is_float(dtype) or reduce in ("max", "min"):
        return Tolerance(f"bit for bit (ATB: {dtype if not is_float(dtype) else reduce} is exact)")
    if dtype not in _FLOOR:
        raise ValueError(f"ATB has no tolerance for {dtype}; use exact or a number")
    if op in SCATTERING:
        floor = _FLOOR[dtype]
        words = f"ATB: relative error at most 10 x {_power(floor)}, mean and RMSE 2 x"
        return Tolerance(words, lambda e: 10 * floor * (np.abs(e) + _TINY), 0.0, _ratios(floor))
    limit = _COMPUTE[dtype][0 if terms < 2048 else 1 if terms < 16384 else 2]
    words = f"ATB: |error| <= {_power(limit)} max(1, |expected|), balance {_power(_BALANCE[dtype])}"
    return Tolerance(words, _at_least_one(limit), 0.0, _balance(_BALANCE[dtype]))


def _at_least_one(factor: float) -> Callable[[Values], Values]:
    return lambda expected: factor * np.maximum(1.0, np.abs(expected))


def _balance(limit: float) -> Callable[[Values, Values], list[Measure]]:
    def measure(got: Values, expected: Values) -> list[Measure]:
        mean = np.mean((got - expected) / np.maximum(1.0, np.abs(expected)))
        return [("error balance", float(abs(mean)), limit)]

    return measure


def _ratios(floor: float) -> Callable[[Values, Values], list[Measure]]:
    def measure(got: Values, expected: Values) -> list[Measure]:
        error = np.abs(got - expected)
        relative = error / (np.abs(expected) + _TINY)
        reference = _root_mean_square(floor * expected)
        return [
            ("mean relative error", float(relative.mean()), 2 * floor),
            ("root mean square error", _root_mean_square(error), 2 * max(reference, floor)),
        ]

    return measure


def _root_mean_square(values: Values) -> float:
    return float(np.sqrt(np.mean(values * values)))


def _power(value: float) -> str:
    return f"2^{round(math.log2(value))}"
